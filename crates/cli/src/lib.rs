//! The kubectl plugin: lists workloads with the ends of their runs, resumes and extends them, and
//! explains decisions.
//!
//! The program `kubectl-tenure` runs [`Cli`], which has one module for each command. The crates of
//! the tests read objects from files with [`objects`]. The plugin acts with the rights of its user
//! alone.

mod access;
mod args;
mod change;
mod cluster;
mod completion;
mod config;
mod deactivate;
mod explain;
mod extend;
mod extensions;
mod floors;
mod forecast;
mod input;
mod list;
mod matrix;
mod print;
mod queue;
mod requeue_schedule;
mod resume;
mod run;
mod simulate;
mod snapshot;
mod status;
mod ui;
mod usage;
mod validate;

pub use args::Cli;
pub use input::{Document, objects};

/// Makes ring the process's provider of cryptography: the first line of `main`. kube would panic
/// without a provider.
pub fn install_crypto_provider() {
    // an error means that one is installed already
    let _ = rustls::crypto::ring::default_provider().install_default();
}
