//! Pods that run on after their `PodGroup` has gone. The group named their queue: nothing in the cluster says it any more.

use tenure_policy::expiry::Family;
use tenure_types::podgroup::PodGroupKind;

use crate::{Uid, cluster::Objects, deadlines::Deadlines};

/// A running pod whose `PodGroup` was deleted or made again, and that names no queue itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Its uid.
    pub uid: Uid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The family of the queue.
    pub family: Family,
    /// The queue that the group named.
    pub queue: String,
}

/// The running pods whose queue only the index remembers.
pub fn orphans(objects: &mut Objects, deadlines: &Deadlines) -> Vec<Orphan> {
    let orphan = |(uid, kind, queue): (Uid, PodGroupKind, String)| {
        let pod = deadlines.get(uid)?;
        let family = Family::ALL.into_iter().find(|family| family.row().groups == kind)?;
        let (namespace, name) = (pod.namespace.as_str().into(), pod.name.as_ref().into());
        pod.queues[family].is_none().then_some(Orphan { uid, namespace, name, family, queue })
    };
    objects.gangs.orphans().into_iter().filter_map(orphan).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use tenure_types::{projection, runai::v3alpha1::QueueSpec};

    use super::*;
    use crate::ceilings::{CeilingIndex, Settings};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn pod(metadata: &Value) -> projection::Pod {
        let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(0)});
        let mut pod = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "a", "creationTimestamp": at(0),
                "annotations": {"pod-group-name": "gang"}},
            "spec": {}, "status": {"conditions": [condition]},
        });
        for (key, value) in metadata.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    /// A group of queue `short`, with a ceiling of 100 s, and a pod of it.
    fn world() -> CeilingIndex {
        let mut index = CeilingIndex::new(Settings::default());
        index.apply_queue(
            "short",
            &serde_json::from_value::<QueueSpec>(json!({"maxDuration": "100s"})).unwrap(),
        );
        let group = json!({
            "metadata": {"name": "gang", "namespace": "ns", "uid": "g", "creationTimestamp": at(-1)},
            "spec": {"queue": "short", "minMember": 1},
        });
        index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        index.apply_pod(&pod(&json!({})));
        index
    }

    #[test]
    fn a_pod_whose_group_has_gone_is_to_be_labelled_with_its_queue_unless_it_names_one() {
        let mut index = world();
        assert_eq!(index.orphans(), []);
        index.delete_group(PodGroupKind::Runai, "ns", "gang");
        let orphan = Orphan {
            uid: Uid::of("a"),
            namespace: "ns".into(),
            name: "a".into(),
            family: Family::Runai,
            queue: "short".into(),
        };
        assert_eq!(index.orphans(), [orphan]);
        assert_eq!(index.next_expiry(), Some(at(100)));
        let labelled = pod(&json!({"labels": {"kai.scheduler/queue": "short"}}));
        index.apply_pod(&labelled);
        assert_eq!((index.orphans(), index.next_expiry()), (Vec::new(), Some(at(100))));
        let mut next = CeilingIndex::new(Settings::default());
        next.apply_queue(
            "short",
            &serde_json::from_value::<QueueSpec>(json!({"maxDuration": "100s"})).unwrap(),
        );
        next.apply_pod(&labelled);
        assert_eq!(next.next_expiry(), Some(at(100)), "the next keeper knows it by the label");
        index.delete_pod(Uid::of("a"));
        assert_eq!(index.orphans(), []);
    }

    #[test]
    fn a_pod_that_terminates_ends_within_the_bound_whether_its_group_goes_before_or_after() {
        let going = json!({"deletionTimestamp": at(100_000), "deletionGracePeriodSeconds": 99_850});
        for group_first in [true, false] {
            let mut index = world();
            if group_first {
                index.delete_group(PodGroupKind::Runai, "ns", "gang");
            }
            index.apply_pod(&pod(&going));
            index.delete_group(PodGroupKind::Runai, "ns", "gang");
            let hour = jiff::SignedDuration::from_hours(1);
            let overlong = index.overlong(at(3_800), hour);
            assert_eq!(overlong.len(), 1, "{group_first}");
            index.apply_pod(&pod(&going));
            assert_eq!(index.overlong(at(3_800), hour), overlong, "{group_first}: it is seen again");
            assert_eq!(index.overlong(at(99), hour), [], "{group_first}: not before its ceiling");
        }
    }
}
