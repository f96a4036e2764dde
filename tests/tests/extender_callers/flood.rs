//! A client without a certificate that calls a thousand times a second, with each kind of forged call.

use std::{
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, World, audit, callers::Caller, scheduling::EXTENDER};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};

/// Calls a second, all connections together.
const RATE: u32 = 1_000;

/// The connections of the client that floods.
const CONNECTIONS: u32 = 20;

/// The reviews a second of the other clients.
const REVIEWS: u32 = 50;

/// The most additional memory in the end, in KiB.
const MORE_MEMORY: u64 = 10 * 1024;

/// A kind of forged calls: where to, and with what.
type Forgery = (&'static str, Vec<u8>);

fn forgeries() -> Vec<Forgery> {
    let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"priority": 2_000_000_000}});
    let question =
        |nodes: &Value| json!({"Pod": pod, "NodeNameToMetaVictims": nodes}).to_string().into_bytes();
    let named = question(&json!({"<n>": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}}));
    let many: Value = (0..500).map(|node| (format!("n{node}"), json!({"Pods": [{"UID": "u"}]}))).collect();
    let empty = format!(
        r#"{{"Pod":{pod},"NodeNameToVictims":{{"n":{{"Pods":[{}]}}}}}}"#,
        vec!["{}"; 20_000].join(",")
    );
    vec![
        ("/scheduler/preempt", named),
        ("/scheduler/preempt", question(&many)),
        ("/scheduler/preempt", empty.into_bytes()),
        ("/scheduler/preempt", b"{".to_vec()),
        ("/scheduler/preempt", vec![0xff; 100]),
        ("/scheduler/filter", b"{}".to_vec()),
        ("/guard", review("", "Pod", "pods", "DELETE")),
        ("/guard", b"{}".to_vec()),
        ("/validate", review("scheduling.run.ai", "Queue", "queues", "CREATE")),
        ("/mutate", review("scheduling.run.ai", "PodGroup", "podgroups", "CREATE")),
        ("/convert", b"[]".to_vec()),
        ("/", Vec::new()),
    ]
}

pub fn review(group: &str, kind: &str, resource: &str, operation: &str) -> Vec<u8> {
    let object =
        json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"maxDuration": "1d"}});
    let version = if group.is_empty() { "v1" } else { "v3alpha1" };
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": resource});
    let request = json!({
        "uid": "1", "kind": kind, "resource": resource, "name": "p", "namespace": "ns", "operation": operation,
        "userInfo": {"username": "system:kube-scheduler"}, "object": object, "oldObject": object,
    });
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
    review.to_string().into_bytes()
}

/// Calls until the time is over, and counts.
async fn flood(world: &World, until: Instant) -> u64 {
    let (forgeries, calls) = (Arc::new(forgeries()), Arc::new(AtomicU64::new(0)));
    let connection = |number: u32| {
        let (caller, forgeries, calls) =
            (Caller::new(world, None), Arc::clone(&forgeries), Arc::clone(&calls));
        tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) * CONNECTIONS / RATE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut kinds = forgeries.iter().cycle().skip(number as usize);
            while Instant::now() < until {
                ticks.tick().await;
                let Some((path, body)) = kinds.next() else { return };
                // it may be cut off while it sends more than is read
                if let Ok((status, text)) = caller.post(path, body.clone()).await {
                    let is_refused = status == StatusCode::FORBIDDEN;
                    assert_eq!(is_refused, path.starts_with("/scheduler"), "{path}: {status} {text}");
                }
                calls.fetch_add(1, Relaxed);
            }
        })
    };
    let connections: Vec<JoinHandle<()>> = (0..CONNECTIONS).map(connection).collect();
    for connection in join_all(connections).await {
        connection.unwrap();
    }
    calls.load(Relaxed)
}

/// Asks for reviews until the time is over: how long all but the slowest hundredth took.
async fn review_p99(world: &World, until: Instant) -> Duration {
    let caller = Caller::new(world, None);
    let body = review("scheduling.run.ai", "Queue", "queues", "CREATE");
    let mut ticks = interval(Duration::from_secs(1) / REVIEWS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut took = Vec::new();
    while Instant::now() < until {
        ticks.tick().await;
        let begin = Instant::now();
        let (status, text) = caller.post("/validate", body.clone()).await.unwrap();
        took.push(begin.elapsed());
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

/// The webhook's resident memory, in KiB.
async fn resident(world: &World) -> u64 {
    let pid = world.tenure.webhook_pid().await.unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Asserts that a flood of this length causes no write and takes no memory for good. Returns the time that all but the
/// slowest hundredth of reviews took, before and during the flood.
async fn assert_harmless(name: &str, length: Duration) -> [Duration; 2] {
    let world = &Box::pin(World::installed_alone(name, EXTENDER)).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    // connections and reviews have their buffers by then
    review_p99(world, Instant::now() + Duration::from_secs(2)).await;
    let before = resident(world).await;
    let p99_before = review_p99(world, Instant::now() + length.min(Duration::from_mins(1))).await;
    let until = Instant::now() + length;
    let (calls, p99) = tokio::join!(flood(world, until), review_p99(world, until));
    let subsided = async || {
        let now = resident(world).await;
        Ok((now <= before + MORE_MEMORY).then_some(now))
    };
    let after =
        eventually(&format!("no more than {before} KiB and 10 MiB"), DEADLINE, subsided).await.unwrap();
    println!(
        "{calls} calls in {length:?}; {before} KiB before, {after} after; p99 of reviews {p99_before:?} before, {p99:?} meanwhile"
    );
    assert_eq!(audit::attempts_of_webhook(&world.cluster), Vec::<String>::new());
    [p99_before, p99]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_calls_cost_neither_writes_nor_memory_and_reviews_are_answered_in_time() {
    let [_, meanwhile] = assert_harmless("flood", Duration::from_secs(4)).await;
    // the time that an API server waits; the slowdown itself only shows on an idle machine
    assert!(meanwhile < Duration::from_secs(2), "{meanwhile:?}");
}

/// For as many seconds as `FORGED_SECONDS` says, ten minutes otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten minutes on a machine that does nothing else: make forged-calls"]
async fn ten_minutes_of_forged_calls_make_reviews_no_slower() {
    let seconds = env::var("FORGED_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(600);
    let [before, meanwhile] = assert_harmless("flood-long", Duration::from_secs(seconds)).await;
    assert!(meanwhile <= before * 3 / 2, "{before:?} before, {meanwhile:?} meanwhile");
}
