use std::collections::BTreeSet;

use jiff::SignedDuration;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tenure_index::{CeilingOptions, SeenRun};
use tenure_policy::usage::{PodRun, SeenAt};
use tenure_service::{clock::ServerClock, config::Current, leadership::Leadership};
use tenure_types::{projection::Pod, room::RunRequests, tensorstack::v1beta1, usage_record::UsageRecord};

use super::*;
use crate::{
    events::EventQueue,
    extensions::OpenExtensions,
    messages::Messages,
    metrics::{Metrics, MetricsSources},
};

const GPU: &str = "nvidia.com/gpu";

fn minutes(minute: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minute)
}

fn record(queues: &Value) -> UsageRecord {
    let time = "2026-01-01T00:00:00Z";
    let record = json!({"resourceVersion": "5", "at": time, "since": time, "gaps": 2, "queues": queues});
    serde_json::from_value(record).unwrap()
}

fn ledger(queues: &Value) -> UsageLedger {
    UsageLedger::restore(record(queues), [GPU.to_owned()].into())
}

fn cluster() -> ClusterState {
    let cluster = ClusterState::new(CeilingOptions::default());
    cluster.with(|index| index.apply_queue("q", &v1beta1::QueueSpec::default()));
    cluster
}

/// A pod of a queue, below a Job, that ran from midnight and is deleted a minute later if it is gone.
fn pod(name: &str, is_gone: bool) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "9",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"scheduler.tensorstack.dev/queue": "q"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": true,
            }],
        },
        "status": {"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    });
    if is_gone {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    }
    serde_json::from_value(pod).unwrap()
}

fn see(book: &UsageBook, cluster: &ClusterState, name: &str, is_gone: bool) {
    let pod = pod(name, is_gone);
    let seen = SeenRun {
        uid: Uid::of(name),
        version: "9".into(),
        run: PodRun::of(&pod, None),
        requests: RunRequests { given: [(GPU.to_owned(), 1)].into(), asked: None },
        claims: Vec::new(),
    };
    let at = SeenAt::live(minutes(1));
    let place = || cluster.with(|index| index.run_place(&pod));
    book.with(|ledger| if is_gone { ledger.delete(seen, at, place) } else { ledger.apply(seen, at, place) });
}

/// The ends of runs that are counted.
fn ends(book: &UsageBook) -> BTreeSet<UsageEnd> {
    let record = book.with(|ledger| ledger.record()).unwrap().unwrap();
    record.queues.iter().flat_map(|of| of.used.values().flat_map(|by_end| by_end.keys().copied())).collect()
}

#[test]
fn pods_that_the_keeper_ends_count_so_also_if_they_are_gone_before_the_answer() {
    for (task, end) in [(Task::Expire, UsageEnd::Cut), (Task::Evict, UsageEnd::EvictedUnready)] {
        let (book, cluster) = (UsageBook::default(), cluster());
        book.open(ledger(&json!([])));
        see(&book, &cluster, "a", false);
        let ending = book.ending(task, [Uid::of("a")], minutes(1));
        see(&book, &cluster, "a", true);
        ending.succeeded();
        assert_eq!(ends(&book), [end].into());
    }
}

#[test]
fn a_pod_that_outlived_the_pause_of_its_owner_by_long_is_not_cut_when_it_is_deleted() {
    let (book, cluster) = (UsageBook::default(), cluster());
    book.open(ledger(&json!([])));
    see(&book, &cluster, "a", false);
    book.ending(Task::Expire, [Uid::of("a")], minutes(-60)).succeeded();
    see(&book, &cluster, "a", true);
    assert_eq!(ends(&book), [UsageEnd::Deleted].into());
}

#[test]
fn a_write_that_failed_leaves_no_note() {
    let (book, cluster) = (UsageBook::default(), cluster());
    book.open(ledger(&json!([])));
    see(&book, &cluster, "a", false);
    drop(book.ending(Task::Expire, [Uid::of("a")], minutes(1)));
    see(&book, &cluster, "a", true);
    assert_eq!(ends(&book), [UsageEnd::Deleted].into());
}

#[test]
fn all_pods_below_a_paused_owner_are_ended_and_no_others() {
    let (book, cluster) = (UsageBook::default(), cluster());
    book.open(ledger(&json!([])));
    for name in ["a", "b"] {
        cluster.with(|index| index.apply_pod(&pod(name, false)));
        see(&book, &cluster, name, false);
    }
    for another in [("ns", "another"), ("other", "job")] {
        book.ending_below(Task::Expire, Some(another), &cluster, minutes(1)).succeeded();
    }
    see(&book, &cluster, "b", true);
    book.ending_below(Task::Expire, Some(("ns", "job")), &cluster, minutes(1)).succeeded();
    see(&book, &cluster, "a", true);
    assert_eq!(ends(&book), [UsageEnd::Cut, UsageEnd::Deleted].into());
}

/// The lines that the metrics show of the use of runs.
fn shown(usage: UsageBook, cluster: ClusterState) -> Vec<String> {
    let mut registry = Registry::with_prefix("tenure_keeper");
    let metrics = Metrics::register(&mut Registry::default());
    let (clock, lead) = (ServerClock::default(), Leadership::always());
    let messages = Messages::new(Current::default(), clock.clone(), metrics.clone());
    let events = EventQueue::new(metrics.clone(), cluster.outbox.clone(), messages);
    let extensions = OpenExtensions::default();
    let sources = MetricsSources { cluster, clock, lead, metrics, usage, events, extensions };
    registry.register_collector(Box::new(sources));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text.lines().filter(|line| line.contains("usage")).map(str::to_owned).collect()
}

#[test]
fn nothing_is_noted_or_shown_while_nothing_is_counted() {
    let (book, cluster) = (UsageBook::default(), cluster());
    book.ending(Task::Expire, [Uid::of("a")], minutes(1)).succeeded();
    book.open(ledger(&json!([])));
    book.close();
    assert_eq!(shown(book, cluster), [""; 0]);
}

#[test]
fn counters_go_on_from_the_record_and_those_of_queues_that_do_not_exist_are_not_shown() {
    let (book, cluster) = (UsageBook::default(), cluster());
    let used = json!({GPU: {"succeeded": 1_500_000, "preemptedUnder1h": 2_000_000}});
    book.open(ledger(&json!([
        {"family": "t9k", "queue": "", "used": {GPU: {"deleted": 1_000_000}}},
        {"family": "t9k", "queue": "gone", "used": used},
        {"family": "t9k", "queue": "q", "used": used},
    ])));
    let mut series = shown(book, cluster);
    series.retain(|line| !line.starts_with('#'));
    let expected = [
        "tenure_keeper_usage_gaps_total 2",
        r#"tenure_keeper_usage_resource_seconds_total{family="t9k",queue="",resource="nvidia.com/gpu",end="deleted",age=""} 1.0"#,
        r#"tenure_keeper_usage_resource_seconds_total{family="t9k",queue="q",resource="nvidia.com/gpu",end="succeeded",age=""} 1.5"#,
        r#"tenure_keeper_usage_resource_seconds_total{family="t9k",queue="q",resource="nvidia.com/gpu",end="preempted",age="30m-1h"} 2.0"#,
    ];
    assert_eq!(series, expected);
}

#[test]
fn a_full_record_gives_up_the_rows_of_queues_that_do_not_exist() {
    let (book, cluster) = (UsageBook::default(), cluster());
    let used = json!({GPU: {"deleted": 1_000_000}});
    let row = |queue: &str| json!({"family": "t9k", "queue": queue, "used": used});
    let rows = |gone: usize| {
        let mut rows: Vec<Value> = (0..gone).map(|number| row(&format!("gone-{number}"))).collect();
        rows.push(row("q"));
        json!(rows)
    };
    let queues = |book: &UsageBook| {
        let record = book.with(|ledger| ledger.record()).unwrap().unwrap();
        record.queues.into_iter().map(|of| (of.queue, of.used[GPU][&UsageEnd::Deleted])).collect::<Vec<_>>()
    };
    book.open(ledger(&rows(10)));
    book.make_room(&cluster);
    assert_eq!(queues(&book).len(), 11, "there is room");
    book.open(ledger(&rows(5_000)));
    book.make_room(&cluster);
    assert_eq!(queues(&book), [(String::new(), 5_000_000_000), ("q".into(), 1_000_000)]);
}
