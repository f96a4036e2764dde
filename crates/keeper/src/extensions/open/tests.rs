use serde_json::{Value, json};
use tenure_policy::extension::EXTENSION_GRANTED;

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

/// The namespaces of all that can be taken, in order.
fn taken(open: &OpenExtensions, slots: &FairSlots) -> Vec<String> {
    let taken = std::iter::from_fn(|| open.take_due(slots));
    taken.map(|(extension, _)| namespace(&extension).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_and_one_that_has_thousands_holds_up_no_other() {
    let open = with((0..5_000).map(|number| pending("a", number)));
    open.apply(pending("b", 0));
    open.apply(pending("c", 0));
    let slots = FairSlots::default();
    let held: Vec<_> = (0..4).map(|_| open.take_due(&slots).unwrap()).collect();
    let order: Vec<&str> = held.iter().map(|(extension, _)| namespace(extension)).collect();
    assert_eq!(order, ["a", "b", "c", "a"]);
    let more: Vec<_> = std::iter::from_fn(|| open.take_due(&slots)).collect();
    assert!(more.len() < 10, "{} at the same time", more.len());
    open.apply(pending("d", 0));
    assert_eq!(namespace(&open.take_due(&slots).unwrap().0), "d");
}

#[tokio::test(start_paused = true)]
async fn unchanged_extensions_of_a_namespace_take_a_small_share_of_the_time() {
    let open = with((0..1_000).map(|number| pending("a", number)));
    let (slots, cost) = (FairSlots::default(), Duration::from_millis(5));
    let mut looks = 0u32;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(30) {
        while let Some((extension, _)) = open.take_due(&slots) {
            open.give_back(&extension, cost, false);
            looks += 1;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    // besides the first look at each
    let of_time = (cost * (looks - 1_000)).as_secs_f64() / begun.elapsed().as_secs_f64();
    assert!(of_time < 1.5 / f64::from(SHARE), "{looks} looks take {of_time} of the time");
    open.apply(pending("a", 7));
    assert_eq!(taken(&open, &slots).len(), 1, "one that has changed is looked at right away");
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_tried_less_and_less_often() {
    let open = with([pending("a", 0)]);
    let slots = FairSlots::default();
    let mut waits = Vec::new();
    for _ in 0..9 {
        let begun = Instant::now();
        let (extension, _) = loop {
            match open.take_due(&slots) {
                Some(taken) => break taken,
                None => tokio::time::advance(Duration::from_secs(1)).await,
            }
        };
        waits.push(begun.elapsed().as_secs());
        open.give_back(&extension, Duration::ZERO, true);
    }
    assert_eq!(waits, [0, 6, 12, 24, 48, 96, 192, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_handled_is_not_handled_twice_and_a_change_meanwhile_counts_at_once() {
    let open = with([pending("a", 0)]);
    let slots = FairSlots::default();
    let (first, _) = open.take_due(&slots).unwrap();
    let mut changed = pending("a", 0);
    changed.metadata.resource_version = Some("2".into());
    open.apply(changed);
    assert!(open.take_due(&slots).is_none());
    open.give_back(&first, Duration::ZERO, false);
    let (second, _) = open.take_due(&slots).unwrap();
    assert_eq!(second.metadata.resource_version.as_deref(), Some("2"));
    open.give_back(&second, Duration::ZERO, false);
    assert!(open.take_due(&slots).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_leads_again_looks_at_all_and_tells_what_may_be_lost() {
    let granted = extension("a", 0, "train", &json!({"state": "Granted"}));
    let open = with([granted.clone()]);
    let slots = FairSlots::default();
    let _in_flight = open.take_due(&slots).unwrap();
    assert!(open.is_untold(&granted, EXTENSION_GRANTED, Timestamp::UNIX_EPOCH));
    assert!(!open.is_untold(&granted, EXTENSION_GRANTED, Timestamp::UNIX_EPOCH));
    assert!(open.is_untold(&granted, EXTENSION_GRANTED, Timestamp::MAX), "a later decision");
    open.release();
    assert!(open.take_due(&slots).is_some());
    assert!(open.is_untold(&granted, EXTENSION_GRANTED, Timestamp::UNIX_EPOCH));
}

#[test]
fn so_many_requests_for_a_workload_may_wait() {
    let most = u32::try_from(MOST_PENDING).unwrap();
    let of = |workload, number| extension("a", number, workload, &json!({"state": "Pending"}));
    let open = with((0..most).map(|number| of("train", number)));
    let next = |workload| extension("a", 100, workload, &json!(null));
    assert!(open.has_too_many(&next("train")) && !open.has_too_many(&next("other")));
    open.close(&of("train", 3));
    assert!(!open.has_too_many(&next("train")));
    assert_eq!(open.pending(), MOST_PENDING - 1);
}

#[test]
fn one_extension_of_a_workload_has_the_turn_however_its_uid_is_written() {
    let open = OpenExtensions::default();
    let of = |namespace: &str, uid: &str| extension(namespace, 0, uid, &Value::Null);
    let uid = "0a1b2c3d-0000-4def-8123-456789abcdef";
    let turn = open.take_turn(&of("a", uid));
    assert!(turn.is_some() && open.take_turn(&of("a", &uid.to_uppercase())).is_none());
    assert!(open.take_turn(&of("b", uid)).is_some(), "another namespace can't hold it up");
    drop(turn);
    assert!(open.take_turn(&of("a", uid)).is_some());
}
