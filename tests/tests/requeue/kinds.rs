//! Workloads of several kinds: a Deployment, a pod without an owner, and a gang.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, audit, fixtures,
    workloads::{Namespace, bare_pod, in_runai_queue, workload},
};

use super::{
    metrics::{EVICTIONS, assert_counted},
    scene::{
        LONG, PAUSED, annotation, await_eviction, job, job_of, place, return_at, time, unready, wait,
        waiting_long,
    },
    world,
};

#[tokio::test]
async fn a_deployment_is_scaled_to_nothing_and_back_and_its_replica_set_is_left_alone() {
    let world = world().await;
    let namespace = place(world, &waiting_long()).await;
    let labels = unready(namespace.name());
    let rollout = workload("Deployment", namespace.name(), "rollout", &labels, &Value::Null);
    let rollout = namespace.create(&rollout).await;
    let (record, _) = await_eviction(&namespace, &rollout, 1).await;
    assert_eq!((&record["field"], &record["previousValue"]), (&json!("spec.replicas"), &json!(2)));
    assert_eq!(namespace.field(&rollout, "spec.replicas").await, json!(0));
    namespace.await_pods(&[]).await;
    return_at(&namespace, &[&rollout], Timestamp::now()).await;
    await_eviction(&namespace, &rollout, 2).await;
    let events = namespace.await_events_of("Requeued", 1).await;
    assert_eq!(
        events,
        [
            "Deployment/rollout: Set spec.replicas back to 2: return 1 after too few of its pods were ready in time"
        ]
    );
    audit::assert_changes(&world.cluster, namespace.name(), &["patch deployments/rollout"; 3]).await;
}

#[tokio::test]
async fn a_pod_without_an_owner_is_deleted_and_its_event_says_why() {
    let world = world().await;
    let namespace = place(world, &waiting_long()).await;
    namespace.create(&bare_pod(namespace.name(), "bare", &unready(namespace.name()), &Value::Null)).await;
    namespace.await_pods(&[]).await;
    let events = namespace.await_events_of("EvictedDueToPodsReadyTimeout", 1).await;
    let queue = namespace.name();
    let expected = format!(
        "Pod/bare: Deleted because its workload was not ready in time by the waitForPodsReady that applies in Queue {queue}, and it has no owner that could be paused and come back"
    );
    assert_eq!(events, [expected]);
    audit::assert_changes(&world.cluster, namespace.name(), &["delete pods/bare"]).await;
}

/// Pods that get ready, in a queue.
fn ready(queue: &str) -> Value {
    in_runai_queue(queue)
}

async fn await_ready(namespace: &Namespace, job: &DynamicObject, count: u64) {
    let all = async || Ok((namespace.field(job, "status.ready").await == json!(count)).then_some(()));
    eventually(&format!("{count} pods to be ready"), DEADLINE, all).await.unwrap();
}

/// Writes conditions of a pod as a kubelet does, in a later second than the conditions that are there. Returns the time.
async fn set_conditions(namespace: &Namespace, pod: &str, changes: &[(&str, &str)]) -> Timestamp {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}});
    let pod = namespace.find(&serde_json::from_value(pod).unwrap()).await;
    let mut conditions = namespace.field(&pod, "status.conditions").await;
    let conditions = conditions.as_array_mut().unwrap();
    let last = conditions.iter().map(|of| time(&of["lastTransitionTime"]).as_second()).max().unwrap();
    let later = async || Ok(Some(Timestamp::now()).filter(|now| now.as_second() > last));
    let now = eventually("the next second", DEADLINE, later).await.unwrap();
    let now = Timestamp::from_second(now.as_second()).unwrap();
    for (type_, status) in changes {
        conditions.retain(|of| of["type"] != *type_);
        conditions.push(json!({"type": type_, "status": status, "lastTransitionTime": now}));
    }
    namespace.patch_status(&pod, &json!({"conditions": conditions})).await;
    now
}

/// As a kubelet says that containers of a pod have failed.
pub async fn lose(namespace: &Namespace, pod: &str) -> Timestamp {
    set_conditions(namespace, pod, &[("Ready", "False"), ("ContainersReady", "False")]).await
}

/// A keeper that starts later would take the pod for one that has never been ready, and pause its Job.
#[tokio::test]
async fn that_a_pod_was_ready_is_noted_on_it_once_its_node_was_restarted() {
    let world = world().await;
    let namespace = place(world, &waiting_long()).await;
    let job = namespace.create(&job_of(&namespace, "patient", &ready(namespace.name()))).await;
    await_ready(&namespace, &job, 2).await;
    let name = names_of(&namespace, "patient").await.remove(0);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
    let pod = namespace.find(&serde_json::from_value(pod).unwrap()).await;
    lose(&namespace, &name).await;
    // its init containers have ended another time
    set_conditions(&namespace, &name, &[("Initialized", "True")]).await;
    let noted = async || {
        let evidence = annotation(&namespace, &pod, "tenure.dev/evidence").await;
        Ok(evidence.filter(|evidence| *evidence == json!({"wasReady": true})).map(drop))
    };
    eventually("the evidence", DEADLINE, noted).await.unwrap();
    audit::assert_changes(&world.cluster, namespace.name(), &[format!("patch pods/{name}")]).await;
    assert_eq!(annotation(&namespace, &job, PAUSED).await, None);
}

async fn names_of(namespace: &Namespace, prefix: &str) -> Vec<String> {
    namespace.pod_names().await.into_iter().filter(|name| name.starts_with(prefix)).collect()
}

#[tokio::test]
async fn a_gang_goes_when_fewer_than_it_takes_are_ready_any_more_where_a_recovery_has_an_end() {
    let world = world().await;
    let mut spec = waiting_long();
    spec["waitForPodsReady"]["recoveryTimeout"] = json!("2s");
    let namespace = place(world, &spec).await;
    let group = fixtures::object(
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        namespace.name(),
        "gang",
        &json!({"minMember": 2, "queue": namespace.name()}),
    );
    namespace.create(&group).await;
    let mut gang = job_of(&namespace, "gang", &ready(namespace.name()));
    (gang["spec"]["parallelism"], gang["spec"]["completions"]) = (json!(3), json!(3));
    gang["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    let gang = namespace.create(&gang).await;
    let alone = namespace.create(&job_of(&namespace, "alone", &ready(namespace.name()))).await;
    let forever = place(world, &waiting_long()).await;
    let patient = forever.create(&job_of(&forever, "patient", &ready(forever.name()))).await;
    await_ready(&namespace, &gang, 3).await;
    await_ready(&namespace, &alone, 2).await;
    await_ready(&forever, &patient, 2).await;

    let members = names_of(&namespace, "gang").await;
    lose(&forever, &names_of(&forever, "patient").await[0]).await;
    lose(&namespace, &members[0]).await;
    lose(&namespace, &names_of(&namespace, "alone").await[0]).await;
    // it has lost a pod later, and is evicted
    let (record, state) = await_eviction(&namespace, &alone, 1).await;
    assert_eq!((&record["reason"], wait(&record, &state)), (&json!("PodsReadyTimeout"), i64::from(LONG)));
    assert_eq!(annotation(&namespace, &gang, PAUSED).await, None, "two of three are ready");

    lose(&namespace, &members[1]).await;
    await_eviction(&namespace, &gang, 1).await;
    let lost = [("queue", namespace.name()), ("cause", "WaitForRecovery")];
    assert_counted(world, EVICTIONS, &lost, 2).await;
    assert_eq!(annotation(&forever, &patient, PAUSED).await, None, "without a timeout it may take any time");
    assert_eq!(names_of(&forever, "patient").await.len(), 2);
}

#[tokio::test]
async fn a_recovery_has_its_whole_time_in_a_gang_with_a_pod_that_has_succeeded() {
    let mut spec = waiting_long();
    spec["waitForPodsReady"]["recoveryTimeout"] = json!("4s");
    let namespace = place(world().await, &spec).await;
    let group = json!({"minMember": 3, "queue": namespace.name()});
    let group = fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", namespace.name(), "gang", &group);
    namespace.create(&group).await;
    let mut gang = job_of(&namespace, "gang", &ready(namespace.name()));
    (gang["spec"]["parallelism"], gang["spec"]["completions"]) = (json!(3), json!(3));
    gang["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    let gang = namespace.create(&gang).await;
    await_ready(&namespace, &gang, 3).await;
    let members = names_of(&namespace, "gang").await;
    let done = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": members[0]}});
    let done = serde_json::from_value(done).unwrap();
    namespace.patch_status(&done, &json!({"phase": "Succeeded"})).await;
    lose(&namespace, &members[0]).await;

    let first = lose(&namespace, &members[1]).await;
    set_conditions(&namespace, &members[1], &[("Ready", "True"), ("ContainersReady", "True")]).await;
    let later = async || Ok((Timestamp::now() > first + SignedDuration::from_secs(6)).then_some(()));
    eventually("the time of the first recovery to be over", DEADLINE, later).await.unwrap();
    assert_eq!(annotation(&namespace, &gang, PAUSED).await, None, "it was ready again in time");

    let second = lose(&namespace, &members[1]).await;
    let (record, _) = await_eviction(&namespace, &gang, 1).await;
    let paused = time(&record["at"]);
    assert!(paused >= second + SignedDuration::from_secs(4), "lost at {second}, paused at {paused}");
}

/// A kubelet before 1.36 makes another sandbox then, and runs the init containers again.
#[tokio::test]
async fn a_workload_that_was_ready_stays_when_its_nodes_reboot_and_its_init_containers_run_again() {
    let namespace = place(world().await, &waiting_long()).await;
    let mut rebooted = job_of(&namespace, "rebooted", &ready(namespace.name()));
    let init = json!([{"name": "fetch", "image": "example.com/image"}]);
    rebooted["spec"]["template"]["spec"]["initContainers"] = init;
    let rebooted = namespace.create(&rebooted).await;
    await_ready(&namespace, &rebooted, 2).await;
    let pods = names_of(&namespace, "rebooted").await;
    for pod in &pods {
        let down = [("Ready", "False"), ("ContainersReady", "False"), ("Initialized", "False")];
        set_conditions(&namespace, pod, &down).await;
    }
    for pod in &pods {
        set_conditions(&namespace, pod, &[("Initialized", "True")]).await;
    }
    // which has as much time, and has it later
    let never = job(&namespace, "never").await;
    await_eviction(&namespace, &never, 1).await;
    assert_eq!(annotation(&namespace, &rebooted, PAUSED).await, None);
    assert_eq!(names_of(&namespace, "rebooted").await, pods);
}
