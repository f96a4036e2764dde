//! The user stories of KEP-1282 where room is scarce, and the cases of its integration tests.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, audit, fixtures,
    workloads::{Namespace, distinct, in_runai_queue, workload},
};

use super::{
    metrics::{DEACTIVATIONS, EVICTIONS, assert_counted},
    scene::{
        ACTIVE, LONG, PAUSED, STATE, TIMEOUT, annotation, await_eviction, await_running, job, place, queue,
        return_at, time, unready, waiting,
    },
    world,
};

/// Pods of which each of these nodes has room for one: they want the same port.
fn one_each(nodes: &[&str], port: u16) -> Value {
    let named = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": nodes});
    let term = json!({"nodeSelectorTerms": [{"matchExpressions": [named]}]});
    json!({
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
        "containers": [{
            "name": "main", "image": "example.com/image", "ports": [{"containerPort": 80, "hostPort": port}],
        }],
    })
}

/// A Job of one pod.
async fn of_one_pod(namespace: &Namespace, name: &str, labels: &Value, spec: &Value) -> DynamicObject {
    namespace.create(&distinct(workload("Job", namespace.name(), name, labels, spec), name)).await
}

/// A Job of two pods, neither of which can run without the other.
async fn gang_of_two(namespace: &Namespace, name: &str, spec: &Value) -> DynamicObject {
    let minimum = json!({"minMember": 2, "queue": namespace.name()});
    let group = fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", namespace.name(), name, &minimum);
    namespace.create(&group).await;
    let labels = in_runai_queue(namespace.name());
    let mut gang = distinct(workload("Job", namespace.name(), name, &labels, spec), name);
    (gang["spec"]["parallelism"], gang["spec"]["completions"]) = (json!(2), json!(2));
    gang["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": name});
    namespace.create(&gang).await
}

async fn await_ready(namespace: &Namespace, job: &DynamicObject, count: u64) {
    let all = async || Ok((namespace.field(job, "status.ready").await == json!(count)).then_some(()));
    eventually(&format!("{count} pods to be ready"), DEADLINE, all).await.unwrap();
}

async fn count_of(namespace: &Namespace, job: &DynamicObject) -> Value {
    annotation(namespace, job, STATE).await.map_or(Value::Null, |state| state["count"].clone())
}

/// The first story. One of two nodes is taken, so a gang of two is placed by half; so is another one. Each makes room, and
/// when the node is freed, and freed again, they come back one after the other, long before their time.
#[tokio::test]
async fn gangs_that_are_partly_placed_make_room_and_come_back_in_order_as_capacity_is_freed() {
    let world = world().await;
    // the second wait takes long
    let strategy = json!({"backoffBaseSeconds": 1, "backoffFactor": "900", "onCapacity": true});
    let namespace = place(world, &waiting(&strategy)).await;
    let two_nodes = one_each(&["node-1", "node-2"], 17001);
    let labels = in_runai_queue(namespace.name());
    let holder = of_one_pod(&namespace, "holder", &labels, &two_nodes).await;
    await_ready(&namespace, &holder, 1).await;
    let first = gang_of_two(&namespace, "z-first", &two_nodes).await;
    await_ready(&namespace, &first, 1).await;
    let (_, state) = await_eviction(&namespace, &first, 2).await;
    let second = gang_of_two(&namespace, "a-second", &two_nodes).await;
    await_eviction(&namespace, &second, 2).await;
    // a workload that makes room for its pods brings no other back
    assert_eq!(annotation(&namespace, &first, STATE).await.as_ref(), Some(&state));
    assert_eq!(annotation(&namespace, &holder, PAUSED).await, None, "it is ready");

    namespace.delete(&holder).await;
    await_running(&namespace, &first).await;
    await_ready(&namespace, &first, 2).await;
    assert!(Timestamp::now() + SignedDuration::from_mins(5) < time(&state["requeueAt"]), "before its time");
    assert!(annotation(&namespace, &second, PAUSED).await.is_some(), "one for each that has left");
    namespace.delete(&first).await;
    await_running(&namespace, &second).await;
    await_ready(&namespace, &second, 2).await;
    let events = namespace.await_events_of("Requeued", 4).await;
    let early = format!(
        "Set spec.suspend back to false: return 2 after too few of its pods were ready in time, early because another workload of Queue {} has left",
        namespace.name()
    );
    let called: Vec<_> = events.iter().filter(|event| event.ends_with(&early)).collect();
    assert_eq!(called.len(), 2, "{events:?}");
    assert_eq!(namespace.events_of("EvictedDueToPodsReadyTimeout").await.len(), 4);
}

#[tokio::test]
async fn a_workload_that_no_node_has_room_for_makes_room_where_its_creation_counts_and_only_there() {
    let world = world().await;
    let mut spec = waiting(&json!({"backoffBaseSeconds": LONG}));
    let patient = place(world, &spec).await;
    spec["waitForPodsReady"]["countFrom"] = json!("Creation");
    let namespace = place(world, &spec).await;
    let nowhere = one_each(&["nowhere"], 17002);
    let waits = of_one_pod(&patient, "waits", &in_runai_queue(patient.name()), &nowhere).await;
    let gang = gang_of_two(&namespace, "gang", &nowhere).await;
    let created = time(&namespace.field(&gang, "metadata.creationTimestamp").await);
    let (record, _) = await_eviction(&namespace, &gang, 1).await;
    assert_eq!(record["reason"], "PodsReadyTimeout");
    assert!(time(&record["at"]) >= created + TIMEOUT, "{record} comes too early");
    let queue = [("queue", namespace.name()), ("cause", "WaitForStart")];
    assert_counted(world, EVICTIONS, &queue, 1).await;
    // it is older
    assert_eq!(annotation(&patient, &waits, PAUSED).await, None, "it takes no room");
    assert_eq!(patient.pod_names().await.len(), 1);
}

/// A job that is the first in the order each time, and never gets ready.
#[tokio::test]
async fn under_creation_who_is_always_put_in_front_is_given_up_at_the_limit_and_holds_up_no_other() {
    let world = world().await;
    let strategy = json!({"timestamp": "Creation", "backoffBaseSeconds": LONG, "backoffLimitCount": 1});
    let namespace = place(world, &waiting(&strategy)).await;
    let broken = of_one_pod(&namespace, "z-broken", &unready(namespace.name()), &Value::Null).await;
    await_eviction(&namespace, &broken, 1).await;
    let good = of_one_pod(&namespace, "a-good", &unready(namespace.name()), &Value::Null).await;
    await_eviction(&namespace, &good, 1).await;
    let ready = json!({"spec": {"template": {"metadata": {"labels": {tenure_testbed::UNREADY: null}}}}});
    let suspended = async || {
        let conditions = namespace.field(&good, "status.conditions").await;
        let is = |of: &Value| of["type"] == "Suspended" && of["status"] == "True";
        Ok(conditions.as_array().is_some_and(|all| all.iter().any(is)).then_some(()))
    };
    eventually("the Job controller to have suspended it", DEADLINE, suspended).await.unwrap();
    namespace.patch(&good, &ready).await;

    let before = audit::of_keeper(&world.cluster, "patch", "jobs", namespace.name()).len();
    return_at(&namespace, &[&broken, &good], Timestamp::now() + SignedDuration::from_secs(2)).await;
    await_ready(&namespace, &good, 1).await;
    let deactivated =
        async || Ok(annotation(&namespace, &broken, ACTIVE).await.filter(|of| *of == json!(false)));
    eventually("the deactivation", DEADLINE, deactivated).await.unwrap();
    let patches = audit::of_keeper(&world.cluster, "patch", "jobs", namespace.name());
    // both come back, in the order of their creation; and then the broken one is given up
    assert_eq!(patches[before..], ["z-broken", "a-good", "z-broken"], "{patches:?}");
    assert_counted(world, DEACTIVATIONS, &[("queue", namespace.name())], 1).await;
    assert_eq!(annotation(&namespace, &good, PAUSED).await, None);
}

/// The integration test that the text asks for: an older workload that was preempted must not take the place of its
/// preemptor again, though it is put in front.
#[tokio::test]
async fn under_creation_a_preempted_workload_does_not_flap_with_its_preemptor() {
    let world = world().await;
    let strategy = json!({
        "timestamp": "Creation", "backoffBaseSeconds": 1, "backoffFactor": "1", "backoffLimitCount": 2, "onCapacity": true,
    });
    let mut spec = waiting(&strategy);
    spec["waitForPodsReady"]["countFrom"] = json!("Creation");
    let namespace = place(world, &spec).await;
    let class = format!("urgent-{}", namespace.name());
    namespace
        .create(&json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        }))
        .await;
    let mut one_node = one_each(&["node-1"], 17003);
    let labels = in_runai_queue(namespace.name());
    let old = of_one_pod(&namespace, "a-old", &labels, &one_node).await;
    await_ready(&namespace, &old, 1).await;
    one_node["priorityClassName"] = json!(class);
    let preemptor = of_one_pod(&namespace, "z-preemptor", &labels, &one_node).await;
    await_ready(&namespace, &preemptor, 1).await;
    let pods =
        |names: Vec<String>| names.into_iter().filter(|name| name.starts_with("z-")).collect::<Vec<_>>();
    let placed = pods(namespace.pod_names().await.into_iter().collect());

    // it tries as often as it may, and finds no room
    let deactivated =
        async || Ok(annotation(&namespace, &old, ACTIVE).await.filter(|of| *of == json!(false)));
    eventually("the deactivation", DEADLINE, deactivated).await.unwrap();
    assert_eq!(count_of(&namespace, &old).await, json!(2));
    let queue = ("queue", namespace.name());
    assert_counted(world, EVICTIONS, &[queue, ("cause", "WaitForStart")], 3).await;
    let still = pods(namespace.pod_names().await.into_iter().collect());
    assert_eq!((placed.len(), still), (1, placed), "the preemptor has kept its place");
    assert_eq!(annotation(&namespace, &preemptor, PAUSED).await, None);
    let events = namespace.events_of("Requeued").await;
    assert!(
        events.len() == 2 && !events.iter().any(|event| event.contains("early")),
        "no workload has left: {events:?}"
    );
}

#[tokio::test]
async fn the_example_is_accepted_without_a_warning_and_its_pair_runs() {
    let world = world().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/requeue-gang.yaml");
    let output = world.cluster.kubectl(&["apply", "-f", file]).await.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", output.stderr);
    let namespace = Namespace::of(world, "default");
    let pair = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pair"}});
    let pair = namespace.find(&serde_json::from_value(pair).unwrap()).await;
    await_ready(&namespace, &pair, 2).await;
}

#[tokio::test]
async fn a_queue_may_turn_off_what_its_parent_turns_on() {
    let world = world().await;
    let parent = place(world, &waiting(&json!({"backoffBaseSeconds": LONG}))).await;
    let off = format!("{}-off", parent.name());
    queue(&parent, &off, &json!({"parentQueue": parent.name(), "waitForPodsReady": {"enable": false}})).await;
    let patient = of_one_pod(&parent, "patient", &unready(&off), &Value::Null).await;
    let other = job(&parent, "other").await;
    await_eviction(&parent, &other, 1).await;
    // it is older
    assert_eq!(annotation(&parent, &patient, PAUSED).await, None);
}
