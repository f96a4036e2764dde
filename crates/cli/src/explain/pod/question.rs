//! The answer about one pod, put together from a snapshot.
//!
//! Called by `explain` and `explain pod`, after all owners of the pod were read. Makes no request.
//! The rights to use queues are added by the caller.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use tenure_index::{PodStanding, Uid};
use tenure_policy::{
    climb::Action,
    expiry::{Exemption, Family, Scope, claimed, exemption, own_ceiling},
    floor::Floor,
    gang::{PodProgress, progress},
    naming::{self, command, reference},
    pause,
    preemption::{PreemptionKind, protected_until},
    queue::NearestFields,
    toleration::{ClassState, PreemptorClaim, Toleration, judge},
    tree::QueueId,
};
use tenure_types::{
    ExtendedDuration,
    duration::for_people,
    keys::{EXPIRES_AT_ANNOTATION, MAX_DURATION_ANNOTATION},
    projection::Pod,
    runai::v3alpha1::OnReversal,
};

use super::{
    super::text::shown, ExpiryAction, PodExplanation, Protection, QueueRelation, TolerationAnswer,
    WorkloadRun,
};
use crate::{
    floors::SourcedValue,
    snapshot::{NamedWorkload, NamespacedName, Snapshot},
};

/// A pod, and what has been read about it.
pub(super) struct ExplainedPod<'s> {
    pub snapshot: &'s Snapshot,
    pub key: &'s NamespacedName,
    pub pod: &'s Pod,
    /// The rules of its queue for the end of its run. None: no ceiling applies.
    pub rules: Option<NearestFields>,
    /// Sentences about annotations that have no effect.
    pub without_effect: Vec<String>,
    /// True if the keeper only reports its actions, as far as the user may see.
    pub runs_dry: bool,
}

impl ExplainedPod<'_> {
    /// Returns the answer. `action` is the keeper's action on the pod, and `workload` the Workload
    /// of Kueue that would be paused.
    pub fn answer(
        &self,
        (action, workload): (&Action, Option<&OwnerReference>),
        standing: Option<PodStanding>,
    ) -> PodExplanation {
        let Self { snapshot, pod, key, .. } = self;
        let (gang, tree) = (snapshot.gang(pod), snapshot.tree());
        let of_owner = || claimed(pod).filter(|_| *action == Action::Exempt);
        let exempt = exemption(pod, &Scope::default()).or_else(of_owner);
        let is_gone = progress(pod) == PodProgress::Gone;
        let computed = standing.map(|standing| WorkloadRun::of(standing, exempt));
        let noted = match action {
            Action::Pause(owner) => snapshot.index.shown_end(Uid::of(&owner.uid)),
            _ => own_end(pod),
        };
        let noted = snapshot.shown_end(noted, snapshot.now);
        let run = computed.clone().map(|run| run.showing(noted));
        let (computed, run) = (computed.as_ref(), run.as_ref());
        let expiring = run.filter(|run| run.expires().is_some());
        let shows_end = run.is_some_and(|run| run.shows_end);
        let expires_at = expiring.and_then(WorkloadRun::expires);
        // for an end that is put off after a change of a queue, the notice was given at once
        let points = self.rules.filter(|_| !shows_end).and_then(|rules| rules.notice).unwrap_or_default();
        let notices = |at: Timestamp| points.iter().filter_map(move |point| at.checked_sub(point).ok());
        let path = gang.workload.place.queue.map(|queue| tree.path(queue)).unwrap_or_default();
        let queue_is_hidden = snapshot.hidden[Family::Runai] && gang.workload.place.name.is_some();
        let (preemption_toleration, problem) = match self.toleration() {
            Ok(toleration) => (toleration, None),
            Err(problem) => (None, Some(problem)),
        };
        PodExplanation {
            pod: shown(key),
            queue: gang.workload.place.name.map(str::to_owned),
            path: path.iter().rev().map(|id| tree.name(*id).to_owned()).collect(),
            tensorstack_queue: run.and_then(|run| Some(run.standing.queue(Family::Tensorstack)?.to_string())),
            // the caller asks the cluster
            queue_access: Vec::new(),
            started_at: gang.workload.start,
            started_at_from: gang.start_from,
            elastic: gang.is_elastic(),
            queue_is_hidden,
            end_is_hidden: run.is_some_and(|run| run.queues_are_hidden),
            // a verdict would be wrong, and not only incomplete
            protected: if is_gone || queue_is_hidden { Vec::new() } else { self.protections(&gang, &path) },
            preemption_toleration,
            priority_class_trouble: problem,
            expires_at,
            shows_end,
            notices_at: expires_at.into_iter().flat_map(notices).collect(),
            ceiling_since: expiring.and_then(WorkloadRun::since),
            ceiling_since_from: expiring.map(WorkloadRun::since_from),
            max_duration: computed.and_then(|run| run.ceiling(snapshot.index.trees())).map(ceiling),
            extension: expiring
                .map(|run| run.standing.extension)
                .filter(SignedDuration::is_positive)
                .map(for_people),
            without_effect: self.without_effect.clone(),
            would: exempt.is_none().then(|| self.would(action, workload)),
            exempt: exempt.map(why),
            workload: gang.name,
        }
    }

    /// Returns the protections against all queues: the own queue, the ancestors, and the other
    /// top-level queues. `path` leads from the pod's queue to the root.
    fn protections(&self, gang: &NamedWorkload<'_>, path: &[QueueId]) -> Vec<Protection> {
        let Self { snapshot, pod, .. } = *self;
        let (tree, floors, place) = (snapshot.tree(), &snapshot.floors, &gang.workload.place);
        let pool = snapshot.pool(pod);
        let (Some(name), queue) = (place.name, place.queue) else { return Vec::new() };
        let against = |name: &str, preemptor, kind: PreemptionKind, floor: Floor<'_>| Protection {
            preemptor_queue: name.to_owned(),
            preemptor,
            kind: kind.name(),
            until: protected_until(gang.workload.start, &floor, snapshot.now),
            floor: floor.into(),
        };
        let reclaim = |preemptor: QueueId, relation| {
            let floor = floors.reclaim(tree, Some(preemptor), queue, pool);
            against(tree.name(preemptor), relation, PreemptionKind::Reclaim, floor)
        };
        let preempt = floors.preempt(tree, queue, pool);
        let mut protections = vec![against(name, QueueRelation::Same, PreemptionKind::Preempt, preempt)];
        protections.extend(path.iter().skip(1).map(|above| reclaim(*above, QueueRelation::Below)));
        let mut others: Vec<&str> = tree.queues().map(|(name, _)| name).collect();
        others.sort_unstable();
        let others = others.into_iter().filter_map(|name| tree.find(name));
        let others = others.filter(|id| tree.parent(*id).is_none() && path.last() != Some(id));
        protections.extend(others.map(|top| reclaim(top, QueueRelation::OtherTree)));
        protections
    }

    /// Returns the toleration of the pod's priority class, or the reason why it isn't known. None:
    /// the class has no toleration.
    fn toleration(&self) -> Result<Option<TolerationAnswer>, String> {
        let name = self.pod.spec.priority_class_name.as_deref().unwrap_or_default();
        if self.snapshot.hides_classes && !name.is_empty() {
            return Err(format!("its PriorityClass {name:?} may protect it: you may not read it"));
        }
        let state = self.snapshot.class_state(self.pod);
        let problem = match state {
            ClassState::None => return Ok(None),
            ClassState::Known(Toleration { minimum_preemptable_priority, seconds }) => {
                let scheduled_at = self.pod.scheduled_at().map(|at| at.0);
                // the claim that is tolerated if any is
                let least = PreemptorClaim { priority: i32::MIN, never_preempts: false };
                return Ok(Some(TolerationAnswer {
                    priority_class: name.to_owned(),
                    minimum_preemptable_priority,
                    toleration_seconds: seconds,
                    until: judge(state, scheduled_at, &least, self.snapshot.now).until(),
                }));
            }
            ClassState::Missing => {
                "doesn't exist: until it does, only system-critical pods may preempt the pod"
            }
            ClassState::Unreadable => "has a toleration that can't be read: it tolerates nothing",
        };
        Err(format!("its PriorityClass {name:?} {problem}"))
    }

    /// Returns the keeper's action at the end of the run.
    fn would(&self, action: &Action, workload: Option<&OwnerReference>) -> ExpiryAction {
        let (namespace, pod) = self.key;
        let (of_pod, table) = (naming::of_pod(self.pod), &self.snapshot.table);
        let slice_delay = self.rules.and_then(|rules| rules.slice_delay());
        let deletes_owner = matches!(action, Action::Pause(owner) if table.deletes(owner));
        let workload = workload.filter(|_| !deletes_owner);
        let known = if let Action::Pause(owner) = action { owner } else { &of_pod };
        let kueue_workload_of = workload.map(|_| format!("{} {namespace}/{}", known.kind, known.name));
        let (action, owner) = match action {
            Action::Pause(owner) if deletes_owner => ("delete", Some(owner)),
            Action::Pause(owner) => ("pause", workload.or(Some(owner))),
            Action::DeletePod if workload.is_some() => ("pause", workload),
            Action::DeletePod => ("delete", None),
            Action::AwaitDeletion(owner) => ("awaitDeletion", Some(owner)),
            Action::Forbidden(owner) => ("forbidden", Some(owner)),
            Action::Exempt => ("nothing", None),
        };
        let paused = owner.filter(|_| action == "pause");
        let mut rules = paused.into_iter().flat_map(|owner| table.rules(owner));
        let rule = rules.next();
        ExpiryAction {
            dry_run: self.runs_dry,
            action,
            kind: owner.map_or("Pod", |owner| &owner.kind).to_owned(),
            name: format!("{namespace}/{}", owner.map_or(pod, |owner| &owner.name)),
            kueue_workload_of,
            field: rule.map(|rule| rule.field.clone()),
            value: rule.map(|rule| rule.value_at(self.snapshot.now)),
            or_field: rules.next().map(|rule| rule.field.clone()),
            on_reversal: paused
                .zip(self.rules.filter(|rules| rules.slice_delay().is_none()))
                .and_then(|(owner, rules)| table.on_reversal(owner).or(rules.on_reversal))
                .filter(|on_reversal| *on_reversal == OnReversal::DeletePods),
            comes_back_after: paused.and(slice_delay).map(|delay| delay.to_string()),
            resume: paused.map(|_| command("resume", &reference(known, Some(namespace)))),
        }
    }
}

/// Returns sentences about annotations `tenure.dev/max-duration` of a pod and its owner that have
/// no effect: texts that can't be read, and ceilings above the queue's.
pub(super) fn without_effect(
    snapshot: &mut Snapshot,
    pod: &Pod,
    action: &Action,
    standing: Option<&PodStanding>,
) -> Vec<String> {
    let owner = match action {
        Action::Pause(owner) | Action::AwaitDeletion(owner) => Some(owner),
        _ => None,
    };
    let of_owner = owner.and_then(|owner| {
        Some((format!("{} {}", owner.kind, owner.name), snapshot.owners.max_duration(owner)?))
    });
    let of_pod = pod.annotations().get(MAX_DURATION_ANNOTATION);
    let of_pod = of_pod.map(|text| (format!("Pod {}", pod.name_any()), text.as_str()));
    let invalid = of_owner.into_iter().chain(of_pod).filter_map(|(of, text)| {
        let error = own_ceiling(text).error?;
        Some(format!("{of}: {}", pause::own_invalid(text, &error)))
    });
    let mut sentences: Vec<String> = invalid.collect();
    sentences.extend(standing.and_then(|standing| {
        let own = standing.ignored_own(&mut snapshot.index)?;
        Some(pause::own_ignored(own, &standing.ceiling(snapshot.index.trees())?))
    }));
    sentences
}

/// Returns the end of the run that the pod itself shows in its annotation.
fn own_end(pod: &Pod) -> Option<Timestamp> {
    pod.annotations().get(EXPIRES_AT_ANNOTATION)?.parse().ok()
}

/// Returns a ceiling with its origin. No queue: the ceiling is the annotation's.
fn ceiling((value, queue): (ExtendedDuration, Option<&str>)) -> SourcedValue {
    let own = || format!("annotation {MAX_DURATION_ANNOTATION}");
    SourcedValue { value: value.to_string(), from: queue.map_or_else(own, |name| format!("queue {name:?}")) }
}

/// Returns the reason of an exemption, for a sentence.
const fn why(exemption: Exemption) -> &'static str {
    match exemption {
        Exemption::Priority => "its priority is that of the cluster's own pods",
        Exemption::DaemonSet => "a DaemonSet controls it",
        Exemption::StaticPod => "it is a static pod",
        Exemption::Terminating => "it is terminating",
        Exemption::Finished => "it has ended",
        Exemption::Scheduler => "another scheduler places it",
        Exemption::Namespace => "its namespace is exempt",
    }
}
