//! Extensions: more time than the ceiling for one run of a workload, as far as the queues on the
//! path to the root allow.
//!
//! The keeper decides about each `Extension` with [`decide`], and writes the events of [`event`].
//! The index computes the [`GoingRun`] of a request. `kubectl tenure` shows the same messages.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use tenure_types::{
    ExtendedDuration,
    duration::for_people,
    extension::{Extension, ExtensionState},
    journal::MoreTime,
};

use crate::{naming::command, reason::EventReason};

/// The most extensions of a run below queues that set no number. More than well-meant runs need: the
/// end of each pod is computed from all extensions of its run, and a user may ask for many short ones.
pub const MOST_EXTENSIONS: u32 = 100;

/// The extensions that a run may get. The default allows none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The longest total of a run's extensions that is granted without approval.
    pub auto_approve: ExtendedDuration,
    /// The longest total of a run's extensions.
    pub max_total: ExtendedDuration,
    /// The most extensions of a run. None: no queue sets a number. No more than [`MOST_EXTENSIONS`] are
    /// granted then, and all that were granted count.
    pub max_count: Option<u32>,
}

impl Allowance {
    /// Returns the lesser of each value, for a run below two queues.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self {
            auto_approve: self.auto_approve.min(other.auto_approve),
            max_total: self.max_total.min(other.max_total),
            max_count: self.max_count.into_iter().chain(other.max_count).min(),
        }
    }

    /// True if no run gets any extension.
    pub const fn is_none(self) -> bool {
        self.max_total.is_zero() || matches!(self.max_count, Some(0))
    }

    /// Returns the time that a run gets beyond its ceiling. `grants` has the times that were
    /// granted, in the order of their requests: grants beyond the number and the total that are
    /// allowed don't count.
    pub fn total(self, grants: impl IntoIterator<Item = SignedDuration>) -> SignedDuration {
        let count = self.max_count.map_or(usize::MAX, |count| count.try_into().unwrap_or(usize::MAX));
        let grants = grants.into_iter().take(count);
        let all = grants.fold(SignedDuration::ZERO, SignedDuration::saturating_add);
        all.min(self.max_total.to_signed())
    }
}

/// The run of a workload for which time was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRun {
    /// The run goes on.
    Going(GoingRun),
    /// The run goes on in a queue of this name, which doesn't exist.
    WithoutQueue(String),
    /// The run has ended. A pod that runs now has started after the request.
    Over,
    /// No pod of the workload is known to run.
    Unknown,
}

/// A run that goes on, with the facts on which a request depends. Of several pods, the one that
/// allows least counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingRun {
    /// The queue of the workload.
    pub queue: String,
    /// The queue that allows the shortest total. None: no queue of the run.ai family sets a total.
    pub limited_by: Option<String>,
    /// False if no ceiling ends the run.
    pub has_ceiling: bool,
    /// The extensions that the run may get.
    pub allowance: Allowance,
    /// The number of grants that the run has had.
    pub count: u32,
    /// The total time of these grants.
    pub total: SignedDuration,
    /// True if a person has denied time for the run. Then no time is granted without approval.
    pub is_denied: bool,
}

impl GoingRun {
    /// Returns the time that the run may still get, without approval and in all. None: no more
    /// time.
    pub fn more(&self) -> Option<MoreTime> {
        let Allowance { auto_approve, max_total, max_count } = self.allowance;
        let left = |most: SignedDuration| most.saturating_sub(self.total).max(SignedDuration::ZERO);
        let more = MoreTime {
            at_once: if self.is_denied {
                SignedDuration::ZERO
            } else {
                left(auto_approve.min(max_total).to_signed())
            },
            in_all: left(max_total.to_signed()),
        };
        let may_ask = self.has_ceiling && self.count < max_count.unwrap_or(MOST_EXTENSIONS);
        Some(more).filter(|more| may_ask && more.in_all.is_positive())
    }
}

/// The decision about a pending request or a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtensionDecision {
    /// The extension stays as it is.
    Keep,
    /// The request waits for a person. The message says why.
    Await(String),
    /// The time is granted.
    Grant(SignedDuration),
    /// The time can't be granted. The message says why.
    Deny(String),
    /// The run for which time was requested has ended.
    End,
}

/// Decides about an extension by its run. A pending request and a grant end with their run. Until
/// then, a pending request may be granted, denied or left to a person. Anything else stays.
pub fn decide(extension: &Extension, run: &RequestedRun) -> ExtensionDecision {
    match (extension.state(), run) {
        (ExtensionState::Pending | ExtensionState::Granted, RequestedRun::Over) => ExtensionDecision::End,
        (ExtensionState::Pending, RequestedRun::Going(run)) => match extension.spec.duration.parse() {
            Ok(duration) => decide_request(duration.to_signed(), run),
            Err(error) => ExtensionDecision::Deny(format!("spec.duration: {error}")),
        },
        // the queue may have been created a moment ago
        (ExtensionState::Pending, RequestedRun::WithoutQueue(queue)) => ExtensionDecision::Await(format!(
            "Waits for queue {queue:?}, which doesn't exist: no ceiling ends its run"
        )),
        _ => ExtensionDecision::Keep,
    }
}

/// Decides about a pending request for this time. A request beyond what the queues allow is denied;
/// one beyond what they allow without approval waits, and so does one for a run for which a person
/// has denied time.
fn decide_request(duration: SignedDuration, run: &GoingRun) -> ExtensionDecision {
    let GoingRun { queue, limited_by, has_ceiling, allowance, count, total, is_denied } = run;
    let Allowance { auto_approve, max_total, max_count } = *allowance;
    if !has_ceiling {
        return ExtensionDecision::Deny("No ceiling ends its run".into());
    }
    if allowance.is_none() {
        let why = limited_by.as_ref().map_or_else(
            || format!("Queue {queue} ends its run, and queues of its kind allow no extensions"),
            |queue| format!("Queue {queue} allows no extensions (spec.extensions)"),
        );
        return ExtensionDecision::Deny(why);
    }
    let most = max_count.unwrap_or(MOST_EXTENSIONS);
    if *count >= most {
        return ExtensionDecision::Deny(format!(
            "Its run has had {count} extensions, of at most {most} (maxCount)"
        ));
    }
    let after = total.saturating_add(duration);
    if after > max_total.to_signed() {
        let left = max_total.to_signed().saturating_sub(*total);
        let left = left.is_positive().then(|| format!(": ask for at most {}", for_people(left)));
        let left = left.unwrap_or_default();
        let by = limited_by.as_ref().map_or_else(String::new, |queue| format!(" of Queue {queue}"));
        return ExtensionDecision::Deny(format!(
            "A run gets at most {max_total} in all (maxTotal{by}), and it has had {}{left}",
            for_people(*total)
        ));
    }
    if *is_denied {
        return ExtensionDecision::Await("Waits for approval: a person has denied time for this run".into());
    }
    if after > auto_approve.to_signed() {
        return ExtensionDecision::Await(format!(
            "Waits for approval: without it, a run gets at most {auto_approve} in all (autoApprove)"
        ));
    }
    ExtensionDecision::Grant(duration)
}

/// Returns the message about a run that had ended before it got the time, with the command that
/// starts the next run.
pub fn run_ended(object: &ObjectReference) -> String {
    format!(
        "The run for which time was requested has ended. If the workload is paused, {} lets it run again, with a full ceiling",
        command("resume", object)
    )
}

/// Returns the message about a target that doesn't exist: it was deleted, or another object has its
/// name.
pub fn no_such_target(extension: &Extension) -> String {
    let target = &extension.spec.target;
    format!("There is no {} {} with uid {}", target.kind, target.name, target.uid)
}

/// Returns the message about a target of a kind that Tenure doesn't pause.
pub fn not_paused(kind: &str) -> String {
    format!(
        "Tenure doesn't pause a {kind}: name an object that the {kind} controls, as kubectl tenure list shows it, or a pod"
    )
}

/// Returns the reason and the message of the event about an extension's state. Users write parts of
/// the message, so the name of the extension comes first. None: the extension has no state yet.
pub fn event(extension: &Extension) -> Option<(EventReason, String)> {
    let name = extension.metadata.name.as_deref().unwrap_or_default();
    let status = extension.status.clone().unwrap_or_default();
    let by = status.by.as_deref().unwrap_or_default();
    let message = status.message.map_or_else(String::new, |message| format!(": {message}"));
    let asked = extension.spec.duration.as_str();
    let (reason, text) = match status.state? {
        ExtensionState::Pending => {
            let user = extension.spec.requested_by.as_deref().unwrap_or_default();
            let reason = extension.spec.reason.as_ref().map_or_else(String::new, |of| format!(" ({of})"));
            (EventReason::ExtensionRequested, format!(": {user} asks for {asked} more{reason}{message}"))
        }
        ExtensionState::Granted => {
            let granted = extension.granted().unwrap_or_default();
            let text = format!(": {by} has granted {granted} more for this run{message}");
            (EventReason::ExtensionGranted, text)
        }
        ExtensionState::Denied => {
            (EventReason::ExtensionDenied, format!(": {asked} more was denied by {by}{message}"))
        }
        ExtensionState::Used => (EventReason::ExtensionUsed, ": the run that got the time has ended".into()),
        ExtensionState::Expired => (EventReason::ExtensionExpired, format!(" has expired{message}")),
    };
    Some((reason, format!("Extension {name}{text}")))
}

#[cfg(test)]
mod tests;
