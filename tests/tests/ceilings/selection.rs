//! The pods that a ceiling applies to, on a real API server: queues by label and pod group, own ceilings.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{UNDYING, UNREADY, eventually};
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    workloads::{
        Namespace, bare_pod, controller, distinct, in_queue, in_runai_queue, owned, pause_event, queue,
        runai_queue, workload,
    },
};

use crate::world;

/// A test's namespace, and queues of its own in both families: `<name>-short` of a second, `<name>-long` of a day.
struct Scene {
    world: &'static World,
    namespace: Namespace,
    short: String,
    long: String,
}

impl Scene {
    async fn new(name: &str) -> Self {
        let world = world().await;
        let namespace = Namespace::new(world).await;
        let (short, long) = (format!("{name}-short"), format!("{name}-long"));
        for (name, ceiling) in [(&short, "1s"), (&long, "1d")] {
            namespace.apply(&queue(name, ceiling)).await;
            namespace.apply(&runai_queue(name, "", ceiling)).await;
        }
        Self { world, namespace, short, long }
    }

    /// A pod without an owner.
    async fn pod(&self, name: &str, labels: &Value, annotations: &Value) -> DynamicObject {
        let mut pod = distinct(bare_pod(self.namespace.name(), name, labels, &Value::Null), name);
        pod["metadata"]["annotations"] = annotations.clone();
        self.namespace.create(&pod).await
    }

    async fn t9k_group(&self, name: &str, spec: Value) -> DynamicObject {
        let (version, namespace) = ("scheduler.tensorstack.dev/v1beta1", self.namespace.name());
        self.namespace.create(&fixtures::object(version, "PodGroup", namespace, name, &spec)).await
    }

    async fn runai_group(&self, name: &str, spec: Value) -> DynamicObject {
        let (version, namespace) = ("scheduling.run.ai/v2alpha2", self.namespace.name());
        self.namespace.create(&fixtures::object(version, "PodGroup", namespace, name, &spec)).await
    }

    /// Asserts that exactly these pods are left, once a last one has expired.
    async fn assert_left(&self, names: &[&str]) {
        self.pod("control", &in_queue(&self.short), &Value::Null).await;
        self.namespace.await_pods(names).await;
    }
}

fn in_t9k_group(name: &str) -> Value {
    json!({"scheduler.tensorstack.dev/group-name": name})
}

/// KAI-Scheduler has it as an annotation.
fn in_runai_group(name: &str) -> Value {
    json!({"pod-group-name": name})
}

fn with(mut labels: Value, more: &Value) -> Value {
    labels.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    labels
}

#[tokio::test]
async fn a_pod_of_a_pod_group_is_in_the_groups_queue_and_needs_no_label() {
    let scene = Scene::new("grouped").await;
    scene.t9k_group("short", json!({"queue": scene.short, "minMember": 1})).await;
    scene.t9k_group("long", json!({"queue": scene.long})).await;
    scene.runai_group("short", json!({"queue": scene.short, "minMember": 1})).await;
    scene.runai_group("long", json!({"queue": scene.long})).await;
    for group in ["short", "long"] {
        scene.pod(&format!("t9k-{group}"), &in_t9k_group(group), &Value::Null).await;
        scene.pod(&format!("runai-{group}"), &json!({}), &in_runai_group(group)).await;
    }
    scene.assert_left(&["t9k-long", "runai-long"]).await;
}

#[tokio::test]
async fn the_queue_of_a_pod_group_wins_over_the_label() {
    let scene = Scene::new("wins").await;
    for (group, label) in [(&scene.short, &scene.long), (&scene.long, &scene.short)] {
        scene.t9k_group(group, json!({"queue": group})).await;
        scene.runai_group(group, json!({"queue": group})).await;
        let t9k = with(in_t9k_group(group), &in_queue(label));
        scene.pod(&format!("t9k-{group}"), &t9k, &Value::Null).await;
        scene.pod(&format!("runai-{group}"), &in_runai_queue(label), &in_runai_group(group)).await;
    }
    scene.assert_left(&["t9k-wins-long", "runai-wins-long"]).await;
}

#[tokio::test]
async fn a_t9k_pod_group_that_names_no_queue_is_in_queue_default() {
    let scene = Scene::new("unnamed").await;
    scene.namespace.apply(&queue("default", "1s")).await;
    scene.t9k_group("test", json!({"minMember": 1})).await;
    scene.pod("test", &with(in_t9k_group("test"), &in_queue(&scene.long)), &Value::Null).await;
    scene.namespace.await_pods(&[]).await;
}

#[tokio::test]
async fn where_the_pod_group_does_not_exist_in_the_namespace_the_label_counts() {
    let scene = Scene::new("no-group").await;
    let elsewhere = Scene::new("no-group").await;
    elsewhere.t9k_group("test", json!({"queue": scene.long})).await;
    elsewhere.runai_group("test", json!({"queue": scene.long})).await;
    for (name, queue) in [("short", &scene.short), ("long", &scene.long)] {
        let t9k = with(in_t9k_group("test"), &in_queue(queue));
        scene.pod(&format!("t9k-{name}"), &t9k, &Value::Null).await;
        scene.pod(&format!("runai-{name}"), &in_runai_queue(queue), &in_runai_group("test")).await;
    }
    scene.assert_left(&["t9k-long", "runai-long"]).await;
}

#[tokio::test]
async fn a_pod_group_that_comes_later_or_moves_to_another_queue_counts_at_once() {
    let scene = Scene::new("moves").await;
    let moves = scene.t9k_group("moves", json!({"queue": scene.long})).await;
    let runai_moves = scene.runai_group("moves", json!({"queue": scene.long})).await;
    for group in ["moves", "later"] {
        scene.pod(&format!("t9k-{group}"), &in_t9k_group(group), &Value::Null).await;
        scene.pod(&format!("runai-{group}"), &json!({}), &in_runai_group(group)).await;
    }
    scene.assert_left(&["t9k-moves", "t9k-later", "runai-moves", "runai-later"]).await;
    for group in [&moves, &runai_moves] {
        scene.namespace.patch(group, &json!({"spec": {"queue": scene.short}})).await;
    }
    scene.namespace.await_pods(&["t9k-later", "runai-later"]).await;
    scene.t9k_group("later", json!({"queue": scene.short})).await;
    scene.runai_group("later", json!({"queue": scene.short})).await;
    scene.namespace.await_pods(&[]).await;
}

#[tokio::test]
async fn a_pod_in_both_families_obeys_the_stricter() {
    let scene = Scene::new("both").await;
    let (short, long) = (&scene.short, &scene.long);
    for (name, t9k, runai) in [("t9k", short, long), ("runai", long, short), ("neither", long, long)] {
        scene.pod(name, &with(in_queue(t9k), &in_runai_queue(runai)), &Value::Null).await;
    }
    scene.assert_left(&["neither"]).await;
}

#[tokio::test]
async fn a_queue_without_a_ceiling_and_one_that_does_not_exist_are_no_ceiling() {
    let scene = Scene::new("none").await;
    scene.namespace.apply(&queue("none-empty", "")).await;
    for name in ["none-empty", "none-missing"] {
        scene.pod(name, &in_queue(name), &Value::Null).await;
        scene.pod(&format!("runai-{name}"), &in_runai_queue(name), &Value::Null).await;
    }
    scene.assert_left(&["none-empty", "none-missing", "runai-none-empty", "runai-none-missing"]).await;
    audit::assert_changes(&scene.world.cluster, scene.namespace.name(), &["delete pods/control"]).await;
}

#[tokio::test]
async fn a_queue_that_comes_later_and_a_ceiling_that_is_added_expire_running_pods() {
    let scene = Scene::new("added").await;
    scene.namespace.apply(&queue("added-ceiling", "")).await;
    for name in ["added-ceiling", "added-queue"] {
        scene.pod(name, &in_queue(name), &Value::Null).await;
    }
    scene.assert_left(&["added-ceiling", "added-queue"]).await;
    scene.namespace.apply(&queue("added-ceiling", "1s")).await;
    scene.namespace.await_pods(&["added-queue"]).await;
    scene.namespace.apply(&queue("added-queue", "1s")).await;
    scene.namespace.await_pods(&[]).await;
}

#[tokio::test]
async fn pending_time_counts_in_a_t9k_queue() {
    let scene = Scene::new("pending").await;
    let nowhere = json!({"nodeSelector": {"no-such": "node"}});
    let pod = bare_pod(scene.namespace.name(), "test", &in_queue(&scene.short), &nowhere);
    scene.namespace.create(&pod).await;
    scene.namespace.await_pods(&[]).await;
}

#[tokio::test]
async fn pods_that_have_ended_or_are_ending_are_left_alone() {
    let scene = Scene::new("ended").await;
    let label = |key: &str| with(in_queue(&scene.long), &json!({key: "true"}));
    let ending = scene.pod("ending", &label(UNDYING), &Value::Null).await;
    // a pod that no kubelet has started goes at once
    scene.namespace.await_running(1).await;
    scene.namespace.delete(&ending).await;
    for phase in ["Succeeded", "Failed"] {
        let ended = scene.pod(&phase.to_lowercase(), &label(UNREADY), &Value::Null).await;
        scene.namespace.patch_status(&ended, &json!({"phase": phase})).await;
    }
    scene.namespace.apply(&queue(&scene.long, "1s")).await;
    scene.assert_left(&["ending", "succeeded", "failed"]).await;
    audit::assert_changes(&scene.world.cluster, scene.namespace.name(), &["delete pods/control"]).await;
}

fn own_ceiling(duration: &str) -> Value {
    json!({"tenure.dev/max-duration": duration})
}

#[tokio::test]
async fn a_pod_may_shorten_its_queues_ceiling_and_never_lengthen_it() {
    let scene = Scene::new("own-pod").await;
    let mut unlimited = runai_queue("own-pod-unlimited", "", "1s");
    unlimited["spec"] = json!({});
    scene.namespace.apply(&unlimited).await;
    scene.pod("shorter", &in_queue(&scene.long), &own_ceiling("1s")).await;
    scene.pod("runai", &in_runai_queue(&scene.long), &own_ceiling("1s1ms")).await;
    scene.pod("unlimited", &in_runai_queue("own-pod-unlimited"), &own_ceiling("1s")).await;
    scene.pod("longer", &in_queue(&scene.short), &own_ceiling("1d")).await;
    scene.pod("same", &in_queue(&scene.long), &own_ceiling("1d")).await;
    scene.pod("unreadable", &in_queue(&scene.long), &own_ceiling("soon")).await;
    scene.pod("no-queue", &json!({}), &own_ceiling("1s")).await;
    scene.assert_left(&["same", "unreadable", "no-queue"]).await;
}

#[tokio::test]
async fn a_pod_group_and_a_root_owner_may_shorten_their_queues_ceiling_too() {
    let scene = Scene::new("own-root").await;
    let annotate = json!({"metadata": {"annotations": own_ceiling("1s")}});
    for (group, labels, annotations) in [
        (scene.t9k_group("t9k", json!({"queue": scene.long})).await, in_t9k_group("t9k"), Value::Null),
        (scene.runai_group("runai", json!({"queue": scene.long})).await, json!({}), in_runai_group("runai")),
    ] {
        scene.namespace.patch(&group, &annotate).await;
        scene.pod(&group.metadata.name.unwrap(), &labels, &annotations).await;
    }
    let (long, namespace) = (&scene.long, &scene.namespace);
    let mut deployment =
        workload("Deployment", namespace.name(), "deployment", &in_queue(long), &Value::Null);
    deployment["metadata"]["annotations"] = own_ceiling("1s");
    let deployment = namespace.create(&distinct(deployment, "deployment")).await;
    let job = namespace.chain(&[("batch.tensorstack.dev/v1beta1", "GenericJob")]).await.remove(0);
    namespace.patch(&job, &annotate).await;
    let set = workload("StatefulSet", namespace.name(), "set", &in_queue(long), &Value::Null);
    namespace.create(&owned(distinct(set, "set"), &[controller(&job)])).await;
    namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    let record = namespace.await_pause_of(&job, "spec.runMode.pause.enabled", &json!(true)).await;
    assert_eq!(record["queue"], *long);
    // whose pods live on here: no controller deletes them
    scene.assert_left(&["set-0", "set-1"]).await;
}

#[tokio::test]
async fn of_several_own_ceilings_the_least_counts() {
    let scene = Scene::new("own-least").await;
    let namespace = &scene.namespace;
    for (name, owners, pods) in [("owner", "1s", "1h"), ("pod", "1h", "1s"), ("neither", "1h", "2h")] {
        let mut set = workload("ReplicaSet", namespace.name(), name, &in_queue(&scene.long), &Value::Null);
        set["metadata"]["annotations"] = own_ceiling(owners);
        set["spec"]["template"]["metadata"]["annotations"] = own_ceiling(pods);
        namespace.create(&distinct(set, name)).await;
    }
    for name in ["owner", "pod"] {
        namespace.await_paused("ReplicaSet", name).await;
    }
    assert_eq!(namespace.pause("ReplicaSet", "neither").await, None);
}

#[tokio::test]
async fn an_own_ceiling_that_is_written_later_counts_at_once_and_one_that_is_taken_back_for_later_pods() {
    let scene = Scene::new("own-later").await;
    let namespace = &scene.namespace;
    let mut owners = Vec::new();
    for (name, ceiling) in [("later", "1d"), ("taken-back", "4s")] {
        let mut set = workload("StatefulSet", namespace.name(), name, &in_queue(&scene.long), &Value::Null);
        set["metadata"]["annotations"] = own_ceiling(ceiling);
        owners.push(namespace.create(&distinct(set, name)).await);
    }
    namespace.await_running(4).await;
    namespace.patch(&owners[1], &json!({"metadata": {"annotations": own_ceiling("1d")}})).await;
    namespace.patch(&owners[0], &json!({"metadata": {"annotations": own_ceiling("4s")}})).await;
    for owner in &owners {
        namespace.await_pause_of(owner, "spec.replicas", &json!(0)).await;
    }
    namespace.patch(&owners[1], &json!({"spec": {"replicas": 2}})).await;
    namespace.await_running(2).await;
    assert_eq!(namespace.field(&owners[1], "spec.replicas").await, json!(2));
}

#[tokio::test]
async fn the_example_of_the_manual_happens_as_it_says() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let spec = json!({
        "closed": false, "maxDuration": "10s", "preemptible": true, "priority": 1,
        "quota": {"requests": {"cpu": "10", "memory": "1Gi"}},
    });
    let version = "scheduler.tensorstack.dev/v1beta1";
    namespace.create(&fixtures::object(version, "Queue", "t9k-system", "demo", &spec)).await;
    let resources = json!({"requests": {"cpu": 1, "memory": "100Mi"}});
    let container = json!({"image": "tsz.io/czx/nginx:latest", "name": "nginx", "resources": resources});
    let pods = json!({"schedulerName": "t9k-scheduler", "containers": [container]});
    let example = workload("Deployment", namespace.name(), "test", &in_queue("demo"), &pods);
    let deployment = namespace.create(&distinct(example, "deploy-test")).await;
    namespace.await_running(2).await;
    let record = namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let created = namespace.field(&deployment, "metadata.creationTimestamp").await;
    let seconds = time(&record["at"]).duration_since(time(&created)).as_secs_f64();
    assert!(10.0 < seconds && seconds < 13.0, "{seconds} s");
    namespace.await_pods(&[]).await;
    let status = async || {
        let status = namespace.field(&deployment, "status").await;
        Ok((status["replicas"].is_null() && status["readyReplicas"].is_null()).then_some(()))
    };
    eventually("the Deployment to be 0/0", DEADLINE, status).await.unwrap();
    let recorded = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(recorded, [pause_event(&deployment, "spec.replicas", "0")]);
    // as the manual has it, but for the time that has passed
    let get = ["get", "event", "--namespace", namespace.name(), "--no-headers"];
    let events = world.cluster.kubectl(&get).await.unwrap().success().unwrap();
    let ours = events.lines().find(|line| line.contains("MaxDurationExceeded")).unwrap();
    let columns: Vec<_> = ours.split_whitespace().skip(1).take(7).collect();
    assert_eq!(
        columns,
        ["Warning", "MaxDurationExceeded", "deployment/test", "Set", "spec.replicas", "to", "0"],
        "{events}"
    );
    let scaled = namespace.await_events_of("ScalingReplicaSet", 2).await;
    assert!(scaled[0].contains("Scaled down replica set"), "{scaled:?}");
}

#[tokio::test]
async fn a_pod_that_is_created_with_its_node_and_never_shows_its_binding_ends_by_its_creation() {
    let Scene { world, namespace, short, .. } = Scene::new("unshown").await;
    // no kubelet admits it
    let on_node = json!({"nodeName": "absent"});
    let pod = bare_pod(namespace.name(), "unshown", &in_runai_queue(&short), &on_node);
    let pod = namespace.create(&pod).await;
    let is_deleted = async || {
        let deleted = namespace.field(&pod, "metadata.deletionTimestamp").await;
        Ok(deleted.is_string().then_some(()))
    };
    eventually("the pod to be deleted", DEADLINE, is_deleted).await.unwrap();
    assert_eq!(namespace.field(&pod, "status.conditions").await, Value::Null);
    audit::assert_changes(&world.cluster, namespace.name(), &["delete pods/unshown"]).await;
}

#[tokio::test]
async fn where_no_threshold_is_named_no_priority_class_is_asked_for() {
    let world = world().await;
    assert_eq!(audit::of_keeper(&world.cluster, "get", "priorityclasses", ""), [""; 0]);
}
