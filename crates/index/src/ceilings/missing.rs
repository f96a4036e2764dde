//! Queues that went missing a moment ago: a tool that replaces queues creates them again at once.
//! The index looks for such queues after each change of queues. For a moment after a queue went
//! missing, the keeper puts off the ends of runs.

use std::collections::{BTreeMap, BTreeSet};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::expiry::Family;

use super::PodStanding;
use crate::cluster::ClusterObjects;

/// The time for which the rest of a tree ends no run after one of its queues went missing. The
/// fields of the missing queue, such as a longer time to get ready, wouldn't count.
const MOMENT: SignedDuration = SignedDuration::from_mins(1);

/// The queues that workloads or queues name and that don't exist, with the time since which each is
/// missing.
#[derive(Debug, Default)]
pub struct MissingQueues {
    since: BTreeMap<(Family, String), Timestamp>,
    /// The queues that were deleted since the last refresh.
    pub gone: Vec<(Family, String)>,
}

impl MissingQueues {
    /// Looks for queues that are missing since a change that was seen at `now`. Forgets queues that
    /// exist again, and deleted queues after `MOMENT`.
    pub fn refresh(&mut self, objects: &mut ClusterObjects, now: Timestamp) {
        let absent = Family::ALL.into_iter().flat_map(|family| {
            let tree = objects.queues[family].tree();
            let parents = tree.queues().filter_map(|(_, queue)| queue.parent.as_deref());
            parents
                .filter(|parent| tree.find(parent).is_none())
                .map(move |parent| (family, parent.to_owned()))
        });
        let absent: BTreeSet<(Family, String)> = absent.chain(self.gone.drain(..)).collect();
        for key in &absent {
            self.since.entry(key.clone()).or_insert(now);
        }
        // a parent that other queues name stays known: otherwise it would count as missing since
        // now after each change
        self.since.retain(|key, at| {
            let (family, name) = key;
            (absent.contains(key) || now.duration_since(*at) <= MOMENT)
                && objects.limits(*family, name).is_none()
        });
    }

    /// True if a queue of a workload, or a queue on the path to the root, went missing no longer
    /// than `MOMENT` ago.
    pub fn has_one_of(&self, objects: &ClusterObjects, standing: &PodStanding, now: Timestamp) -> bool {
        if self.since.is_empty() {
            return false;
        }
        let is_new = |family, name: &str| {
            let since = self.since.get(&(family, name.to_owned()));
            since.is_some_and(|since| now.duration_since(*since) <= MOMENT)
        };
        let is_new_on_path = |family, queue: &ArcStr| {
            let (queues, path) = (&objects.queues[family], objects.queues[family].path(queue));
            let top = path.last().and_then(|top| queues.tree().queue(top));
            let above = top.and_then(|(_, queue)| queue.parent.as_deref());
            path.iter().map(String::as_str).chain(above).any(|name| is_new(family, name))
        };
        let is_new_by_default = |family| {
            let name = standing.by_default[family].as_ref();
            name.is_some_and(|name| is_new(family, name))
        };
        let mut families = Family::ALL.into_iter();
        families.any(|family| {
            is_new_by_default(family)
                || standing.queue(family).is_some_and(|queue| is_new_on_path(family, queue))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_types::{projection, runai::v3alpha1::QueueSpec};

    use super::*;
    use crate::{
        ActionOutcome, BatchCoverage, Task,
        ceilings::{CeilingIndex, CeilingOptions, tests::at},
    };

    fn pod() -> projection::Pod {
        let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)});
        let metadata = json!({
            "name": "a", "namespace": "ns", "uid": "a", "creationTimestamp": at(0),
            "labels": {"kai.scheduler/queue": "leaf"},
        });
        serde_json::from_value(
            json!({"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}}),
        )
        .unwrap()
    }

    fn put(index: &mut CeilingIndex, now: i64, name: &str, spec: &Value) {
        let spec = serde_json::from_value::<QueueSpec>(spec.clone()).unwrap();
        index.change_queues(at(now), |index| index.apply_queue(name, &spec));
    }

    fn delete(index: &mut CeilingIndex, now: i64, name: &str) {
        index.change_queues(at(now), |index| index.delete_queue(Family::Runai, name));
    }

    fn world(notice: &str) -> (CeilingIndex, Value, Value) {
        let root = json!({"maxDuration": "100s", "expiryNotice": notice});
        let leaf = json!({"parentQueue": "root"});
        let grace = tenure_policy::expiry::GraceOnChange("300s".parse().unwrap());
        let mut index =
            CeilingIndex::new(CeilingOptions { grace_on_change: grace, ..CeilingOptions::default() });
        put(&mut index, 0, "root", &root);
        put(&mut index, 0, "leaf", &leaf);
        index.know_queues();
        index.apply_pod(&pod());
        index.next_due_after(Timestamp::MIN);
        (index, root, leaf)
    }

    #[test]
    fn an_overdue_run_is_not_granted_time_by_a_queue_that_was_missing_for_a_moment() {
        for missing in ["root", "leaf"] {
            let (mut index, root, leaf) = world("10s");
            let spec = if missing == "root" { root } else { leaf };
            delete(&mut index, 110, missing);
            assert_eq!(index.next_batch(at(111)), None, "{missing}: no ceiling, no pause");
            put(&mut index, 112, missing, &spec);
            assert_eq!(index.next_batch(at(113)).unwrap().first.deadline, at(100), "{missing}");
        }
    }

    #[test]
    fn a_run_that_went_on_while_its_queue_was_missing_is_granted_time_for_a_notice() {
        let (mut index, root, _) = world("10s");
        delete(&mut index, 90, "root");
        assert_eq!(index.next_expiry(), None);
        put(&mut index, 112, "root", &root);
        assert_eq!(index.next_expiry(), Some(at(412)));
    }

    #[test]
    fn the_notice_that_a_grace_brings_covers_all_points_within_the_grace() {
        let (mut index, _, _) = world("10s");
        // a later change leaves the end that was granted
        for (now, ceiling) in [(40, "10h"), (50, "20s"), (51, "21s")] {
            put(&mut index, now, "root", &json!({"maxDuration": ceiling, "expiryNotice": "30m,10s"}));
            index.next_due_after(Timestamp::MIN);
        }
        let batch = index.next_batch(at(51)).unwrap();
        assert_eq!((batch.task, batch.first.deadline), (Task::Announce, at(350)));
        let notice = index.run_state(&pod(), (Family::Runai, "leaf"), None, None, at(51)).notice;
        assert_eq!(notice.to_string(), "5m", "another keeper judges by the same point");
        index.record_outcome(&batch, BatchCoverage::All, ActionOutcome::Acted, at(51));
        assert_eq!(index.next_batch(at(350)), None);
        assert_eq!(index.next_batch(at(351)).unwrap().task, Task::Expire);
    }

    fn awaits(index: &mut CeilingIndex, now: Timestamp) -> bool {
        index.run_state(&pod(), (Family::Runai, "leaf"), None, None, now).awaits_queue
    }

    #[test]
    fn by_a_tree_that_lacks_a_queue_nothing_is_done_for_a_moment() {
        let (mut index, root, leaf) = world("0s");
        assert!(!awaits(&mut index, at(1)));
        for (missing, spec) in [("root", &root), ("leaf", &leaf)] {
            delete(&mut index, 200, missing);
            assert!(awaits(&mut index, at(260)), "{missing}");
            // another change doesn't begin the moment again
            put(&mut index, 250, "other", &json!({"maxDuration": "1h"}));
            assert!(!awaits(&mut index, at(261)), "{missing}");
            put(&mut index, 261, missing, spec);
            delete(&mut index, 262, "other");
            assert!(!awaits(&mut index, at(262)), "{missing}");
        }
        let moved = json!({"parentQueue": "not yet"});
        put(&mut index, 300, "leaf", &moved);
        assert!(awaits(&mut index, at(360)) && !awaits(&mut index, at(361)));
        put(&mut index, 400, "other", &json!({}));
        assert!(!awaits(&mut index, at(400)), "it has been missing since 300");
        assert!(!index.reader.missing.since.contains_key(&(Family::Runai, "other".to_owned())));
    }
}
