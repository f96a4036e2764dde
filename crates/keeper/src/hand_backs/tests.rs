use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;
use serde_json::json;
use tenure_types::keys;

use super::*;
use crate::testing::{Keeper, until};

/// The watch that shows the owners.
const SOURCE: u16 = 7;

/// Shows an object that bears a note. The API server shows each object with one.
fn add(keeper: &Keeper, namespace: &str, name: &str) {
    let note = json!({"uid": name, "fields": {}}).to_string();
    let metadata = json!({
        "name": name, "namespace": namespace, "uid": name, "annotations": {keys::HAND_BACK_ANNOTATION: note},
    });
    let metadata = serde_json::from_value(metadata).unwrap();
    keeper.handles.cluster.change(|index| index.apply_owner(SOURCE, &metadata));
}

fn keeper() -> (Keeper, HandBackController) {
    let keeper = Keeper::new();
    let handles = Arc::clone(&keeper.handles);
    // of a kind that any server has
    handles.cluster.shows(SOURCE, ApiResource::erase::<Pod>(&()));
    (keeper, HandBackController { limit: handles.limit(), handles })
}

#[tokio::test(start_paused = true)]
async fn owners_whose_hand_back_hangs_or_fails_hold_up_no_other_namespace() {
    let (keeper, controller) = keeper();
    for number in 0..40 {
        for failing in ["hangs-0", "fails-0", "refuses-0", "stale-0"] {
            add(&keeper, failing, &format!("{failing}-{number}"));
        }
    }
    for number in 0..10 {
        add(&keeper, &format!("fine-{number}"), &format!("fine-{number}"));
    }
    let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
    let waited = until(controller.run(&lead, &shutdown), keeper.server.written("fine-", 10)).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hand_back_that_is_refused_or_meets_changes_is_tried_again_after_growing_waits() {
    for (failing, writes_per_try) in [("refuses-0", 1), ("stale-0", 4)] {
        let (keeper, controller) = keeper();
        add(&keeper, failing, "failing");
        let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
        until(controller.run(&lead, &shutdown), sleep(Duration::from_hours(1))).await;
        let tries = keeper.server.writes(failing) / writes_per_try;
        assert!((10..40).contains(&tries), "{failing}: {tries}");
    }
}
