//! Training pods with volumes, which tolerate preemption for as long as they run: others go in their place wherever the
//! preemptor can't tell the difference.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    scheduling::{Arena, Wish},
};

use super::world;

/// A claim that is bound to a disk of the node.
async fn claim(arena: &Arena<'_>, name: &str, mode: &str) {
    let (namespace, node) = (arena.namespace.name(), arena.node());
    let spec = json!({"accessModes": [mode], "storageClassName": ""});
    let on_node =
        json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("{namespace}-{name}")}, "spec": spec,
    });
    for (field, value) in [
        ("capacity", json!({"storage": "1Gi"})),
        ("local", json!({"path": "/mnt/disk"})),
        ("nodeAffinity", json!({"required": {"nodeSelectorTerms": [on_node]}})),
        ("claimRef", json!({"namespace": namespace, "name": name})),
    ] {
        volume["spec"][field] = value;
    }
    arena.namespace.create(&volume).await;
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    claim["spec"]["volumeName"] = json!(format!("{namespace}-{name}"));
    claim["spec"]["resources"] = json!({"requests": {"storage": "1Gi"}});
    let claim = arena.namespace.create(&claim).await;
    let bound = async || {
        let phase = arena.namespace.field(&claim, "status.phase").await;
        Ok((phase == json!("Bound")).then_some(()))
    };
    eventually("the claim to be bound", DEADLINE, bound).await.unwrap();
}

/// A pod's volume of a claim.
fn using(claim: &str) -> Value {
    json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

/// Of one processor.
fn wish<'a>(name: &'a str, class: &'a str, more: Value) -> Wish<'a> {
    Wish { name, class, more, cpu: 1, queue: "", priority: 0 }
}

/// A node with an old pod, and a training pod that tolerates other jobs without a time limit.
struct Scene<'w> {
    arena: Arena<'w>,
    old: DynamicObject,
    training: DynamicObject,
    urgent: String,
}

impl Scene<'static> {
    async fn new(old: Value, training: Value) -> Self {
        Self::on(Arena::new(world().await, 2).await, old, training).await
    }

    async fn on(arena: Arena<'static>, old: Value, training: Value) -> Self {
        for name in ["old", "training", "urgent"] {
            claim(&arena, name, "ReadWriteOnce").await;
        }
        claim(&arena, "dataset", "ReadWriteMany").await;
        let tolerant = &[("minimum-preemptable-priority", "1000"), ("toleration-seconds", "-1")];
        let tolerant = arena.class("training", 100, "PreemptLowerPriority", tolerant).await;
        let usual = arena.class("usual", 100, "PreemptLowerPriority", &[]).await;
        let urgent = arena.class("urgent", 200, "PreemptLowerPriority", &[]).await;
        let old = arena.placed(&wish("old", &usual, old)).await;
        arena.age(&old).await;
        let training = arena.placed(&wish("training", &tolerant, training)).await;
        Self { arena, old, training, urgent }
    }

    /// The old pod makes room for one that needs this, and training goes on.
    async fn goes_on(&self, more: Value) {
        let preemptor = self.arena.pod(&wish("urgent", &self.urgent, more)).await;
        self.arena.await_preempted(&self.old).await;
        self.arena.await_placed(&preemptor).await;
        self.arena.assert_untouched(&self.training).await;
    }

    /// Asserts that no pod makes room for a preemptor that needs this.
    async fn refuses(&self, more: Value) {
        let preemptor = self.arena.pod(&wish("urgent", &self.urgent, more)).await;
        self.arena.await_refused(&preemptor).await;
        self.arena.assert_untouched(&self.old).await;
        self.arena.assert_untouched(&self.training).await;
    }
}

#[tokio::test]
async fn a_training_pod_with_a_volume_is_preempted_around() {
    let pods = Scene::new(using("old"), using("training")).await;
    pods.goes_on(using("urgent")).await;
}

#[tokio::test]
async fn a_training_pod_with_a_volume_is_preempted_around_for_one_without_any() {
    let pods = Scene::new(json!({}), using("training")).await;
    pods.goes_on(json!({})).await;
}

#[tokio::test]
async fn training_pods_that_share_a_dataset_with_the_preemptor_are_preempted_around() {
    let pods = Scene::new(using("dataset"), using("dataset")).await;
    pods.goes_on(using("dataset")).await;
}

#[tokio::test]
async fn no_pod_goes_where_a_claim_may_be_for_one_pod_alone() {
    let pods = Scene::new(using("old"), using("training")).await;
    pods.refuses(using("training")).await;
}

#[tokio::test]
async fn volumes_count_where_a_node_has_a_limit_for_them() {
    let pods = Scene::new(json!({}), using("training")).await;
    pods.goes_on(using("urgent")).await;
    let arena = Arena::new(world().await, 2).await;
    let driver = json!({"name": "csi.example.com", "nodeID": arena.node(), "allocatable": {"count": 8}});
    let drivers = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": arena.node()}, "spec": {"drivers": [driver]},
    });
    arena.namespace.create(&drivers).await;
    let pods = Scene::on(arena, json!({}), using("training")).await;
    pods.refuses(using("urgent")).await;
}

#[tokio::test]
async fn anti_affinity_stops_a_preemption_only_if_it_is_to_a_pod_that_stays() {
    let labeled = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let apart = |app: &str| {
        let term =
            json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}});
        json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
    };
    let pods = Scene::new(labeled("old"), labeled("training")).await;
    pods.refuses(apart("training")).await;
    let pods = Scene::new(labeled("old"), labeled("training")).await;
    pods.goes_on(apart("urgent")).await;
}
