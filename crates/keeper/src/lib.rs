//! The keeper: watches in, policy, patches out.

mod action;
mod api;
mod args;
mod clock;
mod cluster;
mod events;
mod expiry;
mod metrics;

pub use args::Args;
