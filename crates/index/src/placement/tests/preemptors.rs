use std::collections::HashSet;

use super::*;

/// Pod p, which waits.
fn waiting(more: &Value) -> Value {
    let mut waiting = pod("p", 60, &json!({"spec": {"nodeName": null}, "status": {"conditions": []}}));
    merge(&mut waiting, more);
    waiting
}

fn known() -> Value {
    waiting(&json!({
        "spec": {"priority": 7, "schedulerName": "s", "preemptionPolicy": "Never"},
        "status": {"nominatedNodeName": "m"},
    }))
}

#[test]
fn a_pod_that_waits_is_known_with_all_that_a_question_needs() {
    let world = World::new(&[known()]);
    let expected = PendingPod {
        uid: "p".into(),
        namespace: "ns",
        name: "p",
        priority: 7,
        never_preempts: true,
        scheduler: "s",
        queue: Some("q"),
        nominated: Some("m"),
    };
    assert_eq!(world.index.pending_pod("p"), Some(expected));
    assert_eq!(world.index.pending_pod("P"), None);
    assert!(world.index.has_pod("p") && !world.index.has_pod("other"));
}

#[test]
fn a_text_that_is_too_long_to_name_a_scheduler_takes_no_memory() {
    let named = |length: usize| {
        let world = World::new(&[waiting(&json!({"spec": {"schedulerName": "s".repeat(length)}}))]);
        world.index.pending_pod("p").unwrap().scheduler.len()
    };
    assert_eq!((named(253), named(254), named(1 << 20)), (253, 0, 0));
}

#[test]
fn the_queue_of_a_pod_that_waits_is_that_of_its_group() {
    let mut world = World::new(&[waiting(&json!({"metadata": {"annotations": {"pod-group-name": "g"}}}))]);
    world.group(&json!({"queue": "other", "minMember": 1}));
    assert_eq!(world.index.pending_pod("p").unwrap().queue, Some("other"));
}

#[test]
fn a_pod_that_was_placed_is_terminating_or_has_ended_waits_no_more() {
    for more in [
        json!({"spec": {"nodeName": "n"}}),
        json!({"metadata": {"deletionTimestamp": NOW}}),
        json!({"status": {"phase": "Succeeded"}}),
    ] {
        let mut world = World::new(&[known()]);
        let mut changed = known();
        merge(&mut changed, &more);
        world.apply(&changed);
        assert_eq!(world.index.pending_pod("p"), None, "{more}");
    }
}

#[test]
fn schedulers_are_kept_for_as_long_as_their_pods_wait() {
    let kept = |world: &World| world.index.reader.schedulers.len();
    let mut world = World::new(&[known()]);
    assert_eq!(kept(&world), 1);
    let mut placed = known();
    merge(&mut placed, &json!({"spec": {"nodeName": "n"}}));
    world.apply(&placed);
    assert_eq!(kept(&world), 0);
    let mut world = World::new(&[known()]);
    world.index.delete_pod(Uid::of("p"));
    assert_eq!(kept(&world), 0);
    let mut world = World::new(&[known()]);
    world.index.retain_pods(&HashSet::new());
    assert_eq!(kept(&world), 0);
}

#[test]
fn a_node_is_known_that_there_is_or_that_has_pods() {
    let mut world = World::new(&[pod("a", 60, &json!({}))]);
    assert_eq!((world.index.node("n"), world.index.node("m")), (Some("n"), None));
    world.index.apply(Node { metadata: ObjectMeta { name: Some("m".into()), ..ObjectMeta::default() } });
    assert_eq!(world.index.node("m"), Some("m"));
}
