//! Answers about pods, their workloads and their runs.
//!
//! Each task of the keeper asks here for its own work: stamps, evidence, events about ineffective
//! values, overlong terminations, reports and metrics. The keeper asks for a `RunState` whenever it
//! judges an act. The plugin asks for standings.

use std::collections::HashSet;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{expiry::Family, floor::Floors, judge::RunState, queue::NearestFields, ready::PodsReady};
use tenure_types::{evidence::Evidence, extension::Extension, projection, store::ObjectKey};

use super::{
    CeilingIndex, Ceilings, Overlong, PodStanding, QueueReports, SeenPod, extensions::going_run, limits,
    returns::PodsBelow, tally::tally,
};
use crate::{
    AnnotatedKind, IneffectiveReason, PendingStamp, RunPlace, StampForm, Uid,
    deadlines::ManagedPod,
    grants::Grants,
    own::{IneffectiveValue, LabelledOwner},
    paused::Paused,
    times::time,
};

/// The least age of a workload for an event about a missing queue or about an unused queue label:
/// queues and pods may be created after the workload.
const SETTLED: SignedDuration = SignedDuration::from_secs(10);

/// The age from which on a workload gets no event about a missing queue or about an unused queue
/// label.
const OF_LATE: SignedDuration = SignedDuration::from_mins(10);

/// Numbers of pods and paused owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CeilingCounts {
    /// The pods in a queue that aren't exempt, finished or terminating.
    pub pods: usize,
    /// The pods that run under a ceiling.
    pub under_ceiling: usize,
    /// The overdue pods, those with an act in flight included.
    pub overdue: usize,
    /// The pods that will be overdue at `soon` if they run on.
    pub soon_overdue: usize,
    /// The pods to evict: their workload wasn't ready in time.
    pub unready: usize,
    /// The paused owners that come back by themselves. An owner that is due and has pods doesn't
    /// count: it was resumed.
    pub returning: usize,
    /// The paused owners without pods that don't come back by themselves.
    pub staying_paused: usize,
    /// The pods past their ceiling that still terminate although their grace period is over.
    pub past_end: usize,
}

/// An object that the keeper is to write, with the facts on which the write depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts<T> {
    /// The object's uid.
    pub uid: Uid,
    /// The object's namespace. Empty: the object is cluster-scoped.
    pub namespace: ArcStr,
    /// The object's name.
    pub name: Box<str>,
    /// The facts.
    pub facts: T,
}

impl<T> ObjectFacts<T> {
    pub(super) fn of_pod(uid: Uid, pod: &ManagedPod, facts: T) -> Self {
        Self { uid, namespace: pod.namespace.clone(), name: pod.name.clone(), facts }
    }
}

/// The evidence that a bound pod lacks about its run. The keeper's `evidence` task writes the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingEvidence {
    /// The value of annotation `tenure.dev/evidence` to write.
    pub evidence: Evidence,
    /// True if the evidence says what ends the run. False: nothing ends the run, or the evidence says
    /// only that the pod was ready.
    pub bounds_run: bool,
    /// True if this index alone knows what ends the run, or may soon: the `PodGroup` that named the
    /// pod's queue is gone, or the pod terminates.
    pub may_not_wait: bool,
}

impl CeilingIndex {
    /// Returns the rules of a queue for the runs in it. The configured notices and rules for
    /// unready workloads count where no queue on the path to the root sets them. A queue that
    /// doesn't exist has no notices.
    pub fn queue_rules(&mut self, family: Family, queue: &str) -> NearestFields {
        let limits = self.objects.limits(family, queue);
        let Ceilings { pods_ready, notice, .. } = &self.reader;
        let nearest = limits.map(|of| of.nearest).unwrap_or_default();
        NearestFields {
            pods_ready: PodsReady::applying(nearest.pods_ready, *pods_ready),
            notice: limits.map(|_| nearest.notice.unwrap_or(*notice)),
            ..nearest
        }
    }

    /// True if a queue of this name exists, in any family.
    pub fn has_queue(&mut self, name: &str) -> bool {
        Family::ALL.into_iter().any(|of| self.objects.limits(of, name).is_some())
    }

    /// Returns the time at which the next pod's ceiling is reached, or was if the pod is overdue.
    /// None: no run is to be ended.
    pub fn next_expiry(&mut self) -> Option<Timestamp> {
        self.reschedule();
        self.reader.deadlines.next_expiry()
    }

    /// Returns the names of the live pods of a namespace that have a controller and are exempt by
    /// priority. Pods below `owner` come first, then by name.
    pub fn exempt_pods(&self, namespace: &str, owner: Uid) -> Vec<String> {
        let below: HashSet<Uid> = self.objects.owners.with_descendants(owner).into_iter().collect();
        let exempt = self.reader.deadlines.exempt(namespace);
        let mut pods: Vec<(bool, &str)> =
            exempt.map(|(name, controller)| (!below.contains(&controller.uid), name)).collect();
        pods.sort_unstable();
        pods.into_iter().map(|(_, name)| name.to_owned()).collect()
    }

    /// Returns the first end among the pods of a root owner, as far as their owners are known.
    /// None: no ceiling applies.
    pub fn first_end(&mut self, namespace: &str, root: Uid) -> Option<Timestamp> {
        self.reschedule();
        self.pods_of(namespace, root).filter_map(|(_, pod)| pod.end()).min()
    }

    /// Returns the uids and names of the pods of a root owner in a namespace, as far as their
    /// owners are known.
    pub fn pods_below(&self, namespace: &str, root: Uid) -> impl Iterator<Item = (Uid, &str)> {
        self.pods_of(namespace, root).map(|(uid, pod)| (uid, &*pod.name))
    }

    /// Returns the starts to write on `PodGroup`s that have changed since the last call, or whose
    /// start has come.
    pub fn new_stampings(&mut self, now: Timestamp) -> Vec<PendingStamp> {
        self.objects.gangs.new_stampings(now)
    }

    /// Returns the start to write now on the group of `before`. None: there is none any more.
    pub fn stamping(&mut self, before: &PendingStamp, now: Timestamp) -> Option<PendingStamp> {
        self.objects.gangs.stamping(before, now)
    }

    /// Returns the time at which there may be a new start to write, unless something changes
    /// before. None: no group waits for one.
    pub fn next_stamp(&self) -> Option<Timestamp> {
        self.objects.gangs.next_stamp()
    }

    /// Records a stamp that was written, or that was logged by a dry run.
    pub fn note_stamp(&mut self, stamping: &PendingStamp, stamped: StampForm) {
        self.objects.gangs.note_stamp(stamping, stamped);
    }

    /// Returns the numbers of pods and paused owners at `now`, for the keeper's metrics. `soon` is
    /// a later time.
    pub fn counts(&mut self, now: Timestamp, soon: Timestamp) -> CeilingCounts {
        self.reschedule();
        let past_end = self.reader.terminating.past_end(&mut self.objects, now);
        let deadlines = &self.reader.deadlines;
        let pods = PodsBelow::at(now);
        let waits = |of: &&Paused| !pods.hold_up(self, of);
        let returns = |of: &&Paused| of.returns.comes_back();
        let (returning, staying): (Vec<&Paused>, Vec<&Paused>) =
            self.objects.paused.topmost(&self.objects.owners).partition(returns);
        let is_ahead = |of: &&Paused| of.returns.at().is_some_and(|at| at > now);
        CeilingCounts {
            pods: deadlines.iter().len(),
            under_ceiling: deadlines.under_ceiling(),
            overdue: deadlines.overdue(now),
            soon_overdue: deadlines.overdue(soon),
            unready: deadlines.unready(now),
            returning: returning.iter().filter(|of| is_ahead(of) || waits(of)).count(),
            staying_paused: staying.iter().filter(|of| waits(of)).count(),
            past_end,
        }
    }

    /// Reads a pod, with the index's record of the pod if there is one. None: the pod is in no
    /// queue.
    fn seen(&mut self, pod: &projection::Pod) -> Option<SeenPod> {
        let uid = Uid::of_object(&pod.metadata);
        let Ceilings { deadlines, terminating, .. } = &self.reader;
        let known = deadlines.get(uid).or_else(|| terminating.pod(uid));
        SeenPod::read_by(pod, &mut self.objects, known)
    }

    /// Computes the standing of a pod, without keeping the pod. An exempt pod has a standing, too.
    /// None: the pod is in no queue.
    pub fn standing(&mut self, pod: &projection::Pod) -> Option<PodStanding> {
        self.seen(pod)?.standing(self)
    }

    /// Returns the state of a pod's run at `now`, by the rules of the queue that is due. `owner` is
    /// the object to act on, and `granted` all granted extensions of the namespace, both as they
    /// were just read. None for either: the fields that are read from it are None as well.
    pub fn run_state(
        &mut self,
        pod: &projection::Pod,
        (family, queue): (Family, &str),
        owner: Option<&ObjectMeta>,
        granted: Option<&[Extension]>,
        now: Timestamp,
    ) -> RunState {
        self.reschedule();
        let seen = self.seen(pod);
        let standing = seen.as_ref().and_then(|seen| seen.standing(self));
        let below = |owner| seen.as_ref()?.standing_by(&mut self.objects, Some(owner));
        let end_below = owner.and_then(below).and_then(|of| Some(of.expires?.0));
        let granted_end = granted.zip(seen.as_ref()).and_then(|(granted, seen)| self.end_with(seen, granted));
        let root = owner.map(Uid::of_object);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let first_end = root.and_then(|root| self.first_end(namespace, root));
        let of = standing.as_ref();
        let more = of.and_then(|of| {
            let (workload, since) = (root.or_else(|| Some(seen.as_ref()?.uid))?, of.began?);
            going_run(&mut self.objects, namespace, workload, since, of)?.more()
        });
        let rules = self.queue_rules(family, queue);
        let notice = rules.notice.unwrap_or_default();
        let missing = &self.reader.missing;
        let known = seen.as_ref().and_then(|of| self.reader.deadlines.get(of.uid));
        RunState {
            is_fresh: true,
            queue: of.map(|of| of.queue(family).map_or("", ArcStr::as_str).to_owned()),
            absent_queue: of.and_then(|of| of.by_default[family].as_deref()).map(str::to_owned),
            end: of.and_then(|of| of.expires),
            since: of.and_then(|of| of.clocks.since(family)),
            ceiling: of.and_then(|of| of.ceiling(self.trees())),
            end_below,
            granted_end,
            first_end,
            awaits_queue: of.is_some_and(|of| missing.has_one_of(&self.objects, of, now)),
            outlives: known.is_some_and(ManagedPod::outlives),
            ready_by: known.and_then(ManagedPod::ready_by),
            more,
            may_be_extended: of.is_some_and(|of| !of.allowance.is_none()),
            notice: known.map_or(notice, |of| of.expiry.points(notice, of.expiry.at)),
            slice_delay: rules.slice_delay(),
            on_reversal: rules.on_reversal.unwrap_or_default(),
            backoff: rules.pods_ready.map(|rules| rules.backoff),
        }
    }

    /// Takes the notes about values without effect that are to be reported now: at most one per
    /// namespace, and at most `most`. A note about a queue concerns a workload that is at least 10
    /// seconds and less than 10 minutes old: queues and pods may be created after the workload. A
    /// note that couldn't be reported is to be [put back](Self::put_back_ineffective).
    pub fn take_ineffective(&mut self, most: usize, now: Timestamp) -> Vec<IneffectiveValue> {
        self.reschedule();
        self.note_labels(now);
        let Self { objects, reader } = self;
        let doubtful = std::mem::take(&mut objects.interner.own.doubtful);
        for (uid, ()) in doubtful.into_values().flatten() {
            let Some(pod) = reader.deadlines.get(uid) else { continue };
            let ineffective = limits::ineffective(objects, uid, pod);
            let without_queue = limits::without_queue(objects, uid, pod);
            let age = now.duration_since(time(pod.created));
            if without_queue.is_some() && age < SETTLED {
                objects.interner.own.doubt(&pod.namespace, uid);
            }
            let without_queue = without_queue.filter(|_| (SETTLED..OF_LATE).contains(&age));
            ineffective.into_iter().chain(without_queue).for_each(|of| objects.interner.own.note(of));
        }
        let notes = objects.interner.own.take(most, now);
        // the queue may have been created while the note waited
        let is_ineffective = |note: &IneffectiveValue| match &note.why {
            IneffectiveReason::UnknownQueue { family, queue } => objects.limits(*family, queue).is_none(),
            _ => true,
        };
        notes.into_iter().filter(is_ineffective).collect()
    }

    /// Takes back a note that couldn't be reported at `now`.
    /// [`take_ineffective`](Self::take_ineffective) returns it again after a wait, which grows with
    /// its failures.
    pub fn put_back_ineffective(&mut self, note: IneffectiveValue, now: Timestamp) {
        self.objects.interner.own.put_back(note, now);
    }

    /// Adds notes about the owners that have the label of a queue, and no pod in a queue.
    fn note_labels(&mut self, now: Timestamp) {
        let labelled = std::mem::take(&mut self.objects.interner.own.labelled);
        for (uid, owner) in labelled.into_values().flatten() {
            let age = now.duration_since(owner.created);
            if age < SETTLED {
                self.objects.interner.own.keep_labelled(uid, owner);
            } else if age < OF_LATE && self.pods_under(&owner.namespace, uid).next().is_none() {
                let LabelledOwner { source, namespace, name, .. } = owner;
                let (bearer, why) = (AnnotatedKind::Owner(source), IneffectiveReason::LabelOnOwner);
                let (namespace, name) = (namespace.into(), name.into());
                let note = IneffectiveValue { bearer, namespace, name, uid, why, failures: 0 };
                self.objects.interner.own.note(note);
            }
        }
    }

    /// Returns the counts of the queues of the run.ai family, as of `now`.
    pub fn tally(&mut self, floors: &Floors, now: Timestamp) -> QueueReports {
        self.reschedule();
        tally(self, floors, now)
    }

    /// Returns the bound pods on which evidence is to be written: no other object in the cluster
    /// shows any more what ends their run.
    pub fn missing_evidence(&mut self) -> Vec<ObjectFacts<MissingEvidence>> {
        self.reschedule();
        let (missing, gangs) = (self.reader.deadlines.lacking_evidence(), &self.objects.gangs);
        let of = |(uid, pod): (Uid, &ManagedPod)| {
            let bounds_run = pod.is_bounded_by_evidence();
            let may_not_wait = gangs.has_lost_group(gangs.memberships(uid));
            let facts = MissingEvidence { evidence: pod.evidence(), bounds_run, may_not_wait };
            ObjectFacts::of_pod(uid, pod, facts)
        };
        missing.map(of).collect()
    }

    /// Returns the pods that terminate and lack evidence of what ends their run: they were deleted
    /// before it was written, or before this index knew them. Only pods whose grace period is longer
    /// than `longest` may outlive their ceiling.
    pub fn unnoted_terminations(&mut self, longest: SignedDuration) -> Vec<ObjectFacts<MissingEvidence>> {
        let Ceilings { terminating, deadlines, .. } = &mut self.reader;
        terminating.unnoted(&mut self.objects, deadlines, longest)
    }

    /// Counts a try to write evidence on a pod without room for it. Returns the number of earlier
    /// tries since evidence was written, whether or not the pod lacked evidence all the time.
    pub fn count_full(&mut self, uid: Uid) -> u32 {
        self.reader.deadlines.count_full(uid)
    }

    /// Forgets the tries on a pod on which evidence was written.
    pub fn forget_full(&mut self, uid: Uid) {
        self.reader.deadlines.forget_full(uid);
    }

    /// Returns the pods that terminate for longer than `longest` after both their ceiling was
    /// reached and their deletion was requested.
    pub fn overlong(&mut self, now: Timestamp, longest: SignedDuration) -> Vec<ObjectFacts<Overlong>> {
        let uids: Vec<Uid> = self.reader.terminating.0.keys().copied().collect();
        uids.into_iter().filter_map(|uid| self.overlong_pod(uid, now, longest)).collect()
    }

    /// Returns the pod with this uid, if [`overlong`](Self::overlong) returns it at `now`.
    pub fn overlong_pod(
        &mut self,
        uid: Uid,
        now: Timestamp,
        longest: SignedDuration,
    ) -> Option<ObjectFacts<Overlong>> {
        self.reader.terminating.overlong(&mut self.objects, uid, now, longest)
    }

    /// Returns the queues of a pod and the ends that Tenure sets to its run, for the usage ledger.
    /// None: the pod is in no queue.
    pub fn run_place(&mut self, pod: &projection::Pod) -> Option<RunPlace> {
        let is_exempt = self.reader.deadlines.exempts(pod);
        self.seen(pod)?.run_place(&mut self.objects, self.reader.pods_ready, is_exempt)
    }

    /// Returns the pods in queues that an owner controls in its namespace, directly or through other
    /// owners.
    pub fn controlled_pods(&self, namespace: &str, owner: Uid) -> Vec<Uid> {
        self.pods_under(namespace, owner).map(|(uid, _)| uid).collect()
    }

    /// Returns the end of a run by these extensions, in place of the known ones. None: no ceiling
    /// applies.
    fn end_with(&mut self, seen: &SeenPod, extensions: &[Extension]) -> Option<Timestamp> {
        let known = std::mem::replace(&mut self.objects.grants, Grants::listed(extensions));
        let standing = seen.standing(self);
        self.objects.grants = known;
        Some(standing?.expires?.0)
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};
    use tenure_types::{paused::ExceededCeiling, podgroup::PodGroupKind, runai::v3alpha1::QueueSpec};

    use super::*;
    use crate::{AnnotatedKind, CeilingOptions, IneffectiveReason};

    /// A pod of the name that was put on a node five seconds after it was created.
    pub fn pod(name: &str, more: &Value) -> projection::Pod {
        let mut metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kai.scheduler/queue": "own"},
        });
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let condition =
            json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": [condition]}})).unwrap()
    }

    #[test]
    fn a_ceiling_comes_from_the_queue_that_sets_the_least_or_from_the_workload() {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        index.apply_queue(
            "root",
            &serde_json::from_value::<QueueSpec>(json!({"maxDuration": "2h30m"})).unwrap(),
        );
        let own = json!({"parentQueue": "root", "maxDuration": "3h"});
        index.apply_queue("own", &serde_json::from_value::<QueueSpec>(own).unwrap());
        let mut of = |pod: &projection::Pod| {
            let standing = index.standing(pod).unwrap();
            standing.ceiling(index.trees()).map(|ceiling| (ceiling.max_duration, ceiling.queue))
        };
        assert_eq!(of(&pod("a", &json!({}))), Some(("2h30m".into(), Some("root".into()))));
        let shorter = pod("a", &json!({"annotations": {"tenure.dev/max-duration": "10m"}}));
        assert_eq!(of(&shorter), Some(("10m".into(), None)));
        let elsewhere = pod("a", &json!({"labels": {"kai.scheduler/queue": "gone"}}));
        assert_eq!(of(&elsewhere), None);
    }

    fn max_duration(text: &str) -> Value {
        json!({"tenure.dev/max-duration": text})
    }

    /// An index with a queue of one hour, and what is reported of own ceilings once it has seen these pods.
    fn take_all(
        pods: &[projection::Pod],
        prepare: impl FnOnce(&mut CeilingIndex),
    ) -> Vec<(AnnotatedKind, String, IneffectiveReason)> {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        index.apply_queue("own", &serde_json::from_value::<QueueSpec>(json!({"maxDuration": "1h"})).unwrap());
        prepare(&mut index);
        for pod in pods {
            index.apply_pod(pod);
        }
        let mut taken = Vec::new();
        loop {
            let notes = index.take_ineffective(10, Timestamp::UNIX_EPOCH);
            if notes.is_empty() {
                return taken;
            }
            taken.extend(notes.into_iter().map(|note| (note.bearer, note.name, note.why)));
        }
    }

    fn longer() -> IneffectiveReason {
        let ceiling =
            ExceededCeiling { max_duration: "1h".into(), queue: Some("own".into()), extended: None };
        IneffectiveReason::Longer { own: SignedDuration::from_hours(2), ceiling }
    }

    #[test]
    fn an_own_ceiling_that_is_longer_than_the_queues_is_reported_on_its_bearer() {
        let bearing = pod("a", &json!({"annotations": max_duration("2h")}));
        assert_eq!(take_all(&[bearing], |_| {}), [(AnnotatedKind::Pod, "a".into(), longer())]);

        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
        let pods = ["a", "b"].map(|name| pod(name, &json!({"ownerReferences": [owner]})));
        let job = json!({"name": "j", "namespace": "ns", "uid": "j", "annotations": max_duration("2h")});
        let of_owner = take_all(&pods, |index| index.apply_owner(7, &serde_json::from_value(job).unwrap()));
        assert_eq!(of_owner, [(AnnotatedKind::Owner(7), "j".into(), longer())]);

        let group = json!({
            "metadata": {"name": "g", "namespace": "ns", "uid": "g", "annotations": max_duration("2h")},
            "spec": {"queue": "own", "minMember": 1},
        });
        let member = pod("a", &json!({"annotations": {"pod-group-name": "g"}}));
        let of_group = take_all(&[member], |index| {
            index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        });
        assert_eq!(of_group, [(AnnotatedKind::PodGroup(PodGroupKind::Runai), "g".into(), longer())]);
    }

    #[test]
    fn an_own_ceiling_is_not_reported_on_an_owner_that_a_pod_of_another_namespace_names() {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
        let forged = pod("a", &json!({"ownerReferences": [owner]}));
        let job = json!({"name": "j", "namespace": "other", "uid": "j", "annotations": max_duration("2h")});
        let of_owner =
            take_all(&[forged], |index| index.apply_owner(7, &serde_json::from_value(job).unwrap()));
        assert_eq!(of_owner, []);
    }

    #[test]
    fn an_own_ceiling_that_counts_or_may_count_is_not_reported() {
        for text in ["30m", "1h"] {
            assert_eq!(take_all(&[pod("a", &json!({"annotations": max_duration(text)}))], |_| {}), []);
        }
        let elsewhere = |queue: &str| {
            let more = json!({"labels": {"kai.scheduler/queue": queue}, "annotations": max_duration("2h")});
            pod("a", &more)
        };
        assert_eq!(take_all(&[elsewhere("gone")], |_| {}), []);
        let unbounded = |index: &mut CeilingIndex| {
            index.apply_queue("unbounded", &serde_json::from_value::<QueueSpec>(json!({})).unwrap());
        };
        assert_eq!(take_all(&[elsewhere("unbounded")], unbounded), []);
    }

    #[test]
    fn a_note_that_was_put_back_is_dropped_once_its_queue_exists() {
        let at = |minute: &str| format!("2026-01-01T00:{minute}Z").parse::<Timestamp>().unwrap();
        for exists in [false, true] {
            let mut index = CeilingIndex::new(CeilingOptions::default());
            index.apply_pod(&pod("a", &json!({})));
            let note = index.take_ineffective(10, at("01:00")).remove(0);
            assert!(matches!(note.why, IneffectiveReason::UnknownQueue { .. }), "{note:?}");
            index.put_back_ineffective(note, at("01:00"));
            if exists {
                index.apply_queue("own", &serde_json::from_value::<QueueSpec>(json!({})).unwrap());
            }
            assert_eq!(index.take_ineffective(10, at("01:05")).is_empty(), exists);
        }
    }

    #[test]
    fn a_namespace_full_of_values_without_effect_crowds_out_no_other() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let mut index = CeilingIndex::new(CeilingOptions::default());
        let named = |namespace: &str, name: String| {
            json!({
                "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"kai.scheduler/queue": "gone"},
            })
        };
        for (namespace, count) in [("flood", 5_000), ("quiet", 1)] {
            for number in 0..count {
                let pod = json!({"metadata": named(namespace, format!("pod-{number}"))});
                index.apply_pod(&serde_json::from_value(pod).unwrap());
                let owner = named(namespace, format!("job-{number}"));
                index.apply_owner(0, &serde_json::from_value(owner).unwrap());
            }
        }
        let notes = (0..2).flat_map(|_| index.take_ineffective(10, now)).collect::<Vec<_>>();
        let quiet = notes.iter().filter(|note| note.namespace == "quiet");
        assert_eq!(quiet.map(|note| note.name.as_str()).collect::<Vec<_>>(), ["job-0", "pod-0"]);
    }

    #[test]
    fn copies_of_an_owners_annotation_are_not_reported() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true});
        let bearing = |name: &str, owners: Value| {
            let metadata = json!({
                "name": name, "namespace": "ns", "uid": name,
                "annotations": max_duration("soon"), "ownerReferences": owners,
            });
            serde_json::from_value(metadata).unwrap()
        };
        let notes = take_all(&[], |index| {
            index.apply_owner(1, &bearing("set", json!([deployment])));
            index.apply_owner(0, &bearing("d", json!([])));
        });
        let bearers: Vec<_> = notes.iter().map(|(bearer, name, _)| (*bearer, name.as_str())).collect();
        assert_eq!(bearers, [(AnnotatedKind::Owner(0), "d")]);
    }
}
