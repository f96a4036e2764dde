//! The workloads of pods, for the rules of preemption. The plugin asks for them when it explains a
//! preemption. The webhook doesn't: it looks workloads up through the `WorkloadCache` of its own
//! index.

use tenure_policy::{
    expiry::Family,
    gang::{GangShape, PodProgress, progress},
    preemption::{QueuePlace, Workload},
};
use tenure_types::{projection, store::ObjectKey};

use super::CeilingIndex;
use crate::{Crew, GroupWorkload, PartId, Uid, podgroups::memberships};

/// A pod's workload for the rules of preemption.
#[derive(Clone, Debug)]
pub struct PodWorkload<'p> {
    /// All pods of the pod's group, or the pod by itself.
    pub whole: Workload<'p>,
    /// The part of an elastic group that is counted apart when the pod goes. None: the whole group
    /// is counted.
    pub part: Option<(PartId, Workload<'p>)>,
    /// The number of the pod's subgroup in the shape of the group; 0 for a pod by itself.
    pub subgroup: usize,
}

impl CeilingIndex {
    /// Returns the workload of a pod for the rules of preemption, as of the last call of
    /// [`gangs`](Self::gangs).
    pub fn workload<'p>(&'p self, pod: &'p projection::Pod) -> PodWorkload<'p> {
        let gangs = &self.objects.gangs;
        let memberships = memberships(pod, &self.objects.interner.kinds, |text| text.into());
        let own = self.objects.interner.kueue_queues.queue_of(Family::Runai, pod);
        let scheduled = pod.scheduled_at().map(|at| at.0);
        let place = QueuePlace::find(self.tree(), gangs.floor_queue(&memberships, own, scheduled));
        if let Some((group, of)) = gangs.workload(&memberships) {
            let uid = Uid::of_object(&pod.metadata);
            let GroupWorkload { start, shape, .. } = group;
            let pods = group.count();
            let part = group.part(&pods, Crew::of(uid, &memberships));
            let part = part.map(|(id, pods)| (id, Workload { place, start, shape, pods }));
            let whole = Workload { place, start, shape, pods };
            return PodWorkload { whole, part, subgroup: group.number(of) };
        }
        let runs = progress(pod) == PodProgress::Running;
        let start = scheduled.filter(|_| runs);
        let shape = GangShape::alone();
        let whole = Workload { place, start, shape, pods: shape.count(std::iter::once(pod)) };
        PodWorkload { whole, part: None, subgroup: 0 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_types::{podgroup::PodGroupKind, runai::v3alpha1::QueueSpec};

    use super::*;
    use crate::{CeilingOptions, ceilings::answers::tests::pod};

    #[test]
    fn the_workload_of_a_pod_is_its_group_if_there_is_one() {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        index.apply_queue("q", &serde_json::from_value::<QueueSpec>(json!({})).unwrap());
        let group =
            json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 1}});
        index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        let in_group = ["a", "b"].map(|name| pod(name, &json!({"annotations": {"pod-group-name": "g"}})));
        for pod in &in_group {
            index.apply_member(pod);
        }
        _ = index.gangs();
        let PodWorkload { whole: workload, subgroup, .. } = index.workload(&in_group[0]);
        assert_eq!((workload.place.name, workload.place.queue), (Some("q"), index.tree().find("q")));
        assert_eq!((workload.is_elastic(), workload.start.is_some(), subgroup), (true, true, 0));
        let alone = pod("c", &json!({"annotations": {"pod-group-name": "gone"}}));
        let workload = index.workload(&alone).whole;
        assert_eq!((workload.place.name, workload.place.queue), (Some("own"), None));
        assert_eq!((workload.is_elastic(), workload.start), (false, alone.scheduled_at().map(|at| at.0)));
        let going = pod("d", &json!({"deletionTimestamp": "2026-01-01T00:01:00Z"}));
        assert_eq!(index.workload(&going).whole.start, None, "what goes runs no more");
    }
}
