//! Reviews of owners on `/owners`: the API server's questions, and the answers.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "support/oneshot.rs"]
mod oneshot;

use axum::{
    Router,
    body::Body,
    http::{StatusCode, header::CONTENT_LENGTH},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tenure_policy::config::Config;
use tenure_service::{config::Current, watch::Store};
use tenure_types::projection::RunaiQueueObject;
use tenure_webhook::{KnownQueues, LargeBodies, MAX_BODY_BYTES, Metrics, OwnerAnswers, owners_router};

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// A webhook that knows one queue, which ends a run after an hour.
fn webhook(over_ceiling: &str, config: &str) -> Router {
    let mut queues = KnownQueues::default();
    let spec = json!({"maxDuration": "1h", "overCeiling": over_ceiling, "extensions": {"maxTotal": "8h"}});
    let queue = json!({"metadata": {"name": "research"}, "spec": spec});
    queues.apply(serde_json::from_value::<RunaiQueueObject>(queue).unwrap());
    let config = Current::new(Config::parse(config).unwrap());
    let answers = OwnerAnswers::new(queues, config, None);
    owners_router(Some(answers), Metrics::register(&mut Registry::default()), &LargeBodies::default())
}

fn job(seconds: i64) -> Value {
    let template = json!({"metadata": {"labels": {"kai.scheduler/queue": "research"}}});
    json!({"metadata": {"name": "train"}, "spec": {"activeDeadlineSeconds": seconds, "template": template}})
}

fn review(kind: &str, operation: &str, object: &Value, old: &Value) -> Value {
    let (group, kind) = kind.split_once('/').unwrap();
    let kind = json!({"group": group, "version": "v1", "kind": kind});
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "kind": kind, "name": "train", "namespace": "team", "operation": operation,
            "userInfo": {"username": "eva"}, "object": object, "oldObject": old, "dryRun": false,
        },
    })
}

async fn answer(webhook: Router, body: impl Into<Body>) -> Value {
    let (status, _, body) = oneshot::answer(webhook, oneshot::post("/owners", body)).await;
    assert_eq!(status, StatusCode::OK);
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"]["uid"], UID);
    answer["response"].clone()
}

async fn ask(over_ceiling: &str, review: &Value) -> Value {
    answer(webhook(over_ceiling, ""), review.to_string()).await
}

/// A refusal would keep the keeper from pausing such an owner.
#[tokio::test]
async fn what_is_too_large_to_be_read_is_admitted_with_a_warning() {
    let body = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","object":"{}"}}}}"#,
        "x".repeat(MAX_BODY_BYTES)
    );
    let bytes = body.len();
    let mut request = oneshot::post("/owners", body);
    request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    let (status, _, body) = oneshot::answer(webhook("Refuse", ""), request).await;
    assert_eq!(status, StatusCode::OK);
    let warning = format!(
        "tenure: not compared with the ceiling, which holds all the same: its review takes {bytes} bytes, and the webhook reads at most {MAX_BODY_BYTES}"
    );
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"], json!({"uid": UID, "allowed": true, "warnings": [warning]}));
}

fn create(object: &Value) -> Value {
    review("batch/Job", "CREATE", object, &Value::Null)
}

const MORE: &str = "for more time, ask while it runs: kubectl tenure extend job.batch/train -n team 1h";

#[tokio::test]
async fn a_job_that_asks_for_more_is_warned_of_or_refused() {
    let warned = ask("Warn", &create(&job(7200))).await;
    let expected = format!(
        "spec.activeDeadlineSeconds: 7200 is too long: Queue research ends a run after 1h: set at most 3600; {MORE}"
    );
    assert_eq!(warned, json!({"uid": UID, "allowed": true, "warnings": [expected]}));
    let refused = ask("Refuse", &create(&job(7200))).await;
    let message =
        format!("Invalid value: 7200: must be at most 3600: Queue research ends a run after 1h; {MORE}");
    let expected = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {},
        "code": 422, "reason": "Invalid", "status": "Failure",
        "message": format!("Job.batch \"train\" is invalid: spec.activeDeadlineSeconds: {message}"),
        "details": {
            "causes": [{"field": "spec.activeDeadlineSeconds", "message": message, "reason": "FieldValueInvalid"}],
            "group": "batch", "kind": "Job", "name": "train",
        },
    });
    assert_eq!((&refused["allowed"], &refused["status"]), (&json!(false), &expected));
}

#[tokio::test]
async fn a_job_that_asks_for_no_more_and_changes_of_other_fields_are_admitted_in_silence() {
    let mut suspended = job(7200);
    suspended["spec"]["suspend"] = json!(true);
    for review in [
        create(&job(3600)),
        create(&json!({"metadata": {}, "spec": {}})),
        review("batch/Job", "UPDATE", &suspended, &job(7200)),
        review("batch/Job", "UPDATE", &job(3600), &job(7200)),
        review("batch/Job", "DELETE", &Value::Null, &job(7200)),
        review("batch/Job", "UPDATE", &job(7200), &Value::Null),
    ] {
        assert_eq!(ask("Refuse", &review).await, json!({"uid": UID, "allowed": true}), "{review}");
    }
    let changed = ask("Refuse", &review("batch/Job", "UPDATE", &job(9000), &job(7200))).await;
    assert_eq!(changed["allowed"], false);
}

#[tokio::test]
async fn a_subresource_is_never_refused() {
    let mut of_status = create(&job(7200));
    of_status["request"]["subResource"] = json!("status");
    assert_eq!(ask("Refuse", &of_status).await, json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn kinds_that_are_configured_are_answered_and_others_are_admitted_with_a_warning() {
    let rollout = review("argoproj.io/Rollout", "CREATE", &job(7200), &Value::Null);
    let unknown = ask("Refuse", &rollout).await;
    let unreviewed = "kind \"Rollout\" of group \"argoproj.io\" isn't reviewed";
    assert!(unknown["warnings"][0].as_str().unwrap().contains(unreviewed), "{unknown}");
    assert_eq!(unknown["allowed"], true);
    let config = "owners: [{group: argoproj.io, kind: Rollout, path: spec.replicas, value: 0}]";
    let refused = answer(webhook("Refuse", config), rollout.to_string()).await;
    assert_eq!(refused["allowed"], false);
}

#[tokio::test]
async fn without_the_flag_all_are_admitted() {
    let metrics = Metrics::register(&mut Registry::default());
    let admitted =
        answer(owners_router(None, metrics, &LargeBodies::default()), create(&job(7200)).to_string()).await;
    assert_eq!(admitted["allowed"], true);
    assert!(admitted["warnings"][0].as_str().unwrap().contains("--answer-owners"), "{admitted}");
}

#[tokio::test]
async fn objects_of_any_shape_are_admitted() {
    for object in [
        json!(null),
        json!([]),
        json!("x"),
        json!({"spec": [], "metadata": 5}),
        json!({"spec": {"template": [1]}}),
    ] {
        assert_eq!(ask("Refuse", &create(&object)).await["allowed"], true, "{object}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = create(&Value::Null).to_string().replacen(
        "\"object\":null",
        &format!("\"object\":{{\"spec\":{deep}}}"),
        1,
    );
    assert_eq!(answer(webhook("Refuse", ""), body).await["allowed"], true);
}

#[tokio::test]
async fn a_cron_job_is_warned_of_the_jobs_that_it_makes() {
    let cron_job = json!({"metadata": {"name": "nightly"}, "spec": {"jobTemplate": job(7200)}});
    let warned = ask("Warn", &review("batch/CronJob", "CREATE", &cron_job, &Value::Null)).await;
    let warning = warned["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("spec.jobTemplate.spec.activeDeadlineSeconds: 7200 "), "{warning}");
    assert!(warning.ends_with("kubectl tenure extend job/NAME 1h"), "{warning}");
}
