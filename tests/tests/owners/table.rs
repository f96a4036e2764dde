//! Every kind of the table from its pause to its return, on one API server. The test plays the controller of each kind, but for those of
//! Kubernetes.

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_policy::naming::group_of;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    fixtures::{PausableKind, object},
    plugin::plugin_prints,
    workloads::{Namespace, bare_pod, controller, distinct, in_runai_queue, owned, runai_queue, workload},
};

use super::{NATIVE, pausable, world};

/// The longest time that all tries to stop a pod take here.
const TRIES: Duration = Duration::from_mins(2);

/// Calls of the plugin at the same time.
const AT_ONCE: usize = 4;

/// An object of a kind, with a pod in a queue.
struct Specimen {
    kind: PausableKind,
    object: DynamicObject,
    /// The object that people know: the job of a Workload, else the object itself.
    known: DynamicObject,
    /// The pod that the test has made. None: controllers of Kubernetes make it.
    pod: Option<DynamicObject>,
}

/// The kinds of the table with controllers in every cluster.
fn native() -> Vec<PausableKind> {
    let kind = |api_version: &str, kind: &str, field: &str, value: Value| PausableKind {
        api_version: api_version.into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
        field: field.into(),
        value,
        ended: Vec::new(),
    };
    let scaled = ["Deployment", "StatefulSet", "ReplicaSet"];
    let scaled = scaled.map(|of| kind("apps/v1", of, "spec.replicas", json!(0)));
    scaled.into_iter().chain([kind("batch/v1", "Job", "spec.suspend", json!(true))]).collect()
}

fn is_native(kind: &PausableKind) -> bool {
    NATIVE.contains(&group_of(&kind.api_version))
}

impl Specimen {
    /// Creates an object of a kind with a pod in the queue of the namespace's name.
    async fn new(namespace: &Namespace, kind: PausableKind, number: usize) -> Self {
        let (place, name) = (namespace.name(), format!("{}-{number}", kind.kind.to_lowercase()));
        let labels = in_runai_queue(place);
        if is_native(&kind) {
            let object = distinct(workload(&kind.kind, place, &name, &labels, &Value::Null), &name);
            let object = namespace.create(&object).await;
            return Self { kind, known: object.clone(), object, pod: None };
        }
        let (object, known) = if kind.kind == "Workload" {
            Self::run_by_kueue(namespace, &kind, &name).await
        } else {
            let created = namespace.create(&Self::plain(&kind, place, &name)).await;
            (created.clone(), created)
        };
        let pod = distinct(bare_pod(place, &name, &labels, &Value::Null), &name);
        let pod = Some(namespace.create(&owned(pod, &[controller(&known)])).await);
        Self { kind, object, known, pod }
    }

    /// An object with the maps around the pausing field: a resume takes the field away, and leaves them.
    fn plain(kind: &PausableKind, namespace: &str, name: &str) -> Value {
        let below = kind.field.strip_prefix("spec.").unwrap_or_default();
        let around = below.rsplit_once('.').map_or("", |(around, _)| around);
        let keys = around.split('.').filter(|key| !key.is_empty());
        let spec = keys.rev().fold(json!({}), |inner, key| json!({key: inner}));
        object(&kind.api_version, &kind.kind, namespace, name, &spec)
    }

    /// A job that Kueue runs, after its Workload.
    async fn run_by_kueue(
        namespace: &Namespace,
        kind: &PausableKind,
        name: &str,
    ) -> (DynamicObject, DynamicObject) {
        let job = object("jobset.x-k8s.io/v1alpha2", "JobSet", namespace.name(), name, &json!({}));
        let job = namespace.create(&job).await;
        let mut workload =
            object(&kind.api_version, &kind.kind, namespace.name(), name, &json!({"active": true}));
        workload["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": job.uid()});
        let workload = namespace.create(&owned(workload, &[controller(&job)])).await;
        let admitted = json!({"conditions": [{"type": "Admitted", "status": "True"}]});
        namespace.patch_status(&workload, &admitted).await;
        (workload, job)
    }

    /// Waits until it is paused, and returns the record.
    async fn await_pause(&self, namespace: &Namespace) -> Value {
        namespace.await_pause_of(&self.object, &self.kind.field, &self.kind.value).await
    }

    /// Obeys the pause in place of a controller.
    async fn obey(&self, namespace: &Namespace) {
        if let Some(pod) = &self.pod {
            namespace.delete(pod).await;
        }
    }

    /// The value of the pausing field before the pause.
    fn before(&self) -> Value {
        let before = serde_json::to_value(&self.object).unwrap();
        self.kind.field.split('.').fold(&before, |value, key| value.get(key).unwrap_or(&Value::Null)).clone()
    }

    /// `deployment.apps/deployment-0`, as people call it.
    fn name(&self) -> String {
        let types = self.known.types.as_ref().unwrap();
        format!("{}.{}/{}", types.kind.to_lowercase(), group_of(&types.api_version), self.known.name_any())
    }

    /// The event of the pause.
    fn event(&self) -> String {
        let Self { kind: PausableKind { kind, field, value, .. }, object, known, .. } = self;
        let of = if kind == "Workload" {
            format!(" of its Workload {}", object.name_any())
        } else {
            String::new()
        };
        let (kind, name) = (&known.types.as_ref().unwrap().kind, known.name_any());
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!(
            "{kind}/{name}: Set {field}{of} to {value} because its pod's lifetime exceeded maxDuration defined in Queue"
        )
    }

    fn change(&self) -> String {
        format!("patch {}/{}", self.kind.plural, self.object.name_any())
    }

    /// Waits until it has no record any more, and asserts that its spec is what it was before the pause.
    async fn assert_back(&self, namespace: &Namespace) {
        let record = "metadata.annotations";
        let back = async || {
            let annotations = namespace.field(&self.object, record).await;
            Ok(annotations.get("tenure.dev/paused").is_none().then_some(()))
        };
        eventually(&format!("{} to be back", self.name()), DEADLINE, back).await.unwrap();
        let before = &self.object.data["spec"];
        assert_eq!(namespace.field(&self.object, "spec").await, *before, "{}", self.name());
    }
}

/// A namespace with a queue of its name in which pods expire after a second, and an object of each kind that is wanted.
async fn all(
    world: &World,
    spec: &Value,
    is_wanted: fn(&PausableKind) -> bool,
) -> (Namespace, Vec<Specimen>) {
    let namespace = Namespace::new(world).await;
    let mut queue = runai_queue(namespace.name(), "", "1s");
    queue["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    namespace.apply(&queue).await;
    let mut all = Vec::new();
    // requeue/ways has kinds that are paused by an annotation or a Command, and Workflows, whose pods are deleted as well
    let by_field = |kind: &PausableKind| kind.field.starts_with("spec.") && kind.kind != "Workflow";
    let kinds = native().into_iter().chain(pausable()).filter(by_field);
    for (number, kind) in kinds.filter(is_wanted).enumerate() {
        all.push(Specimen::new(&namespace, kind, number).await);
    }
    (namespace, all)
}

/// Lets pods run for an hour from now on.
async fn lengthen(namespace: &Namespace) {
    let queue = runai_queue(namespace.name(), "", "1h");
    let patch = json!({"spec": {"maxDuration": queue["spec"]["maxDuration"]}});
    let found = namespace.find(&serde_json::from_value(queue).unwrap()).await;
    namespace.patch(&found, &patch).await;
}

#[tokio::test]
async fn every_kind_is_paused_by_its_field_in_one_patch_with_one_event_listed_explained_and_resumed() {
    let world = world().await;
    let (namespace, all) = all(world, &json!({}), |_| true).await;
    for of in &all {
        let record = of.await_pause(&namespace).await;
        assert_eq!(
            (&record["reason"], &record["queue"]),
            (&json!("MaxDurationExceeded"), &json!(namespace.name()))
        );
        assert_eq!(record["previousValue"], of.before(), "{}", of.name());
        of.obey(&namespace).await;
    }
    let mut events: Vec<_> = all.iter().map(Specimen::event).collect();
    events.sort();
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", events.len()).await, events);
    let changes: Vec<_> = all.iter().map(Specimen::change).collect();
    audit::assert_changes(&world.cluster, namespace.name(), &changes).await;
    namespace.await_pods(&[]).await;

    let plugin = async |arguments: &[&str]| plugin_prints(world, namespace.name(), arguments).await;
    let rows: Vec<Value> = serde_json::from_str(&plugin(&["list", "-o", "json"]).await).unwrap();
    let mut listed: Vec<_> = rows
        .iter()
        .map(|row| format!("{} {}", row["state"].as_str().unwrap(), row["name"].as_str().unwrap()))
        .collect();
    let mut expected: Vec<_> = all.iter().map(|of| format!("Paused {}", of.known.name_any())).collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    let explanations = all.iter().map(async |of| (of.name(), plugin(&["explain", &of.name()]).await));
    let explanations: Vec<_> = stream::iter(explanations).buffer_unordered(AT_ONCE).collect().await;
    for (name, explanation) in explanations {
        assert!(explanation.contains("Tenure paused it at "), "{name}: {explanation}");
    }

    lengthen(&namespace).await;
    let resumed = plugin(&["resume", "--all"]).await;
    assert!(resumed.ends_with(&format!("\n{} resumed\n", all.len())), "{resumed}");
    for of in &all {
        assert!(resumed.contains(&of.name()), "{}: {resumed}", of.name());
        of.assert_back(&namespace).await;
    }
}

#[tokio::test]
async fn every_kind_comes_back_for_its_next_time_slice_as_it_was() {
    let world = world().await;
    let slices = json!({"maxDurationAction": "Requeue", "requeueDelay": "30s"});
    let (namespace, all) = all(world, &slices, |_| true).await;
    for of in &all {
        of.await_pause(&namespace).await;
    }
    lengthen(&namespace).await;
    for of in &all {
        of.obey(&namespace).await;
    }
    for of in &all {
        of.assert_back(&namespace).await;
    }
    let changes: Vec<_> = all.iter().flat_map(|of| [of.change(), of.change()]).collect();
    audit::assert_changes(&world.cluster, namespace.name(), &changes).await;
    assert_eq!(namespace.await_events_of("Requeued", all.len()).await.len(), all.len());
}

/// Kubernetes' own controllers obey, and where Kueue doesn't, its job is paused.
#[tokio::test]
async fn below_an_owner_of_any_kind_that_does_not_obey_the_pods_are_deleted_after_all_tries() {
    let world = world().await;
    let (namespace, all) = all(world, &json!({}), |kind| !is_native(kind) && kind.kind != "Workload").await;
    let mut changes = Vec::new();
    for of in &all {
        of.await_pause(&namespace).await;
        changes.extend([of.change(), format!("delete pods/{}", of.object.name_any())]);
    }
    let gone = async || Ok(namespace.pods().await.is_empty().then_some(()));
    eventually("all pods to be deleted", TRIES, gone).await.unwrap();
    audit::assert_changes(&world.cluster, namespace.name(), &changes).await;
    for of in &all {
        assert_eq!(namespace.field(&of.object, &of.kind.field).await, of.kind.value, "{}", of.name());
    }
}

/// The controller of Jobs deletes the pods itself, and a Workload that has ended runs no job.
#[tokio::test]
async fn an_owner_of_any_kind_that_has_ended_is_not_paused_and_its_pods_are_deleted() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let mut deletions = Vec::new();
    for kind in pausable().into_iter().filter(|kind| kind.kind != "Workload") {
        for status in kind.ended.clone() {
            let of = Specimen::new(&namespace, kind.clone(), deletions.len()).await;
            namespace.patch_status(&of.object, &status).await;
            deletions.push(format!("delete pods/{}", of.object.name_any()));
        }
    }
    // once all have ended
    namespace.apply(&runai_queue(namespace.name(), "", "1s")).await;
    namespace.await_pods(&[]).await;
    audit::assert_changes(&world.cluster, namespace.name(), &deletions).await;
}
