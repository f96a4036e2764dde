//! The library of the end-to-end tests: a cluster with Tenure on it, and helpers for its users,
//! workloads, queues and faults. Called by the tests and benchmarks of this package alone.
//!
//! A helper that fails panics or returns an error, and so fails its test.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

pub mod asker;
pub mod audit;
pub mod callers;
pub mod failover;
pub mod faults;
pub mod fixtures;
pub mod inbox;
pub mod keeper;
pub mod neighbour;
pub mod pages;
pub mod plugin;
pub mod policies;
pub mod proxy;
pub mod queue_status;
pub mod queues;
pub mod scale;
pub mod scheduling;
pub mod served;
pub mod soak;
pub mod tenant;
pub mod usage_crowd;
pub mod workloads;

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use tenure_testbed::{Cluster, Tenure, eventually};

/// The longest time for any automatic change of a cluster.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Returns a namespace with this name.
fn namespace(name: &str) -> serde_json::Value {
    serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Returns the service account of pods that name none.
fn account(namespace: &str) -> serde_json::Value {
    let metadata = serde_json::json!({"name": "default", "namespace": namespace});
    serde_json::json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
}

/// A cluster with Tenure on it.
pub struct World {
    /// The control plane.
    pub cluster: Cluster,
    /// The chart and the programs.
    pub tenure: Tenure,
}

impl World {
    /// Returns a control plane with the chart installed and the T9k system namespace, but no
    /// program running. `values` are values of the chart, such as `guard.enabled=true`.
    pub async fn installed(name: &str, values: &[&str]) -> Result<Self> {
        Self::installed_with(name, values, &[]).await
    }

    /// Returns a world like [`installed`](Self::installed), with more flags of the keepers.
    pub async fn installed_with(name: &str, values: &[&str], keeper_flags: &[&str]) -> Result<Self> {
        Box::pin(Self::installed_on(Cluster::start(name).await?, values, keeper_flags)).await
    }

    /// Returns a world like [`installed`](Self::installed) on etcd and kube-apiserver alone, for
    /// tests that need no node and no controller of Kubernetes.
    pub async fn installed_alone(name: &str, values: &[&str]) -> Result<Self> {
        Box::pin(Self::installed_on(Cluster::start_api_server_alone(name).await?, values, &[])).await
    }

    /// Installs Tenure on a control plane that runs.
    pub async fn installed_on(cluster: Cluster, values: &[&str], keeper_flags: &[&str]) -> Result<Self> {
        // the tests themselves may move workloads
        let values = [&["tenancy.trustedWriters[0]=admin"], values].concat();
        // the future is large, and would be in every future around it
        let tenure = Box::pin(Tenure::install_with(&cluster, &values, keeper_flags)).await?;
        let system = workloads::Namespace::seen_by(cluster.client()?, "t9k-system");
        Box::pin(system.create(&namespace("t9k-system"))).await;
        Ok(Self { cluster, tenure })
    }

    /// Returns a world with webhook and keeper running.
    pub async fn running(name: &str) -> Result<Self> {
        Self::running_with(name, &[], &[]).await
    }

    /// Returns a world with webhook and keeper running, more values of the chart, and more flags of
    /// the keepers.
    pub async fn running_with(name: &str, values: &[&str], keeper_flags: &[&str]) -> Result<Self> {
        let world = Self::installed_with(name, values, keeper_flags).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        Ok(world)
    }

    /// Creates a namespace for a test, and returns its name once pods are accepted there.
    pub async fn namespace(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test-{}", NEXT.fetch_add(1, Relaxed));
        self.create_namespace(&name).await;
        name
    }

    /// Creates a namespace with this name, and returns once pods are accepted there.
    pub async fn create_namespace(&self, name: &str) {
        let client = self.cluster.client().unwrap();
        let created = workloads::Namespace::seen_by(client.clone(), name);
        created.create(&namespace(name)).await;
        if !self.cluster.has_controllers() {
            created.create(&account(name)).await;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(client, name);
        let default = async || Ok(accounts.get_opt("default").await?);
        eventually("the default service account", DEADLINE, default).await.unwrap();
    }

    /// Sets a label of a namespace. The API server's policies see the label a little later.
    pub async fn label_namespace(&self, name: &str, key: &str, value: &str) {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client().unwrap());
        let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {key: value}}}));
        namespaces.patch(name, &PatchParams::default(), &label).await.unwrap();
    }

    /// Applies an object that must be accepted, or the items of a `List` one after the other. An
    /// object that names no namespace is in `default`, if its kind has namespaces.
    pub async fn apply(&self, object: &serde_json::Value) {
        let namespace = workloads::Namespace::of(self, "default");
        for object in object["items"].as_array().map_or(std::slice::from_ref(object), Vec::as_slice) {
            // the future is large, and would be in every future around it
            Box::pin(namespace.apply(object)).await;
        }
    }
}
