use tenure_policy::guard::{GuardVerdict, Operation, RemovalRequest, UnknownPreemptor, VerdictReason};

use super::*;

const NONE: [String; 0] = [];

fn asked(operation: Operation, name: &str) -> RemovalRequest<'_> {
    let unknown_preemptor = UnknownPreemptor::Stricter;
    RemovalRequest {
        operation,
        user: "system:kube-scheduler",
        groups: &NONE,
        namespace: "ns",
        name,
        unknown_preemptor,
    }
}

impl World {
    fn guarding(&self) -> GuardInput<'_> {
        GuardInput { rules: self.rules(), syncing: false, permit: None }
    }

    fn evicted(&self, name: &str) -> GuardVerdict {
        self.index.guard(&self.guarding(), &asked(Operation::Evict, name), RemovedPod::Named)
    }

    fn deleted(&self, pod: &Value) -> GuardVerdict {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let name = pod.metadata.name.as_deref().unwrap();
        self.index.guard(&self.guarding(), &asked(Operation::Delete, name), RemovedPod::Shown(&pod))
    }
}

/// One that waits for room on a node, in the queue of all others.
fn waiting(name: &str, node: &str, more: &Value) -> Value {
    let mut pod = pod(name, 5, more);
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    pod["spec"]["priority"] = json!(9);
    pod["status"] = json!({"conditions": [], "nominatedNodeName": node});
    pod
}

#[test]
fn a_pod_is_found_by_its_name_or_its_uid() {
    let world = World::new(&[pod("young", 60, &json!({})), pod("old", 700, &json!({}))]);
    assert_eq!(world.evicted("young").reason, VerdictReason::Protected);
    assert_eq!(world.evicted("old").reason, VerdictReason::Unprotected);
    assert_eq!(world.evicted("missing").reason, VerdictReason::Unknown);
    let young = pod("young", 60, &json!({}));
    assert_eq!(world.deleted(&young).reason, VerdictReason::Protected);
    let replaced = pod("young", 60, &json!({"metadata": {"uid": "another"}}));
    assert_eq!(world.deleted(&replaced).reason, VerdictReason::Unknown, "the uid counts, and not the name");
}

#[test]
fn the_latest_pod_of_a_name_is_meant() {
    let first = pod("a", 60, &json!({"metadata": {"uid": "first"}}));
    let second = pod("a", 700, &json!({"metadata": {"uid": "second"}}));
    let mut world = World::new(&[first, second]);
    assert_eq!(world.evicted("a").reason, VerdictReason::Unprotected);
    // its deletion may be seen late
    world.index.delete_pod(Uid::of("first"));
    assert_eq!(world.evicted("a").reason, VerdictReason::Unprotected);
    world.index.delete_pod(Uid::of("second"));
    assert_eq!(world.evicted("a").reason, VerdictReason::Unknown);
    assert_eq!(world.index.reader.places.len(), (0, 0, 0));
}

#[test]
fn what_is_shown_of_a_pod_is_fresher_than_what_is_known() {
    let mut before = pod("a", 60, &json!({}));
    before["spec"].as_object_mut().unwrap().remove("nodeName");
    before["status"] = json!({});
    let world = World::new(&[before.clone()]);
    assert_eq!(world.deleted(&before).reason, VerdictReason::NotScheduled);
    assert_eq!(world.evicted("a").reason, VerdictReason::NotScheduled);
    let verdict = world.deleted(&pod("a", 60, &json!({})));
    assert_eq!(verdict.reason, VerdictReason::Protected, "it was bound a moment ago");
    let mut world = world;
    let pool = tenure_policy::floor::PartialFloors { reclaim: "1h".parse().ok(), preempt: None };
    world.floors.node_pools.insert("p".into(), pool);
    let node = json!({"metadata": {"name": "n", "labels": {"kai.scheduler/node-pool": "p"}}});
    world.index.apply(serde_json::from_value::<Node>(node).unwrap());
    let verdict = world.deleted(&pod("a", 700, &json!({})));
    assert_eq!(verdict.reason, VerdictReason::Protected, "by the floor of the node's pool");
    let world = World::new(&[pod("a", 60, &json!({}))]);
    let going = json!({"metadata": {"deletionTimestamp": NOW}});
    assert_eq!(world.deleted(&pod("a", 60, &going)).reason, VerdictReason::Terminating);
    let unguarded = json!({"metadata": {"annotations": {"tenure.dev/unguarded": "true"}}});
    assert_eq!(world.deleted(&pod("a", 60, &unguarded)).reason, VerdictReason::Unguarded);
}

#[test]
fn what_is_known_of_a_pod_spares_it_from_being_kept_when_it_is_evicted() {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "true"}}});
    for (more, expected) in [
        (json!({"metadata": {"deletionTimestamp": NOW}}), VerdictReason::Terminating),
        (annotated("kubernetes.io/config.mirror"), VerdictReason::Mirror),
        (json!({"metadata": {"ownerReferences": owner}}), VerdictReason::DaemonSet),
        (annotated("tenure.dev/unguarded"), VerdictReason::Unguarded),
        // those that have ended aren't kept in mind
        (json!({"status": {"phase": "Failed"}}), VerdictReason::Unknown),
    ] {
        assert_eq!(World::new(&[pod("a", 60, &more)]).evicted("a").reason, expected, "{more}");
    }
}

#[test]
fn a_namespace_that_is_about_to_go_takes_its_pods_with_it() {
    let mut world = World::new(&[pod("a", 60, &json!({}))]);
    let namespace = |name: &str, deletion: Value| {
        let namespace = json!({"metadata": {"name": name, "deletionTimestamp": deletion}});
        serde_json::from_value::<Namespace>(namespace).unwrap()
    };
    for name in ["ns", "another"] {
        world.index.apply(namespace(name, Value::Null));
    }
    world.index.apply(namespace("another", json!(NOW)));
    assert_eq!(world.evicted("a").reason, VerdictReason::Protected);
    world.index.apply(namespace("ns", json!(NOW)));
    assert_eq!(world.evicted("a").reason, VerdictReason::NamespaceTerminating);
    Store::<Namespace>::retain(&mut world.index, &HashSet::from(["ns".to_owned()]));
    assert_eq!(world.evicted("a").reason, VerdictReason::NamespaceTerminating);
    Store::<Namespace>::retain(&mut world.index, &HashSet::new());
    assert_eq!(world.evicted("a").reason, VerdictReason::Protected);
    world.index.apply(namespace("ns", json!(NOW)));
    Store::<Namespace>::delete(&mut world.index, &"ns".into());
    assert_eq!(world.evicted("a").reason, VerdictReason::Protected);
    world.index.apply(namespace("ns", json!(NOW)));
    // there is another one of its name
    world.index.apply(namespace("ns", Value::Null));
    assert_eq!(world.evicted("a").reason, VerdictReason::Protected);
}

#[test]
fn a_pod_of_no_queue_has_no_floor_and_may_tolerate_all_the_same() {
    let mut world = World::new(&[]);
    let floor = "1h".parse().unwrap();
    world.floors = Floors { preempt: floor, reclaim: floor, ..Floors::default() };
    let in_queue =
        |queue: &str| pod("a", 60, &json!({"metadata": {"labels": {"kai.scheduler/queue": queue}}}));
    for (queue, expected) in [
        ("q", VerdictReason::Protected),
        ("", VerdictReason::Unprotected),
        ("no-such-queue", VerdictReason::Unprotected),
    ] {
        world.apply(&in_queue(queue));
        assert_eq!(world.evicted("a").reason, expected, "{queue}");
    }
    let mut in_class = in_queue("");
    in_class["spec"]["priorityClassName"] = json!("c");
    world.apply(&in_class);
    assert_eq!(world.deleted(&in_class).reason, VerdictReason::Protected);
    assert_eq!(world.evicted("a").reason, VerdictReason::Endless);
}

#[test]
fn the_start_and_the_minimum_of_its_group_count() {
    let annotations = json!({"metadata": {"annotations": {"pod-group-name": "g"}}});
    let mut world = World::new(&[pod("a", 60, &annotations), pod("b", 700, &annotations)]);
    world.group(&json!({"queue": "q", "minMember": 2}));
    assert_eq!(world.evicted("b").reason, VerdictReason::Protected, "it started with the second");
    world.group(&json!({"queue": "q", "minMember": 1}));
    assert_eq!(world.evicted("b").reason, VerdictReason::Unprotected, "it started with the first");
    let mut world = World::new(&[pod("a", 60, &annotations), pod("b", 60, &annotations)]);
    world.group(&json!({"queue": "q", "minMember": 1}));
    assert_eq!(world.evicted("b").reason, VerdictReason::Unprotected, "it may lose one");
    world.apply(&pod(
        "a",
        60,
        &json!({"metadata": {"deletionTimestamp": NOW, "annotations": {"pod-group-name": "g"}}}),
    ));
    assert_eq!(world.evicted("b").reason, VerdictReason::Protected);
}

#[test]
fn the_pool_of_its_node_counts() {
    let mut world = World::new(&[pod("a", 700, &json!({}))]);
    let pool = tenure_policy::floor::PartialFloors { reclaim: "1h".parse().ok(), preempt: None };
    world.floors.node_pools.insert("p".into(), pool);
    assert_eq!(world.evicted("a").reason, VerdictReason::Unprotected);
    let node = json!({"metadata": {"name": "n", "labels": {"kai.scheduler/node-pool": "p"}}});
    world.index.apply(serde_json::from_value::<Node>(node).unwrap());
    assert_eq!(world.evicted("a").reason, VerdictReason::Protected);
}

#[test]
fn who_waits_for_the_node_is_the_preemptor() {
    let victim = pod("victim", 700, &json!({}));
    let world = |waiting: &[Value]| {
        let mut world = World::new(std::slice::from_ref(&victim));
        // against others it is protected for longer
        world.floors.reclaim = "1h".parse().unwrap();
        for pod in waiting {
            world.apply(pod);
        }
        world
    };
    let verdict = |world: &World| {
        let verdict = world.deleted(&victim);
        (verdict.reason, verdict.preemptor.map(|(namespace, name)| format!("{namespace}/{name}")))
    };
    let kept = (VerdictReason::Protected, None);
    assert_eq!(verdict(&world(&[])), kept);
    let one = waiting("p", "n", &json!({}));
    let granted = (VerdictReason::Nominated, Some("ns/p".to_owned()));
    assert_eq!(verdict(&world(std::slice::from_ref(&one))), granted);
    let of_other = json!({"metadata": {"labels": {"kai.scheduler/queue": "other"}}});
    let other = waiting("o", "n", &of_other);
    let refused = (VerdictReason::NominatedWaits, Some("ns/o".to_owned()));
    assert_eq!(verdict(&world(std::slice::from_ref(&other))), refused);
    assert_eq!(verdict(&world(&[other, one.clone()])), granted);
    // none of these waits for this node
    let mut policy = waiting("p", "n", &json!({}));
    policy["spec"]["preemptionPolicy"] = json!("Never");
    let mut bound = waiting("p", "n", &json!({}));
    bound["spec"]["nodeName"] = json!("m");
    let going = waiting("p", "n", &json!({"metadata": {"deletionTimestamp": NOW}}));
    for pod in [waiting("p", "m", &json!({})), waiting("p", "", &json!({})), policy, bound, going] {
        assert_eq!(verdict(&world(&[one.clone(), pod.clone()])), kept, "{pod}");
    }
    let mut world = world(&[one]);
    world.index.delete_pod(Uid::of("p"));
    assert_eq!(verdict(&world), kept);
    assert_eq!(world.index.reader.places.len(), (1, 0, 1));
}

#[test]
fn the_queue_of_the_group_of_who_waits_counts() {
    let victim = pod("victim", 700, &json!({}));
    let grouped = json!({"metadata": {"annotations": {"pod-group-name": "g"}, "labels": {"kai.scheduler/queue": "other"}}});
    let mut world = World::new(&[victim.clone(), waiting("p", "n", &grouped)]);
    world.floors.reclaim = "1h".parse().unwrap();
    assert_eq!(world.deleted(&victim).reason, VerdictReason::NominatedWaits);
    world.group(&json!({"queue": "q"}));
    assert_eq!(world.deleted(&victim).reason, VerdictReason::Nominated);
}

#[test]
fn of_a_gang_of_pods_without_a_controller_the_guard_keeps_those_that_came_first() {
    let in_group =
        |name: &str, age: i64| pod(name, age, &json!({"metadata": {"annotations": {"pod-group-name": "g"}}}));
    let mut world = World::new(&[in_group("joined", 60), in_group("first", 90), in_group("second", 80)]);
    world.group(&json!({"queue": "q", "minMember": 2}));
    let reasons = ["first", "second", "joined"].map(|name| world.evicted(name).reason);
    assert_eq!(reasons, [VerdictReason::Protected, VerdictReason::Protected, VerdictReason::Unprotected]);
}
