//! The statuses and the events of Extensions whose users have written anything in place of names.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::future::ready;

use http::Method;
use kube::CustomResourceExt;
use tenure_policy::{config::Config, reason::EventReason};
use tenure_service::{clock::ServerClock, watch::Store};
use tenure_types::runai::v3alpha1::QueueSpec;

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

/// The total of extensions that queue `q` of the API server allows.
const ALLOWED: &str = "1h";

/// A queue with a ceiling of an hour that allows extensions of this total at once.
fn queue(total: &str) -> Value {
    json!({"maxDuration": "1h", "extensions": {"autoApprove": total, "maxTotal": total}})
}

/// The Job of an extension, as it runs.
fn job() -> Value {
    let metadata = json!({"name": "train", "namespace": "ns", "uid": "job"});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": false}})
}

/// A controller, and an API server with queue `q`, a Job that runs, and an Extension that refuses messages which are
/// too long.
fn controller() -> ExtensionController {
    controller_with((200, job()))
}

/// The same, with this answer to a read of the Job.
fn controller_with(job: (u16, Value)) -> ExtensionController {
    let client = testing::client(move |head, patch| {
        let message = patch["status"]["message"].as_str().unwrap_or_default();
        ready(if head.uri.path() == "/apis/batch/v1" {
            let jobs = json!({"name": "jobs", "singularName": "", "kind": "Job", "namespaced": true, "verbs": ["get"]});
            (200, json!({"kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [jobs]}))
        } else if head.uri.path().ends_with("/jobs/train") {
            job.clone()
        } else if head.method == Method::GET {
            let queue = json!({"metadata": {"name": "q"}, "spec": queue(ALLOWED)});
            (200, json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": [queue]}))
        } else if message.chars().count() as u64 > longest_message() {
            (422, json!({"kind": "Status", "status": "Failure", "message": "too long", "code": 422}))
        } else {
            let mut object = json!(extension("train", "job", &json!({})));
            json_patch::merge(&mut object, &patch);
            (200, object)
        })
    });
    let clock = ServerClock::starting_at("2026-01-01T00:00:10Z".parse().unwrap());
    let handles = testing::handles(client, clock, Config::default());
    ExtensionController { limit: handles.limit(), handles: Arc::new(handles) }
}

/// Shows the controller queue `q`, a pod of the Job that was scheduled there, and an extension whose Job was found.
fn show(controller: &ExtensionController, total: &str, scheduled: &str, extension: &Extension) {
    let Handles { cluster, extensions: open, .. } = &*controller.handles;
    let job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true});
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled});
    let metadata = json!({
        "name": "pod", "namespace": "ns", "uid": "pod", "creationTimestamp": scheduled,
        "labels": {"kai.scheduler/queue": "q"}, "ownerReferences": [job],
    });
    let pod = json!({"metadata": metadata, "status": {"conditions": [condition]}});
    cluster.with(|index| {
        index.apply_queue("q", &serde_json::from_value::<QueueSpec>(queue(total)).unwrap());
        index.apply_pod(&serde_json::from_value(pod).unwrap());
    });
    ExtensionStore { cluster: cluster.clone(), open: open.clone() }.apply(extension.clone());
    open.verified(extension);
}

/// Handles an extension, and returns the reason of the event about the decision.
async fn decided(controller: &ExtensionController, extension: &Extension) -> Option<EventReason> {
    controller.try_to_handle(extension, controller.run_of(extension)).await.unwrap();
    let mut reasons = controller.handles.events.clear().into_iter().map(|event| event.reason);
    reasons.find(|reason| *reason != EventReason::ExtensionRequested)
}

const BEFORE_THE_REQUEST: &str = "2025-12-31T23:30:00Z";
const AFTER_THE_REQUEST: &str = "2026-01-01T00:00:01Z";

#[tokio::test(start_paused = true)]
async fn no_request_is_granted_or_denied_by_a_queue_that_allows_another_time_by_now() {
    let new = extension("train", "job", &Value::Null);
    for (known, expected) in [("30m", None), ("2h", None), (ALLOWED, Some(EventReason::ExtensionDenied))] {
        let controller = controller();
        show(&controller, known, BEFORE_THE_REQUEST, &new);
        assert_eq!(decided(&controller, &new).await, expected, "{known}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_watch_has_not_answered_no_request_is_denied_or_ends() {
    let pending = extension("train", "job", &json!({"state": "Pending"}));
    for (scheduled, expected) in [
        (BEFORE_THE_REQUEST, EventReason::ExtensionDenied),
        (AFTER_THE_REQUEST, EventReason::ExtensionExpired),
    ] {
        let controller = controller();
        let pods = controller.handles.gate.freshness.watch("pods", true);
        show(&controller, ALLOWED, scheduled, &pending);
        assert_eq!(decided(&controller, &pending).await, None, "{expected:?}");
        pods.confirm(tokio::time::Instant::now());
        assert_eq!(decided(&controller, &pending).await, Some(expected));
    }
}

/// A person's denial goes with its Extension, and that with the workload, whose pods may run on.
#[tokio::test(start_paused = true)]
async fn a_workload_that_was_found_once_gets_time_only_if_it_is_there_and_runs() {
    let mut new = extension("train", "job", &Value::Null);
    new.spec.duration = serde_json::from_value(json!("30m")).unwrap();
    let with = |change: Value| {
        let mut job = job();
        json_patch::merge(&mut job, &change);
        (200, job)
    };
    let failed = |code: u16, reason: &str| {
        let status = json!({"status": "Failure", "code": code, "reason": reason, "message": "no"});
        (code, status)
    };
    let (granted, expired) = (Some(EventReason::ExtensionGranted), Some(EventReason::ExtensionExpired));
    for (job, expected) in [
        (with(json!({})), granted),
        (with(json!({"metadata": {"deletionTimestamp": AFTER_THE_REQUEST}})), expired),
        (with(json!({"metadata": {"uid": "another"}})), expired),
        (with(json!({"spec": {"suspend": true}})), expired),
        (failed(404, "NotFound"), expired),
        (failed(403, "Forbidden"), None),
    ] {
        let controller = controller_with(job.clone());
        show(&controller, ALLOWED, BEFORE_THE_REQUEST, &new);
        assert_eq!(decided(&controller, &new).await, expected, "{job:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_decided_about_a_run_that_has_changed_since_it_was_judged() {
    let (controller, new) = (controller(), extension("train", "job", &Value::Null));
    show(&controller, "30m", BEFORE_THE_REQUEST, &new);
    let judged = controller.run_of(&new);
    show(&controller, ALLOWED, BEFORE_THE_REQUEST, &new);
    controller.try_to_handle(&new, judged).await.unwrap();
    assert!(controller.handles.events.clear().is_empty());
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

#[tokio::test(start_paused = true)]
async fn a_late_answer_to_a_grant_replaces_nothing_that_the_watch_has_shown_since() {
    let new = extension("train", "job", &Value::Null);
    let mut denied = extension("train", "job", &json!({"state": "Denied", "by": "jane"}));
    denied.metadata.resource_version = Some("2".into());
    for (changed, is_gone, expected) in [(None, false, 1), (Some(denied), false, 0), (None, true, 0)] {
        let controller = controller();
        show(&controller, ALLOWED, BEFORE_THE_REQUEST, &new);
        let Handles { cluster, extensions: open, .. } = &*controller.handles;
        let mut store = ExtensionStore { cluster: cluster.clone(), open: open.clone() };
        if let Some(changed) = changed {
            store.apply(changed);
        }
        if is_gone {
            store.delete(&Uid::of("request"));
        }
        let granted = json!({"state": "Granted", "granted": "1h", "by": KEEPER, "at": BEFORE_THE_REQUEST});
        controller.write(&new, &granted).await.unwrap();
        let RequestedRun::Going(run) = controller.run_of(&new) else { panic!("its pod runs") };
        assert_eq!(run.count, expected);
    }
}
