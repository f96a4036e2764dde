//! A cluster of one queue, and questions to its guard.

use std::sync::LazyLock;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use jiff::{SignedDuration, Timestamp};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tenure_index::Uid;
use tenure_policy::config::Config;
use tenure_service::{clock::ServerClock, readiness::ProcessReadiness, watch::Store};
use tenure_types::projection::RunaiQueueObject;
use tenure_webhook::{ClusterView, Guard, LargeBodies, Metrics, Permit, Permits, Placement, guard_router};

use crate::oneshot;

pub const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";
pub const SCHEDULER: &str = "system:kube-scheduler";

/// The API server's time when the tests begin.
pub const NOW: &str = "2026-01-01T01:00:00Z";

static CLOCK: LazyLock<ServerClock> = LazyLock::new(|| ServerClock::starting_at(now()));

pub fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// The time this many seconds before [`NOW`].
pub fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A replica of the webhook. Replicas see the same pods, and have permits of their own.
pub struct World {
    pub placement: Placement,
    pub permits: Permits,
    pub readiness: ProcessReadiness,
    pub guard: Guard,
    registry: Registry,
    router: Router,
}

impl World {
    /// A cluster of these pods. Queue q has a floor of ten minutes within, and of twenty across; queue other has none.
    pub fn new(pods: &[Value]) -> Self {
        let placement = Placement::default();
        let world = Self::seeing(placement);
        for pod in pods {
            world.apply(pod);
        }
        world
    }

    pub fn seeing(placement: Placement) -> Self {
        let (clock, permits) = (CLOCK.clone(), Permits::default());
        let mut sight = ClusterView { placement: placement.clone(), clock, ..ClusterView::default() };
        for (name, spec) in
            [("q", json!({"preemptMinRuntime": "10m", "reclaimMinRuntime": "20m"})), ("other", json!({}))]
        {
            let queue = json!({"metadata": {"name": name}, "spec": spec});
            sight.queues.apply(serde_json::from_value::<RunaiQueueObject>(queue).unwrap());
        }
        let readiness = sight.readiness.clone();
        let guard = Guard::new(sight, permits.clone());
        let mut registry = Registry::default();
        let router =
            guard_router(Some(guard.clone()), Metrics::register(&mut registry), &LargeBodies::default());
        Self { placement, permits, readiness, guard, registry, router }
    }

    pub fn apply(&self, pod: &Value) {
        let pod = serde_json::from_value(pod.clone()).unwrap();
        self.placement.change(|index| index.apply_pod(pod));
    }

    pub fn configure(&self, guarded: &str) {
        let config = Config::parse(&format!("guard: {guarded}")).unwrap();
        self.guard.sight.config.set(config);
    }

    /// The extender of this replica has granted these pods to pod ns/granted.
    pub fn permit(&self, victims: &[&str]) {
        self.permits.grant(Permit {
            preemptor: "granted".to_owned(),
            namespace: "ns".to_owned(),
            name: "granted".to_owned(),
            at: now(),
            of_groups: Vec::new(),
            others: victims.iter().map(|uid| Uid::of(uid)).collect(),
        });
    }

    pub async fn send(&self, request: Request<Body>) -> (StatusCode, String) {
        let (status, _, body) = oneshot::answer(self.router.clone(), request).await;
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The response to a review, after a check that the API server accepts it.
    pub async fn answer(&self, review: &Value) -> Value {
        let (status, body) = self.send(post(review.to_string())).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        check(&answer);
        answer["response"].clone()
    }

    /// The reason of an answer that lets the pod go.
    pub async fn allowed(&self, review: &Value) -> String {
        let response = self.answer(review).await;
        assert_eq!(response["allowed"], true, "{response}");
        reason(&response)
    }

    /// The reason of an answer that denies.
    pub async fn denied(&self, review: &Value) -> String {
        let response = self.answer(review).await;
        assert_eq!(response["allowed"], false, "{response}");
        reason(&response)
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

pub fn reason(response: &Value) -> String {
    response["auditAnnotations"]["reason"].as_str().unwrap().to_owned()
}

pub fn post(body: impl Into<Body>) -> Request<Body> {
    oneshot::post("/guard?timeout=2s", body)
}

fn check(answer: &Value) {
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let response = answer["response"].as_object().unwrap();
    let known = ["uid", "allowed", "status", "warnings", "auditAnnotations"];
    assert!(response.keys().all(|key| known.contains(&key.as_str())), "{answer}");
    let allowed = response["allowed"].as_bool().unwrap();
    assert_eq!(response.contains_key("status"), !allowed, "{answer}");
    assert!(response.get("warnings").is_none_or(|warnings| !warnings.as_array().unwrap().is_empty()));
    let annotations = response["auditAnnotations"].as_object().unwrap();
    assert!(annotations.values().all(Value::is_string), "{answer}");
    assert_eq!(annotations["verdict"], if allowed { "allowed" } else { "denied" }, "{answer}");
    if !allowed {
        let retry = response["status"]["details"].get("retryAfterSeconds").and_then(Value::as_i64);
        assert!(retry.is_some_and(|retry| (1..=10).contains(&retry)), "{answer}");
        assert_eq!(response["status"]["code"], 429, "{answer}");
    }
}

/// A pod of queue q that runs on node n for a minute, with more that is merged into it; null takes away.
pub fn pod(name: &str, more: &Value) -> Value {
    let at = ago(60);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at,
            "labels": {"kai.scheduler/queue": "q"},
        },
        "spec": {"nodeName": "n", "priority": 1, "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}],
        },
    });
    merge(&mut pod, more);
    pod
}

/// A pod of a queue that waits for room on node n.
pub fn waiting(name: &str, queue: &str) -> Value {
    pod(
        name,
        &json!({
            "metadata": {"labels": {"kai.scheduler/queue": queue}},
            "spec": {"nodeName": null, "priority": 9},
            "status": {"phase": "Pending", "conditions": null, "nominatedNodeName": "n"},
        }),
    )
}

pub fn merge(target: &mut Value, more: &Value) {
    match (target, more) {
        (Value::Object(target), Value::Object(more)) => {
            for (key, value) in more {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, more) => target.clone_from(more),
    }
}

fn review(operation: &str, user: &str, more: &Value) -> Value {
    let mut review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "operation": operation,
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "namespace": "ns",
            "dryRun": false,
        },
    });
    merge(&mut review["request"], more);
    review
}

/// A review of a pod's deletion.
pub fn deletion(user: &str, pod: &Value) -> Value {
    let of_pod = json!({"group": "", "version": "v1", "kind": "Pod"});
    let metadata = &pod["metadata"];
    let mut review = review(
        "DELETE",
        user,
        &json!({"kind": of_pod, "name": metadata["name"], "namespace": metadata["namespace"], "oldObject": pod}),
    );
    review["request"]["object"] = Value::Null;
    review
}

/// A review of a pod's eviction.
pub fn eviction(user: &str, namespace: &str, name: &str) -> Value {
    let object = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": null},
    });
    let mut review = review(
        "CREATE",
        user,
        &json!({
            "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "eviction", "name": name, "namespace": namespace,
        }),
    );
    review["request"]["object"] = object;
    review["request"]["oldObject"] = Value::Null;
    review
}
