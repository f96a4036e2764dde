//! Every decision that Tenure takes, as pure functions: no IO, no clock, no randomness. `now` is an argument.

pub mod admission;
pub mod ceiling;
pub mod climb;
pub mod config;
pub mod delegation;
pub mod expiry;
pub mod field;
pub mod floor;
pub mod gang;
pub mod guard;
pub mod kueue;
pub mod limits;
pub mod owners;
pub mod pause;
pub mod pod_group;
pub mod preemption;
pub mod queue;
pub mod queue_status;
pub mod queue_update;
pub mod ready;
pub mod requeue;
pub mod review;
pub mod start;
pub mod toleration;
pub mod tree;
pub mod victims;
