#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::BTreeMap, convert::Infallible, num::NonZeroU32, sync::Arc};

use axum::http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use tenure_service::limit::write_limit;

use super::*;
use crate::{ClusterView, Metrics};

/// The result of a request to the API server.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Done,
    /// Done, but the answer is lost.
    DoneAndLost,
    /// Refused with this status.
    Refused(u16),
}

type Fates = fn(usize, &mut BTreeMap<String, Value>) -> Fate;

/// An API server that has some pods, and counts what it is asked.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    pods: BTreeMap<String, Value>,
    /// `GET` or the node that is patched, with the pod's name.
    asked: Vec<String>,
    fates: Fates,
}

impl Server {
    fn new(pods: impl IntoIterator<Item = Value>, fates: Fates) -> Self {
        let pods = pods.into_iter().map(|pod| (pod["metadata"]["name"].as_str().unwrap().to_owned(), pod));
        Self(Arc::new(Mutex::new(State { pods: pods.collect(), asked: Vec::new(), fates })))
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let name = parts.uri.path().split('/').nth(6).unwrap().to_owned();
                let (status, body) = server.0.lock().answer(&parts.method, &name, &body);
                let response = Response::builder().status(status).header("content-type", "application/json");
                Ok::<_, Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().asked.clone()
    }

    fn nominated(&self, name: &str) -> Value {
        self.0.lock().pods[name]["status"]["nominatedNodeName"].clone()
    }
}

fn failure(code: u16) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "", "reason": ""}),
    )
}

/// Raises the version of a pod, as a write by another client does.
fn write(pod: &mut Value) {
    let version: u64 = pod["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    pod["metadata"]["resourceVersion"] = json!((version + 1).to_string());
}

impl State {
    fn answer(&mut self, method: &Method, name: &str, body: &[u8]) -> (u16, Value) {
        let fate = (self.fates)(self.asked.len(), &mut self.pods);
        let patch: Value = serde_json::from_slice(body).unwrap_or_default();
        let node = &patch["status"]["nominatedNodeName"];
        let what = if method == Method::GET { "GET".to_owned() } else { node.to_string() };
        self.asked.push(format!("{what} {name}"));
        let Some(pod) = self.pods.get_mut(name) else { return failure(404) };
        if let Fate::Refused(code) = fate {
            return failure(code);
        }
        if method == Method::PATCH {
            for field in ["uid", "resourceVersion"] {
                if patch["metadata"][field] != pod["metadata"][field] {
                    return failure(409);
                }
            }
            pod["status"]["nominatedNodeName"] = node.clone();
            write(pod);
        }
        if let Fate::DoneAndLost = fate { failure(500) } else { (200, pod.clone()) }
    }
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}, "status": {},
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "1"},
    })
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut pod = pod("p");
    let (object, key) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(object).unwrap()[key] = value;
    pod
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn waiter(name: &str, priority: i32) -> Waiter {
    Waiter {
        uid: format!("uid-{name}"),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        scheduler: "s".to_owned(),
        priority,
        node: "n".to_owned(),
        nominated: None,
        until: at(1),
        failures: 0,
    }
}

const DONE: Fates = |_, _| Fate::Done;

fn waker(waiters: impl IntoIterator<Item = Waiter>) -> NominationNudger {
    waker_with(Metrics::register(&mut Registry::default()), waiters)
}

fn waker_with(metrics: Metrics, waiters: impl IntoIterator<Item = Waiter>) -> NominationNudger {
    let extender = Extender::new(ClusterView::default(), metrics);
    for waiter in waiters {
        let pod = serde_json::from_value(pod(&waiter.name)).unwrap();
        extender.sight.placement.change(|index| index.apply_pod(pod));
        extender.waiters.lock().wait(waiter);
    }
    NominationNudger { extender, limit: unpaced() }
}

fn unpaced() -> WriteLimit {
    write_limit(NonZeroU32::MAX, NonZeroU32::MAX)
}

#[tokio::test]
async fn a_pod_that_waits_is_nominated_for_a_moment() {
    let server = Server::new([pod("p")], DONE);
    assert_eq!(wake(&server.client(), &unpaced(), &waiter("p", 1)).await.unwrap(), WakeResult::Yes);
    assert_eq!(server.asked(), ["GET p", "\"n\" p", "null p"]);
    assert_eq!(server.nominated("p"), Value::Null);
}

#[tokio::test]
async fn who_waits_no_more_is_left_alone() {
    for pod in [
        pod("another"),
        changed("/metadata/uid", json!("of a namesake")),
        changed("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        changed("/spec/nodeName", json!("n")),
        changed("/status/nominatedNodeName", json!("n")),
        changed("/status/nominatedNodeName", json!("other")),
    ] {
        let server = Server::new([pod.clone()], DONE);
        assert_eq!(
            wake(&server.client(), &unpaced(), &waiter("p", 1)).await.unwrap(),
            WakeResult::NotNeeded,
            "{pod}"
        );
        assert_eq!(server.asked(), ["GET p"], "{pod}");
    }
}

#[tokio::test]
async fn a_nomination_that_came_to_nothing_is_taken_back() {
    let server = Server::new([changed("/status/nominatedNodeName", json!("m"))], DONE);
    let waiter = Waiter { nominated: Some("m".to_owned()), ..waiter("p", 1) };
    assert_eq!(wake(&server.client(), &unpaced(), &waiter).await.unwrap(), WakeResult::Yes);
    assert_eq!(server.asked(), ["GET p", "null p"]);
}

#[tokio::test]
async fn a_pod_that_is_written_before_it_is_nominated_is_awake_already() {
    let server = Server::new([pod("p")], |number, pods| {
        if number == 1 {
            write(pods.get_mut("p").unwrap());
        }
        Fate::Done
    });
    assert_eq!(wake(&server.client(), &unpaced(), &waiter("p", 1)).await.unwrap(), WakeResult::NotNeeded);
    assert_eq!(server.nominated("p"), Value::Null);
}

#[tokio::test]
async fn a_nomination_is_taken_back_even_if_the_pod_is_written_meanwhile() {
    let server = Server::new([pod("p")], |number, pods| {
        if number == 2 {
            write(pods.get_mut("p").unwrap());
        }
        Fate::Done
    });
    assert_eq!(wake(&server.client(), &unpaced(), &waiter("p", 1)).await.unwrap(), WakeResult::Yes);
    assert_eq!(server.asked(), ["GET p", "\"n\" p", "null p", "GET p", "null p"]);
    assert_eq!(server.nominated("p"), Value::Null);
}

#[tokio::test]
async fn a_nomination_by_others_is_left_as_it_is() {
    let server = Server::new([pod("p")], |number, pods| {
        if number == 2 {
            let pod = pods.get_mut("p").unwrap();
            pod["status"]["nominatedNodeName"] = json!("other");
            write(pod);
        }
        Fate::Done
    });
    assert_eq!(wake(&server.client(), &unpaced(), &waiter("p", 1)).await.unwrap(), WakeResult::Yes);
    assert_eq!(server.nominated("p"), "other");
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_is_nominated_leaves_no_other_asleep() {
    let deleted: Fates = |number, pods| {
        if number == 2 {
            pods.remove("p");
        }
        Fate::Done
    };
    let held_by_a_finalizer: Fates = |number, pods| {
        if number == 2 {
            let pod = pods.get_mut("p").unwrap();
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            write(pod);
        }
        Fate::Done
    };
    for fates in [deleted, held_by_a_finalizer] {
        let server = Server::new([pod("p"), pod("q")], fates);
        waker([waiter("p", 2), waiter("q", 1)]).wake_due(&server.client(), at(1)).await;
        let asked = server.asked();
        assert_eq!(asked[..3], ["GET p", "\"n\" p", "null p"]);
        assert_eq!(asked[asked.len() - 3..], ["GET q", "\"n\" q", "null q"]);
    }
}

#[tokio::test]
async fn a_nomination_that_may_have_been_written_is_taken_back_later() {
    let server =
        Server::new([pod("p")], |number, _| if number == 1 { Fate::DoneAndLost } else { Fate::Done });
    let waker = waker([waiter("p", 1)]);
    waker.wake_due(&server.client(), at(1)).await;
    assert_eq!(server.nominated("p"), "n");
    waker.wake_due(&server.client(), at(5)).await;
    assert_eq!(server.asked().len(), 2, "it isn't tried again at once");
    waker.wake_due(&server.client(), at(6)).await;
    assert_eq!(server.nominated("p"), Value::Null);
    assert_eq!(waker.extender.waiters.lock().by_uid.len(), 0);
}

#[tokio::test]
async fn one_that_cannot_be_woken_does_not_keep_the_others_asleep() {
    let server =
        Server::new(
            [pod("high"), pod("low")],
            |number, _| {
                if number == 1 { Fate::Refused(403) } else { Fate::Done }
            },
        );
    let waker = waker([waiter("high", 2), waiter("low", 1)]);
    waker.wake_due(&server.client(), at(1)).await;
    assert_eq!(server.asked(), ["GET high", "\"n\" high"]);
    waker.wake_due(&server.client(), at(6)).await;
    assert_eq!(server.asked()[2..], ["GET low", "\"n\" low", "null low"]);
    // which woke no pod that is more important
    waker.wake_due(&server.client(), at(11)).await;
    assert_eq!(server.asked()[5..], ["GET high", "\"n\" high", "null high"]);
    assert_eq!(waker.extender.waiters.lock().by_uid.len(), 0);
}

#[tokio::test]
async fn a_pod_that_is_written_again_and_again_keeps_no_other_asleep() {
    let server = Server::new([pod("p"), pod("q")], |_, pods| {
        let sleeps = pods["q"]["metadata"]["resourceVersion"] == "1";
        let written = pods.get_mut("p").unwrap();
        if sleeps && written["status"]["nominatedNodeName"] == "n" {
            write(written);
        }
        Fate::Done
    });
    let other = Waiter { namespace: "other".to_owned(), ..waiter("q", 1) };
    let waker = waker([waiter("p", 2), other]);
    waker.wake_due(&server.client(), at(1)).await;
    let asked = server.asked();
    assert_eq!(asked[asked.len() - 3..], ["GET q", "\"n\" q", "null q"]);
    assert_eq!(server.nominated("p"), "n");
    waker.wake_due(&server.client(), at(6)).await;
    assert_eq!(server.asked()[asked.len()..], ["GET p", "null p"]);
    assert_eq!(server.nominated("p"), Value::Null);
}

#[tokio::test]
async fn a_namespace_whose_pods_cannot_be_woken_keeps_no_other_asleep() {
    let pods = [pod("high"), pod("high-2"), pod("other")];
    let server = Server::new(pods, |number, _| if number == 1 { Fate::Refused(403) } else { Fate::Done });
    let other = Waiter { namespace: "other".to_owned(), ..waiter("other", 1) };
    let waker = waker([waiter("high", 3), waiter("high-2", 3), other]);
    waker.wake_due(&server.client(), at(1)).await;
    let asked = server.asked();
    assert!(asked[0].starts_with("GET high") && asked[1].starts_with("\"n\" high"), "{asked:?}");
    assert_eq!(asked[2..], ["GET other", "\"n\" other", "null other"]);
    assert_eq!(waker.extender.waiters.lock().by_uid.len(), 2, "they are more important, and wait on");
}

#[tokio::test]
async fn many_pods_that_need_not_be_woken_do_not_hold_up_one_that_comes_later() {
    let bound = |number: usize| {
        let mut bound = pod(&format!("bound-{number}"));
        bound["spec"]["nodeName"] = json!("n");
        bound
    };
    let many = || 0..MOST_TRIES * 3;
    let server = Server::new(many().map(bound).chain([pod("other")]), DONE);
    let waker = waker(many().map(|number| waiter(&format!("bound-{number}"), 9)));
    waker.wake_due(&server.client(), at(1)).await;
    assert_eq!(server.asked().len(), MOST_TRIES);
    let shown = serde_json::from_value(pod("other")).unwrap();
    waker.extender.sight.placement.change(|index| index.apply_pod(shown));
    let other = Waiter { namespace: "other".to_owned(), ..waiter("other", 9) };
    waker.extender.waiters.lock().wait(other);
    waker.wake_due(&server.client(), at(6)).await;
    assert_eq!(server.asked()[MOST_TRIES + 1..], ["GET other", "\"n\" other", "null other"]);
}

#[tokio::test]
async fn a_nomination_that_a_failure_may_have_left_is_taken_back_though_another_pod_was_woken() {
    let server = Server::new(
        [pod("p"), pod("q")],
        |number, _| {
            if number == 1 { Fate::DoneAndLost } else { Fate::Done }
        },
    );
    let other = Waiter { namespace: "other".to_owned(), ..waiter("q", 1) };
    let waker = waker([waiter("p", 2), other]);
    waker.wake_due(&server.client(), at(1)).await;
    assert_eq!((server.nominated("p"), server.asked().len()), (json!("n"), 5));
    // it is as important as the one that waits for the retry
    waker.extender.waiters.lock().wait(Waiter { until: at(6), ..waiter("q", 2) });
    waker.wake_due(&server.client(), at(6)).await;
    assert_eq!(server.asked()[5..], ["GET q", "\"n\" q", "null q"]);
    waker.wake_due(&server.client(), at(11)).await;
    assert_eq!(server.nominated("p"), Value::Null);
}

#[tokio::test]
async fn who_is_known_to_wait_no_more_costs_no_call() {
    let server = Server::new([pod("p")], DONE);
    let waker = waker([waiter("p", 1)]);
    waker.extender.sight.placement.change(|index| index.delete_pod(Uid::of("uid-p")));
    waker.wake_due(&server.client(), at(1)).await;
    assert_eq!(server.asked(), [""; 0]);
    assert_eq!(waker.extender.waiters.lock().by_uid.len(), 0);
}

#[tokio::test]
async fn all_calls_keep_one_pace() {
    let server = Server::new([pod("p"), pod("q")], DONE);
    let one = NonZeroU32::MIN;
    // four calls at once, and one a second then
    let limit = write_limit(one, one.saturating_add(3));
    wake(&server.client(), &limit, &waiter("p", 1)).await.unwrap();
    let (client, next) = (server.client(), waiter("q", 1));
    tokio::time::timeout(Duration::from_millis(300), wake(&client, &limit, &next)).await.unwrap_err();
    assert_eq!(server.asked(), ["GET p", "\"n\" p", "null p", "GET q"]);
}

#[tokio::test]
async fn the_most_important_one_that_waits_is_woken_for_all() {
    let bound = changed("/spec/nodeName", json!("n"));
    let server = Server::new([bound, pod("high"), pod("low")], DONE);
    let waker = waker([waiter("p", 3), waiter("high", 2), waiter("low", 1)]);
    waker.wake_due(&server.client(), at(0)).await;
    assert_eq!(server.asked().len(), 0, "no floor is over");
    waker.wake_due(&server.client(), at(1)).await;
    assert_eq!(server.asked(), ["GET p", "GET high", "\"n\" high", "null high"]);
}

#[tokio::test]
async fn pods_that_wait_and_pods_that_were_woken_are_counted() {
    let server = Server::new([pod("p"), pod("high"), pod("low")], DONE);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let waiters = [waiter("p", 3), Waiter { until: at(9), ..waiter("high", 2) }, waiter("low", 1)];
    let waker = waker_with(metrics, waiters);
    let counted = |waiting: u32, woken: u32| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [format!("\nwaiting_preemptors {waiting}\n"), format!("\nwake_ups_total {woken}\n")] {
            assert!(text.contains(&line), "{line} {text}");
        }
    };
    waker.wake_due(&server.client(), at(0)).await;
    counted(3, 0);
    waker.wake_due(&server.client(), at(1)).await;
    counted(1, 1);
    waker.wake_due(&server.client(), at(9)).await;
    counted(0, 2);
}
