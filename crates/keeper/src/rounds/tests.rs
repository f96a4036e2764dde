//! Calls for pods of many namespaces, some of which hang or fail.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::BTreeSet, convert::Infallible, future::pending, num::NonZeroU32, sync::Arc};

use http::{Method, Request, Response, header::DATE};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tenure_index::Settings;
use tenure_policy::config::Config;
use tenure_service::{
    clock::ServerClock, freshness::Freshness, leadership::Leadership, limit::write_limit,
    readiness::ProcessReadiness,
};
use tenure_types::{podgroup::PodGroupKind, tensorstack::v1beta1};
use tokio::time::Instant;

use super::*;
use crate::{
    api::ObjectClient,
    cluster::ClusterState,
    config::{Configure, Current},
    gate::FreshnessGate,
    limit::WriteLimit,
    metrics::Metrics,
    orphans::QueueLabels,
    pod_notices::{PodNotices, ToldWorkloads},
    terminations::Terminations,
};

/// An API server with any pods. It doesn't answer writes in namespaces `hangs-…`, and fails those in `fails-…`.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The pods that were read.
    read: Vec<String>,
    /// The pods that were written, and when.
    written: Vec<(String, Instant)>,
    under_way: BTreeSet<String>,
}

/// A write that is under way.
struct UnderWay(Server, String);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.lock().under_way.remove(&self.1);
    }
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (status, body) = server.answer(request.method(), request.uri().path()).await;
                let response = Response::builder()
                    .status(status)
                    .header(DATE, "Thu, 01 Jan 2026 00:00:00 GMT")
                    .header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
            }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, method: &Method, path: &str) -> (u16, Value) {
        if path == "/api/v1" {
            let pods =
                json!({"name": "pods", "singularName": "", "kind": "Pod", "namespaced": true, "verbs": []});
            let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [pods]});
            return (200, list);
        }
        let Some((_, pod)) = path.split_once("/namespaces/") else { return (200, json!({})) };
        let (namespace, name) = pod.split_once("/pods/").unwrap();
        if method == Method::GET {
            self.0.lock().read.push(pod.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let metadata = json!({"name": name, "namespace": namespace, "uid": name});
        if method == Method::GET {
            let kind = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
            });
            return (200, kind);
        }
        let _under_way = self.begin(pod);
        if namespace.starts_with("hangs-") {
            pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        if namespace.starts_with("fails-") {
            let status =
                json!({"kind": "Status", "status": "Failure", "message": "no endpoints", "code": 500});
            return (500, status);
        }
        (200, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {}}))
    }

    fn begin(&self, pod: &str) -> UnderWay {
        let State { under_way, written, .. } = &mut *self.0.lock();
        assert!(under_way.insert(pod.to_owned()), "two writes of {pod} at the same time");
        written.push((pod.to_owned(), Instant::now()));
        UnderWay(self.clone(), pod.to_owned())
    }

    /// Returns once so many pods of namespaces whose names begin like this were written.
    async fn written(&self, namespace: &str, count: usize) {
        let pods = || {
            let state = self.0.lock();
            let of = state.written.iter().filter(|(pod, _)| pod.starts_with(namespace));
            of.map(|(pod, _)| pod.clone()).collect::<BTreeSet<_>>().len()
        };
        while pods() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn writes(&self, namespace: &str) -> usize {
        self.0.lock().written.iter().filter(|(pod, _)| pod.starts_with(namespace)).count()
    }
}

/// The handles of a keeper that leads.
struct Keeper {
    server: Server,
    gate: FreshnessGate,
    cluster: ClusterState,
    clock: ServerClock,
    objects: ObjectClient,
    config: Current,
}

fn limit() -> WriteLimit {
    let many = NonZeroU32::new(10_000).unwrap();
    write_limit(many, many)
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

impl Keeper {
    async fn new() -> Self {
        let (server, clock, readiness) =
            (Server::default(), ServerClock::default(), ProcessReadiness::default());
        tokio::spawn(clock.clone().measure(server.client(), readiness.awaiting("the time")));
        readiness.ready().await;
        let cluster = ClusterState::new(Settings::default());
        let config = Config::parse("noticeOnPods: true").unwrap();
        let (_, config) = Configure::new(config, cluster.clone());
        let gate = FreshnessGate {
            freshness: Freshness::default(),
            lead: Leadership::always(),
            max_staleness: Duration::MAX,
        };
        let objects = ObjectClient::new(server.client());
        let keeper = Self { server, gate, cluster, clock, objects, config };
        keeper.set_ceiling("1m");
        keeper
    }

    fn set_ceiling(&self, ceiling: &str) {
        let queue = v1beta1::QueueSpec { max_duration: Some(ceiling.into()), ..Default::default() };
        self.cluster.with(|index| index.apply_tensorstack("short", &queue));
    }

    /// Adds so many pods of a ReplicaSet in each of three namespaces that begin like this, and one pod in each of ten
    /// namespaces `fine-…`.
    fn add_pods(&self, trouble: &str, count: usize, change: &Value) {
        for number in 0..3 {
            for pod in 0..count {
                self.add_pod(&format!("{trouble}{number}"), &format!("{trouble}{number}-{pod}"), change);
            }
        }
        for number in 0..10 {
            self.add_pod(&format!("fine-{number}"), &format!("fine-{number}-0"), change);
        }
    }

    fn add_pod(&self, namespace: &str, name: &str, change: &Value) {
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
        self.cluster.with(|index| {
            index.apply_owner(0, &serde_json::from_value(owner).unwrap());
            index.apply_pod(&serde_json::from_value(pod).unwrap());
        });
    }

    fn terminations(&self) -> Terminations {
        Terminations {
            gate: self.gate.clone(),
            cluster: self.cluster.clone(),
            clock: self.clock.clone(),
            objects: ObjectClient::new(self.server.client()),
            limit: limit(),
            metrics: Metrics::register(&mut Registry::default()),
            longest: SignedDuration::from_hours(1),
        }
    }

    /// Notices of the pods that were added.
    fn pod_notices(self) -> PodNotices {
        let Self { gate, cluster, clock, objects, config, .. } = self;
        PodNotices {
            gate,
            cluster,
            clock,
            objects,
            limit: Arc::new(limit()),
            config,
            told: ToldWorkloads::default(),
        }
    }
}

fn terminating() -> Value {
    json!({"deletionTimestamp": "2026-01-01T10:00:00Z", "deletionGracePeriodSeconds": 36_000})
}

/// Runs this until that has happened, and returns when it did.
async fn until<T>(work: impl Future<Output = ()>, happened: impl Future<Output = T>) -> Duration {
    let begun = Instant::now();
    tokio::select! {
        () = work => unreachable!(),
        _ = happened => begun.elapsed(),
    }
}

#[tokio::test(start_paused = true)]
async fn pods_whose_deletion_hangs_hold_up_no_other_namespace_and_each_has_its_turn() {
    let keeper = Keeper::new().await;
    keeper.add_pods("hangs-", 40, &terminating());
    let (terminations, lead, shutdown) =
        (keeper.terminations(), Leadership::always(), CancellationToken::new());
    let waited = until(terminations.run(&lead, &shutdown), keeper.server.written("fine-", 10)).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    let waited = until(terminations.run(&lead, &shutdown), keeper.server.written("hangs-", 120)).await;
    assert!(waited <= Duration::from_mins(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_terminate_for_longer_when_its_turn_has_come_is_not_shortened() {
    let keeper = Keeper::new().await;
    keeper.add_pods("fine-1", 40, &terminating());
    let (terminations, lead, shutdown) =
        (keeper.terminations(), Leadership::always(), CancellationToken::new());
    let lengthened = async {
        while keeper.server.0.lock().read.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        keeper.set_ceiling("100h");
        tokio::time::sleep(Duration::from_mins(1)).await;
    };
    until(terminations.run(&lead, &shutdown), lengthened).await;
    assert_eq!(keeper.server.writes(""), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_whose_label_hangs_hold_up_no_other_namespace() {
    let keeper = Keeper::new().await;
    keeper.add_pods("hangs-", 40, &json!({"labels": null, "annotations": {"pod-group-name": "gang"}}));
    let namespaces = (0..3).map(|number| format!("hangs-{number}"));
    for namespace in namespaces.chain((0..10).map(|number| format!("fine-{number}"))) {
        let group = json!({
            "metadata": {"name": "gang", "namespace": namespace, "uid": "g", "creationTimestamp": "2025-12-31T22:00:00Z"},
            "spec": {"queue": "short", "minMember": 1},
        });
        keeper.cluster.with(|index| {
            index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
            index.delete_group(PodGroupKind::Runai, &namespace, "gang");
        });
    }
    let labels = QueueLabels {
        gate: keeper.gate.clone(),
        cluster: keeper.cluster.clone(),
        objects: keeper.objects,
        limit: limit(),
    };
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let waited = until(labels.run(&lead, &shutdown), keeper.server.written("fine-", 10)).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
}

/// Has the pods that were added show an end.
async fn notices(trouble: &str) -> (PodNotices, Server) {
    let keeper = Keeper::new().await;
    keeper.add_pods(trouble, 40, &json!({}));
    let (server, notices) = (keeper.server.clone(), keeper.pod_notices());
    let namespaces = (0..3).map(|number| format!("{trouble}{number}"));
    for namespace in namespaces.chain((0..10).map(|number| format!("fine-{number}"))) {
        // those in trouble first
        let end =
            if namespace.starts_with("fine-") { "2026-01-02T00:00:00Z" } else { "2026-01-01T12:00:00Z" };
        let owner = (namespace.as_str(), Uid::of(&namespace));
        notices.told.tell(owner, Some(at(end)), true, std::iter::empty());
    }
    (notices, server)
}

#[tokio::test(start_paused = true)]
async fn namespaces_whose_pods_can_not_be_written_hold_up_no_notice_in_another() {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    for trouble in ["fails-", "hangs-"] {
        let (notices, server) = notices(trouble).await;
        let begun = Instant::now();
        let told = async {
            server.written("fine-", 10).await;
            assert!(begun.elapsed() <= Duration::from_secs(3), "{trouble}: {:?}", begun.elapsed());
            tokio::time::sleep(Duration::from_mins(10)).await;
        };
        until(notices.run(&lead, &shutdown), told).await;
        assert_eq!(server.writes("fine-"), 10, "once each");
        let writes = server.writes(trouble);
        assert!((30..=400).contains(&writes), "{trouble} is tried again, but not all the time: {writes}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_calls_under_way_are_finished_and_no_other_begins() {
    let keeper = Keeper::new().await;
    keeper.add_pods("fine-1", 40, &terminating());
    let (terminations, lead, shutdown) =
        (keeper.terminations(), Leadership::always(), CancellationToken::new());
    let end = async {
        keeper.server.written("fine-", 3).await;
        shutdown.cancel();
    };
    tokio::join!(terminations.run(&lead, &shutdown), end);
    let state = keeper.server.0.lock();
    assert!(state.under_way.is_empty() && (3..100).contains(&state.written.len()));
}

#[tokio::test(start_paused = true)]
async fn pods_for_which_no_call_was_made_come_before_those_that_have_failed() {
    let mut rounds = Rounds::new(|(namespace, uid): &(&str, &str)| (Uid::of(uid), *namespace));
    let found = [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")];
    let mut turns = Vec::new();
    for round in 0..3 {
        rounds.begin(found.to_vec());
        for _ in 0..2 {
            let ((_, uid), _slot) = rounds.next().unwrap();
            assert!(rounds.under_way.remove(&Uid::of(uid)), "{round}");
            turns.push(uid);
        }
    }
    assert_eq!(turns, ["1", "3", "2", "3", "4", "3"]);
    rounds.begin(Vec::new());
    assert!(rounds.called.is_empty() && rounds.next().is_none());
}
