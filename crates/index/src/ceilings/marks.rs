//! The pods whose marks for autoscalers don't agree with their floor: a protected pod tells
//! autoscalers to leave it and its node alone. The keeper's `FloorMarks` writes and removes the
//! marks.

use std::collections::HashMap;

use jiff::Timestamp;
use tenure_policy::{
    expiry::Family,
    floor::Floors,
    queue_status::{longest_floor, protected_until},
    tree::QueueId,
};

use super::{CeilingIndex, ObjectFacts};
use crate::{Uid, deadlines::ManagedPod};

/// The change that the marks of a pod need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleMarks {
    /// True if a floor protects the pod now.
    pub is_protected: bool,
}

impl CeilingIndex {
    /// Returns the pods whose marks for autoscalers are to change at `now`. None for `floors`: no
    /// pod is to have marks.
    pub fn stale_marks(&mut self, floors: Option<&Floors>, now: Timestamp) -> Vec<ObjectFacts<StaleMarks>> {
        self.reschedule();
        let mut known = HashMap::new();
        let mut is_protected = |uid: Uid, pod: &ManagedPod| {
            let floors = floors?;
            let (queue, start) = self.floor_of(uid, pod)?;
            let floor = *known.entry(queue).or_insert_with(|| longest_floor(floors, self.tree(), queue));
            protected_until(start, floor, now)
        };
        let mut stale = Vec::new();
        for (uid, pod) in self.reader.deadlines.iter() {
            let is_protected = is_protected(uid, pod).is_some();
            if pod.marks.are_stale(is_protected) {
                stale.push(ObjectFacts::of_pod(uid, pod, StaleMarks { is_protected }));
            }
        }
        stale
    }

    /// Returns the queue whose floors protect a bound pod, and the start of its workload. None: the
    /// pod isn't bound, its workload hasn't started, or its queue doesn't exist.
    fn floor_of(&self, uid: Uid, pod: &ManagedPod) -> Option<(QueueId, Timestamp)> {
        let (scheduled, gangs) = (pod.scheduled()?, &self.objects.gangs);
        let memberships = gangs.memberships(uid);
        let own = pod.queues[Family::Runai].as_deref();
        let queue = gangs.floor_queue(memberships, own, Some(scheduled))?;
        let start = gangs.workload(memberships).map_or(Some(scheduled), |(group, _)| group.start)?;
        Some((self.tree().bind(queue)?, start))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_types::{podgroup::PodGroupKind, projection, runai::v3alpha1::QueueSpec};

    use super::*;
    use crate::{CeilingOptions, ceilings::tests::at};

    /// An index with a queue that has a floor of 100 seconds.
    fn index() -> CeilingIndex {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        let spec = json!({"preemptMinRuntime": "100s", "reclaimMinRuntime": "10s"});
        index.apply_queue("careful", &serde_json::from_value::<QueueSpec>(spec).unwrap());
        index
    }

    fn pod(name: &str, queue: &str, annotations: &Value) -> projection::Pod {
        let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)});
        let metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(0), "annotations": annotations,
            "labels": {"kai.scheduler/queue": queue},
        });
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": [condition]}})).unwrap()
    }

    fn stale(index: &mut CeilingIndex, is_on: bool, now: i64) -> Vec<(String, bool)> {
        let floors = Floors::default();
        let stale = index.stale_marks(is_on.then_some(&floors), at(now));
        let mut stale: Vec<_> =
            stale.into_iter().map(|pod| (pod.name.as_ref().to_owned(), pod.facts.is_protected)).collect();
        stale.sort();
        stale
    }

    #[test]
    fn pods_get_marks_within_the_longer_of_their_queues_floors_and_lose_them_at_its_end() {
        let mut index = index();
        let marked = json!({"tenure.dev/floor-marks": "karpenter.sh/do-not-disrupt"});
        for (name, queue, annotations) in [
            ("new", "careful", json!({})),
            ("marked", "careful", marked.clone()),
            ("elsewhere", "gone", json!({})),
            ("moved", "gone", marked),
        ] {
            index.apply_pod(&pod(name, queue, &annotations));
        }
        let expect = |pods: &[(&str, bool)]| {
            pods.iter().map(|(name, is_protected)| ((*name).to_owned(), *is_protected)).collect::<Vec<_>>()
        };
        assert_eq!(stale(&mut index, true, 99), expect(&[("moved", false), ("new", true)]));
        assert_eq!(stale(&mut index, true, 100), expect(&[("marked", false), ("moved", false)]));
        assert_eq!(stale(&mut index, false, 1), expect(&[("marked", false), ("moved", false)]), "turned off");
    }

    #[test]
    fn the_members_of_a_group_have_marks_from_its_start_on() {
        let mut index = index();
        let group = json!({
            "metadata": {"name": "gang", "namespace": "ns", "uid": "g", "creationTimestamp": at(-9)},
            "spec": {"minMember": 2, "queue": "careful"},
        });
        index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        let of_gang = json!({"pod-group-name": "gang"});
        index.apply_pod(&pod("a", "gone", &of_gang));
        assert_eq!(stale(&mut index, true, 1), [], "it hasn't its minimum");
        index.apply_pod(&pod("b", "gone", &of_gang));
        assert_eq!(stale(&mut index, true, 1).len(), 2);
    }
}
