//! The counts in a queue's status, and how they are written beside the fields of other writers.
//!
//! The index counts, and the keeper writes the parts that differ. In v2, which has no field for the
//! counts, they are an annotation.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Map, Value, json};
use tenure_types::{
    keys,
    projection::{JsonText, ObservedStatus, READY},
    runai::QueueVersion,
};

use crate::{
    floor::Floors,
    runs::Runs,
    start::{second_down, second_up},
    tree::{QueueId, QueueTree},
};

/// The status of a queue, as far as Tenure writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// The names of the queues that have this one as parent, in alphabetical order.
    pub children: Vec<String>,
    /// The numbers of workloads that name the queue.
    pub workloads: WorkloadCounts,
    /// The start times of the running workloads.
    pub runs: Runs,
    /// The time at which the first running workload reaches its ceiling. None: no ceiling applies
    /// to any.
    pub next_expiry: Option<Timestamp>,
    /// The place in the tree, for the condition `Ready`. None: the condition isn't written.
    pub place: Option<TreePlace>,
}

/// The place of a queue in its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreePlace {
    /// The queue is a top-level queue, or its parent exists.
    Sound,
    /// The parent of this name doesn't exist: the queue counts as a top-level queue.
    MissingParent(String),
    /// The queue is its own ancestor, or has such an ancestor: the limits of all queues of the cycle apply.
    Cycle,
}

impl TreePlace {
    /// Returns the place of a queue. A parent that is missing further up is a matter of the queue that names it.
    pub fn of(tree: &QueueTree, queue: QueueId) -> Self {
        let parent = tree.get(queue).and_then(|(_, queue)| queue.parent.as_deref());
        match parent {
            Some(parent) if tree.find(parent).is_none() => Self::MissingParent(parent.to_owned()),
            _ if tree.meets_cycle(queue) => Self::Cycle,
            _ => Self::Sound,
        }
    }

    /// Returns the status, reason and message of the condition.
    fn words(&self) -> (&'static str, &'static str, String) {
        match self {
            Self::Sound => ("True", "Accepted", String::new()),
            Self::MissingParent(parent) => {
                ("False", "ParentMissing", format!("queue {parent:?} doesn't exist: this queue counts as a top-level queue"))
            }
            Self::Cycle => (
                "False",
                "Cycle",
                "the queue is its own ancestor, or has such an ancestor: the limits of all queues of the cycle apply".into(),
            ),
        }
    }
}

/// Numbers of workloads by state. Each workload has one state; protected workloads also count as
/// running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadCounts {
    /// Workloads with a pod that is scheduled and hasn't ended.
    pub running: u32,
    /// Running workloads that are within a floor.
    pub protected: u32,
    /// Workloads that stay paused until a user resumes them.
    pub paused: u32,
    /// Paused workloads that come back by themselves.
    pub requeueing: u32,
}

/// The parts of a status that differ from the intended status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// True if the names of the children differ. Other writers may write them as well.
    pub children: bool,
    /// True if the fields differ that only Tenure writes.
    pub own: bool,
}

impl QueueReport {
    /// Returns the part that Tenure writes in a version of the queue: in v2, KAI-Scheduler writes the children and the
    /// conditions itself.
    #[must_use]
    pub fn of(self, version: QueueVersion) -> Self {
        match version {
            QueueVersion::V3alpha1 => self,
            QueueVersion::V2 => Self { children: Vec::new(), place: None, ..self },
        }
    }

    /// Returns the condition `Ready` of a queue of this generation. Its time changes with its status alone.
    pub fn ready(
        &self,
        generation: Option<i64>,
        observed: &ObservedStatus,
        now: Timestamp,
    ) -> Option<Condition> {
        let (status, reason, message) = self.place.as_ref()?.words();
        let before = observed.ready.read().filter(|before: &Condition| before.status == status);
        let now = Time(second_down(now));
        Some(Condition {
            type_: READY.into(),
            status: status.into(),
            observed_generation: generation,
            last_transition_time: before.map_or(now, |before| before.last_transition_time),
            reason: reason.into(),
            message,
        })
    }

    /// Returns the difference between the status that a queue of this generation has and this one.
    pub fn difference(&self, observed: &ObservedStatus, generation: Option<i64>) -> Difference {
        let mut own = self.own();
        let mut is = |field: &str| JsonText::from(own.remove(field).unwrap_or_default());
        let ready = self.ready(generation, observed, Timestamp::UNIX_EPOCH);
        let own = observed.workloads != is("workloads")
            || observed.next_expiry != is("nextExpiry")
            || ready.is_some_and(|ready| observed.ready.read().as_ref() != Some(&ready));
        let children = if observed.child_queues.is_null() {
            !self.children.is_empty()
        } else {
            observed.child_queues != json!(self.children).into()
        };
        Difference { children, own }
    }

    /// Returns the object for server-side apply: in v3alpha1 to the status, in v2 to the object
    /// itself. `children`: the names of the children are written as well. `ready`: the condition.
    ///
    /// The object has the uid of the queue, so it can't be applied to another queue of the same
    /// name.
    pub fn applied(
        &self,
        name: &str,
        uid: &str,
        version: QueueVersion,
        children: bool,
        ready: Option<&Condition>,
    ) -> Value {
        let api_version = format!("scheduling.run.ai/{version}");
        match version {
            QueueVersion::V3alpha1 => {
                let mut status = self.own();
                status.extend(ready.map(|ready| ("conditions".to_owned(), json!([ready]))));
                if children && !self.children.is_empty() {
                    status.insert("childQueues".into(), json!(self.children));
                }
                let metadata = json!({"name": name, "uid": uid});
                json!({"apiVersion": api_version, "kind": "Queue", "metadata": metadata, "status": status})
            }
            QueueVersion::V2 => {
                let annotations = json!({keys::QUEUE_STATUS_ANNOTATION: Value::from(self.own()).to_string()});
                let metadata = json!({"name": name, "uid": uid, "annotations": annotations});
                json!({"apiVersion": api_version, "kind": "Queue", "metadata": metadata})
            }
        }
    }

    /// Returns the merge patch that removes a `nextExpiry` that is no longer due from a v3alpha1
    /// status. None: there is nothing to remove.
    ///
    /// Server-side apply can't remove the field once other clients have written the queue in v2:
    /// there both of Tenure's fields are one annotation, which stays.
    pub fn removal(&self, uid: &str, observed: &ObservedStatus) -> Option<Value> {
        let is_left = self.next_expiry.is_none() && !observed.next_expiry.is_null();
        is_left.then(|| json!({"metadata": {"uid": uid}, "status": {"nextExpiry": null}}))
    }

    /// Returns the fields of the status that only Tenure writes.
    fn own(&self) -> Map<String, Value> {
        let WorkloadCounts { running, protected, paused, requeueing } = self.workloads;
        // an empty list is written as well: a list that was left out would stay after a write in v2
        let workloads = json!({
            "running": running, "protected": protected, "paused": paused, "requeueing": requeueing,
            "runs": self.runs.written(),
        });
        let mut own = Map::from_iter([("workloads".to_owned(), workloads)]);
        own.extend(self.next_expiry.map(|at| ("nextExpiry".to_owned(), json!(second_up(at).to_string()))));
        own
    }
}

/// Returns the longest time after its start in which a workload of a queue is protected: against
/// workloads of the same queue, or against workloads of another tree. Floors of queues in between,
/// and those of node pools, don't count.
pub fn longest_floor(floors: &Floors, tree: &QueueTree, queue: QueueId) -> SignedDuration {
    let preempt = floors.preempt(tree, Some(queue), None).value;
    let reclaim = floors.reclaim(tree, None, Some(queue), None).value;
    preempt.max(reclaim).to_signed()
}

/// Returns the end of a workload's protection. None: it isn't protected at `now`, or the floor is
/// zero. A start in the future isn't cut to `now`: the floor counts from that start.
pub fn protected_until(start: Timestamp, floor: SignedDuration, now: Timestamp) -> Option<Timestamp> {
    let end = start.checked_add(floor).unwrap_or(Timestamp::MAX);
    (!floor.is_zero() && now < end).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{floor::ReclaimResolveMethod, queue::RunaiQueue};

    fn report() -> QueueReport {
        QueueReport {
            children: vec!["a".into(), "b".into()],
            workloads: WorkloadCounts { running: 3, protected: 2, paused: 1, requeueing: 0 },
            runs: Runs::of(vec!["2026-01-01T00:00:00Z".parse().unwrap()]),
            next_expiry: Some("2026-01-02T03:04:05.001Z".parse().unwrap()),
            place: Some(TreePlace::Sound),
        }
    }

    /// Applies a report to a queue of generation 7 without a status.
    fn applied(report: &QueueReport, version: QueueVersion, children: bool) -> Value {
        let ready =
            report.ready(Some(7), &ObservedStatus::default(), "2026-01-01T00:00:09.9Z".parse().unwrap());
        report.applied("q", "u", version, children, ready.as_ref())
    }

    fn observed(status: Value) -> ObservedStatus {
        serde_json::from_value(status).unwrap()
    }

    fn difference(report: &QueueReport, status: Value) -> (bool, bool) {
        let Difference { children, own } = report.difference(&observed(status), Some(7));
        (children, own)
    }

    #[test]
    fn only_a_next_expiry_that_there_is_none_of_has_to_be_taken_away() {
        let observed = |next: Value| ObservedStatus { next_expiry: next.into(), ..ObservedStatus::default() };
        let (some, none) = (report(), QueueReport { next_expiry: None, ..report() });
        let left = json!("2026-01-02T03:04:05Z");
        let removal = json!({"metadata": {"uid": "u"}, "status": {"nextExpiry": null}});
        assert_eq!(none.removal("u", &observed(left.clone())), Some(removal));
        assert_eq!(none.removal("u", &observed(Value::Null)), None);
        assert_eq!(some.removal("u", &observed(left)), None);
    }

    #[test]
    fn what_was_applied_is_no_different() {
        let applied = applied(&report(), QueueVersion::V3alpha1, true);
        let workloads = json!({
            "running": 3, "protected": 2, "paused": 1, "requeueing": 0,
            "runs": [{"startedBefore": "2026-01-01T00:00:01Z", "workloads": 1}],
        });
        let status = json!({
            "childQueues": ["a", "b"], "workloads": workloads, "nextExpiry": "2026-01-02T03:04:06Z",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 7,
                "lastTransitionTime": "2026-01-01T00:00:09Z",
            }],
        });
        let expected = json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "q", "uid": "u"},
            "status": status,
        });
        assert_eq!(applied, expected);
        assert_eq!(difference(&report(), status), (false, false));
    }

    #[test]
    fn in_v2_it_is_an_annotation_without_what_v2_has_itself() {
        let applied = applied(&report().of(QueueVersion::V2), QueueVersion::V2, true);
        assert_eq!(applied["metadata"]["uid"], "u");
        assert_eq!(applied.get("status"), None);
        let text = applied["metadata"]["annotations"]["tenure.dev/status"].as_str().unwrap();
        let status: Value = serde_json::from_str(text).unwrap();
        assert_eq!(status.get("childQueues"), None);
        assert_eq!(difference(&report().of(QueueVersion::V2), status), (false, false));
        assert_eq!(report().of(QueueVersion::V3alpha1), report());
    }

    #[test]
    fn each_part_differs_by_itself() {
        let good = applied(&report(), QueueVersion::V3alpha1, true)["status"].clone();
        let with = |field: &str, value: Value| {
            let mut status = good.clone();
            status[field] = value;
            difference(&report(), status)
        };
        for children in
            [json!(null), json!(["a"]), json!(["a", "b", "c"]), json!(["b", "a"]), json!("a"), json!([1, 2])]
        {
            assert_eq!(with("childQueues", children.clone()), (true, false), "{children}");
        }
        for workloads in [json!(null), json!({"running": 3}), json!(3)] {
            assert_eq!(with("workloads", workloads.clone()), (false, true), "{workloads}");
        }
        for next in [json!(null), json!("soon"), json!("2026-01-02T03:04:05Z")] {
            assert_eq!(with("nextExpiry", next.clone()), (false, true), "{next}");
        }
    }

    #[test]
    fn a_condition_is_written_for_a_new_generation_or_place_and_its_time_changes_with_its_status_alone() {
        let was = observed(applied(&report(), QueueVersion::V3alpha1, true)["status"].clone());
        let later = "2026-02-02T00:00:00Z".parse().unwrap();
        assert!(!report().difference(&was, Some(7)).own);
        assert!(report().difference(&was, Some(8)).own);
        let edited = report().ready(Some(8), &was, later).unwrap();
        assert_eq!(edited.last_transition_time.0.to_string(), "2026-01-01T00:00:09Z");
        let orphan = QueueReport { place: Some(TreePlace::MissingParent("p".into())), ..report() };
        assert!(orphan.difference(&was, Some(7)).own);
        let ready = orphan.ready(Some(7), &was, later).unwrap();
        assert_eq!((&*ready.status, &*ready.reason), ("False", "ParentMissing"));
        assert_eq!(ready.last_transition_time.0, later);
        for unreadable in [json!({"conditions": [{"type": "Ready"}]}), json!({"conditions": "x"})] {
            assert!(report().difference(&observed(unreadable), Some(7)).own);
        }
    }

    #[test]
    fn a_queue_is_ready_if_its_parent_exists_and_no_ancestor_is_below_it() {
        let tree = tree(&[
            ("root", "", "", ""),
            ("team", "root", "", ""),
            ("orphan", "gone", "", ""),
            ("below", "orphan", "", ""),
            ("a", "b", "", ""),
            ("b", "a", "", ""),
            ("under", "a", "", ""),
            ("own", "own", "", ""),
        ]);
        let place = |name: &str| TreePlace::of(&tree, tree.find(name).unwrap());
        for name in ["root", "team", "below"] {
            assert_eq!(place(name), TreePlace::Sound, "{name}");
        }
        assert_eq!(place("orphan"), TreePlace::MissingParent("gone".into()));
        for name in ["a", "b", "under", "own"] {
            assert_eq!(place(name), TreePlace::Cycle, "{name}");
        }
    }

    #[test]
    fn a_queue_without_children_and_ceiling_says_nothing_of_them() {
        let report = QueueReport::default();
        let status = applied(&report, QueueVersion::V3alpha1, true)["status"].clone();
        assert_eq!(status.as_object().unwrap().keys().collect::<Vec<_>>(), ["workloads"]);
        assert_eq!(difference(&report, status), (false, false));
        assert_eq!(difference(&report, json!({})), (false, true), "nothing is said yet");
        assert!(!report.difference(&observed(json!({"childQueues": []})), None).children, "none either");
        assert!(report.difference(&observed(json!({"childQueues": ["a"]})), None).children);
    }

    #[test]
    fn children_that_are_anothers_are_left_out() {
        let status = applied(&report(), QueueVersion::V3alpha1, false)["status"].clone();
        assert_eq!(difference(&report(), status), (true, false));
    }

    /// Queues by name, parent and floors against their own and against others.
    fn tree(queues: &[(&str, &str, &str, &str)]) -> QueueTree {
        let queue = |parent: &str, preempt: &str, reclaim: &str| RunaiQueue {
            parent: Some(parent.to_owned()).filter(|parent| !parent.is_empty()),
            preempt_floor: preempt.parse().ok(),
            reclaim_floor: reclaim.parse().ok(),
            ..RunaiQueue::default()
        };
        queues
            .iter()
            .map(|(name, parent, preempt, reclaim)| (name, queue(parent, preempt, reclaim)))
            .collect()
    }

    #[test]
    fn the_longest_floor_is_that_against_neighbours_or_strangers() {
        let tree = tree(&[
            ("root", "", "", "30m"),
            ("leaf", "root", "10m", "50m"),
            ("quick", "root", "40m", ""),
            ("open", "", "0s", ""),
            ("round", "round", "1h", "1h"),
        ]);
        let minutes =
            |floors: &Floors, queue: &str| longest_floor(floors, &tree, tree.find(queue).unwrap()).as_mins();
        let lca =
            Floors { preempt: "5m".parse().unwrap(), reclaim: "1m".parse().unwrap(), ..Floors::default() };
        for (queue, expected) in [("root", 30), ("leaf", 30), ("quick", 40), ("open", 1), ("round", 60)] {
            assert_eq!(minutes(&lca, queue), expected, "{queue}");
        }
        let from_the_leaf = Floors { method: ReclaimResolveMethod::Queue, ..lca };
        assert_eq!(minutes(&from_the_leaf, "leaf"), 50);
    }

    #[test]
    fn protection_ends_with_the_floor() {
        let at = |second: i64| Timestamp::from_second(1_000 + second).unwrap();
        let until =
            |start: i64, floor: i64| protected_until(at(start), SignedDuration::from_secs(floor), at(100));
        assert_eq!(until(90, 11), Some(at(101)));
        assert_eq!(until(90, 10), None, "at its very end");
        assert_eq!(until(90, 0), None);
        assert_eq!(until(200, 0), None, "a start in the future needs a floor, too");
        assert_eq!(until(200, 1), Some(at(201)));
        assert_eq!(until(0, i64::MAX), Some(Timestamp::MAX));
    }
}
