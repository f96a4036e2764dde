//! Each body gets an answer: a valid review, or a status that says why not.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "support/oneshot.rs"]
mod oneshot;
mod support;

use std::{convert::Infallible, io, sync::LazyLock, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{
        HeaderMap, HeaderValue, Method, Request, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use futures::{StreamExt, stream};
use prometheus_client::registry::Registry;
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};
use support::{UID, review, webhook};
use tenure_service::callers::Peer;
use tenure_types::runai::SPEC_ANNOTATIONS;
use tenure_webhook::{
    KnownQueues, LargeBodies, MAX_BODY_BYTES, Metrics, Mutator, Validator, guard_router, owners_router,
    router,
};

const RUNAI: &str = "scheduling.run.ai";
const TENSORSTACK: &str = "scheduler.tensorstack.dev";

fn post(body: impl Into<Body>) -> Request<Body> {
    oneshot::post("/validate", body)
}

async fn answer(request: Request<Body>) -> (StatusCode, Bytes) {
    let (status, kind, body) = oneshot::answer(webhook(KnownQueues::default()), request).await;
    if status == StatusCode::OK {
        assert_eq!(kind.as_deref(), Some("application/json"));
        check_review(&serde_json::from_slice(&body).unwrap());
    }
    (status, body)
}

/// Checks that the API server accepts an answer.
fn check_review(answer: &Value) {
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    assert_eq!(answer.as_object().unwrap().len(), 3, "{answer}");
    let response = answer["response"].as_object().unwrap();
    assert!(!response["uid"].as_str().unwrap().is_empty(), "{answer}");
    if let Some(warnings) = response.get("warnings") {
        let warnings = warnings.as_array().unwrap();
        assert!(!warnings.is_empty() && warnings.iter().all(Value::is_string), "{answer}");
    }
    if response["allowed"].as_bool().unwrap() {
        assert!(!response.contains_key("status"), "{answer}");
        return;
    }
    let status = &response["status"];
    assert_eq!(
        (&status["status"], &status["code"], &status["reason"]),
        (&json!("Failure"), &json!(422), &json!("Invalid")),
        "{answer}"
    );
    assert!(status["message"].as_str().unwrap().contains(" is invalid: "), "{answer}");
    let causes = status["details"]["causes"].as_array().unwrap();
    assert!(!causes.is_empty(), "{answer}");
    for cause in causes {
        let full = |key: &str| !cause[key].as_str().unwrap().is_empty();
        assert!(full("field") && full("message") && full("reason"), "{answer}");
    }
}

/// The answer to a review, or the status of a body that is none.
async fn outcome(body: impl Into<Body>) -> Result<Value, (StatusCode, String)> {
    let (status, body) = answer(post(body)).await;
    if status == StatusCode::OK {
        return Ok(serde_json::from_slice(&body).unwrap());
    }
    Err((status, String::from_utf8(body.to_vec()).unwrap()))
}

async fn assert_bad(body: impl Into<Body>, reason: &str) {
    let (status, text) = outcome(body).await.unwrap_err();
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains(reason), "{text:?} should say {reason:?}");
}

/// A good review, with `marker` in place of the object's spec.
fn spliced(marker: &[u8]) -> Vec<u8> {
    splice(&create(&json!({"metadata": {"name": "demo"}, "spec": "marker"})), marker)
}

fn splice(review: &Value, marker: &[u8]) -> Vec<u8> {
    let text = review.to_string();
    let (before, after) = text.split_once(r#""marker""#).unwrap();
    [before.as_bytes(), marker, after.as_bytes()].concat()
}

fn create(object: &Value) -> Value {
    review(RUNAI, "CREATE", object, &Value::Null)
}

fn good() -> Value {
    create(&json!({
        "apiVersion": "scheduling.run.ai/v3alpha1",
        "kind": "Queue",
        "metadata": {"name": "demo", "uid": "8b7e", "annotations": {"note": "naïve ☂"}, "managedFields": [{"fieldsV1": {"f:spec": {}}}]},
        "spec": {"maxDuration": "1d", "priority": 1, "parentQueue": "", "resources": {"cpu": {"quota": 1.5}}},
        "status": {},
    }))
}

fn padded(length: usize) -> Vec<u8> {
    let mut review = good();
    review["request"]["object"]["metadata"]["annotations"]["padding"] = json!("marker");
    let bare = splice(&review, b"\"\"").len();
    let padding = [b"\"", "x".repeat(length - bare).as_bytes(), b"\""].concat();
    splice(&review, &padding)
}

#[tokio::test]
async fn a_good_review_is_answered_with_its_uid() {
    let answer = outcome(good().to_string()).await.unwrap();
    assert_eq!(answer["response"], json!({"uid": UID, "allowed": true}));
}

#[tokio::test]
async fn what_is_no_json_is_a_bad_request() {
    let good = good().to_string();
    assert_bad("", "EOF").await;
    assert_bad(" \n", "EOF").await;
    assert_bad("\0", "expected value").await;
    assert_bad("review", "expected value").await;
    assert_bad(&b"\xff\xfe"[..], "expected value").await;
    assert_bad(format!("\u{feff}{good}"), "expected value").await;
    assert_bad(good.clone() + "}", "trailing characters").await;
    assert_bad(good.clone() + "\0", "trailing characters").await;
    assert_bad(good.clone() + &good, "trailing characters").await;
    assert_bad(good.replace('"', "'"), "key must be a string").await;
}

#[tokio::test]
async fn what_is_cut_off_anywhere_is_a_bad_request() {
    let good = good().to_string().into_bytes();
    for length in 0..good.len() {
        assert_bad(good[..length].to_vec(), "not an AdmissionReview: ").await;
    }
}

#[tokio::test]
async fn what_is_no_admission_review_is_a_bad_request() {
    for body in ["null", "true", "1", "\"review\"", "{\"request\": 1}", "{\"kind\": 1}"] {
        assert_bad(body, "not an AdmissionReview: invalid type").await;
    }
    assert_bad("{}", "apiVersion is \"\", kind is \"\"").await;
    assert_bad("[]", "not an AdmissionReview: ").await;
    let mut other = good();
    other["apiVersion"] = json!("admission.k8s.io/v1beta1");
    assert_bad(other.to_string(), "apiVersion is \"admission.k8s.io/v1beta1\"").await;
    let mut other = good();
    other["kind"] = json!("ConversionReview");
    assert_bad(other.to_string(), "kind is \"ConversionReview\"").await;
}

#[tokio::test]
async fn a_review_without_a_request_is_a_bad_request() {
    let mut review = good();
    review["request"] = Value::Null;
    assert_bad(review.to_string(), "has no request").await;
    review.as_object_mut().unwrap().remove("request");
    review["response"] = json!({"uid": UID, "allowed": true});
    assert_bad(review.to_string(), "has no request").await;
}

#[tokio::test]
async fn a_request_without_a_uid_is_a_bad_request() {
    let mut review = good();
    review["request"]["uid"] = json!("");
    assert_bad(review.to_string(), "has no uid").await;
    review["request"].as_object_mut().unwrap().remove("uid");
    assert_bad(review.to_string(), "has no uid").await;
    for uid in [json!(null), json!(1), json!([]), json!({})] {
        review["request"]["uid"] = uid;
        assert_bad(review.to_string(), "invalid type").await;
    }
}

#[tokio::test]
async fn a_key_twice_is_a_bad_request() {
    let good = good().to_string();
    for (key, twice) in [
        ("\"request\":{", "\"request\":null,\"request\":{"),
        ("\"uid\":\"705", "\"uid\":\"a\",\"uid\":\"705"),
        ("\"oldObject\":", "\"object\":{},\"oldObject\":"),
    ] {
        assert_bad(good.replacen(key, twice, 1), "duplicate field").await;
    }
}

#[tokio::test]
async fn an_odd_uid_is_repeated_as_it_is() {
    let long = "x".repeat(100_000);
    for uid in [" ", "\0\u{1f}\u{7f}", "\"\\/", "☂🦀\u{202e}\u{feff}", "\r\nX-Header: a", &long] {
        let mut review = good();
        review["request"]["uid"] = json!(uid);
        assert_eq!(outcome(review.to_string()).await.unwrap()["response"]["uid"], json!(uid));
    }
}

#[tokio::test]
async fn an_odd_name_is_repeated_as_it_is() {
    for name in ["naïve-☂🦀", "\0", "\"", "\u{202e}", "../..", "\u{10ffff}"] {
        let mut review = create(&json!({"spec": {"maxDuration": "soon"}}));
        review["request"]["name"] = json!(name);
        let answer = outcome(review.to_string()).await.unwrap();
        assert_eq!(answer["response"]["status"]["details"]["name"], json!(name));
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_a_bad_request() {
    assert_bad(spliced(b"{\"maxDuration\": \"\xff\"}"), "invalid unicode").await;
    assert_bad(spliced(b"{\"maxDuration\": \"\xed\xa0\x80\"}"), "invalid unicode").await;
    assert_bad(spliced(b"{\"\xc3\": 1}"), "invalid unicode").await;
    assert_bad(spliced(b"{\"maxDuration\": \"\0\"}"), "control character").await;
    let mut review = good();
    review["request"]["name"] = json!("marker");
    assert_bad(splice(&review, b"\"\xff\""), "invalid unicode").await;
}

#[tokio::test]
async fn half_a_surrogate_pair_in_a_spec_is_refused() {
    let answer = outcome(spliced(br#"{"maxDuration": "\ud800"}"#)).await.unwrap();
    assert_eq!(answer["response"]["allowed"], json!(false));
}

#[tokio::test]
async fn depth_is_no_danger() {
    for depth in [200, 10_000, 100_000] {
        let nest = |open: &str, inner: &str, close: &str| open.repeat(depth) + inner + &close.repeat(depth);
        let arrays = nest("[", "", "]");
        assert_bad(arrays.clone(), "invalid type: sequence").await;
        assert_bad("[".repeat(depth), "invalid type: sequence").await;
        assert_bad(nest("{\"a\":", "1", "}"), "apiVersion is \"\"").await;
        assert_bad(format!("{{\"request\": {arrays}}}"), "invalid type: sequence").await;
        for value in [arrays, nest("{\"a\":", "1", "}")] {
            for object in [
                json!("marker"),
                json!({"metadata": "marker", "spec": {}}),
                json!({"metadata": {"annotations": "marker"}, "spec": {}}),
                json!({"spec": "marker"}),
                json!({"spec": {"unknown": "marker"}}),
                json!({"spec": {"unknown": "marker", "priority": "high"}}),
                json!({"spec": {"priority": "marker"}}),
                json!({"spec": {"resources": "marker"}}),
                json!({"spec": {}, "unknown": "marker"}),
            ] {
                outcome(splice(&create(&object), value.as_bytes())).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn what_is_nested_too_deep_to_compare_does_not_count_as_unchanged() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let object = |priority: Value| json!({"spec": {"priority": priority, "unknown": "marker"}});
    let review = review(RUNAI, "UPDATE", &object(json!("high")), &object(json!(1)));
    let answer = outcome(review.to_string().replace("\"marker\"", &deep)).await.unwrap();
    assert_eq!(answer["response"]["allowed"], json!(false));
}

#[tokio::test]
async fn numbers_that_fit_nowhere_are_refused() {
    let digits = "9".repeat(10_000);
    let huge = ["1e999", "-1e999", "99999999999999999999", &digits, "1e-999999999"];
    for number in huge {
        for spec in [format!("{{\"priority\": {number}}}"), format!("{{\"maxDuration\": {number}}}")] {
            let answer = outcome(spliced(spec.as_bytes())).await.unwrap();
            assert_eq!(answer["response"]["allowed"], json!(false), "{spec}");
        }
        let unknown = format!("{{\"unknown\": {number}}}");
        outcome(spliced(unknown.as_bytes())).await.unwrap();
    }
    for no_number in ["NaN", "Infinity", "-", "01", "1.", "0x1", "+1"] {
        let spec = format!("{{\"priority\": {no_number}}}");
        outcome(spliced(spec.as_bytes())).await.unwrap_err();
    }
}

async fn status_with(headers: &[(&str, &'static [u8])]) -> StatusCode {
    let mut request = post(good().to_string());
    *request.headers_mut() = HeaderMap::new();
    for (name, value) in headers {
        let value = HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name.parse::<axum::http::HeaderName>().unwrap(), value);
    }
    answer(request).await.0
}

#[tokio::test]
async fn json_is_json_however_it_is_announced() {
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "APPLICATION/JSON",
        "Application/Json ; Charset=utf-8",
    ] {
        assert_eq!(status_with(&[("content-type", kind.as_bytes())]).await, StatusCode::OK, "{kind}");
    }
}

#[tokio::test]
async fn what_is_not_announced_as_json_is_unsupported() {
    assert_eq!(status_with(&[]).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let kinds: [&[u8]; 8] = [
        b"",
        b";",
        b"json",
        b"text/plain",
        b"application/jsonp",
        b"application/yaml",
        b"application/vnd.kubernetes.protobuf",
        b"\xff\xfe",
    ];
    for kind in kinds {
        assert_eq!(
            status_with(&[("content-type", kind)]).await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{kind:?}"
        );
    }
}

#[tokio::test]
async fn a_compressed_body_is_unsupported() {
    let json = (CONTENT_TYPE.as_str(), &b"application/json"[..]);
    for encoding in [&b"gzip"[..], b"br", b"GZIP", b"", b"\xff"] {
        let status = status_with(&[json, (CONTENT_ENCODING.as_str(), encoding)]).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{encoding:?}");
    }
    let status = status_with(&[json, (CONTENT_ENCODING.as_str(), b"identity")]).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn reviews_are_posted_to_one_path() {
    for method in [
        Method::GET,
        Method::HEAD,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
    ] {
        let mut request = post(good().to_string());
        *request.method_mut() = method;
        assert_eq!(answer(request).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }
    for path in ["/", "/validate/", "/Validate", "/validate/a", "//validate", "/%76alidate"] {
        let request = oneshot::post(path, good().to_string());
        assert_eq!(answer(request).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    let request = oneshot::post("/validate?timeout=10s", good().to_string());
    assert_eq!(answer(request).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_body_of_the_largest_size_is_reviewed_and_one_byte_more_is_too_large() {
    let largest = padded(MAX_BODY_BYTES);
    assert_eq!(largest.len(), 7 * 1024 * 1024);
    outcome(largest).await.unwrap();
    let (status, text) = outcome(padded(MAX_BODY_BYTES + 1)).await.unwrap_err();
    assert_eq!((status, text.trim().is_empty()), (StatusCode::PAYLOAD_TOO_LARGE, false));
}

fn chunks(chunk: impl Into<Bytes>) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    stream::repeat(Ok(chunk.into()))
}

#[tokio::test]
async fn a_body_of_unknown_length_is_reviewed_up_to_the_largest_size() {
    let largest: Vec<_> = padded(MAX_BODY_BYTES)
        .chunks(64 * 1024)
        .map(|chunk| Ok::<_, Infallible>(Bytes::copy_from_slice(chunk)))
        .collect();
    outcome(Body::from_stream(stream::iter(largest))).await.unwrap();
    let endless = Body::from_stream(chunks(vec![b' '; 64 * 1024]));
    assert_eq!(outcome(endless).await.unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
    let one_more = stream::iter(
        padded(MAX_BODY_BYTES).chunks(64 * 1024).map(Bytes::copy_from_slice).collect::<Vec<_>>(),
    )
    .chain(stream::iter([Bytes::from_static(b" ")]))
    .map(Ok::<_, Infallible>);
    assert_eq!(outcome(Body::from_stream(one_more)).await.unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_bad_request() {
    let broken =
        stream::iter([Ok(Bytes::from_static(b"{")), Err(io::Error::from(io::ErrorKind::ConnectionReset))]);
    assert_bad(Body::from_stream(broken), "the body can't be read to its end").await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_times_out() {
    let silent = stream::pending::<Result<Bytes, Infallible>>();
    let dripping = chunks(" ").then(async |byte| {
        tokio::time::sleep(Duration::from_millis(500)).await;
        byte
    });
    for body in [Body::from_stream(silent), Body::from_stream(dripping)] {
        let begin = tokio::time::Instant::now();
        assert_eq!(outcome(body).await.unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
        assert!(begin.elapsed() <= Duration::from_secs(6), "{:?}", begin.elapsed());
    }
}

/// A request that announces a body and sends all but the last byte of it. The bodies share their memory.
fn stalled(path: &str, bytes: usize) -> Request<Body> {
    static SPACES: LazyLock<Bytes> = LazyLock::new(|| vec![b' '; MAX_BODY_BYTES].into());
    let most = stream::iter([Ok::<_, Infallible>(SPACES.slice(..bytes - 1))]);
    let mut request = oneshot::post(path, Body::from_stream(most.chain(stream::pending())));
    request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    request
}

/// A process has one memory, however many paths lead into it.
#[tokio::test(start_paused = true)]
async fn large_bodies_wait_for_those_of_all_paths_and_others_do_not() {
    let (bodies, metrics) = (LargeBodies::default(), Metrics::register(&mut Registry::default()));
    let validator = Validator::new(KnownQueues::default(), "t9k-system".into());
    let webhook = router(validator, Mutator::default(), metrics.clone(), &bodies)
        .merge(guard_router(None, metrics.clone(), &bodies))
        .merge(owners_router(None, metrics, &bodies));
    let paths = ["/guard", "/owners", "/validate", "/mutate"];
    let hold = |number: usize| {
        tokio::spawn(oneshot::answer(webhook.clone(), stalled(paths[number % paths.len()], MAX_BODY_BYTES)))
    };
    let announced = |body: Vec<u8>| {
        let length = body.len();
        let mut request = post(body);
        request.headers_mut().insert(CONTENT_LENGTH, length.into());
        request
    };
    let begin = tokio::time::Instant::now();
    let holders: Vec<_> = (0..20).map(hold).collect();
    // so that the holders have their turns
    tokio::time::sleep(Duration::from_secs(4)).await;
    let small = oneshot::answer(webhook.clone(), announced(good().to_string().into_bytes())).await;
    assert_eq!((small.0, begin.elapsed() < Duration::from_secs(5)), (StatusCode::OK, true));
    let large = oneshot::answer(webhook.clone(), announced(padded(MAX_BODY_BYTES / 2))).await;
    assert_eq!((large.0, begin.elapsed() >= Duration::from_secs(5)), (StatusCode::OK, true));
    for holder in holders {
        assert_eq!(holder.await.unwrap().0, StatusCode::REQUEST_TIMEOUT);
    }
}

/// Of 64 peers, 32 bodies each, half of them as large as a small one can be, and half of the largest.
#[tokio::test(start_paused = true)]
async fn halves_of_bodies_from_some_peers_keep_no_other_waiting() {
    let (bodies, metrics) = (LargeBodies::default(), Metrics::register(&mut Registry::default()));
    let validator = Validator::new(KnownQueues::default(), "t9k-system".into());
    let webhook = router(validator, Mutator::default(), metrics, &bodies);
    let from = |peer: u8, mut request: Request<Body>| {
        request.extensions_mut().insert(Peer(Some([127, 0, 0, peer].into())));
        request
    };
    let hold = |number: usize| {
        let bytes = if (number / 64).is_multiple_of(2) { 64 * 1024 } else { MAX_BODY_BYTES };
        let peer = u8::try_from(2 + number % 64).unwrap();
        tokio::spawn(oneshot::answer(webhook.clone(), from(peer, stalled("/validate", bytes))))
    };
    let begin = tokio::time::Instant::now();
    let holders: Vec<_> = (0..2_048).map(hold).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for body in [good().to_string().into_bytes(), padded(MAX_BODY_BYTES / 2)] {
        let answer = oneshot::answer(webhook.clone(), from(1, post(body))).await;
        assert_eq!((answer.0, begin.elapsed() < Duration::from_secs(2)), (StatusCode::OK, true));
    }
    for holder in holders {
        assert_eq!(holder.await.unwrap().0, StatusCode::REQUEST_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_slow_but_ends_is_reviewed() {
    let body = good().to_string().into_bytes();
    let slow = stream::iter([body[..10].to_vec(), body[10..].to_vec()]).then(async |part| {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok::<_, Infallible>(Bytes::from(part))
    });
    outcome(Body::from_stream(slow)).await.unwrap();
}

/// Checks that a body is answered, and a review by its uid.
fn assert_answered(body: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    match runtime.block_on(outcome(body.to_vec())) {
        Err((status, text)) => {
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(text.len() > 1 && text.ends_with('\n'), "{text:?}");
        }
        Ok(answer) => {
            // an unreadable part is no error if the webhook doesn't read it
            if let Ok(sent) = serde_json::from_slice::<Value>(body)
                && sent.is_object()
            {
                assert_eq!(answer["response"]["uid"], sent["request"]["uid"]);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Truncate(Index),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Copy(Index, Index, usize),
}

impl Mutation {
    fn apply(&self, body: &mut Vec<u8>) {
        let at = |index: &Index| index.index(body.len() + 1);
        match self {
            Self::Flip(index, bits) => {
                let at = at(index);
                if let Some(byte) = body.get_mut(at) {
                    *byte ^= bits;
                }
            }
            Self::Truncate(index) => body.truncate(at(index)),
            Self::Remove(index, length) => {
                let from = at(index);
                let to = (from + length).min(body.len());
                body.drain(from..to);
            }
            Self::Insert(index, bytes) => {
                let at = at(index);
                body.splice(at..at, bytes.iter().copied());
            }
            Self::Copy(from, to, length) => {
                let (from, to) = (at(from), at(to));
                let copied = body[from..(from + length).min(body.len())].to_vec();
                body.splice(to..to, copied);
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<Index>;
    // the bytes of JSON's syntax do more than others
    let token = prop::sample::select(
        ["{", "}", "[", "]", ",", ":", "\"", "null", "{}", "[]", "1", "-1e9", "\\u0000", "\\", "\0"]
            .map(str::as_bytes)
            .to_vec(),
    );
    prop_oneof![
        4 => (index(), 1..=u8::MAX).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        1 => index().prop_map(Mutation::Truncate),
        2 => (index(), 1..64_usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        2 => (index(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        4 => (index(), token).prop_map(|(at, bytes)| Mutation::Insert(at, bytes.to_vec())),
        2 => (index(), index(), 1..64_usize).prop_map(|(from, to, length)| Mutation::Copy(from, to, length)),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[0-9]{1,3}[.]?[wdhms]{1,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            vec((any::<String>(), inner), 0..6).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Objects with the names of fields that exist: others are only skipped.
fn spec() -> impl Strategy<Value = Value> {
    let mut names = vec![
        "parentQueue",
        "priority",
        "preemptMinRuntime",
        "reclaimMinRuntime",
        "resources",
        "quota",
        "nodeSelector",
        "namespaceSelector",
        "preemptible",
    ];
    names.extend(SPEC_ANNOTATIONS.map(|(field, _)| field));
    let name = prop::sample::select(names);
    vec((name, json_value()), 0..3)
        .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn annotation() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(|number| json!(number.to_string())),
        any::<String>().prop_map(Value::from),
        json_value()
    ]
}

fn reviewed(review: &Value) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(outcome(review.to_string())).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_answered(body in vec(any::<u8>(), 0..256)) {
        assert_answered(&body);
    }

    #[test]
    fn any_change_of_a_review_is_answered(mutations in vec(mutation(), 1..4)) {
        let mut body = good().to_string().into_bytes();
        for mutation in mutations {
            mutation.apply(&mut body);
        }
        assert_answered(&body);
    }

    #[test]
    fn any_object_is_reviewed(object in json_value(), old in json_value(), group in prop::sample::select(vec![RUNAI, TENSORSTACK])) {
        prop_assert!(reviewed(&review(group, "UPDATE", &object, &old)));
    }

    #[test]
    fn any_spec_is_reviewed(spec in prop_oneof![spec(), json_value()], old in spec(), group in prop::sample::select(vec![RUNAI, TENSORSTACK])) {
        let object = |spec| json!({"metadata": {"name": "demo"}, "spec": spec});
        prop_assert!(reviewed(&review(group, "UPDATE", &object(spec), &object(old))));
    }

    #[test]
    fn any_class_is_reviewed(class in json_value(), value in json_value(), minimum in annotation(), seconds in annotation()) {
        let key = |name: &str| format!("preemption-toleration.scheduling.x-k8s.io/{name}");
        let annotations = json!({key("minimum-preemptable-priority"): minimum, key("toleration-seconds"): seconds});
        let annotated = json!({"metadata": {"name": "demo", "annotations": annotations}, "value": value});
        for (new, old) in [(&annotated, &class), (&class, &annotated)] {
            let mut review = review("scheduling.k8s.io", "UPDATE", new, old);
            review["request"]["kind"]["kind"] = json!("PriorityClass");
            prop_assert!(reviewed(&review));
        }
    }
}
