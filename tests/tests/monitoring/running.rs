//! The metrics that alerts and panels name, on a keeper and a webhook to which all of that happens.

use anyhow::ensure;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE, World,
    asker::Asker,
    fixtures,
    keeper::{Metrics, Series},
    policies::{Refusal, keeper_user},
    workloads::{Namespace, bare_pod, in_queue, in_runai_queue, queue, workload},
};

use crate::{
    expressions::{of_alerts, of_dashboard, selectors},
    promql::Selector,
    world,
};

/// Waits until the keeper has counted something in a namespace's queue.
async fn await_counted(world: &World, name: &str, queue: &str) {
    eventually(&format!("{name} in queue {queue}"), DEADLINE, async || {
        let counted = Metrics::of_world(world).await.count(name, &[("queue", queue)]);
        Ok((counted > 0).then_some(()))
    })
    .await
    .unwrap();
}

/// Refuses what the keeper writes on Jobs.
async fn refuse_jobs(world: &World, namespace: &Namespace) -> Refusal {
    let unless =
        format!("request.resource.resource != 'jobs' || request.userInfo.username != '{}'", keeper_user());
    Refusal::start(world, namespace, &unless).await
}

/// A Deployment is paused, and set back.
async fn reversal(world: &World) {
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue(namespace.name(), "1s")).await;
    let labels = in_queue(namespace.name());
    let deployment = workload("Deployment", namespace.name(), "reversed", &labels, &Value::Null);
    let deployment = namespace.create(&deployment).await;
    namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    namespace.await_pods(&[]).await;
    namespace.patch(&deployment, &json!({"spec": {"replicas": 1}})).await;
    await_counted(world, "tenure_keeper_reversed_pauses_total", namespace.name()).await;
}

/// The pause of a Job is refused.
async fn refused_pause(world: &World) {
    let namespace = Namespace::new(world).await;
    let _refusal = refuse_jobs(world, &namespace).await;
    namespace.apply(&queue(namespace.name(), "1s")).await;
    let job = workload("Job", namespace.name(), "refused", &in_queue(namespace.name()), &Value::Null);
    namespace.create(&job).await;
    await_counted(world, "tenure_keeper_refused_pauses_total", namespace.name()).await;
}

/// A Job doesn't get ready. Its return is refused first; then it comes back, and is deactivated.
async fn unready(world: &World) {
    let namespace = Namespace::new(world).await;
    let strategy = json!({"backoffBaseSeconds": 600, "backoffLimitCount": 1});
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": namespace.name()},
        "spec": {"waitForPodsReady": {"timeout": "1s", "requeuingStrategy": strategy}},
    });
    namespace.create(&queue).await;
    let labels = json!({"kai.scheduler/queue": namespace.name(), UNREADY: "true"});
    let job = workload("Job", namespace.name(), "unready", &labels, &Value::Null);
    let job = namespace.create(&job).await;
    await_counted(world, "tenure_keeper_pods_ready_evictions_total", namespace.name()).await;
    let refusal = refuse_jobs(world, &namespace).await;
    return_now(&namespace, &job).await;
    await_counted(world, "tenure_keeper_refused_returns_total", namespace.name()).await;
    refusal.lift(world).await;
    await_counted(world, "tenure_keeper_returns_total", namespace.name()).await;
    await_counted(world, "tenure_keeper_deactivations_total", namespace.name()).await;
}

/// Has an object that waits come back at once.
async fn return_now(namespace: &Namespace, object: &DynamicObject) {
    const STATE: &str = "tenure.dev/requeue-state";
    let state = async || {
        let annotations = namespace.field(object, "metadata.annotations").await;
        Ok(annotations[STATE].as_str().and_then(|state| serde_json::from_str::<Value>(state).ok()))
    };
    let mut state = eventually("the state of the return", DEADLINE, state).await.unwrap();
    state["requeueAt"] = json!(Timestamp::now());
    namespace.patch(object, &json!({"metadata": {"annotations": {STATE: state.to_string()}}})).await;
}

/// A pod of a `PodGroup`, with a floor and an end that is far away. It is to be evicted.
async fn protected(world: &World) {
    let namespace = Namespace::new(world).await;
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": namespace.name()},
        "spec": {"maxDuration": "2h", "preemptMinRuntime": "1h", "reclaimMinRuntime": "1h"},
    });
    namespace.create(&queue).await;
    let group = json!({"minMember": 1, "queue": namespace.name()});
    let group = fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", namespace.name(), "group", &group);
    let group = namespace.create(&group).await;
    let mut pod = bare_pod(namespace.name(), "protected", &in_runai_queue(namespace.name()), &Value::Null);
    pod["metadata"]["annotations"] = json!({"pod-group-name": "group"});
    let pod = namespace.create(&pod).await;
    let stamped = async || {
        let annotations = namespace.field(&group, "metadata.annotations").await;
        Ok(annotations["kai.scheduler/last-start-timestamp"].is_string().then_some(()))
    };
    eventually("the start of the group", DEADLINE, stamped).await.unwrap();
    let admin = Asker::admin(world).await;
    let held = async || Ok(admin.would_evict(&pod).await.err());
    eventually("the pod to be held", DEADLINE, held).await.unwrap();
}

/// The selectors that no series answers.
fn unanswered(selectors: &[(&str, Selector)], series: &[Series]) -> Vec<String> {
    let answers = |series: &Series, selector: &Selector| {
        series.name == selector.metric
            && selector.equal.iter().all(|(label, value)| series.labels.get(label) == Some(value))
            && selector.labels.iter().all(|label| series.labels.contains_key(label))
    };
    let is_ours = |selector: &Selector| selector.metric.starts_with("tenure_");
    let without = selectors
        .iter()
        .filter(|(_, selector)| is_ours(selector) && !series.iter().any(|series| answers(series, selector)));
    without.map(|(place, selector)| format!("{place}: {selector:?}")).collect()
}

#[tokio::test]
async fn each_metric_that_is_named_is_served_with_these_labels() {
    let shown = [of_alerts(), of_dashboard()].concat();
    let selectors = selectors(&shown);
    assert!(selectors.len() > 60, "{}", selectors.len());
    let world = world().await;
    tokio::join!(reversal(world), refused_pause(world), unready(world), protected(world));
    let all = async || {
        let mut series = Vec::new();
        for admin in world.tenure.admin_urls() {
            series.extend(Metrics::of(admin).await.series());
        }
        let unanswered = unanswered(&selectors, &series);
        ensure!(unanswered.is_empty(), "none for {unanswered:#?}");
        Ok(Some(()))
    };
    eventually("a series for each selector", DEADLINE, all).await.unwrap();
}
