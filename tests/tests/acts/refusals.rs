//! Acts that the keeper may not do, and questions that the API server can't answer: nothing is done in their place.
//! Once an act is possible, it is done.

use std::fs;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::{Metrics, await_result},
    policies::{Refusal, grant, keeper_user},
    workloads::{
        Namespace, bare_pod, controller, deletion_event, distinct, in_queue, owned, pause_event, queue,
        workload,
    },
};

use crate::world;

/// A test's namespace, and a queue of its own in which pods expire after a second.
async fn scene(queue_name: &str) -> (&'static World, Namespace) {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue(queue_name, "1s")).await;
    (world, namespace)
}

/// An owner, and a Deployment in the queue that it controls.
async fn above_a_deployment(
    namespace: &Namespace,
    queue_name: &str,
    (api_version, kind): (&str, &str),
) -> (DynamicObject, DynamicObject) {
    let owner = namespace.chain(&[(api_version, kind)]).await.remove(0);
    let deployment = workload("Deployment", namespace.name(), "below", &in_queue(queue_name), &Value::Null);
    let deployment = namespace.create(&owned(deployment, &[controller(&owner)])).await;
    (owner, deployment)
}

async fn assert_nothing_was_done(world: &World, namespace: &Namespace) {
    audit::assert_changes(&world.cluster, namespace.name(), &[""; 0]).await;
    assert_eq!(namespace.events().await, [""; 0]);
}

async fn refusals(world: &World, queue_name: &str, kind: &str) -> u64 {
    let labels = [("queue", queue_name), ("kind", kind)];
    Metrics::of_world(world).await.count("tenure_keeper_refused_pauses_total", &labels)
}

#[tokio::test]
async fn below_an_owner_that_could_be_paused_but_may_not_be_read_nothing_is_touched_at_first() {
    let (world, namespace) = scene("unread").await;
    let (owner, _) = above_a_deployment(&namespace, "unread", ("kubeflow.org/v1", "JAXJob")).await;
    let refused = async || Ok((refusals(world, "unread", "JAXJob").await > 0).then_some(()));
    eventually("the refusal to be counted", DEADLINE, refused).await.unwrap();
    assert_nothing_was_done(world, &namespace).await;
    let log = fs::read_to_string(world.tenure.keeper_log()).unwrap();
    assert!(log.contains("not allowed to get JAXJob jaxjob"), "{log}");
    grant(world, "read-jax-jobs", "kubeflow.org", &["jaxjobs"], &["get"]).await;
    namespace.await_pause_of(&owner, "spec.runPolicy.suspend", &json!(true)).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch jaxjobs/jaxjob"]).await;
}

#[tokio::test]
async fn an_owner_that_could_not_be_paused_and_may_not_be_read_ends_the_chain() {
    let (world, namespace) = scene("unread-unlisted").await;
    let kind = ("serving.kserve.io/v1beta1", "InferenceService");
    let (owner, deployment) = above_a_deployment(&namespace, "unread-unlisted", kind).await;
    namespace.pod_of(&owner, "alone", "unread-unlisted").await;
    namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    namespace.await_pods(&[]).await;
    audit::assert_changes(
        &world.cluster,
        namespace.name(),
        &["delete pods/alone", "patch deployments/below"],
    )
    .await;
    let log = fs::read_to_string(world.tenure.keeper_log()).unwrap();
    let warnings =
        log.lines().filter(|line| line.contains("level=warn") && line.contains("InferenceService"));
    assert_eq!(warnings.count(), 1, "{log}");
}

#[tokio::test]
async fn a_pause_that_is_forbidden_is_counted_and_done_when_it_is_allowed() {
    let (world, namespace) = scene("forbidden").await;
    let (owner, _) = above_a_deployment(&namespace, "forbidden", ("ray.io/v1", "RayCluster")).await;
    let refused = async || Ok((refusals(world, "forbidden", "RayCluster").await > 0).then_some(()));
    eventually("the refusal to be counted", DEADLINE, refused).await.unwrap();
    assert_nothing_was_done(world, &namespace).await;
    grant(world, "patch-ray-clusters", "ray.io", &["rayclusters"], &["patch"]).await;
    namespace.await_pause_of(&owner, "spec.suspend", &json!(true)).await;
    let recorded = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(recorded, [pause_event(&owner, "spec.suspend", "true")]);
    audit::assert_changes(&world.cluster, namespace.name(), &["patch rayclusters/raycluster"]).await;
}

#[tokio::test]
async fn a_pause_and_a_deletion_that_admission_refuses_are_not_recorded_until_they_are_done() {
    let (world, namespace) = scene("refused").await;
    let unless =
        format!("request.userInfo.username != '{}' || request.resource.resource == 'events'", keeper_user());
    let refusal = Refusal::start(world, &namespace, &unless).await;
    let kind = ("example.com/v1", "Widget");
    let (_, deployment) = above_a_deployment(&namespace, "refused", kind).await;
    let pod = bare_pod(namespace.name(), "alone", &in_queue("refused"), &Value::Null);
    namespace.create(&distinct(pod, "alone")).await;
    for kind in ["Deployment", "Pod"] {
        let refused = async || Ok((refusals(world, "refused", kind).await > 0).then_some(()));
        eventually("the refusal to be counted", DEADLINE, refused).await.unwrap();
    }
    assert_nothing_was_done(world, &namespace).await;
    refusal.lift(world).await;
    namespace.await_pods(&[]).await;
    let mut expected = [deletion_event("alone"), pause_event(&deployment, "spec.replicas", "0")];
    expected.sort();
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 2).await, expected);
}

/// The definition of `AppWrapper` with a second version, and a way to convert it.
fn converted(conversion: &Value) -> CustomResourceDefinition {
    let mut definition = fixtures::definitions("workload.codeflare.dev").remove(0);
    let mut old = definition.spec.versions[0].clone();
    (old.name, old.storage) = ("v1beta1".into(), false);
    definition.spec.versions.push(old);
    definition.spec.conversion = Some(serde_json::from_value(conversion.clone()).unwrap());
    definition
}

#[tokio::test]
async fn a_servers_error_above_changes_no_decision_at_first() {
    let (world, namespace) = scene("error").await;
    namespace.apply(&queue("error", "1d")).await;
    let version = "workload.codeflare.dev/v1beta2";
    let owner = namespace.chain(&[(version, "AppWrapper")]).await.remove(0);
    // no server listens there
    let nowhere =
        json!({"clientConfig": {"url": "https://127.0.0.1:1/"}, "conversionReviewVersions": ["v1"]});
    let broken = converted(&json!({"strategy": "Webhook", "webhook": nowhere}));
    fixtures::install(world, vec![broken]).await;
    let old = "workload.codeflare.dev/v1beta1";
    let get = ["get", "--raw"].map(str::to_owned);
    let path = format!("/apis/{old}/namespaces/{}/appwrappers/appwrapper", namespace.name());
    let fails = async || {
        let output = world.cluster.kubectl(&[&get[0], &get[1], &path]).await?;
        Ok((!output.status.success()).then_some(()))
    };
    eventually("reads of the old version to fail", DEADLINE, fails).await.unwrap();

    let mut above = controller(&owner);
    above.api_version = old.into();
    let deployment = workload("Deployment", namespace.name(), "below", &in_queue("error"), &Value::Null);
    namespace.create(&owned(deployment, &[above.clone()])).await;
    let pod = bare_pod(namespace.name(), "alone", &in_queue("error"), &Value::Null);
    namespace.create(&owned(distinct(pod, "alone"), &[above])).await;
    namespace.apply(&queue("error", "1s")).await;
    await_result(world, "error", "Failed", 3).await;
    assert_nothing_was_done(world, &namespace).await;
    assert_eq!(namespace.pods().await.len(), 3);

    fixtures::install(world, vec![converted(&json!({"strategy": "None"}))]).await;
    namespace.await_pause_of(&owner, "spec.suspend", &json!(true)).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch appwrappers/appwrapper"]).await;
}

#[tokio::test]
async fn a_kind_whose_definition_is_deleted_counts_as_gone_and_when_it_is_back_as_itself() {
    let (world, namespace) = scene("vanished").await;
    let kind = ("trainer.kubeflow.org/v1alpha1", "TrainJob");
    let known = Namespace::new(world).await;
    let first = known.chain(&[kind]).await.remove(0);
    known.pod_of(&first, "test", "vanished").await;
    known.await_pause_of(&first, "spec.suspend", &json!(true)).await;

    let _kept = Refusal::of_garbage_collection(world, &namespace).await;
    namespace.apply(&queue("vanished", "1d")).await;
    let (_, deployment) = above_a_deployment(&namespace, "vanished", kind).await;
    namespace.await_running(2).await;
    let delete = ["delete", "crd", "trainjobs.trainer.kubeflow.org", "--wait"];
    world.cluster.kubectl(&delete).await.unwrap().success().unwrap();
    namespace.apply(&queue("vanished", "1s")).await;
    namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;

    fixtures::install(world, fixtures::definitions("trainer.kubeflow.org")).await;
    let back = Namespace::new(world).await;
    let second = back.chain(&[kind]).await.remove(0);
    back.pod_of(&second, "test", "vanished").await;
    back.await_pause_of(&second, "spec.suspend", &json!(true)).await;
}
