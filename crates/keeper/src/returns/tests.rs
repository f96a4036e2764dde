//! Returns of many owners at once, some of which hang.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use http::Method;
use jiff::Timestamp;
use kube::{Client, core::ApiResource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_policy::config::Config;
use tenure_service::{clock::ServerClock, work::PROMPT};
use tenure_types::tensorstack::v1beta1;
use tokio::time::Instant;

use super::*;
use crate::{
    cluster::ClusterState,
    testing::{client, handles},
};

/// The watch that shows the Jobs.
const SOURCE: u16 = 1;

/// The time that a write takes, in which the limit of the rate is.
const A_WRITE: Duration = Duration::from_millis(50);

/// An API server with paused Jobs.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

/// A paused Job whose time came at 23:59 of the last day of 2025.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    queue: &'static str,
    priority: Reverse<i32>,
    /// The second of its pause.
    paused: u32,
    namespace: &'static str,
    name: String,
    fate: Fate,
}

/// The answer to the patch of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Resumed,
    /// None.
    Hangs,
    Refused,
    /// The server has an error.
    Fails,
    /// There is no patch: the record names a field that isn't paused by.
    Foreign,
}

impl Waiting {
    /// Returns the end of its path.
    fn job(&self) -> String {
        format!("{}/jobs/{}", self.namespace, self.name)
    }
}

fn waiting(namespace: &'static str, name: String, queue: &'static str, paused: u32) -> Waiting {
    Waiting { queue, priority: Reverse(0), paused, namespace, name, fate: Fate::Resumed }
}

#[derive(Default)]
struct State {
    /// By the end of their paths.
    jobs: BTreeMap<String, (Value, Fate)>,
    /// The Jobs that were read, and when.
    read: Vec<(String, Instant)>,
    /// The Jobs that were patched, and when.
    patched: Vec<(String, Instant)>,
    /// The patches that are under way.
    under_way: BTreeSet<String>,
    most_under_way: usize,
}

/// A patch that is under way.
struct UnderWay {
    server: Server,
    job: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.server.0.lock().under_way.remove(&self.job);
    }
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        client(move |head, _| {
            let server = server.clone();
            async move { server.answer(&head.method, head.uri.path()).await }
        })
    }

    async fn answer(&self, method: &Method, path: &str) -> (u16, Value) {
        if path == "/apis/batch/v1" {
            let job = json!({
                "name": "jobs", "singularName": "", "kind": "Job", "namespaced": true, "verbs": ["get", "patch"],
            });
            let list = json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "batch/v1", "resources": [job],
            });
            return (200, list);
        }
        let Some((_, job)) = path.split_once("/namespaces/") else { return (200, json!({})) };
        if method != Method::PATCH {
            let mut state = self.0.lock();
            state.read.push((job.to_owned(), Instant::now()));
            return (200, state.jobs[job].0.clone());
        }
        let _under_way = self.begin(job);
        let fate = self.0.lock().jobs[job].1;
        if fate == Fate::Hangs {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(A_WRITE).await;
        let failure = |code| json!({"kind": "Status", "status": "Failure", "code": code, "message": "no"});
        match fate {
            Fate::Refused => return (422, failure(422)),
            Fate::Fails => return (500, failure(500)),
            Fate::Resumed | Fate::Hangs | Fate::Foreign => {}
        }
        let mut state = self.0.lock();
        let (resumed, _) = state.jobs.get_mut(job).unwrap();
        resumed["metadata"]["annotations"] = Value::Null;
        (200, resumed.clone())
    }

    fn begin(&self, job: &str) -> UnderWay {
        let State { under_way, most_under_way, patched, .. } = &mut *self.0.lock();
        assert!(under_way.insert(job.to_owned()), "two returns of {job} at the same time");
        *most_under_way = under_way.len().max(*most_under_way);
        patched.push((job.to_owned(), Instant::now()));
        UnderWay { server: self.clone(), job: job.to_owned() }
    }

    fn add(&self, cluster: &ClusterState, waiting: &Waiting) {
        let Waiting { queue, priority, paused, namespace, name, fate } = waiting;
        let field = if *fate == Fate::Foreign { "spec.parallelism" } else { "spec.suspend" };
        let record = json!({
            "at": format!("2025-12-31T23:50:{paused:02}Z"), "field": field, "previousValue": false, "value": true,
            "queue": queue, "queueGroup": "scheduler.tensorstack.dev", "reason": "PodsReadyTimeout",
        });
        let at = "2025-12-31T23:59:00Z";
        let state = json!({"count": 1, "priority": priority.0, "requeueAt": at});
        let metadata = json!({
            "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "1",
            "creationTimestamp": at,
            "annotations": {
                "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
            },
        });
        cluster.with(|index| index.apply_owner(SOURCE, &serde_json::from_value(metadata.clone()).unwrap()));
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
            "spec": {"suspend": true, "parallelism": 1},
        });
        self.0.lock().jobs.insert(waiting.job(), (job, *fate));
    }

    /// Returns the first read of each Job, once at least `count` Jobs were read.
    async fn begun(&self, count: usize) -> BTreeMap<String, Instant> {
        loop {
            let mut first = BTreeMap::new();
            for (job, at) in &self.0.lock().read {
                first.entry(job.clone()).or_insert(*at);
            }
            if first.len() >= count {
                return first;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until at least `count` patches of Jobs of a namespace have begun. Returns the Jobs and the
    /// times of these.
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

fn requeuer(server: &Server) -> Requeuer {
    let clock = ServerClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let handles = Arc::new(handles(server.client(), clock, Config::default()));
    handles.cluster.with(|index| {
        let queue = v1beta1::QueueSpec::default();
        for name in ["a", "b", "shared", "queue"] {
            index.apply_queue(name, &queue);
        }
    });
    handles.cluster.shows(SOURCE, ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&()));
    Requeuer { limit: handles.limit(), handles }
}

#[tokio::test(start_paused = true)]
async fn owners_whose_return_hangs_hold_up_no_other_namespace() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    for number in 0..60 {
        let namespace = ["hangs-a", "hangs-b", "hangs-c"][number % 3];
        // in the queue of the healthy one, and before it
        let job = Waiting { fate: Fate::Hangs, ..waiting(namespace, format!("job-{number}"), "shared", 1) };
        server.add(&requeuer.handles.cluster, &job);
    }
    server.add(&requeuer.handles.cluster, &waiting("fine", "job".into(), "shared", 2));
    let (begun, shutdown) = (Instant::now(), CancellationToken::new());
    let (fine, all) = tokio::select! {
        () = requeuer.run(&requeuer.handles.gate.lead, &shutdown) => unreachable!(),
        patched = async { tokio::join!(server.patched("fine", 1), server.patched("hangs-", 60)) } => patched,
    };
    let waited = |(_, at): &(String, Instant)| at.duration_since(begun);
    assert!(waited(&fine[0]) <= Duration::from_secs(5), "{:?}", waited(&fine[0]));
    assert!(waited(&all[59]) <= Duration::from_mins(2), "each has its turn: {:?}", waited(&all[59]));
    let most = server.0.lock().most_under_way;
    assert!(most <= 32, "{most} at the same time");
}

#[tokio::test(start_paused = true)]
async fn owners_of_a_queue_come_back_in_their_order_and_queues_side_by_side() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    for number in 0..20 {
        for queue in ["a", "b"] {
            let namespace = ["fine-x", "fine-y"][number as usize % 2];
            server.add(
                &requeuer.handles.cluster,
                &waiting(namespace, format!("{queue}-{number:02}"), queue, number),
            );
        }
    }
    let shutdown = CancellationToken::new();
    let patched = tokio::select! {
        () = requeuer.run(&requeuer.handles.gate.lead, &shutdown) => unreachable!(),
        patched = server.patched("fine", 40) => patched,
    };
    for queue in ["a", "b"] {
        let of_queue = patched.iter().filter_map(|(job, at)| {
            let (_, name) = job.split_once("/jobs/")?;
            name.starts_with(queue).then_some((name, *at))
        });
        let (jobs, times): (Vec<_>, Vec<_>) = of_queue.unzip();
        assert!(jobs.is_sorted() && times.is_sorted_by(|before, after| before < after), "{jobs:?}");
    }
    assert_eq!(server.0.lock().most_under_way, 2, "one of each queue");
}

/// The order holds over all namespaces, so that such records are tried first: once each, and not again for minutes.
#[tokio::test(start_paused = true)]
async fn records_that_a_tenant_forges_in_a_neighbours_queue_delay_its_returns_by_one_try_each() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    let (forged, own) = (200, 10);
    for number in 0..forged {
        let fate = [Fate::Foreign, Fate::Refused, Fate::Resumed][number % 3];
        let job = waiting("forger", format!("job-{number}"), "shared", 0);
        server.add(&requeuer.handles.cluster, &Waiting { priority: Reverse(i32::MAX), fate, ..job });
    }
    for number in 0..own {
        server.add(&requeuer.handles.cluster, &waiting("neighbour", format!("job-{number}"), "shared", 0));
    }
    server.add(&requeuer.handles.cluster, &waiting("neighbour", "elsewhere".into(), "a", 0));
    let (start, shutdown) = (Instant::now(), CancellationToken::new());
    let tried = |job: &str| server.0.lock().read.iter().filter(|(read, _)| read == job).count();
    let begun = tokio::select! {
        () = requeuer.run(&requeuer.handles.gate.lead, &shutdown) => unreachable!(),
        begun = async {
            let begun = server.begun(forged + own + 1).await;
            tokio::time::sleep(Duration::from_mins(2)).await;
            begun
        } => begun,
    };
    // one turn in four is for what was refused before
    let all = A_WRITE * u32::try_from(forged + own).unwrap() * 4 / 3 + Duration::from_secs(1);
    for (job, at) in begun.iter().filter(|(job, _)| job.starts_with("neighbour/")) {
        let longest = if job.ends_with("elsewhere") { Duration::from_secs(1) } else { all };
        assert!(at.duration_since(start) <= longest, "{job} began after {:?}", at.duration_since(start));
    }
    assert_eq!(tried("forger/jobs/job-0"), 1);
}

#[tokio::test(start_paused = true)]
async fn first_tries_of_a_queue_are_in_order_over_all_namespaces_and_each_begins_in_time() {
    for seed in 0..40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((state >> 33) % below).unwrap()
        };
        let server = Server::default();
        let requeuer = requeuer(&server);
        let mut job = |number: u32| {
            let namespace = ["w", "x", "y", "z"][random(4)];
            let fates =
                [Fate::Resumed, Fate::Resumed, Fate::Resumed, Fate::Refused, Fate::Fails, Fate::Foreign];
            let may_hang = ["y", "z"].contains(&namespace);
            let fate = if may_hang && random(3) == 0 { Fate::Hangs } else { fates[random(6)] };
            let (queue, priority) = (["a", "b", "shared"][random(3)], Reverse([0, 100, 500][random(3)]));
            let paused = u32::try_from(random(5)).unwrap();
            Waiting { queue, priority, paused, namespace, name: format!("job-{number}"), fate }
        };
        let jobs: Vec<Waiting> = (0..80).map(&mut job).collect();
        for job in &jobs {
            server.add(&requeuer.handles.cluster, job);
        }
        let (start, shutdown) = (Instant::now(), CancellationToken::new());
        let begun = tokio::select! {
            () = requeuer.run(&requeuer.handles.gate.lead, &shutdown) => unreachable!(),
            begun = server.begun(jobs.len()) => begun,
        };
        let at = |job: &Waiting| begun[&job.job()];
        let hangs: Vec<&Waiting> = jobs.iter().filter(|job| job.fate == Fate::Hangs).collect();
        let patched = server.0.lock().patched.clone();
        // a call was slow in its namespace before
        let is_failing = |namespace: &str, when: Instant| {
            let of = |job: &str| hangs.iter().any(|hang| hang.namespace == namespace && hang.job() == job);
            patched.iter().any(|(job, at)| of(job) && *at + PROMPT <= when)
        };
        for (one, other) in jobs.iter().flat_map(|one| jobs.iter().map(move |other| (one, other))) {
            let is_before = one.queue == other.queue && one < other;
            // a search through all patches, which few pairs need
            let is_right = || at(one) <= at(other) || is_failing(one.namespace, at(other));
            assert!(!is_before || is_right(), "seed {seed}: {other:?} began before {one:?}");
        }
        // each namespace with slow calls holds up a line once, and one turn in four is for retries
        let in_time = A_WRITE * 80 * 4 / 3 + PROMPT * 3;
        for job in &jobs {
            let rounds = hangs.iter().filter(|hang| hang.namespace == job.namespace).count().div_ceil(8);
            let slow = Duration::from_secs(30) * u32::try_from(rounds).unwrap();
            let waited = at(job).duration_since(start);
            assert!(waited <= in_time + slow, "seed {seed}: {job:?} began after {waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_in_a_row_draws_an_event_and_waits_grow() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    let job = Waiting { fate: Fate::Refused, ..waiting("fine", "job".into(), "a", 0) };
    server.add(&requeuer.handles.cluster, &job);
    let shutdown = CancellationToken::new();
    let mut recorded = Vec::new();
    let patched = tokio::select! {
        () = requeuer.run(&requeuer.handles.gate.lead, &shutdown) => unreachable!(),
        patched = async {
            for count in 1..=7 {
                server.patched("fine", count).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                recorded.push(requeuer.handles.events.clear().len());
            }
            server.patched("fine", 7).await
        } => patched,
    };
    assert_eq!(recorded, [0, 1, 0, 0, 0, 0, 0]);
    let times = patched.windows(2).map(|pair| pair[1].1.duration_since(pair[0].1).as_secs_f64());
    for (waited, longest) in times.zip([5.0, 10.0, 20.0, 40.0, 40.0, 40.0]) {
        assert!((longest / 2.0..=longest + 0.2).contains(&waited), "{waited} s, at most {longest} s");
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_returns_that_are_under_way_are_finished_and_no_other_begins() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    for number in 0..20 {
        server.add(&requeuer.handles.cluster, &waiting("fine", format!("job-{number:02}"), "queue", number));
    }
    let shutdown = CancellationToken::new();
    let end = async {
        server.patched("fine", 3).await;
        shutdown.cancel();
    };
    tokio::join!(requeuer.run(&requeuer.handles.gate.lead, &shutdown), end);
    let state = server.0.lock();
    assert!(state.under_way.is_empty() && state.patched.len() < 20, "{:?}", state.patched);
}

/// Adds a paused Job, and a pod of it. The API server writes the creation of a pod in whole seconds: a pod of the second
/// of a pause may be one of before, or show that another writer has resumed the Job.
fn add_with_pod(server: &Server, cluster: &ClusterState) {
    server.add(cluster, &waiting("fine", "job".into(), "a", 7));
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "fine-job", "controller": true,
    });
    let pod = json!({
        "metadata": {
            "name": "pod", "namespace": "fine", "uid": "pod", "creationTimestamp": "2025-12-31T23:50:07Z",
            "labels": {"scheduler.tensorstack.dev/queue": "a"}, "ownerReferences": [job],
        },
        "spec": {}, "status": {},
    });
    cluster.with(|index| index.apply_pod(&serde_json::from_value(pod).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_job_that_runs_again_goes_while_it_has_pods_though_its_time_has_come() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    let cluster = &requeuer.handles.cluster;
    add_with_pod(&server, cluster);
    server.0.lock().jobs.get_mut("fine/jobs/job").unwrap().0["spec"]["suspend"] = json!(false);
    let (queue, now) = (WorkQueue::default(), "2026-01-01T00:00:00Z".parse().unwrap());
    let due = cluster.with(|index| index.due_returns(now));
    queue.replace(due.into_iter().map(ReturningOwner));
    requeuer.bring_back(queue.take().unwrap()).await;
    assert_eq!(server.0.lock().patched.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_only_checked_delays_no_return_and_a_check_resumes_nothing() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    let cluster = &requeuer.handles.cluster;
    add_with_pod(&server, cluster);
    let queue = WorkQueue::default();
    let fill = |at: &str| {
        let now: Timestamp = at.parse().unwrap();
        let due = cluster.with(|index| index.due_returns(now));
        queue.replace(due.into_iter().map(ReturningOwner));
    };
    let (before, at) = ("2025-12-31T23:58:59Z", "2025-12-31T23:59:00Z");
    fill(before);
    requeuer.bring_back(queue.take().unwrap()).await;
    for now in [before, at] {
        fill(now);
        assert!(queue.take().is_none(), "the next check is later");
    }
    let calls = || {
        let state = server.0.lock();
        (state.read.len(), state.patched.len())
    };
    assert_eq!(calls(), (1, 0), "by now its time has come, but it has a pod");
    cluster.with(|index| index.delete_pod(Uid::of("pod")));
    fill(at);
    requeuer.bring_back(queue.take().unwrap()).await;
    assert_eq!(calls(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_return_that_the_clock_shows_too_early_after_all_is_tried_again_soon() {
    let server = Server::default();
    let requeuer = requeuer(&server);
    let cluster = &requeuer.handles.cluster;
    server.add(cluster, &waiting("fine", "job".into(), "a", 7));
    let metadata = {
        let mut state = server.0.lock();
        let (job, _) = state.jobs.get_mut("fine/jobs/job").unwrap();
        // an hour ahead of the API server's clock
        let later = json!({"count": 1, "requeueAt": "2026-01-01T01:00:00Z"});
        job["metadata"]["annotations"]["tenure.dev/requeue-state"] = json!(later.to_string());
        serde_json::from_value(job["metadata"].clone()).unwrap()
    };
    cluster.with(|index| index.apply_owner(SOURCE, &metadata));
    let (queue, now) = (WorkQueue::default(), "2026-01-01T01:00:00Z".parse().unwrap());
    let due = cluster.with(|index| index.due_returns(now));
    queue.replace(due.into_iter().map(ReturningOwner));
    requeuer.bring_back(queue.take().unwrap()).await;
    assert!(server.0.lock().patched.is_empty());
    tokio::time::advance(RETRY).await;
    assert!(queue.take().is_some());
}
