//! Times events in a large cluster, and paused owners that all come back at once: `cargo bench -p tenure-index --bench
//! events`.
#![allow(clippy::indexing_slicing, clippy::panic, reason = "a benchmark that can't be run must end")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_index::{CeilingIndex, CeilingOptions};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::Pod,
    runai::v3alpha1::QueueSpec,
};

const NAMESPACES: usize = 1_000;
const PODS_PER_OWNER: usize = 3;

fn main() {
    // `cargo test --bench` runs this too, to see that it works
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (pods, of_namespace, due, subgroups, gang) =
        if measured { (150_000, 20_000, 10_000, 40_000, 5_000) } else { (3_000, 200, 100, 400, 100) };
    let mut index = cluster(pods);
    pod_events(&mut index, pods);
    owner_events(&mut index, pods);
    subgroup_events(&mut index, subgroups);
    gang_events(gang);
    siblings(of_namespace);
    returns(due, of_namespace);
}

/// Pods of one Job, and then pods that name one pod as their controller, that leave one after the other.
fn siblings(pods: usize) {
    for (kind, uid, name) in [("Job", owner_uid(0), "of one Job"), ("Pod", pod_uid(0), "of one driver")] {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        for number in 0..pods {
            let mut pod = pod(number, true);
            pod["metadata"]["namespace"] = json!("ns");
            if number > 0 {
                pod["metadata"]["ownerReferences"][0]["kind"] = json!(kind);
                pod["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
            }
            index.apply_pod(&decode::<Pod>(pod));
        }
        black_box(index.next_due_after(Timestamp::MIN));
        let (begun, events) = (Instant::now(), pods / 2);
        for number in 0..events {
            index.delete_pod(tenure_index::Uid::of(&pod_uid(pods - 1 - number)));
            black_box(index.next_due_after(Timestamp::MIN));
        }
        let each = begun.elapsed() / u32::try_from(events).unwrap_or(1);
        println!("{pods} pods {name}: one that leaves {each:>10.1?}");
    }
}

/// Pods that get ready and lose that again, each followed by the question when something is due.
fn pod_events(index: &mut CeilingIndex, pods: usize) {
    let events = 20_000;
    let changed: Vec<Pod> =
        (0..events).map(|number| decode(pod(number * 7 % pods, number % 2 == 0))).collect();
    let begun = Instant::now();
    for pod in &changed {
        index.apply_pod(pod);
        black_box(index.next_due_after(Timestamp::MIN));
    }
    let each = begun.elapsed() / u32::try_from(events).unwrap_or(1);
    println!(
        "{pods} pods: an event of a pod           {each:>10.1?}, {:.0} a second",
        1.0 / each.as_secs_f64()
    );
}

/// An owner with a ceiling of its own that is deleted and comes back.
fn owner_events(index: &mut CeilingIndex, pods: usize) {
    let owner = |own: &str| {
        decode(json!({
            "name": "owner", "namespace": namespace(0), "uid": owner_uid(0),
            "annotations": {"tenure.dev/max-duration": own},
        }))
    };
    let mut longest = Duration::ZERO;
    for own in ["1h", "2h", "3h", "4h"] {
        let begun = Instant::now();
        index.apply_owner(1, &owner(own));
        black_box(index.next_due_after(Timestamp::MIN));
        index.delete_owner(tenure_index::Uid::of(&owner_uid(0)));
        black_box(index.next_due_after(Timestamp::MIN));
        longest = longest.max(begun.elapsed());
    }
    println!("{pods} pods: an owner comes and goes     {longest:>10.1?} at most");
}

/// Times events of a `PodGroup` with this many subgroups, each with a pod.
fn subgroup_events(index: &mut CeilingIndex, subgroups: usize) {
    let all: Vec<Value> = (0..subgroups).map(|number| json!({"name": format!("s{number}")})).collect();
    let group = json!({
        "metadata": {"name": "huge", "namespace": "huge", "uid": "huge", "resourceVersion": "1"},
        "spec": {"queue": "queue", "subGroups": all},
    });
    index.apply_group(PodGroupKind::Runai, &decode::<PodGroup>(group));
    for number in 0..10 {
        index.apply_pod(&decode(in_subgroup(number, false)));
    }
    black_box(index.next_due_after(Timestamp::MIN));
    let mut longest = Duration::ZERO;
    for number in 0..10 {
        let changed = decode(in_subgroup(number, true));
        let begun = Instant::now();
        index.apply_pod(&changed);
        black_box(index.next_due_after(Timestamp::MIN));
        longest = longest.max(begun.elapsed());
    }
    println!("{subgroups} subgroups: an event of a pod      {longest:>10.1?} at most");
}

/// Pods of a gang that get ready or terminate, one after the other, with a single question at the end. Compares a gang
/// of a tenth of the size: an event should cost about the same.
fn gang_events(pods: usize) {
    let gets_ready: fn(usize) -> Value = |number| in_gang(number, true);
    for (what, changed) in [("gets ready", gets_ready), ("terminates", terminating_in_gang)] {
        let [small, large] = [pods / 10, pods].map(|pods| gang_event(pods, changed));
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        println!("a gang of {pods} pods: one that {what}  {large:>10.1?}, {ratio:.1} times that of a tenth");
    }
}

/// Returns the time of an event of a gang's pod, where each pod changes once.
fn gang_event(pods: usize, changed: fn(usize) -> Value) -> Duration {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    let group = json!({
        "metadata": {"name": "gang", "namespace": "gang", "uid": "gang", "resourceVersion": "1"},
        "spec": {"queue": "queue", "minMember": pods},
    });
    index.apply_group(PodGroupKind::Runai, &decode::<PodGroup>(group));
    for number in 0..pods {
        index.apply_pod(&decode(in_gang(number, false)));
    }
    black_box(index.next_due_after(Timestamp::MIN));
    let changed: Vec<Pod> = (0..pods).map(|number| decode(changed(number))).collect();
    let begun = Instant::now();
    for pod in &changed {
        index.apply_pod(pod);
    }
    black_box(index.next_due_after(Timestamp::MIN));
    begun.elapsed() / u32::try_from(pods).unwrap_or(1)
}

/// Owners in a namespace of many pods that all come back at once.
fn returns(due: usize, pods: usize) {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    for number in 0..pods {
        let mut pod = pod(number, true);
        pod["metadata"]["namespace"] = json!("ns");
        index.apply_pod(&decode::<Pod>(pod));
    }
    for number in 0..due {
        let record = json!({
            "reason": "PodsReadyTimeout", "at": time(0), "queue": "queue", "field": "spec.suspend",
            "value": true, "previousValue": false,
        });
        let state = json!({"count": 1, "requeueAt": time(10)});
        index.apply_owner(0, &decode(json!({
            "name": format!("paused-{number}"), "namespace": "ns",
            "uid": format!("{number:08x}-cccc-4def-8123-456789abcdef"),
            "annotations": {"tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string()},
        })));
    }
    black_box(index.next_due_after(Timestamp::MIN));
    let begun = Instant::now();
    let returning = black_box(index.counts(time(20), time(20)).returning);
    let scraped = begun.elapsed();
    let begun = Instant::now();
    let listed = index.due_returns(time(20)).len();
    let took = begun.elapsed();
    assert_eq!((returning, listed), (due, due));
    println!(
        "{due} due returns beside {pods} pods: a look {took:>10.1?} (goal: 50 ms), a count {scraped:.1?}"
    );
}

fn cluster(pods: usize) -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    index.apply_queue(
        "queue",
        &decode::<QueueSpec>(json!({"maxDuration": "1d", "waitForPodsReady": {"timeout": "5m"}})),
    );
    let begun = Instant::now();
    for number in 0..pods {
        index.apply_pod(&decode(pod(number, true)));
    }
    black_box(index.next_due_after(Timestamp::MIN));
    println!("{pods} pods: read and taken in            {:>10.1?}", begun.elapsed());
    index
}

fn pod(number: usize, ready: bool) -> Value {
    let condition = |type_: &str, status: bool, at| {
        let status = if status { "True" } else { "False" };
        json!({"type": type_, "status": status, "lastTransitionTime": time(at)})
    };
    json!({
        "metadata": {
            "name": format!("training-{number:06}"), "namespace": namespace(number / PODS_PER_OWNER),
            "uid": pod_uid(number), "creationTimestamp": time(5),
            "labels": {"kai.scheduler/queue": "queue"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": format!("training-{:06}", number / PODS_PER_OWNER),
                "uid": owner_uid(number / PODS_PER_OWNER), "controller": true,
            }],
        },
        "status": {"phase": "Running", "conditions": [
            condition("PodScheduled", true, 6), condition("Initialized", true, 7), condition("Ready", ready, 8),
        ]},
    })
}

fn in_subgroup(number: usize, ready: bool) -> Value {
    let mut pod = pod(number, ready);
    pod["metadata"]["uid"] = json!(format!("{number:08x}-dddd-4def-8123-456789abcdef"));
    pod["metadata"]["namespace"] = json!("huge");
    pod["metadata"]["annotations"] = json!({"pod-group-name": "huge"});
    pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!(format!("s{number}"));
    pod
}

fn in_gang(number: usize, ready: bool) -> Value {
    let mut pod = pod(number, ready);
    pod["metadata"]["namespace"] = json!("gang");
    pod["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    pod
}

fn terminating_in_gang(number: usize) -> Value {
    let mut pod = in_gang(number, false);
    pod["metadata"]["deletionTimestamp"] = json!(time(60));
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

fn pod_uid(number: usize) -> String {
    format!("{number:08x}-89ab-4def-8123-456789abcdef")
}

fn owner_uid(number: usize) -> String {
    format!("{number:08x}-aaaa-4def-8123-456789abcdef")
}

fn namespace(number: usize) -> String {
    format!("team-namespace-{}", number % NAMESPACES)
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap_or_default()
}

fn decode<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap_or_else(|error| panic!("no such object: {error}"))
}
