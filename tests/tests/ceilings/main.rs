//! Ceilings on a real API server: the pods that they apply to, the owners that are paused, the answers at their creation,
//! the notice before, and more time that is granted.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod chains;
mod creation;
mod extensions;
mod notice;
mod selection;

use tenure_tests::{World, fixtures};
use tokio::sync::OnceCell;

/// A cluster with many kinds of owners. All tests share it; each has a namespace and queues of its own.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(|| fixtures::world("ceilings")).await.unwrap()
}
