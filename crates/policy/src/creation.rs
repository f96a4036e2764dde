//! Answers to the creation or change of an owner that asks for a longer run than the ceiling of its
//! queue.
//!
//! The webhook calls this module for requests to `POST /owners`: it reads an [`AskingOwner`], finds
//! the queues of its pods, and calls [`answer`]. The keeper uses the comparisons of a pod with the
//! templates of its owner, such as [`claims_otherwise`].
//!
//! An answer is a courtesy: the ceiling holds in any case. So an owner is refused only for its own
//! request. If its queue isn't known, there is no answer.

mod place;
mod raw;
mod read;
mod template;

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::ObjectReference;
use tenure_types::{
    ExtendedDuration,
    duration::for_people,
    keys,
    podgroup::{PodGroup, PodGroupKind},
    runai::v3alpha1::OverCeiling,
};

use crate::{
    admission::Findings,
    ceiling,
    expiry::{Family, PerFamily},
    field::FieldError,
    floor::Floors,
    kueue::KueueQueues,
    limits::QueueLimits,
    naming::command,
    tree::QueueTree,
};

use place::PodPlace;
use read::AskedTime;
pub use read::AskingOwner;
pub use template::{PodClaim, claims_otherwise, own_claim, priority_classes, unused_label};

/// The most `PodGroup`s, and the most queues of T9k, that the webhook looks up for an answer.
pub const MOST_LOOKUPS: usize = 4;

/// The kind and name of a group that a template names. The group is in the owner's namespace.
pub type NamedGroup = (PodGroupKind, String);

/// The result of looking up a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupLookup {
    /// The group exists, and names this queue. None: it names no queue.
    Found(Option<String>),
    /// The group doesn't exist.
    Absent,
    /// The API server gave no answer, or an error.
    Unknown,
}

impl GroupLookup {
    /// Returns the result for a group that exists. A group of T9k that names no queue is in the
    /// queue `default`.
    pub fn found(kind: PodGroupKind, group: &PodGroup) -> Self {
        let default = (kind == PodGroupKind::Tensorstack).then(|| keys::TENSORSTACK_DEFAULT_QUEUE.to_owned());
        Self::Found(group.minimums(kind).queue.filter(|queue| !queue.is_empty()).or(default))
    }
}

/// The family and the name of a queue.
pub type FamilyQueue = (Family, String);

impl AskingOwner {
    /// Returns the groups whose queues count: at most [`MOST_LOOKUPS`].
    pub fn groups(&self) -> BTreeSet<NamedGroup> {
        let named: BTreeSet<NamedGroup> = self.places.iter().flat_map(PodPlace::groups).collect();
        named.into_iter().take(MOST_LOOKUPS).collect()
    }

    /// Returns the queues of the owner's pods. `found` has the groups that were looked up, and
    /// `kueue` maps queues of Kueue.
    ///
    /// The queue of a group comes before a label. If a pod names a group that isn't known, the
    /// pod's queue in the family of that group isn't known either, and is left out.
    pub fn queues(
        &self,
        namespace: &str,
        kueue: &KueueQueues,
        found: &HashMap<NamedGroup, GroupLookup>,
    ) -> BTreeSet<FamilyQueue> {
        let mut queues = BTreeSet::new();
        for place in &self.places {
            let pod = place.pod(namespace);
            for family in Family::ALL {
                let (label, kind) = (kueue.queue_of(family, &pod).map(str::to_owned), family.row().groups);
                let queue = match kind.named_by(&pod) {
                    None => label,
                    Some(name) => match found.get(&(kind, name.to_owned())) {
                        Some(GroupLookup::Found(queue)) => queue.clone().or(label),
                        Some(GroupLookup::Absent) => label,
                        Some(GroupLookup::Unknown) | None => None,
                    },
                };
                queues.extend(queue.map(|queue| (family, queue)));
            }
        }
        queues.extend(self.t9k_queue.clone().map(|queue| (Family::Tensorstack, queue)));
        queues
    }
}

/// The queues and floors by which owners are answered.
#[derive(Clone, Copy, Debug)]
pub struct CeilingSources<'q> {
    /// The queues of each family.
    pub trees: PerFamily<&'q QueueTree>,
    /// The configuration of floors.
    pub floors: &'q Floors,
}

/// The ceiling of a queue, as an answer states it.
#[derive(Clone, Debug)]
struct StatedCeiling<'q> {
    /// The queue that sets the ceiling: the named one or an ancestor.
    queue: &'q str,
    /// The longest run in the named queue: a ceiling or a time slice.
    longest: ExtendedDuration,
    /// The limits of the named queue.
    limits: QueueLimits,
}

impl<'q> CeilingSources<'q> {
    /// True if a queue is known, or the default queue counts in its place.
    pub fn has(&self, (family, queue): &FamilyQueue) -> bool {
        self.trees[*family].bind(queue).is_some()
    }

    /// Returns the ceiling of a queue. None: no ceiling applies, or the queue isn't known.
    fn of(&self, (family, queue): &'q FamilyQueue) -> Option<StatedCeiling<'q>> {
        let tree = self.trees[*family];
        let (of, _) = ceiling::effective(tree, queue)?;
        let limits = QueueLimits::of(tree, self.floors, tree.bind(queue)?);
        Some(StatedCeiling { queue: of, longest: limits.ceiling?, limits })
    }
}

/// Answers an owner by the queues of its pods. For each field that asks for more than a ceiling,
/// the queue's `overCeiling` decides whether that is an error or a warning. Of several queues that
/// refuse, or else of those that warn, the queue with the shortest ceiling is named.
///
/// Commands name the owner as `object`. None: the owner can't be extended, as a `CronJob`. `absent`
/// has the queues that don't exist, which are warnings. If no queue has a ceiling, there are no
/// other findings.
pub fn answer(
    owner: &AskingOwner,
    object: Option<&ObjectReference>,
    queues: &BTreeSet<FamilyQueue>,
    absent: &BTreeSet<FamilyQueue>,
    known: &CeilingSources<'_>,
) -> Findings {
    let mut findings = Findings::default();
    findings.warnings.extend(absent.iter().map(|(_, queue)| {
        format!(
            "queue {queue:?}, which the pods of this workload name, doesn't exist: no ceiling applies to them"
        )
    }));
    let ceilings: Vec<_> = queues.iter().filter_map(|queue| known.of(queue)).collect();
    if ceilings.is_empty() {
        return findings;
    }
    for asked in owner.asks.values() {
        let exceeded = |over| {
            let all = ceilings.iter().filter(|of| of.longest.to_signed() < asked.time);
            let all = all.filter(|of| of.limits.nearest.over_ceiling.unwrap_or_default() == over);
            all.min_by_key(|of| of.longest)
        };
        if let Some(ceiling) = exceeded(OverCeiling::Refuse) {
            findings.errors.push(refusal(asked, ceiling, object));
        } else if let Some(ceiling) = exceeded(OverCeiling::Warn) {
            findings.warnings.push(warning(asked, ceiling, object));
        }
    }
    findings.warnings.extend(owner.unreadable.values().map(ToString::to_string));
    findings
}

/// Returns the error about a time that is longer than the ceiling.
fn refusal(asked: &AskedTime, ceiling: &StatedCeiling<'_>, object: Option<&ObjectReference>) -> FieldError {
    let (most, ends, more) = (most(asked, ceiling), ends(ceiling), more(asked, ceiling, object));
    let detail = format!("must be at most {most}: {ends}{more}");
    FieldError::invalid(asked.field.as_str(), asked.value.clone(), detail)
}

/// Returns the warning about a time that is longer than the ceiling.
fn warning(asked: &AskedTime, ceiling: &StatedCeiling<'_>, object: Option<&ObjectReference>) -> String {
    // a long value is cut as in an error
    let FieldError { field, value, .. } = FieldError::invalid(asked.field.as_str(), asked.value.clone(), "");
    let (most, ends, more) = (most(asked, ceiling), ends(ceiling), more(asked, ceiling, object));
    format!("{field}: {value} is too long: {ends}: set at most {most}{more}")
}

/// Returns the greatest value of the field that isn't too long, in whole seconds or as a duration.
fn most(asked: &AskedTime, ceiling: &StatedCeiling<'_>) -> String {
    if asked.in_seconds {
        ceiling.longest.to_signed().as_secs().max(1).to_string()
    } else {
        ceiling.longest.to_string()
    }
}

/// Returns the sentence on the end of a run: for good, or as a time slice.
fn ends(StatedCeiling { queue, longest, limits }: &StatedCeiling<'_>) -> String {
    match limits.nearest.slice_delay() {
        None => format!("Queue {queue} ends a run after {longest}"),
        Some(delay) if delay.is_zero() => {
            format!("Queue {queue} pauses a run after {longest}, and then starts the next one")
        }
        Some(delay) => {
            format!("Queue {queue} pauses a run after {longest}, and starts the next one {delay} later")
        }
    }
}

/// Returns the command by which a user gets more time than the ceiling. Empty: the queues allow
/// none.
fn more(asked: &AskedTime, ceiling: &StatedCeiling<'_>, object: Option<&ObjectReference>) -> String {
    let allowance = ceiling.limits.extensions;
    if allowance.is_none() {
        return String::new();
    }
    let time = for_people(
        asked.time.saturating_sub(ceiling.longest.to_signed()).min(allowance.max_total.to_signed()),
    );
    let command = match object {
        Some(object) => format!("{} {time}", command("extend", object)),
        None => format!("kubectl tenure extend job/NAME {time}"),
    };
    format!("; for more time, ask while it runs: {command}")
}

#[cfg(test)]
mod tests;
