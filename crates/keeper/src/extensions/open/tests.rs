use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;

fn extension(namespace: &str, number: u32, workload: &str, status: &Value) -> Extension {
    let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": workload, "uid": workload});
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
        "metadata": {
            "name": number.to_string(), "namespace": namespace, "uid": format!("{namespace}-{number}"),
            "resourceVersion": "1", "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"target": target, "duration": "2h"}, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn pending(namespace: &str, number: u32) -> Extension {
    extension(namespace, number, "train", &json!({"state": "Pending"}))
}

fn with(extensions: impl IntoIterator<Item = Extension>) -> OpenExtensions {
    let open = OpenExtensions::default();
    extensions.into_iter().for_each(|extension| open.apply(extension));
    open
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_and_one_that_has_thousands_holds_up_no_other() {
    let open = with((0..5_000).map(|number| pending("a", number)));
    open.apply(pending("b", 0));
    open.apply(pending("c", 0));
    let held: Vec<_> = (0..4).map(|_| open.queue.take().unwrap()).collect();
    let order: Vec<&str> = held.iter().map(|lease| lease.work.namespace()).collect();
    assert_eq!(order, ["a", "b", "c", "a"]);
    let more: Vec<_> = std::iter::from_fn(|| open.queue.take()).collect();
    assert!(more.len() < 10, "{} at the same time", more.len());
    open.apply(pending("d", 0));
    assert_eq!(open.queue.take().unwrap().work.namespace(), "d");
}

#[tokio::test(start_paused = true)]
async fn unchanged_extensions_of_a_namespace_take_a_small_share_of_the_time() {
    let open = with((0..1_000).map(|number| pending("a", number)));
    let cost = Duration::from_millis(5);
    let mut checks = 0u32;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(30) {
        while let Some(lease) = open.queue.take() {
            open.give_back(lease, cost);
            checks += 1;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    // besides the first look at each
    let of_time = (cost * (checks - 1_000)).as_secs_f64() / begun.elapsed().as_secs_f64();
    assert!(of_time < 1.5 / f64::from(SHARE), "{checks} looks take {of_time} of the time");
    open.apply(pending("a", 7));
    assert!(open.queue.take().is_none(), "it is as it was");
    let mut changed = pending("a", 7);
    changed.metadata.resource_version = Some("2".into());
    open.apply(changed);
    let checked: Vec<_> = std::iter::from_fn(|| open.queue.take()).collect();
    assert_eq!(checked.len(), 1, "one that has changed is looked at right away");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_closed_or_gone_is_not_checked_again() {
    let open = with((0..4).map(|number| pending("a", number)));
    let lease = open.queue.take().unwrap();
    open.close(&lease.work.0);
    open.give_back(lease, Duration::ZERO);
    let lease = open.queue.take().unwrap();
    open.forget(lease.work.key());
    open.give_back(lease, Duration::ZERO);
    open.apply(extension("a", 2, "train", &json!({"state": "Used"})));
    assert_eq!((open.queue.waiting(), open.pending()), (1, 1));
    open.retain(&HashSet::new());
    assert_eq!((open.queue.waiting(), open.pending()), (0, 0));
    assert!(open.opened.lock().by_namespace.is_empty());
}

/// A tenant's finalizer holds an extension in deletion for as long as the tenant likes.
#[tokio::test]
async fn one_that_is_being_deleted_is_not_checked() {
    let open = with([pending("a", 0), pending("a", 1)]);
    let mut going = pending("a", 0);
    going.metadata.resource_version = Some("2".into());
    going.metadata.deletion_timestamp = going.metadata.creation_timestamp.clone();
    open.apply(slim(going));
    let checked: Vec<_> = std::iter::from_fn(|| open.queue.take()).collect();
    let names: Vec<_> = checked.iter().map(|lease| lease.work.0.metadata.name.as_deref()).collect();
    assert_eq!((names, open.pending()), (vec![Some("1")], 1));
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_leads_again_checks_all() {
    let open = with([extension("a", 0, "train", &json!({"state": "Granted"})), pending("a", 1)]);
    let in_flight = open.queue.take().unwrap();
    open.queue.take().unwrap().failed();
    // what is under way is dropped with the lead
    drop(in_flight);
    open.queue.reset();
    assert!(open.queue.take().is_some() && open.queue.take().is_some());
}

#[tokio::test]
async fn so_many_requests_for_a_workload_may_wait() {
    let most = u32::try_from(MOST_PENDING).unwrap();
    let of = |workload, number| extension("a", number, workload, &json!({"state": "Pending"}));
    let open = with((0..most).map(|number| of("train", number)));
    let next = |workload| extension("a", 100, workload, &json!(null));
    assert!(open.has_too_many(&next("train")) && !open.has_too_many(&next("other")));
    open.forget(uid(&of("train", 3)));
    assert!(!open.has_too_many(&next("train")));
    assert_eq!(open.pending(), MOST_PENDING - 1);
}

#[tokio::test]
async fn one_extension_of_a_workload_has_the_turn_however_its_uid_is_written() {
    let open = OpenExtensions::default();
    let of = |namespace: &str, uid: &str| extension(namespace, 0, uid, &Value::Null);
    let uid = "0a1b2c3d-0000-4def-8123-456789abcdef";
    let turn = open.take_turn(&of("a", uid));
    assert!(turn.is_some() && open.take_turn(&of("a", &uid.to_uppercase())).is_none());
    assert!(open.take_turn(&of("b", uid)).is_some(), "another namespace can't hold it up");
    drop(turn);
    assert!(open.take_turn(&of("a", uid)).is_some());
}
