//! Times the count of the workloads of all queues of a large cluster: `cargo bench -p tenure-index --bench tally`.
#![allow(clippy::panic, reason = "a benchmark that can't be run must end")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_index::{CeilingIndex, CeilingOptions};
use tenure_policy::floor::Floors;
use tenure_types::{podgroup::PodGroupKind, runai::v3alpha1::QueueSpec};

const QUEUES: usize = 500;
const NAMESPACES: usize = 1_000;
const PODS_PER_GROUP: usize = 4;
const PAUSED: usize = 1_000;

/// Counts what is asked for.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    // `cargo test --bench` runs this too, to see that it works
    let measured = std::env::args().any(|argument| argument == "--bench");
    let pods = if measured { 150_000 } else { 3_000 };
    for (what, grouped) in [("each by itself", false), ("in groups of four", true)] {
        let mut index = cluster(pods, grouped);
        // the first one computes what others need, too
        tally(&mut index, pods, grouped);
        let before = ALLOCATIONS.load(Relaxed);
        tally(&mut index, pods, grouped);
        let allocations = ALLOCATIONS.load(Relaxed) - before;
        // a busy machine makes some of them longer
        let took = (0..10).map(|_| tally(&mut index, pods, grouped)).min().unwrap_or_default();
        println!("{pods} pods, {what:18} {took:>10.1?} and {allocations} allocations for {QUEUES} queues");
        assert!(!measured || allocations < pods / 10, "{allocations} allocations are some for each pod");
        assert!(!measured || took < Duration::from_secs(1), "{took:?} is too long for others to wait");
    }
}

/// Counts, and returns how long it took.
fn tally(index: &mut CeilingIndex, pods: usize, grouped: bool) -> Duration {
    let (floors, now) = (Floors::default(), time(60));
    let begun = Instant::now();
    let tally = black_box(index.tally(&floors, now));
    let took = begun.elapsed();
    let sum = |count: fn(&tenure_policy::queue_status::WorkloadCounts) -> u32| {
        tally.reports.iter().map(|(_, report)| count(&report.workloads) as usize).sum::<usize>()
    };
    let workloads = if grouped { pods / PODS_PER_GROUP } else { pods };
    assert_eq!(
        [sum(|of| of.running), sum(|of| of.protected), sum(|of| of.paused)],
        [workloads, workloads, PAUSED]
    );
    took
}

fn cluster(pods: usize, grouped: bool) -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    for queue in 0..QUEUES {
        let spec = json!({"maxDuration": "1d", "preemptMinRuntime": "1h", "parentQueue": "root"});
        index.apply_queue(&format!("queue-{queue}"), &decode::<QueueSpec>(spec));
    }
    for number in 0..PAUSED {
        index.apply_owner(0, &decode(paused(number)));
    }
    for number in 0..pods {
        let group = number / PODS_PER_GROUP;
        if grouped && number % PODS_PER_GROUP == 0 {
            index.apply_group(PodGroupKind::Runai, &decode(pod_group(group)));
        }
        index.apply_pod(&decode(pod(number, group, grouped)));
    }
    index
}

fn pod(number: usize, group: usize, grouped: bool) -> Value {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": time(6)});
    // pods of one Job are one workload, also without a group
    let job = if grouped { group } else { number };
    json!({
        "metadata": {
            "name": format!("training-{group:06}-{number:06}"), "namespace": namespace(group),
            "uid": format!("{number:08x}-89ab-4def-8123-456789abcdef"), "creationTimestamp": time(5),
            "labels": {"kai.scheduler/queue": format!("queue-{}", group % QUEUES)},
            "annotations": grouped.then(|| json!({"pod-group-name": format!("group-{group}")})),
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": format!("training-{job:06}"),
                "uid": format!("{job:08x}-aaaa-4def-8123-456789abcdef"), "controller": true,
            }],
        },
        "status": {"phase": "Running", "conditions": [condition]},
    })
}

fn pod_group(number: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("group-{number}"), "namespace": namespace(number),
            "uid": format!("{number:08x}-bbbb-4def-8123-456789abcdef"), "resourceVersion": "1",
        },
        "spec": {"queue": format!("queue-{}", number % QUEUES), "minMember": PODS_PER_GROUP},
    })
}

fn paused(number: usize) -> Value {
    let record = json!({
        "reason": "MaxDurationExceeded", "at": time(0), "queue": format!("queue-{}", number % QUEUES),
        "queueGroup": "scheduling.run.ai", "field": "spec.suspend", "value": true, "previousValue": null,
    });
    json!({
        "name": format!("paused-{number}"), "namespace": namespace(number),
        "uid": format!("{number:08x}-cccc-4def-8123-456789abcdef"),
        "annotations": {"tenure.dev/paused": record.to_string()},
    })
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
