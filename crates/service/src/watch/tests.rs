use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::readiness::ProcessReadiness;

const OBJECTS: usize = 1_000;

/// The largest object that etcd takes.
const LARGEST_OBJECT: usize = 1536 * 1024;

/// The most memory for one page.
const MOST_MEMORY: usize = 160 * 1024 * 1024;

/// An API server with many objects, which notes the pages that it is asked for. A watch has no events.
fn server(pages: Arc<Mutex<Vec<usize>>>) -> Client {
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
            if parameter("watch").is_some() {
                std::future::pending::<()>().await;
            }
            let number = |name| parameter(name).and_then(|text| text.parse().ok());
            let (limit, from): (usize, usize) =
                (number("limit").unwrap_or(OBJECTS), number("continue").unwrap_or(0));
            pages.lock().push(limit);
            let body = page(from, OBJECTS.min(from + limit)).to_string();
            let response = Response::builder().header("content-type", "application/json");
            Ok::<_, Infallible>(response.body(Body::from(body.into_bytes())).unwrap())
        }
    });
    Client::new(service, "default")
}

fn page(from: usize, to: usize) -> Value {
    let items: Vec<Value> =
        (from..to).map(|number| json!({"metadata": {"name": number.to_string()}})).collect();
    let next = if to < OBJECTS { to.to_string() } else { String::new() };
    json!({
        "apiVersion": "v1", "kind": "ConfigMapList",
        "metadata": {"resourceVersion": "1", "continue": next}, "items": items,
    })
}

#[derive(Clone, Default)]
struct Names(Arc<Mutex<HashSet<String>>>);

impl Store<ConfigMap> for Names {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, object: ConfigMap) {
        self.0.lock().insert(Self::key(&object.metadata));
    }

    fn delete(&mut self, key: &String) {
        self.0.lock().remove(key);
    }

    fn retain(&mut self, keys: &HashSet<String>) {
        self.0.lock().retain(|name| keys.contains(name));
    }
}

#[tokio::test]
async fn a_list_is_read_in_pages_that_fit_into_memory_however_large_the_objects_are() {
    let (pages, names, readiness) = (Arc::default(), Names::default(), ProcessReadiness::default());
    let api = Api::all(server(Arc::clone(&pages)));
    let synced = readiness.awaiting("objects");
    tokio::select! {
        () = follow(api, watcher::Config::default(), synced, names.clone()) => unreachable!(),
        () = readiness.ready() => {}
    }
    assert_eq!(names.0.lock().len(), OBJECTS);
    let largest = pages.lock().iter().copied().max().unwrap();
    assert!(2 * largest * LARGEST_OBJECT <= MOST_MEMORY, "pages of {largest} objects");
}
