//! Conversion reviews: all objects in order or none, and an answer to each body.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "support/oneshot.rs"]
mod oneshot;
mod support;

use std::{convert::Infallible, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{
        HeaderValue, Request, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use futures::{StreamExt, stream};
use prometheus_client::{encoding::text::encode, registry::Registry};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};
use support::{UID, webhook};
use tenure_service::callers::Peer;
use tenure_webhook::{
    KnownQueues, LargeBodies, MAX_BODY_BYTES, MAX_CONVERSION_BYTES, Metrics, Mutator, Validator, router,
};

const V2: &str = "scheduling.run.ai/v2";
const V3ALPHA1: &str = "scheduling.run.ai/v3alpha1";

fn post(body: impl Into<Body>) -> Request<Body> {
    oneshot::post("/convert", body)
}

async fn answer_of(webhook: Router, request: Request<Body>) -> Result<Value, (StatusCode, String)> {
    let (status, kind, body) = oneshot::answer(webhook, request).await;
    if status != StatusCode::OK {
        return Err((status, String::from_utf8(body.to_vec()).unwrap()));
    }
    assert_eq!(kind.as_deref(), Some("application/json"));
    Ok(serde_json::from_slice(&body).unwrap())
}

async fn outcome(body: impl Into<Body>) -> Result<Value, (StatusCode, String)> {
    answer_of(webhook(KnownQueues::default()), post(body)).await
}

/// A review as the API server writes one.
fn review(to: &str, objects: &[Value]) -> Value {
    json!({
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": UID, "desiredAPIVersion": to, "objects": objects},
        "response": null,
    })
}

fn queue(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": "Queue", "metadata": {"name": name, "uid": name}, "spec": spec})
}

async fn converted(to: &str, objects: &[Value]) -> Vec<Value> {
    let mut answer = outcome(review(to, objects).to_string()).await.unwrap();
    let objects = answer["response"].as_object_mut().unwrap().remove("convertedObjects").unwrap();
    assert_eq!(
        answer,
        json!({
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": UID, "result": {"status": "Success"}},
        })
    );
    serde_json::from_value(objects).unwrap()
}

/// The message of a failed conversion, which returns no objects.
async fn failure(to: &str, objects: &[Value]) -> String {
    let mut answer = outcome(review(to, objects).to_string()).await.unwrap();
    let message = answer["response"]["result"].as_object_mut().unwrap().remove("message").unwrap();
    assert_eq!(answer["response"], json!({"uid": UID, "result": {"status": "Failed"}}));
    serde_json::from_value(message).unwrap()
}

#[tokio::test]
async fn all_objects_are_converted_in_their_order() {
    let v3alpha1: Vec<Value> = (0..300)
        .map(|number| queue(V3ALPHA1, &format!("q{number}"), &json!({"maxDuration": format!("{number}h")})))
        .collect();
    let v2 = converted(V2, &v3alpha1).await;
    assert_eq!(v2.len(), 300);
    for (number, queue) in v2.iter().enumerate() {
        assert_eq!(queue["apiVersion"], json!(V2));
        assert_eq!(queue["metadata"]["name"], json!(format!("q{number}")));
        let annotations = json!({"tenure.dev/max-duration": format!("{number}h")});
        assert_eq!(queue["metadata"]["annotations"], annotations);
    }
    assert_eq!(converted(V3ALPHA1, &v2).await, v3alpha1);
}

#[tokio::test]
async fn objects_that_are_of_the_version_already_stay_as_they_are() {
    let mixed = [queue(V2, "a", &json!({})), queue(V3ALPHA1, "b", &json!({"requeueDelay": "1m"}))];
    let answer = converted(V3ALPHA1, &mixed).await;
    assert_eq!(answer, [queue(V3ALPHA1, "a", &json!({})), mixed[1].clone()]);
}

#[tokio::test]
async fn a_review_of_nothing_is_answered_with_nothing() {
    assert_eq!(converted(V2, &[]).await, Vec::<Value>::new());
}

#[tokio::test]
async fn one_bad_object_fails_the_review_by_its_name() {
    let good = queue(V3ALPHA1, "good", &json!({}));
    let bad = queue(V3ALPHA1, "bad", &json!("none"));
    assert_eq!(
        failure(V2, &[good.clone(), bad, good]).await,
        "can't convert to v2: objects[1]: queue \"bad\": spec: Invalid value: \"none\": must be a map"
    );
}

#[tokio::test]
async fn the_first_of_many_bad_objects_are_named() {
    let bad: Vec<Value> = (0..50).map(|number| queue("v1", &format!("q{number}"), &json!({}))).collect();
    let message = failure(V2, &bad).await;
    assert!(message.contains("queue \"q0\"") && message.contains("queue \"q4\""), "{message}");
    assert!(!message.contains("queue \"q5\"") && message.ends_with("; and more"), "{message}");
}

#[tokio::test]
async fn objects_of_any_shape_are_named_as_bad() {
    for object in [json!(null), json!(1), json!("q"), json!([]), json!({}), json!({"metadata": null})] {
        let message = failure(V2, std::slice::from_ref(&object)).await;
        assert!(message.starts_with("can't convert to v2: objects[0]: "), "{message}");
    }
}

#[tokio::test]
async fn an_unknown_version_is_asked_for_in_vain() {
    for version in ["", "v2", "scheduling.run.ai/v1", "scheduler.tensorstack.dev/v2", "scheduling.run.ai/v2/"]
    {
        let message = failure(version, &[queue(V2, "a", &json!({}))]).await;
        let expected = format!(
            "desiredAPIVersion: Invalid value: {version:?}: must be scheduling.run.ai/v2 or scheduling.run.ai/v3alpha1"
        );
        assert_eq!(message, expected);
    }
}

async fn assert_bad(body: impl Into<Body>, reason: &str) {
    let (status, text) = outcome(body).await.unwrap_err();
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains(reason), "{text:?} should say {reason:?}");
}

#[tokio::test]
async fn what_is_no_conversion_review_is_a_bad_request() {
    let good = review(V2, &[queue(V3ALPHA1, "a", &json!({}))]);
    let text = good.to_string();
    for length in 0..text.len() {
        assert_bad(text[..length].to_owned(), "not a ConversionReview: ").await;
    }
    assert_bad(text + "}", "trailing characters").await;
    let admission = support::review("scheduling.run.ai", "CREATE", &json!({}), &json!(null));
    assert_bad(admission.to_string(), "kind is \"AdmissionReview\"").await;
    assert_bad(&b"\xff"[..], "not a ConversionReview: ").await;
    for (pointer, value, reason) in [
        (
            "/apiVersion",
            json!("apiextensions.k8s.io/v1beta1"),
            "apiVersion is \"apiextensions.k8s.io/v1beta1\"",
        ),
        ("/request", json!(null), "has no request"),
        ("/request/uid", json!(""), "has no uid"),
        ("/request/objects", json!({}), "invalid type"),
        ("/request/desiredAPIVersion", json!(2), "invalid type"),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        assert_bad(bad.to_string(), reason).await;
    }
}

#[tokio::test]
async fn what_is_not_announced_as_json_is_unsupported() {
    let mut request = post("{}");
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    let (status, _) = answer_of(webhook(KnownQueues::default()), request).await.unwrap_err();
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn depth_is_no_danger() {
    for value in
        ["[".repeat(100_000) + &"]".repeat(100_000), "{\"a\":".repeat(50_000) + "1" + &"}".repeat(50_000)]
    {
        let marked =
            review(V2, &[queue(V3ALPHA1, "a", &json!({"waitForPodsReady": "marker", "other": "marker"}))]);
        let text = marked.to_string().replace("\"marker\"", &value);
        let (status, _, body) = oneshot::answer(webhook(KnownQueues::default()), post(text)).await;
        assert_eq!(status, StatusCode::OK);
        assert!(String::from_utf8(body.to_vec()).unwrap().contains(&value));
    }
}

#[tokio::test]
async fn a_list_that_is_larger_than_any_admission_review_is_converted() {
    let mut large = queue(V3ALPHA1, "a", &json!({}));
    large["metadata"]["annotations"] = json!({"note": "x".repeat(MAX_BODY_BYTES)});
    let v2 = converted(V2, &[large.clone()]).await;
    assert_eq!(v2[0]["metadata"], large["metadata"]);
}

#[tokio::test]
async fn what_would_take_much_more_memory_than_its_text_is_refused() {
    let of = |objects: &str| review(V2, &[json!("marker")]).to_string().replace("\"marker\"", objects);
    assert_bad(of(&(" {},".repeat(1 << 20) + "{}")), "more than 1048576 objects").await;
    let fields = "\"\":\"\",".repeat(1 << 21);
    let annotated = |annotations: &str| {
        format!(
            r#"{{"apiVersion":"{V3ALPHA1}","kind":"Queue","metadata":{{"name":"a","annotations":{annotations}}}}}"#
        )
    };
    let large = annotated(&format!("{{{fields}\"\":\"\"}}"));
    assert_bad(of(&format!("{{}},{large}")), "objects[1] has more than").await;
    // each quote in the carried text becomes four
    let quotes = "\\\"".repeat(1 << 21);
    let carried = annotated(&format!(r#"{{"tenure.dev/max-duration":"{quotes}"}}"#));
    let mut answer = outcome(of(&vec![carried; 24].join(","))).await.unwrap();
    let result = answer["response"]["result"].take();
    assert_eq!(result, json!({"status": "Failed", "message": "the answer has more than 167772160 bytes"}));
}

#[tokio::test]
async fn no_answer_repeats_a_long_name() {
    let long = "\u{1}".repeat(1 << 18);
    let spec = json!({});
    let mut unnamed = queue(V2, "a", &spec);
    unnamed["metadata"]["annotations"] = json!({long.clone(): 7});
    for (to, object) in
        [(V3ALPHA1, queue("v1", &long, &spec)), (V3ALPHA1, unnamed), (&long, queue(V2, "a", &spec))]
    {
        let message = failure(to, &[object]).await;
        assert!(message.len() < 3_000, "{}", message.len());
    }
    let mut review = review(V2, &[]);
    review["request"]["uid"] = long.clone().into();
    assert_bad(review.to_string(), "no uid, or one longer than 253 bytes").await;
    review["kind"] = long.into();
    assert!(outcome(review.to_string()).await.unwrap_err().1.len() < 3_000);
}

#[tokio::test]
async fn a_body_above_the_largest_size_is_too_large() {
    let mebibyte = Bytes::from(vec![b' '; 1 << 20]);
    let count = MAX_CONVERSION_BYTES as usize / mebibyte.len() + 1;
    let body = Body::from_stream(stream::iter(vec![Ok::<_, Infallible>(mebibyte); count]));
    assert_eq!(outcome(body).await.unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
}

/// A request that announces a body, and sends `sent` bytes of it.
fn stalled(sent: usize, bytes: u32) -> Request<Body> {
    let most = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b' '; sent]))]);
    let mut request = post(Body::from_stream(most.chain(stream::pending())));
    request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    request
}

/// A request of this many bytes that is good.
fn good(bytes: usize) -> Request<Body> {
    let mut large = queue(V3ALPHA1, "a", &json!({}));
    large["metadata"]["annotations"] = json!({"note": "x".repeat(bytes)});
    let body = review(V2, &[large]).to_string();
    let length = body.len();
    let mut request = post(body);
    request.headers_mut().insert(CONTENT_LENGTH, length.into());
    request
}

/// A good request of `objects` objects of a megabyte each.
fn good_list(objects: usize) -> Request<Body> {
    let mut large = queue(V3ALPHA1, "a", &json!({}));
    large["metadata"]["annotations"] = json!({"note": "x".repeat(1_000_000)});
    post(review(V2, &vec![large; objects]).to_string())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_times_out() {
    let begin = tokio::time::Instant::now();
    let (status, _) = answer_of(webhook(KnownQueues::default()), stalled(0, 100)).await.unwrap_err();
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn callers_that_send_little_of_what_they_announce_keep_none_waiting() {
    let webhook = webhook(KnownQueues::default());
    let begin = tokio::time::Instant::now();
    let slow: Vec<_> = (0..60)
        .map(|_| tokio::spawn(answer_of(webhook.clone(), stalled(100_000, MAX_CONVERSION_BYTES))))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    answer_of(webhook.clone(), good(106_000)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    for slow in slow {
        assert_eq!(slow.await.unwrap().unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
    }
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn large_reviews_wait_while_others_take_the_memory_and_small_ones_do_not() {
    let webhook = webhook(KnownQueues::default());
    let begin = tokio::time::Instant::now();
    // the second has the turn of a body for which there is no room
    let holders: Vec<_> = (0..2)
        .map(|_| tokio::spawn(answer_of(webhook.clone(), stalled(32 << 20, MAX_CONVERSION_BYTES))))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    answer_of(webhook.clone(), good(1_000)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    answer_of(webhook.clone(), good(1_000_000)).await.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(15), "{:?}", begin.elapsed());
    for holder in holders {
        assert_eq!(holder.await.unwrap().unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn halves_of_the_largest_reviews_from_some_peers_keep_no_other_waiting() {
    let webhook = webhook(KnownQueues::default());
    let from = |peer: u8, mut request: Request<Body>| {
        request.extensions_mut().insert(Peer(Some([127, 0, 0, peer].into())));
        answer_of(webhook.clone(), request)
    };
    let half = || {
        let frames = vec![Ok::<_, Infallible>(Bytes::from(vec![b' '; 1 << 18])); 256];
        post(Body::from_stream(stream::iter(frames).chain(stream::pending())))
    };
    let begin = tokio::time::Instant::now();
    let holders: Vec<_> = (0..32).map(|number| tokio::spawn(from(2 + number % 8, half()))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // a page of 500 queues of 3 KB
    from(1, good(1_500_000)).await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    for holder in holders {
        assert_eq!(holder.await.unwrap().unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_ends_when_the_answer_has_been_sent_whole() {
    let webhook = webhook(KnownQueues::default());
    let unread = [(); 2].map(|()| tower::ServiceExt::oneshot(webhook.clone(), good_list(20)));
    let unread = futures::future::join_all(unread).await;
    assert!(unread.iter().all(|answer| answer.as_ref().unwrap().status() == StatusCode::OK));
    let waits = tokio::time::timeout(Duration::from_secs(4), answer_of(webhook.clone(), good_list(20))).await;
    assert!(waits.is_err());
    for answer in unread {
        let mut body = answer.unwrap().into_body().into_data_stream();
        while body.next().await.is_some() {}
    }
    answer_of(webhook, good_list(20)).await.unwrap();
}

#[tokio::test]
async fn conversions_are_counted_by_version_and_result() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let validator = Validator::new(KnownQueues::default(), "t9k-system".into());
    let webhook = router(validator, Mutator::default(), metrics, &LargeBodies::default());
    let good = queue(V3ALPHA1, "a", &json!({}));
    for (to, objects) in [
        (V2, vec![good.clone(), good.clone()]),
        (V2, vec![good.clone(), json!(1), good.clone()]),
        (V3ALPHA1, vec![good.clone()]),
        ("v9", vec![good]),
    ] {
        answer_of(webhook.clone(), post(review(to, &objects).to_string())).await.unwrap();
    }
    answer_of(webhook, post("{")).await.unwrap_err();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "conversions_total{version=\"v2\",result=\"Converted\"} 1",
        "conversions_total{version=\"v2\",result=\"Failed\"} 1",
        "conversions_total{version=\"v3alpha1\",result=\"Converted\"} 1",
        "conversions_total{version=\"other\",result=\"Failed\"} 1",
        "converted_objects_total{version=\"v2\",result=\"Converted\"} 2",
        "converted_objects_total{version=\"v2\",result=\"Failed\"} 3",
        "conversion_duration_seconds_count 4",
        "rejected_requests_total{code=\"400\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_of_a_review_is_answered(changes in vec((any::<Index>(), 0..3_usize, any::<u8>()), 1..4)) {
        let spec = json!({"maxDuration": "1h", "preemptMinRuntime": "2d", "waitForPodsReady": {"timeout": "5m"}});
        let mut body = review(V2, &[queue(V3ALPHA1, "a", &spec), queue(V2, "b", &spec)]).to_string().into_bytes();
        for (at, removed, byte) in changes {
            let at = at.index(body.len());
            let end = (at + removed).min(body.len());
            body.splice(at..end, [byte]);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        match runtime.block_on(outcome(body)) {
            Err((status, text)) => prop_assert!(status == StatusCode::BAD_REQUEST && text.len() > 1, "{status} {text}"),
            Ok(answer) => {
                let response = &answer["response"];
                let objects = response["convertedObjects"].as_array().map(Vec::len);
                let is_failed = response["result"]["status"] == json!("Failed");
                prop_assert!(response["uid"].is_string() && is_failed == objects.is_none(), "{answer}");
            }
        }
    }
}
