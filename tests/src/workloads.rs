//! Workloads in queues, and helpers to observe them. Manifests are JSON values, and [`Namespace`]
//! creates and reads objects of any kind. Most helpers panic if the API server refuses; those that
//! begin with `try_` return the refusal.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{LazyLock, Mutex},
};

use anyhow::Result;
use http::{Request, header::CONTENT_TYPE};
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
use tenure_policy::owner_table::TIME;
use tenure_testbed::eventually;

use crate::{
    DEADLINE, World,
    queues::{self, Answer},
};

/// The kinds that were asked for, which are the same on all clusters: discovery costs as much as
/// the request that follows.
static KINDS: LazyLock<Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>> =
    LazyLock::new(Mutex::default);

/// Returns a tensorstack queue in the system namespace.
pub fn queue(name: &str, max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduler.tensorstack.dev/v1beta1", "kind": "Queue",
        "metadata": {"name": name, "namespace": "t9k-system"}, "spec": {"maxDuration": max_duration},
    })
}

/// Returns a queue of the run.ai family. `parent` may be empty.
pub fn runai_queue(name: &str, parent: &str, max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue",
        "metadata": {"name": name}, "spec": {"parentQueue": parent, "maxDuration": max_duration},
    })
}

/// Returns the label that puts a pod into a tensorstack queue.
pub fn in_queue(name: &str) -> Value {
    json!({"scheduler.tensorstack.dev/queue": name})
}

/// Returns the label that puts a pod into a queue of the run.ai family.
pub fn in_runai_queue(name: &str) -> Value {
    json!({"kai.scheduler/queue": name})
}

/// Returns a pod template, with labels beside the selector's, and more fields of its spec.
fn template(labels: &Value, spec: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "test"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
    });
    merge(&mut template["metadata"]["labels"], labels);
    merge(&mut template["spec"], spec);
    template
}

/// Sets the fields of an object, one level deep.
fn merge(target: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        target[key] = value.clone();
    }
}

/// Returns an object of a native kind that has a pod template: a Job, or a kind of `apps/v1`.
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

/// Returns a pod without an owner.
pub fn bare_pod(namespace: &str, name: &str, labels: &Value, pod_spec: &Value) -> Value {
    let mut pod = template(labels, pod_spec);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// Returns a reference to an object that exists, as the controller.
pub fn controller(owner: &DynamicObject) -> OwnerReference {
    OwnerReference { controller: Some(true), ..reference(owner) }
}

/// Returns a reference to an object that exists, as an owner that doesn't control.
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

/// Returns the same object with owners.
pub fn owned(mut object: Value, owners: &[OwnerReference]) -> Value {
    object["metadata"]["ownerReferences"] = json!(owners);
    object
}

/// Returns the same workload with pods of its own, where other workloads are in the namespace.
pub fn distinct(mut object: Value, app: &str) -> Value {
    for labels in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        if let Some(labels) = object.pointer_mut(labels) {
            labels["app"] = json!(app);
        }
    }
    object
}

/// Returns the text of the event of a pause, as [`Namespace::events`] returns it.
pub fn pause_event(owner: &DynamicObject, field: &str, value: &str) -> String {
    let OwnerReference { kind, name, .. } = reference(owner);
    format!(
        "{kind}/{name}: Set {field} to {value} because its pod's lifetime exceeded maxDuration defined in Queue"
    )
}

/// Returns the text of the event of the deletion of a pod, as [`Namespace::events`] returns it.
pub fn deletion_event(pod: &str) -> String {
    format!("Pod/{pod}: Deleted because its lifetime exceeded maxDuration defined in Queue")
}

/// Returns the value of a field of an object, by a path with dots. Null: it is absent.
fn field_of(object: Option<&DynamicObject>, path: &str) -> Value {
    let object = serde_json::to_value(object).expect("JSON");
    path.split('.').fold(&object, |value, key| value.get(key).unwrap_or(&Value::Null)).clone()
}

/// Returns the record of a pause on an object. None: the object isn't paused by this field and
/// value.
fn record_of(object: &DynamicObject, field: &str, value: &Value) -> Option<Value> {
    let record = object.annotations().get("tenure.dev/paused")?;
    let record: Value = serde_json::from_str(record).expect("the record is JSON");
    // the record says which time a pause has set
    let set = if *value == TIME { &record["value"] } else { value };
    (field_of(Some(object), field) == *set && record["field"] == field).then_some(record)
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
    /// Looks into a namespace as an administrator.
    pub fn of(world: &World, name: &str) -> Self {
        Self::seen_by(world.cluster.client().expect("a client"), name)
    }

    /// Looks into a namespace with the rights of a client.
    pub fn seen_by(client: Client, name: &str) -> Self {
        Self { client, name: name.into() }
    }

    /// Creates a namespace with a new name.
    pub async fn new(world: &World) -> Self {
        Self::of(world, &world.namespace().await)
    }

    /// Creates a namespace with this name.
    pub async fn named(world: &World, name: &str) -> Self {
        world.create_namespace(name).await;
        Self::of(world, name)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Creates an object that must be accepted, of any kind that is served. Waits until the API
    /// server knows the object's `PriorityClass`.
    pub async fn create(&self, object: &Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let api = self.api(&object).await;
        let create = async || match api.create(&PostParams::default(), &object).await {
            // the API server's admission knows a class only when its watch has shown it
            Err(kube::Error::Api(status)) if status.message.contains("no PriorityClass with name") => {
                Ok(None)
            }
            created => Ok(Some(created.expect("it is accepted"))),
        };
        eventually("its class to be known", DEADLINE, create).await.expect("it is accepted")
    }

    /// Creates an object, or changes it to this state, by server-side apply. Waits until the cluster
    /// serves its kind, which may be known from another cluster.
    pub async fn apply(&self, object: &Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let how = PatchParams::apply("tenure-tests").force().validation_strict();
        let (api, name) = (self.api(&object).await, object.name_any());
        let apply = async || match api.patch(&name, &how, &Patch::Apply(&object)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Err(anyhow::Error::from(kube::Error::Api(status)))
            }
            applied => Ok(Some(applied.expect("it is accepted"))),
        };
        eventually("its kind to be served", DEADLINE, apply).await.expect("it is accepted")
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

    /// Applies the operations of a JSON patch to an object, which the API server may refuse.
    pub async fn try_json_patch(
        &self,
        object: &DynamicObject,
        operations: &Value,
    ) -> Result<DynamicObject, Box<Status>> {
        let path = format!("{}/{}", self.api(object).await.resource_url(), object.name_any());
        let request = Request::patch(path).header(CONTENT_TYPE, "application/json-patch+json");
        let request = request.body(operations.to_string().into_bytes()).expect("a request");
        answer(self.client.request(request).await)
    }

    /// Merges a patch into a subresource of an object, such as `status`, which the API server may
    /// refuse.
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

    /// Tries a creation that stores nothing. An error is the refusal.
    pub async fn try_dry_run(&self, object: &Value) -> Result<(), String> {
        let (_, answer) = self.dry_run(object).await;
        answer.map(drop)
    }

    /// Tries a creation that stores nothing, with strict validation, as by kubectl.
    pub async fn dry_run(&self, object: &Value) -> Answer {
        // the future is large, and would be in every future around it
        Box::pin(async {
            let api = self.api(&serde_json::from_value(object.clone()).expect("an object")).await;
            let request = Request::post(format!("{}?dryRun=All&fieldValidation=Strict", api.resource_url()));
            queues::send(&self.client, request.header(CONTENT_TYPE, "application/json"), object).await
        })
        .await
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

    /// Returns the object as it is now. None: it is gone, or replaced by another of the same name.
    pub async fn get(&self, object: &DynamicObject) -> Option<DynamicObject> {
        let now = self.api(object).await.get_opt(&object.name_any()).await.expect("it can be read");
        now.filter(|now| now.uid() == object.uid())
    }

    /// Returns the object of this kind and name, with any uid, which must exist.
    pub async fn find(&self, object: &DynamicObject) -> DynamicObject {
        self.api(object).await.get(&object.name_any()).await.expect("it is there")
    }

    /// Returns the object of this kind and name, with any uid. None: it doesn't exist.
    pub async fn try_find(&self, object: &DynamicObject) -> Option<DynamicObject> {
        self.api(object).await.get_opt(&object.name_any()).await.expect("it can be read")
    }

    /// Returns the present value of a field of the object, by a path with dots. Null: it is absent.
    pub async fn field(&self, object: &DynamicObject, path: &str) -> Value {
        field_of(self.get(object).await.as_ref(), path)
    }

    /// Returns the API of an object's kind, in the object's own namespace if it has one.
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

    /// Asks for a kind, and waits until it is served.
    async fn discover(&self, kind: GroupVersionKind) -> (ApiResource, Scope) {
        // the API server serves a kind a moment after its definition was stored
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

    /// Returns the uids of the live pods.
    pub async fn pods(&self) -> Vec<String> {
        let list = self.list_pods().await.expect("pods can be listed");
        list.iter().filter_map(ResourceExt::uid).collect()
    }

    /// Returns the names of the live pods.
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

    /// Waits until exactly `count` pods are there and all run.
    pub async fn await_running(&self, count: usize) {
        let running = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running"));
        let all = async || {
            let pods = self.list_pods().await?;
            Ok((pods.len() == count && pods.iter().all(running)).then_some(()))
        };
        eventually("all pods to run", DEADLINE, all).await.expect("pods run");
    }

    /// Returns all `MaxDurationExceeded` events, as `Kind/name: note`.
    pub async fn events(&self) -> Vec<String> {
        self.events_of("MaxDurationExceeded").await
    }

    /// Returns all events for a reason, as `Kind/name: note`.
    pub async fn events_of(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.name);
        let of_reason = ListParams::default().fields(&format!("reason={reason}"));
        let list = events.list(&of_reason).await.expect("events can be listed");
        let line = |event: &Event| {
            let object = event.regarding.clone().unwrap_or_default();
            let (kind, name) = (object.kind.unwrap_or_default(), object.name.unwrap_or_default());
            format!("{kind}/{name}: {}", event.note.as_deref().unwrap_or_default())
        };
        list.items.iter().map(line).collect()
    }

    /// Waits until there are at least `count` `MaxDurationExceeded` events.
    pub async fn await_events(&self, count: usize) {
        self.await_events_of("MaxDurationExceeded", count).await;
    }

    /// Waits until there are at least `count` events for a reason. Returns the events in
    /// alphabetical order.
    pub async fn await_events_of(&self, reason: &str, count: usize) -> Vec<String> {
        let enough = async || Ok(Some(self.events_of(reason).await).filter(|events| events.len() >= count));
        let events = eventually(&format!("{count} events of {reason}"), DEADLINE, enough).await;
        let mut events = events.expect("there are events");
        events.sort();
        events
    }

    /// Waits until a native workload is paused. Returns the record of the pause.
    pub async fn await_paused(&self, kind: &str, name: &str) -> Value {
        let what = format!("{kind} {name} to be paused");
        let record = eventually(&what, DEADLINE, async || Ok(self.pause(kind, name).await)).await;
        record.expect("it is paused")
    }

    /// Returns the record of a pause. None: the native workload isn't paused.
    pub async fn pause(&self, kind: &str, name: &str) -> Option<Value> {
        let (version, field, value) = match kind {
            "Job" => ("batch/v1", "spec.suspend", json!(true)),
            _ => ("apps/v1", "spec.replicas", json!(0)),
        };
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let found = self.api(&object).await.get(name).await.ok()?;
        record_of(&found, field, &value)
    }

    /// Waits until an object's field has the value that pauses. Returns the record of the pause.
    pub async fn await_pause_of(&self, object: &DynamicObject, field: &str, value: &Value) -> Value {
        let what = format!("{} to have {field} {value} and a record of it", object.name_any());
        let record = async || Ok(self.pause_of(object, field, value).await);
        eventually(&what, DEADLINE, record).await.expect("it is paused")
    }

    /// Returns the record of a pause. None: the object isn't paused by this field and value.
    pub async fn pause_of(&self, object: &DynamicObject, field: &str, value: &Value) -> Option<Value> {
        record_of(&self.get(object).await?, field, value)
    }
}
