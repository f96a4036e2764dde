//! Actions on a pod that its owners don't stop, by the number of tries and by the answers of the API server.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::BTreeMap, convert::Infallible, num::NonZeroU32, time::Duration};

use http::{Method, Request, Response, Uri};
use http_body_util::Limited;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use serde_json::json;
use tenure_index::{CeilingOptions, DuePod, Uid};
use tenure_policy::{config::Config, expiry::Family, judge::TRIES, ready::Cause};
use tenure_service::{clock::ServerClock, limit::write_limit};
use tenure_types::{podgroup::PodGroupKind, runai::v3alpha1::QueueSpec, tensorstack::v1beta1};
use tokio::time::Instant;

use super::*;
use crate::{config::Configure, testing};

const DEPLOYMENT: &str = "deployments/web";
const SET: &str = "replicasets/web-1";
const POD: &str = "pods/web-1-a";

/// The queues of each family, as lists.
const T9K_QUEUES: &str = "t9k-system/queues";
const RUNAI_QUEUES: &str = "v3alpha1/queues";

/// The most bytes of a page of several objects: a bound as that of the keeper's client, and smaller.
const MOST_BYTES: usize = 100_000;

/// An API server with a pod in queue demo, which has a ceiling of a second, its ReplicaSet and its Deployment.
#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

struct State {
    objects: BTreeMap<&'static str, Value>,
    /// The requests that it refuses, with the status.
    refused: BTreeMap<(Method, &'static str), u16>,
    /// The number of requests that it has refused.
    refusals: usize,
    /// Objects that will be gone, with the number of reads before that.
    reads: BTreeMap<&'static str, u32>,
    /// The changes since they were last asked for.
    changes: Vec<String>,
    /// The time that a list of extensions or Workloads takes, and the times at which one of extensions began.
    listing: Duration,
    listed: Vec<Instant>,
    /// The time that the dry run of a deletion takes.
    dry_run: Duration,
    /// The status with which the next dry run of a deletion fails.
    refused_dry_run: Option<u16>,
    /// The time at which the Deployment was last read, and the times from there to each of its patches.
    read: Option<Instant>,
    gaps: Vec<Duration>,
}

impl Server {
    fn new() -> Self {
        let of = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true}]);
        let object = |api_version: &str, kind: &str, name: &str, owners: Value, spec: Value| {
            let metadata = json!({
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "ownerReferences": owners,
            });
            json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
        };
        let replicas = json!({"replicas": 1});
        let in_queue = json!({"metadata": {
            "labels": {"scheduler.tensorstack.dev/queue": "demo"}, "creationTimestamp": "2026-01-01T00:00:00Z",
        }});
        let mut pod = object("v1", "Pod", "web-1-a", of("ReplicaSet", "web-1"), json!({"containers": []}));
        json_patch::merge(&mut pod, &in_queue);
        let objects = [
            (T9K_QUEUES, queues(&[("demo", json!({"maxDuration": "1s"}))])),
            (DEPLOYMENT, object("apps/v1", "Deployment", "web", json!([]), replicas.clone())),
            (SET, object("apps/v1", "ReplicaSet", "web-1", of("Deployment", "web"), replicas)),
            (POD, pod),
        ];
        let (refused, refusals, reads, changes, listing, listed, dry_run) = Default::default();
        let (read, gaps, refused_dry_run) = Default::default();
        let objects = objects.into();
        Self(Arc::new(Mutex::new(State {
            objects,
            refused,
            refusals,
            reads,
            changes,
            listing,
            listed,
            dry_run,
            refused_dry_run,
            read,
            gaps,
        })))
    }

    fn refuse(&self, method: Method, object: &'static str, status: u16) {
        self.0.lock().refused.insert((method, object), status);
    }

    /// Replaces the queues of a family.
    fn set_queues(&self, family: &'static str, list: &[(&str, Value)]) {
        self.0.lock().objects.insert(family, queues(list));
    }

    /// Removes an object after `reads` reads of it.
    fn lose_after(&self, object: &'static str, reads: u32) {
        self.0.lock().reads.insert(object, reads);
    }

    /// Changes an object as another writer would.
    fn merge(&self, object: &str, patch: &Value) {
        json_patch::merge(self.0.lock().objects.get_mut(object).unwrap(), patch);
    }

    fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().changes)
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let takes = server.0.lock().note(&parts.method, &parts.uri);
                tokio::time::sleep(takes).await;
                let (status, body) = server.0.lock().answer(&parts.method, &parts.uri, &body);
                let response = Response::builder().status(status).header("content-type", "application/json");
                let is_page =
                    number(parts.uri.query().unwrap_or_default(), "limit=").is_some_and(|limit| limit > 1);
                let most = if is_page { MOST_BYTES } else { usize::MAX };
                let body = Limited::new(Body::from(body.to_string().into_bytes()), most);
                Ok::<_, Infallible>(response.body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }
}

impl State {
    /// Notes a request; returns the time that it takes.
    fn note(&mut self, method: &Method, uri: &Uri) -> Duration {
        let path = uri.path();
        if path.ends_with("/extensions") {
            self.listed.push(Instant::now());
            return self.listing;
        }
        if path.ends_with("/workloads") {
            return self.listing;
        }
        if path.ends_with(DEPLOYMENT) {
            if *method == Method::GET {
                self.read = Some(Instant::now());
            } else {
                self.gaps.extend(self.read.map(|read| read.elapsed()));
            }
        }
        if is_dry_run(uri) { self.dry_run } else { Duration::ZERO }
    }

    fn answer(&mut self, method: &Method, uri: &Uri, body: &[u8]) -> (u16, Value) {
        let path = uri.path();
        if path == "/apis/apps/v1" {
            return (200, resources());
        }
        for (object, left) in self.reads.iter_mut().filter(|(object, _)| path.ends_with(**object)) {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => drop(self.objects.remove(object)),
            }
        }
        let Some((object, state)) = self.objects.iter_mut().find(|(object, _)| path.ends_with(*object))
        else {
            return status(404);
        };
        if let Some(code) = self.refused.get(&(method.clone(), object)) {
            self.refusals += 1;
            return status(*code);
        }
        match *method {
            Method::PATCH => {
                let change: Value = serde_json::from_slice(body).unwrap();
                if change["metadata"]["resourceVersion"] != state["metadata"]["resourceVersion"] {
                    return status(409);
                }
                json_patch::merge(state, &change);
            }
            Method::DELETE if is_dry_run(uri) => {
                return self.refused_dry_run.take().map_or_else(|| (200, state.clone()), status);
            }
            Method::DELETE if state["kind"] != "Pod" => {
                let options: Value = serde_json::from_slice(body).unwrap();
                let (conditions, metadata) = (&options["preconditions"], &state["metadata"]);
                if ["uid", "resourceVersion"].iter().any(|key| conditions[*key] != metadata[*key]) {
                    return status(409);
                }
                self.changes.push(format!("{method} {object} {}", options["propagationPolicy"]));
                return (200, state.clone());
            }
            Method::DELETE => {}
            _ => return (200, selected(state, uri.query().unwrap_or_default())),
        }
        self.changes.push(format!("{method} {object}"));
        (200, state.clone())
    }
}

fn is_dry_run(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("dryRun=All"))
}

/// Returns an object or, of a list, the page that the query asks for of the items whose name it selects.
fn selected(object: &Value, query: &str) -> Value {
    let mut object = object.clone();
    let name = query.split("metadata.name%3D").nth(1).and_then(|rest| rest.split('&').next());
    let (from, limit) = (number(query, "continue=").unwrap_or(0), number(query, "limit=").unwrap_or(1_000));
    let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) else { return object };
    items.retain(|item| name.is_none_or(|name| item["metadata"]["name"] == name));
    items.drain(..from);
    if items.len() > limit {
        items.truncate(limit);
        object["metadata"]["continue"] = (from + limit).to_string().into();
    }
    object
}

/// Returns the value of a parameter of a query, which is given with its `=`.
fn number(query: &str, parameter: &str) -> Option<usize> {
    query.split('&').find_map(|of| of.strip_prefix(parameter)?.parse().ok())
}

/// A list of queues, by name and spec.
fn queues(queues: &[(&str, Value)]) -> Value {
    let item = |(name, spec): &(&str, Value)| json!({"metadata": {"name": name}, "spec": spec});
    json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": queues.iter().map(item).collect::<Vec<_>>()})
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str| {
        json!({
            "name": name, "singularName": "", "kind": kind, "namespaced": true, "verbs": ["get", "patch"],
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1",
        "resources": [resource("deployments", "Deployment"), resource("replicasets", "ReplicaSet")],
    })
}

fn status(code: u16) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": ""}),
    )
}

fn pauser(server: &Server) -> Pauser {
    let clock = ServerClock::starting_at("2026-02-01T00:00:00Z".parse().unwrap());
    let handles = Arc::new(testing::handles(server.client(), clock, Config::default()));
    let demo: v1beta1::QueueSpec = serde_json::from_value(json!({"maxDuration": "1s"})).unwrap();
    handles.cluster.with(|index| index.apply_queue("demo", &demo));
    let (exempt_owners, extensions) = Default::default();
    Pauser { limit: handles.limit(), handles, scope: Scope::default(), exempt_owners, extensions }
}

/// Returns the handles to change.
fn handles(pauser: &mut Pauser) -> &mut Handles {
    Arc::get_mut(&mut pauser.handles).unwrap()
}

fn configure(pauser: &mut Pauser, config: Config) {
    let (_, config) = Configure::new(config, pauser.handles.cluster.clone());
    handles(pauser).config = config;
}

/// Shows the pod to the index, as its watch would.
fn show_pod(pauser: &Pauser, server: &Server) {
    let pod = server.0.lock().objects[POD].clone();
    pauser.handles.cluster.with(|index| index.apply_pod(&serde_json::from_value(pod).unwrap()));
}

/// A batch with the pod, after `attempts` tries.
fn due(attempts: u8) -> DueBatch {
    let first = DuePod {
        uid: Uid::of("web-1-a"),
        namespace: "ns".into(),
        name: "web-1-a".into(),
        family: Family::Tensorstack,
        queue: "demo".into(),
        deadline: Timestamp::UNIX_EPOCH,
        since: Timestamp::UNIX_EPOCH,
        handed_out: Timestamp::UNIX_EPOCH,
        cause: Cause::WaitForStart,
        announced_end: None,
        attempts,
        outlives: false,
    };
    DueBatch { task: Task::Expire, first, rest: Vec::new() }
}

/// Acts; returns the events, first those from before the act.
async fn events(pauser: &Pauser, group: &DueBatch) -> Vec<EventRecord> {
    let done = pauser.act(group).await.unwrap_or_else(|failure| panic!("{failure}"));
    let before = std::iter::from_fn(|| pauser.handles.events.written());
    before.chain(done.events).collect()
}

/// Returns the action, and the changes that the API server saw.
async fn act(pauser: &Pauser, server: &Server, attempts: u8) -> (String, Vec<String>) {
    act_on(pauser, server, &due(attempts)).await
}

async fn act_on(pauser: &Pauser, server: &Server, group: &DueBatch) -> (String, Vec<String>) {
    let done = pauser.act(group).await;
    let result = match done.map(|done| done.act) {
        Ok(Act::Pause(owner, _)) => format!("paused {}", owner.kind),
        Ok(Act::DeletePod(_)) => "deleted".into(),
        Ok(Act::DeleteOwner(deletion)) => format!("deleted {}", deletion.owner.kind),
        Ok(Act::PausedBefore) => "paused before".into(),
        Ok(Act::Command(owner, action)) => format!("send {action} to {}", owner.kind),
        Ok(Act::Extended) => "extended".into(),
        Ok(Act::Leave(why, _)) => why.into(),
        Ok(Act::PutOff(why, _)) => format!("put off: {why}"),
        Ok(Act::TooEarly) => "too early".into(),
        Ok(Act::Exempt | Act::Announce(_) | Act::Forbidden(_)) => "something else".into(),
        Err(failure) => {
            // the deadline was long ago
            assert!(failure.counts_as_try(true), "{failure}");
            format!("failed: {failure}")
        }
    };
    (result, server.changes())
}

fn saw(result: &str, changes: &[&str]) -> (String, Vec<String>) {
    (result.into(), changes.iter().map(ToString::to_string).collect())
}

const DELETED: &str = "DELETE pods/web-1-a";

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_without_the_notice_that_it_was_to_get_has_an_event_that_says_so() {
    let late = "It got no notice beforehand, since the keeper could not write one in time";
    for (notice, given, expected) in [
        (Some("10m"), Value::Null, true),
        (Some("10m"), json!("2026-01-01T00:00:00Z"), true),
        (Some("10m"), json!("2026-01-02T03:54:07Z"), false),
        (None, Value::Null, false),
    ] {
        let (server, pauser, group) = undone(0, LATER, json!({"maxDuration": "1h", "expiryNotice": notice}));
        let annotations = json!({
            "tenure.dev/paused": null, "tenure.dev/expires-at": "2026-01-02T04:04:07Z", "tenure.dev/notice-given-at": given,
        });
        server.merge(DEPLOYMENT, &json!({"metadata": {"annotations": annotations}}));
        let events = pauser.act(&group).await.unwrap_or_else(|failure| panic!("{failure}")).events;
        let ended = events.iter().find(|event| event.reason.name() == "RunEnded").unwrap();
        assert_eq!(ended.note.ends_with(late), expected, "{notice:?} {given}: {}", ended.note);
    }
}

/// A journal with a notice that another keeper gave two minutes before the end, and its event may be missing.
fn notice_of_another(uid: &str) -> String {
    let notice = json!({
        "act": "noticed", "queue": "demo", "end": "2026-01-02T04:04:07Z", "at": "2026-01-02T04:02:07Z", "then": "paused",
    });
    json!({"uid": uid, "acts": [notice]}).to_string()
}

#[tokio::test(start_paused = true)]
async fn a_pause_leaves_what_another_keeper_may_not_have_recorded_in_the_journal() {
    let (server, mut pauser, group) = undone(0, LATER, json!({"maxDuration": "1h"}));
    handles(&mut pauser).clock = ServerClock::starting_at("2026-01-02T04:04:08Z".parse().unwrap());
    let uid = server.0.lock().objects[DEPLOYMENT]["metadata"]["uid"].as_str().unwrap().to_owned();
    let annotations = json!({"tenure.dev/paused": null, "tenure.dev/acts": notice_of_another(&uid)});
    server.merge(DEPLOYMENT, &json!({"metadata": {"annotations": annotations}}));
    assert_eq!(events(&pauser, &group).await.len(), 2, "the end, and the same in words");
    let metadata = serde_json::from_value(server.0.lock().objects[DEPLOYMENT]["metadata"].clone()).unwrap();
    let acts = pause::acts_on(&metadata, pauser.handles.now());
    assert!(matches!(acts[..], [JournalAct::Noticed(_), JournalAct::Paused { .. }]), "{acts:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_journal_of_a_pod_owes_is_recorded_before_the_pod_is_deleted() {
    let (server, mut pauser, group) = undone(0, LATER, json!({"maxDuration": "1h", "expiryNotice": "2m"}));
    handles(&mut pauser).clock = ServerClock::starting_at("2026-01-02T04:04:08Z".parse().unwrap());
    let annotations = json!({"tenure.dev/acts": notice_of_another("web-1-a")});
    server.merge(POD, &json!({"metadata": {"ownerReferences": null, "annotations": annotations}}));
    let mut reasons: Vec<_> = events(&pauser, &group).await.iter().map(|event| event.reason.name()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["MaxDurationApproaching", "MaxDurationExceeded", "RunEnded"]);
    assert_eq!(server.changes(), [DELETED]);
}

#[tokio::test(start_paused = true)]
async fn what_the_journal_of_a_pod_owes_is_recorded_after_the_deletion_where_its_dry_run_is_refused() {
    let (server, mut pauser, group) = undone(0, LATER, json!({"maxDuration": "1h", "expiryNotice": "2m"}));
    handles(&mut pauser).clock = ServerClock::starting_at("2026-01-02T04:04:08Z".parse().unwrap());
    let annotations = json!({"tenure.dev/acts": notice_of_another("web-1-a")});
    server.merge(POD, &json!({"metadata": {"ownerReferences": null, "annotations": annotations}}));
    server.0.lock().refused_dry_run = Some(400);
    let done = pauser.act(&group).await.unwrap();
    let reasons: Vec<_> = done.events.iter().map(|event| event.reason.name()).collect();
    assert_eq!(reasons, ["MaxDurationApproaching", "MaxDurationExceeded", "RunEnded"]);
    assert_eq!(server.changes(), [DELETED]);
}

#[tokio::test(start_paused = true)]
async fn by_a_tree_of_queues_that_lacks_one_nothing_is_paused_for_a_moment() {
    let leaf = json!({"maxDuration": "1h", "parentQueue": "root"});
    let (server, pauser, group) = undone(0, LATER, leaf.clone());
    let now = pauser.handles.clock.now();
    pauser.handles.cluster.with(|index| {
        index.know_queues();
        let root = serde_json::from_value::<QueueSpec>(json!({})).unwrap();
        index.change_queues(now, |index| index.apply_queue("root", &root));
        index.reschedule();
        index.change_queues(now, |index| index.delete_queue(Family::Runai, "root"));
    });
    let missing = "put off: a queue on its way to the root is missing for a moment";
    assert_eq!(act_on(&pauser, &server, &group).await, saw(missing, &[]));
    server.set_queues(RUNAI_QUEUES, &[("q", leaf), ("root", json!({}))]);
    pauser.handles.queues.forget();
    let root = serde_json::from_value::<QueueSpec>(json!({})).unwrap();
    pauser.handles.cluster.with(|index| index.change_queues(now, |index| index.apply_queue("root", &root)));
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_deletion_are_tried_before_it_since_nothing_is_left_to_note_them_on() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    let group = due(0);
    let recorder = async {
        for _ in 0..2 {
            while pauser.handles.events.work.waiting() == 0 {
                pauser.handles.events.work.changed().await;
            }
            assert_eq!(server.changes(), [""; 0]);
            assert!(pauser.handles.events.written().is_some());
        }
    };
    let (done, ()) = tokio::join!(pauser.act(&group), recorder);
    assert!(done.is_ok_and(|done| done.events.is_empty()));
    assert_eq!(server.changes(), [DELETED]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_api_server_refuses_is_not_recorded() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    server.refuse(Method::DELETE, POD, 403);
    assert!(pauser.act(&due(0)).await.is_err());
    assert_eq!(pauser.handles.events.work.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_deletion_goes_unrecorded_where_its_dry_run_alone_fails() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    // the API server doesn't answer
    server.0.lock().refused_dry_run = Some(500);
    assert!(pauser.act(&due(0)).await.is_err());
    assert_eq!((server.changes(), pauser.handles.events.work.waiting()), (Vec::new(), 0));
    // it refuses dry runs, as it does where a webhook has side effects
    server.0.lock().refused_dry_run = Some(400);
    let done = pauser.act(&due(0)).await;
    assert_eq!(done.map(|done| done.events.len()).ok(), Some(2));
    assert_eq!((server.changes(), pauser.handles.events.work.waiting()), (vec![DELETED.into()], 0));
}

const POD_CHANGED: &str = "put off: the pod has changed since it was judged";
const QUEUE_CHANGED: &str = "put off: its queue has changed since it was judged";

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_changed_since_it_was_judged_is_not_acted_on() {
    let long = json!({"maxDuration": "10y"});
    for (change, expected) in [
        (json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": null}}}), POD_CHANGED),
        (json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": "long"}}}), POD_CHANGED),
        (json!({"metadata": {"labels": {"scheduler.tensorstack.dev/group-name": "group"}}}), POD_CHANGED),
        (json!({"spec": {"priority": 2_000_000_000}}), "the pod is gone or exempt"),
        (json!({"metadata": {"creationTimestamp": "2026-02-01T00:00:00Z"}}), POD_CHANGED),
    ] {
        let server = Server::new();
        let pauser = pauser(&server);
        let group =
            json!({"metadata": {"name": "group", "namespace": "ns", "uid": "g"}, "spec": {"queue": "long"}});
        pauser.handles.cluster.with(|index| {
            index.apply_queue("long", &serde_json::from_value::<v1beta1::QueueSpec>(long.clone()).unwrap());
            index.apply_group(PodGroupKind::Tensorstack, &serde_json::from_value(group).unwrap());
        });
        server.merge(POD, &change);
        for attempts in [0, TRIES] {
            assert_eq!(act(&pauser, &server, attempts).await, saw(expected, &[]), "{change}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_queue_that_has_changed_since_it_was_judged_nothing_is_paused() {
    let server = Server::new();
    let pauser = pauser(&server);
    for changed in [&[("demo", json!({"maxDuration": "1d"}))][..], &[("demo", json!({}))], &[]] {
        server.set_queues(T9K_QUEUES, changed);
        pauser.handles.queues.forget();
        assert_eq!(act(&pauser, &server, 0).await, saw(QUEUE_CHANGED, &[]), "{changed:?}");
    }
    let demo = json!({"maxDuration": "2s"});
    server.set_queues(T9K_QUEUES, &[("demo", demo.clone())]);
    pauser.handles.queues.forget();
    pauser.handles.cluster.with(|index| {
        index.apply_queue("demo", &serde_json::from_value::<v1beta1::QueueSpec>(demo).unwrap())
    });
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn by_the_default_queue_nothing_is_paused_once_the_queue_that_the_pod_names_exists() {
    let server = Server::new();
    server.merge(POD, &json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": "typo"}}}));
    let pauser = pauser(&server);
    let mut settings = CeilingOptions::default();
    settings.default_queues[Family::Tensorstack] = Some("demo".into());
    pauser.handles.cluster.with(|index| index.configure(settings));
    let demo = ("demo", json!({"maxDuration": "1s"}));
    server.set_queues(T9K_QUEUES, &[demo.clone(), ("typo", json!({}))]);
    assert_eq!(act(&pauser, &server, 0).await, saw(QUEUE_CHANGED, &[]));
    server.set_queues(T9K_QUEUES, &[demo]);
    pauser.handles.queues.forget();
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn the_api_server_is_not_asked_for_a_queue_that_cannot_exist() {
    let server = Server::new();
    let pauser = pauser(&server);
    server.refuse(Method::GET, T9K_QUEUES, 400);
    for name in ["no,pe", "demo,", "a=b", "a\\", "Q", "..", "a/b", &"q".repeat(254)] {
        assert_eq!(
            pauser.handles.queues.are_as_known(Family::Tensorstack, name).await.ok(),
            Some(true),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_queue_is_lengthened_while_a_dry_run_hangs_goes_on() {
    let server = Server::new();
    server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
    server.0.lock().dry_run = Duration::from_secs(6);
    let pauser = pauser(&server);
    let lengthened = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let longer: v1beta1::QueueSpec = serde_json::from_value(json!({"maxDuration": "9000h"})).unwrap();
        pauser.handles.cluster.with(|index| index.apply_queue("demo", &longer));
    };
    let (acted, ()) = tokio::join!(act(&pauser, &server, 0), lengthened);
    assert_eq!(acted, saw("put off: its facts have just changed", &[]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_gets_ready_while_the_dry_run_of_its_eviction_hangs_goes_on() {
    let changed = saw("put off: its facts have just changed", &[]);
    for (ready, expected) in [("False", saw("deleted", &[DELETED])), ("True", changed)] {
        let (server, pauser, group) = undone(0, LATER, json!({"waitForPodsReady": {"timeout": "1s"}}));
        server.merge(POD, &json!({"metadata": {"ownerReferences": null}}));
        server.0.lock().dry_run = Duration::from_secs(6);
        show_pod(&pauser, &server);
        let group = DueBatch { task: Task::Evict, ..group };
        let shown = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let condition = |kind: &str, status: &str, since: &str| json!({"type": kind, "status": status, "lastTransitionTime": since});
            let conditions =
                [condition("PodScheduled", "True", LATER), condition("Ready", ready, "2026-02-01T00:00:05Z")];
            server.merge(POD, &json!({"status": {"conditions": conditions}}));
            show_pod(&pauser, &server);
        };
        let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), shown);
        assert_eq!(acted, expected, "{ready}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_queue_below_one_that_has_changed_since_it_was_judged_nothing_is_paused() {
    let leaf = json!({"parentQueue": "root"});
    let (server, pauser, group) = undone(0, LATER, leaf.clone());
    let root = |max: &str| json!({"maxDuration": max});
    pauser
        .handles
        .cluster
        .with(|index| index.apply_queue("root", &serde_json::from_value::<QueueSpec>(root("1h")).unwrap()));
    server.set_queues(RUNAI_QUEUES, &[("q", leaf.clone()), ("root", root("2h"))]);
    assert_eq!(act_on(&pauser, &server, &group).await, saw(QUEUE_CHANGED, &[]));
    server.set_queues(RUNAI_QUEUES, &[("q", leaf), ("root", root("1h"))]);
    pauser.handles.queues.forget();
    let by_pause = saw("paused Deployment", &["PATCH deployments/web"]);
    assert_eq!(act_on(&pauser, &server, &group).await, by_pause);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_paused_before_its_time_by_the_clock_that_the_last_answer_has_set() {
    let server = Server::new();
    let mut pauser = pauser(&server);
    handles(&mut pauser).clock = ServerClock::starting_at("1969-12-31T00:00:00Z".parse().unwrap());
    for task in [Task::Expire, Task::Evict] {
        let group = DueBatch { task, ..due(TRIES) };
        assert_eq!(act_on(&pauser, &server, &group).await, saw("too early", &[]), "{task:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_watch_has_not_answered_nothing_is_paused_or_deleted() {
    let server = Server::new();
    let pauser = pauser(&server);
    let queues = pauser.handles.gate.freshness.watch("queues", true);
    for attempts in [0, TRIES] {
        let expected = saw("put off: not all watches have answered", &[]);
        assert_eq!(act(&pauser, &server, attempts).await, expected, "{attempts}");
    }
    queues.confirm(Instant::now());
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn below_an_owner_that_can_not_be_paused_the_pod_is_deleted_after_all_tries() {
    let unpausable = [
        // a right that the keeper lacks, and an admission policy
        (Method::PATCH, 403, "failed to pause Deployment web (apps/v1)"),
        (Method::PATCH, 422, "failed to pause Deployment web (apps/v1)"),
        // an admission webhook that is down, and a user who keeps changing the owner
        (Method::PATCH, 500, "failed to pause Deployment web (apps/v1)"),
        (Method::PATCH, 409, "failed to pause Deployment web (apps/v1)"),
        // an API that is broken: the owner can't even be read
        (Method::GET, 500, "failed to read Deployment web (apps/v1)"),
    ];
    for (method, code, failure) in unpausable {
        let server = Server::new();
        server.refuse(method.clone(), DEPLOYMENT, code);
        let pauser = pauser(&server);
        for attempts in 0..TRIES {
            let expected = saw(&format!("failed: {failure}"), &[]);
            assert_eq!(act(&pauser, &server, attempts).await, expected, "{method} {code} {attempts}");
        }
        for attempts in [TRIES, TRIES + 1] {
            let expected = saw("deleted", &[DELETED]);
            assert_eq!(act(&pauser, &server, attempts).await, expected, "{method} {code} {attempts}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn below_an_owner_that_may_not_be_read_the_pod_is_deleted_after_all_tries() {
    let server = Server::new();
    server.refuse(Method::GET, DEPLOYMENT, 403);
    let pauser = pauser(&server);
    let first = act(&pauser, &server, 0).await;
    assert_eq!(first, saw("failed: failed to read Deployment web (apps/v1)", &[]), "it may be of passage");
    tokio::time::advance(Duration::from_secs(5)).await;
    for attempts in 1..TRIES {
        let (result, changes) = act(&pauser, &server, attempts).await;
        assert!(result.starts_with("failed: not allowed to get Deployment web (apps/v1)"), "{result}");
        assert!(changes.is_empty(), "{changes:?}");
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn where_a_pod_outlives_the_pause_of_its_owner_the_one_below_is_paused_before_the_pod_is_deleted() {
    let server = Server::new();
    let pauser = pauser(&server);
    assert_eq!(act(&pauser, &server, 0).await, saw("paused Deployment", &["PATCH deployments/web"]));
    for attempts in 1..TRIES {
        assert_eq!(act(&pauser, &server, attempts).await, saw("paused before", &[]), "{attempts}");
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("paused ReplicaSet", &["PATCH replicasets/web-1"]));
    assert_eq!(act(&pauser, &server, TRIES + 1).await, saw("deleted", &[DELETED]));
}

/// A user may have paused and resumed the owner in between: it has another run then.
#[tokio::test(start_paused = true)]
async fn an_owner_whose_pod_goes_while_the_owner_is_read_is_not_paused() {
    let server = Server::new();
    server.lose_after(POD, 1);
    assert_eq!(act(&pauser(&server), &server, 0).await, saw("the pod is gone or exempt", &[]));
}

#[tokio::test(start_paused = true)]
async fn where_a_pod_outlives_the_pause_of_all_its_owners_it_is_deleted_after_all_tries() {
    let server = Server::new();
    for owner in [DEPLOYMENT, SET] {
        server.merge(owner, &json!({"spec": {"replicas": 0}}));
    }
    let pauser = pauser(&server);
    for attempts in 0..TRIES {
        assert_eq!(act(&pauser, &server, attempts).await, saw("paused before", &[]), "{attempts}");
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn where_the_pause_of_an_owner_is_set_back_each_time_the_pod_is_deleted_after_all_tries() {
    let server = Server::new();
    let pauser = pauser(&server);
    for attempts in 0..TRIES {
        let expected = saw("paused Deployment", &["PATCH deployments/web"]);
        assert_eq!(act(&pauser, &server, attempts).await, expected, "{attempts}");
        server.merge(DEPLOYMENT, &json!({"spec": {"replicas": 1}}));
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn below_an_owner_that_is_held_in_deletion_the_next_one_is_paused_before_the_pod_is_deleted() {
    let server = Server::new();
    server.merge(DEPLOYMENT, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let pauser = pauser(&server);
    for attempts in 0..TRIES {
        assert_eq!(
            act(&pauser, &server, attempts).await,
            saw("an owner is being deleted", &[]),
            "{attempts}"
        );
    }
    assert_eq!(act(&pauser, &server, TRIES).await, saw("paused ReplicaSet", &["PATCH replicasets/web-1"]));
    assert_eq!(act(&pauser, &server, TRIES + 1).await, saw("deleted", &[DELETED]));
}

/// A configuration by which Deployments are deleted at their ceiling.
fn deletes() -> Config {
    let row = "owners: [{group: apps, kind: Deployment, path: spec.replicas, value: 0, onExpiry: Delete}]";
    Config::parse(row).unwrap()
}

const DELETED_OWNER: &str = "DELETE deployments/web \"Background\"";

#[tokio::test(start_paused = true)]
async fn where_its_row_says_so_the_owner_is_deleted_at_its_ceiling_as_it_was_read() {
    let server = Server::new();
    let mut pauser = pauser(&server);
    configure(&mut pauser, deletes());
    let events = events(&pauser, &due(0)).await;
    assert_eq!(server.changes(), [DELETED_OWNER]);
    let line = |event: &EventRecord| {
        let of = event.object.name.clone().unwrap_or_default();
        format!("{} {of}: {}", event.reason.name(), event.note)
    };
    let expected = [
        "MaxDurationExceeded web: Deleted because its lifetime exceeded maxDuration defined in Queue, and the configuration of Tenure has onExpiry: Delete for Deployment",
        "RunEnded web: Its run in Queue demo has reached the ceiling of 1s, set by that queue. Deployment web was deleted with its pods, because the configuration of Tenure says so of this kind (onExpiry: Delete). It doesn't come back: to run it again, create it again",
    ];
    assert_eq!(events.iter().map(line).collect::<Vec<_>>(), expected);
    // after all tries the next one below is paused, and then the pod is deleted
    server.merge(DEPLOYMENT, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(act(&pauser, &server, 1).await, saw("an owner is being deleted", &[]));
    assert_eq!(act(&pauser, &server, TRIES).await, saw("paused ReplicaSet", &["PATCH replicasets/web-1"]));
    assert_eq!(act(&pauser, &server, TRIES + 1).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_that_the_owner_would_be_deleted_and_deletes_nothing() {
    let server = Server::new();
    let mut pauser = pauser(&server);
    handles(&mut pauser).dry_run = true;
    configure(&mut pauser, deletes());
    let done = pauser.act(&due(0)).await.unwrap_or_else(|failure| panic!("{failure}"));
    let notes: Vec<_> = done.events.iter().map(|event| (event.reason.name(), event.note.as_str())).collect();
    let expected = "Dry run, nothing was done: Deleted because its lifetime exceeded maxDuration defined in Queue, and the configuration of Tenure has onExpiry: Delete for Deployment";
    assert_eq!(notes, [("MaxDurationExceeded", expected)]);
    assert_eq!(server.changes(), [""; 0]);
}

/// A Workload by which Kueue runs the Deployment, with more fields.
fn workload(name: &str, more: &Value) -> Value {
    let above = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true}]);
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": above},
        "spec": {"active": true}, "status": {"conditions": [{"type": "Admitted", "status": "True"}]},
    });
    json_patch::merge(&mut workload, more);
    workload
}

/// Adds Kueue, and the list of its Workloads.
fn add_kueue(server: &Server, workloads: &[Value]) {
    let list = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": {}, "items": workloads,
    });
    let kinds = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "kueue.x-k8s.io/v1beta2",
        "resources": [{
            "name": "workloads", "singularName": "", "kind": "Workload", "namespaced": true, "verbs": ["get"],
        }],
    });
    server.0.lock().objects.extend([("ns/workloads", list), ("kueue.x-k8s.io/v1beta2", kinds)]);
}

#[tokio::test(start_paused = true)]
async fn what_kueue_runs_is_deleted_itself_where_its_row_says_so_and_evicted_by_its_workload() {
    let (server, mut pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    add_kueue(&server, &[workload("of-web", &json!({}))]);
    server.0.lock().objects.insert("workloads/of-web", workload("of-web", &json!({})));
    configure(&mut pauser, deletes());
    assert_eq!(act_on(&pauser, &server, &group).await, saw("deleted Deployment", &[DELETED_OWNER]));
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    let evicted = saw("paused Workload", &["PATCH workloads/of-web"]);
    assert_eq!(act_on(&pauser, &server, &group).await, evicted);
}

#[tokio::test(start_paused = true)]
async fn what_kueue_runs_is_paused_by_its_workloads_however_large_others_with_its_label_are() {
    let (server, mut pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    let large = json!({"metadata": {"ownerReferences": null, "annotations": {"text": "x".repeat(12_000)}}});
    let mut workloads: Vec<_> = (0..12).map(|number| workload(&format!("large-{number}"), &large)).collect();
    for (object, name, more) in [
        ("workloads/of-web", "of-web", json!({})),
        ("workloads/slice", "slice", json!({"status": {"conditions": []}})),
    ] {
        workloads.push(workload(name, &more));
        server.0.lock().objects.insert(object, workload(name, &more));
    }
    add_kueue(&server, &workloads);
    configure(&mut pauser, deletes());
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    let expected = saw("paused Workload", &["PATCH workloads/of-web", "PATCH workloads/slice"]);
    assert_eq!(act_on(&pauser, &server, &group).await, expected);
}

/// A Deployment that is to be evicted, which Kueue may run by these Workloads.
fn evicted_beside(workloads: &[(&'static str, Value)]) -> (Server, Pauser, DueBatch) {
    let (server, mut pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    let list: Vec<Value> = workloads.iter().map(|(_, workload)| workload.clone()).collect();
    add_kueue(&server, &list);
    server.0.lock().objects.extend(workloads.iter().cloned());
    configure(&mut pauser, deletes());
    show_pod(&pauser, &server);
    (server, pauser, DueBatch { task: Task::Evict, ..group })
}

/// A field that is nested too deep to be read.
fn deep() -> Value {
    json!({"deep": (0..200).fold(json!([]), |inner, _| json!([inner]))})
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_cannot_be_read_hides_no_other_of_its_job() {
    let odd = json!({"metadata": {"ownerReferences": null}, "spec": deep()});
    let (server, pauser, group) = evicted_beside(&[
        ("workloads/of-web", workload("of-web", &json!({}))),
        ("workloads/odd", workload("odd", &odd)),
        ("workloads/slice", workload("slice", &json!({"status": {"conditions": []}}))),
    ]);
    let expected = saw("paused Workload", &["PATCH workloads/of-web", "PATCH workloads/slice"]);
    assert_eq!(act_on(&pauser, &server, &group).await, expected);
}

#[tokio::test(start_paused = true)]
async fn another_workload_of_a_job_is_deactivated_as_it_is_when_its_turn_comes() {
    let (server, pauser, group) = evicted_beside(&[
        ("workloads/of-web", workload("of-web", &json!({}))),
        ("workloads/slice", workload("slice", &json!({"status": {"conditions": []}}))),
    ]);
    // Kueue has written its status since it was listed
    server.merge("workloads/slice", &json!({"metadata": {"resourceVersion": "2"}}));
    let expected = saw("paused Workload", &["PATCH workloads/of-web", "PATCH workloads/slice"]);
    assert_eq!(act_on(&pauser, &server, &group).await, expected);
}

#[tokio::test(start_paused = true)]
async fn the_other_workloads_of_a_job_that_a_user_has_resumed_since_its_pause_stay_active() {
    let (server, pauser, group) = evicted_beside(&[
        ("workloads/of-web", workload("of-web", &json!({}))),
        ("workloads/slice", workload("slice", &json!({"status": {"conditions": []}}))),
    ]);
    server.0.lock().listing = Duration::from_secs(1);
    let resumed = async {
        while server.0.lock().objects["workloads/of-web"]["spec"]["active"] == true {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.merge("workloads/of-web", &json!({"spec": {"active": true}}));
    };
    let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), resumed);
    assert_eq!(acted, saw("paused Workload", &["PATCH workloads/of-web"]));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_cannot_be_read_is_not_paused_and_its_pod_is_deleted_after_all_tries() {
    let (server, pauser, mut group) =
        evicted_beside(&[("workloads/of-web", workload("of-web", &json!({"spec": deep()})))]);
    let failed = saw("failed: failed to pause Workload of-web (kueue.x-k8s.io/v1beta2)", &[]);
    for attempts in [0, TRIES - 1] {
        group.first.attempts = attempts;
        assert_eq!(act_on(&pauser, &server, &group).await, failed, "{attempts}");
    }
    group.first.attempts = TRIES;
    assert_eq!(act_on(&pauser, &server, &group).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_cannot_be_read_and_that_kueue_has_not_admitted_keeps_no_job_from_its_pause() {
    let made_by_a_user = json!({"spec": deep(), "status": null});
    let (server, pauser, group) =
        evicted_beside(&[("workloads/of-web", workload("of-web", &made_by_a_user))]);
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_row_says_delete_is_paused_when_it_is_evicted() {
    let (server, mut pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    configure(&mut pauser, deletes());
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_paused_or_may_not_be_deleted_is_left_until_its_pod_is_deleted_after_all_tries() {
    let server = Server::new();
    let mut pauser = pauser(&server);
    configure(&mut pauser, deletes());
    server.refuse(Method::DELETE, DEPLOYMENT, 403);
    let failed = saw("failed: failed to delete Deployment web (apps/v1)", &[]);
    assert_eq!(act(&pauser, &server, 0).await, failed);
    assert_eq!(act(&pauser, &server, TRIES).await, saw("deleted", &[DELETED]));
    server.merge(DEPLOYMENT, &json!({"spec": {"replicas": 0}}));
    assert_eq!(act(&pauser, &server, 0).await, saw("paused before", &[]));
}

/// An owner that runs, although it bears the record of a pause that followed `full` full reversals.
/// Its pod was scheduled after that pause, in a queue of this spec.
fn undone(full: u32, scheduled: &str, spec: Value) -> (Server, Pauser, DueBatch) {
    let server = Server::new();
    let record = json!({
        "reason": "MaxDurationExceeded", "at": "2026-01-02T03:04:05.678Z", "queue": "q", "field": "spec.replicas",
        "value": 0, "previousValue": 1, "reversals": full, "fullReversals": full,
    });
    let managed = json!([{
        "manager": "argocd", "operation": "Update", "time": "2026-01-02T03:04:06Z",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }]);
    let metadata =
        json!({"annotations": {"tenure.dev/paused": record.to_string()}, "managedFields": managed});
    server.merge(DEPLOYMENT, &json!({"metadata": metadata}));
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled});
    let metadata = json!({"labels": {"kai.scheduler/queue": "q", "scheduler.tensorstack.dev/queue": null}, "creationTimestamp": "2026-01-02T03:00:00Z"});
    server.merge(POD, &json!({"metadata": metadata, "status": {"conditions": [condition]}}));
    let pauser = pauser(&server);
    server.set_queues(RUNAI_QUEUES, &[("q", spec.clone())]);
    pauser
        .handles
        .cluster
        .with(|index| index.apply_queue("q", &serde_json::from_value::<QueueSpec>(spec).unwrap()));
    let mut group = due(0);
    (group.first.family, group.first.queue) = (Family::Runai, "q".into());
    (server, pauser, group)
}

const LATER: &str = "2026-01-02T03:04:07Z";

#[tokio::test(start_paused = true)]
async fn where_three_pauses_were_undone_for_a_full_run_each_the_pod_is_deleted_if_its_queue_says_so() {
    let deletes = || json!({"maxDuration": "1h", "onReversal": "DeletePods"});
    let by_pause = || saw("paused Deployment", &["PATCH deployments/web"]);
    for (full, scheduled, spec, expected) in [
        (2, LATER, deletes(), saw("deleted", &[DELETED])),
        (9, LATER, deletes(), saw("deleted", &[DELETED])),
        (1, LATER, deletes(), by_pause()),
        (2, "2026-01-02T03:04:04Z", deletes(), by_pause()),
        (2, LATER, json!({"maxDuration": "1h"}), by_pause()),
        (9, LATER, json!({"maxDuration": "1h", "onReversal": "Pause"}), by_pause()),
        (
            9,
            LATER,
            json!({"maxDuration": "1h", "onReversal": "DeletePods", "maxDurationAction": "Requeue"}),
            by_pause(),
        ),
    ] {
        let (server, pauser, group) = undone(full, scheduled, spec.clone());
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{full} {scheduled} {spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_pauses_however_often_pauses_of_the_owner_were_undone() {
    let spec =
        json!({"maxDuration": "1h", "onReversal": "DeletePods", "waitForPodsReady": {"timeout": "1s"}});
    let (server, pauser, group) = undone(9, LATER, spec);
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}

#[tokio::test(start_paused = true)]
async fn what_the_owners_row_says_of_undone_pauses_comes_before_its_queue() {
    let row = |on_reversal| {
        let row = format!(
            "owners: [{{group: apps, kind: Deployment, path: spec.replicas, value: 0, onReversal: {on_reversal}}}]"
        );
        Config::parse(&row).unwrap()
    };
    let by_pause = saw("paused Deployment", &["PATCH deployments/web"]);
    for (of_row, of_queue, expected) in
        [("DeletePods", "Pause", saw("deleted", &[DELETED])), ("Pause", "DeletePods", by_pause)]
    {
        let spec = json!({"maxDuration": "1h", "onReversal": of_queue});
        let (server, mut pauser, group) = undone(2, LATER, spec);
        configure(&mut pauser, row(of_row));
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{of_row} {of_queue}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_that_the_pod_would_be_deleted_and_nothing_of_its_owner() {
    let spec = json!({"maxDuration": "1h", "onReversal": "DeletePods"});
    let (server, mut pauser, group) = undone(2, LATER, spec);
    handles(&mut pauser).dry_run = true;
    let records = pauser.act(&group).await.unwrap_or_else(|failure| panic!("{failure}")).events;
    let recorded: Vec<_> =
        records.iter().map(|event| (event.object.kind.as_deref(), event.reason.name())).collect();
    assert_eq!(recorded, [(Some("Pod"), "MaxDurationExceeded")]);
    assert_eq!(server.changes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_an_undone_pause_name_who_wrote_the_field_last() {
    let by = "last by field manager \"argocd\" (Update at 2026-01-02T03:04:06Z)";
    for (full, on_reversal) in [(1, "Pause"), (2, "DeletePods")] {
        let (_, pauser, group) = undone(full, LATER, json!({"maxDuration": "1h", "onReversal": on_reversal}));
        let events = events(&pauser, &group).await;
        let event = events.iter().find(|event| event.reason.name() == "PauseReversed").unwrap();
        assert_eq!(event.object.name.as_deref(), Some("web"));
        assert!(event.note.contains(by), "{}", event.note);
        assert_eq!(
            event.note.contains("onReversal: DeletePods"),
            on_reversal == "DeletePods",
            "{}",
            event.note
        );
        let ended = events.iter().find(|event| event.reason.name() == "RunEnded").unwrap();
        let reached = "Its run in Queue q has reached the ceiling of 1h, set by that queue. ";
        let (kind, then) = match on_reversal {
            "Pause" => (
                "Deployment",
                "It stays paused until you resume it, with a full ceiling again: kubectl tenure resume deployment.apps/web -n ns",
            ),
            _ => (
                "Pod",
                "The pod was deleted, because Deployment web (apps/v1) was resumed by another writer after each pause. To run it again, create it again",
            ),
        };
        assert_eq!(ended.object.kind.as_deref(), Some(kind));
        assert_eq!(ended.note, format!("{reached}{then}"));
    }
}

#[tokio::test(start_paused = true)]
async fn each_write_counts_for_the_rate_limit_also_those_that_come_too_late_and_these_are_few() {
    let server = Server::new();
    server.refuse(Method::PATCH, DEPLOYMENT, 409);
    let (slow, tokens) = (NonZeroU32::MIN, 100);
    let limit = write_limit(slow, NonZeroU32::new(tokens).unwrap());
    let pauser = Pauser { limit, ..pauser(&server) };
    assert!(pauser.act(&due(0)).await.is_err());
    let tries = server.0.lock().refusals;
    assert!((2..=4).contains(&tries), "{tries}");
    let left = std::iter::from_fn(|| pauser.limit.check().ok()).count();
    // one comes back each second
    assert!(left <= tokens as usize - tries + 1, "{left} of {tokens} are left after {tries} writes");
}

#[tokio::test(start_paused = true)]
async fn no_list_comes_between_the_reading_of_an_owner_and_its_pause_or_deletion() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    for deletes_owner in [false, true] {
        let (server, mut pauser, mut group) =
            undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
        group.first.deadline = pauser.handles.now();
        if deletes_owner {
            configure(&mut pauser, deletes());
            server.refuse(Method::DELETE, DEPLOYMENT, 409);
        }
        server.refuse(Method::PATCH, DEPLOYMENT, 409);
        // as long as the tenant's extensions are many
        server.0.lock().listing = Duration::from_secs(2);
        // no list is young enough to be used again
        let forget = async {
            loop {
                *pauser.extensions.lock() = ListedExtensions::default();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            done = pauser.act(&group) => assert!(done.is_err()),
            () = forget => {}
        }
        let state = server.0.lock();
        assert!(state.gaps.iter().all(|gap| *gap < Duration::from_secs(1)), "{:?}", state.gaps);
        // before an owner is deleted, that is tried
        let least = 3 + usize::from(deletes_owner);
        assert!(state.gaps.len() >= least && state.listed.len() >= 3, "{:?} {:?}", state.gaps, state.listed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_changes_while_its_pause_waits_is_read_again_and_paused_at_once() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    let (server, pauser, mut group) =
        undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
    group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(1);
    server.0.lock().listing = Duration::from_secs(2);
    let changed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.merge(DEPLOYMENT, &json!({"metadata": {"resourceVersion": "2"}}));
    };
    let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), changed);
    assert_eq!(acted, saw("paused Deployment", &["PATCH deployments/web"]));
    assert_eq!(server.0.lock().gaps.len(), 1, "no patch came too late");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_paused_by_another_while_its_pause_waits_is_not_paused_again() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    let (server, pauser, mut group) =
        undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
    group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(1);
    server.0.lock().listing = Duration::from_secs(2);
    let by_another = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let change = json!({"metadata": {"resourceVersion": "2"}, "spec": {"replicas": 0}});
        server.merge(DEPLOYMENT, &change);
    };
    let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), by_another);
    assert_eq!(acted, saw("paused before", &[]));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_whose_owner_has_just_changed_is_put_off_until_it_is_late_and_then_counts() {
    let put_off = (1, saw("put off: its owner has just changed", &[]), 1);
    let failed = (61, saw("failed: failed to pause Deployment web (apps/v1)", &[]), 4);
    for (seconds, expected, writes) in [put_off, failed] {
        let (server, pauser, group) =
            undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
        show_pod(&pauser, &server);
        server.refuse(Method::PATCH, DEPLOYMENT, 409);
        let mut group = DueBatch { task: Task::Evict, ..group };
        group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(seconds);
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{seconds}");
        assert_eq!(server.0.lock().refusals, writes, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_run_ends_by_the_extensions_that_the_watch_has_shown() {
    let extensions = json!({"maxTotal": "1h", "maxCount": 1});
    for (seconds, is_late) in [(29, false), (31, true)] {
        let (server, pauser, mut group) =
            undone(0, LATER, json!({"maxDuration": "1h", "extensions": extensions}));
        group.first.deadline = pauser.handles.now() - SignedDuration::from_secs(seconds);
        let acted = act_on(&pauser, &server, &group).await;
        assert_eq!(acted, saw("paused Deployment", &["PATCH deployments/web"]));
        assert_eq!(server.0.lock().listed.is_empty(), is_late, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_ceiling_that_its_owner_has_given_up_no_run_ends_but_its_queues_ceiling_holds() {
    let own = |of: &Value| json!({"metadata": {"annotations": {"tenure.dev/paused": null, "tenure.dev/max-duration": of}}});
    let changed = || saw("put off: its owner's ceiling has changed since it was judged", &[]);
    let by_pause = || saw("paused Deployment", &["PATCH deployments/web"]);
    for (of_queue, annotation, expected) in [
        ("10y", json!("1h"), by_pause()),
        ("10y", json!("2h"), by_pause()),
        ("10y", json!("10y"), changed()),
        ("10y", Value::Null, changed()),
        ("1h", json!("10y"), by_pause()),
        ("1h", Value::Null, by_pause()),
    ] {
        let (server, pauser, group) = undone(0, LATER, json!({"maxDuration": of_queue}));
        server.merge(DEPLOYMENT, &own(&json!("1h")));
        for (source, object) in [(1, DEPLOYMENT), (2, SET)] {
            let metadata = server.0.lock().objects[object]["metadata"].clone();
            let metadata = serde_json::from_value(metadata).unwrap();
            pauser.handles.cluster.with(|index| index.apply_owner(source, &metadata));
        }
        server.merge(DEPLOYMENT, &own(&annotation));
        assert_eq!(act_on(&pauser, &server, &group).await, expected, "{of_queue} {annotation}");
    }
}
