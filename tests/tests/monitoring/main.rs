//! The chart's alerts and dashboard: by Prometheus' own parser and engine, and on the metrics of a keeper and a webhook that
//! run.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod alerts;
mod expressions;
mod past;
mod promql;
mod running;
mod secure;
