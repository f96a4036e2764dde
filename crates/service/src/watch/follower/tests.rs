use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::body::Body;
use futures::{StreamExt, stream};
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    client::{self, ClientBuilder},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::{
    client::api_layer, clock::ServerClock, freshness::Freshness, leadership::Leadership,
    readiness::ProcessReadiness,
};

const BOUND: Duration = Duration::from_secs(90);

/// The answer to one request.
enum Answer {
    /// A list of these names, at version 5.
    List(&'static [&'static str]),
    /// A list of no names, at a version.
    At(&'static str),
    /// A watch: its events, each after a delay in milliseconds, and the delay of its end after these.
    Watch(Vec<(u64, Value)>, u64),
    /// The same for a list that is to be streamed. All others refuse that.
    Stream(Vec<(u64, Value)>, u64),
    Status(u16),
    /// A text with status 429, and its `Retry-After` in seconds.
    Throttle(u64),
}

/// An API server that answers one request after the other, the last answer again and again. A request for a streamed list that
/// it refuses counts for none.
#[derive(Clone)]
struct Server {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// The length in seconds of each watch; none for a list.
    requests: Arc<Mutex<Vec<Option<u32>>>>,
}

/// The names that a watch has shown.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<String>>>);

impl Store<ConfigMap> for Names {
    type Key = String;

    fn apply(&mut self, object: ConfigMap) {
        let name = String::of_object(&object.metadata);
        self.0.lock().retain(|known| *known != name);
        self.0.lock().push(name);
    }

    fn delete(&mut self, key: &String) {
        self.0.lock().retain(|known| known != key);
    }

    fn retain(&mut self, keys: &HashSet<String>) {
        self.0.lock().retain(|known| keys.contains(known));
    }
}

fn object(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": "7"}})
}

fn added(name: &str) -> Value {
    json!({"type": "ADDED", "object": object(name)})
}

fn bookmark() -> Value {
    json!({"type": "BOOKMARK", "object": {
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "8"},
    }})
}

fn list_end() -> Value {
    let mut end = bookmark();
    end["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    end
}

fn status(code: u16) -> Response<Body> {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": ""});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string())).unwrap()
}

fn list(version: &str, names: &[&str]) -> Response<Body> {
    let objects: Vec<Value> = names.iter().map(|name| object(name)).collect();
    let list = json!({
        "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": objects,
    });
    Response::new(Body::from(list.to_string()))
}

impl Server {
    fn new(answers: Vec<Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into())), requests: Arc::default() }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let answer = server.answer(query);
            async move { Ok::<_, tower::BoxError>(answer) }
        });
        let layer = api_layer(Leadership::always(), ServerClock::default());
        ClientBuilder::new(service, "default").with_layer(&layer).build()
    }

    fn answer(&self, query: &str) -> Response<Body> {
        let mut answers = self.answers.lock();
        if query.contains("sendInitialEvents=true")
            && !matches!(answers.front(), Some(Answer::Stream(..) | Answer::Throttle(_)))
        {
            return status(422);
        }
        let seconds = query.split("timeoutSeconds=").nth(1);
        self.requests.lock().push(seconds.map(|text| text.split('&').next().unwrap().parse().unwrap()));
        let repeats = answers.len() == 1;
        let body = match answers.front().unwrap() {
            Answer::List(names) => list("5", names),
            Answer::At(version) => list(version, &[]),
            Answer::Status(code) => status(*code),
            Answer::Throttle(seconds) => {
                let response = Response::builder().status(429).header("retry-after", *seconds);
                response.body(Body::from("too many requests")).unwrap()
            }
            Answer::Watch(events, end) | Answer::Stream(events, end) => {
                let lines = events.iter().map(|(after, event)| (*after, format!("{event}\n")));
                let lines: Vec<_> = lines.chain([(*end, String::new())]).collect();
                let lines = stream::iter(lines).then(|(after, line)| async move {
                    sleep(Duration::from_millis(after)).await;
                    Ok::<_, Infallible>(line)
                });
                Response::new(Body::from_stream(lines))
            }
        };
        if !repeats {
            answers.pop_front();
        }
        body
    }

    fn requests(&self) -> Vec<Option<u32>> {
        self.requests.lock().clone()
    }
}

/// A watch of config maps, with its freshness and what it has shown. It ends when the tasks are dropped.
async fn followed(server: &Server) -> (Freshness, Names, JoinSet<()>) {
    let readiness = ProcessReadiness::default();
    let (names, synced) = (Names::default(), readiness.awaiting("configmaps"));
    let (api, config): (Api<ConfigMap>, _) = (Api::all(server.client()), watcher::Config::default());
    let mut follower = Follower::new(api, config, names.clone(), synced, Need::Required);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { follower.follow_for_ever().await });
    readiness.ready().await;
    (readiness.freshness.clone(), names, tasks)
}

fn is_confirmed(freshness: &Freshness, since: Instant) -> bool {
    freshness.unconfirmed(Some(since), BOUND).is_none()
}

/// Requires a confirmation, and returns the time that it took.
async fn confirmed(freshness: &Freshness) -> Duration {
    let since = Instant::now();
    freshness.require(since);
    while !is_confirmed(freshness, since) {
        freshness.changed().await;
    }
    since.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_news_confirms_what_is_known_within_a_second_or_so() {
    let held_back = Answer::Watch(vec![(40_000, added("late"))], 10_000);
    let server = Server::new(vec![Answer::List(&["a"]), held_back, Answer::Watch(Vec::new(), 1_000)]);
    let (freshness, names, _tasks) = followed(&server).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(confirmed(&freshness).await < Duration::from_secs(2));
    assert_eq!(*names.0.lock(), ["a"]);
    assert_eq!(server.requests().get(..3), Some(&[None, Some(50), Some(1)][..]));
}

#[tokio::test(start_paused = true)]
async fn a_short_watch_with_news_confirms_nothing_before_a_bookmark() {
    let server = Server::new(vec![
        Answer::List(&["a"]),
        Answer::Watch(Vec::new(), 50_000),
        Answer::Watch(vec![(100, added("b"))], 900),
        Answer::Watch(vec![(100, added("c")), (900, bookmark())], 2_000),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, names, _tasks) = followed(&server).await;
    sleep(Duration::from_secs(1)).await;
    let took = confirmed(&freshness).await;
    assert!((1_900..2_200).contains(&took.as_millis()), "{took:?}");
    assert_eq!(*names.0.lock(), ["a", "b", "c"]);
    assert_eq!(server.requests(), [None, Some(50), Some(1), Some(3)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_cut_is_confirmed_by_the_next_one() {
    let server = Server::new(vec![
        Answer::List(&["a"]),
        Answer::Watch(vec![(20_000, added("b"))], 5_000),
        Answer::At("7"),
        Answer::Watch(Vec::new(), 1_000),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, _, _tasks) = followed(&server).await;
    assert_eq!(freshness.unconfirmed(None, BOUND), None);
    sleep(Duration::from_millis(25_500)).await;
    assert_eq!(freshness.unconfirmed(None, BOUND).as_deref(), Some("configmaps"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(freshness.unconfirmed(None, BOUND), None);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests(), [None, Some(50), None, Some(1), Some(50)]);
}

#[tokio::test(start_paused = true)]
async fn after_a_backup_was_restored_all_is_listed_again() {
    let server = Server::new(vec![
        Answer::List(&["a"]),
        Answer::Watch(vec![(1_000, added("b"))], 1_000),
        Answer::At("6"),
        Answer::List(&["c"]),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, names, _tasks) = followed(&server).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(*names.0.lock(), ["c"]);
    assert_eq!(freshness.unconfirmed(None, BOUND), None);
    assert_eq!(server.requests(), [None, Some(50), None, None, Some(50)]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_asked_for_delays_no_watch() {
    let server = Server::new(vec![
        Answer::List(&["a"]),
        Answer::Watch(vec![(1_000, added("b"))], 1_000),
        Answer::Status(500),
        Answer::Watch(Vec::new(), 1_000),
        Answer::At("7"),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, _, _tasks) = followed(&server).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(freshness.unconfirmed(None, BOUND), None);
    assert_eq!(server.requests(), [None, Some(50), None, Some(1), None, Some(50)]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_never_answered_delays_a_watch_by_seconds_alone() {
    let server = Server::new(vec![
        Answer::List(&["a"]),
        Answer::Watch(vec![(1_000, added("b"))], 1_000),
        Answer::Watch(Vec::new(), 3_600_000),
        Answer::At("7"),
        Answer::Watch(Vec::new(), 3_000),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, _, _tasks) = followed(&server).await;
    sleep(Duration::from_secs(12)).await;
    assert_eq!(freshness.unconfirmed(None, BOUND), None);
    assert_eq!(server.requests(), [None, Some(50), None, None, Some(3), Some(50)]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_version_that_is_too_old_lists_again() {
    let server = Server::new(vec![
        Answer::List(&["a"]),
        Answer::Status(410),
        Answer::List(&["b"]),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, names, _tasks) = followed(&server).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((freshness.unconfirmed(None, BOUND), names.0.lock().as_slice()), (None, &["b".into()][..]));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_api_server_does_not_have_is_confirmed_too() {
    let server = Server::new(vec![Answer::Status(404)]);
    let (freshness, _, _tasks) = followed(&server).await;
    sleep(Duration::from_mins(1)).await;
    assert!(confirmed(&freshness).await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_missing_is_confirmed_within_seconds_although_a_connection_has_died() {
    let server =
        Server::new(vec![Answer::Status(404), Answer::Watch(Vec::new(), 3_600_000), Answer::Status(404)]);
    let (freshness, _, _tasks) = followed(&server).await;
    assert!(confirmed(&freshness).await < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_gone_is_doubted_for_a_minute_and_then_forgotten() {
    let gone = || Answer::Status(404);
    let watch = || Answer::Watch(Vec::new(), 1_000);
    let server = Server::new(vec![
        Answer::List(&["a"]),
        watch(),
        gone(),
        gone(),
        Answer::List(&["a"]),
        watch(),
        gone(),
    ]);
    let (freshness, names, _tasks) = followed(&server).await;
    sleep(Duration::from_millis(1_100)).await;
    assert!(freshness.unconfirmed(None, BOUND).is_some(), "it may be there");
    assert_eq!(names.0.lock().as_slice(), ["a"]);
    sleep(Duration::from_secs(50)).await;
    assert_eq!(names.0.lock().as_slice(), ["a"], "it was there meanwhile");
    sleep(Duration::from_secs(30)).await;
    assert!(names.0.lock().is_empty());
    assert!(confirmed(&freshness).await < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_again_and_again_is_never_confirmed() {
    let server =
        Server::new(vec![Answer::List(&["a"]), Answer::Watch(Vec::new(), 50_000), Answer::Status(403)]);
    let (freshness, _, _tasks) = followed(&server).await;
    sleep(Duration::from_secs(51)).await;
    assert_eq!(freshness.unconfirmed(None, BOUND).as_deref(), Some("configmaps"));
    assert_eq!(freshness.stalest(BOUND), None);
    sleep(BOUND).await;
    assert!(freshness.stalest(BOUND).is_some() && freshness.unconfirmed(None, BOUND).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_is_complete_and_confirmed_at_its_end() {
    let server = Server::new(vec![
        Answer::List(&["a", "b"]),
        Answer::Status(410),
        Answer::Stream(
            vec![(0, added("b")), (500, bookmark()), (500, added("c")), (500, list_end())],
            600_000,
        ),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, names, _tasks) = followed(&server).await;
    sleep(Duration::from_millis(1_600)).await;
    assert!(freshness.unconfirmed(None, BOUND).is_some(), "the list has no end yet");
    assert_eq!(*names.0.lock(), ["a", "b", "c"]);
    sleep(Duration::from_millis(400)).await;
    assert_eq!(freshness.unconfirmed(None, BOUND), None);
    assert_eq!(*names.0.lock(), ["b", "c"]);
    assert_eq!(server.requests(), [None, Some(50), Some(600), Some(50)]);
}

#[tokio::test(start_paused = true)]
async fn after_a_streamed_list_without_an_end_the_next_is_read_in_pages() {
    for end in [100, 600_000] {
        let server = Server::new(vec![
            Answer::Stream(vec![(100, added("a"))], end),
            Answer::List(&["b"]),
            Answer::Watch(Vec::new(), 50_000),
        ]);
        let (freshness, names, _tasks) = followed(&server).await;
        assert_eq!(*names.0.lock(), ["b"]);
        assert_eq!(freshness.unconfirmed(None, BOUND), None);
        tokio::task::yield_now().await;
        assert_eq!(server.requests()[..2], [Some(600), None]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_server_says_when_to_try_again() {
    let begun = Instant::now();
    let server = Server::new(vec![
        Answer::Throttle(20),
        Answer::Stream(vec![(0, list_end())], 600_000),
        Answer::Throttle(30),
        Answer::At("9"),
        Answer::Watch(Vec::new(), 1_000),
        Answer::Watch(Vec::new(), 50_000),
    ]);
    let (freshness, _, _tasks) = followed(&server).await;
    assert_eq!(begun.elapsed().as_secs(), 20);
    sleep(Duration::from_secs(30)).await;
    assert!(freshness.unconfirmed(None, BOUND).is_some(), "it waits");
    sleep(Duration::from_secs(3)).await;
    assert!(freshness.unconfirmed(None, BOUND).is_none());
}
