//! Requests to the webhook: from bytes to the answer, by the routes that serve them.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode, header::CONTENT_TYPE},
};
use http_body_util::BodyExt;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tenure_service::watch::Store;
use tenure_types::{projection::RunaiQueueObject, room::PodWithRoom};
use tenure_webhook::{
    ClusterView, Extender, Guard, LargeBodies, Metrics, Mutator, Permits, Validator, guard_router, router,
    scheduler_router,
};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use crate::{Outcome, text};

/// The uid of the requests that are made here.
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

pub fn validate(input: &[u8]) -> Outcome {
    review("/validate", input.to_vec())
}

pub fn mutate(input: &[u8]) -> Outcome {
    review("/mutate", input.to_vec())
}

pub fn guard(input: &[u8]) -> Outcome {
    review("/guard", input.to_vec())
}

pub fn queue_v3alpha1(input: &[u8]) -> Outcome {
    review("/validate", created("scheduling.run.ai", "v3alpha1", "Queue", input)?)
}

pub fn queue_v2(input: &[u8]) -> Outcome {
    review("/validate", created("scheduling.run.ai", "v2", "Queue", input)?)
}

pub fn queue_tensorstack(input: &[u8]) -> Outcome {
    review("/validate", created("scheduler.tensorstack.dev", "v1beta1", "Queue", input)?)
}

pub fn priority_class(input: &[u8]) -> Outcome {
    review("/validate", created("scheduling.k8s.io", "v1", "PriorityClass", input)?)
}

pub fn pod_group(input: &[u8]) -> Outcome {
    review("/mutate", created("scheduling.run.ai", "v2alpha2", "PodGroup", input)?)
}

/// Returns the review of the creation of an object.
fn created(group: &str, version: &str, kind: &str, object: &[u8]) -> Result<Vec<u8>, String> {
    let kind = json!({"group": group, "version": version, "kind": kind});
    let request = json!({
        "uid": UID, "kind": kind, "name": "demo", "namespace": "t9k-system", "operation": "CREATE",
        "userInfo": {"username": "tenant", "groups": ["system:authenticated"]}, "dryRun": false,
    });
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
    let review = review.to_string();
    let open = review.strip_suffix("}}").unwrap_or(&review);
    Ok(format!(r#"{open},"object":{}}}}}"#, text(object)?).into_bytes())
}

/// The answer to a review is a review that the API server accepts, or says why there is none.
fn review(path: &str, body: Vec<u8>) -> Outcome {
    let answer = read::<Value>(&answer(path, body)?);
    let response = &answer["response"];
    assert_eq!(answer["kind"], "AdmissionReview");
    assert!(response["uid"].as_str().is_some_and(|uid| !uid.is_empty()), "{answer}");
    if response["allowed"] == json!(true) {
        let warnings = response["warnings"].as_array().map_or(&[][..], Vec::as_slice);
        let patched = if response["patch"].is_null() { "" } else { "patched " };
        let warnings: Vec<&str> = warnings.iter().filter_map(Value::as_str).collect();
        return Ok(format!("{patched}{}", warnings.join("; ")));
    }
    assert_eq!(response["allowed"], json!(false), "{answer}");
    let status = &response["status"];
    assert!(matches!(status["code"].as_u64(), Some(413 | 422 | 429)), "{answer}");
    Err(status["message"].as_str().expect("a message").to_owned())
}

/// Objects stay raw: they may hold texts that not every reader of JSON takes.
pub fn convert(input: &[u8]) -> Outcome {
    let body = answer("/convert", input.to_vec())?;
    let response = read::<Map<'_>>(&body)["response"].get();
    let response = read::<Map<'_>>(response.as_bytes());
    let result = read::<Value>(response["result"].get().as_bytes());
    assert!(response["uid"].get().starts_with('"'), "{result}");
    match result["status"].as_str() {
        Some("Success") => {
            let objects = read::<Vec<&RawValue>>(response["convertedObjects"].get().as_bytes());
            Ok(format!("{} objects", objects.len()))
        }
        Some("Failed") => Err(result["message"].as_str().expect("a message").to_owned()),
        _ => panic!("{result}"),
    }
}

type Map<'b> = BTreeMap<String, &'b RawValue>;

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> T {
    serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(body)))
}

pub fn preempt(input: &[u8]) -> Outcome {
    let answer = read::<Value>(&answer("/scheduler/preempt", input.to_vec())?);
    let nodes = answer["NodeNameToMetaVictims"].as_object().expect("a map of nodes");
    assert!(nodes.keys().all(|node| node == "n1"), "{answer}");
    Ok(format!("{} nodes", nodes.len()))
}

thread_local! {
    static WEBHOOK: (Runtime, Router) = (
        Builder::new_current_thread().enable_all().build().expect("a runtime"),
        webhook(),
    );
}

/// All routes, of a webhook that knows one queue and two pods.
fn webhook() -> Router {
    let metrics = Metrics::register(&mut Registry::default());
    let mut sight = ClusterView::default();
    let queue = json!({"metadata": {"name": "q"}, "spec": {"preemptMinRuntime": "10m"}});
    sight.queues.apply(serde_json::from_value::<RunaiQueueObject>(queue).expect("a queue"));
    for pod in [pod("old", "n1"), pod("p", "")] {
        sight.placement.change(|index| index.apply_pod(pod));
    }
    let guard = Guard::new(sight.clone(), Permits::default());
    let mut extender = Extender::new(sight.clone(), metrics.clone());
    extender.patience = Duration::ZERO;
    let validator = Validator::new(sight.queues, "t9k-system".into());
    let large = LargeBodies::default();
    router(validator, Mutator::default(), metrics.clone(), &large)
        .merge(guard_router(Some(guard), metrics.clone(), &large))
        .merge(scheduler_router(Some(extender), metrics))
}

fn pod(uid: &str, node: &str) -> PodWithRoom {
    let at = "2026-01-01T00:00:00Z";
    let scheduled = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]);
    let labels = json!({"kai.scheduler/queue": if node.is_empty() { "q" } else { "other" }});
    let pod = json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": at, "labels": labels},
        "spec": {
            "nodeName": node, "priority": if node.is_empty() { 9 } else { 1 }, "schedulerName": "s",
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        },
        "status": if node.is_empty() { json!({}) } else { json!({"conditions": scheduled}) },
    });
    serde_json::from_value(pod).expect("a pod")
}

/// The answer to a body; an error is the text of another status than 200, which is the sender's fault.
fn answer(path: &str, body: Vec<u8>) -> Result<Bytes, String> {
    WEBHOOK.with(|(runtime, webhook)| {
        runtime.block_on(async {
            let request = Request::post(path).header(CONTENT_TYPE, "application/json").body(Body::from(body));
            let request = request.expect("a request");
            let Ok(response) = webhook.clone().oneshot(request).await;
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            if status == StatusCode::OK {
                return Ok(body);
            }
            assert!(status.is_client_error(), "{status}: {}", String::from_utf8_lossy(&body));
            Err(String::from_utf8_lossy(&body).trim_end().to_owned())
        })
    })
}
