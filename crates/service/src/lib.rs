//! The parts that the keeper and the webhook share as processes: argument groups, logs, a
//! configuration and a certificate that may change while they run, an API client, the admin port, a
//! shutdown that drains, watches that don't stall, the API server's clock, clients that show a
//! certificate, the election of a leader, and the [queue of work](work) of all controllers.
//!
//! Of the programs, only `tenure-keeper` and `tenure-webhook` depend on this crate. The kubectl
//! plugin, which runs for a moment, has a client of its own.

mod address;
pub mod admin;
pub mod call;
pub mod callers;
pub mod client;
pub mod clock;
pub mod config;
pub mod flags;
pub mod freshness;
pub mod gate;
pub mod groups;
pub mod leadership;
pub mod limit;
mod listener;
pub mod log;
pub mod metrics;
mod metrics_access;
pub mod pages;
pub mod process;
pub mod readiness;
pub mod served;
pub mod shutdown;
pub mod spans;
pub mod tls;
pub mod validity;
pub mod watch;
pub mod work;

/// Makes ring the process's provider of cryptography, without which kube and axum-server panic. The
/// first line of `main`. Later calls change nothing.
pub fn install_crypto_provider() {
    // an error means that one is installed already
    let _ = rustls::crypto::ring::default_provider().install_default();
}
