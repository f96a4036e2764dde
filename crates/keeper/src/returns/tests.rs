//! Returns of many owners at once, some of which hang.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    num::NonZeroU32,
    sync::Arc,
};

use http::{Method, Request, Response, header::DATE};
use kube::{Client, client::Body, core::ApiResource};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tenure_index::Settings;
use tenure_policy::config::Config;
use tenure_service::{freshness::Freshness, limit::write_limit, readiness::ProcessReadiness};
use tenure_types::tensorstack::v1beta1;
use tokio::time::Instant;

use super::*;
use crate::{config::Configure, recent::EventOutbox};

/// The watch that shows the Jobs.
const SOURCE: u16 = 1;

/// An API server with paused Jobs. It doesn't answer patches in namespaces `hangs-…`.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By the end of their paths.
    jobs: BTreeMap<String, Value>,
    /// The Jobs that were patched, and when.
    patched: Vec<(String, Instant)>,
    /// The patches that are under way.
    under_way: BTreeSet<String>,
    most_under_way: usize,
}

/// A patch that is under way.
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
                let body = server.answer(request.method(), request.uri().path()).await.to_string();
                let response = Response::builder()
                    .header(DATE, "Thu, 01 Jan 2026 00:00:00 GMT")
                    .header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(body.into_bytes())).unwrap())
            }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, method: &Method, path: &str) -> Value {
        if path == "/apis/batch/v1" {
            let job = json!({
                "name": "jobs", "singularName": "", "kind": "Job", "namespaced": true, "verbs": ["get", "patch"],
            });
            return json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "batch/v1", "resources": [job],
            });
        }
        let Some((_, job)) = path.split_once("/namespaces/") else { return json!({}) };
        if method != Method::PATCH {
            return self.0.lock().jobs[job].clone();
        }
        let _under_way = self.begin(job);
        if job.starts_with("hangs-") {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut state = self.0.lock();
        let resumed = state.jobs.get_mut(job).unwrap();
        resumed["metadata"]["annotations"] = Value::Null;
        resumed.clone()
    }

    fn begin(&self, job: &str) -> UnderWay {
        let State { under_way, most_under_way, patched, .. } = &mut *self.0.lock();
        assert!(under_way.insert(job.to_owned()), "two returns of {job} at the same time");
        *most_under_way = under_way.len().max(*most_under_way);
        patched.push((job.to_owned(), Instant::now()));
        UnderWay(self.clone(), job.to_owned())
    }

    /// Adds a paused Job whose time came at this second of the year 2025's last minute.
    fn add(&self, cluster: &ClusterState, namespace: &str, name: &str, queue: &str, second: u32) {
        let record = json!({
            "at": "2025-12-31T22:00:00Z", "field": "spec.suspend", "previousValue": false, "value": true,
            "queue": queue, "queueGroup": "scheduler.tensorstack.dev", "reason": "PodsReadyTimeout",
        });
        let at = format!("2025-12-31T23:59:{second:02}Z");
        let state = json!({"count": 1, "priority": 0, "requeueAt": at});
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "1",
            "creationTimestamp": at,
            "annotations": {
                "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
            },
        });
        cluster.with(|index| index.apply_owner(SOURCE, &serde_json::from_value(metadata.clone()).unwrap()));
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": true},
        });
        self.0.lock().jobs.insert(format!("{namespace}/jobs/{name}"), job);
    }

    /// Returns the first times at which the patches of Jobs of a namespace began, once there are so many.
    async fn patched(&self, namespace: &str, count: usize) -> Vec<(String, Instant)> {
        loop {
            let of_namespace = |(job, _): &&(String, Instant)| job.starts_with(namespace);
            let patched: Vec<_> = self.0.lock().patched.iter().filter(of_namespace).cloned().collect();
            if patched.len() >= count {
                return patched;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn requeuer(server: &Server) -> Requeuer {
    let clock = ServerClock::default();
    let readiness = ProcessReadiness::default();
    tokio::spawn(clock.clone().measure(server.client(), readiness.awaiting("the time")));
    readiness.ready().await;
    let cluster = ClusterState::new(Settings::default());
    cluster.with(|index| {
        let queue = v1beta1::QueueSpec::default();
        for name in ["a", "b", "shared", "queue"] {
            index.apply_tensorstack(name, &queue);
        }
    });
    cluster.shows(SOURCE, ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&()));
    let many = NonZeroU32::new(10_000).unwrap();
    let metrics = Metrics::register(&mut Registry::default());
    let (_, config) = Configure::new(Config::default(), cluster.clone());
    let gate = FreshnessGate {
        freshness: Freshness::default(),
        lead: Leadership::always(),
        max_staleness: Duration::MAX,
    };
    Requeuer {
        gate,
        cluster,
        clock,
        objects: ObjectClient::new(server.client()),
        limit: write_limit(many, many),
        config,
        events: EventQueue::new(metrics.clone(), EventOutbox::default()),
        slots: FairSlots::default(),
        metrics,
    }
}

#[tokio::test(start_paused = true)]
async fn owners_whose_return_hangs_hold_up_no_other_namespace() {
    let server = Server::default();
    let requeuer = requeuer(&server).await;
    for number in 0..60 {
        let namespace = ["hangs-a", "hangs-b", "hangs-c"][number % 3];
        // in the queue of the healthy one, and before it
        server.add(&requeuer.cluster, namespace, &format!("job-{number}"), "shared", 1);
    }
    server.add(&requeuer.cluster, "fine", "job", "shared", 2);
    let (begun, shutdown) = (Instant::now(), CancellationToken::new());
    let (fine, all) = tokio::select! {
        () = requeuer.work(&shutdown) => unreachable!(),
        patched = async { tokio::join!(server.patched("fine", 1), server.patched("hangs-", 60)) } => patched,
    };
    let waited = |(_, at): &(String, Instant)| at.duration_since(begun);
    assert!(waited(&fine[0]) <= Duration::from_secs(5), "{:?}", waited(&fine[0]));
    assert!(waited(&all[59]) <= Duration::from_mins(2), "each has its turn: {:?}", waited(&all[59]));
    let most = server.0.lock().most_under_way;
    assert!(most <= 2 * crate::slots::SLOTS, "{most} at the same time");
}

#[tokio::test(start_paused = true)]
async fn owners_of_a_queue_come_back_in_their_order_and_queues_side_by_side() {
    let server = Server::default();
    let requeuer = requeuer(&server).await;
    for number in 0..20 {
        for queue in ["a", "b"] {
            let name = format!("{queue}-{number:02}");
            server.add(&requeuer.cluster, "fine", &name, queue, number);
        }
    }
    let shutdown = CancellationToken::new();
    let patched = tokio::select! {
        () = requeuer.work(&shutdown) => unreachable!(),
        patched = server.patched("fine", 40) => patched,
    };
    for queue in ["a", "b"] {
        let of_queue = patched.iter().filter(|(job, _)| job.contains(&format!("jobs/{queue}-")));
        let (jobs, times): (Vec<_>, Vec<_>) = of_queue.cloned().unzip();
        assert!(jobs.is_sorted() && times.is_sorted_by(|before, after| before < after), "{jobs:?}");
    }
    assert_eq!(server.0.lock().most_under_way, 2, "one of each queue");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_returns_that_are_under_way_are_finished_and_no_other_begins() {
    let server = Server::default();
    let requeuer = requeuer(&server).await;
    for number in 0..20 {
        server.add(&requeuer.cluster, "fine", &format!("job-{number:02}"), "queue", number);
    }
    let shutdown = CancellationToken::new();
    let end = async {
        server.patched("fine", 3).await;
        shutdown.cancel();
    };
    tokio::join!(requeuer.work(&shutdown), end);
    let state = server.0.lock();
    assert!(state.under_way.is_empty() && state.patched.len() < 20, "{:?}", state.patched);
}
