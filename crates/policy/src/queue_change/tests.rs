use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{floor::Floors, tree::QueueTree};

fn read(spec: &Value) -> RunaiQueue {
    RunaiQueue::read(&serde_json::from_value(spec.clone()).unwrap()).0
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Queues by name and spec, and the starts of their workloads.
struct World {
    tree: QueueTree,
    running: HashMap<String, RunningWorkloads>,
    grace: ExtendedDuration,
}

impl World {
    fn new(queues: &[(&str, Value, &[i64])]) -> Self {
        let tree = queues.iter().map(|(name, spec, _)| (*name, read(spec))).collect();
        let running = |starts: &[i64]| RunningWorkloads {
            workloads: u64::try_from(starts.len()).unwrap(),
            runs: Runs::of(starts.iter().map(|start| at(*start)).collect()),
        };
        let running = queues.iter().map(|(name, _, starts)| ((*name).to_owned(), running(starts)));
        Self { tree, running: running.collect(), grace: ExtendedDuration::ZERO }
    }

    /// An hour after the beginning.
    fn known<T>(&self, ask: impl FnOnce(&QueueChangeFacts<'_, '_>) -> T) -> T {
        let floors = Floors::default();
        let queues = &Inheritance::new(&self.tree, &floors);
        let notice = "5m".parse().unwrap();
        ask(&QueueChangeFacts {
            queues,
            running: &self.running,
            notice,
            grace: GraceOnChange(self.grace),
            now: at(3_600),
        })
    }

    /// The warning of a change of a queue, or of its creation.
    fn ended(&self, name: &str, new: &Value) -> Option<String> {
        let old = self.tree.queue(name).map(|(_, queue)| queue);
        self.known(|known| known.ended("spec.maxDuration", name, &read(new), old))
    }
}

#[test]
fn a_shorter_ceiling_ends_those_that_have_run_for_longer() {
    let world = World::new(&[("a", json!({"maxDuration": "10h"}), &[0, 1_800, 3_500])]);
    assert_eq!(
        world.ended("a", &json!({"maxDuration": "20m"})).unwrap(),
        "spec.maxDuration: this ends 2 running workloads of queue \"a\", which have run for longer than 20m: paused at once, or deleted where nothing can be paused"
    );
    assert_eq!(world.ended("a", &json!({"maxDuration": "2h"})), None, "none has run for that long");
    assert_eq!(world.ended("a", &json!({"maxDuration": "20h"})), None);
    assert_eq!(world.ended("a", &json!({})), None);
    assert_eq!(world.ended("a", &json!({"maxDuration": "10h", "priority": 5})), None);
    let first = World::new(&[("a", json!({}), &[0])]);
    assert!(first.ended("a", &json!({"maxDuration": "20m"})).unwrap().contains("ends 1 running workload of"));
}

#[test]
fn those_below_obey_their_ancestors() {
    let world = World::new(&[
        ("root", json!({}), &[]),
        ("a", json!({"parentQueue": "root"}), &[0, 0]),
        ("b", json!({"parentQueue": "a", "maxDuration": "2h"}), &[0]),
        ("short", json!({"parentQueue": "a", "maxDuration": "30m"}), &[2_000]),
        ("c", json!({"parentQueue": "other"}), &[0]),
        ("other", json!({"maxDuration": "1m"}), &[]),
    ]);
    let warning = world.ended("root", &json!({"maxDuration": "40m"})).unwrap();
    assert!(warning.contains("ends 3 running workloads of queues \"a\", \"b\", which"), "{warning}");
    let moved = world.ended("a", &json!({"parentQueue": "other"})).unwrap();
    assert!(moved.contains("ends 4 running workloads of queues \"a\", \"b\", \"short\""), "{moved}");
    assert!(moved.contains("longer than 1m"), "{moved}");
    assert_eq!(world.ended("a", &json!({"parentQueue": "root", "maxDuration": "3h"})), None);
}

#[test]
fn a_queue_that_is_created_above_others_may_end_their_runs() {
    let world = World::new(&[("a", json!({"parentQueue": "root"}), &[0])]);
    assert!(world.ended("root", &json!({"maxDuration": "40m"})).is_some());
    assert_eq!(world.ended("root", &json!({})), None);
}

#[test]
fn of_many_workloads_the_least_number_is_shown() {
    let starts: Vec<i64> = (0..200).collect();
    let world = World::new(&[("a", json!({}), &starts)]);
    let warning = world.ended("a", &json!({"maxDuration": "3500s"})).unwrap();
    assert!(warning.contains("ends at least 100 running workloads"), "{warning}");
    let all = world.ended("a", &json!({"maxDuration": "1s"})).unwrap();
    assert!(all.contains("ends 200 running workloads"), "{all}");
}

#[test]
fn with_a_grace_those_that_get_a_notice_end_later() {
    let mut world = World::new(&[("a", json!({}), &[0])]);
    world.grace = "60s".parse().unwrap();
    let warning =
        |notice: &str| world.ended("a", &json!({"maxDuration": "1s", "expiryNotice": notice})).unwrap();
    assert!(warning("5m").contains("paused within 60s, after a notice, or"), "{}", warning("5m"));
    assert!(warning("0s").contains("paused at once, or"), "{}", warning("0s"));
}

#[test]
fn a_slice_is_no_shorter_than_its_floor() {
    let world = World::new(&[("a", json!({"reclaimMinRuntime": "50m"}), &[0, 1_800])]);
    let slice = json!({"maxDuration": "1s", "maxDurationAction": "Requeue", "reclaimMinRuntime": "50m"});
    let warning = world.ended("a", &slice).unwrap();
    assert!(warning.contains("ends 1 running workload of"), "{warning}");
}

#[test]
fn queues_in_a_circle_do_no_harm() {
    let world =
        World::new(&[("a", json!({"parentQueue": "b"}), &[0]), ("b", json!({"parentQueue": "a"}), &[0])]);
    assert!(world.ended("a", &json!({"maxDuration": "1s"})).is_some());
    assert_eq!(world.known(|known| known.deleted("a")).len(), 2);
}

#[test]
fn a_deletion_says_who_loses_what() {
    let world = World::new(&[
        ("root", json!({"maxDuration": "1h"}), &[]),
        ("a", json!({"parentQueue": "root"}), &[0, 5]),
        ("b", json!({"parentQueue": "a"}), &[0]),
        ("c", json!({"parentQueue": "b"}), &[0, 1, 2]),
        ("lonely", json!({}), &[]),
    ]);
    let deleted = |name: &str| world.known(|known| known.deleted(name));
    assert_eq!(
        deleted("a"),
        [
            "2 running workloads name queue \"a\": without the queue they have no ceiling, and only the default floors",
            "queue \"b\" is below queue \"a\", and becomes a top-level queue, without the ceiling of 1h of queue \"root\": this affects 4 running workloads",
        ]
    );
    assert_eq!(deleted("lonely"), Vec::<String>::new());
    assert_eq!(deleted("gone"), Vec::<String>::new());
}

/// A tree of three levels with any durations, actions and floors.
fn chain() -> impl Strategy<Value = [Value; 3]> {
    let duration = || proptest::option::of(1..40u32);
    let queue = (duration(), duration(), proptest::bool::ANY).prop_map(|(ceiling, floor, requeues)| {
        let text = |hours: Option<u32>| hours.map(|hours| format!("{hours}h"));
        let action = if requeues { "Requeue" } else { "Pause" };
        json!({"maxDuration": text(ceiling), "preemptMinRuntime": text(floor), "maxDurationAction": action})
    });
    [queue.clone(), queue.clone(), queue]
}

proptest! {
    /// Such a change is answered without a look at the queues below.
    #[test]
    fn a_longer_ceiling_ends_no_run(specs in chain(), longer in proptest::option::of(0..40u32)) {
        let [mut top, mut middle, mut leaf] = specs;
        (middle["parentQueue"], leaf["parentQueue"]) = (json!("top"), json!("middle"));
        let longest = |top: &Value| {
            let queues = [("top", top), ("middle", &middle), ("leaf", &leaf)];
            let tree: QueueTree = queues.into_iter().map(|(name, spec)| (name, read(spec))).collect();
            let of = |(name, _)| EffectiveValues::of(&tree, &Floors::default(), tree.find(name).unwrap()).longest_run;
            queues.map(of)
        };
        let (old, before) = (read(&top), longest(&top));
        top["maxDuration"] = json!(longer.map(|hours| format!("{hours}h")));
        if shortens_nothing(&read(&top), &old) {
            for (before, after) in before.into_iter().zip(longest(&top)) {
                prop_assert!(after.is_none_or(|after| before.is_some_and(|before| before <= after)));
            }
        }
    }
}
