//! Times conversion both ways, in microseconds an object, and a list of 10,000 queues in one review, beside the cost of
//! JSON alone: `cargo bench -p tenure-webhook --bench conversions`.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed step is a failed bench")]

#[allow(dead_code, reason = "the tests of reviews use more of it")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use axum::{
    body::{Body, Bytes},
    http::{
        Request, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use http_body_util::BodyExt;
use serde_json::{Value, json, value::RawValue};
use tenure_types::runai::{QueueVersion, conversion::convert};
use tenure_webhook::KnownQueues;
use tower::ServiceExt;

const GOAL: Duration = Duration::from_millis(400);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test --bench` runs this too, to see that it works
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (queues, rounds) = if measured { (10_000, 15) } else { (100, 1) };
    let kinds = [
        ("with fields and status of v3alpha1", queue as fn(usize) -> Value),
        ("that are the same in both versions", same),
        ("with carriers", carried),
    ];
    println!(
        "one object, as text, and a review of {queues} at the webhook's route; medians of {rounds} rounds"
    );
    println!(
        "control: serde_json reads the same text into Values and writes it, for the review as for the object"
    );
    for (name, queue) in kinds {
        let v3alpha1: Vec<String> = (0..queues).map(|number| queue(number).to_string()).collect();
        let v2: Vec<String> = v3alpha1.iter().map(|queue| converted(queue, QueueVersion::V2)).collect();
        let bytes = v3alpha1.iter().map(String::len).sum::<usize>() / queues;
        println!("\nqueues {name}, {bytes} bytes each");
        one_by_one("v3alpha1 to v2", &v3alpha1, QueueVersion::V2, rounds);
        one_by_one("v2 to v3alpha1", &v2, QueueVersion::V3alpha1, rounds);
        review("v3alpha1 to v2", &v3alpha1, QueueVersion::V2, rounds).await;
        review("v2 to v3alpha1", &v2, QueueVersion::V3alpha1, rounds).await;
    }
    println!("\nOnly the ratios can be compared between machines.");
}

fn one_by_one(way: &str, queues: &[String], to: QueueVersion, rounds: usize) {
    let (mut ours, mut control) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        // one after the other, so that both meet the same noise
        ours.push(timed(|| queues.iter().map(|queue| converted(queue, to).len()).sum()));
        control.push(timed(|| queues.iter().map(|queue| rewritten(queue.as_bytes()).len()).sum()));
    }
    let count = u32::try_from(queues.len()).unwrap();
    let (ours, control) = (median(ours) / count, median(control) / count);
    println!(
        "  {way}, an object: {:.2} µs; control {:.2} µs: x{:.2}",
        micros(ours),
        micros(control),
        ratio(ours, control)
    );
}

async fn review(way: &str, queues: &[String], to: QueueVersion, rounds: usize) {
    let body = Bytes::from(format!(
        r#"{{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{{"uid":"{}","desiredAPIVersion":"scheduling.run.ai/{to}","objects":[{}]}}}}"#,
        support::UID,
        queues.join(",")
    ));
    let webhook = support::webhook(KnownQueues::default());
    let (mut ours, mut control) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let begin = Instant::now();
        let response = webhook.clone().oneshot(request(body.clone())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        ours.push(begin.elapsed());
        assert!(
            answer.len() > body.len() / 2 && !answer.windows(8).take(1_000).any(|part| part == b"\"Failed\"")
        );
        control.push(timed(|| rewritten(&body).len()));
    }
    let (ours, control) = (median(ours), median(control));
    let goal = if ours <= GOAL { "reached" } else { "missed" };
    println!(
        "  {way}, a review of {:.1} MB: {:.1} ms; control {:.1} ms: x{:.2} (goal: {} ms, {goal})",
        megabytes(body.len()),
        micros(ours) / 1e3,
        micros(control) / 1e3,
        ratio(ours, control),
        GOAL.as_millis()
    );
}

fn request(body: Bytes) -> Request<Body> {
    Request::post("/convert")
        .header(CONTENT_TYPE, "application/json")
        .header(CONTENT_LENGTH, body.len())
        .body(body.into())
        .unwrap()
}

fn converted(queue: &str, to: QueueVersion) -> String {
    let raw: &RawValue = serde_json::from_str(queue).unwrap();
    serde_json::to_string(&convert(raw, to).unwrap()).unwrap()
}

fn rewritten(text: &[u8]) -> Vec<u8> {
    serde_json::to_vec(&serde_json::from_slice::<Value>(text).unwrap()).unwrap()
}

/// A queue as an API server has it, with its managed fields.
fn queue(number: usize) -> Value {
    let mut queue = same(number);
    for (field, value) in [
        ("preemptMinRuntime", json!("2d")),
        ("maxDuration", json!("7d")),
        ("waitForPodsReady", json!({"timeout": "5m", "requeuingStrategy": {"backoffLimitCount": 5}})),
    ] {
        queue["spec"][field] = value;
    }
    queue["status"]["workloads"] = json!({"running": number, "protected": 1, "paused": 0, "requeueing": 0});
    queue["status"]["nextExpiry"] = json!("2026-11-21T20:00:00Z");
    queue
}

/// A field and an annotation that want the same place.
fn carried(number: usize) -> Value {
    let mut queue = queue(number);
    queue["metadata"]["annotations"]["tenure.dev/max-duration"] = json!("1d");
    queue
}

fn same(number: usize) -> Value {
    let limits = json!({"f:limit": {}, "f:overQuotaWeight": {}, "f:quota": {}});
    let resources = json!({".": {}, "f:cpu": limits, "f:gpu": limits, "f:memory": limits});
    let spec = json!({
        ".": {}, "f:displayName": {}, "f:maxDuration": {}, "f:parentQueue": {}, "f:preemptMinRuntime": {}, "f:priority": {},
        "f:reclaimMinRuntime": {}, "f:resources": resources,
    });
    let status = json!({
        ".": {}, "f:allocated": {".": {}, "f:cpu": {}, "f:memory": {}, "f:nvidia.com/gpu": {}}, "f:childQueues": {},
        "f:requested": {".": {}, "f:cpu": {}, "f:memory": {}, "f:nvidia.com/gpu": {}},
    });
    let wrote = |manager: &str, fields: &Value| {
        json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "fieldsType": "FieldsV1", "manager": manager, "operation": "Update",
            "time": "2026-11-21T19:00:00Z", "fieldsV1": fields,
        })
    };
    let limit = json!({"limit": -1, "overQuotaWeight": 1, "quota": 8.5});
    let used = json!({"cpu": "128", "memory": "512Gi", "nvidia.com/gpu": "16"});
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1",
        "kind": "Queue",
        "metadata": {
            "name": format!("team-{number}"), "uid": format!("705ab4f5-6393-11e8-b7cc-{number:012}"),
            "resourceVersion": "123456", "generation": 3, "creationTimestamp": "2026-11-01T08:00:00Z",
            "annotations": {"owner": "team", "description": "Training and inference of one team, with its \"own\" GPUs"},
            "labels": {"app.kubernetes.io/managed-by": "Helm", "team": format!("team-{number}")},
            "managedFields": [
                wrote("kubectl-client-side-apply", &json!({"f:metadata": {"f:annotations": {".": {}, "f:owner": {}}}, "f:spec": spec})),
                wrote("kai-scheduler", &json!({"f:status": status})),
            ],
        },
        "spec": {
            "displayName": format!("Team {number}"), "parentQueue": "research", "priority": 100, "reclaimMinRuntime": "1h30m",
            "resources": {"cpu": limit, "gpu": limit, "memory": limit},
        },
        "status": {"childQueues": [], "allocated": used, "requested": used},
    })
}

fn timed(work: impl Fn() -> usize) -> Duration {
    let begin = Instant::now();
    std::hint::black_box(work());
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn ratio(ours: Duration, control: Duration) -> f64 {
    ours.as_secs_f64() / control.as_secs_f64()
}

#[allow(clippy::cast_precision_loss, reason = "to a tenth")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
