//! A keeper in a dry run.

use serde_json::json;
use tenure_tests::{audit, keeper::Keeper};

use super::{
    empty_world,
    scene::{PAUSED, annotation, job, place, waiting},
};

#[tokio::test]
async fn a_dry_run_records_the_eviction_and_writes_nothing_else() {
    let world = empty_world().await;
    let keeper = Keeper::start(&world, &["--dry-run"]).await;
    let namespace = place(&world, &waiting(&json!({"backoffLimitCount": 0}))).await;
    let job = job(&namespace, "train").await;
    let events = namespace.await_events_of("DeactivatedDueToRequeuingLimitExceeded", 1).await;
    assert!(
        events[0].starts_with("Job/train: Dry run, nothing was done: Set spec.suspend to true"),
        "{events:?}"
    );
    assert_eq!(annotation(&namespace, &job, PAUSED).await, None);
    assert_eq!(namespace.field(&job, "spec.suspend").await, json!(false));
    keeper.stop().await;
    audit::assert_changes(&world.cluster, namespace.name(), &[""; 0]).await;
}
