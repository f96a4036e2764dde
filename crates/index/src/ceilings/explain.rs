//! The facts that explanations need besides deadlines.

use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    ceiling,
    expiry::Family,
    gang::{Progress, Shape, progress},
    naming::for_people,
    preemption::{Place, Workload},
    tree::QueueTree,
};
use tenure_types::{paused::ExceededCeiling, projection};

use super::{CeilingIndex, Standing, limits};
use crate::{
    Uid,
    own::{Bearer, Ineffective, NoEffect},
    podgroups::memberships,
};
use limits::ignored_own;

impl CeilingIndex {
    /// The queues of the run.ai family.
    pub const fn tree(&self) -> &QueueTree {
        self.objects.runai.tree()
    }

    /// The ceiling that ends the run of a pod which stands like this; none if none does. A queue is that which sets it.
    pub fn ceiling(&self, standing: &Standing) -> Option<ExceededCeiling> {
        let (end, family) = standing.expires?;
        let run = end.duration_since(standing.clocks.since(family)?);
        let ceiling = run.saturating_sub(standing.extension);
        let queue = standing.queue(family)?.as_str();
        let set_by = match family {
            _ if standing.own == Some(ceiling) => None,
            Family::Tensorstack => Some(queue),
            Family::Runai => ceiling::effective(self.tree(), queue).ok()?.map(|(queue, _)| queue),
        };
        let extended = standing.extension.is_positive().then(|| for_people(standing.extension));
        let queue = set_by.map(str::to_owned);
        Some(ExceededCeiling { max_duration: for_people(ceiling), queue, extended })
    }

    /// The ceiling that a workload notes itself, where that of its queue is shorter and counts.
    pub fn ignored_own_ceiling(&mut self, standing: &Standing) -> Option<SignedDuration> {
        ignored_own(&mut self.objects, standing)
    }

    /// The notes of own ceilings that have no effect and are to be told now: at most one of a namespace, and `most`. Each
    /// is told once, and of a namespace only so many an hour.
    pub fn take_ineffective(&mut self, most: usize, now: Timestamp) -> Vec<Ineffective> {
        self.reschedule();
        for pod in self.objects.interner.own.take_doubtful() {
            if let Some(ineffective) = self.ineffective(pod) {
                self.objects.interner.own.note(ineffective);
            }
        }
        self.objects.interner.own.take(most, now)
    }

    /// The note of an own ceiling that is longer than that of the pod's queue.
    fn ineffective(&mut self, uid: Uid) -> Option<Ineffective> {
        let Self { objects, reader } = self;
        let pod = reader.deadlines.get(uid)?;
        let of_groups = objects.gangs.of(objects.gangs.memberships(uid));
        let standing = limits::standing(objects, uid, pod, of_groups);
        let own = ignored_own(objects, &standing)?;
        let root = objects.owners.root_with_own(pod.controller).filter(|(.., noted)| noted.ceiling == own);
        let (bearer, uid, namespace, name) = if let Some((uid, source, noted)) = root {
            (Bearer::Owner(source), uid, noted.namespace.to_string(), noted.name.to_string())
        } else if pod.own_ceiling() == Some(own) {
            (Bearer::Pod, uid, pod.namespace.to_string(), pod.name.to_string())
        } else {
            let (key, group) = objects.gangs.with_own(objects.gangs.memberships(uid), own)?;
            (Bearer::PodGroup(key.kind), Uid::of(&group.uid), key.namespace.to_string(), key.name.to_string())
        };
        let why = NoEffect::Longer { own, ceiling: self.ceiling(&standing)? };
        Some(Ineffective { bearer, namespace, name, uid, why })
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
            let (start, shape) = (group.start(), group.shape());
            let crew = group.crews(&all).and_then(|crews| crews.count(shape, of.controller));
            let pods = crew.unwrap_or(all);
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

    fn max_duration(text: &str) -> Value {
        json!({"tenure.dev/max-duration": text})
    }

    /// An index with a queue of one hour, and what is told of own ceilings once it has seen these pods.
    fn told(
        pods: &[projection::Pod],
        prepare: impl FnOnce(&mut CeilingIndex),
    ) -> Vec<(Bearer, String, NoEffect)> {
        let mut index = CeilingIndex::new(Settings::default());
        index.apply_runai("own", &serde_json::from_value(json!({"maxDuration": "1h"})).unwrap());
        prepare(&mut index);
        for pod in pods {
            index.apply_pod(pod);
        }
        let mut told = Vec::new();
        loop {
            let notes = index.take_ineffective(10, Timestamp::UNIX_EPOCH);
            if notes.is_empty() {
                return told;
            }
            told.extend(notes.into_iter().map(|note| (note.bearer, note.name, note.why)));
        }
    }

    fn longer() -> NoEffect {
        let ceiling =
            ExceededCeiling { max_duration: "1h".into(), queue: Some("own".into()), extended: None };
        NoEffect::Longer { own: SignedDuration::from_hours(2), ceiling }
    }

    #[test]
    fn an_own_ceiling_that_is_longer_than_the_queues_is_told_of_its_bearer() {
        let bearing = pod("a", &json!({"annotations": max_duration("2h")}));
        assert_eq!(told(&[bearing], |_| {}), [(Bearer::Pod, "a".into(), longer())]);

        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
        let pods = ["a", "b"].map(|name| pod(name, &json!({"ownerReferences": [owner]})));
        let job = json!({"name": "j", "namespace": "ns", "uid": "j", "annotations": max_duration("2h")});
        let of_owner = told(&pods, |index| index.apply_owner(7, &serde_json::from_value(job).unwrap()));
        assert_eq!(of_owner, [(Bearer::Owner(7), "j".into(), longer())]);

        let group = json!({
            "metadata": {"name": "g", "namespace": "ns", "uid": "g", "annotations": max_duration("2h")},
            "spec": {"queue": "own", "minMember": 1},
        });
        let member = pod("a", &json!({"annotations": {"pod-group-name": "g"}}));
        let of_group = told(&[member], |index| {
            index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        });
        assert_eq!(of_group, [(Bearer::PodGroup(PodGroupKind::Runai), "g".into(), longer())]);
    }

    #[test]
    fn an_own_ceiling_that_counts_or_may_count_is_not_told_of() {
        for text in ["30m", "1h"] {
            assert_eq!(told(&[pod("a", &json!({"annotations": max_duration(text)}))], |_| {}), []);
        }
        let elsewhere = |queue: &str| {
            let more = json!({"labels": {"kai.scheduler/queue": queue}, "annotations": max_duration("2h")});
            pod("a", &more)
        };
        assert_eq!(told(&[elsewhere("gone")], |_| {}), []);
        let unbounded = |index: &mut CeilingIndex| {
            index.apply_runai("unbounded", &serde_json::from_value(json!({})).unwrap());
        };
        assert_eq!(told(&[elsewhere("unbounded")], unbounded), []);
    }

    #[test]
    fn copies_of_an_owners_annotation_are_not_told_of() {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true});
        let bearing = |name: &str, owners: Value| {
            let metadata = json!({
                "name": name, "namespace": "ns", "uid": name,
                "annotations": max_duration("soon"), "ownerReferences": owners,
            });
            serde_json::from_value(metadata).unwrap()
        };
        let notes = told(&[], |index| {
            index.apply_owner(1, &bearing("set", json!([deployment])));
            index.apply_owner(0, &bearing("d", json!([])));
        });
        let bearers: Vec<_> = notes.iter().map(|(bearer, name, _)| (*bearer, name.as_str())).collect();
        assert_eq!(bearers, [(Bearer::Owner(0), "d")]);
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
