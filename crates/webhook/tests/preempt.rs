//! Each question of a scheduler gets an answer: nodes that were offered, with victims that may go, or a status that
//! says why not.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

#[path = "support/oneshot.rs"]
mod oneshot;

use std::{convert::Infallible, io, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{
        Method, Request, StatusCode,
        header::{ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use futures::{StreamExt, stream};
use prometheus_client::registry::Registry;
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};
use tenure_index::Uid;
use tenure_service::{clock::ServerClock, readiness::ProcessReadiness, watch::Store};
use tenure_types::{projection::RunaiQueueObject, room::PodWithRoom};
use tenure_webhook::{ClusterView, Extender, MAX_PREEMPTION_BYTES, Metrics, scheduler_router};
use tower::ServiceExt;

const PATH: &str = "/scheduler/preempt";

/// The nodes, and the pod on each that may go. Each has a young pod too, which may not.
const MAY_GO: [(&str, &str); 3] = [("n1", "old"), ("n2", "other"), ("n3", "odd")];

fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default())
}

/// An extender that doesn't know the time yet: so all floors last.
fn extender(readiness: ProcessReadiness) -> Extender {
    let mut sight = ClusterView { readiness, ..ClusterView::default() };
    for (name, floor) in [("guarded", json!("1h")), ("free", Value::Null)] {
        let spec = json!({"preemptMinRuntime": floor, "reclaimMinRuntime": floor});
        let queue = json!({"metadata": {"name": name}, "spec": spec});
        sight.queues.apply(serde_json::from_value::<RunaiQueueObject>(queue).unwrap());
    }
    let placement = sight.placement.clone();
    for (node, uid) in MAY_GO {
        placement.change(|index| index.apply_pod(pod(uid, node, "free")));
        placement.change(|index| index.apply_pod(pod(&format!("young-{node}"), node, "guarded")));
    }
    placement.change(|index| index.apply_pod(pod("alone", "n4", "guarded")));
    placement.change(|index| index.apply_pod(serde_json::from_value(preemptor()).unwrap()));
    let mut extender = Extender::new(sight, metrics());
    extender.patience = Duration::ZERO;
    extender
}

fn pod(uid: &str, node: &str, queue: &str) -> PodWithRoom {
    let at = "2026-01-01T00:00:00Z";
    let container = json!({"resources": {"requests": {"cpu": "1"}}});
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": at, "labels": {"kai.scheduler/queue": queue}},
        "spec": {"nodeName": node, "priority": 1, "containers": [container]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]},
    }))
    .unwrap()
}

fn router() -> Router {
    scheduler_router(Some(extender(ProcessReadiness::default())), metrics())
}

fn preemptor() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {"kai.scheduler/queue": "free"}},
        "spec": {"priority": 9, "schedulerName": "s", "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        "status": {},
    })
}

fn post(body: impl Into<Body>) -> Request<Body> {
    oneshot::post(PATH, body)
}

/// The answer to a body, or the status and message.
async fn outcome(router: &Router, request: Request<Body>) -> Result<Value, (StatusCode, String)> {
    let answered = tokio::time::timeout(Duration::from_secs(20), oneshot::answer(router.clone(), request));
    let (status, kind, body) = answered.await.unwrap();
    if status == StatusCode::OK {
        assert_eq!(kind.as_deref(), Some("application/json"));
        let answer = serde_json::from_slice(&body).unwrap();
        check(&answer);
        return Ok(answer);
    }
    assert!(status.is_client_error() || status == StatusCode::SERVICE_UNAVAILABLE, "{status}");
    Err((status, String::from_utf8(body.to_vec()).unwrap()))
}

/// Checks that a scheduler accepts an answer, and that no pod goes that may not.
fn check(answer: &Value) {
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
    for (node, of) in answer["NodeNameToMetaVictims"].as_object().unwrap() {
        assert!(of["NumPDBViolations"].as_i64().unwrap() >= 0, "{answer}");
        let pods = of["Pods"].as_array().unwrap();
        assert_eq!((of.as_object().unwrap().len(), pods.len()), (2, 1), "{answer}");
        let uid = pods[0]["UID"].as_str().unwrap();
        assert!(MAY_GO.contains(&(node, uid)), "{answer}");
    }
}

/// Nodes and victims of an answer.
fn kept(nodes: &[(&str, &str)]) -> Value {
    let of = |(node, uid): &(&str, &str)| {
        (node.to_string(), json!({"Pods": [{"UID": uid}], "NumPDBViolations": 0}))
    };
    json!({"NodeNameToMetaVictims": nodes.iter().map(of).collect::<Value>()})
}

/// The expected answer to a body.
enum Expected {
    /// These nodes with these victims.
    Kept(&'static [(&'static str, &'static str)]),
    /// It is malformed, and the message says so.
    Bad(&'static str),
}
use Expected::{Bad, Kept};

const NO_NODE: Expected = Kept(&[]);
const OLD: Expected = Kept(&[("n1", "old")]);

type Case = (Vec<u8>, Expected);

fn good() -> String {
    with_nodes(r#"{"n1":{"Pods":[{"UID":"old"}],"NumPDBViolations":0}}"#)
}

fn with_nodes(nodes: &str) -> String {
    format!(r#"{{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":{nodes}}}"#, preemptor())
}

fn with_node(victims: &str) -> String {
    with_nodes(&format!(r#"{{"n1":{victims}}}"#))
}

fn with_pods(pods: &str) -> String {
    with_node(&format!(r#"{{"Pods":{pods}}}"#))
}

fn with_violations(number: &str) -> String {
    with_node(&format!(r#"{{"Pods":[{{"UID":"old"}}],"NumPDBViolations":{number}}}"#))
}

/// A preemptor that is offered a young pod and an old one, on two nodes.
fn with_pod(pod: &str) -> String {
    let nodes = json!({"n1": {"Pods": [{"UID": "old"}]}, "n2": {"Pods": [{"UID": "young-n2"}]}});
    format!(r#"{{"Pod":{pod},"NodeNameToMetaVictims":{nodes}}}"#)
}

/// The question of an ordinary preemptor with another value of a field.
fn with_field(pointer: &str, value: &Value) -> String {
    let mut pod = preemptor();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[field] = value.clone();
    with_pod(&pod.to_string())
}

fn no_json() -> Vec<Case> {
    let good = good();
    let bad = |body: &str, message| (body.as_bytes().to_vec(), Bad(message));
    vec![
        bad("", "EOF"),
        bad(" \r\n", "EOF"),
        bad("\0", "expected value"),
        bad("victims", "expected value"),
        bad("<xml/>", "expected value"),
        bad("NaN", "expected value"),
        bad(&format!("\u{feff}{good}"), "expected value"),
        bad(&(good.clone() + "}"), "trailing characters"),
        bad(&(good.clone() + "\0"), "trailing characters"),
        bad(&(good.clone() + &good), "trailing characters"),
        bad(&good.replace('"', "'"), "key must be a string"),
        bad(&good.replace(':', "="), "expected `:`"),
        bad(&good.replacen('{', "{,", 1), "key must be a string"),
        (b"\xff\xfe".to_vec(), Bad("expected value")),
        (b"\x1f\x8b\x08".to_vec(), Bad("expected value")),
    ]
}

fn of_another_shape() -> Vec<Case> {
    let args = "expected ExtenderPreemptionArgs";
    let victims = "expected victims: a map with Pods";
    let cases = [
        ("null".to_owned(), args),
        ("true".to_owned(), args),
        ("7".to_owned(), args),
        (r#""x""#.to_owned(), args),
        ("[]".to_owned(), args),
        (format!("[{}]", good()), args),
        ("{}".to_owned(), "have no Pod"),
        (r#"{"Pod":null,"NodeNameToMetaVictims":{}}"#.to_owned(), "have no Pod"),
        (with_pod("[]"), "the Pod of the ExtenderPreemptionArgs can't be read"),
        (with_pod("7"), "the Pod of the ExtenderPreemptionArgs can't be read"),
        (with_pod(r#""p""#), "the Pod of the ExtenderPreemptionArgs can't be read"),
        (with_nodes("[]"), "expected a map from the names of nodes"),
        (with_nodes("7"), "expected a map from the names of nodes"),
        (with_nodes(r#""n1""#), "expected a map from the names of nodes"),
        (with_nodes("{null:{}}"), "key must be a string"),
        (with_node("[]"), victims),
        (with_node("7"), victims),
        (with_node(r#""old""#), victims),
        (with_pods("{}"), "expected a list of pods"),
        (with_pods(r#""old""#), "expected a list of pods"),
        (with_pods("[null]"), "expected a pod, or its UID"),
        (with_pods("[7]"), "expected a pod, or its UID"),
        (with_pods("[[]]"), "expected a pod, or its UID"),
        (with_pods(r#"["old"]"#), "expected a pod, or its UID"),
        (with_pods(r#"[{"UID":7}]"#), "expected a string"),
        (with_pods(r#"[{"UID":["old"]}]"#), "expected a string"),
        (with_pods(r#"[{"metadata":null}]"#), "expected a pod, or its UID"),
        (with_pods(r#"[{"metadata":[]}]"#), "expected a pod, or its UID"),
        (with_pods(r#"[{"metadata":{"uid":{}}}]"#), "expected a string"),
        (with_violations(r#""1""#), "expected a JSON number"),
        (with_violations("[]"), "expected a JSON number"),
        (with_violations("true"), "expected a JSON number"),
        (with_violations("1e400"), "number out of range"),
        (with_violations("01"), "invalid number"),
    ];
    cases.into_iter().map(|(body, message)| (body.into_bytes(), Bad(message))).collect()
}

fn with_nothing() -> Vec<Case> {
    let pod = preemptor();
    let cases = [
        format!(r#"{{"Pod":{pod}}}"#),
        format!(r#"{{"Pod":{pod},"NodeNameToVictims":null,"NodeNameToMetaVictims":null}}"#),
        with_nodes("{}"),
        with_node("null"),
        with_node("{}"),
        with_pods("null"),
        with_pods("[]"),
        with_pods("[{}]"),
        with_pods(r#"[{"UID":null}]"#),
        with_pods(r#"[{"UID":""}]"#),
        with_pods(r#"[{"metadata":{}}]"#),
        with_pods(r#"[{"metadata":{"uid":null}}]"#),
    ];
    cases.into_iter().map(|body| (body.into_bytes(), NO_NODE)).collect()
}

fn twice_and_unknown() -> Vec<Case> {
    let pod = preemptor();
    let victims = |uid: &str| format!(r#"{{"Pods":[{{"UID":"{uid}"}}]}}"#);
    let [old, young, other] = ["old", "young-n1", "other"].map(victims);
    let uids = format!(r#"{{"n1":{old}}}"#);
    let cases = [
        (with_pods(r#"[{"UID":"old"},{"UID":"old"}]"#), OLD),
        (with_nodes(&format!(r#"{{"n1":{other},"n1":{old}}}"#)), OLD),
        (with_nodes(&format!(r#"{{"n1":{old},"n1":{other}}}"#)), NO_NODE),
        (with_node(r#"{"Pods":[{"UID":"x"}],"Pods":[{"UID":"old"}]}"#), OLD),
        (with_pods(r#"[{"UID":"x","UID":"old"}]"#), OLD),
        (format!(r#"{{"Pod":7,"Pod":{pod},"NodeNameToMetaVictims":{uids}}}"#), OLD),
        (
            format!(r#"{{"Pod":{pod},"NodeNameToMetaVictims":{uids},"NodeNameToVictims":{{"n2":{other}}}}}"#),
            Kept(&[("n1", "old"), ("n2", "other")]),
        ),
        (format!(r#"{{"Pod":{pod},"NodeNameToMetaVictims":{uids},"NodeNameToVictims":{uids}}}"#), OLD),
        (format!(r#"{{"pOD":{pod},"nodenametometavictims":{{"n1":{}}}}}"#, old.to_lowercase()), OLD),
        (with_pods(r#"[{"UID":"old","metadata":{"uid":"other"}}]"#), OLD),
        (with_pods(r#"[{"metadata":{"uid":"old"},"UID":""}]"#), NO_NODE),
        (with_nodes(&format!(r#"{{"nowhere":{old}}}"#)), NO_NODE),
        (with_nodes(&format!(r#"{{"":{old}}}"#)), NO_NODE),
        (with_nodes(&format!(r#"{{"N1":{old}}}"#)), NO_NODE),
        (with_node(&other), NO_NODE),
        (with_node(&victims("missing")), NO_NODE),
        (with_node(&victims("OLD")), NO_NODE),
        (with_node(&victims("p")), NO_NODE),
        (with_pods(r#"[{"UID":"old"},{"UID":"missing"}]"#), NO_NODE),
        (with_node(&young), OLD),
        (with_nodes(r#"{"n4":{"Pods":[{"UID":"alone"}]}}"#), NO_NODE),
        (with_field("/metadata/uid", &json!("old")), NO_NODE),
    ];
    cases.into_iter().map(|(body, expected)| (body.into_bytes(), expected)).collect()
}

fn text_and_numbers() -> Vec<Case> {
    let long = "x".repeat(1 << 20);
    let deep = "[".repeat(100_000);
    let closed = format!("{deep}{}", "]".repeat(100_000));
    let objects = r#"{"a":"#.repeat(100_000) + "1" + &"}".repeat(100_000);
    let extra = |value: &str| good().replacen('{', &format!(r#"{{"unknown":{value},"#), 1);
    let digits = "9".repeat(10_000);
    let mut cases: Vec<Case> = [
        (deep.clone(), Bad("expected ExtenderPreemptionArgs")),
        (closed.clone(), Bad("expected ExtenderPreemptionArgs")),
        (extra(&deep), Bad("not ExtenderPreemptionArgs")),
        (extra(&closed), OLD),
        (extra(&objects), OLD),
        (with_nodes(&closed), Bad("expected a map from the names of nodes")),
        (with_nodes(&objects), NO_NODE),
        (with_node(&closed), Bad("expected victims")),
        (with_pods(&closed), Bad("expected a pod, or its UID")),
        (with_pods(&format!("[{objects}]")), NO_NODE),
        (with_pods(&format!(r#"[{{"UID":"old","spec":{closed}}}]"#)), OLD),
        (with_pod(&closed), Bad("the Pod of the ExtenderPreemptionArgs can't be read")),
        (with_pod(&objects), NO_NODE),
        (with_pod(&format!(r#"{{"metadata":{{"uid":"p"}},"spec":{closed}}}"#)), OLD_AND_OTHER),
        (extra(&digits), OLD),
        (extra("1e999999999"), OLD),
        (extra("-"), Bad("invalid number")),
        (with_nodes(&format!(r#"{{"{long}":null}}"#)), Bad("none is longer than 253")),
        (with_pods(&format!(r#"[{{"UID":"{long}"}}]"#)), NO_NODE),
        (extra(&format!(r#""{long}""#)), OLD),
        (with_field("/metadata/name", &json!(long)), OLD_AND_OTHER),
        (with_field("/spec/schedulerName", &json!(long)), OLD_AND_OTHER),
        (with_field("/metadata/uid", &json!(long)), NO_NODE),
        (with_pods(r#"[{"UID":"\ud800"}]"#), Bad("hex escape")),
        (with_pods(r#"[{"UID":"\u0000"}]"#), NO_NODE),
        (with_pods("[{\"UID\":\"\0\"}]"), Bad("control character")),
        (with_pods(r#"[{"\u0055ID":"\u006fld"}]"#), OLD),
        (with_violations("null"), OLD),
        (with_violations("-1"), OLD),
        (with_violations("0.5"), OLD),
        (with_violations("-99999999999999999999"), OLD),
    ]
    .into_iter()
    .map(|(body, expected)| (body.into_bytes(), expected))
    .collect();
    let spliced = |body: String, bytes: &[u8]| {
        let (before, after) = body.split_once("MARKER").unwrap();
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    cases.push((spliced(with_pods(r#"[{"UID":"MARKER"}]"#), b"\xff"), Bad("invalid unicode")));
    cases.push((spliced(with_nodes(r#"{"MARKER":null}"#), b"\xed\xa0\x80"), Bad("invalid unicode")));
    cases.push((spliced(with_pod(r#"{"metadata":{"name":"MARKER"}}"#), b"\xc3"), Bad("invalid unicode")));
    cases
}

/// The pod that [`with_pod`] offers, and the one that may go in place of the young pod.
const OLD_AND_OTHER: Expected = Kept(&[("n1", "old"), ("n2", "other")]);

/// Preemptors with odd fields: only the uid counts.
fn odd_preemptors() -> Vec<Case> {
    let odd = [
        ("/spec/priority", json!(9)),
        ("/spec/priority", json!(2_000_000_000)),
        ("/spec/priority", json!(-1)),
        ("/spec/priority", json!("high")),
        ("/spec/containers", Value::Null),
        ("/spec/containers", json!([null])),
        ("/spec/containers/0/resources", json!([7])),
        ("/spec/containers/0/resources/requests/cpu", json!("many")),
        ("/spec/volumes", json!({"a": 1})),
        ("/spec/preemptionPolicy", json!("Never")),
        ("/spec/schedulerName", json!([])),
        ("/spec/unknown", json!([[7]])),
        ("/metadata/name", json!(7)),
        ("/metadata/name", json!("../../other")),
        ("/metadata/namespace", json!("other")),
        ("/metadata/labels", Value::Null),
        ("/metadata/labels", json!({"kai.scheduler/queue": "guarded"})),
        ("/metadata/annotations", json!("x")),
        ("/metadata/deletionTimestamp", json!({})),
        ("/status", json!("x")),
        ("/spec", json!("x")),
    ];
    let of_none = [
        with_field("/metadata/uid", &Value::Null),
        with_field("/metadata/uid", &json!(7)),
        with_field("/metadata/uid", &json!("")),
        with_field("/metadata/uid", &json!("P")),
        // it runs
        with_field("/metadata/uid", &json!("old")),
        with_field("/metadata", &json!([])),
        with_pod("{}"),
        with_pod(r#"{"uid":"p"}"#),
        with_pod(r#"{"metadata":{}}"#),
        with_pod(r#"{"metadata":{"uid":"other","uid":"p"}}"#),
    ];
    let odd = odd.iter().map(|(pointer, value)| (with_field(pointer, value).into_bytes(), OLD_AND_OTHER));
    odd.chain(of_none.into_iter().map(|body| (body.into_bytes(), NO_NODE))).collect()
}

async fn assert_answered(cases: Vec<Case>) {
    let router = router();
    for (body, expected) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(700)]).into_owned();
        // one of unknown length is put together from its parts
        for request in [post(body.clone()), post(in_parts(&body))] {
            assert_outcome(outcome(&router, request).await, &expected, &shown);
            assert_good(&router).await;
        }
    }
}

fn in_parts(body: &[u8]) -> Body {
    let parts: Vec<_> = body.chunks(7).map(Bytes::copy_from_slice).collect();
    Body::from_stream(stream::iter(parts.into_iter().map(Ok::<_, Infallible>)))
}

fn assert_outcome(outcome: Result<Value, (StatusCode, String)>, expected: &Expected, shown: &str) {
    match (outcome, expected) {
        (Ok(mut answer), Kept(nodes)) => {
            for of in answer["NodeNameToMetaVictims"].as_object_mut().unwrap().values_mut() {
                of["NumPDBViolations"] = json!(0);
            }
            assert_eq!(answer, kept(nodes), "{shown}");
        }
        (Err((status, text)), Bad(message)) => {
            assert_eq!(status, StatusCode::BAD_REQUEST, "{shown}");
            assert!(text.contains(message), "{text:?} should say {message:?}: {shown}");
            assert!(text.ends_with('\n') && text.len() < 1_000, "{text:?}");
        }
        (Ok(answer), Bad(message)) => panic!("should be refused with {message:?}: {answer}, {shown}"),
        (Err(refused), Kept(nodes)) => panic!("should be {nodes:?}: {refused:?}, {shown}"),
    }
}

async fn assert_good(router: &Router) {
    assert_eq!(outcome(router, post(good())).await, Ok(kept(&[("n1", "old")])));
}

#[tokio::test]
async fn what_is_no_json_is_a_bad_request() {
    assert_answered(no_json()).await;
}

#[tokio::test]
async fn what_is_cut_off_anywhere_is_a_bad_request() {
    let good = good();
    let cut = (0..good.len()).map(|length| (good.as_bytes()[..length].to_vec(), Bad("EOF")));
    assert_answered(cut.collect()).await;
}

#[tokio::test]
async fn what_is_of_another_shape_is_a_bad_request() {
    assert_answered(of_another_shape()).await;
}

#[tokio::test]
async fn a_node_without_victims_is_dropped() {
    assert_answered(with_nothing()).await;
}

#[tokio::test]
async fn what_comes_twice_is_one_and_what_is_not_known_may_be_protected() {
    assert_answered(twice_and_unknown()).await;
}

#[tokio::test]
async fn depth_and_length_and_odd_texts_and_numbers_are_no_danger() {
    assert_answered(text_and_numbers()).await;
}

#[tokio::test]
async fn of_a_preemptor_its_uid_alone_counts_and_one_that_does_not_wait_gets_no_victim() {
    assert_answered(odd_preemptors()).await;
}

#[tokio::test]
async fn both_forms_get_the_same_answer() {
    let router = router();
    let ask = async |key: &str, of: fn(&str) -> Value| {
        let mut nodes: Value = MAY_GO
            .iter()
            .map(|(node, uid)| (node.to_string(), json!({"Pods": [of(uid)], "NumPDBViolations": 2})))
            .collect();
        nodes["n2"]["Pods"] = json!([of("young-n2")]);
        nodes["n4"] = json!({"Pods": [of("alone")]});
        outcome(&router, post(json!({"Pod": preemptor(), key: nodes}).to_string())).await.unwrap()
    };
    let uids = ask("NodeNameToMetaVictims", |uid| json!({"UID": uid})).await;
    let pods = ask(
        "NodeNameToVictims",
        |uid| json!({"metadata": {"name": "x", "uid": uid, "ownerReferences": [{"uid": "o"}]}, "spec": {}, "uid2": 1}),
    )
    .await;
    let mut expected = kept(&[("n1", "old"), ("n2", "other"), ("n3", "odd")]);
    for node in ["n1", "n3"] {
        expected["NodeNameToMetaVictims"][node]["NumPDBViolations"] = json!(2);
    }
    assert_eq!((&uids, &pods), (&expected, &expected));
}

#[tokio::test]
async fn what_is_not_plain_json_is_unsupported() {
    let router = router();
    for (name, value, part) in [
        (CONTENT_TYPE, "text/plain", "Content-Type is \"text/plain\", but must be application/json"),
        (CONTENT_TYPE, "", "must be application/json"),
        (CONTENT_TYPE, "application/vnd.kubernetes.protobuf", "must be application/json"),
        (CONTENT_ENCODING, "gzip", "Content-Encoding \"gzip\" is not supported"),
    ] {
        let mut request = post(good());
        request.headers_mut().insert(name, value.parse().unwrap());
        let (status, text) = outcome(&router, request).await.unwrap_err();
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert!(text.contains(part), "{text}");
    }
    let mut request = post(good());
    request.headers_mut().remove(CONTENT_TYPE);
    assert_eq!(outcome(&router, request).await.unwrap_err().0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_good(&router).await;
}

#[tokio::test]
async fn questions_are_posted() {
    let router = router();
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::PATCH, Method::DELETE] {
        let mut request = post(good());
        *request.method_mut() = method;
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()[ALLOW], "POST");
    }
    assert_good(&router).await;
}

#[tokio::test]
async fn a_body_of_unknown_length_is_read_to_its_end() {
    let answer = outcome(&router(), post(in_parts(good().as_bytes()))).await;
    assert_eq!(answer, Ok(kept(&[("n1", "old")])));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_bad_request() {
    let router = router();
    let parts = [Ok(Bytes::from(good())), Err(io::Error::from(io::ErrorKind::ConnectionReset))];
    let (status, text) = outcome(&router, post(Body::from_stream(stream::iter(parts)))).await.unwrap_err();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("the body can't be read to its end"), "{text}");
    assert_good(&router).await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_as_soon_as_that_is_known() {
    let router = router();
    let mut announced = post(Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()));
    announced.headers_mut().insert(CONTENT_LENGTH, (MAX_PREEMPTION_BYTES + 1).into());
    let chunk = Bytes::from(vec![b' '; 8 << 20]);
    let endless = post(Body::from_stream(stream::repeat(Ok::<_, Infallible>(chunk))));
    for request in [announced, endless] {
        let (status, text) = outcome(&router, request).await.unwrap_err();
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(text.contains("larger than 33554432 bytes") && text.contains("nodeCacheCapable"), "{text}");
    }
    assert_good(&router).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_times_out() {
    let router = router();
    let silent = stream::pending::<Result<Bytes, Infallible>>();
    let unfinished =
        stream::iter([Ok(Bytes::from("{"))]).chain(stream::pending::<Result<Bytes, Infallible>>());
    let dripping = stream::repeat(()).then(async |()| {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok::<_, Infallible>(Bytes::from(" "))
    });
    for body in [Body::from_stream(silent), Body::from_stream(unfinished), Body::from_stream(dripping)] {
        let begin = tokio::time::Instant::now();
        assert_eq!(outcome(&router, post(body)).await.unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
        assert!(begin.elapsed() <= Duration::from_secs(6), "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn an_extender_that_is_off_says_how_to_turn_it_on() {
    let (status, text) = outcome(&scheduler_router(None, metrics()), post(good())).await.unwrap_err();
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("--scheduler-extender") && text.contains("schedulerExtender.enabled"), "{text}");
}

#[tokio::test]
async fn an_extender_that_does_not_know_all_pods_yet_gives_none_away() {
    let readiness = ProcessReadiness::default();
    let awaited = readiness.awaiting("pods");
    let router = scheduler_router(Some(extender(readiness)), metrics());
    let (status, text) = outcome(&router, post(good())).await.unwrap_err();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("waiting for pods"), "{text}");
    awaited.done();
    assert_good(&router).await;
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec!["old", "other", "young-n1", "alone", "p"]).prop_map(Value::from),
    ];
    // with the names of fields that there are, for others are only skipped
    let names =
        vec!["n1", "n2", "n4", "Pods", "UID", "metadata", "uid", "labels", "spec", "priority", "containers"];
    let name = prop_oneof![4 => prop::sample::select(names).prop_map(str::to_owned), 1 => any::<String>()];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name.clone(), inner), 0..5).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Checks that a body is answered, with nodes or with a message.
fn answered(body: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    if let Err((status, text)) = runtime.block_on(outcome(&router(), post(body.to_vec()))) {
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.len() > 1 && text.ends_with('\n'), "{text:?}");
    }
}

/// As many pods as fit into this many bytes.
fn empty_pods(bytes: usize) -> Body {
    let start = format!(r#"{{"Pod":{},"NodeNameToVictims":{{"n1":{{"Pods":[{{}}"#, preemptor());
    let chunk = Bytes::from(",{}".repeat(1 << 18));
    let chunks = bytes / chunk.len();
    let parts = [Bytes::from(start)].into_iter().chain(vec![chunk; chunks]).chain([Bytes::from("]}}}")]);
    Body::from_stream(stream::iter(parts.map(Ok::<_, Infallible>)))
}

#[tokio::test]
async fn more_victims_than_any_cluster_has_are_refused_however_little_they_say() {
    let router = router();
    let (status, text) = outcome(&router, post(empty_pods(4 << 20))).await.unwrap_err();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("more than 200000 victims, all nodes together"), "{text}");
    let (status, text) = outcome(&router, post(empty_pods(99 << 20))).await.unwrap_err();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(text.contains("nodeCacheCapable"), "{text}");
    assert_good(&router).await;
}

#[tokio::test]
async fn a_preemptor_that_becomes_known_within_a_moment_is_answered_as_any_other() {
    let extender = patient();
    let asked = tokio::spawn(ask(&extender, post(good())));
    until(|| awaiting_preemptors(&extender) == 1).await;
    extender.sight.placement.change(|index| index.apply_pod(serde_json::from_value(preemptor()).unwrap()));
    assert_eq!(asked.await.unwrap(), Ok(kept(&[("n1", "old")])));
}

/// An extender that waits for a preemptor that it doesn't know.
fn patient() -> Extender {
    let mut extender = extender(ProcessReadiness::default());
    extender.patience = Duration::from_secs(20);
    extender.sight.placement.change(|index| index.delete_pod(Uid::of("p")));
    extender
}

/// The number of answers that wait for a preemptor that isn't known yet.
fn awaiting_preemptors(extender: &Extender) -> usize {
    4 - extender.patient.available_permits()
}

/// The number of questions that are being read or answered.
fn in_progress(extender: &Extender) -> usize {
    16 + 2 - extender.small.available_permits() - extender.large.available_permits()
}

fn ask(
    extender: &Extender,
    request: Request<Body>,
) -> impl Future<Output = Result<Value, (StatusCode, String)>> + use<> {
    let router = scheduler_router(Some(extender.clone()), metrics());
    async move { outcome(&router, request).await }
}

async fn until(condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), met).await.unwrap();
}

/// Asks for a preemptor that becomes known while the index is held; true if the victim was granted in the end.
async fn is_granted(is_answer_sent: bool) -> bool {
    let extender = patient();
    let asked = tokio::spawn(ask(&extender, post(good())));
    until(|| awaiting_preemptors(&extender) == 1).await;
    let placement = extender.sight.placement.clone();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (hold, is_held) = tokio::sync::oneshot::channel();
    let becomes_known = tokio::task::spawn_blocking(move || {
        placement.change(|index| {
            hold.send(()).unwrap();
            index.apply_pod(serde_json::from_value(preemptor()).unwrap());
            released.recv().unwrap();
        });
    });
    is_held.await.unwrap();
    if !is_answer_sent {
        asked.abort();
        until(|| asked.is_finished()).await;
    }
    release.send(()).unwrap();
    becomes_known.await.unwrap();
    // a thread may still be at work for the caller that has left
    until(|| in_progress(&extender) == 0).await;
    extender.permits.covering(Uid::of("old"), ServerClock::default().now()).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_granted_for_an_answer_that_is_not_sent() {
    assert!(is_granted(true).await);
    assert!(!is_granted(false).await);
}

#[tokio::test]
async fn only_so_many_answers_wait_for_their_preemptors() {
    let extender = patient();
    let of_unknown = || {
        let body = with_field("/metadata/uid", &json!("unknown"));
        let length = body.len();
        let mut request = post(body);
        request.headers_mut().insert(CONTENT_LENGTH, length.into());
        request
    };
    let patient: Vec<_> = (0..4).map(|_| tokio::spawn(ask(&extender, of_unknown()))).collect();
    until(|| awaiting_preemptors(&extender) == 4).await;
    assert_eq!(ask(&extender, of_unknown()).await, Ok(kept(&[])));
    let mut unknown = preemptor();
    unknown["metadata"]["uid"] = json!("unknown");
    extender.sight.placement.change(|index| index.apply_pod(serde_json::from_value(unknown).unwrap()));
    for asked in patient {
        assert_eq!(asked.await.unwrap(), Ok(kept(&[("n1", "old"), ("n2", "other")])));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(body in vec(any::<u8>(), 0..256)) {
        answered(&body);
    }

    #[test]
    fn any_change_of_a_question_is_answered(at in any::<Index>(), removed in 0..20_usize, added in vec(any::<u8>(), 0..6)) {
        let mut body = good().into_bytes();
        let from = at.index(body.len());
        let to = (from + removed).min(body.len());
        body.splice(from..to, added);
        answered(&body);
    }

    #[test]
    fn any_question_is_answered(pod in json_value(), uids in json_value(), pods in json_value()) {
        let args = |pod: &Value| json!({"Pod": pod, "NodeNameToMetaVictims": uids, "NodeNameToVictims": pods});
        answered(args(&pod).to_string().as_bytes());
        answered(args(&preemptor()).to_string().as_bytes());
    }

    #[test]
    fn any_preemptor_is_answered(metadata in json_value(), spec in json_value(), status in json_value()) {
        answered(with_pod(&json!({"metadata": metadata, "spec": spec, "status": status}).to_string()).as_bytes());
        answered(with_field("/spec", &spec).as_bytes());
        answered(with_field("/metadata", &metadata).as_bytes());
    }
}
