use std::{ops::Range, sync::Arc};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    client::{Body, ClientBuilder},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::{client::api_layer, clock::ServerClock, leadership::Leadership, readiness::ProcessReadiness};

const OBJECTS: usize = 1_000;

/// The most bytes that were read of a page.
const MOST_BYTES: usize = 20 * 1024 * 1024;

/// An API server with many objects of a size, which notes the pages that it is asked for. A watch has no events.
fn server(pages: Arc<Mutex<Vec<usize>>>, objects: usize, bytes: usize) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let pages = Arc::clone(&pages);
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let parameter = |name: &str| {
                query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                    .map(str::to_owned)
            };
            if parameter("sendInitialEvents").is_some() {
                return Ok(Response::builder().status(400).body(Body::empty()).unwrap());
            }
            if parameter("watch").is_some() {
                std::future::pending::<()>().await;
            }
            let number = |name| parameter(name).and_then(|text| text.parse().ok());
            let (limit, from): (usize, usize) =
                (number("limit").unwrap_or(objects), number("continue").unwrap_or(0));
            pages.lock().push(limit);
            let body = page(from..objects.min(from + limit), objects, bytes).to_string();
            let response = Response::builder().header("content-type", "application/json");
            Ok::<_, BoxError>(response.body(Body::from(body.into_bytes())).unwrap())
        }
    });
    ClientBuilder::new(service, "default")
        .with_layer(&api_layer(Leadership::always(), ServerClock::default()))
        .build()
}

fn page(numbers: Range<usize>, objects: usize, bytes: usize) -> Value {
    let text = "x".repeat(bytes);
    let object = |number: usize| json!({"metadata": {"name": number.to_string()}, "data": {"text": text}});
    let next = if numbers.end < objects { numbers.end.to_string() } else { String::new() };
    let items: Vec<Value> = numbers.map(object).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "1", "continue": next}, "items": items,
    })
}

#[derive(Clone, Default)]
struct Names(Arc<Mutex<HashSet<String>>>);

impl Store<ConfigMap> for Names {
    type Key = String;

    fn apply(&mut self, object: ConfigMap) {
        self.0.lock().insert(String::of_object(&object.metadata));
    }

    fn delete(&mut self, key: &String) {
        self.0.lock().remove(key);
    }

    fn retain(&mut self, keys: &HashSet<String>) {
        self.0.lock().retain(|name| keys.contains(name));
    }
}

/// Lists objects of a size, and returns the sizes of the pages that were asked for.
async fn list(bytes: usize) -> Vec<usize> {
    list_of(OBJECTS, bytes).await
}

async fn list_of(objects: usize, bytes: usize) -> Vec<usize> {
    let (pages, names, readiness) = (Arc::default(), Names::default(), ProcessReadiness::default());
    let api = Api::all(server(Arc::clone(&pages), objects, bytes));
    let synced = readiness.awaiting("objects");
    tokio::select! {
        () = follow(api, Config::default(), synced, names.clone()) => unreachable!(),
        () = readiness.ready() => {}
    }
    assert_eq!(names.0.lock().len(), objects);
    let pages = pages.lock();
    pages.clone()
}

#[tokio::test]
async fn small_objects_are_listed_in_large_pages() {
    assert_eq!(list(1_000).await, [500; 2]);
}

#[tokio::test]
async fn large_objects_are_listed_in_pages_that_fit_into_memory() {
    let bytes = 300_000;
    let pages = list(bytes).await;
    assert_eq!(pages[..3], [500, 125, 31]);
    let read = pages[2..].iter().copied().max().unwrap();
    assert!(read * bytes <= MOST_BYTES && pages.len() <= 2 + OBJECTS.div_ceil(31), "{pages:?}");
}

#[tokio::test]
async fn objects_of_any_size_are_listed_in_pages_that_fit_into_memory() {
    let bytes = 5_000_000;
    let pages = list_of(20, bytes).await;
    assert_eq!(pages[..5], [500, 125, 31, 7, 1]);
}
