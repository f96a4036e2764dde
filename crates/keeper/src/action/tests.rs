//! Acts on due pods, by the answers of the API server.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use http::{Method, Request, Response, Uri};
use http_body_util::Limited;
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::json;
use tenure_index::{DuePod, Uid};
use tenure_policy::{config::Config, expiry::Family, judge::TRIES, ready::Cause};
use tenure_service::clock::ServerClock;
use tenure_types::{runai::v3alpha1::QueueSpec, tensorstack::v1beta1};
use tokio::time::Instant;

use super::*;
use crate::testing;

mod changes;
mod deletion;
mod events;
mod kueue;
mod reversal;
mod tries;
mod writes;

const DEPLOYMENT: &str = "deployments/web";
const SET: &str = "replicasets/web-1";
const POD: &str = "pods/web-1-a";

/// The queues of each family, as lists.
const T9K_QUEUES: &str = "t9k-system/queues";
const RUNAI_QUEUES: &str = "v3alpha1/queues";

/// The most bytes of a page of several objects: a bound as that of the keeper's client, and smaller.
const MOST_BYTES: usize = 100_000;

/// An API server with a pod in queue demo, which has a ceiling of a second, its ReplicaSet and its Deployment.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<&'static str, Value>,
    /// The requests that it refuses, with the status.
    refused: BTreeMap<(Method, &'static str), u16>,
    /// The number of requests that it has refused.
    refusals: usize,
    /// Objects that will be gone, with the number of reads before that.
    reads: BTreeMap<&'static str, u32>,
    /// The changes since they were last asked for.
    changes: Vec<String>,
    /// The time that a list of extensions or Workloads takes, and the times at which one of extensions began.
    listing: Duration,
    listed: Vec<Instant>,
    /// The time that the dry run of a deletion takes.
    dry_run: Duration,
    /// The status with which the next dry run of a deletion fails.
    refused_dry_run: Option<u16>,
    /// The time at which the Deployment was last read, and the times from there to each of its patches.
    read: Option<Instant>,
    gaps: Vec<Duration>,
}

impl Server {
    fn new() -> Self {
        let of = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
        let object = |api_version: &str, kind: &str, name: &str, owners: Value, spec: Value| {
            let metadata = json!({
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "ownerReferences": owners,
            });
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
        };
        let replicas = json!({"replicas": 1});
        let in_queue = json!({"metadata": {
            "labels": {"scheduler.tensorstack.dev/queue": "demo"}, "creationTimestamp": "2026-01-01T00:00:00Z",
        }});
        let mut pod = object("v1", "Pod", "web-1-a", of("ReplicaSet", "web-1"), json!({"containers": []}));
        json_patch::merge(&mut pod, &in_queue);
        let objects = [
            (T9K_QUEUES, queues(&[("demo", json!({"maxDuration": "1s"}))])),
            (DEPLOYMENT, object("apps/v1", "Deployment", "web", json!([]), replicas.clone())),
            (SET, object("apps/v1", "ReplicaSet", "web-1", of("Deployment", "web"), replicas)),
            (POD, pod),
        ];
        Self(Arc::new(Mutex::new(State { objects: objects.into(), ..State::default() })))
    }

    fn refuse(&self, method: Method, object: &'static str, status: u16) {
        self.0.lock().refused.insert((method, object), status);
    }

    /// Replaces the queues of a family.
    fn set_queues(&self, family: &'static str, list: &[(&str, Value)]) {
        self.0.lock().objects.insert(family, queues(list));
    }

    /// Removes an object after `reads` reads of it.
    fn lose_after(&self, object: &'static str, reads: u32) {
        self.0.lock().reads.insert(object, reads);
    }

    /// Changes an object as another writer would.
    fn merge(&self, object: &str, patch: &Value) {
        json_patch::merge(self.0.lock().objects.get_mut(object).unwrap(), patch);
    }

    fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().changes)
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let takes = server.0.lock().note(&parts.method, &parts.uri);
                tokio::time::sleep(takes).await;
                let (status, body) = server.0.lock().answer(&parts.method, &parts.uri, &body);
                let response = Response::builder().status(status).header("content-type", "application/json");
                let is_page =
                    number(parts.uri.query().unwrap_or_default(), "limit=").is_some_and(|limit| limit > 1);
                let most = if is_page { MOST_BYTES } else { usize::MAX };
                let body = Limited::new(Body::from(body.to_string().into_bytes()), most);
                Ok::<_, Infallible>(response.body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

impl State {
    /// Notes a request; returns the time that it takes.
    fn note(&mut self, method: &Method, uri: &Uri) -> Duration {
        let path = uri.path();
        if path.ends_with("/extensions") {
            self.listed.push(Instant::now());
            return self.listing;
        }
        if path.ends_with("/workloads") {
            return self.listing;
        }
        if path.ends_with(DEPLOYMENT) {
            if *method == Method::GET {
                self.read = Some(Instant::now());
            } else {
                self.gaps.extend(self.read.map(|read| read.elapsed()));
            }
        }
        if is_dry_run(uri) { self.dry_run } else { Duration::ZERO }
    }

    fn answer(&mut self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, Value) {
        let path = uri.path();
        if path == "/apis/apps/v1" {
            return (200, resources());
        }
        for (object, left) in self.reads.iter_mut().filter(|(object, _)| path.ends_with(**object)) {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => drop(self.objects.remove(object)),
            }
        }
        let Some((object, state)) = self.objects.iter_mut().find(|(object, _)| path.ends_with(*object))
        else {
            return status(404);
        };
        if let Some(code) = self.refused.get(&(method.clone(), object)) {
            self.refusals += 1;
            return status(*code);
        }
        match *method {
            Method::PATCH => {
                let change: Value = serde_json::from_slice(body).unwrap();
                if change["metadata"]["resourceVersion"] != state["metadata"]["resourceVersion"] {
                    return status(409);
                }
                json_patch::merge(state, &change);
            }
            Method::DELETE if is_dry_run(uri) => {
                return self.refused_dry_run.take().map_or_else(|| (200, state.clone()), status);
            }
            Method::DELETE if state["kind"] != "Pod" => {
                let options: Value = serde_json::from_slice(body).unwrap();
                let (conditions, metadata) = (&options["preconditions"], &state["metadata"]);
                if ["uid", "resourceVersion"].iter().any(|key| conditions[*key] != metadata[*key]) {
                    return status(409);
                }
                self.changes.push(format!("{method} {object} {}", options["propagationPolicy"]));
                return (200, state.clone());
            }
            Method::DELETE => {}
            _ => return (200, selected(state, uri.query().unwrap_or_default())),
        }
        self.changes.push(format!("{method} {object}"));
        (200, state.clone())
    }
}

fn is_dry_run(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("dryRun=All"))
}

/// Returns an object or, of a list, the page that the query asks for of the items whose name it selects.
fn selected(object: &Value, query: &str) -> Value {
    let mut object = object.clone();
    let name = query.split("metadata.name%3D").nth(1).and_then(|rest| rest.split('&').next());
    let (from, limit) = (number(query, "continue=").unwrap_or(0), number(query, "limit=").unwrap_or(1_000));
    let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) else { return object };
    items.retain(|item| name.is_none_or(|name| item["metadata"]["name"] == name));
    items.drain(..from);
    if items.len() > limit {
        items.truncate(limit);
        object["metadata"]["continue"] = (from + limit).to_string().into();
    }
    object
}

/// Returns the value of a parameter of a query, which is given with its `=`.
fn number(query: &str, parameter: &str) -> Option<usize> {
    query.split('&').find_map(|of| of.strip_prefix(parameter)?.parse().ok())
}

/// A list of queues, by name and spec.
fn queues(queues: &[(&str, Value)]) -> Value {
    let item = |(name, spec): &(&str, Value)| json!({"metadata": {"name": name}, "spec": spec});
    json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": queues.iter().map(item).collect::<Vec<_>>()})
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str| {
        json!({
            "name": name, "singularName": "", "kind": kind, "namespaced": true, "verbs": ["get", "patch"],
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1",
        "resources": [resource("deployments", "Deployment"), resource("replicasets", "ReplicaSet")],
    })
}

fn status(code: u16) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": ""}),
    )
}

fn pauser(server: &Server) -> Pauser {
    let clock = ServerClock::starting_at("2026-02-01T00:00:00Z".parse().unwrap());
    let handles = Arc::new(testing::handles(server.client(), clock, Config::default()));
    let demo: v1beta1::QueueSpec = serde_json::from_value(json!({"maxDuration": "1s"})).unwrap();
    handles.cluster.with(|index| index.apply_queue("demo", &demo));
    Pauser::new(handles, Scope::default())
}

/// Returns the handles to change.
fn handles(pauser: &mut Pauser) -> &mut Handles {
    Arc::get_mut(&mut pauser.handles).unwrap()
}

/// Shows the pod to the index, as its watch would.
fn show_pod(pauser: &Pauser, server: &Server) {
    let pod = server.0.lock().objects[POD].clone();
    pauser.handles.cluster.with(|index| index.apply_pod(&serde_json::from_value(pod).unwrap()));
}

/// A batch with the pod, after `attempts` tries.
fn due(attempts: u8) -> DueBatch {
    let first = DuePod {
        uid: Uid::of("web-1-a"),
        namespace: "ns".into(),
        name: "web-1-a".into(),
        family: Family::Tensorstack,
        queue: "demo".into(),
        deadline: Timestamp::UNIX_EPOCH,
        since: Timestamp::UNIX_EPOCH,
        handed_out: Timestamp::UNIX_EPOCH,
        cause: Cause::WaitForStart,
        announced_end: None,
        attempts,
        outlives: false,
    };
    DueBatch { task: Task::Expire, first, rest: Vec::new() }
}

/// Acts; returns the events, first those from before the act.
async fn events(pauser: &Pauser, group: &DueBatch) -> Vec<EventRecord> {
    let done = pauser.act(group).await.unwrap_or_else(|failure| panic!("{failure}"));
    let before = std::iter::from_fn(|| pauser.handles.events.written());
    before.chain(done.events).collect()
}

/// Returns the action, and the changes that the API server saw.
async fn act(pauser: &Pauser, server: &Server, attempts: u8) -> (String, Vec<String>) {
    act_on(pauser, server, &due(attempts)).await
}

async fn act_on(pauser: &Pauser, server: &Server, group: &DueBatch) -> (String, Vec<String>) {
    let done = pauser.act(group).await;
    let result = match done.map(|done| done.act) {
        Ok(Act::Pause(owner, _)) => format!("paused {}", owner.kind),
        Ok(Act::DeletePod(_)) => "deleted".into(),
        Ok(Act::DeleteOwner(deletion)) => format!("deleted {}", deletion.owner.kind),
        Ok(Act::PausedBefore) => "paused before".into(),
        Ok(Act::Command(owner, action)) => format!("send {action} to {}", owner.kind),
        Ok(Act::Extended) => "extended".into(),
        Ok(Act::Leave(why, _)) => why.into(),
        Ok(Act::PutOff(why, _)) => format!("put off: {why}"),
        Ok(Act::TooEarly) => "too early".into(),
        Ok(Act::Exempt | Act::Announce(_) | Act::Forbidden(_)) => "something else".into(),
        Err(failure) => {
            // the deadline was long ago
            assert!(failure.counts_as_try(true), "{failure}");
            format!("failed: {failure}")
        }
    };
    (result, server.changes())
}

fn saw(result: &str, changes: &[&str]) -> (String, Vec<String>) {
    (result.into(), changes.iter().map(ToString::to_string).collect())
}

const DELETED: &str = "DELETE pods/web-1-a";

/// A configuration by which Deployments are deleted at their ceiling.
fn deletes() -> Config {
    let row = "owners: [{group: apps, kind: Deployment, path: spec.replicas, value: 0, onExpiry: Delete}]";
    Config::parse(row).unwrap()
}

const DELETED_OWNER: &str = "DELETE deployments/web \"Background\"";

/// An owner that runs, although it bears the record of a pause that followed `full` full reversals.
/// Its pod was scheduled after that pause, in a queue of this spec.
fn undone(full: u32, scheduled: &str, spec: Value) -> (Server, Pauser, DueBatch) {
    let server = Server::new();
    let record = json!({
        "reason": "MaxDurationExceeded", "at": "2026-01-02T03:04:05.678Z", "queue": "q", "field": "spec.replicas",
        "value": 0, "previousValue": 1, "reversals": full, "fullReversals": full,
    });
    let managed = json!([{
        "manager": "argocd", "operation": "Update", "time": "2026-01-02T03:04:06Z",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }]);
    let metadata =
        json!({"annotations": {"tenure.dev/paused": record.to_string()}, "managedFields": managed});
    server.merge(DEPLOYMENT, &json!({"metadata": metadata}));
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled});
    let metadata = json!({"labels": {"kai.scheduler/queue": "q", "scheduler.tensorstack.dev/queue": null}, "creationTimestamp": "2026-01-02T03:00:00Z"});
    server.merge(POD, &json!({"metadata": metadata, "status": {"conditions": [condition]}}));
    let pauser = pauser(&server);
    server.set_queues(RUNAI_QUEUES, &[("q", spec.clone())]);
    pauser
        .handles
        .cluster
        .with(|index| index.apply_queue("q", &serde_json::from_value::<QueueSpec>(spec).unwrap()));
    let mut group = due(0);
    (group.first.family, group.first.queue) = (Family::Runai, "q".into());
    (server, pauser, group)
}

const LATER: &str = "2026-01-02T03:04:07Z";
