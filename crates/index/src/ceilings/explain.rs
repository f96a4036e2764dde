//! The facts that explanations need besides deadlines.

use tenure_policy::{
    ceiling::{self, for_people},
    expiry::Family,
    gang::{Progress, Shape, progress},
    preemption::{Place, Workload},
    tree::QueueTree,
};
use tenure_types::{paused::ExceededCeiling, projection};

use super::{CeilingIndex, Standing};
use crate::podgroups::memberships;

impl CeilingIndex {
    /// The queues of the run.ai family.
    pub const fn tree(&self) -> &QueueTree {
        self.objects.runai.tree()
    }

    /// The ceiling that ends the run of a pod which stands like this; none if none does. A queue is that which sets it.
    pub fn ceiling(&self, standing: &Standing) -> Option<ExceededCeiling> {
        let (end, family) = standing.expires?;
        let ceiling = end.duration_since(standing.clocks.since(family)?);
        let queue = standing.queue(family)?.as_str();
        let set_by = match family {
            _ if standing.own == Some(ceiling) => None,
            Family::Tensorstack => Some(queue),
            Family::Runai => ceiling::effective(self.tree(), queue).ok()?.map(|(queue, _)| queue),
        };
        Some(ExceededCeiling { max_duration: for_people(ceiling), queue: set_by.map(str::to_owned) })
    }

    /// The workload of a pod as the rules of preemption see it, and the number of the pod's subgroup there. Its start is
    /// as it was when [all groups](Self::gangs) were last asked for.
    pub fn workload<'p>(&'p self, pod: &'p projection::Pod) -> (Workload<'p>, usize) {
        let gangs = &self.objects.gangs;
        let memberships = memberships(pod, |text| text.into());
        let own = || self.objects.interner.kueue_queues.queue_of(pod);
        let place = Place::find(self.tree(), gangs.queue(&memberships).or_else(own));
        if let Some((group, of)) = gangs.counted(&memberships) {
            let all = group.count();
            let mut crews = group.crews(&all).into_iter();
            let pods = crews.find(|(crew, _)| *crew == of.controller).map_or(all, |(_, crew)| crew);
            let (start, shape) = (group.start(), group.shape());
            return (Workload { place, start, shape, pods }, group.number(of));
        }
        let runs = progress(pod) == Progress::Running;
        let start = pod.scheduled_at().map(|at| at.0).filter(|_| runs);
        let shape = Shape::alone();
        (Workload { place, start, shape, pods: shape.count(std::iter::once(pod)) }, 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_types::podgroup::PodGroupKind;

    use super::*;
    use crate::Settings;

    fn pod(name: &str, more: &Value) -> projection::Pod {
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
        let mut index = CeilingIndex::new(Settings::default());
        index.apply_runai("root", &serde_json::from_value(json!({"maxDuration": "2h30m"})).unwrap());
        let own = json!({"parentQueue": "root", "maxDuration": "3h"});
        index.apply_runai("own", &serde_json::from_value(own).unwrap());
        let mut of = |pod: &projection::Pod| {
            let standing = index.standing(pod).unwrap();
            index.ceiling(&standing).map(|ceiling| (ceiling.max_duration, ceiling.queue))
        };
        assert_eq!(of(&pod("a", &json!({}))), Some(("2h 30m".into(), Some("root".into()))));
        let shorter = pod("a", &json!({"annotations": {"tenure.dev/max-duration": "10m"}}));
        assert_eq!(of(&shorter), Some(("10m".into(), None)));
        let elsewhere = pod("a", &json!({"labels": {"kai.scheduler/queue": "gone"}}));
        assert_eq!(of(&elsewhere), None);
    }

    #[test]
    fn the_workload_of_a_pod_is_its_group_if_there_is_one() {
        let mut index = CeilingIndex::new(Settings::default());
        index.apply_runai("q", &serde_json::from_value(json!({})).unwrap());
        let group =
            json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": {"queue": "q", "minMember": 1}});
        index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        let in_group = ["a", "b"].map(|name| pod(name, &json!({"annotations": {"pod-group-name": "g"}})));
        for pod in &in_group {
            index.apply_member(pod);
        }
        _ = index.gangs();
        let (workload, subgroup) = index.workload(&in_group[0]);
        assert_eq!((workload.place.name(), workload.place.queue()), (Some("q"), index.tree().find("q")));
        assert_eq!((workload.is_elastic(), workload.start.is_some(), subgroup), (true, true, 0));
        let alone = pod("c", &json!({"annotations": {"pod-group-name": "gone"}}));
        let (workload, _) = index.workload(&alone);
        assert_eq!((workload.place.name(), workload.place.queue()), (Some("own"), None));
        assert_eq!((workload.is_elastic(), workload.start), (false, alone.scheduled_at().map(|at| at.0)));
        let going = pod("d", &json!({"deletionTimestamp": "2026-01-01T00:01:00Z"}));
        assert_eq!(index.workload(&going).0.start, None, "what goes runs no more");
    }
}
