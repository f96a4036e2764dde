//! The statuses and the events of Extensions whose users have written anything in place of names.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::convert::Infallible;

use http::{Request, Response};
use kube::{Client, CustomResourceExt, client::Body};
use tenure_policy::config::Config;
use tenure_service::{clock::ServerClock, watch::Store};

use super::*;
use crate::testing;

/// An Extension of a Job, as the API server has it.
fn extension(name: &str, uid: &str, status: &Value) -> Extension {
    let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid});
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
        "metadata": {
            "name": "more", "namespace": "ns", "uid": "request", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"target": target, "duration": "2h", "requestedBy": "jane"}, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

/// Returns the most characters of a message, as the definition of the kind says.
fn longest_message() -> u64 {
    let definition = serde_json::to_value(Extension::crd()).unwrap();
    let of_message = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/message/maxLength";
    definition.pointer(of_message).unwrap().as_u64().unwrap()
}

/// A controller, and an API server with an Extension that refuses messages which are too long.
fn controller() -> ExtensionController {
    let service = tower::service_fn(|request: Request<Body>| async move {
        let body = request.into_body().collect_bytes().await.unwrap();
        let patch: Value = serde_json::from_slice(&body).unwrap();
        let message = patch["status"]["message"].as_str().unwrap_or_default();
        let (status, answer) = if message.chars().count() as u64 > longest_message() {
            (422, json!({"kind": "Status", "status": "Failure", "message": "too long", "code": 422}))
        } else {
            let mut object = json!(extension("train", "job", &json!({})));
            json_patch::merge(&mut object, &patch);
            (200, object)
        };
        let response = Response::builder().status(status).header("content-type", "application/json");
        Ok::<_, Infallible>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
    });
    let clock = ServerClock::starting_at("2026-01-01T00:00:10Z".parse().unwrap());
    let handles = testing::handles(Client::new(service, "default"), clock, Config::default());
    ExtensionController { limit: handles.limit(), handles: Arc::new(handles) }
}

#[tokio::test(start_paused = true)]
async fn a_message_with_a_queue_of_any_name_is_cut_to_what_the_api_server_takes() {
    let (controller, new) = (controller(), extension("train", "job", &Value::Null));
    let Handles { cluster, extensions: open, events, .. } = &*controller.handles;
    ExtensionStore { cluster: cluster.clone(), open: open.clone() }.apply(new.clone());
    open.verified(&new);
    let run = RequestedRun::WithoutQueue("\u{1}".repeat(253));
    controller.try_to_handle(&new, run).await.unwrap();
    assert_eq!(events.clear().len(), 1, "the request is in the status, and has its event");
    let message = json!({"state": "Pending", "message": "é".repeat(2_000)});
    let written = controller.patch(&new, &message).await.unwrap().unwrap();
    assert_eq!(written.status.clone().unwrap().message.unwrap(), "é".repeat(LONGEST_MESSAGE));
    assert_eq!(controller.patch(&written, &message).await.unwrap(), None, "it is the same");
    assert_eq!(LONGEST_MESSAGE as u64, longest_message());
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_workload_that_cannot_exist_is_on_its_extension() {
    let controller = controller();
    for (name, uid, expected) in [
        ("train", "job", "Job"),
        ("no name", "job", "Extension"),
        ("Train", "job", "Extension"),
        ("\u{1}", "job", "Extension"),
        ("train", "no uid", "Extension"),
        ("train", "JOB", "Extension"),
    ] {
        let event = controller.event(&extension(name, uid, &json!({"state": "Pending"}))).unwrap();
        assert_eq!(event.object.kind.as_deref(), Some(expected), "{name:?} {uid:?}");
        assert!(is_subdomain(&event.name()), "{}", event.name());
        assert_eq!(event.request.unwrap().name.as_deref(), Some("more"));
    }
}
