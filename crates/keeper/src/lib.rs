//! The keeper: the controller that holds runs to the ceilings of their queues.
//!
//! The program `tenure-keeper` calls [`Args::run`]; all modules are private. `tenure-index` keeps
//! the state of the cluster, and `tenure-policy` makes the decisions. This crate has the watches,
//! the calls to the API server, and the controllers. Only the keeper that leads writes to the
//! cluster. The others keep their watches going, and stand by.

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
mod object_work;
mod outbox;
mod owner_watches;
mod pod_notices;
mod poller;
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
