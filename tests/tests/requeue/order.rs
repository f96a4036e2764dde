//! The order in which workloads come back that are due at the same time.

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, audit, workloads::Namespace};

use super::{
    scene::{LONG, await_eviction, await_running, job_of, place, return_at, time, unready, waiting},
    world,
};

/// Three workloads are due at once: one of a higher priority; and of two others the one was created first, and the
/// other evicted first. Returns the order in which they came back.
async fn returned(timestamp: &str) -> Vec<String> {
    let world = world().await;
    let strategy = json!({"timestamp": timestamp, "backoffBaseSeconds": LONG});
    let namespace = place(world, &waiting(&strategy)).await;
    let class = format!("urgent-{}", namespace.name());
    let urgent = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000});
    namespace.create(&urgent).await;
    // last by its name
    let first = create(&namespace, "z-first", &json!({"suspend": true})).await;
    await_next_second(&first).await;
    let second = create(&namespace, "b-second", &Value::Null).await;
    let third = job_of(&namespace, "c-urgent", &unready(namespace.name()));
    let third = with_class(third, &class);
    let third = namespace.create(&third).await;
    for job in [&second, &third] {
        await_eviction(&namespace, job, 1).await;
    }
    namespace.patch(&first, &json!({"spec": {"suspend": false}})).await;
    await_eviction(&namespace, &first, 1).await;

    let pauses = patches(world, &namespace).len();
    let jobs = [&first, &second, &third];
    // a workload with pods comes back later, and so does one whose time is set too late
    namespace.await_pods(&[]).await;
    return_at(&namespace, &jobs, Timestamp::now() + SignedDuration::from_secs(10)).await;
    for job in jobs {
        await_running(&namespace, job).await;
    }
    let all = async || Ok(Some(patches(world, &namespace)).filter(|all| all.len() >= pauses + jobs.len()));
    let all = eventually("the returns to be in the audit log", DEADLINE, all).await.unwrap();
    all.into_iter().skip(pauses).take(jobs.len()).collect()
}

fn patches(world: &tenure_tests::World, namespace: &Namespace) -> Vec<String> {
    audit::of_keeper(&world.cluster, "patch", "jobs", namespace.name())
}

async fn create(namespace: &Namespace, name: &str, spec: &Value) -> DynamicObject {
    let mut job = job_of(namespace, name, &unready(namespace.name()));
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    namespace.create(&job).await
}

fn with_class(mut job: Value, class: &str) -> Value {
    job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
    job
}

/// Times of creation are whole seconds.
async fn await_next_second(object: &DynamicObject) {
    let created = time(&json!(object.metadata.creation_timestamp));
    let later = async || Ok((Timestamp::now() >= created + SignedDuration::from_secs(1)).then_some(()));
    eventually("the next second", DEADLINE, later).await.unwrap();
}

#[tokio::test]
async fn by_eviction_the_urgent_one_comes_first_and_then_who_was_evicted_first() {
    assert_eq!(returned("Eviction").await, ["c-urgent", "b-second", "z-first"]);
}

#[tokio::test]
async fn by_creation_the_urgent_one_comes_first_and_then_who_was_created_first() {
    assert_eq!(returned("Creation").await, ["c-urgent", "z-first", "b-second"]);
}
