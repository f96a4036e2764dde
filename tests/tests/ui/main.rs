//! `kubectl tenure ui`: its server as any caller sees it, and its page in a real browser.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod browser;
mod files;
mod memory;
mod page;
mod picture;
mod requests;
mod users;

use tenure_tests::World;
use tokio::sync::OnceCell;

/// A cluster with webhook and keeper, for pages of namespaces.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(|| World::running("ui")).await.unwrap()
}
