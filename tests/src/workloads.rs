//! Workloads in queues, and helpers to observe them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{LazyLock, Mutex},
};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Pod, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind, Status},
    discovery::{Scope, pinned_kind},
};
use serde_json::{Value, json};
use tenure_policy::owners::TIME;
use tenure_testbed::{Output, eventually};

use crate::{DEADLINE, World};

/// The kinds that were asked for, which are the same on all clusters: discovery costs as much as the request that follows.
static KINDS: LazyLock<Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>> =
    LazyLock::new(Mutex::default);

/// A tensorstack queue in the system namespace.
pub fn queue(name: &str, max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduler.tensorstack.dev/v1beta1", "kind": "Queue",
        "metadata": {"name": name, "namespace": "t9k-system"}, "spec": {"maxDuration": max_duration},
    })
}

/// A queue of the run.ai family.
pub fn runai_queue(name: &str, parent: &str, max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue",
        "metadata": {"name": name}, "spec": {"parentQueue": parent, "maxDuration": max_duration},
    })
}

/// A label that puts a pod into a tensorstack queue.
pub fn in_queue(name: &str) -> Value {
    json!({"scheduler.tensorstack.dev/queue": name})
}

/// A label that puts a pod into a queue of the run.ai family.
pub fn in_runai_queue(name: &str) -> Value {
    json!({"kai.scheduler/queue": name})
}

/// A pod template: labels beside the selector's, and more fields of its spec.
fn template(labels: &Value, spec: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "test"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
    });
    merge(&mut template["metadata"]["labels"], labels);
    merge(&mut template["spec"], spec);
    template
}

fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        target[key] = value.clone();
    }
}

/// An object that has a pod template, of any native kind.
pub fn workload(kind: &str, namespace: &str, name: &str, labels: &Value, pod_spec: &Value) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let mut object = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": template(labels, pod_spec)},
    });
    match kind {
        "Job" => object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never"),
        _ => object["spec"]["selector"] = json!({"matchLabels": {"app": "test"}}),
    }
    if kind != "Job" && kind != "DaemonSet" {
        object["spec"]["replicas"] = json!(2);
    }
    object
}

/// A pod without an owner.
pub fn bare_pod(namespace: &str, name: &str, labels: &Value, pod_spec: &Value) -> Value {
    let mut pod = template(labels, pod_spec);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// A reference to an object that exists, as the one that controls.
pub fn controller(owner: &DynamicObject) -> OwnerReference {
    OwnerReference { controller: Some(true), ..reference(owner) }
}

/// A reference to an object that exists, as one of several that merely own.
pub fn reference(owner: &DynamicObject) -> OwnerReference {
    let types = owner.types.clone().expect("it has a kind");
    OwnerReference {
        api_version: types.api_version,
        kind: types.kind,
        name: owner.name_any(),
        uid: owner.uid().expect("it has a uid"),
        ..OwnerReference::default()
    }
}

/// The same object with owners.
pub fn owned(mut object: Value, owners: &[OwnerReference]) -> Value {
    object["metadata"]["ownerReferences"] = json!(owners);
    object
}

/// The same workload with pods of its own, where others are in the namespace.
pub fn distinct(mut object: Value, app: &str) -> Value {
    for labels in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(labels) {
            labels["app"] = json!(app);
        }
    }
    object
}

/// The event of a pause.
pub fn pause_event(owner: &DynamicObject, field: &str, value: &str) -> String {
    let OwnerReference { kind, name, .. } = reference(owner);
    format!(
        "{kind}/{name}: Set {field} to {value} because its pod's lifetime exceeded maxDuration defined in Queue"
    )
}

/// The event of the deletion of a pod.
pub fn deletion_event(pod: &str) -> String {
    format!("Pod/{pod}: Deleted because its lifetime exceeded maxDuration defined in Queue")
}

/// Returns the object, or the API server's refusal.
fn answer(result: kube::Result<DynamicObject>) -> Result<DynamicObject, Box<Status>> {
    match result {
        Err(kube::Error::Api(status)) => Err(status),
        other => Ok(other.expect("the API server answers")),
    }
}

/// A namespace and its objects.
pub struct Namespace {
    client: Client,
    name: String,
}

impl Namespace {
    /// Looks into a namespace.
    pub fn of(world: &World, name: &str) -> Self {
        Self::seen_by(world.cluster.client().expect("a client"), name)
    }

    /// Looks into a namespace with the rights of a client.
    pub fn seen_by(client: Client, name: &str) -> Self {
        Self { client, name: name.into() }
    }

    /// A new one.
    pub async fn new(world: &World) -> Self {
        Self::of(world, &world.namespace().await)
    }

    /// A new one with this name.
    pub async fn named(world: &World, name: &str) -> Self {
        let kubectl = async |arguments: &[&str]| {
            world.cluster.kubectl(arguments).await.and_then(Output::success).expect("kubectl succeeds")
        };
        kubectl(&["create", "namespace", name]).await;
        // without it pods are refused
        kubectl(&["wait", "--for=create", "serviceaccount/default", "--timeout=1m", "-n", name]).await;
        Self::of(world, name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an object that must be accepted, of any kind that is served.
    pub async fn create(&self, object: &Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let api = self.api(&object).await;
        let create = async || match api.create(&PostParams::default(), &object).await {
            // the API server's admission knows a class only when its watch has told of it
            Err(kube::Error::Api(status)) if status.message.contains("no PriorityClass with name") => {
                Ok(None)
            }
            created => Ok(Some(created.expect("it is accepted"))),
        };
        eventually("its class to be known", DEADLINE, create).await.expect("it is accepted")
    }

    /// Creates an object, or makes it what this says.
    pub async fn apply(&self, object: &Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let apply = PatchParams::apply("tenure-tests").force().validation_strict();
        let applied = self.api(&object).await.patch(&object.name_any(), &apply, &Patch::Apply(&object)).await;
        applied.expect("it is accepted")
    }

    /// Merges a patch into an object.
    pub async fn patch(&self, object: &DynamicObject, patch: &Value) -> DynamicObject {
        self.try_patch(object, patch).await.expect("it can be patched")
    }

    /// Merges a patch into an object, which the API server may refuse.
    pub async fn try_patch(
        &self,
        object: &DynamicObject,
        patch: &Value,
    ) -> Result<DynamicObject, Box<Status>> {
        let (api, how) = (self.api(object).await, PatchParams::default());
        answer(api.patch(&object.name_any(), &how, &Patch::Merge(patch)).await)
    }

    /// Merges a patch into a subresource of an object, such as `status`, which the API server may refuse.
    pub async fn try_patch_subresource(
        &self,
        object: &DynamicObject,
        subresource: &str,
        patch: &Value,
    ) -> Result<DynamicObject, Box<Status>> {
        let (api, how) = (self.api(object).await, PatchParams::default());
        answer(api.patch_subresource(subresource, &object.name_any(), &how, &Patch::Merge(patch)).await)
    }

    /// Creates an object, which the API server may refuse.
    pub async fn try_create(&self, object: &Value) -> Result<DynamicObject, Box<Status>> {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        answer(self.api(&object).await.create(&PostParams::default(), &object).await)
    }

    /// Merges a patch into the status of an object.
    pub async fn patch_status(&self, object: &DynamicObject, status: &Value) {
        let (api, how) = (self.api(object).await, PatchParams::default());
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&object.name_any(), &how, &patch).await.expect("its status can be patched");
    }

    /// Asks for the deletion of an object.
    pub async fn delete(&self, object: &DynamicObject) {
        let delete = self.api(object).await.delete(&object.name_any(), &DeleteParams::background()).await;
        delete.expect("it can be deleted");
    }

    /// The object as it is now, if it still is the same one.
    pub async fn get(&self, object: &DynamicObject) -> Option<DynamicObject> {
        let now = self.api(object).await.get_opt(&object.name_any()).await.expect("it can be read");
        now.filter(|now| now.uid() == object.uid())
    }

    /// Returns the object of this kind and name, with any uid.
    pub async fn find(&self, object: &DynamicObject) -> DynamicObject {
        self.api(object).await.get(&object.name_any()).await.expect("it is there")
    }

    /// The same, if it is there.
    pub async fn try_find(&self, object: &DynamicObject) -> Option<DynamicObject> {
        self.api(object).await.get_opt(&object.name_any()).await.expect("it can be read")
    }

    /// Returns the present value of a field of the object, by a path with dots; null if it is absent.
    pub async fn field(&self, object: &DynamicObject, path: &str) -> Value {
        let now = serde_json::to_value(self.get(object).await).expect("JSON");
        path.split('.').fold(&now, |value, key| value.get(key).unwrap_or(&Value::Null)).clone()
    }

    async fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().expect("it has a kind");
        let kind = GroupVersionKind::try_from(types).expect("a group, a version and a kind");
        let known = KINDS.lock().expect("no test panics here").get(&kind).cloned();
        let (resource, scope) = match known {
            Some(known) => known,
            None => self.discover(kind).await,
        };
        let client = self.client.clone();
        match scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| self.name.clone());
                Api::namespaced_with(client, &namespace, &resource)
            }
        }
    }

    async fn discover(&self, kind: GroupVersionKind) -> (ApiResource, Scope) {
        // the API server serves it a moment after its definition was stored
        let served = async || Ok(Some(pinned_kind(&self.client, &kind).await?));
        let (resource, capabilities) = eventually("the kind to be served", DEADLINE, served).await.unwrap();
        let found = (resource, capabilities.scope);
        KINDS.lock().expect("no test panics here").insert(kind, found.clone());
        found
    }

    /// Creates objects without a spec, `(apiVersion, kind)`, each controlled by the one before it.
    pub async fn chain(&self, kinds: &[(&str, &str)]) -> Vec<DynamicObject> {
        let mut chain = Vec::new();
        for (api_version, kind) in kinds {
            let above: Vec<_> = chain.last().map(controller).into_iter().collect();
            let object = json!({
                "apiVersion": api_version, "kind": kind, "spec": {},
                "metadata": {"name": kind.to_lowercase(), "namespace": self.name},
            });
            chain.push(self.create(&owned(object, &above)).await);
        }
        chain
    }

    /// Creates a pod in a tensorstack queue that an object controls.
    pub async fn pod_of(&self, owner: &DynamicObject, name: &str, queue: &str) -> DynamicObject {
        let pod = distinct(bare_pod(&self.name, name, &in_queue(queue), &Value::Null), name);
        self.create(&owned(pod, &[controller(owner)])).await
    }

    /// The live pods, by uid.
    pub async fn pods(&self) -> Vec<String> {
        let list = self.list_pods().await.expect("pods can be listed");
        list.iter().filter_map(ResourceExt::uid).collect()
    }

    /// The names of the live pods.
    pub async fn pod_names(&self) -> BTreeSet<String> {
        let list = self.list_pods().await.expect("pods can be listed");
        list.iter().map(ResourceExt::name_any).collect()
    }

    /// Returns the creation times of the live pods.
    pub async fn created(&self) -> Vec<Timestamp> {
        let list = self.list_pods().await.expect("pods can be listed");
        list.iter().filter_map(ResourceExt::creation_timestamp).map(|time| time.0).collect()
    }

    async fn list_pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        Ok(pods.list(&ListParams::default()).await?.items)
    }

    /// Waits until exactly these pods are left.
    pub async fn await_pods(&self, names: &[&str]) {
        let expected: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        let left = async || Ok((self.pod_names().await == expected).then_some(()));
        eventually(&format!("pods {names:?} alone to be left"), DEADLINE, left).await.expect("they are");
    }

    /// Waits until so many pods are there and all run.
    pub async fn await_running(&self, count: usize) {
        let running = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        let all = async || {
            let pods = self.list_pods().await?;
            Ok((pods.len() == count && pods.iter().all(running)).then_some(()))
        };
        eventually("all pods to run", DEADLINE, all).await.expect("pods run");
    }

    /// The objects of all `MaxDurationExceeded` events, as `Kind/name: note`.
    pub async fn events(&self) -> Vec<String> {
        self.events_of("MaxDurationExceeded").await
    }

    /// The objects of all events for a reason, as `Kind/name: note`.
    pub async fn events_of(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.name);
        let of_reason = ListParams::default().fields(&format!("reason={reason}"));
        let list = events.list(&of_reason).await.expect("events can be listed");
        let told = |event: &Event| {
            let object = event.regarding.clone().unwrap_or_default();
            let (kind, name) = (object.kind.unwrap_or_default(), object.name.unwrap_or_default());
            format!("{kind}/{name}: {}", event.note.as_deref().unwrap_or_default())
        };
        list.items.iter().map(told).collect()
    }

    /// Waits until there are so many `MaxDurationExceeded` events, or more.
    pub async fn await_events(&self, count: usize) {
        self.await_events_of("MaxDurationExceeded", count).await;
    }

    /// Waits until there are so many events for a reason, or more; returns them in alphabetical order.
    pub async fn await_events_of(&self, reason: &str, count: usize) -> Vec<String> {
        let enough = async || Ok(Some(self.events_of(reason).await).filter(|events| events.len() >= count));
        let events = eventually(&format!("{count} events of {reason}"), DEADLINE, enough).await;
        let mut events = events.expect("there are events");
        events.sort();
        events
    }

    /// Waits until a native workload is paused; returns the record of the pause.
    pub async fn await_paused(&self, kind: &str, name: &str) -> Value {
        let what = format!("{kind} {name} to be paused");
        let record = eventually(&what, DEADLINE, async || Ok(self.pause(kind, name).await)).await;
        record.expect("it is paused")
    }

    /// The record of a pause; none if the native workload isn't paused.
    pub async fn pause(&self, kind: &str, name: &str) -> Option<Value> {
        let (version, field, value) = match kind {
            "Job" => ("batch/v1", "spec.suspend", json!(true)),
            _ => ("apps/v1", "spec.replicas", json!(0)),
        };
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let found = self.api(&object).await.get(name).await.ok()?;
        self.pause_of(&found, field, &value).await
    }

    /// Waits until an object's field has the value that pauses; returns the record of the pause.
    pub async fn await_pause_of(&self, object: &DynamicObject, field: &str, value: &Value) -> Value {
        let what = format!("{} to have {field} {value} and a record of it", object.name_any());
        let record = async || Ok(self.pause_of(object, field, value).await);
        eventually(&what, DEADLINE, record).await.expect("it is paused")
    }

    /// The record of a pause; none if the object isn't paused.
    pub async fn pause_of(&self, object: &DynamicObject, field: &str, value: &Value) -> Option<Value> {
        let record = self.get(object).await?.annotations().get("tenure.dev/paused")?.clone();
        let record: Value = serde_json::from_str(&record).expect("the record is JSON");
        // of a pause that sets a time, the record says which
        let set = if *value == TIME { &record["value"] } else { value };
        (self.field(object, field).await == *set && record["field"] == field).then_some(record)
    }
}
