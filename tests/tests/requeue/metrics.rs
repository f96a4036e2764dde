//! The keeper's metrics of evictions and returns.

use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, World, keeper::Metrics};

pub const EVICTIONS: &str = "tenure_keeper_pods_ready_evictions_total";
pub const DEACTIVATIONS: &str = "tenure_keeper_deactivations_total";
pub const RETURNS: &str = "tenure_keeper_returns_total";
pub const WAITING: &str = "tenure_keeper_waiting_to_return";
pub const TIME_TO_READY: &str = "tenure_keeper_pod_time_to_ready_seconds";

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// Waits until a cluster's own keeper has counted as much, and asserts that it isn't more.
pub async fn assert_counted(world: &World, name: &str, labels: &[(&str, &str)], expected: u64) {
    let enough = async || {
        let counted = Metrics::of_world(world).await.count(name, labels);
        Ok((counted >= expected).then_some(counted))
    };
    let what = format!("{expected} of {name} {labels:?}");
    assert_eq!(eventually(&what, DEADLINE, enough).await.unwrap(), expected, "{what}");
}

#[test]
fn the_page_of_metrics_lists_them_by_these_names() {
    for name in [EVICTIONS, DEACTIVATIONS, RETURNS, WAITING, TIME_TO_READY] {
        assert!(PAGE.contains(&format!("\n| `{name}` | ")), "{name}");
    }
}
