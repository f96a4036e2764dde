//! Reviews of `PodGroup`s on `/mutate`: the API server's questions, and the answers.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "support/oneshot.rs"]
mod oneshot;
mod support;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{
        Method, Request, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use json_patch::Patch;
use k8s_openapi::ByteString;
use prometheus_client::{encoding::text::encode, registry::Registry};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{UID, webhook};
use tenure_policy::config::Config;
use tenure_types::podgroup::PodGroupKind;
use tenure_webhook::{KnownQueues, LargeBodies, MAX_BODY_BYTES, Metrics, Mutator, Validator, router};

const STAMP: &str = "kai.scheduler/last-start-timestamp";
const SCHEDULER: &str = "system:serviceaccount:kai-scheduler:scheduler";
const PODGROUPER: &str = "system:serviceaccount:kai-scheduler:podgrouper";
const PAST: &str = "2026-01-02T03:04:05Z";
const FUTURE: &str = "2999-01-01T00:00:00Z";

fn post(body: impl Into<Body>) -> Request<Body> {
    oneshot::post("/mutate?timeout=2s", body)
}

fn review(group: &str, user: &str, object: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    let mut review = support::review(group, operation, object, old);
    review["request"]["kind"]["kind"] = json!("PodGroup");
    review["request"]["resource"]["resource"] = json!("podgroups");
    review["request"]["userInfo"]["username"] = json!(user);
    review
}

/// A started group of the coscheduling plugin, with these annotations.
fn started(annotations: &Value) -> Value {
    json!({"metadata": {"name": "demo", "annotations": annotations}, "status": {"phase": "Running"}})
}

fn group(annotations: &Value) -> Value {
    json!({"metadata": {"name": "demo", "namespace": "a", "annotations": annotations}, "spec": {"minMember": 2}})
}

fn stamped(stamp: &str) -> Value {
    group(&json!({STAMP: stamp, "note": "ü"}))
}

/// The time for which an API server waits.
const TIMEOUT: Duration = Duration::from_secs(2);

async fn outcome(body: impl Into<Body>) -> Result<Value, (StatusCode, String)> {
    let asked = Instant::now();
    let (webhook, ..) = counting();
    let (status, kind, body) = oneshot::answer(webhook, post(body)).await;
    assert!(asked.elapsed() < TIMEOUT, "{:?}", asked.elapsed());
    if status != StatusCode::OK {
        return Err((status, String::from_utf8(body.to_vec()).unwrap()));
    }
    assert_eq!(kind.as_deref(), Some("application/json"));
    let answer: Value = serde_json::from_slice(&body).unwrap();
    check(&answer);
    Ok(answer["response"].clone())
}

/// Checks that the API server accepts an answer, and that the answer refuses nothing.
fn check(answer: &Value) {
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let response = answer["response"].as_object().unwrap();
    assert_eq!(response["allowed"], json!(true), "{answer}");
    assert!(!response["uid"].as_str().unwrap().is_empty(), "{answer}");
    let patch_type = response.get("patch").map(|_| json!("JSONPatch"));
    assert_eq!(response.get("patchType"), patch_type.as_ref(), "{answer}");
    assert!(response.get("warnings").is_none_or(|warnings| !warnings.as_array().unwrap().is_empty()));
    let known = ["uid", "allowed", "patch", "patchType", "warnings"];
    assert!(response.keys().all(|key| known.contains(&key.as_str())), "{answer}");
}

async fn answer(review: &Value) -> Value {
    outcome(review.to_string()).await.unwrap()
}

fn patch_of(response: &Value) -> Value {
    let patch = response.get("patch").cloned();
    patch.map_or(json!([]), |patch| {
        serde_json::from_slice(&serde_json::from_value::<ByteString>(patch).unwrap().0).unwrap()
    })
}

/// The object as the API server stores it.
fn patched(response: &Value, object: &Value) -> Value {
    let mut object = object.clone();
    let patch: Patch = serde_json::from_value(patch_of(response)).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

fn stamp_of(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"].get(STAMP).and_then(Value::as_str)
}

fn warnings(response: &Value) -> Vec<&str> {
    response["warnings"].as_array().into_iter().flatten().map(|warning| warning.as_str().unwrap()).collect()
}

#[test]
fn every_kind_of_pod_group_is_sent_here_by_the_chart() {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/tenure/templates/webhook/mutating.yaml");
    let text = std::fs::read_to_string(chart).unwrap();
    let groups: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("          - ")).collect();
    assert_eq!(groups, PodGroupKind::ALL.map(PodGroupKind::group));
}

#[tokio::test]
async fn a_tenant_can_not_create_a_stamp() {
    for api_group in PodGroupKind::ALL.map(PodGroupKind::group) {
        for user in ["tenant", PODGROUPER, ""] {
            let object = stamped(FUTURE);
            let response = answer(&review(api_group, user, &object, &Value::Null)).await;
            let path = "/metadata/annotations/kai.scheduler~1last-start-timestamp";
            assert_eq!(patch_of(&response), json!([{"op": "remove", "path": path}]));
            assert_eq!(patched(&response, &object), group(&json!({"note": "ü"})));
            let expected = format!(
                "tenure: metadata.annotations[{STAMP}]: \"{FUTURE}\" was dropped: only trusted writers may set it (see trustedWriters in Tenure's configuration)"
            );
            assert_eq!(warnings(&response), [expected]);
        }
    }
}

#[tokio::test]
async fn a_request_for_more_time_is_of_the_user_who_creates_it() {
    for requested_by in [Value::Null, json!(""), json!("ada"), json!(5)] {
        let object =
            json!({"metadata": {"name": "a"}, "spec": {"duration": "1h", "requestedBy": requested_by}});
        let mut review = review("tenure.dev", "eva", &object, &Value::Null);
        review["request"]["kind"]["kind"] = json!("Extension");
        let response = answer(&review).await;
        let patch = json!([{"op": "add", "path": "/spec/requestedBy", "value": "eva"}]);
        assert_eq!(patch_of(&response), patch);
        review["request"]["object"] = patched(&response, &object);
        assert_eq!(patch_of(&answer(&review).await), json!([]), "once");
    }
}

#[tokio::test]
async fn what_a_tenant_changes_or_removes_is_put_back() {
    let old = stamped(PAST);
    for object in
        [stamped(FUTURE), stamped("2020-01-01T00:00:00Z"), stamped("soon"), group(&json!({"note": "ü"}))]
    {
        let response = answer(&review("scheduling.run.ai", "tenant", &object, &old)).await;
        assert_eq!(patched(&response, &object), old);
        assert_eq!(patch_of(&response).as_array().unwrap().len(), 1);
        assert_eq!(warnings(&response).len(), 1);
    }
}

/// A log of which only the number of bytes is kept.
#[derive(Clone, Default)]
struct CountedBytes(Arc<AtomicUsize>);

impl io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn callers_who_write_what_is_set_back_fill_no_log_however_long_their_names_are() {
    let bytes = CountedBytes::default();
    let log = bytes.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone()).finish();
    let _kept = tracing::subscriber::set_default(subscriber);
    let user = "x".repeat(100_000);
    let review = review("scheduling.run.ai", &user, &stamped(FUTURE), &stamped(PAST));
    for _ in 0..600 {
        answer(&review).await;
    }
    let bytes = bytes.0.load(Relaxed);
    assert!(bytes < 1_000_000, "{bytes}");
}

#[tokio::test]
async fn annotations_that_are_not_there_are_added_at_once() {
    let bare = json!({"metadata": {"name": "demo"}});
    for object in [bare, group(&Value::Null)] {
        let response = answer(&review("scheduling.run.ai", "tenant", &object, &stamped(PAST))).await;
        let expected = json!([{"op": "add", "path": "/metadata/annotations", "value": {STAMP: PAST}}]);
        assert_eq!(patch_of(&response), expected);
        assert_eq!(stamp_of(&patched(&response, &object)), Some(PAST));
    }
}

#[tokio::test]
async fn the_stamp_of_a_trusted_writer_stands() {
    for old in [Value::Null, group(&json!({})), stamped("2026-01-01T00:00:00Z")] {
        let response = answer(&review("scheduling.run.ai", SCHEDULER, &stamped(PAST), &old)).await;
        assert_eq!(response, json!({"uid": UID, "allowed": true}));
    }
    let response = answer(&review("scheduling.run.ai", SCHEDULER, &group(&json!({})), &stamped(PAST))).await;
    assert_eq!(response, json!({"uid": UID, "allowed": true}));
}

fn age(stamp: &str) -> i64 {
    Timestamp::now().duration_since(stamp.parse().unwrap()).as_secs()
}

#[tokio::test]
async fn the_future_is_set_back_to_now_for_trusted_writers_too() {
    let object = stamped(FUTURE);
    let response = answer(&review("scheduling.run.ai", SCHEDULER, &object, &Value::Null)).await;
    let patched = patched(&response, &object);
    assert!((0..60).contains(&age(stamp_of(&patched).unwrap())), "{patched}");
    assert!(warnings(&response)[0].ends_with("it lies in the future"));
}

#[tokio::test]
async fn what_has_started_is_stamped_without_a_word_and_once() {
    let api_group = "scheduling.x-k8s.io";
    for annotations in [json!({"note": "x"}), json!({}), Value::Null] {
        let old = started(&annotations);
        let response = answer(&review(api_group, "tenant", &old, &old)).await;
        let object = patched(&response, &old);
        assert!((0..60).contains(&age(stamp_of(&object).unwrap())), "{object}");
        assert_eq!((patch_of(&response).as_array().unwrap().len(), warnings(&response).len()), (1, 0));
        // as when another webhook has changed the object in between
        let again = answer(&review(api_group, "tenant", &object, &old)).await;
        assert_eq!(again, json!({"uid": UID, "allowed": true}));
    }
}

#[tokio::test]
async fn a_dry_run_is_answered_as_any_other() {
    for (object, old) in
        [(stamped(FUTURE), Value::Null), (stamped(FUTURE), stamped(PAST)), (stamped(PAST), stamped(PAST))]
    {
        let mut review = review("scheduling.run.ai", "tenant", &object, &old);
        let real = answer(&review).await;
        review["request"]["dryRun"] = json!(true);
        assert_eq!(answer(&review).await, real);
    }
}

#[tokio::test]
async fn what_is_not_to_be_reviewed_is_admitted_without_a_word() {
    let admitted = json!({"uid": UID, "allowed": true});
    let with = |field: &str, value: Value| {
        let mut review = review("scheduling.run.ai", "tenant", &stamped(FUTURE), &stamped(PAST));
        review["request"][field] = value;
        review
    };
    for review in [
        with("operation", json!("DELETE")),
        with("operation", json!("CONNECT")),
        with("operation", json!("")),
        with("subResource", json!("status")),
        with("subResource", json!("scale")),
    ] {
        assert_eq!(answer(&review).await, admitted, "{review}");
    }
}

#[tokio::test]
async fn what_can_not_be_read_is_admitted_with_a_warning() {
    let good = stamped(PAST);
    let bad = [
        json!(1),
        json!("a"),
        json!([]),
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": []}),
        json!({"metadata": {"annotations": "a"}}),
        json!({"metadata": {"annotations": {STAMP: 1}}}),
        json!({"metadata": {"annotations": {STAMP: null}}}),
        Value::Null,
    ];
    for bad in &bad {
        for (object, old) in [(bad, &good), (&good, bad)] {
            let mut review = review("scheduling.run.ai", "tenant", object, old);
            review["request"]["operation"] = json!("UPDATE");
            let response = answer(&review).await;
            assert!(response.get("patch").is_none(), "{response}");
            let [warning] = warnings(&response)[..] else { panic!("{response}") };
            assert!(
                warning.starts_with("tenure: PodGroup.scheduling.run.ai \"demo\" can't be read: "),
                "{warning}"
            );
        }
    }
}

#[tokio::test]
async fn other_kinds_are_admitted_with_a_warning() {
    let mut review = review("example.com", "tenant", &stamped(FUTURE), &Value::Null);
    let response = answer(&review).await;
    assert!(warnings(&response)[0].contains("kind \"PodGroup\" of group \"example.com\" isn't reviewed"));
    review["request"]["kind"] = json!({"group": "scheduling.k8s.io", "kind": "PriorityClass"});
    assert_eq!(warnings(&answer(&review).await).len(), 1);
}

#[tokio::test]
async fn a_client_of_queue_v2_loses_no_field_of_v3alpha1() {
    let queue =
        |annotations: Value| json!({"metadata": {"name": "demo", "annotations": annotations}, "spec": {}});
    let old = queue(json!({"tenure.dev/max-duration": "1h"}));
    for (annotations, operations) in [(json!({"a": "b"}), 1), (Value::Null, 1)] {
        let object = queue(annotations);
        let mut review = support::review("scheduling.run.ai", "UPDATE", &object, &old);
        review["request"]["kind"]["version"] = json!("v2");
        let response = answer(&review).await;
        assert_eq!(patch_of(&response).as_array().unwrap().len(), operations);
        let kept = patched(&response, &object);
        assert_eq!(kept["metadata"]["annotations"]["tenure.dev/max-duration"], json!("1h"));
        assert!(warnings(&response)[0].starts_with("tenure: kept spec.maxDuration \"1h\""));
        review["request"]["kind"]["version"] = json!("v3alpha1");
        assert_eq!(answer(&review).await, json!({"uid": UID, "allowed": true}));
    }
}

fn counting() -> (Router, Registry, Mutator) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let mutator = Mutator::default();
    mutator.config.set(trusting([SCHEDULER.to_owned()].into(), BTreeSet::new()));
    let validator = Validator::new(KnownQueues::default(), "t9k-system".into());
    (router(validator, mutator.clone(), metrics, &LargeBodies::default()), registry, mutator)
}

#[tokio::test]
async fn mutations_are_counted_by_group_kind_and_result() {
    let (webhook, registry, _) = counting();
    let runai = "scheduling.run.ai";
    for review in [
        review(runai, "tenant", &stamped(FUTURE), &Value::Null),
        review(runai, "tenant", &stamped(FUTURE), &stamped(PAST)),
        review(runai, SCHEDULER, &stamped(FUTURE), &Value::Null),
        review(runai, SCHEDULER, &stamped("soon"), &Value::Null),
        review(runai, SCHEDULER, &stamped(PAST), &Value::Null),
        review("scheduling.x-k8s.io", "tenant", &started(&json!({})), &started(&json!({}))),
        review("example.com", "tenant", &stamped(FUTURE), &Value::Null),
    ] {
        let (status, ..) = oneshot::answer(webhook.clone(), post(review.to_string())).await;
        assert_eq!(status, StatusCode::OK);
    }
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for (group, kind, result, count) in [
        (runai, "PodGroup", "Reverted", 2),
        (runai, "PodGroup", "Clamped", 1),
        (runai, "PodGroup", "Dropped", 1),
        (runai, "PodGroup", "Admitted", 1),
        ("scheduling.x-k8s.io", "PodGroup", "Stamped", 1),
        ("other", "other", "Admitted", 1),
    ] {
        let line =
            format!("mutations_total{{group=\"{group}\",kind=\"{kind}\",result=\"{result}\"}} {count}\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(text.contains("review_duration_seconds_count 7\n"), "{text}");
}

#[tokio::test]
async fn a_write_that_is_of_an_older_state_is_counted_as_a_conflict_and_answered_as_any_other() {
    let (webhook, registry, _) = counting();
    let of_version = |version: Value, stamp: &str| {
        let mut group = stamped(stamp);
        group["metadata"]["resourceVersion"] = version;
        group
    };
    let old = of_version(json!("12"), PAST);
    for (version, result, count) in [
        (json!("11"), "Conflict", 1),
        (json!("13"), "Conflict", 2),
        // as the API server compares them; it stores the last two where it takes updates of no version
        (json!("12"), "Reverted", 1),
        (json!("0012"), "Reverted", 2),
        (json!("0"), "Reverted", 3),
        (json!(""), "Reverted", 4),
        (Value::Null, "Reverted", 5),
        (json!("many"), "Reverted", 6),
        (json!(11), "Reverted", 7),
    ] {
        let object = of_version(version.clone(), FUTURE);
        let review = review("scheduling.run.ai", "tenant", &object, &old);
        let (_, _, body) = oneshot::answer(webhook.clone(), post(review.to_string())).await;
        let response = serde_json::from_slice::<Value>(&body).unwrap()["response"].take();
        assert_eq!(stamp_of(&patched(&response, &object)), Some(PAST), "{version}");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = format!("kind=\"PodGroup\",result=\"{result}\"}} {count}\n");
        assert!(text.contains(&line), "{version}: {line} in {text}");
    }
}

/// A configuration that trusts these users with start times and with queues.
fn trusting(trusted: BTreeSet<String>, tenancy_writers: BTreeSet<String>) -> Config {
    Config { trusted, tenancy_writers, ..Config::default() }
}

#[tokio::test]
async fn a_change_of_the_trusted_writers_counts_at_once() {
    let (webhook, _, mutator) = counting();
    let review = review("scheduling.run.ai", "writer", &stamped(PAST), &Value::Null);
    let ask = async || oneshot::answer(webhook.clone(), post(review.to_string())).await.2;
    let is_patched = |answer: Bytes| String::from_utf8(answer.to_vec()).unwrap().contains("JSONPatch");
    assert!(is_patched(ask().await));
    mutator.config.set(trusting(["writer".to_owned()].into(), BTreeSet::new()));
    assert!(!is_patched(ask().await));
    mutator.config.set(trusting(BTreeSet::new(), ["writer".to_owned()].into()));
    assert!(is_patched(ask().await));
}

fn in_queue(queue: &str) -> Value {
    json!({"metadata": {"name": "demo", "annotations": {"note": "ü"}}, "spec": {"minMember": 2, "queue": queue}})
}

#[tokio::test]
async fn the_queue_of_a_group_is_set_back() {
    let old = in_queue("short");
    let bare = json!({"metadata": {"name": "demo"}});
    let empty = json!({"metadata": {"name": "demo"}, "spec": {"minMember": 2}});
    for (object, old, patch) in [
        (in_queue("long"), &old, json!([{"op": "add", "path": "/spec/queue", "value": "short"}])),
        (empty.clone(), &old, json!([{"op": "add", "path": "/spec/queue", "value": "short"}])),
        (bare, &old, json!([{"op": "add", "path": "/spec", "value": {"queue": "short"}}])),
        (in_queue("long"), &empty, json!([{"op": "remove", "path": "/spec/queue"}])),
    ] {
        let response = answer(&review("scheduling.run.ai", SCHEDULER, &object, old)).await;
        assert_eq!(patch_of(&response), patch);
        let [warning] = warnings(&response)[..] else { panic!("{response}") };
        assert!(warning.starts_with("tenure: spec.queue: "), "{warning}");
        let patched = patched(&response, &object);
        assert_eq!(patched["spec"].get("queue"), old["spec"].get("queue"));
        // as when another webhook has changed the object in between
        let again = answer(&review("scheduling.run.ai", SCHEDULER, &patched, old)).await;
        assert_eq!(again, json!({"uid": UID, "allowed": true}));
    }
    let volcano = answer(&review("scheduling.volcano.sh", "tenant", &in_queue("long"), &old)).await;
    assert_eq!(volcano, json!({"uid": UID, "allowed": true}), "its queues are its own");
}

#[tokio::test]
async fn stamp_and_queue_are_set_back_together() {
    let stamped = |stamp: &str, queue: &str| {
        let mut group = in_queue(queue);
        group["metadata"]["annotations"][STAMP] = json!(stamp);
        group
    };
    let (object, old) = (stamped(FUTURE, "long"), stamped(PAST, "short"));
    let response = answer(&review("scheduler.tensorstack.dev", "tenant", &object, &old)).await;
    assert_eq!(patched(&response, &object), old);
    assert_eq!((patch_of(&response).as_array().unwrap().len(), warnings(&response).len()), (2, 2));
}

#[tokio::test]
async fn who_may_change_queues_is_configured_apart() {
    let (webhook, registry, mutator) = counting();
    let review = review("scheduling.run.ai", "writer", &in_queue("long"), &in_queue("short"));
    let ask = async || oneshot::answer(webhook.clone(), post(review.to_string())).await.2;
    let is_patched = |answer: Bytes| String::from_utf8(answer.to_vec()).unwrap().contains("JSONPatch");
    mutator.config.set(trusting(["writer".to_owned()].into(), BTreeSet::new()));
    assert!(is_patched(ask().await));
    mutator.config.set(trusting(BTreeSet::new(), ["writer".to_owned()].into()));
    assert!(!is_patched(ask().await));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for result in ["Reverted", "Admitted"] {
        assert!(text.contains(&format!("kind=\"PodGroup\",result=\"{result}\"}} 1\n")), "{text}");
    }
}

/// Bodies that are no review, or a review of something odd.
fn malformed() -> Vec<Vec<u8>> {
    let good = review("scheduling.run.ai", "tenant", &stamped(FUTURE), &stamped(PAST));
    let text = good.to_string();
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "\n",
        "\0",
        "null",
        "true",
        "0",
        "-",
        "\"review\"",
        "[]",
        "{}",
        "[{}]",
        "{\"request\":{}}",
        "{\"request\":null}",
        "{\"request\":[]}",
        "{",
        "}",
        "{\"a\":",
        "\u{feff}{}",
        "AdmissionReview",
    ]
    .map(|body| body.as_bytes().to_vec())
    .into();
    bodies.push(b"\xff\xfe".to_vec());
    bodies.push(b"{\"apiVersion\": \"\xed\xa0\x80\"}".to_vec());
    bodies.extend((1..20).map(|part| text.as_bytes()[..text.len() * part / 20].to_vec()));
    bodies.extend(["}", "\0", &text].map(|end| [text.as_bytes(), end.as_bytes()].concat()));
    for depth in [200, 100_000] {
        bodies.push(("[".repeat(depth)).into_bytes());
        bodies.push(("{\"a\":".repeat(depth)).into_bytes());
    }
    for (path, value) in [
        ("/apiVersion", json!("admission.k8s.io/v1beta1")),
        ("/kind", json!("ConversionReview")),
        ("/request", json!(1)),
        ("/request/uid", json!("")),
        ("/request/uid", json!(1)),
        ("/request/kind", json!("PodGroup")),
        ("/request/kind/group", json!(1)),
        ("/request/operation", json!(["UPDATE"])),
        ("/request/userInfo", json!("tenant")),
        ("/request/userInfo/username", json!(1)),
        ("/request/dryRun", json!("true")),
    ] {
        let mut review = good.clone();
        *review.pointer_mut(path).unwrap() = value;
        bodies.push(review.to_string().into_bytes());
    }
    bodies
}

#[tokio::test]
async fn what_is_no_review_is_a_bad_request() {
    let bodies = malformed();
    assert!(bodies.len() >= 40, "{}", bodies.len());
    for body in bodies {
        let start = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let (status, text) = outcome(body).await.expect_err(&start);
        assert_eq!(status, StatusCode::BAD_REQUEST, "{start}");
        assert!(text.contains("AdmissionReview"), "{start}: {text}");
    }
}

#[tokio::test]
async fn odd_objects_are_answered() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for value in [&deep, "1e999", "\"\\ud800\"", "null", "\"\\u0000\"", "{}", "99999999999999999999"] {
        for object in [
            json!("marker"),
            json!({"metadata": "marker"}),
            json!({"metadata": {}, "metadata2": "marker"}),
            json!({"metadata": {"annotations": "marker"}}),
            json!({"metadata": {"annotations": {STAMP: "marker"}}}),
            json!({"metadata": {"annotations": {"a": "marker"}}}),
            json!({"metadata": {"deletionTimestamp": "marker"}}),
            json!({"metadata": {}, "status": "marker"}),
            json!({"metadata": {}, "status": {"conditions": "marker", "phase": "marker"}}),
        ] {
            for old in [&stamped(PAST), &object] {
                let review = review("scheduler.tensorstack.dev", "tenant", &object, old).to_string();
                outcome(review.replace("\"marker\"", value)).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn only_a_post_of_json_of_a_bounded_size_is_read() {
    let good = review("scheduling.run.ai", "tenant", &stamped(FUTURE), &Value::Null).to_string();
    let status = async |request| oneshot::answer(webhook(KnownQueues::default()), request).await.0;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let mut request = post(good.clone());
        *request.method_mut() = method;
        assert_eq!(status(request).await, StatusCode::METHOD_NOT_ALLOWED);
    }
    let mut request = post(good.clone());
    request.headers_mut().insert(CONTENT_TYPE, "application/yaml".parse().unwrap());
    assert_eq!(status(request).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let chunked = Body::from_stream(stream::iter([Ok::<_, Infallible>(" ".repeat(MAX_BODY_BYTES + 1))]));
    assert_eq!(status(post(chunked)).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(status(post(good.clone() + &" ".repeat(MAX_BODY_BYTES - good.len()))).await, StatusCode::OK);
}

/// A request that announces its length, as an API server does.
fn announced(body: String) -> Request<Body> {
    let length = body.len();
    let mut request = post(body);
    request.headers_mut().insert(CONTENT_LENGTH, length.into());
    request
}

/// A status that is never stored may be that large, and no object may pass behind one unseen.
#[tokio::test]
async fn what_is_too_large_to_be_reviewed_is_refused() {
    let mut object = stamped(FUTURE);
    object["status"] = json!({"phase": "x".repeat(MAX_BODY_BYTES)});
    let review = review("scheduling.run.ai", "tenant", &object, &Value::Null);
    // as Go writes it: serde would sort
    let text = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","object":{}}}}}"#,
        review["request"]["object"]
    );
    let length = text.len();
    let (status, kind, body) =
        oneshot::answer(webhook(KnownQueues::default()), announced(text.clone())).await;
    assert_eq!((status, kind.as_deref()), (StatusCode::OK, Some("application/json")));
    let answer: Value = serde_json::from_slice(&body).unwrap();
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!(UID), &json!(false)), "{answer}");
    let status = &response["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(413), &json!("RequestEntityTooLarge")));
    assert!(status["message"].as_str().unwrap().contains(&format!("takes {length} bytes")), "{status}");
    // without a uid there is no review to answer
    let odd = text.replace("\"uid\":", "\"id\":");
    let (status, ..) = oneshot::answer(webhook(KnownQueues::default()), announced(odd)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

fn stamps() -> impl Strategy<Value = Value> {
    // none so near the limit that it grows too old in between
    let recent = prop::sample::select(vec![-100, -40, -20, -1, 0, 2, 100]).prop_map(|seconds| {
        let at = Timestamp::now() + SignedDuration::from_secs(seconds);
        json!(at.strftime("%FT%TZ").to_string())
    });
    prop_oneof![Just(json!(PAST)), Just(json!(FUTURE)), recent, ".{0,9}".prop_map(Value::from)]
}

fn annotations() -> impl Strategy<Value = Value> {
    let others = proptest::collection::btree_map("[a-z/~\"]{0,3}", ".{0,3}", 0..3);
    prop_oneof![
        1 => Just(Value::Null),
        4 => (others, proptest::option::of(stamps())).prop_map(|(others, stamp)| {
            let mut annotations = json!(others);
            if let Some(stamp) = stamp {
                annotations[STAMP] = stamp;
            }
            annotations
        }),
    ]
}

fn without_stamp(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(STAMP);
    } else {
        object["metadata"]["annotations"] = json!({});
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_patched_is_admitted_the_next_time(
        new in annotations(), old in proptest::option::of(annotations()), trusted: bool, runs: bool,
    ) {
        let object = |annotations: &Value| if runs { started(annotations) } else { group(annotations) };
        let (new, old) = (object(&new), old.as_ref().map_or(Value::Null, object));
        let user = if trusted { SCHEDULER } else { "tenant" };
        let ask = |object: &Value| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(answer(&review("scheduling.x-k8s.io", user, object, &old)))
        };
        let response = ask(&new);
        prop_assert!(patch_of(&response).as_array().unwrap().len() <= 1);
        let patched = patched(&response, &new);
        prop_assert_eq!(without_stamp(&patched), without_stamp(&new));
        if let Some(stamp) = stamp_of(&patched) {
            // clocks may differ by a minute
            prop_assert!(age(stamp) >= -60);
        }
        prop_assert_eq!(ask(&patched), json!({"uid": UID, "allowed": true}));
    }
}
