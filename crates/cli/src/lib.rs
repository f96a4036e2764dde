//! The kubectl plugin: lists workloads with the ends of their runs, resumes and extends them, and explains decisions.

mod age;
mod args;
mod change;
mod cluster;
mod completion;
mod config;
mod connect;
mod deactivate;
mod explain;
mod extend;
mod extensions;
mod floors;
mod input;
mod kinds;
mod list;
mod listing;
mod matrix;
mod output;
mod pages;
mod queue;
mod requeue_schedule;
mod resume;
mod run;
mod server;
mod snapshot;
mod status;
mod table;
mod target;
mod tell;
mod usage;
mod validate;

pub use args::Cli;
pub use input::{Document, objects};

/// Makes ring the process's provider of cryptography: the first line of `main`. kube would panic without one.
pub fn install_crypto_provider() {
    // an error means that one is installed already
    let _ = rustls::crypto::ring::default_provider().install_default();
}
