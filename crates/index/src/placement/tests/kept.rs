//! The victims that floors keep.

use super::*;

/// Name, queue, requests of GPUs and seconds until the end of the floor of each victim that is kept.
fn kept(world: &World, preemptor: &Value, offer: &OfferedVictims<'_>) -> Vec<(Uid, String, i64, i64)> {
    let whole: PodWithRoom = serde_json::from_value(preemptor.clone()).unwrap();
    let (preemptor, room) = whole.split();
    let neighbor = neighbor(&preemptor, &room);
    let question = PreemptionRequest { rules: world.rules(), preemptor: &preemptor, neighbor };
    let now: Timestamp = NOW.parse().unwrap();
    let kept = world.index.kept(&question, offer).into_iter();
    kept.map(|pod| {
        let left = pod.until.duration_since(now).as_secs();
        (pod.uid, pod.queue, pod.requests.of("example.com/gpu"), left)
    })
    .collect()
}

#[test]
fn victims_within_their_floor_are_kept_until_it_ends_and_others_are_not() {
    let world = World::new(&[pod("young", 100, &json!({})), pod("old", 700, &json!({}))]);
    let of = offer("n", &["young", "old", "young", "unknown"]);
    assert_eq!(kept(&world, &preemptor(), &of), [(Uid::of("young"), "q".to_owned(), 1, 500)]);
    assert_eq!(kept(&world, &preemptor(), &offer("elsewhere", &["young"])), []);
    assert!(world.index.is_running(Uid::of("young")) && !world.index.is_running(Uid::of("unknown")));
}

#[test]
fn a_floor_that_does_not_hold_against_this_preemptor_keeps_nothing() {
    let world = World::new(&[pod("young", 100, &json!({}))]);
    let mut of_other = preemptor();
    of_other["metadata"]["labels"] = json!({"kai.scheduler/queue": "other"});
    assert_eq!(kept(&world, &of_other, &offer("n", &["young"])), []);
}

#[test]
fn a_pod_in_a_queue_that_does_not_exist_is_not_counted_under_its_name() {
    let invented = json!({"metadata": {"labels": {"kai.scheduler/queue": "invented"}}});
    let mut world = World::new(&[pod("young", 100, &invented)]);
    world.floors.reclaim = "10m".parse().unwrap();
    world.floors.preempt = world.floors.reclaim;
    assert_eq!(kept(&world, &preemptor(), &offer("n", &["young"])), []);
}
