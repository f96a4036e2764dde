//! Preemption by a stock kube-scheduler with Tenure as its extender.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod elastic;
mod floors;
mod instead;
mod kept;
mod tolerations;
mod volumes;
mod waiting;

use serde_json::Value;
use tenure_tests::{World, scheduling};
use tokio::sync::OnceCell;

/// All tests share a cluster; each has a node of its own.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(async || scheduling::world("preemption", &Value::Null).await).await.unwrap()
}
