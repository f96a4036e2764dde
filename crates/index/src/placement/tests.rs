use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tenure_policy::{
    floor::Floors,
    kueue,
    preemption::{Rule, Rules},
    queue::RunaiQueue,
    tree::QueueTree,
    victims::{Neighbor, NodeProtection},
};
use tenure_types::{extender::OfferedVictims, podgroup::PodGroupKind, projection::Pod, room::ResourceDemand};

use super::*;

mod answer;
mod guard;
mod kept;
mod pending;
mod preemptors;

const NOW: &str = "2026-01-01T01:00:00Z";

/// A pod on node `n`, in a queue with a floor of ten minutes. It was scheduled `age` seconds ago.
fn pod(name: &str, age: i64, more: &Value) -> Value {
    let now: Timestamp = NOW.parse().unwrap();
    let at = now - jiff::SignedDuration::from_secs(age);
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at, "labels": {"kai.scheduler/queue": "q"},
        },
        "spec": {
            "nodeName": "n", "priority": 1,
            "containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": 1}}}],
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]},
    });
    merge(&mut pod, more);
    pod
}

fn merge(target: &mut Value, more: &Value) {
    let Value::Object(more) = more else { return target.clone_from(more) };
    for (key, value) in more {
        merge(target.as_object_mut().unwrap().entry(key).or_insert_with(|| json!({})), value);
    }
}

struct World {
    index: PlacementIndex,
    tree: QueueTree,
    floors: Floors,
}

impl World {
    fn new(pods: &[Value]) -> Self {
        let queue = RunaiQueue { preempt_floor: "10m".parse().ok(), ..RunaiQueue::default() };
        let tree = [("q", queue.clone()), ("other", queue)].into_iter().collect();
        let mut world = Self { index: PlacementIndex::default(), tree, floors: Floors::default() };
        for pod in pods {
            world.apply(pod);
        }
        world
    }

    fn apply(&mut self, pod: &Value) {
        let room: PodWithRoom = serde_json::from_value(pod.clone()).unwrap();
        self.index.apply_pod(room);
        self.index.recompute();
    }

    fn group(&mut self, spec: &Value) {
        let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g"}, "spec": spec});
        self.index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        self.index.recompute();
    }

    fn asked_by<'a>(&'a self, preemptor: &Value, victims: &[&'a str]) -> NodeVerdict<'a> {
        self.asked_of(preemptor, &[offer("n", victims)]).remove(0)
    }

    fn asked_of<'a>(&'a self, preemptor: &Value, offers: &[OfferedVictims<'a>]) -> Vec<NodeVerdict<'a>> {
        let whole: PodWithRoom = serde_json::from_value(preemptor.clone()).unwrap();
        let (preemptor, room) = whole.split();
        let neighbor = neighbor(&preemptor, &room);
        let question = PreemptionRequest { rules: self.rules(), preemptor: &preemptor, neighbor };
        self.index.answer(&question, offers)
    }

    fn rules(&self) -> Rules<'_> {
        Rules { floors: &self.floors, tree: &self.tree, now: NOW.parse().unwrap() }
    }

    fn asked<'a>(&'a self, victims: &[&'a str]) -> NodeVerdict<'a> {
        self.asked_by(&preemptor(), victims)
    }
}

fn neighbor<'a>(pod: &'a Pod, room: &'a ResourceDemand) -> Neighbor<'a> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    Neighbor {
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        labels: pod.metadata.labels.as_ref().unwrap_or(&NONE),
        needs: room.needs.as_ref(),
    }
}

fn offer<'a>(node: &'a str, victims: &[&'a str]) -> OfferedVictims<'a> {
    let victims = victims.iter().copied().map(Into::into).collect();
    OfferedVictims { node: node.into(), victims, pdb_violations: 0 }
}

/// Of the same queue as those pods.
fn preemptor() -> Value {
    let metadata = json!({"namespace": "ns", "labels": {"kai.scheduler/queue": "q"}});
    json!({"metadata": metadata, "spec": {"priority": 9, "containers": []}})
}

fn taken<'a>(victims: &[&'a str], in_group: bool) -> Vec<PreemptiblePod<'a>> {
    victims.iter().map(|text| PreemptiblePod { text: (*text).into(), uid: Uid::of(text), in_group }).collect()
}

fn keep<'a>(victims: &[&'a str]) -> NodeVerdict<'a> {
    NodeVerdict::Keep(taken(victims, false))
}

fn keep_of_group<'a>(victims: &[&'a str]) -> NodeVerdict<'a> {
    NodeVerdict::Keep(taken(victims, true))
}

fn instead<'a>(victims: &[&'a str]) -> NodeVerdict<'a> {
    NodeVerdict::Instead { victims: taken(victims, false), budget_violations: 0 }
}

fn is_protected(answer: &NodeVerdict<'_>, rule: Rule) -> bool {
    matches!(answer, NodeVerdict::Drop(Rejection::Protected(NodeProtection { rule: by, .. })) if *by == rule)
}

#[test]
fn each_pod_of_a_node_is_found_however_many_there_are() {
    let names: Vec<String> = (0..300).map(|number| format!("pod-{number}")).collect();
    let mut world = World::new(&[]);
    for (many, name) in names.iter().enumerate() {
        world.apply(&pod(name, 700, &json!({})));
        for (number, name) in names.iter().enumerate().step_by(37) {
            let found = world.index.reader.places.on("n").unwrap().find(Uid::of(name));
            assert_eq!(found.map(|pod| pod.name.as_str()), (number <= many).then_some(name.as_str()));
        }
    }
}

#[test]
fn a_pod_that_has_gone_or_moved_takes_no_room_any_more() {
    let mut world = World::new(&[
        pod("young", 60, &json!({})),
        pod("moved", 700, &json!({})),
        pod("ended", 700, &json!({})),
        pod("deleted", 700, &json!({})),
    ]);
    world.apply(&pod("moved", 700, &json!({"spec": {"nodeName": "m"}})));
    world.apply(&pod("ended", 700, &json!({"status": {"phase": "Succeeded"}})));
    world.index.delete_pod(Uid::of("deleted"));
    assert!(matches!(world.asked(&["young"]), NodeVerdict::Drop(_)));
    assert_eq!(world.index.pods(), 2);
    world.index.retain_pods(&HashSet::from([Uid::of("young")]));
    assert_eq!((world.index.pods(), world.index.reader.places.len()), (1, (1, 0, 1)));
}

#[test]
fn a_pod_that_shows_its_binding_late_has_no_floor_again() {
    let shown = |conditions: &Value| pod("a", 700, &json!({"status": {"conditions": conditions}}));
    let at = NOW.parse::<Timestamp>().unwrap() - jiff::SignedDuration::from_secs(60);
    let late = shown(&json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]));
    let mut world = World::new(&[shown(&json!([])), late.clone()]);
    assert_eq!(world.asked(&["a"]), keep(&["a"]), "its floor counts from its creation");
    world.index.begin_pods();
    world.apply(&late);
    world.index.retain_pods(&HashSet::from([Uid::of("a")]));
    assert_eq!(world.asked(&["a"]), keep(&["a"]), "a list shows no other start");
    let next = World::new(&[late]);
    assert!(is_protected(&next.asked(&["a"]), Rule::PreemptMinRuntime), "no other webhook has seen that");
}

#[test]
fn the_queue_of_its_group_counts_and_the_groups_start() {
    let in_group = |name: &str, age| {
        pod(
            name,
            age,
            &json!({"metadata": {"annotations": {"pod-group-name": "g"}, "labels": {"kai.scheduler/queue": "?"}}}),
        )
    };
    let mut world = World::new(&[in_group("a", 60), in_group("b", 700)]);
    assert_eq!(world.asked(&["a"]), keep(&["a"]), "there is no such queue");
    world.group(&json!({"queue": "q", "minMember": 2}));
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptMinRuntime), "it started with the second");
    world.index.delete_group(PodGroupKind::Runai, "ns", "g");
    let answer = world.asked(&["a"]);
    assert!(matches!(answer, NodeVerdict::Instead { .. }), "its pods stay in its queue: {answer:?}");
    world.group(&json!({"queue": "q", "minMember": 1}));
    assert_eq!(world.asked(&["a"]), keep_of_group(&["a"]), "it started with the first");
}

#[test]
fn the_queue_of_the_preemptors_group_counts() {
    let mut world = World::new(&[pod("a", 60, &json!({}))]);
    let metadata = json!({"namespace": "ns", "annotations": {"pod-group-name": "g"}, "labels": {"kai.scheduler/queue": "other"}});
    let preemptor = json!({"metadata": metadata, "spec": {"priority": 9, "containers": []}});
    assert_eq!(
        world.asked_by(&preemptor, &["a"]),
        keep(&["a"]),
        "of another queue, which has no floor to reclaim"
    );
    world.group(&json!({"queue": "q", "minMember": 1}));
    assert!(is_protected(&world.asked_by(&preemptor, &["a"]), Rule::PreemptMinRuntime), "of the same queue");
}

#[test]
fn an_elastic_gang_is_left_its_minimum() {
    let job = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    let metadata = json!({"annotations": {"pod-group-name": "g"}, "ownerReferences": job});
    let in_group = |name: &str| pod(name, 60, &json!({"metadata": metadata}));
    let mut world = World::new(&["a", "b", "c"].map(in_group));
    world.group(&json!({"queue": "q", "minMember": 2}));
    assert_eq!(world.asked(&["a"]), keep_of_group(&["a"]));
    assert!(is_protected(&world.asked(&["a", "b"]), Rule::MinAvailable));
}

#[test]
fn a_pod_that_joins_a_gang_of_pods_without_a_controller_takes_no_floor_from_it() {
    let in_group =
        |name: &str, age: i64| pod(name, age, &json!({"metadata": {"annotations": {"pod-group-name": "g"}}}));
    let mut world = World::new(&[in_group("a", 90), in_group("b", 80)]);
    world.group(&json!({"queue": "q", "minMember": 2}));
    // it is protected, or another goes in its place
    let is_kept = |world: &World, name: &'static str| world.asked(&[name]) != keep_of_group(&[name]);
    assert!(is_kept(&world, "a") && is_kept(&world, "b"));
    for joined in ["c", "d", "e"] {
        world.apply(&in_group(joined, 60));
    }
    let goes = |world: &World, names: &[&'static str]| world.asked(names) == keep_of_group(names);
    assert!(is_kept(&world, "a") && is_kept(&world, "b"), "they are all that it takes");
    assert!(goes(&world, &["c", "d", "e"]), "and those that joined are not");
    world.index.delete_pod(Uid::of("b"));
    assert!(is_kept(&world, "a"), "the place of a pod without a controller goes to the next one");
    assert_eq!(["c", "d", "e"].into_iter().filter(|name| is_kept(&world, name)).count(), 1);
}

#[test]
fn members_that_no_floor_protects_take_none_of_the_others_along() {
    // the first of the gang is in a queue without a floor, and may go at any time
    let in_group = |name: &str, age, queue: &str| {
        let metadata =
            json!({"annotations": {"pod-group-name": "g"}, "labels": {"kai.scheduler/queue": queue}});
        pod(name, age, &json!({"metadata": metadata}))
    };
    let mut world = World::new(&[in_group("a", 90, "other"), in_group("b", 80, "q"), in_group("c", 70, "q")]);
    world.group(&json!({"minMember": 2}));
    assert_eq!(world.asked(&["c"]), keep_of_group(&["c"]), "two are left");
    assert_eq!(world.asked(&["a"]), keep_of_group(&["a"]), "no floor protects it");
    assert!(is_protected(&world.asked(&["a", "c"]), Rule::MinAvailable), "one would be left");
}

#[test]
fn a_pod_of_another_controller_that_joins_a_gang_takes_no_floor_from_it() {
    let of = |name: &str, controller: &str| {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": controller, "uid": controller, "controller": true});
        let owners = if controller.is_empty() { json!([]) } else { json!([owner]) };
        pod(
            name,
            60,
            &json!({"metadata": {"annotations": {"pod-group-name": "g"}, "ownerReferences": owners}}),
        )
    };
    let mut world = World::new(&[of("a", "job"), of("b", "job"), of("joined", "")]);
    world.group(&json!({"queue": "q", "minMember": 2}));
    let goes = |world: &World, name| world.asked(&[name]) == keep_of_group(&[name]);
    assert_eq!(["a", "joined"].map(|name| goes(&world, name)), [false, true], "two of two, and one beyond");
    for more in ["c", "d", "e"] {
        world.apply(&of(more, "another job"));
    }
    assert_eq!(["a", "c"].map(|name| goes(&world, name)), [false, true], "two of two, and three of two");
    world.apply(&of("f", "job"));
    assert!(goes(&world, "a"), "its own controller has one more");
    assert_ne!(world.asked(&["a", "b"]), keep_of_group(&["a", "b"]), "and no more than one");
}

#[test]
fn a_pod_that_claims_a_gangs_controller_by_another_kind_or_a_like_uid_takes_no_floor_from_it() {
    let job = "6ccd780c-baba-1026-9564-5b8c656024db";
    let of = |name: &str, api_version: &str, uid: &str| {
        let owner =
            json!({"apiVersion": api_version, "kind": "Job", "name": "j", "uid": uid, "controller": true});
        pod(
            name,
            60,
            &json!({"metadata": {"annotations": {"pod-group-name": "g"}, "ownerReferences": [owner]}}),
        )
    };
    // the last one is made to be like the job's, by the sums of a simple hash
    for uid in [job, "00000000-0000-0001-1c3f-9c87bec5b1dc"] {
        let joined = of("joined", "example.com/v1", uid);
        let mut world = World::new(&[of("a", "batch/v1", job), of("b", "batch/v1", job), joined]);
        world.group(&json!({"queue": "q", "minMember": 2}));
        let goes = |name| world.asked(&[name]) == keep_of_group(&[name]);
        assert_eq!(["a", "b", "joined"].map(goes), [false, false, true], "{uid}");
    }
}

/// Of a coscheduling group of two, which names no queue.
fn of_two(name: &str, more: &Value) -> Value {
    let mut of_two = pod(name, 60, &json!({"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}}));
    merge(&mut of_two, more);
    of_two
}

fn with_two(pods: &[Value]) -> World {
    let mut world = World::new(pods);
    let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g"}, "spec": {"minMember": 2}});
    world.index.apply_group(PodGroupKind::Coscheduling, &serde_json::from_value(group).unwrap());
    world.index.recompute();
    world
}

fn in_queue(name: &str) -> Value {
    json!({"metadata": {"labels": {"kai.scheduler/queue": name}}})
}

#[test]
fn a_pod_that_waits_changes_no_floor_of_a_running_member_of_its_gang() {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
    let of_job = json!({"metadata": {"ownerReferences": [owner]}});
    for runs_in in ["q", ""] {
        let mut running = of_job.clone();
        merge(&mut running, &in_queue(runs_in));
        let mut world = with_two(&["a", "b"].map(|name| of_two(name, &running)));
        let is_protected = |world: &World| is_protected(&world.asked(&["a"]), Rule::PreemptMinRuntime);
        assert_eq!(is_protected(&world), runs_in == "q");
        // some of them sort before the others
        for number in 0..20 {
            let mut waiting = of_two(&format!("waiting-{number}"), &in_queue("q"));
            merge(&mut waiting, &json!({"spec": {"nodeName": null}, "status": {"conditions": []}}));
            if runs_in == "q" {
                merge(&mut waiting, &in_queue("other"));
            }
            world.apply(&waiting);
        }
        assert_eq!(is_protected(&world), runs_in == "q", "{runs_in:?}");
    }
}

#[test]
fn members_of_a_gang_in_different_queues_have_each_the_floor_of_its_own() {
    let world = with_two(&[of_two("a", &json!({})), of_two("b", &in_queue("other"))]);
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptMinRuntime));
    assert_eq!(world.asked(&["b"]), keep_of_group(&["b"]), "there is no floor to reclaim");
}

#[test]
fn a_member_without_a_queue_has_no_floor_since_it_has_no_ceiling() {
    let world = with_two(&[of_two("a", &in_queue("")), of_two("b", &json!({}))]);
    assert_eq!(world.asked(&["a"]), keep_of_group(&["a"]));
    assert!(is_protected(&world.asked(&["b"]), Rule::PreemptMinRuntime), "it names its queue");
}

#[test]
fn a_group_that_is_made_for_a_running_pod_changes_no_floor() {
    let named = json!({"metadata": {"annotations": {"pod-group-name": "g"}}});
    for (made, expected) in [("2026-01-01T00:58:59Z", false), ("2026-01-01T00:59:01Z", true)] {
        let mut world = World::new(&[pod("a", 60, &named)]);
        let metadata = json!({"namespace": "ns", "name": "g", "uid": "g", "creationTimestamp": made});
        let group = json!({"metadata": metadata, "spec": {"minMember": 1, "queue": "other"}});
        world.index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        world.index.recompute();
        let answer = world.asked(&["a"]);
        assert_eq!(is_protected(&answer, Rule::PreemptMinRuntime), expected, "{made}: {answer:?}");
    }
}

#[test]
fn of_many_controllers_of_a_gang_only_the_pods_of_those_are_counted_that_are_asked_about() {
    let of = |name: String| {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true});
        of_two(&name, &json!({"metadata": {"ownerReferences": [owner]}}))
    };
    let pods: Vec<Value> = (0..100).map(|number| of(number.to_string())).collect();
    let mut world = with_two(&pods);
    let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g"}, "spec": {"minMember": 1}});
    world.index.apply_group(PodGroupKind::Coscheduling, &serde_json::from_value(group).unwrap());
    world.index.recompute();
    let mut workloads = workloads::WorkloadCache::new(&world.index, &world.tree);
    for uid in ["7", "8", "7"].map(Uid::of) {
        workloads.here(uid, world.index.reader.places.get(uid).unwrap());
    }
    assert_eq!(workloads.counted(), 3, "the group, and the pods of two controllers");
}

#[test]
fn workers_without_a_minimum_of_their_own_are_part_of_the_gangs() {
    let annotations = |task: &str| json!({"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": task});
    let job = json!([{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    let metadata = |task: &str| json!({"annotations": annotations(task), "ownerReferences": job});
    let of = |name: &str, task| pod(name, 60, &json!({"metadata": metadata(task)}));
    let pods = [of("master", "master"), of("a", "worker"), of("b", "worker"), of("c", "worker")];
    let mut world = World::new(&pods);
    let group = |minimum: u32| {
        let spec = json!({"minMember": minimum, "minTaskMember": {"master": 1}});
        let group = json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g"}, "spec": spec});
        serde_json::from_value(group).unwrap()
    };
    world.index.apply_group(PodGroupKind::Volcano, &group(4));
    world.index.recompute();
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptMinRuntime));
    assert!(is_protected(&world.asked(&["a", "b", "c"]), Rule::PreemptMinRuntime));
    world.index.apply_group(PodGroupKind::Volcano, &group(3));
    world.index.recompute();
    assert_eq!(world.asked(&["a"]), keep_of_group(&["a"]));
    assert!(is_protected(&world.asked(&["a", "b"]), Rule::MinAvailable));
    let NodeVerdict::Instead { victims, .. } = world.asked(&["master"]) else {
        panic!("a worker can be spared")
    };
    assert!(victims.len() == 1 && victims[0].text != "master", "{victims:?}");
}

#[test]
fn a_class_that_is_not_there_protects_its_pods() {
    let in_class = pod("a", 700, &json!({"spec": {"priorityClassName": "c"}}));
    let mut world = World::new(std::slice::from_ref(&in_class));
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptionToleration));
    let class = |seconds: &str| {
        let key = "preemption-toleration.scheduling.x-k8s.io/";
        let annotations = json!({format!("{key}minimum-preemptable-priority"): "10", format!("{key}toleration-seconds"): seconds});
        let class = json!({"metadata": {"name": "c", "annotations": annotations}, "value": 1});
        serde_json::from_value::<PriorityClass>(class).unwrap()
    };
    world.index.apply(class("600"));
    assert_eq!(world.asked(&["a"]), keep(&["a"]));
    world.index.apply(class("-1"));
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptionToleration));
    world.index.apply(class("600"));
    Store::<PriorityClass>::delete(&mut world.index, &"c".into());
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptionToleration), "it is gone");
}

#[test]
fn the_pool_of_the_node_counts() {
    let elsewhere = pod("a", 60, &json!({"metadata": {"labels": {"kai.scheduler/queue": "?"}}}));
    let mut world = World::new(&[elsewhere]);
    let pool = tenure_policy::floor::PartialFloors { reclaim: "2m".parse().ok(), preempt: None };
    world.floors.node_pools.insert("p".into(), pool);
    assert_eq!(world.asked(&["a"]), keep(&["a"]));
    let node = json!({"metadata": {"name": "n", "labels": {"kai.scheduler/node-pool": "p"}}});
    world.index.apply(serde_json::from_value::<Node>(node).unwrap());
    assert!(is_protected(&world.asked(&["a"]), Rule::ReclaimMinRuntime));
    Store::<Node>::retain(&mut world.index, &HashSet::new());
    assert_eq!(world.asked(&["a"]), keep(&["a"]));
}

#[test]
fn a_pod_in_a_queue_of_kueues_has_the_floor_of_the_queue_that_it_stands_for() {
    let in_kueue = json!({"kai.scheduler/queue": "", "kueue.x-k8s.io/local-queue-name": "main"});
    let of_kueue = pod("a", 60, &json!({"metadata": {"labels": in_kueue}}));
    let mut world = World::new(&[]);
    world.floors = Floors::default();
    world.apply(&of_kueue);
    assert_eq!(world.asked(&["a"]), keep(&["a"]), "it is in no queue");
    let main = kueue::KueueQueue::Local { namespace: Some("ns".into()), name: "main".into() };
    world.index.set_kueue_queues(kueue::KueueQueues(vec![(main, "q".to_owned())]));
    world.apply(&of_kueue);
    assert!(is_protected(&world.asked(&["a"]), Rule::PreemptMinRuntime));
    let preemptor = json!({"metadata": {"namespace": "ns", "labels": in_kueue}, "spec": {"priority": 9, "containers": []}});
    assert!(is_protected(&world.asked_by(&preemptor, &["a"]), Rule::PreemptMinRuntime), "of the same queue");
}

#[test]
fn what_a_disruption_budget_keeps_goes_last() {
    let app = |name: &str, age| pod(name, age, &json!({"metadata": {"labels": {"app": name}}}));
    let mut world = World::new(&[app("young", 60), app("a", 700), app("b", 800)]);
    assert_eq!(world.asked(&["young"]), instead(&["a"]));
    let budget = |name: &str| {
        let spec = json!({"selector": {"matchLabels": {"app": name}}});
        let metadata = json!({"namespace": "ns", "name": name});
        let budget = json!({"metadata": metadata, "spec": spec, "status": {"disruptionsAllowed": 0}});
        serde_json::from_value::<PodDisruptionBudget>(budget).unwrap()
    };
    world.index.apply(budget("a"));
    assert_eq!(world.asked(&["young"]), instead(&["b"]));
    world.index.apply(budget("b"));
    assert_eq!(
        world.asked(&["young"]),
        NodeVerdict::Instead { victims: taken(&["a"], false), budget_violations: 1 }
    );
    Store::<PodDisruptionBudget>::delete(&mut world.index, &("ns".into(), "a".into()));
    assert_eq!(world.asked(&["young"]), instead(&["a"]));
}

/// True if a budget with these fields, which allows no disruption, keeps pod `a` from being taken before pod `b`.
fn keeps(labels: &Value, selector: &Value, disrupted: &Value) -> bool {
    let app = |name: &str, age| {
        let mut pod = pod(name, age, &json!({}));
        pod["metadata"]["labels"].clone_from(labels);
        pod
    };
    let young = pod("young", 60, &json!({}));
    let mut world = World::new(&[young, app("a", 700), pod("b", 800, &json!({}))]);
    let budget = json!({
        "metadata": {"namespace": "ns", "name": "all"}, "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 0, "disruptedPods": disrupted},
    });
    world.index.apply(serde_json::from_value::<PodDisruptionBudget>(budget).unwrap());
    match world.asked(&["young"]) {
        NodeVerdict::Instead { victims, budget_violations: 0 } => victims == taken(&["b"], false),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_budget_counts_the_pods_that_the_scheduler_counts() {
    let (labels, selector) = (json!({"app": "a"}), json!({"matchLabels": {"app": "a"}}));
    assert!(keeps(&labels, &selector, &json!({})));
    assert!(!keeps(&labels, &json!({}), &json!({})), "an empty selector selects nothing");
    assert!(!keeps(&labels, &json!(null), &json!({})));
    let at = "2026-01-01T00:00:00Z";
    assert!(!keeps(&labels, &selector, &json!({"a": at})), "its disruption is counted already");
    assert!(keeps(&labels, &selector, &json!({"b": at})));
    let not = json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]});
    assert!(keeps(&json!({"x": "y"}), &not, &json!({"b": at, "young": at})));
    assert!(
        !keeps(&json!({}), &not, &json!({"b": at, "young": at})),
        "a pod without labels is selected by none"
    );
}

/// Labels, or the values of a selector, of `bytes` bytes in all.
fn many(bytes: usize) -> impl Iterator<Item = String> {
    (0..bytes / 64).map(|number| format!("{number:064}"))
}

#[test]
fn a_pod_with_more_labels_than_are_kept_counts_for_every_budget_of_its_namespace() {
    let selector = json!({"matchLabels": {"app": "a"}});
    let crowded: BTreeMap<String, String> = many(1 << 20).map(|key| (key, "x".to_owned())).collect();
    assert!(keeps(&json!(crowded), &selector, &json!({})));
    let few: BTreeMap<String, String> = many(2_048).map(|key| (key, "x".to_owned())).collect();
    assert!(!keeps(&json!(few), &selector, &json!({})), "all of 2,048 bytes are known");
}

#[test]
fn a_budget_whose_selector_is_too_large_to_be_kept_counts_for_every_pod_of_its_namespace() {
    let selector = |bytes: usize| {
        let values: Vec<String> = many(bytes).collect();
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]})
    };
    assert!(keeps(&json!({"app": "a"}), &selector(1 << 20), &json!({"b": null, "young": null})));
    assert!(!keeps(&json!({"app": "a"}), &selector(2_048), &json!({})), "all of 2,048 bytes are known");
}

#[test]
fn labels_that_are_not_kept_take_no_memory() {
    let mut world = World::new(&[]);
    for number in 0..50 {
        let labels: BTreeMap<String, String> =
            many(1 << 16).map(|key| (format!("{number}-{key}"), "x".to_owned())).collect();
        world.apply(&pod(&format!("pod-{number}"), 60, &json!({"metadata": {"labels": labels}})));
    }
    assert!(world.index.objects.interner.names.len() < 1_000, "{}", world.index.objects.interner.names.len());
}

#[test]
fn resources_stay_apart_however_many_there_were() {
    let with = |name: &str, age, resource: &str| {
        let requests = json!({"cpu": "1", resource: 1});
        pod(name, age, &json!({"spec": {"containers": [{"resources": {"requests": requests}}]}}))
    };
    let mut world = World::new(&[]);
    for first in 0..1_400 {
        let requests: BTreeMap<String, u32> =
            (0..30).map(|number| (format!("example.com/{first}-{number}"), 1)).collect();
        world.apply(&pod(
            "many",
            700,
            &json!({"spec": {"containers": [{"resources": {"requests": requests}}]}}),
        ));
        world.index.delete_pod(Uid::of("many"));
    }
    world.apply(&with("young", 60, "example.com/gpu"));
    world.apply(&with("other", 700, "example.com/fpga"));
    assert!(matches!(world.asked(&["young"]), NodeVerdict::Drop(_)), "another device is no substitute");
    world.apply(&with("same", 700, "example.com/gpu"));
    assert_eq!(world.asked(&["young"]), instead(&["same"]));
    assert!(world.index.objects.interner.names.len() < 10_000, "names of resources go with their pods");
}

/// With a volume of a claim.
fn with_claim(claim: &str) -> Value {
    json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

#[test]
fn what_a_pod_needs_besides_room_is_kept_for_as_long_as_it_is_there() {
    let kept = |world: &World| world.index.reader.needs.len();
    let world = || World::new(&[pod("a", 60, &with_claim("data")), pod("b", 60, &json!({}))]);
    let mut changed = world();
    assert_eq!(kept(&changed), 1);
    changed.apply(&pod("a", 60, &json!({})));
    assert_eq!(kept(&changed), 0);
    for forget in [
        (|world| world.index.delete_pod(Uid::of("a"))) as fn(&mut World),
        |world| world.index.retain_pods(&HashSet::new()),
        |world| world.apply(&pod("a", 60, &json!({"status": {"phase": "Succeeded"}}))),
    ] {
        let mut world = world();
        forget(&mut world);
        assert_eq!(kept(&world), 0);
    }
}
