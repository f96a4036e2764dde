//! Malformed and odd reviews: each gets an answer, and one that isn't understood never holds a request up.

use axum::{
    body::Body,
    http::{
        Method, Request, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{SCHEDULER, UID, World, deletion, eviction, pod, post, reason};

fn victim() -> Value {
    pod("victim", &json!({}))
}

/// Sets the value at a path of a review's request.
fn with(mut review: Value, path: &str, value: Value) -> Value {
    *review.pointer_mut(&format!("/request{path}")).unwrap() = value;
    review
}

fn deleting(path: &str, value: Value) -> Value {
    with(deletion(SCHEDULER, &victim()), path, value)
}

fn evicting(path: &str, value: Value) -> Value {
    with(eviction("admin", "ns", "victim"), path, value)
}

#[tokio::test]
async fn a_pod_that_can_not_be_read_may_go_and_that_is_said() {
    let world = World::new(&[victim()]);
    let unnamed = json!({"metadata": {"uid": "victim"}, "spec": {}, "status": {}});
    let mut nameless = deleting("/oldObject", unnamed);
    nameless["request"]["name"] = json!("");
    let mut nowhere = evicting("/object/metadata", json!({"name": "victim"}));
    nowhere["request"]["namespace"] = json!("");
    for review in [
        deleting("/oldObject", Value::Null),
        deleting("/oldObject", json!("victim")),
        deleting("/oldObject", json!(7)),
        deleting("/oldObject", json!([1, 2, 3])),
        deleting("/oldObject", json!([])),
        deleting("/oldObject/metadata", Value::Null),
        deleting("/oldObject/metadata", json!([])),
        deleting("/oldObject/metadata/uid", json!({})),
        deleting("/oldObject/metadata/name", json!(7)),
        deleting("/oldObject/metadata/labels", json!("a=b")),
        deleting("/oldObject/metadata/labels", json!({"a": {"b": 1}})),
        deleting("/oldObject/metadata/creationTimestamp", json!("yesterday")),
        deleting("/oldObject/metadata/creationTimestamp", json!(-1)),
        deleting("/oldObject/spec", json!("x")),
        deleting("/oldObject/spec", Value::Null),
        deleting("/oldObject/spec/priority", json!(3_000_000_000_u64)),
        deleting("/oldObject/spec/priority", json!("high")),
        deleting("/oldObject/spec/priority", json!(1.5)),
        deleting("/oldObject/spec/nodeName", json!(["n"])),
        deleting("/oldObject/status", json!(false)),
        deleting("/oldObject/status/phase", json!({})),
        deleting("/oldObject/status/conditions", json!({"type": "PodScheduled"})),
        deleting("/oldObject/status/conditions", json!([null])),
        deleting("/oldObject/status/conditions", json!([{"type": 1, "status": "True"}])),
        deleting("/userInfo/groups", json!("system:nodes")),
        deleting("/userInfo/groups", json!([1])),
        deleting("/userInfo/groups", json!([null])),
        nameless,
        evicting("/object", Value::Null),
        evicting("/object", json!("victim")),
        evicting("/object", json!({})),
        evicting("/object", json!([])),
        evicting("/object/metadata", Value::Null),
        evicting("/object/metadata", json!([])),
        evicting("/object/metadata/name", json!(7)),
        evicting("/object/metadata/namespace", json!({})),
        evicting("/userInfo/groups", json!({"a": "b"})),
        nowhere,
    ] {
        let response = world.answer(&review).await;
        assert_eq!(
            (&response["allowed"], reason(&response).as_str()),
            (&json!(true), "unreadable"),
            "{review}"
        );
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with("tenure: the pod can't be read, and isn't guarded: "), "{warning}");
    }
}

#[tokio::test]
async fn what_is_neither_a_deletion_nor_an_eviction_of_a_pod_is_admitted_and_that_is_said() {
    let world = World::new(&[victim()]);
    for review in [
        deleting("/operation", json!("UPDATE")),
        deleting("/operation", json!("delete")),
        deleting("/operation", json!("")),
        deleting("/kind", json!({"group": "", "version": "v1", "kind": "Node"})),
        deleting("/kind", json!({"group": "example.com", "version": "v1", "kind": "Pod"})),
        deleting("/kind", json!({})),
        evicting("/operation", json!("DELETE")),
        evicting("/operation", json!("CONNECT")),
        evicting("/subResource", json!("")),
        evicting("/subResource", json!("binding")),
        evicting("/kind", json!({"group": "", "version": "v1", "kind": "Pod"})),
        evicting("/kind", json!({"group": "policy", "version": "v1", "kind": "PodDisruptionBudget"})),
    ] {
        let response = world.answer(&review).await;
        assert_eq!(
            (&response["allowed"], reason(&response).as_str()),
            (&json!(true), "not-guarded"),
            "{review}"
        );
        let warning = response["warnings"][0].as_str().unwrap();
        assert!(warning.starts_with("tenure: kind ") && warning.contains("isn't reviewed"), "{warning}");
    }
}

#[tokio::test]
async fn what_has_no_bearing_may_be_anything() {
    let world = World::new(&[victim()]);
    for review in [
        deleting("/object", json!("odd")),
        deleting("/name", json!("someone-else")),
        deleting("/namespace", json!("elsewhere")),
        deleting("/dryRun", json!(true)),
        deleting("/oldObject/spec/containers", json!(7)),
        deleting("/oldObject/status/phase", json!("Unheard")),
        deleting("/oldObject/metadata/labels", Value::Null),
        deleting("/oldObject/metadata/name", json!("wörld\u{0}")),
        deleting("/oldObject/status/conditions", json!([])),
        deleting("/oldObject", {
            let mut pod = victim();
            pod["metadata"]["managedFields"] = json!([{"x": 1e300}]);
            pod
        }),
        evicting("/oldObject", json!([])),
        evicting("/object/metadata", {
            let late = "9999-12-31T23:59:59Z";
            json!({"name": "victim", "namespace": "ns", "deletionTimestamp": late, "managedFields": [{"time": late}]})
        }),
        evicting("/name", json!("someone-else")),
        evicting("/userInfo/groups", Value::Null),
        evicting("/object", json!({"metadata": {"name": "victim"}, "deleteOptions": "odd"})),
    ] {
        assert_eq!(world.denied(&review).await, "protected", "{review}");
    }
}

/// With failure policy Fail, an answer that is no review would keep such a pod from every preemption.
#[tokio::test]
async fn what_is_too_large_to_be_read_is_admitted_with_a_warning() {
    let world = World::new(&[victim()]);
    let mut pod = victim();
    let env = json!([{"name": "a", "value": "x".repeat(tenure_webhook::MAX_BODY_BYTES)}]);
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i", "env": env}]);
    let review = deletion(SCHEDULER, &pod);
    // as Go writes it: serde would sort
    let text = format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"{UID}","oldObject":{}}}}}"#,
        review["request"]["oldObject"]
    );
    let bytes = text.len();
    let mut request = post(text);
    request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    let (status, text) = world.send(request).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!(UID), &json!(true)), "{answer}");
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with(&format!("tenure: the pod isn't guarded: its review takes {bytes} bytes")),
        "{warning}"
    );
}

#[tokio::test]
async fn what_is_no_review_is_refused_as_such() {
    let world = World::new(&[victim()]);
    let good = deletion(SCHEDULER, &victim()).to_string();
    let cut = good.get(..good.len() / 2).unwrap().to_owned();
    for body in [
        String::new(),
        "{}".into(),
        "null".into(),
        "[]".into(),
        cut,
        format!("{good}{good}"),
        "[".repeat(100_000),
        good.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1"),
        good.replace("AdmissionReview", "TokenReview"),
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": null}).to_string(),
        deleting("/uid", json!("")).to_string(),
        deleting("/userInfo", json!([])).to_string(),
        deleting("/operation", json!(1)).to_string(),
    ] {
        let (status, text) = world.send(post(body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains("AdmissionReview"), "{text}");
    }
    let (status, _) = world.send(post(vec![0xff; 100])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = world.send(post(vec![b' '; tenure_webhook::MAX_BODY_BYTES + 1])).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let plain = Request::post("/guard").header(CONTENT_TYPE, "text/plain").body(Body::from(good)).unwrap();
    assert_eq!(world.send(plain).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let request = Request::builder().method(method).uri("/guard").body(Body::empty()).unwrap();
        assert_eq!(world.send(request).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
    assert_eq!(world.denied(&deletion(SCHEDULER, &victim())).await, "protected", "it goes on");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// All places of a value, as JSON pointers.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.replace('/', "~1"), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(place, value)| (place.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    for (key, child) in children {
        places(child, &format!("{at}/{key}"), all);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_in_any_place_gets_an_answer(
        evicts: bool,
        place: prop::sample::Index,
        value in any_json(),
    ) {
        let mut review =
            if evicts { eviction("admin", "ns", "victim") } else { deletion(SCHEDULER, &victim()) };
        let mut all = Vec::new();
        places(&review, "", &mut all);
        let path = place.get(&all).clone();
        *review.pointer_mut(&path).unwrap() = value;
        let world = World::new(&[victim()]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (status, body) = runtime.block_on(world.send(post(review.to_string())));
        prop_assert!(matches!(status, StatusCode::OK | StatusCode::BAD_REQUEST), "{status} {path}");
        if status == StatusCode::OK {
            let response = serde_json::from_str::<Value>(&body).unwrap()["response"].clone();
            prop_assert!(response["allowed"].is_boolean(), "{}", path);
            prop_assert!(response["auditAnnotations"]["reason"].is_string(), "{}", path);
        }
    }
}
