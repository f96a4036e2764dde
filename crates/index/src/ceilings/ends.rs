//! The workloads whose objects show another end than their run has, in annotation
//! `tenure.dev/expires-at`. The keeper's `ExpiryController` asks for them every few seconds, and
//! writes the ends.
//!
//! A tenant may change what an object shows. So a shown end is no more than a reason to look: the
//! end that is written comes from the deadlines.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};

use super::CeilingIndex;
use crate::{
    DueBatch, Task, Uid,
    deadlines::ManagedPod,
    times::{Milliseconds, in_time, time},
};

/// The least age of a run before its workload shows the end. A run that ends sooner costs no write.
const SETTLED: SignedDuration = SignedDuration::from_secs(10);

/// A workload whose object shows another end than its run has, as far as the watches have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleEnd {
    /// The workload's namespace.
    pub namespace: ArcStr,
    /// The uid of the object that shows the end: a root owner, or a pod without one.
    pub object: Uid,
    /// The end of the run. None: no ceiling applies any more.
    pub end: Option<Timestamp>,
    /// The pod of the workload whose run ends first.
    pub pod: Uid,
    /// The end that the object shows. None: no end.
    shown: Option<Milliseconds>,
}

/// The answer about one workload.
enum EndCheck {
    /// The object shows the right end, or the end is past.
    Right,
    /// The run is younger than `SETTLED`.
    Later,
    Stale(StaleEnd),
}

impl CeilingIndex {
    /// Returns workloads whose objects show another end than their run has, in no order. A call
    /// checks up to `most` pods, and the next call continues from there. The first calls check all
    /// pods. Further calls check pods that were planned again, whose workload's object has changed,
    /// or whose workload was stale or too young before.
    pub fn stale_ends(&mut self, now: Timestamp, most: usize) -> Vec<StaleEnd> {
        self.reschedule();
        let (mut checks, mut right) = (HashMap::new(), Vec::new());
        for uid in self.reader.deadlines.next_moved_ends(most) {
            let Some((namespace, object)) = self.object_of(uid) else { continue };
            let check = checks.entry((namespace.clone(), object));
            match check.or_insert_with(|| self.check_end(&namespace, object, now)) {
                EndCheck::Right => right.push(uid),
                EndCheck::Later | EndCheck::Stale(_) => {}
            }
        }
        self.reader.deadlines.end_is_shown(&right);
        let stale = |check| if let EndCheck::Stale(stale) = check { Some(stale) } else { None };
        checks.into_values().filter_map(stale).collect()
    }

    /// Returns a pod of a workload whose object shows another end, and takes the workload off the
    /// list. `failures`: the number of failed tries so far. None: the object shows the right end by
    /// now, or the run is too young.
    pub fn take_stale_end(&mut self, known: &StaleEnd, failures: u8, now: Timestamp) -> Option<DueBatch> {
        self.reschedule();
        let EndCheck::Stale(stale) = self.check_end(&known.namespace, known.object, now) else {
            return None;
        };
        let all: Vec<Uid> = self.pods_showing(&known.namespace, known.object).map(|(uid, _)| uid).collect();
        self.reader.deadlines.end_is_shown(&all);
        let task = if stale.end.is_some() { Task::Note } else { Task::Withdraw };
        let now = now.as_millisecond();
        let mut first = self.reader.deadlines.get(stale.pod)?.due(stale.pod, task, (now, now));
        (first.announced_end, first.attempts) = (in_time(stale.shown), failures);
        Some(DueBatch { task, first, rest: Vec::new() })
    }

    /// Has the next call of [`stale_ends`](Self::stale_ends) check the workload of a pod again.
    pub fn doubt_end(&mut self, pod: Uid) {
        self.reader.deadlines.doubt_end(pod);
    }

    /// Stops looking at ends, until the next call of [`stale_ends`](Self::stale_ends). That call
    /// checks all pods.
    pub fn forget_ends(&mut self) {
        self.reader.deadlines.moved_ends = None;
    }

    /// True if an end or a notice is due. An end by a ceiling that was tried before doesn't count.
    pub fn is_pressed(&mut self, now: Timestamp) -> bool {
        self.reschedule();
        self.reader.deadlines.is_pressed(now)
    }

    /// Has workloads checked whose objects have changed, that have lost a pod, or whose chain of
    /// owners has changed.
    pub(super) fn follow_ends(&mut self) {
        let changed = self.objects.shown_ends.take_changed();
        let rerooted = self.objects.owners.take_rerooted();
        let left = std::mem::take(&mut self.reader.deadlines.left);
        if self.reader.deadlines.moved_ends.is_none() {
            return;
        }
        let roots = left
            .into_iter()
            .filter_map(|(namespace, of)| Some((namespace, self.objects.owners.root(Some(of))?)));
        let roots: HashSet<(ArcStr, Uid)> = roots.chain(changed).collect();
        let pods =
            roots.iter().filter_map(|(namespace, root)| Some(self.pods_of(namespace, *root).next()?.0));
        let below = rerooted.into_iter().flat_map(|of| self.objects.owners.with_descendants(of));
        let below: HashSet<Uid> = below.collect();
        let of_below = below.iter().flat_map(|of| self.reader.deadlines.controlled_by(*of));
        for pod in pods.chain(of_below.map(|(uid, _)| uid)).collect::<Vec<_>>() {
            self.reader.deadlines.doubt_end(pod);
        }
    }

    /// Returns the object that shows the end of a pod's run, with its namespace: the root owner, or
    /// the pod without one. None: the pod isn't kept.
    fn object_of(&self, uid: Uid) -> Option<(ArcStr, Uid)> {
        let pod = self.reader.deadlines.get(uid)?;
        let root = self.objects.owners.root(pod.controller);
        Some((pod.namespace.clone(), root.unwrap_or(uid)))
    }

    /// Returns the pods whose end an object shows, with their records.
    fn pods_showing(&self, namespace: &str, object: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let itself = self.reader.deadlines.get(object).map(|pod| (object, pod));
        let itself = itself.filter(|(_, pod)| self.objects.owners.root(pod.controller).is_none());
        itself.into_iter().chain(self.pods_of(namespace, object))
    }

    /// Compares the first end among the pods of an object with the end that the object shows.
    fn check_end(&self, namespace: &ArcStr, object: Uid, now: Timestamp) -> EndCheck {
        let first = self.pods_showing(namespace, object).min_by_key(|(uid, pod)| (pod.expiry.at, *uid));
        let Some((pod, first)) = first else { return EndCheck::Right };
        let shown =
            if pod == object { first.shown_end } else { self.objects.shown_ends.get_in(namespace, object) };
        let end = Milliseconds::new(first.expiry.at);
        if shown == end || end.is_some_and(|end| end.get() <= now.as_millisecond()) {
            return EndCheck::Right;
        }
        let begun = time(first.started.map_or(first.created, Milliseconds::get));
        if now.duration_since(begun) < SETTLED {
            return EndCheck::Later;
        }
        let (namespace, end) = (namespace.clone(), first.end());
        EndCheck::Stale(StaleEnd { namespace, object, end, pod, shown })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_types::{projection, runai::v3alpha1::QueueSpec};

    use super::*;
    use crate::{CeilingOptions, ceilings::tests::at};

    struct World(CeilingIndex);

    impl World {
        /// With a queue of this ceiling.
        fn new(ceiling: &str) -> Self {
            let mut world = Self(CeilingIndex::new(CeilingOptions::default()));
            world.queue(ceiling);
            world
        }

        fn queue(&mut self, ceiling: &str) {
            let spec: QueueSpec = serde_json::from_value(json!({"maxDuration": ceiling})).unwrap();
            self.0.apply_queue("q", &spec);
        }

        /// Adds a pod that was scheduled at a time, of a Job or without an owner.
        fn pod(&mut self, name: &str, job: Option<&str>, scheduled: i64, shown: Option<i64>) {
            let owner = job.map(|job| {
                json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true}])
            });
            let metadata = json!({
                "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(scheduled),
                "labels": {"kai.scheduler/queue": "q"}, "ownerReferences": owner, "annotations": showing(shown),
            });
            let condition =
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)});
            let pod = json!({"metadata": metadata, "status": {"conditions": [condition]}});
            self.0.apply_pod(&serde_json::from_value::<projection::Pod>(pod).unwrap());
        }

        fn job(&mut self, name: &str, shown: Option<i64>) {
            let job = json!({"name": name, "namespace": "ns", "uid": name, "annotations": showing(shown)});
            self.0.apply_owner(1, &serde_json::from_value(job).unwrap());
        }

        /// The objects that show another end, with the end that they are to show.
        fn stale(&mut self, now: i64) -> Vec<(String, Option<i64>)> {
            let stale = self.0.stale_ends(at(now), 100);
            let named = |stale: &StaleEnd| {
                let known = ["a", "b", "job", "other"].into_iter().find(|of| Uid::of(of) == stale.object);
                (known.unwrap().to_owned(), stale.end.map(|end| end.as_second() - at(0).as_second()))
            };
            let mut stale: Vec<_> = stale.iter().map(named).collect();
            stale.sort();
            stale
        }
    }

    fn showing(end: Option<i64>) -> Value {
        end.map_or(Value::Null, |end| json!({"tenure.dev/expires-at": at(end)}))
    }

    fn one(object: &str, end: i64) -> Vec<(String, Option<i64>)> {
        vec![(object.to_owned(), Some(end))]
    }

    #[test]
    fn a_workload_is_to_show_the_first_end_of_its_pods_once_its_run_has_lasted() {
        let mut world = World::new("100s");
        world.pod("a", Some("job"), 5, None);
        world.pod("b", Some("job"), 0, None);
        assert_eq!((world.stale(9), world.stale(10)), (vec![], one("job", 100)));
        world.job("job", Some(100));
        assert_eq!(world.stale(10), []);
        world.0.delete_pod(Uid::of("b"));
        assert_eq!(world.stale(20), one("job", 105), "the first pod has left");
        world.job("job", Some(105));
        assert_eq!(world.stale(20), []);
    }

    #[test]
    fn a_pod_without_an_owner_is_to_show_its_own_end() {
        let mut world = World::new("100s");
        world.pod("a", None, 0, None);
        assert_eq!(world.stale(10), one("a", 100));
        world.pod("a", None, 0, Some(100));
        assert_eq!(world.stale(10), []);
    }

    #[test]
    fn an_end_that_moves_or_goes_and_one_that_a_user_writes_is_put_right() {
        let mut world = World::new("100s");
        world.job("job", Some(100));
        world.pod("a", Some("job"), 0, None);
        assert_eq!(world.stale(20), []);
        world.job("job", Some(9_000));
        assert_eq!(world.stale(20), one("job", 100));
        world.job("job", None);
        assert_eq!(world.stale(20), one("job", 100));
        world.queue("50s");
        assert_eq!(world.stale(20), one("job", 50));
        world.job("job", Some(50));
        world.queue("");
        assert_eq!(world.stale(20), [("job".to_owned(), None)]);
        let stale = world.0.stale_ends(at(20), 100).remove(0);
        let batch = world.0.take_stale_end(&stale, 0, at(20)).unwrap();
        assert_eq!((batch.task, batch.first.announced_end), (Task::Withdraw, Some(at(50))));
        world.job("job", None);
        assert_eq!(world.stale(20), []);
    }

    #[test]
    fn what_was_taken_is_stale_again_only_by_a_change_or_a_failure() {
        let mut world = World::new("100s");
        world.pod("a", Some("job"), 0, None);
        world.pod("b", Some("job"), 0, None);
        let stale = world.0.stale_ends(at(10), 100).remove(0);
        let batch = world.0.take_stale_end(&stale, 3, at(10)).unwrap();
        assert_eq!((batch.task, batch.first.deadline, batch.first.attempts), (Task::Note, at(100), 3));
        assert_eq!(world.stale(11), []);
        world.0.doubt_end(batch.first.uid);
        assert_eq!(world.stale(11), one("job", 100));
        world.job("job", Some(100));
        assert_eq!(world.0.take_stale_end(&stale, 0, at(11)), None);
    }

    #[test]
    fn a_call_looks_at_some_pods_and_the_next_calls_look_at_the_others_in_turn() {
        let mut world = World::new("100s");
        let names = ["a", "b", "job", "other"];
        for name in names {
            world.pod(name, None, 0, None);
        }
        let mut all = names.map(Uid::of).to_vec();
        all.sort_unstable();
        let turn = |_| world.0.stale_ends(at(10), 1).into_iter().map(|stale| stale.object);
        assert_eq!((0..8).flat_map(turn).collect::<Vec<_>>(), [all.clone(), all].concat());
        world.pod("b", None, 0, Some(100));
        assert_eq!(world.stale(10).len(), 3);
    }

    #[test]
    fn an_end_that_has_passed_is_shown_no_more_and_all_are_checked_by_a_new_leader() {
        let mut world = World::new("100s");
        world.pod("a", None, 0, None);
        assert_eq!(world.stale(100), []);
        world.pod("b", None, 50, None);
        assert_eq!(world.stale(101), one("b", 150));
        world.0.forget_ends();
        world.job("other", Some(1));
        world.0.delete_pod(Uid::of("a"));
        world.0.reschedule();
        assert!(world.0.reader.deadlines.left.is_empty(), "a keeper that doesn't lead keeps no list");
        assert_eq!(world.stale(101), one("b", 150));
    }

    #[test]
    fn ends_and_notices_that_are_due_come_first() {
        let mut world = World::new("100s");
        world.pod("a", Some("job"), 0, None);
        assert!(!world.0.is_pressed(at(100)));
        assert!(world.0.is_pressed(at(101)));
        let batch = world.0.next_batch(at(101)).unwrap();
        world.0.record_outcome(&batch, crate::BatchCoverage::All, crate::ActionOutcome::Failed, at(101));
        assert!(!world.0.is_pressed(at(102)), "what was tried holds up nothing");
    }
}
