//! `countFrom: Creation`.

use super::*;

fn from_creation() -> CeilingIndex {
    index(json!({"waitForPodsReady": {"timeout": "5m", "countFrom": "Creation"}}))
}

#[test]
fn who_is_never_placed_is_due_after_its_creation_where_that_counts() {
    let mut index = from_creation();
    index.apply_pod(&younger(7, "a", "job", Is::Waiting));
    assert_eq!(due(&mut index), Some(307));
    let due = evicted(&mut index, at(400)).unwrap().first;
    assert_eq!((due.queue.as_str(), due.cause), ("q", Cause::WaitForStart));
    let mut index = from_creation();
    index.apply_pod(&younger(7, "a", "job", Is::Scheduled(100)));
    assert_eq!(super::due(&mut index), Some(307), "the time goes on when it is placed");
    index.apply_pod(&younger(7, "a", "job", Is::Ready));
    assert_eq!(super::due(&mut index), None);
}

#[test]
fn a_gang_that_is_partly_placed_or_not_at_all_is_due_after_the_creation_of_its_first_pod() {
    for first in [Is::Waiting, Is::Scheduled(200), Is::Ready] {
        let mut index = from_creation();
        gang_of_two(&mut index);
        index.apply_pod(&pod("a", "job", first));
        index.apply_pod(&younger(60, "b", "job", Is::Waiting));
        assert_eq!(due(&mut index), Some(300));
        let group = evicted(&mut index, at(301)).unwrap();
        assert_eq!(group.pods().count(), 2, "one pause serves both");
    }
}

#[test]
fn to_replace_pods_that_wait_one_after_the_other_gains_no_time() {
    let mut index = from_creation();
    gang_of_two(&mut index);
    index.apply_pod(&pod("a", "job", Is::Waiting));
    index.apply_pod(&pod("b", "job", Is::Waiting));
    for (created, new, old) in [(100, "c", "a"), (200, "d", "b"), (290, "e", "c"), (295, "f", "d")] {
        index.apply_pod(&younger(created, new, "job", Is::Waiting));
        index.delete_pod(Uid::of(old));
        assert_eq!(due(&mut index), Some(300));
    }
    index.apply_pod(&younger(290, "e", "job", Is::Scheduled(5)));
    assert_eq!(due(&mut index), Some(300), "nor does it when one is placed");
}

#[test]
fn the_pods_of_another_try_are_counted_from_their_own_creation() {
    let mut index = from_creation();
    gang_of_two(&mut index);
    index.apply_pod(&pod("a", "job", Is::Waiting));
    assert_eq!(due(&mut index), Some(300));
    index.delete_pod(Uid::of("a"));
    index.apply_pod(&younger(500, "b", "job", Is::Waiting));
    assert_eq!(due(&mut index), Some(800), "none was there in between");
    index.apply_pod(&younger(500, "b", "job", Is::Ready));
    index.apply_pod(&younger(900, "c", "job", Is::Waiting));
    index.delete_pod(Uid::of("b"));
    assert_eq!(due(&mut index), Some(1200), "that run has ended");
}

#[test]
fn after_a_gap_of_the_watch_what_waits_is_counted_by_the_pods_that_are_there() {
    let mut index = from_creation();
    gang_of_two(&mut index);
    index.apply_pod(&pod("a", "job", Is::Waiting));
    assert_eq!(due(&mut index), Some(300));
    index.begin_pods();
    index.apply_pod(&younger(500, "b", "job", Is::Waiting));
    index.retain_pods(&HashSet::from([Uid::of("b")]));
    assert_eq!(due(&mut index), Some(800), "it may have been gone meanwhile");
}

#[test]
fn a_queue_can_turn_off_what_an_ancestor_or_the_configuration_turns_on() {
    let configured = serde_json::from_value::<WaitForPodsReady>(json!({"timeout": "10s"})).unwrap();
    let off = json!({"waitForPodsReady": {"enable": false}});
    for (root, leaf, expected) in [
        (json!({}), off.clone(), None),
        (waiting("20s"), off.clone(), None),
        (off.clone(), json!({}), None),
        (off, waiting("20s"), Some(20)),
    ] {
        let mut index = index_with(Some(PodsReady::from(&configured)));
        let mut leaf = leaf;
        leaf["parentQueue"] = json!("root");
        queue(&mut index, "root", root);
        queue(&mut index, "q", leaf.clone());
        index.apply_pod(&pod("a", "job", Is::Scheduled(0)));
        assert_eq!(due(&mut index), expected, "{leaf}");
    }
}
