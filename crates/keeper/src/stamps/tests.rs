use tokio::time::{Instant, sleep};

use super::*;
use crate::testing::{Keeper, until};

/// A keeper with a pod of a group in a namespace.
fn with_group(namespace: &str) -> Keeper {
    let keeper = Keeper::new();
    show(&keeper, namespace, 1);
    keeper.add_pod(namespace, "first", &in_group());
    keeper
}

fn in_group() -> serde_json::Value {
    json!({"annotations": {"pod-group-name": "gang"}})
}

/// Has the watch show a version of the group without a stamp.
fn show(keeper: &Keeper, namespace: &str, version: u32) {
    let group = json!({
        "metadata": {"name": "gang", "namespace": namespace, "uid": "g", "resourceVersion": version.to_string()},
        "spec": {"minMember": 1},
    });
    let group = serde_json::from_value(group).unwrap();
    keeper.handles.cluster.change(|index| index.apply_group(PodGroupKind::Runai, &group));
}

fn stamps(keeper: &Keeper) -> Stamps {
    Stamps::new(Arc::clone(&keeper.handles))
}

/// Stamps for a time, while each `every` shows another version of the group; returns the number of writes.
async fn stamp(keeper: &Keeper, stamps: &Stamps, namespace: &str, every: Duration, time: Duration) -> usize {
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let (begun, before) = (Instant::now(), keeper.server.writes(namespace));
    let changed = async {
        for version in 2.. {
            sleep(every.min(time.saturating_sub(begun.elapsed()))).await;
            if begun.elapsed() >= time {
                return;
            }
            show(keeper, namespace, version);
        }
    };
    until(stamps.run(&lead, &shutdown), changed).await;
    keeper.server.writes(namespace) - before
}

#[tokio::test(start_paused = true)]
async fn a_stamp_that_can_not_be_written_is_tried_ever_later_whatever_else_changes() {
    for namespace in ["fails-0", "drops-0"] {
        let keeper = with_group(namespace);
        let stamps = stamps(&keeper);
        let writes =
            stamp(&keeper, &stamps, namespace, Duration::from_secs(1), Duration::from_mins(30)).await;
        assert!((11..=19).contains(&writes), "{namespace}: {writes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_stamp_waits_for_the_next_version_at_most_for_a_while() {
    let keeper = with_group("stale-0");
    let stamps = stamps(&keeper);
    let minute = Duration::from_mins(1);
    let writes = stamp(&keeper, &stamps, "stale-0", minute, minute).await;
    assert!((11..=13).contains(&writes), "{writes}");
    let writes = stamp(&keeper, &stamps, "stale-0", Duration::from_secs(1), minute).await;
    assert!((58..=62).contains(&writes), "{writes}");
}

#[tokio::test(start_paused = true)]
async fn a_stamp_that_a_user_removes_again_and_again_comes_back_ever_later_until_another_run() {
    let keeper = with_group("fine-0");
    let stamps = stamps(&keeper);
    let every = Duration::from_millis(200);
    let writes = stamp(&keeper, &stamps, "fine-0", every, Duration::from_secs(4)).await;
    assert_eq!(writes, 3, "at once");
    let writes = stamp(&keeper, &stamps, "fine-0", every, Duration::from_secs(196)).await;
    assert_eq!(writes, 5, "after 5, 10, 20, 40 and 80 s");
    keeper.handles.cluster.change(|index| index.delete_pod(tenure_index::Uid::of("first")));
    keeper.add_pod("fine-0", "second", &in_group());
    let writes = stamp(&keeper, &stamps, "fine-0", every, Duration::from_secs(4)).await;
    assert_eq!(writes, 3, "of another run at once");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let mut keeper = with_group("fine-0");
    Arc::get_mut(&mut keeper.handles).unwrap().dry_run = true;
    let stamps = stamps(&keeper);
    let writes = stamp(&keeper, &stamps, "fine-0", Duration::from_secs(1), Duration::from_mins(1)).await;
    assert_eq!((writes, stamps.queue.waiting()), (0, 0));
}
