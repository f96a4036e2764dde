//! Chains of owners on a real API server: the owners up to which the keeper climbs, and the ones that it pauses or
//! leaves alone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::await_result,
    plugin::plugin_prints,
    policies::Refusal,
    workloads::{
        Namespace, bare_pod, controller, deletion_event, distinct, in_queue, owned, pause_event, queue,
        reference, workload,
    },
};
use tokio::time::sleep;

use crate::world;

const T9K_JOBS: &str = "batch.tensorstack.dev/v1beta1";
const T9K: &str = "tensorstack.dev/v1beta1";
const KNATIVE: &str = "serving.knative.dev/v1";

/// A test's namespace, and a queue of its own in which pods expire after a second.
async fn scene(queue_name: &str) -> (&'static World, Namespace) {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue(queue_name, "1s")).await;
    (world, namespace)
}

/// A native workload in the queue that `above` controls.
async fn native(
    namespace: &Namespace,
    kind: &str,
    queue_name: &str,
    above: &[OwnerReference],
) -> DynamicObject {
    let name = kind.to_lowercase();
    let object = workload(kind, namespace.name(), &name, &in_queue(queue_name), &Value::Null);
    namespace.create(&owned(distinct(object, &name), above)).await
}

async fn assert_changes(world: &World, namespace: &Namespace, expected: &[impl AsRef<str>]) {
    audit::assert_changes(&world.cluster, namespace.name(), expected).await;
}

const REPLICAS: &str = "spec.replicas";
const SUSPEND: &str = "spec.suspend";
const RUN_MODE: &str = "spec.runMode.pause.enabled";

#[tokio::test]
async fn of_the_chain_below_an_ml_service_only_the_ml_service_is_paused() {
    let (world, namespace) = scene("ml-service").await;
    let kinds = [(T9K, "MLService"), (KNATIVE, "Service"), (KNATIVE, "Configuration"), (KNATIVE, "Revision")];
    let chain = namespace.chain(&kinds).await;
    native(&namespace, "Deployment", "ml-service", &[controller(&chain[3])]).await;
    namespace.await_pause_of(&chain[0], "spec.runMode", &json!("paused")).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(events, [pause_event(&chain[0], "spec.runMode", "paused")]);
    // whose pods live on here: no controller scales the Deployment down
    await_result(world, "ml-service", "Nothing", 1).await;
    assert_changes(world, &namespace, &["patch mlservices/mlservice"]).await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await.len(), 1);
}

#[tokio::test]
async fn without_an_ml_service_the_deployment_of_a_knative_revision_is_paused() {
    let (world, namespace) = scene("knative").await;
    let kinds = [(KNATIVE, "Service"), (KNATIVE, "Configuration"), (KNATIVE, "Revision")];
    let chain = namespace.chain(&kinds).await;
    let deployment = native(&namespace, "Deployment", "knative", &[controller(&chain[2])]).await;
    namespace.await_pause_of(&deployment, REPLICAS, &json!(0)).await;
    namespace.await_pods(&[]).await;
    assert_changes(world, &namespace, &["patch deployments/deployment"]).await;
}

#[tokio::test]
async fn of_several_owners_the_controller_counts_wherever_it_stands_in_the_list() {
    let (world, namespace) = scene("several").await;
    let [job, other, third] = ["GenericJob", "MPIJob", "DeepSpeedJob"].map(|kind| (T9K_JOBS, kind));
    let owners = [
        &namespace.chain(&[job]).await[0],
        &namespace.chain(&[other]).await[0],
        &namespace.chain(&[third]).await[0],
    ]
    .map(Clone::clone);
    let pod = bare_pod(namespace.name(), "test", &in_queue("several"), &Value::Null);
    let references = [reference(&owners[1]), reference(&owners[2]), controller(&owners[0])];
    namespace.create(&owned(pod, &references)).await;
    namespace.await_pause_of(&owners[0], RUN_MODE, &json!(true)).await;
    assert_changes(world, &namespace, &["patch genericjobs/genericjob"]).await;
}

#[tokio::test]
async fn owners_of_which_none_is_the_controller_are_left_alone_and_the_pod_is_deleted() {
    let (world, namespace) = scene("passive").await;
    let job = namespace.chain(&[(T9K_JOBS, "GenericJob")]).await.remove(0);
    let pod = bare_pod(namespace.name(), "test", &in_queue("passive"), &Value::Null);
    namespace.create(&owned(pod, &[reference(&job)])).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(events, [deletion_event("test")]);
    assert_changes(world, &namespace, &["delete pods/test"]).await;
}

/// A reference to a controller that never existed.
fn absent(api_version: &str, kind: &str, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: name.into(),
        uid: "00000000-0000-0000-0000-000000000001".into(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

#[tokio::test]
async fn above_an_owner_that_is_gone_nothing_counts() {
    let (world, namespace) = scene("gone").await;
    let _kept = Refusal::of_garbage_collection(world, &namespace).await;
    let gone = absent("apps/v1", "Deployment", "gone");
    let set = native(&namespace, "ReplicaSet", "gone", &[gone]).await;
    let pod = distinct(bare_pod(namespace.name(), "orphan", &in_queue("gone"), &Value::Null), "orphan");
    namespace.create(&owned(pod, &[absent(T9K_JOBS, "GenericJob", "gone")])).await;
    namespace.await_pause_of(&set, REPLICAS, &json!(0)).await;
    let mut expected = [deletion_event("orphan"), pause_event(&set, REPLICAS, "0")];
    expected.sort();
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 2).await, expected);
    assert_changes(world, &namespace, &["delete pods/orphan", "patch replicasets/replicaset"]).await;
}

#[tokio::test]
async fn a_namesake_of_an_owner_with_another_uid_is_never_touched() {
    let (world, namespace) = scene("namesake").await;
    let _kept = Refusal::of_garbage_collection(world, &namespace).await;
    let innocent = workload("Deployment", namespace.name(), "test", &json!({}), &Value::Null);
    namespace.create(&innocent).await;
    let set = native(&namespace, "ReplicaSet", "namesake", &[absent("apps/v1", "Deployment", "test")]).await;
    let pod = distinct(bare_pod(namespace.name(), "orphan", &in_queue("namesake"), &Value::Null), "orphan");
    namespace.create(&owned(pod, &[absent("apps/v1", "Deployment", "test")])).await;
    namespace.await_pause_of(&set, REPLICAS, &json!(0)).await;
    namespace.await_events(2).await;
    assert_changes(world, &namespace, &["delete pods/orphan", "patch replicasets/replicaset"]).await;
}

#[tokio::test]
async fn nothing_is_done_at_first_below_an_owner_that_is_being_deleted() {
    let (world, namespace) = scene("dying").await;
    let job = object_that_stays(T9K_JOBS, "GenericJob", namespace.name());
    let job = namespace.create(&job).await;
    native(&namespace, "ReplicaSet", "dying", &[controller(&job)]).await;
    namespace.delete(&job).await;
    await_result(world, "dying", "Nothing", 1).await;
    assert_changes(world, &namespace, &[""; 0]).await;
    assert_eq!(namespace.events().await, [""; 0]);
    assert_eq!(namespace.pods().await.len(), 2);
}

/// An object that isn't gone when it is deleted.
fn object_that_stays(api_version: &str, kind: &str, namespace: &str) -> Value {
    let mut object = fixtures::object(api_version, kind, namespace, "test", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/stay"]);
    object
}

#[tokio::test]
async fn below_a_ray_job_that_has_ended_each_cluster_that_goes_on_is_paused() {
    let (world, namespace) = scene("ended").await;
    namespace.apply(&queue("ended", "1d")).await;
    let job = namespace.chain(&[("ray.io/v1", "RayJob")]).await.remove(0);
    let complete = json!({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"});
    namespace.patch_status(&job, &complete).await;
    let mut clusters = Vec::new();
    for name in ["one", "two"] {
        let cluster = fixtures::object("ray.io/v1", "RayCluster", namespace.name(), name, &json!({}));
        let cluster = namespace.create(&owned(cluster, &[controller(&job)])).await;
        namespace.pod_of(&cluster, name, "ended").await;
        clusters.push(cluster);
    }
    let listed = plugin_prints(world, namespace.name(), &["list", "-o", "json"]).await;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let listed: Vec<_> = listed.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(listed, ["raycluster.ray.io/one", "raycluster.ray.io/two"]);
    let explained = plugin_prints(world, namespace.name(), &["explain", "pod", "one"]).await;
    let then = format!("RayCluster {}/one is paused", namespace.name());
    assert!(explained.contains(&then), "{explained}");
    namespace.apply(&queue("ended", "1s")).await;
    for cluster in &clusters {
        namespace.await_pause_of(cluster, SUSPEND, &json!(true)).await;
    }
    assert_changes(world, &namespace, &["patch rayclusters/one", "patch rayclusters/two"]).await;
}

#[tokio::test]
async fn a_kind_that_the_api_server_does_not_know_counts_as_gone() {
    let (world, namespace) = scene("unknown-kind").await;
    let pod = bare_pod(namespace.name(), "test", &in_queue("unknown-kind"), &Value::Null);
    namespace.create(&owned(pod, &[absent("no-such-group.example.com/v1", "Thing", "test")])).await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await, [deletion_event("test")]);
    assert_changes(world, &namespace, &["delete pods/test"]).await;
}

#[tokio::test]
async fn a_reference_of_another_version_of_the_group_means_the_same_kind() {
    let (world, namespace) = scene("old-version").await;
    let job = namespace.chain(&[(T9K_JOBS, "GenericJob")]).await.remove(0);
    let old = OwnerReference { api_version: "batch.tensorstack.dev/v1alpha1".into(), ..controller(&job) };
    native(&namespace, "ReplicaSet", "old-version", &[old]).await;
    namespace.await_pause_of(&job, RUN_MODE, &json!(true)).await;
    assert_changes(world, &namespace, &["patch genericjobs/genericjob"]).await;
}

#[tokio::test]
async fn an_owner_of_the_whole_cluster_is_climbed_through() {
    let (world, namespace) = scene("fleet").await;
    let fleet = json!({
        "apiVersion": "example.com/v1", "kind": "Fleet", "spec": {}, "metadata": {"name": "fleet"},
    });
    let fleet = namespace.create(&fleet).await;
    let deployment = native(&namespace, "Deployment", "fleet", &[controller(&fleet)]).await;
    namespace.pod_of(&fleet, "alone", "fleet").await;
    namespace.await_pause_of(&deployment, REPLICAS, &json!(0)).await;
    namespace.await_pods(&[]).await;
    assert_changes(world, &namespace, &["delete pods/alone", "patch deployments/deployment"]).await;
}

#[tokio::test]
async fn mirrors_of_static_pods_are_untouched_if_their_node_exists() {
    let (world, namespace) = scene("static").await;
    let on_node = json!({"nodeName": "node-1"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    let node: DynamicObject = serde_json::from_value(node).unwrap();
    let node = namespace.find(&node).await;
    let static_pod = |name: &str| {
        owned(bare_pod(namespace.name(), name, &in_queue("static"), &on_node), &[controller(&node)])
    };
    let mut mirror = static_pod("mirror");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "a-hash"});
    namespace.create(&mirror).await;
    namespace.create(&static_pod("no-mirror")).await;
    let mut forged = bare_pod(namespace.name(), "no-node", &in_queue("static"), &on_node);
    forged["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "a-hash"});
    namespace.create(&forged).await;
    namespace.await_pods(&["mirror"]).await;
    assert_changes(world, &namespace, &["delete pods/no-mirror", "delete pods/no-node"]).await;
}

#[tokio::test]
async fn a_daemon_set_of_another_group_exempts_no_pods() {
    let (world, namespace) = scene("daemons").await;
    let daemons = namespace.chain(&[("apps.kruise.io/v1alpha1", "DaemonSet")]).await.remove(0);
    namespace.pod_of(&daemons, "daemon", "daemons").await;
    namespace.await_pods(&[]).await;
    assert_changes(world, &namespace, &["delete pods/daemon"]).await;
}

#[tokio::test]
async fn an_owner_in_another_namespace_counts_as_gone() {
    let (world, namespace) = scene("elsewhere").await;
    let _kept = Refusal::of_garbage_collection(world, &namespace).await;
    let elsewhere = Namespace::new(world).await;
    let job = elsewhere.chain(&[(T9K_JOBS, "GenericJob")]).await.remove(0);
    namespace.pod_of(&job, "test", "elsewhere").await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await, [deletion_event("test")]);
    assert_changes(world, &namespace, &["delete pods/test"]).await;
    assert_changes(world, &elsewhere, &[""; 0]).await;
}

#[tokio::test]
async fn a_cycle_of_owners_is_climbed_once() {
    let (world, namespace) = scene("cycle").await;
    let kinds = [(T9K_JOBS, "MPIJob"), (T9K_JOBS, "GenericJob")];
    let chain = namespace.chain(&kinds).await;
    let [top, below] = [&chain[0], &chain[1]];
    namespace.patch(top, &json!({"metadata": {"ownerReferences": [controller(below)]}})).await;
    namespace.pod_of(below, "test", "cycle").await;
    namespace.await_pause_of(top, RUN_MODE, &json!(true)).await;
    assert_changes(world, &namespace, &["patch mpijobs/mpijob"]).await;
}

#[tokio::test]
async fn of_a_pod_that_a_pod_owns_only_the_expired_one_is_deleted() {
    let (world, namespace) = scene("executors").await;
    let driver = bare_pod(namespace.name(), "driver", &json!({}), &Value::Null);
    let driver = namespace.create(&distinct(driver, "driver")).await;
    namespace.pod_of(&driver, "executor", "executors").await;
    namespace.await_pods(&["driver"]).await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await, [deletion_event("executor")]);
    assert_changes(world, &namespace, &["delete pods/executor"]).await;
}

/// Waits for a pod whose name begins so.
async fn pod_named(namespace: &Namespace, prefix: &str) -> DynamicObject {
    let name = eventually("a pod", DEADLINE, async || {
        Ok(namespace.pod_names().await.into_iter().find(|name| name.starts_with(prefix)))
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.await.unwrap()}});
    namespace.find(&serde_json::from_value(pod).unwrap()).await
}

#[tokio::test]
async fn the_job_of_a_pod_that_owns_the_expired_one_is_suspended() {
    let (world, namespace) = scene("driven").await;
    let job = workload("Job", namespace.name(), "driver", &json!({}), &Value::Null);
    let job = namespace.create(&distinct(job, "driver")).await;
    let driver = pod_named(&namespace, "driver").await;
    namespace.pod_of(&driver, "executor", "driven").await;
    namespace.await_pause_of(&job, SUSPEND, &json!(true)).await;
    assert_changes(world, &namespace, &["patch jobs/driver"]).await;
}

/// The operator deletes the driver at the pause. Garbage collection leaves the executors, which the application owns, too.
#[tokio::test]
async fn a_young_executor_ends_with_its_driver_and_not_at_a_ceiling_of_its_own() {
    const CEILING: SignedDuration = SignedDuration::from_secs(36);
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("spark", "36s")).await;
    let application =
        namespace.chain(&[("sparkoperator.k8s.io/v1beta2", "SparkApplication")]).await.remove(0);
    let driver = namespace.pod_of(&application, "driver", "spark").await;
    let made = |pod: &DynamicObject| pod.creation_timestamp().unwrap().0;
    let half = made(&driver) + CEILING / 2;
    let later = async || Ok((Timestamp::now() > half).then_some(()));
    eventually("half of the ceiling", DEADLINE, later).await.unwrap();
    let executor = bare_pod(namespace.name(), "executor", &in_queue("spark"), &Value::Null);
    let owners = [controller(&driver), reference(&application)];
    let executor = namespace.create(&owned(distinct(executor, "executor"), &owners)).await;
    namespace.await_pause_of(&application, SUSPEND, &json!(true)).await;
    namespace.delete(&driver).await;
    namespace.await_pods(&[]).await;
    let gone = Timestamp::now();
    assert!(gone < made(&executor) + CEILING, "{gone}");
}

#[tokio::test]
async fn a_leader_worker_set_is_paused_though_only_its_workers_are_in_a_queue() {
    let (world, namespace) = scene("workers").await;
    let group = namespace.chain(&[("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")]).await.remove(0);
    let set = |name: &str, labels: &Value| {
        distinct(workload("StatefulSet", namespace.name(), name, labels, &Value::Null), name)
    };
    namespace.create(&owned(set("leader", &json!({})), &[controller(&group)])).await;
    let leader = pod_named(&namespace, "leader").await;
    namespace.create(&owned(set("worker", &in_queue("workers")), &[controller(&leader)])).await;
    namespace.await_pause_of(&group, REPLICAS, &json!(0)).await;
    assert_changes(world, &namespace, &["patch leaderworkersets/leaderworkerset"]).await;
}

/// A StatefulSet of one pod that has its claims deleted when it is scaled down.
fn with_claims(namespace: &Namespace, name: &str, labels: &Value) -> Value {
    let mut set = distinct(workload("StatefulSet", namespace.name(), name, labels, &Value::Null), name);
    set["spec"]["replicas"] = json!(1);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": claim}]);
    set
}

#[tokio::test]
async fn a_paused_stateful_set_keeps_its_claims_and_has_its_policy_back_once_it_runs() {
    const POLICY: &str = "spec.persistentVolumeClaimRetentionPolicy.whenScaled";
    let (_, namespace) = scene("claims").await;
    namespace.apply(&queue("claims", "1d")).await;
    let kept = namespace.create(&with_claims(&namespace, "kept", &in_queue("claims"))).await;
    let control = namespace.create(&with_claims(&namespace, "control", &json!({}))).await;
    let claim = async |name: &str| {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}});
        namespace.try_find(&serde_json::from_value(claim).unwrap()).await
    };
    for name in ["kept", "control"] {
        pod_named(&namespace, name).await;
    }
    let before = claim("data-kept-0").await.unwrap();
    namespace.apply(&queue("claims", "1s")).await;
    namespace.await_pause_of(&kept, REPLICAS, &json!(0)).await;
    assert_eq!(namespace.field(&kept, POLICY).await, "Retain");
    namespace.await_pods(&["control-0"]).await;
    namespace.patch(&control, &json!({"spec": {"replicas": 0}})).await;
    let gone = async || Ok(claim("data-control-0").await.is_none().then_some(()));
    eventually("the claim of the other to be deleted", DEADLINE, gone).await.unwrap();

    namespace.apply(&queue("claims", "1d")).await;
    namespace.patch(&kept, &json!({"spec": {"replicas": 1}})).await;
    let is_back = async || Ok((namespace.field(&kept, POLICY).await == "Delete").then_some(()));
    eventually("the policy to be set back", DEADLINE, is_back).await.unwrap();
    assert_eq!(namespace.field(&kept, REPLICAS).await, json!(1));
    let after = claim("data-kept-0").await.unwrap();
    assert_eq!((after.uid(), after.metadata.deletion_timestamp), (before.uid(), None));
}

#[tokio::test]
async fn a_horizontal_autoscaler_leaves_a_pause_alone() {
    let (world, namespace) = scene("autoscaled").await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment"});
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "test", "namespace": namespace.name()},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3},
    });
    let autoscaler = namespace.create(&autoscaler).await;
    let deployment = native(&namespace, "Deployment", "autoscaled", &[]).await;
    namespace.await_pause_of(&deployment, REPLICAS, &json!(0)).await;
    eventually("the autoscaler to stand back", DEADLINE, async || {
        let conditions = namespace.field(&autoscaler, "status.conditions").await;
        let disabled = |condition: &&Value| condition["reason"] == "ScalingDisabled";
        Ok(conditions.as_array().and_then(|all| all.iter().find(disabled)).map(drop))
    })
    .await
    .unwrap();
    assert_eq!(namespace.field(&deployment, REPLICAS).await, json!(0));
    assert_changes(world, &namespace, &["patch deployments/deployment"]).await;
}

#[tokio::test]
async fn a_deployment_whose_rollouts_are_paused_is_scaled_to_zero_all_the_same() {
    let (_, namespace) = scene("rollouts-paused").await;
    namespace.apply(&queue("rollouts-paused", "1d")).await;
    let deployment = native(&namespace, "Deployment", "rollouts-paused", &[]).await;
    namespace.await_running(2).await;
    namespace.patch(&deployment, &json!({"spec": {"paused": true}})).await;
    namespace.apply(&queue("rollouts-paused", "1s")).await;
    namespace.await_pause_of(&deployment, REPLICAS, &json!(0)).await;
    namespace.await_pods(&[]).await;
    assert_eq!(namespace.field(&deployment, "spec.paused").await, json!(true));
}

#[tokio::test]
async fn amid_a_rollout_the_deployment_is_paused_and_neither_of_its_replica_sets() {
    let (world, namespace) = scene("rollout").await;
    namespace.apply(&queue("rollout", "1d")).await;
    let deployment = native(&namespace, "Deployment", "rollout", &[]).await;
    namespace.await_running(2).await;
    // the new pods are never ready, so that the old ones stay
    let unready = json!({"spec": {"template": {"metadata": {"labels": {tenure_testbed::UNREADY: "true"}}}}});
    namespace.patch(&deployment, &unready).await;
    let three = async || Ok((namespace.pods().await.len() == 3).then_some(()));
    eventually("a pod of the new replica set", DEADLINE, three).await.unwrap();
    namespace.apply(&queue("rollout", "1s")).await;
    namespace.await_pause_of(&deployment, REPLICAS, &json!(0)).await;
    namespace.await_pods(&[]).await;
    assert_changes(world, &namespace, &["patch deployments/deployment"]).await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await.len(), 1);
}

/// The native workload at the end of a chain is paused, and nothing above it is.
async fn assert_only_the_native_is_paused(queue_name: &str, above: &[(&str, &str)], kind: &str, field: &str) {
    let (world, namespace) = scene(queue_name).await;
    let chain = namespace.chain(above).await;
    let native = native(&namespace, kind, queue_name, &[controller(chain.last().unwrap())]).await;
    let value = if field == SUSPEND { json!(true) } else { json!(0) };
    namespace.await_pause_of(&native, field, &value).await;
    namespace.await_pods(&[]).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(events, [pause_event(&native, field, &value.to_string())]);
    assert_changes(world, &namespace, &[format!("patch {0}s/{0}", native.name_any())]).await;
}

#[tokio::test]
async fn the_replica_set_of_an_argo_rollout_is_paused() {
    assert_only_the_native_is_paused("argo", &[("argoproj.io/v1alpha1", "Rollout")], "ReplicaSet", REPLICAS)
        .await;
}

#[tokio::test]
async fn the_stateful_set_of_an_unknown_operator_is_paused() {
    assert_only_the_native_is_paused("operator", &[("example.com/v1", "Widget")], "StatefulSet", REPLICAS)
        .await;
}

#[tokio::test]
async fn the_deployment_of_a_kserve_inference_service_is_paused() {
    let above = [("serving.kserve.io/v1beta1", "InferenceService")];
    assert_only_the_native_is_paused("kserve", &above, "Deployment", REPLICAS).await;
}

#[tokio::test]
async fn the_job_of_a_beam_job_is_paused() {
    assert_only_the_native_is_paused("beam", &[(T9K_JOBS, "BeamJob")], "Job", SUSPEND).await;
}

#[tokio::test]
async fn the_stateful_set_of_an_explorer_is_paused() {
    assert_only_the_native_is_paused("explorer", &[(T9K, "Explorer")], "StatefulSet", REPLICAS).await;
}

#[tokio::test]
async fn the_job_of_a_cron_job_is_suspended_and_the_cron_job_is_not() {
    let (world, namespace) = scene("cron").await;
    let mut job = workload("Job", namespace.name(), "job", &in_queue("cron"), &Value::Null);
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "cron", "namespace": namespace.name()},
        "spec": {"schedule": "0 0 1 1 *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job["spec"]}},
    });
    let cron = namespace.create(&cron).await;
    // as its controller does when the time has come; it deletes pods that have ended
    job["spec"]["ttlSecondsAfterFinished"] = json!(0);
    let job = namespace.create(&owned(job, &[controller(&cron)])).await;
    namespace.await_pause_of(&job, SUSPEND, &json!(true)).await;
    namespace.await_pods(&[]).await;
    assert_changes(world, &namespace, &["patch jobs/job"]).await;
    let suspended = async || {
        Ok((namespace.field(&job, "status.conditions").await[0]["type"] == "Suspended").then_some(()))
    };
    eventually("the Job to be suspended", DEADLINE, suspended).await.unwrap();
    let events = namespace.await_events_of("HeldUpByPausedJob", 1).await;
    let expected = format!(
        "CronJob/cron: Starts no further Job while Job job is paused, because concurrencyPolicy is Forbid: to finish that Job, kubectl tenure resume job.batch/job -n {0}; to drop it, kubectl delete job job -n {0}",
        namespace.name()
    );
    assert_eq!(events, [expected]);
}

#[tokio::test]
async fn the_experiment_above_a_t9k_job_is_climbed_through() {
    let (world, namespace) = scene("experiment").await;
    let chain = namespace.chain(&[(T9K, "AutoTuneExperiment"), (T9K_JOBS, "PyTorchTrainingJob")]).await;
    namespace.pod_of(&chain[1], "test", "experiment").await;
    namespace.await_pause_of(&chain[1], RUN_MODE, &json!(true)).await;
    assert_changes(world, &namespace, &["patch pytorchtrainingjobs/pytorchtrainingjob"]).await;
}

#[tokio::test]
async fn a_tensor_board_that_a_training_job_owns_expires_with_the_training_job() {
    let (world, namespace) = scene("tensor-board").await;
    let chain = namespace.chain(&[(T9K_JOBS, "PyTorchTrainingJob"), (T9K, "TensorBoard")]).await;
    native(&namespace, "StatefulSet", "tensor-board", &[controller(&chain[1])]).await;
    namespace.await_pause_of(&chain[0], RUN_MODE, &json!(true)).await;
    assert_changes(world, &namespace, &["patch pytorchtrainingjobs/pytorchtrainingjob"]).await;
}

/// The topmost owner of a chain is paused once, though pods expire at two ends of it.
async fn assert_only_the_topmost_is_paused(
    queue_name: &str,
    kinds: &[(&str, &str)],
    job_below: usize,
    field: &str,
) {
    let (world, namespace) = scene(queue_name).await;
    let chain = namespace.chain(kinds).await;
    native(&namespace, "Job", queue_name, &[controller(&chain[job_below])]).await;
    namespace.pod_of(chain.last().unwrap(), "worker", queue_name).await;
    namespace.await_pause_of(&chain[0], field, &json!(true)).await;
    // the pods live on here: no controller deletes them
    await_result(world, queue_name, "Nothing", 1).await;
    assert_changes(world, &namespace, &[format!("patch {0}s/{0}", chain[0].name_any())]).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(events, [pause_event(&chain[0], field, "true")]);
}

#[tokio::test]
async fn a_job_set_is_suspended_and_none_of_its_jobs() {
    let kinds = [("jobset.x-k8s.io/v1alpha2", "JobSet")];
    assert_only_the_topmost_is_paused("job-set", &kinds, 0, SUSPEND).await;
}

#[tokio::test]
async fn a_kubeflow_mpi_job_is_suspended_and_not_its_launcher() {
    let kinds = [("kubeflow.org/v1", "MPIJob")];
    assert_only_the_topmost_is_paused("launcher", &kinds, 0, "spec.runPolicy.suspend").await;
}

#[tokio::test]
async fn a_ray_job_is_suspended_and_neither_its_cluster_nor_its_submitter() {
    let kinds = [("ray.io/v1", "RayJob"), ("ray.io/v1", "RayCluster")];
    assert_only_the_topmost_is_paused("ray-job", &kinds, 0, SUSPEND).await;
}

#[tokio::test]
async fn a_ray_service_is_suspended_and_not_its_cluster() {
    let kinds = [("ray.io/v1", "RayService"), ("ray.io/v1", "RayCluster")];
    assert_only_the_topmost_is_paused("ray-service", &kinds, 0, SUSPEND).await;
}

#[tokio::test]
async fn an_argo_workflow_is_suspended_and_the_pods_that_it_lets_go_on_are_deleted_soon() {
    let (world, namespace) = scene("workflow").await;
    let workflow = namespace.chain(&[("argoproj.io/v1alpha1", "Workflow")]).await.remove(0);
    namespace.pod_of(&workflow, "step", "workflow").await;
    namespace.await_pause_of(&workflow, SUSPEND, &json!(true)).await;
    namespace.await_pods(&[]).await;
    assert_changes(world, &namespace, &["delete pods/step", "patch workflows/workflow"]).await;
}

#[tokio::test]
async fn a_pod_below_kinds_of_which_none_can_be_paused_is_deleted_and_made_again() {
    let (world, namespace) = scene("openshift").await;
    let config = namespace.chain(&[("apps.openshift.io/v1", "DeploymentConfig")]).await.remove(0);
    let mut set = workload("ReplicaSet", namespace.name(), "test", &in_queue("openshift"), &Value::Null);
    (set["apiVersion"], set["kind"]) = (json!("v1"), json!("ReplicationController"));
    (set["spec"]["selector"], set["spec"]["replicas"]) = (json!({"app": "test"}), json!(1));
    let set = namespace.create(&owned(set, &[controller(&config)])).await;
    // the events of a deletion come before it
    let changed = async || {
        let changed = audit::changes_of_keeper(&world.cluster, namespace.name());
        Ok((changed.len() >= 2).then_some(changed))
    };
    let changed = eventually("two pods to be deleted", DEADLINE, changed).await.unwrap();
    assert!(changed.iter().all(|change| change.starts_with("delete pods/")), "{changed:?}");
    namespace.await_events(2).await;
    assert_eq!(namespace.field(&set, REPLICAS).await, json!(1));
}

#[tokio::test]
async fn an_owner_is_paused_for_its_oldest_pod_though_others_are_young_or_in_another_queue() {
    let (world, namespace) = scene("oldest").await;
    namespace.apply(&queue("roomy", "1d")).await;
    let job = namespace.chain(&[(T9K_JOBS, "GenericJob")]).await.remove(0);
    namespace.pod_of(&job, "roomy", "roomy").await;
    namespace.pod_of(&job, "old", "oldest").await;
    let record = namespace.await_pause_of(&job, RUN_MODE, &json!(true)).await;
    assert_eq!(record["queue"], "oldest");
    assert_changes(world, &namespace, &["patch genericjobs/genericjob"]).await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await.len(), 1);
}

#[tokio::test]
async fn one_pod_of_high_priority_keeps_none_of_its_owners_others_running() {
    let (world, namespace) = scene("critical").await;
    namespace.apply(&queue("critical", "1d")).await;
    let ordinary = json!({"replicaSpecs": [{"template": {"spec": {"priorityClassName": "ordinary"}}}]});
    let job = fixtures::object(T9K_JOBS, "GenericJob", namespace.name(), "genericjob", &ordinary);
    let job = namespace.create(&job).await;
    let spec = json!({"priorityClassName": "system-cluster-critical"});
    let critical = distinct(bare_pod(namespace.name(), "exempt", &in_queue("critical"), &spec), "exempt");
    namespace.create(&owned(critical, &[controller(&job)])).await;
    namespace.await_running(1).await;
    namespace.pod_of(&job, "other", "critical").await;
    namespace.apply(&queue("critical", "1s")).await;
    namespace.await_pause_of(&job, RUN_MODE, &json!(true)).await;
    assert_changes(world, &namespace, &["patch genericjobs/genericjob"]).await;
}

#[tokio::test]
async fn pods_of_a_stateful_set_that_is_slow_to_scale_down_are_left_to_it_at_first() {
    let (world, namespace) = scene("ordered").await;
    namespace.apply(&queue("ordered", "1d")).await;
    let mut object = workload("StatefulSet", namespace.name(), "test", &in_queue("ordered"), &Value::Null);
    object["spec"]["replicas"] = json!(3);
    let set = namespace.create(&object).await;
    namespace.await_running(3).await;
    // its controller deletes an unhealthy pod only when all before it are healthy
    for pod in ["test-1", "test-2"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}});
        let pod = namespace.find(&serde_json::from_value(pod).unwrap()).await;
        let unready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        namespace.patch_status(&pod, &unready).await;
    }
    namespace.apply(&queue("ordered", "1s")).await;
    namespace.await_pause_of(&set, REPLICAS, &json!(0)).await;
    await_result(world, "ordered", "Nothing", 1).await;
    assert_changes(world, &namespace, &["patch statefulsets/test"]).await;
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await.len(), 1);
    assert_eq!(namespace.pods().await.len(), 3);
}

#[tokio::test]
async fn a_deletion_names_the_pods_uid_so_that_no_successor_of_its_name_is_hit() {
    let (world, namespace) = scene("uid").await;
    let names_the_uid = "request.operation != 'DELETE' || \
        (has(request.options.preconditions) && has(request.options.preconditions.uid))";
    let _refused = Refusal::start(world, &namespace, names_the_uid).await;
    namespace.create(&bare_pod(namespace.name(), "test", &in_queue("uid"), &Value::Null)).await;
    assert_changes(world, &namespace, &["delete pods/test"]).await;
}

#[tokio::test]
async fn an_owner_that_others_change_all_the_time_is_paused_and_loses_none_of_their_changes() {
    let (world, namespace) = scene("busy").await;
    let job = namespace.chain(&[(T9K_JOBS, "GenericJob")]).await.remove(0);
    namespace.pod_of(&job, "test", "busy").await;
    let mut writes = 0_u32;
    let paused = async || {
        let change = json!({"metadata": {"annotations": {format!("example.com/write-{writes}"): "x"}}});
        namespace.patch(&job, &change).await;
        writes += 1;
        // on a slow machine, each read of the keeper would be stale at its write
        sleep(Duration::from_millis(10) * writes).await;
        Ok(namespace.pause_of(&job, RUN_MODE, &json!(true)).await)
    };
    eventually("the job to be paused", DEADLINE, paused).await.unwrap();
    let annotations = namespace.field(&job, "metadata.annotations").await;
    let kept = annotations.as_object().unwrap().keys().filter(|key| key.starts_with("example.com/")).count();
    assert_eq!(kept, writes as usize);
    assert_changes(world, &namespace, &["patch genericjobs/genericjob"]).await;
}
