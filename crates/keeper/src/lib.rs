//! The keeper: watches in, policy, patches out.

mod action;
mod api;
mod args;
mod cluster;
mod config;
mod events;
mod evidence;
mod expiry;
mod extensions;
mod floor_marks;
mod hand_backs;
mod handles;
mod history;
mod ledger;
mod messages;
mod metrics;
mod outbox;
mod owners;
mod pod_notices;
mod queues;
mod returns;
mod run;
mod short_help;
mod sleep;
mod stamps;
mod status;
mod stores;
mod terminations;
#[cfg(test)]
mod testing;

use tenure_service::{gate, limit};

pub use args::Args;
pub use short_help::short_help;
