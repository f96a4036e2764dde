use serde_json::{Value, json};
use tenure_policy::{
    expiry::Family,
    floor::Floors,
    queue_status::{QueueReport, WorkloadCounts},
};
use tenure_types::{podgroup::PodGroupKind, projection, runai::v3alpha1::QueueSpec};

use super::QueueReports;
use crate::{CeilingIndex, CeilingOptions, Uid, ceilings::tests::at};

struct World(CeilingIndex);

impl World {
    /// With these queues, by name and spec.
    fn new(queues: &[(&str, Value)]) -> Self {
        let mut world = Self(CeilingIndex::new(CeilingOptions::default()));
        for (name, spec) in queues {
            world.queue(name, spec);
        }
        world
    }

    fn queue(&mut self, name: &str, spec: &Value) {
        self.0.apply_queue(name, &serde_json::from_value::<QueueSpec>(spec.clone()).unwrap());
    }

    /// A pod by its uid, which names a queue and a group of the run.ai family, if they aren't empty.
    fn pod(&mut self, uid: &str, queue: &str, group: &str, scheduled: Option<i64>) {
        let own = json!({
            "labels": {"kai.scheduler/queue": queue}, "annotations": {"pod-group-name": group},
        });
        self.pod_with(uid, &own, scheduled);
    }

    fn pod_with(&mut self, uid: &str, metadata: &Value, scheduled: Option<i64>) {
        let condition =
            |second| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(second)});
        let mut pod = json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": at(0)},
            "status": {"conditions": scheduled.map(condition).into_iter().collect::<Vec<_>>()},
        });
        for (key, value) in metadata.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        self.0.apply_pod(&serde_json::from_value::<projection::Pod>(pod).unwrap());
    }

    fn group(&mut self, kind: PodGroupKind, name: &str, spec: &Value) {
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"});
        let group = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        self.0.apply_group(kind, &group);
    }

    /// A `StatefulSet`, or what one controls, that was paused in a queue.
    fn paused(&mut self, uid: &str, queue: &str, group: Option<&str>, controller: Option<&str>) {
        self.paused_in("ns", uid, queue, group, controller);
    }

    fn paused_in(
        &mut self,
        namespace: &str,
        uid: &str,
        queue: &str,
        group: Option<&str>,
        controller: Option<&str>,
    ) {
        let record = json!({
            "reason": "MaxDurationExceeded", "at": at(0), "queue": queue, "queueGroup": group,
            "field": "spec.replicas", "value": 0, "previousValue": 2,
        });
        let above = controller.map(set);
        let mut metadata = json!({
            "name": uid, "uid": uid, "namespace": namespace, "ownerReferences": above.into_iter().collect::<Vec<_>>(),
            "annotations": {"tenure.dev/paused": record.to_string()},
        });
        if uid.starts_with("requeued") {
            let state = json!({"count": 1, "requeueAt": at(600)});
            metadata["annotations"]["tenure.dev/requeue-state"] = json!(state.to_string());
        }
        self.0.apply_owner(0, &serde_json::from_value(metadata).unwrap());
    }

    fn tally(&mut self, second: i64) -> QueueReports {
        self.0.tally(&Floors::default(), at(second))
    }

    fn report(&mut self, queue: &str, second: i64) -> QueueReport {
        let tally = self.tally(second);
        tally.reports.into_iter().find(|(name, _)| name == queue).unwrap().1
    }

    /// Running, protected, paused and requeueing workloads of a queue.
    fn counts(&mut self, queue: &str, second: i64) -> [u32; 4] {
        let WorkloadCounts { running, protected, paused, requeueing } = self.report(queue, second).workloads;
        [running, protected, paused, requeueing]
    }
}

fn set(uid: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": uid, "uid": uid, "controller": true})
}

#[test]
fn a_pod_by_itself_runs_from_when_it_was_scheduled_until_it_is_gone() {
    let mut world = World::new(&[("a", json!({})), ("b", json!({}))]);
    world.pod("1", "a", "", None);
    assert_eq!(world.counts("a", 0), [0; 4]);
    world.pod("1", "a", "", Some(5));
    world.pod("2", "a", "", Some(5));
    world.pod("3", "nowhere", "", Some(5));
    assert_eq!((world.counts("a", 9), world.counts("b", 9)), ([2, 0, 0, 0], [0; 4]));
    world.0.delete_pod(Uid::of("1"));
    world.pod("2", "b", "", Some(5));
    assert_eq!((world.counts("a", 9), world.counts("b", 9)), ([0; 4], [1, 0, 0, 0]));
}

#[test]
fn a_workload_counts_once_however_many_pods_it_has_and_in_the_leaf_that_it_names() {
    let mut world =
        World::new(&[("root", json!({})), ("a", json!({"parentQueue": "root"})), ("b", json!({}))]);
    for uid in ["1", "2", "3"] {
        world.pod(uid, "b", "g", Some(5));
    }
    assert_eq!(world.counts("b", 9), [3, 0, 0, 0], "there is no such group");
    world.group(PodGroupKind::Runai, "g", &json!({"queue": "a", "minMember": 2}));
    assert_eq!((world.counts("a", 9), world.counts("b", 9)), ([1, 0, 0, 0], [0; 4]));
    assert_eq!(world.counts("root", 9), [0; 4]);
    world.group(PodGroupKind::Runai, "g", &json!({"minMember": 2}));
    assert_eq!(world.counts("b", 9), [1, 0, 0, 0], "its pods name a queue");
}

#[test]
fn the_pods_of_an_owner_count_once_running_or_paused() {
    let mut world = World::new(&[("a", json!({"preemptMinRuntime": "30s"})), ("b", json!({}))]);
    let of = |owner: &str, queue: &str| json!({"labels": {"kai.scheduler/queue": queue}, "ownerReferences": [set(owner)]});
    for (uid, started) in [("1", 0), ("2", 10), ("3", 0)] {
        world.pod_with(uid, &of("one", "a"), Some(started));
    }
    world.pod_with("4", &of("two", "a"), Some(0));
    assert_eq!(world.counts("a", 9), [2, 2, 0, 0]);
    assert_eq!(world.tally(9).until, Some(at(30)));
    assert_eq!(world.counts("a", 35), [2, 1, 0, 0], "one of its pods is within a floor");
    assert_eq!(world.tally(35).until, Some(at(40)));
    world.pod_with("5", &of("one", "b"), Some(0));
    assert_eq!(world.counts("b", 9), [1, 0, 0, 0], "it has pods in two queues");
    // KAI-Scheduler gives each pod of a Deployment a group of its own
    for uid in ["6", "7"] {
        world.group(PodGroupKind::Runai, &format!("g{uid}"), &json!({"queue": "b"}));
        let mut grouped = of("three", "b");
        grouped["annotations"] = json!({"pod-group-name": format!("g{uid}")});
        world.pod_with(uid, &grouped, Some(0));
    }
    assert_eq!(world.counts("b", 9), [2, 0, 0, 0]);
}

#[test]
fn a_pod_in_several_groups_is_a_workload_of_the_first_alone() {
    let mut world = World::new(&[("a", json!({}))]);
    world.group(PodGroupKind::Runai, "g", &json!({"queue": "a"}));
    world.group(PodGroupKind::Coscheduling, "h", &json!({}));
    let both = json!({
        "labels": {"kai.scheduler/queue": "a", "scheduling.x-k8s.io/pod-group": "h"},
        "annotations": {"pod-group-name": "g"},
    });
    world.pod_with("1", &both, Some(5));
    assert_eq!(world.counts("a", 9), [1, 0, 0, 0]);
    let second = json!({"labels": both["labels"]});
    world.pod_with("2", &second, Some(5));
    assert_eq!(world.counts("a", 9), [2, 0, 0, 0], "of the other group");
}

#[test]
fn a_group_whose_pods_name_several_queues_counts_once_in_each() {
    let mut world = World::new(&[("a", json!({})), ("b", json!({}))]);
    world.group(PodGroupKind::Runai, "g", &json!({"minMember": 1}));
    for (uid, queue) in [("1", "a"), ("2", "b"), ("3", "a"), ("4", "")] {
        world.pod(uid, queue, "g", Some(5));
    }
    assert_eq!((world.counts("a", 9), world.counts("b", 9)), ([1, 0, 0, 0], [1, 0, 0, 0]));
}

#[test]
fn a_workload_is_protected_within_its_longest_floor() {
    let mut world =
        World::new(&[("root", json!({"reclaimMinRuntime": "30s"})), ("a", json!({"parentQueue": "root"}))]);
    world.pod("1", "a", "", Some(0));
    world.pod("2", "a", "", Some(20));
    assert_eq!(world.counts("a", 20), [2, 2, 0, 0]);
    assert_eq!(world.tally(20).until, Some(at(30)));
    assert_eq!(world.counts("a", 30), [2, 1, 0, 0]);
    assert_eq!(world.tally(30).until, Some(at(50)));
    assert_eq!(world.counts("a", 50), [2, 0, 0, 0]);
    assert_eq!(world.tally(50).until, None);
    world.queue("a", &json!({"parentQueue": "root", "preemptMinRuntime": "1m"}));
    assert_eq!(world.counts("a", 50), [2, 2, 0, 0]);
}

#[test]
fn a_group_is_protected_from_its_start_and_one_that_has_not_started_is_not() {
    let mut world = World::new(&[("a", json!({"preemptMinRuntime": "30s"}))]);
    world.group(PodGroupKind::Runai, "g", &json!({"queue": "a", "minMember": 2}));
    world.pod("1", "a", "g", Some(0));
    assert_eq!(world.counts("a", 9), [1, 0, 0, 0]);
    world.pod("2", "a", "g", Some(20));
    assert_eq!((world.counts("a", 49), world.counts("a", 50)), ([1, 1, 0, 0], [1, 0, 0, 0]));
}

#[test]
fn defaults_that_are_configured_protect_too() {
    let mut world = World::new(&[("a", json!({})), ("open", json!({"preemptMinRuntime": "0s"}))]);
    world.pod("1", "a", "", Some(0));
    world.pod("2", "open", "", Some(0));
    let floors = Floors { preempt: "10s".parse().unwrap(), ..Floors::default() };
    let tally = world.0.tally(&floors, at(9));
    let protected: u32 = tally.reports.iter().map(|(_, report)| report.workloads.protected).sum();
    assert_eq!((protected, tally.until), (1, Some(at(10))));
}

#[test]
fn the_next_expiry_is_that_of_the_first_pod() {
    let mut world =
        World::new(&[("root", json!({"maxDuration": "100s"})), ("a", json!({"parentQueue": "root"}))]);
    assert_eq!(world.report("a", 0).next_expiry, None);
    world.pod("1", "a", "", Some(7));
    world.pod("2", "a", "", Some(5));
    world.pod("3", "a", "", None);
    assert_eq!(world.report("a", 9).next_expiry, Some(at(105)));
    assert_eq!(world.report("a", 200).next_expiry, Some(at(105)), "it is overdue");
    assert_eq!(world.report("root", 9).next_expiry, None);
    world.0.delete_pod(Uid::of("2"));
    assert_eq!(world.report("a", 9).next_expiry, Some(at(107)));
    world.queue("root", &json!({}));
    assert_eq!(world.report("a", 9).next_expiry, None);
}

#[test]
fn children_are_listed_in_order_and_only_of_queues_that_there_are() {
    let child = |parent: &str| json!({"parentQueue": parent});
    let mut world = World::new(&[
        ("root", json!({})),
        ("b", child("root")),
        ("a", child("root")),
        ("lost", child("gone")),
    ]);
    assert_eq!(world.report("root", 0).children, ["a", "b"]);
    assert!(world.report("a", 0).children.is_empty());
    assert!(!world.tally(0).reports.iter().any(|(name, _)| name == "gone"));
    world.0.delete_queue(Family::Runai, "b");
    assert_eq!(world.report("root", 0).children, ["a"]);
}

#[test]
fn what_is_paused_counts_in_its_queue_unless_it_runs_again() {
    const RUNAI: Option<&str> = Some("scheduling.run.ai");
    let mut world = World::new(&[("a", json!({})), ("b", json!({}))]);
    world.paused("one", "a", RUNAI, None);
    world.paused("copy", "a", RUNAI, Some("one"));
    world.paused("requeued", "a", RUNAI, None);
    world.paused("of T9k", "a", Some("scheduler.tensorstack.dev"), None);
    world.paused("of no queue", "gone", RUNAI, None);
    world.paused_in("elsewhere", "two", "b", RUNAI, None);
    assert_eq!((world.counts("a", 0), world.counts("b", 0)), ([0, 0, 1, 1], [0, 0, 1, 0]));
    let pod = |uid: &str| json!({"labels": {"kai.scheduler/queue": "a"}, "ownerReferences": [set(uid)]});
    world.pod_with("1", &pod("one"), None);
    assert_eq!(world.counts("a", 0), [0, 0, 0, 1], "it will run again");
    world.pod_with("2", &pod("other"), Some(0));
    world.0.delete_pod(Uid::of("1"));
    assert_eq!(world.counts("a", 0), [1, 0, 1, 1]);
    world.0.delete_owner(Uid::of("one"));
    assert_eq!(world.counts("a", 0), [1, 0, 0, 1]);
}

#[test]
fn where_a_record_does_not_say_of_which_family_its_queue_is_it_counts_if_only_one_has_it() {
    let mut world = World::new(&[("a", json!({})), ("both", json!({}))]);
    world.paused("one", "a", None, None);
    world.paused("two", "both", None, None);
    world.0.apply_queue("both", &tenure_types::tensorstack::v1beta1::QueueSpec::default());
    assert_eq!((world.counts("a", 0), world.counts("both", 0)), ([0, 0, 1, 0], [0; 4]));
}

#[test]
fn pods_of_a_daemon_set_are_no_workloads() {
    let mut world = World::new(&[("a", json!({}))]);
    let daemon =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    world.pod_with("1", &json!({"labels": {"kai.scheduler/queue": "a"}, "ownerReferences": daemon}), Some(0));
    assert_eq!(world.counts("a", 9), [0; 4]);
}

#[test]
fn a_daemon_set_that_owns_a_pod_beside_its_controller_hides_no_workload() {
    let mut world = World::new(&[("a", json!({"maxDuration": "100s"}))]);
    let beside = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"});
    let owners = json!([beside, set("one")]);
    world.pod_with("1", &json!({"labels": {"kai.scheduler/queue": "a"}, "ownerReferences": owners}), Some(0));
    assert_eq!(world.counts("a", 9), [1, 0, 0, 0]);
    assert_eq!(world.report("a", 9).next_expiry, Some(at(100)));
}
