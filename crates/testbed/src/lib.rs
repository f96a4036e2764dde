//! A real Kubernetes control plane as local processes, for tests and for trying things out.
//!
//! [`Cluster::start`] brings up etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
//! kwok on loopback in a few seconds. Nodes and pods are played by kwok; everything else is the
//! real thing: admission, garbage collection, quotas, Deployments, Jobs, scheduling. No root, no
//! containers. Linux only.
//!
//! Pods become Running and Ready as soon as they are bound, and vanish as soon as they are deleted.
//! Two labels, with any value, change that: [`UNREADY`] and [`UNDYING`].
//!
//! Called by the end-to-end tests, by benchmarks, and by the program `testbed` of this package.
//! Servers end with the process that started them.

mod binaries;
mod build;
mod cluster;
mod command;
mod credentials;
mod directory;
mod nodes;
mod plan;
mod ports;
mod process;
mod programs;
mod server;
mod tenure;
mod wait;

pub use binaries::Binaries;
pub use cluster::{Cluster, NODES};
pub use command::Output;
pub use nodes::{UNDYING, UNREADY};
pub use plan::{SCHEDULERS, TYPE_CHECKER};
pub use ports::free_port;
pub use process::Process;
pub use programs::program;
pub use server::loopback;
pub use tenure::{KEEPERS, Keeper, RELEASE_NAMESPACE, Tenure};
pub use wait::eventually;

/// Makes ring the TLS provider of this process. [`Cluster::start`] does so too. A second call does
/// nothing.
pub fn install_crypto_provider() {
    // an error means that a provider is installed already
    let _ = rustls::crypto::ring::default_provider().install_default();
}
