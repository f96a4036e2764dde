//! Every decision that Tenure takes, as pure functions: no IO, no clock, no randomness. `now` is an
//! argument.
//!
//! The webhook, the keeper, the kubectl plugin and the index call these modules, so that the same
//! facts lead to the same decision in all of them. The callers read the cluster, gather the facts
//! and write the results.

pub mod admission;
#[cfg(test)]
mod cases;
pub mod ceiling;
pub mod climb;
pub mod config;
pub mod creation;
pub mod delegation;
pub mod deletion;
pub mod expiry;
pub mod extension;
mod family;
pub mod field;
pub mod floor;
pub mod gang;
pub mod guard;
pub mod inheritance;
pub mod judge;
pub mod kai;
pub mod kueue;
pub mod limits;
pub mod marks;
pub mod message;
pub mod naming;
pub mod notice;
pub mod owner_table;
pub mod pause;
pub mod pod_group;
pub mod preemption;
pub mod queue;
pub mod queue_change;
pub mod queue_status;
pub mod queue_update;
pub mod ready;
pub mod reason;
pub mod requeue;
pub mod review;
pub mod runs;
pub mod start;
pub mod toleration;
pub mod tree;
pub mod turns;
pub mod usage;
pub mod victims;
