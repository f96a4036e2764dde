//! A keeper, and an API server with pods and groups of many namespaces, some of whose calls hang or fail.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    sync::Arc,
    time::Duration,
};

use clap::Parser;
use http::{Method, Request, Response, request::Parts};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tenure_index::CeilingOptions;
use tenure_policy::config::Config;
use tenure_service::{clock::ServerClock, leadership::Leadership, readiness::ProcessReadiness};
use tenure_types::{keys, tensorstack::v1beta1};
use tokio::time::Instant;

use crate::{Args, cluster::ClusterState, gate::FreshnessGate, handles::Handles, metrics::Metrics};

/// An API server with any pods and groups, of which each is owed a hand-back. It doesn't answer writes in namespaces `hangs-…`, fails those in `fails-…`, and
/// refuses those in `refuses-…`. In `stale-…` there is always another version, and in `drops-…` nothing is changed.
/// It fails reads in `unread-…`, and forbids those in `forbids-…`. In `gone-…` there is nothing to read. In `full-…` no object has room for more.
/// In `full-daemons-…` DaemonSet `set` controls all pods, and in `full-forged-…` they name another one that had its name.
#[derive(Clone, Default)]
pub struct Server(pub Arc<Mutex<State>>);

#[derive(Default)]
pub struct State {
    /// The pods that were read.
    pub read: Vec<String>,
    /// The pods that were written or deleted.
    pub written: Vec<String>,
    pub deleted: Vec<String>,
    /// The pods that have no room for more.
    pub full: BTreeSet<String>,
    /// The evidence on each pod.
    pub evidence: BTreeMap<String, Value>,
    pub under_way: BTreeSet<String>,
}

/// A write that is under way.
struct UnderWay {
    server: Server,
    object: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.server.0.lock().under_way.remove(&self.object);
    }
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "message": "no", "code": code})
}

/// Returns the client of an API server. `answer` gets the head and the JSON of a request, and returns a status and JSON.
pub fn client<A: Future<Output = (u16, Value)> + Send + 'static>(
    answer: impl Fn(Parts, Value) -> A + Clone + Send + 'static,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let answered = answer(head, serde_json::from_slice(&body).unwrap_or_default());
            let (status, body) = answered.await;
            let response = Response::builder().status(status).header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
        }
    });
    Client::new(service, "default")
}

impl Server {
    pub fn client(&self) -> Client {
        let server = self.clone();
        client(move |head, sent| {
            let server = server.clone();
            async move { server.answer(&head.method, head.uri.path(), &sent).await }
        })
    }

    async fn answer(&self, method: &Method, path: &str, sent: &Value) -> (u16, Value) {
        let served = [
            ("/api/v1", "pods", "Pod"),
            ("/apis/apps/v1", "daemonsets", "DaemonSet"),
            ("/apis/scheduling.run.ai/v2alpha2", "podgroups", "PodGroup"),
        ];
        if let Some((_, name, kind)) = served.iter().find(|(of, ..)| *of == path) {
            let resource =
                json!({"name": name, "singularName": "", "kind": kind, "namespaced": true, "verbs": []});
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [resource]});
            return (200, list);
        }
        let Some((_, object)) = path.split_once("/namespaces/") else { return (200, json!({})) };
        let (namespace, name) = (object.split('/').next().unwrap(), object.rsplit('/').next().unwrap());
        if method == Method::GET {
            self.0.lock().read.push(object.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut metadata = json!({"name": name, "namespace": namespace, "uid": name, "resourceVersion": "w"});
        if method == Method::GET {
            for (failing, code) in [("unread-", 500), ("forbids-", 403), ("gone-", 404)] {
                if namespace.starts_with(failing) {
                    return (code, failure(code));
                }
            }
            for (daemons, uid) in [("full-daemons-", "set"), ("full-forged-", "another")] {
                if namespace.starts_with(daemons) {
                    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set", "uid": uid, "controller": true});
                    metadata["ownerReferences"] = json!([owner]);
                }
            }
            let note = json!({"uid": name, "fields": {}}).to_string();
            metadata["annotations"] = json!({keys::HAND_BACK_ANNOTATION: note});
            let kind = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
            });
            return (200, kind);
        }
        let _under_way = self.begin(object);
        if namespace.starts_with("hangs-") {
            pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        for (failing, code) in [("fails-", 500), ("refuses-", 422), ("stale-", 409)] {
            if namespace.starts_with(failing) {
                return (code, failure(code));
            }
        }
        if method == Method::DELETE {
            self.0.lock().deleted.push(object.to_owned());
        } else if namespace.starts_with("full-") || self.0.lock().full.contains(object) {
            let mut full = failure(500);
            full["message"] = json!("etcdserver: request is too large");
            return (500, full);
        }
        if !namespace.starts_with("drops-") {
            let mut annotations = sent["metadata"]["annotations"].clone();
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.retain(|_, value| !value.is_null());
            }
            if let Some(evidence) = annotations.get(keys::EVIDENCE_ANNOTATION) {
                self.0.lock().evidence.insert(object.to_owned(), evidence.clone());
            }
            metadata["annotations"] = annotations;
        }
        (200, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {}}))
    }

    fn begin(&self, object: &str) -> UnderWay {
        let State { under_way, written, .. } = &mut *self.0.lock();
        assert!(under_way.insert(object.to_owned()), "two writes of {object} at the same time");
        written.push(object.to_owned());
        UnderWay { server: self.clone(), object: object.to_owned() }
    }

    /// Waits until at least `count` pods were written whose namespaces begin with `namespace`.
    pub async fn written(&self, namespace: &str, count: usize) {
        let pods = || {
            let state = self.0.lock();
            let of = state.written.iter().filter(|pod| pod.starts_with(namespace));
            of.collect::<BTreeSet<_>>().len()
        };
        while pods() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub fn writes(&self, namespace: &str) -> usize {
        self.0.lock().written.iter().filter(|pod| pod.starts_with(namespace)).count()
    }
}

/// A keeper that leads, and its API server.
pub struct Keeper {
    pub server: Server,
    pub handles: Arc<Handles>,
}

/// Creates the handles of a keeper that leads.
pub fn handles(client: Client, clock: ServerClock, config: Config) -> Handles {
    let flags = ["tenure-keeper", "--writes-per-second=10000", "--burst=10000", "--max-termination-grace=1h"];
    let cluster = ClusterState::new(CeilingOptions::default());
    let metrics = Metrics::register(&mut Registry::default());
    let gate = FreshnessGate::new(&ProcessReadiness::default(), &Leadership::always(), Duration::MAX);
    Args::try_parse_from(flags).unwrap().handles(client, (cluster, clock, gate), config, metrics)
}

impl Keeper {
    pub fn new() -> Self {
        let server = Server::default();
        let clock = ServerClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let config = Config::parse("noticeOnPods: true\nfloorOnPods: true").unwrap();
        let handles = handles(server.client(), clock, config);
        let keeper = Self { server, handles: Arc::new(handles) };
        keeper.set_ceiling("1m");
        keeper
    }

    pub fn set_ceiling(&self, ceiling: &str) {
        let queue = v1beta1::QueueSpec { max_duration: Some(ceiling.into()), ..Default::default() };
        self.handles.cluster.with(|index| index.apply_queue("short", &queue));
    }

    /// Adds `count` pods of a ReplicaSet in each of three namespaces whose names begin with `failing`,
    /// and one pod in each of ten namespaces `fine-…`.
    pub fn add_pods(&self, failing: &str, count: usize, change: &Value) {
        for number in 0..3 {
            for pod in 0..count {
                self.add_pod(&format!("{failing}{number}"), &format!("{failing}{number}-{pod}"), change);
            }
        }
        for number in 0..10 {
            self.add_pod(&format!("fine-{number}"), &format!("fine-{number}-0"), change);
        }
    }

    pub fn add_pod(&self, namespace: &str, name: &str, change: &Value) {
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-12-31T23:00:00Z",
        });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": namespace, "controller": true,
        });
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": name, "creationTimestamp": "2025-12-31T23:00:00Z",
                "labels": {"scheduler.tensorstack.dev/queue": "short"}, "ownerReferences": [set],
            },
            "spec": {}, "status": {"conditions": [condition]},
        });
        for (key, value) in change.as_object().unwrap() {
            pod["metadata"][key] = value.clone();
        }
        let owner = json!({"name": "set", "namespace": namespace, "uid": namespace});
        self.handles.cluster.with(|index| {
            index.apply_owner(0, &serde_json::from_value(owner).unwrap());
            index.apply_pod(&serde_json::from_value(pod).unwrap());
        });
    }
}

pub fn terminating() -> Value {
    json!({"deletionTimestamp": "2026-01-01T10:00:00Z", "deletionGracePeriodSeconds": 36_000})
}

/// Runs this until that has happened, and returns when it did. Panics after a week of the paused clock.
pub async fn until<T>(work: impl Future<Output = ()>, happened: impl Future<Output = T>) -> Duration {
    let begun = Instant::now();
    tokio::select! {
        () = work => unreachable!(),
        _ = happened => begun.elapsed(),
        () = tokio::time::sleep(Duration::from_hours(24 * 7)) => panic!("it hasn't happened"),
    }
}
