//! Golden reviews: the API server's questions, and the whole answers.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "support/oneshot.rs"]
mod oneshot;
mod support;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, Response, StatusCode},
};
use kube::Client;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use support::{UID, review, webhook};
use tenure_policy::config::Config;
use tenure_service::watch::Store;
use tenure_types::{projection::RunaiQueueObject, runai::QueueVersion};
use tenure_webhook::{KnownQueues, LargeBodies, Metrics, Mutator, Validator, router};

const RUNAI: &str = "scheduling.run.ai";
const TENSORSTACK: &str = "scheduler.tensorstack.dev";
const SCHEDULING: &str = "scheduling.k8s.io";

const MINIMUM: &str = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority";
const SECONDS: &str = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds";

fn post(body: impl Into<Body>) -> Request<Body> {
    oneshot::post("/validate", body)
}

async fn ask(webhook: Router, review: &Value) -> Value {
    let (status, kind, body) = oneshot::answer(webhook, post(review.to_string())).await;
    assert_eq!((status, kind.as_deref()), (StatusCode::OK, Some("application/json")));
    serde_json::from_slice(&body).unwrap()
}

async fn answer(review: &Value) -> Value {
    ask(webhook(KnownQueues::default()), review).await
}

fn object(spec: &Value) -> Value {
    json!({"metadata": {"name": "demo", "namespace": "t9k-system", "generation": 1}, "spec": spec})
}

fn create(group: &str, spec: &Value) -> Value {
    review(group, "CREATE", &object(spec), &Value::Null)
}

fn update(group: &str, old: &Value, new: &Value) -> Value {
    review(group, "UPDATE", &object(new), &object(old))
}

/// A priority class of value 8000.
fn class(annotations: &Value) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "demo", "annotations": annotations},
        "value": 8000, "globalDefault": false, "preemptionPolicy": "PreemptLowerPriority",
    })
}

fn class_review(operation: &str, object: &Value, old: &Value) -> Value {
    let mut review = review(SCHEDULING, operation, object, old);
    let request = review["request"].as_object_mut().unwrap();
    let kind = json!({"group": SCHEDULING, "version": "v1", "kind": "PriorityClass"});
    let resource = json!({"group": SCHEDULING, "version": "v1", "resource": "priorityclasses"});
    for (field, value) in
        [("kind", &kind), ("requestKind", &kind), ("resource", &resource), ("requestResource", &resource)]
    {
        request.insert(field.into(), value.clone());
    }
    request.remove("namespace");
    review
}

fn create_class(annotations: &Value) -> Value {
    class_review("CREATE", &class(annotations), &Value::Null)
}

fn update_class(old: &Value, new: &Value) -> Value {
    class_review("UPDATE", &class(new), &class(old))
}

fn queue(name: &str, spec: &Value) -> RunaiQueueObject {
    serde_json::from_value(
        json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}),
    )
    .unwrap()
}

fn knowing(queues: &[(&str, Value)]) -> KnownQueues {
    let mut known = KnownQueues::default();
    for (name, spec) in queues {
        known.apply(queue(name, spec));
    }
    known
}

fn admitted() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": true},
    })
}

fn warned(warnings: &[&str]) -> Value {
    let mut answer = admitted();
    answer["response"]["warnings"] = json!(warnings);
    answer
}

/// `text` is what the message says after "is invalid".
fn refused(group: &str, name: &str, text: &str, causes: &[(&str, &str)]) -> Value {
    refused_object(("Queue", group), name, text, causes)
}

fn refused_object((kind, group): (&str, &str), name: &str, text: &str, causes: &[(&str, &str)]) -> Value {
    let cause = |(field, message): &(&str, &str)| json!({"field": field, "message": message, "reason": "FieldValueInvalid"});
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": UID,
            "allowed": false,
            "status": {
                "apiVersion": "v1",
                "kind": "Status",
                "metadata": {},
                "status": "Failure",
                "code": 422,
                "reason": "Invalid",
                "message": format!("{kind}.{group} \"{name}\" is invalid: {text}"),
                "details": {
                    "group": group,
                    "kind": kind,
                    "name": name,
                    "causes": causes.iter().map(cause).collect::<Vec<_>>(),
                },
            },
        },
    })
}

/// The answer that refuses an object for one field.
fn refused_for(group: &str, field: &str, message: &str) -> Value {
    refused(group, "demo", &format!("{field}: {message}"), &[(field, message)])
}

#[tokio::test]
async fn a_good_queue_of_each_kind_is_admitted_without_a_word() {
    let runai = json!({
        "displayName": "Demo",
        "priority": 100,
        "preemptMinRuntime": "5m",
        "reclaimMinRuntime": "0s",
        "maxDuration": "1d12h",
        "maxDurationAction": "Pause",
        "resources": {"gpu": {"quota": 8, "overQuotaWeight": 1, "limit": -1}},
    });
    let tensorstack = json!({
        "maxDuration": "1h20m15s",
        "priority": 50,
        "preemptible": true,
        "quota": {"requests": {"cpu": "10", "nvidia.com/gpu": 8}},
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
    });
    for (group, spec) in [(RUNAI, runai), (TENSORSTACK, tensorstack)] {
        assert_eq!(answer(&create(group, &spec)).await, admitted(), "{group}");
        assert_eq!(answer(&update(group, &json!({}), &spec)).await, admitted(), "{group}");
    }
}

#[tokio::test]
async fn a_queue_without_a_field_is_admitted() {
    for group in [RUNAI, TENSORSTACK] {
        assert_eq!(answer(&create(group, &json!({}))).await, admitted(), "{group}");
        let without_spec = json!({"metadata": {"name": "demo"}});
        let review = review(group, "CREATE", &without_spec, &Value::Null);
        assert_eq!(answer(&review).await, admitted(), "{group}");
    }
}

#[tokio::test]
async fn a_bad_field_is_refused_in_the_words_of_the_api() {
    let answer = answer(&create(RUNAI, &json!({"maxDuration": "10 s"}))).await;
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": false,
            "status": {
                "apiVersion": "v1",
                "kind": "Status",
                "metadata": {},
                "status": "Failure",
                "code": 422,
                "reason": "Invalid",
                "message": "Queue.scheduling.run.ai \"demo\" is invalid: spec.maxDuration: Invalid value: \"10 s\": must be a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns): unknown unit \" s\"",
                "details": {
                    "group": "scheduling.run.ai",
                    "kind": "Queue",
                    "name": "demo",
                    "causes": [{
                        "field": "spec.maxDuration",
                        "message": "Invalid value: \"10 s\": must be a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns): unknown unit \" s\"",
                        "reason": "FieldValueInvalid",
                    }],
                },
            },
        },
    });
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_queue_of_v2_is_reviewed_with_its_annotations_which_errors_name() {
    let review = |ceiling: &str, old: &Value| {
        let annotations = json!({"tenure.dev/max-duration": ceiling});
        let object = json!({"metadata": {"name": "demo", "annotations": annotations}, "spec": {}});
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let mut review = review(RUNAI, operation, &object, old);
        review["request"]["kind"]["version"] = json!("v2");
        (review, object)
    };
    let (good, _) = review("1h", &Value::Null);
    assert_eq!(answer(&good).await, admitted());
    let (bad, stored) = review("0s", &Value::Null);
    let field = "metadata.annotations[tenure.dev/max-duration]";
    let message = "Invalid value: \"0s\": must be greater than zero; leave it out for no limit of its own";
    assert_eq!(answer(&bad).await, refused_for(RUNAI, field, message));
    // it was stored around the webhook, and another client changes something else now
    let (same, _) = review("0s", &stored);
    assert_eq!(answer(&same).await, warned(&[&format!("{field}: {message}")]));
    let (other, _) = review("0h", &stored);
    assert_eq!(answer(&other).await["response"]["allowed"], json!(false));
}

#[tokio::test]
async fn each_kind_has_its_own_grammar_of_durations() {
    let message = "Invalid value: \"1.5h\": must be a duration of whole numbers such as 30s, 1h20m15s or 15d (units, in this order: y, w, d, h, m, s, ms): unknown unit \".\"";
    let spec = json!({"maxDuration": "1.5h"});
    assert_eq!(
        answer(&create(TENSORSTACK, &spec)).await,
        refused_for(TENSORSTACK, "spec.maxDuration", message)
    );
    assert_eq!(answer(&create(RUNAI, &spec)).await, admitted());
}

#[tokio::test]
async fn every_bad_field_has_a_cause_of_its_own() {
    let spec = json!({"maxDuration": "0s", "priority": 101});
    let zero = "Invalid value: \"0s\": must be greater than zero; leave it out for no limit";
    let priority = "Invalid value: 101: must be from 0 to 100";
    let text = format!("[spec.maxDuration: {zero}, spec.priority: {priority}]");
    assert_eq!(
        answer(&create(TENSORSTACK, &spec)).await,
        refused(TENSORSTACK, "demo", &text, &[("spec.maxDuration", zero), ("spec.priority", priority)])
    );
}

#[tokio::test]
async fn a_floor_above_the_own_ceiling_is_refused() {
    let spec = json!({"preemptMinRuntime": "61m", "maxDuration": "1h"});
    let message = "Invalid value: \"61m\": must not be longer than the queue's own maxDuration, 1h";
    assert_eq!(answer(&create(RUNAI, &spec)).await, refused_for(RUNAI, "spec.preemptMinRuntime", message));
}

#[tokio::test]
async fn what_is_probably_not_meant_is_admitted_with_a_warning() {
    let missing = "spec.parentQueue: queue \"gone\" doesn't exist: until it does, this queue counts as a top-level queue";
    assert_eq!(answer(&create(RUNAI, &json!({"parentQueue": "gone"}))).await, warned(&[missing]));
    let mut elsewhere = create(TENSORSTACK, &json!({"maxDuration": "1d"}));
    elsewhere["request"]["namespace"] = json!("default");
    let namespace = "metadata.namespace: queues count only in namespace \"t9k-system\": this one, in \"default\", has no effect";
    assert_eq!(answer(&elsewhere).await, warned(&[namespace]));
    let delay = "spec.requeueDelay: has no effect unless maxDurationAction is Requeue: here it is Pause";
    assert_eq!(answer(&create(RUNAI, &json!({"requeueDelay": "5m"}))).await, warned(&[delay]));
    let slices = json!({"maxDurationAction": "Requeue", "onReversal": "DeletePods"});
    let undone = "spec.onReversal: has no effect unless maxDurationAction is Pause: here it is Requeue";
    assert_eq!(answer(&create(RUNAI, &slices)).await, warned(&[undone]));
}

#[tokio::test]
async fn a_refusal_keeps_its_warnings() {
    let known = knowing(&[("root", json!({"maxDuration": "1h"}))]);
    let spec = json!({"parentQueue": "root", "maxDuration": "2h", "requeueDelay": "-1s"});
    let answer = ask(webhook(known), &create(RUNAI, &spec)).await;
    let message = "Invalid value: \"-1s\": must be a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns): a sign is not allowed";
    let mut expected = refused_for(RUNAI, "spec.requeueDelay", message);
    expected["response"]["warnings"] =
        json!(["spec.maxDuration: 2h is longer than 1h of ancestor \"root\": 1h applies"]);
    assert_eq!(answer, expected);
}

#[tokio::test]
async fn a_delete_of_a_bad_queue_is_admitted() {
    for group in [RUNAI, TENSORSTACK] {
        let bad = object(&json!({"maxDuration": "soon"}));
        let review = review(group, "DELETE", &Value::Null, &bad);
        assert_eq!(answer(&review).await, admitted(), "{group}");
    }
}

#[tokio::test]
async fn what_is_no_queue_is_admitted_with_a_warning() {
    let mut pod = review("", "CREATE", &json!({"spec": {"maxDuration": "soon"}}), &Value::Null);
    pod["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    assert_eq!(
        answer(&pod).await,
        warned(&[
            "tenure: kind \"Pod\" of group \"\" isn't reviewed: remove it from the rules of the webhook configuration"
        ])
    );
    let other = create("example.com", &json!({"maxDuration": "soon"}));
    assert_eq!(
        answer(&other).await,
        warned(&[
            "tenure: kind \"Queue\" of group \"example.com\" isn't reviewed: remove it from the rules of the webhook configuration"
        ])
    );
}

#[tokio::test]
async fn a_field_that_does_not_decode_is_named_with_its_value() {
    let cases = [
        (
            RUNAI,
            json!({"priority": "high"}),
            "spec.priority",
            "Invalid value: \"high\": invalid type: string \"high\", expected i32",
        ),
        (
            RUNAI,
            json!({"priority": 1.5}),
            "spec.priority",
            "Invalid value: 1.5: invalid type: floating point `1.5`, expected i32",
        ),
        (
            RUNAI,
            json!({"priority": 1_u64 << 40}),
            "spec.priority",
            "Invalid value: 1099511627776: invalid value: integer `1099511627776`, expected i32",
        ),
        (
            RUNAI,
            json!({"maxDuration": 10}),
            "spec.maxDuration",
            "Invalid value: 10: invalid type: integer `10`, expected a string",
        ),
        (
            TENSORSTACK,
            json!({"maxDuration": 10}),
            "spec.maxDuration",
            "Invalid value: 10: invalid type: integer `10`, expected a string",
        ),
        (
            RUNAI,
            json!({"maxDurationAction": "Stop"}),
            "spec.maxDurationAction",
            "Invalid value: \"Stop\": unknown variant `Stop`, expected `Pause` or `Requeue`",
        ),
        (
            RUNAI,
            json!({"onReversal": "Delete"}),
            "spec.onReversal",
            "Invalid value: \"Delete\": unknown variant `Delete`, expected `Pause` or `DeletePods`",
        ),
        (
            RUNAI,
            json!({"resources": {"gpu": {"quota": "8"}}}),
            "spec.resources.gpu.quota",
            "Invalid value: \"8\": invalid type: string \"8\", expected f64",
        ),
        (RUNAI, Value::Null, "spec", "Invalid value: null: must be an object"),
        (RUNAI, json!([]), "spec", "Invalid value: []: must be an object"),
        (TENSORSTACK, json!(["1d"]), "spec", "Invalid value: [\"1d\"]: must be an object"),
        (TENSORSTACK, json!("1d"), "spec", "Invalid value: \"1d\": must be an object"),
        (
            TENSORSTACK,
            json!({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": 1, "operator": "Exists"}]}}),
            "spec.nodeSelector.matchExpressions[1].key",
            "Invalid value: 1: invalid type: integer `1`, expected a string",
        ),
        (
            TENSORSTACK,
            json!({"quota": {"requests": {"nvidia.com/gpu": [8]}}}),
            "spec.quota.requests.nvidia.com/gpu",
            "Invalid value: [8]: invalid type: sequence, expected Quantity",
        ),
    ];
    for (group, spec, field, message) in cases {
        assert_eq!(answer(&create(group, &spec)).await, refused_for(group, field, message), "{spec}");
    }
}

#[tokio::test]
async fn a_field_twice_is_refused() {
    let twice = create(RUNAI, &json!({"marker": 0}))
        .to_string()
        .replace(r#""marker":0"#, r#""priority":1,"priority":2"#);
    let (_, _, body) = oneshot::answer(webhook(KnownQueues::default()), post(twice)).await;
    let message = "Invalid value: {\"priority\":2}: duplicate field `priority`";
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), refused_for(RUNAI, "spec", message));
}

#[tokio::test]
async fn metadata_that_does_not_decode_is_named() {
    let bad = json!({"metadata": {"name": 5}, "spec": {}});
    let message = "Invalid value: 5: invalid type: integer `5`, expected a string";
    assert_eq!(
        answer(&review(RUNAI, "CREATE", &bad, &Value::Null)).await,
        refused_for(RUNAI, "metadata.name", message)
    );
}

#[tokio::test]
async fn what_is_no_object_is_refused() {
    let cases = [
        (Value::Null, "Invalid value: null: the request has no object"),
        (json!([]), "Invalid value: []: must be an object"),
        (json!("demo"), "Invalid value: \"demo\": must be an object"),
        (json!(1), "Invalid value: 1: must be an object"),
    ];
    for (object, message) in cases {
        let review = review(RUNAI, "CREATE", &object, &Value::Null);
        assert_eq!(answer(&review).await, refused_for(RUNAI, "object", message), "{object}");
    }
}

#[tokio::test]
async fn a_bad_spec_that_was_stored_does_not_keep_its_metadata_from_changing() {
    let bad = json!({"maxDuration": "soon", "priority": 1});
    let warning = "spec.maxDuration: Invalid value: \"soon\": must be a duration of whole numbers such as 30s, 1h20m15s or 15d (units, in this order: y, w, d, h, m, s, ms): a number is missing before \"soon\"";
    let mut labelled = update(TENSORSTACK, &bad, &bad);
    labelled["request"]["object"]["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(answer(&labelled).await, warned(&[warning]));
}

#[tokio::test]
async fn a_spec_that_was_stored_and_does_not_decode_does_not_keep_its_metadata_from_changing() {
    for (spec, warning) in [
        (
            json!({"priority": "high"}),
            "spec.priority: Invalid value: \"high\": invalid type: string \"high\", expected i32",
        ),
        (json!([]), "spec: Invalid value: []: must be an object"),
        (Value::Null, "spec: Invalid value: null: must be an object"),
    ] {
        assert_eq!(answer(&update(RUNAI, &spec, &spec)).await, warned(&[warning]), "{spec}");
    }
}

#[tokio::test]
async fn a_queue_about_to_go_is_admitted_with_warnings() {
    let mut going = update(TENSORSTACK, &json!({}), &json!({"priority": 101}));
    going["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let warning = "spec.priority: Invalid value: 101: must be from 0 to 100";
    assert_eq!(answer(&going).await, warned(&[warning]));
}

#[tokio::test]
async fn an_update_that_makes_a_good_queue_bad_is_refused() {
    let review = update(TENSORSTACK, &json!({"priority": 100}), &json!({"priority": 101}));
    let expected = refused_for(TENSORSTACK, "spec.priority", "Invalid value: 101: must be from 0 to 100");
    assert_eq!(answer(&review).await, expected);
}

#[tokio::test]
async fn an_update_that_leaves_one_of_two_bad_fields_is_refused() {
    let old = json!({"priority": 101, "maxDuration": "0s"});
    let expected = refused_for(TENSORSTACK, "spec.priority", "Invalid value: 101: must be from 0 to 100");
    assert_eq!(answer(&update(TENSORSTACK, &old, &json!({"priority": 101}))).await, expected);
}

#[tokio::test]
async fn an_update_that_mends_a_bad_queue_is_admitted() {
    let review = update(TENSORSTACK, &json!({"priority": 101}), &json!({"priority": 100}));
    assert_eq!(answer(&review).await, admitted());
}

const CYCLE: &str = "Invalid value: \"b\": a queue can't be its own ancestor: demo -> b -> a -> demo";

fn under_demo() -> KnownQueues {
    knowing(&[("demo", json!({})), ("a", json!({"parentQueue": "demo"})), ("b", json!({"parentQueue": "a"}))])
}

#[tokio::test]
async fn a_queue_that_would_be_its_own_ancestor_is_refused() {
    let review = update(RUNAI, &json!({}), &json!({"parentQueue": "b"}));
    assert_eq!(ask(webhook(under_demo()), &review).await, refused_for(RUNAI, "spec.parentQueue", CYCLE));
}

#[tokio::test]
async fn what_the_watch_saw_last_is_what_counts() {
    let review = update(RUNAI, &json!({}), &json!({"parentQueue": "b"}));
    let mut known = under_demo();
    let webhook = webhook(known.clone());
    known.apply(queue("a", &json!({})));
    assert_eq!(ask(webhook.clone(), &review).await, admitted());
    known.apply(queue("a", &json!({"parentQueue": "demo"})));
    assert_eq!(ask(webhook.clone(), &review).await, refused_for(RUNAI, "spec.parentQueue", CYCLE));
    Store::<RunaiQueueObject>::delete(&mut known, &"a".into());
    assert_eq!(ask(webhook.clone(), &review).await, admitted());
    Store::<RunaiQueueObject>::retain(&mut known, &["demo".into()].into());
    let missing =
        "spec.parentQueue: queue \"b\" doesn't exist: until it does, this queue counts as a top-level queue";
    assert_eq!(ask(webhook, &review).await, warned(&[missing]));
}

/// An API server that answers with this status, or never, when it is asked for queue "b"; and the number of questions.
fn api_server(status: Option<u16>) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        assert_eq!(request.uri().path(), "/apis/scheduling.run.ai/v3alpha1/queues/b");
        count.fetch_add(1, Relaxed);
        async move {
            let Some(status) = status else { return std::future::pending().await };
            let found = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "b"},
            });
            let failure = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": status,
                "message": "none", "reason": if status == 404 { "NotFound" } else { "InternalError" },
            });
            let body = if status == 200 { found } else { failure }.to_string().into_bytes();
            let response = Response::builder().status(status).header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(kube::client::Body::from(body)).unwrap())
        }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_the_watch_has_not_shown_yet_is_looked_up_before_a_warning() {
    let missing =
        "spec.parentQueue: queue \"b\" doesn't exist: until it does, this queue counts as a top-level queue";
    for (status, expected) in [
        (Some(200), admitted()),
        (Some(404), warned(&[missing])),
        (Some(403), warned(&[missing])),
        (None, warned(&[missing])),
    ] {
        let (client, asked) = api_server(status);
        let known = knowing(&[("known", json!({}))]);
        let validator = Validator::new(known, "t9k-system".into()).asking(client, QueueVersion::V3alpha1);
        let metrics = Metrics::register(&mut Registry::default());
        let webhook = router(validator, Mutator::default(), metrics, &LargeBodies::default());
        let review = |parent: &str| create(RUNAI, &json!({"parentQueue": parent}));
        assert_eq!(ask(webhook.clone(), &review("known")).await, admitted());
        assert_eq!(asked.load(Relaxed), 0);
        assert_eq!(ask(webhook, &review("b")).await, expected, "{status:?}");
        assert_eq!(asked.load(Relaxed), 1);
    }
}

#[tokio::test]
async fn the_name_is_the_objects_if_the_request_has_none() {
    let mut review = create(RUNAI, &json!({"parentQueue": "b"}));
    review["request"].as_object_mut().unwrap().remove("name");
    let expected = refused_for(RUNAI, "spec.parentQueue", CYCLE);
    assert_eq!(ask(webhook(under_demo()), &review).await, expected);
    review["request"]["name"] = json!("");
    assert_eq!(ask(webhook(under_demo()), &review).await, expected);
}

#[tokio::test]
async fn a_generated_name_is_named_in_the_refusal() {
    let mut review = create(TENSORSTACK, &json!({"priority": 101}));
    review["request"]["name"] = json!("");
    let message = "Invalid value: 101: must be from 0 to 100";
    for (metadata, name) in [
        (json!({"generateName": "demo-", "name": "demo-x7k2p"}), "demo-x7k2p"),
        (json!({"generateName": "demo-"}), ""),
    ] {
        review["request"]["object"]["metadata"] = metadata;
        assert_eq!(
            answer(&review).await,
            refused(TENSORSTACK, name, &format!("spec.priority: {message}"), &[("spec.priority", message)])
        );
    }
}

#[tokio::test]
async fn a_queue_without_any_name_is_in_no_cycle() {
    let mut review = create(RUNAI, &json!({"parentQueue": "b"}));
    review["request"]["name"] = json!("");
    review["request"]["object"]["metadata"] = json!({"generateName": "demo-"});
    assert_eq!(ask(webhook(under_demo()), &review).await, admitted());
}

const BAD_MINIMUM: &str =
    "Invalid value: \"high\": must be a priority, a whole number from -2147483648 to 2147483647";
const BAD_SECONDS: &str =
    "Invalid value: \"10m\": must be a whole number of seconds, such as 600; -1 means no limit";

fn refused_class(causes: &[(&str, &str)]) -> Value {
    let causes: Vec<_> =
        causes.iter().map(|(key, message)| (format!("metadata.annotations[{key}]"), *message)).collect();
    let texts: Vec<_> = causes.iter().map(|(field, message)| format!("{field}: {message}")).collect();
    let text = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
    let causes: Vec<_> = causes.iter().map(|(field, message)| (field.as_str(), *message)).collect();
    refused_object(("PriorityClass", SCHEDULING), "demo", &text, &causes)
}

#[tokio::test]
async fn a_class_that_tolerates_something_or_says_nothing_is_admitted_without_a_word() {
    for annotations in [json!({MINIMUM: "10000", SECONDS: "600"}), json!({"a": "b"}), json!({}), Value::Null]
    {
        assert_eq!(answer(&create_class(&annotations)).await, admitted(), "{annotations}");
        assert_eq!(answer(&update_class(&json!({}), &annotations)).await, admitted(), "{annotations}");
    }
}

#[tokio::test]
async fn a_toleration_that_can_not_be_read_is_refused_in_the_words_of_the_api() {
    let review = create_class(&json!({MINIMUM: "10000", SECONDS: "10m"}));
    assert_eq!(answer(&review).await, refused_class(&[(SECONDS, BAD_SECONDS)]));
}

#[tokio::test]
async fn every_toleration_that_can_not_be_read_has_a_cause_of_its_own() {
    let review = create_class(&json!({MINIMUM: "high", SECONDS: "10m"}));
    assert_eq!(answer(&review).await, refused_class(&[(MINIMUM, BAD_MINIMUM), (SECONDS, BAD_SECONDS)]));
}

#[tokio::test]
async fn a_toleration_without_effect_is_admitted_with_a_warning() {
    let warning = format!(
        "metadata.annotations[{SECONDS}]: 600 has no effect without {MINIMUM}, whose default is 8001: set that above 8001"
    );
    assert_eq!(answer(&create_class(&json!({SECONDS: "600"}))).await, warned(&[&warning]));
    let former = "preemption-toleration.scheduling.sigs.k8s.io/toleration-seconds";
    let warning = format!("metadata.annotations[{former}]: \"600\" has no effect; did you mean {SECONDS}?");
    assert_eq!(answer(&create_class(&json!({former: "600"}))).await, warned(&[&warning]));
}

#[tokio::test]
async fn a_bad_toleration_that_was_stored_does_not_keep_the_rest_of_its_class_from_changing() {
    let warning = format!("metadata.annotations[{MINIMUM}]: {BAD_MINIMUM}");
    let mut review = update_class(&json!({MINIMUM: "high"}), &json!({MINIMUM: "high", "a": "b"}));
    review["request"]["object"]["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(answer(&review).await, warned(&[&warning]));
}

#[tokio::test]
async fn an_update_that_leaves_one_of_two_bad_tolerations_is_refused() {
    let old = json!({MINIMUM: "high", SECONDS: "10m"});
    let review = update_class(&old, &json!({MINIMUM: "high"}));
    assert_eq!(answer(&review).await, refused_class(&[(MINIMUM, BAD_MINIMUM)]));
    assert_eq!(answer(&update_class(&old, &json!({}))).await, admitted());
}

#[tokio::test]
async fn a_class_about_to_go_is_admitted_with_warnings() {
    let mut going = update_class(&json!({}), &json!({MINIMUM: "high"}));
    going["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let warning = format!("metadata.annotations[{MINIMUM}]: {BAD_MINIMUM}");
    assert_eq!(answer(&going).await, warned(&[&warning]));
}

#[tokio::test]
async fn a_bad_class_may_be_deleted() {
    let bad = class(&json!({MINIMUM: "high"}));
    assert_eq!(answer(&class_review("DELETE", &Value::Null, &bad)).await, admitted());
}

/// A webhook that knows these queues, and bounds the floors of `research` and those below it.
fn bounded(queues: &[(&str, Value)]) -> Router {
    let text = "delegation: {bounds: [{queue: research, preemptMinRuntime: 2h, reclaimMinRuntime: 30m}]}";
    let validator = Validator::new(knowing(queues), "t9k-system".into());
    validator.config.set(Config::parse(text).unwrap());
    let metrics = Metrics::register(&mut Registry::default());
    router(validator, Mutator::default(), metrics, &LargeBodies::default())
}

const BEYOND: &str = "Invalid value: \"1000h\": must be at most 2h: delegation.bounds of Tenure's configuration limits queue \"research\" and those below it";

/// A review of the same queue in the other version.
fn in_v2(mut review: Value) -> Value {
    for field in ["kind", "resource", "requestKind", "requestResource"] {
        review["request"][field]["version"] = json!("v2");
    }
    review
}

#[tokio::test]
async fn a_floor_beyond_the_bound_is_refused_in_both_versions() {
    let webhook = bounded(&[("research", json!({}))]);
    let spec = |floor: &str| json!({"parentQueue": "research", "preemptMinRuntime": floor});
    let refused = refused_for(RUNAI, "spec.preemptMinRuntime", BEYOND);
    for version in [Into::into, in_v2] {
        assert_eq!(ask(webhook.clone(), &version(create(RUNAI, &spec("1000h")))).await, refused);
        assert_eq!(ask(webhook.clone(), &version(create(RUNAI, &spec("2h")))).await, admitted());
        let raised = version(update(RUNAI, &spec("2h"), &spec("1000h")));
        assert_eq!(ask(webhook.clone(), &raised).await, refused);
        for (old, new) in [("1000h", "1000h"), ("1000h", "999h"), ("1000h", "1h")] {
            let review = version(update(RUNAI, &spec(old), &spec(new)));
            assert_eq!(ask(webhook.clone(), &review).await, admitted(), "{old} to {new}");
        }
    }
}

/// A user who may write a queue may add a finalizer to it and delete it: it would stay for as long as they like.
#[tokio::test]
async fn a_queue_about_to_go_keeps_to_the_bound() {
    let webhook = bounded(&[("research", json!({}))]);
    let spec = |floor: &str| json!({"parentQueue": "research", "preemptMinRuntime": floor});
    let mut going = update(RUNAI, &spec("1h"), &spec("1000h"));
    going["request"]["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let refused = refused_for(RUNAI, "spec.preemptMinRuntime", BEYOND);
    assert_eq!(ask(webhook, &going).await, refused);
}

#[tokio::test]
async fn reviews_and_rejected_requests_are_counted() {
    let mut registry = Registry::with_prefix("tenure_webhook");
    let metrics = Metrics::register(&mut registry);
    let validator = Validator::new(KnownQueues::default(), "t9k-system".into());
    let webhook = router(validator, Mutator::default(), metrics, &LargeBodies::default());
    for spec in [json!({}), json!({"parentQueue": "gone"}), json!({"maxDuration": "soon"})] {
        ask(webhook.clone(), &create(RUNAI, &spec)).await;
    }
    ask(webhook.clone(), &create("example.com", &json!({}))).await;
    ask(webhook.clone(), &create_class(&json!({SECONDS: "soon"}))).await;
    oneshot::answer(webhook.clone(), post("{}")).await;
    let get = Request::builder().method(Method::GET).uri("/validate").body(Body::empty());
    oneshot::answer(webhook, get.unwrap()).await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        r#"tenure_webhook_reviews_total{group="scheduling.run.ai",verdict="Admitted"} 1"#,
        r#"tenure_webhook_reviews_total{group="scheduling.run.ai",verdict="Warned"} 1"#,
        r#"tenure_webhook_reviews_total{group="scheduling.run.ai",verdict="Refused"} 1"#,
        r#"tenure_webhook_reviews_total{group="other",verdict="Warned"} 1"#,
        r#"tenure_webhook_reviews_total{group="scheduling.k8s.io",verdict="Refused"} 1"#,
        r#"tenure_webhook_rejected_requests_total{code="400"} 1"#,
        "tenure_webhook_review_duration_seconds_count 5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
