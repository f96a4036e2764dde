//! Reads queues again right before an act, because a watch that is held back looks like one without
//! news.
//!
//! The `Pauser` asks before it ends a run, and the controller of Extensions before it grants time.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    time::{Duration, Instant},
};

use kube::{Api, Client, Resource, api::ListParams};
use parking_lot::Mutex;
use tenure_index::ReadQueue;
use tenure_policy::{expiry::Family, owner_table::is_subdomain};
use tenure_service::call::{ApiError, call};
use tenure_types::{
    projection::{RunaiQueueObject, RunaiQueueV2Object, TensorstackQueueObject},
    runai::QueueVersion,
    tolerant::{Tolerant, TolerantObject},
};

use crate::{api::if_found, cluster::ClusterState};

/// The time for which a reading counts: the workloads of a queue often expire together.
const READING_AGE: Duration = Duration::from_secs(1);

/// The number of readings from which on old ones are dropped.
const READINGS: usize = 1_000;

/// Compares queues with what their watches have shown.
pub struct QueueReader {
    client: Client,
    cluster: ClusterState,
    version: QueueVersion,
    t9k_system_namespace: String,
    /// The queues that were read a moment ago: when, and whether they matched the index.
    readings: Mutex<BTreeMap<(Family, String), (Instant, bool)>>,
}

impl QueueReader {
    /// Creates a reader without readings. `version` is the one in which queues of the run.ai family
    /// are read, and `t9k_system_namespace` the namespace of T9k's queues.
    pub fn new(
        client: Client,
        cluster: &ClusterState,
        version: QueueVersion,
        t9k_system_namespace: String,
    ) -> Self {
        let (cluster, readings) = (cluster.clone(), Mutex::default());
        Self { client, cluster, version, t9k_system_namespace, readings }
    }

    /// True if the API server has a queue, and all queues on its path to the root, as the watches
    /// have shown them. An error decides nothing.
    pub async fn are_as_known(&self, family: Family, queue: &str) -> Result<bool, ApiError> {
        let path = self.cluster.with(|index| index.queues(family).path(queue));
        for name in path.into_iter().filter(|name| !name.is_empty()) {
            if !self.is_as_known(family, name).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Forgets all readings, so that the next comparison reads again.
    #[cfg(test)]
    pub fn forget(&self) {
        self.readings.lock().clear();
    }

    /// Returns the reading of a queue, which is at most a second old.
    async fn is_as_known(&self, family: Family, name: String) -> Result<bool, ApiError> {
        let key = (family, name);
        let known = self.readings.lock().get(&key).copied();
        if let Some((_, is_same)) = known.filter(|(at, _)| at.elapsed() < READING_AGE) {
            return Ok(is_same);
        }
        let at = Instant::now();
        let is_same = self.compare(family, &key.1).await?;
        let mut readings = self.readings.lock();
        if readings.len() >= READINGS {
            readings.retain(|_, (at, _)| at.elapsed() < READING_AGE);
        }
        readings.insert(key, (at, is_same));
        Ok(is_same)
    }

    /// Reads a queue in the kind of its family, and compares it with the index.
    async fn compare(&self, family: Family, name: &str) -> Result<bool, ApiError> {
        let client = self.client.clone();
        match (family, self.version) {
            (Family::Tensorstack, _) => {
                let queues = Api::namespaced(client, &self.t9k_system_namespace);
                self.is_same::<TensorstackQueueObject>(queues, name).await
            }
            (Family::Runai, QueueVersion::V3alpha1) => {
                self.is_same::<RunaiQueueObject>(Api::all(client), name).await
            }
            (Family::Runai, QueueVersion::V2) => {
                self.is_same::<RunaiQueueV2Object>(Api::all(client), name).await
            }
        }
    }

    /// Reads one queue, and compares it with the index. A queue that can't be decoded counts as
    /// absent, and so does one whose name no object can have: users write any text. The read is a
    /// list by name: unlike a get, it needs no right beside that of the watch.
    async fn is_same<Q>(&self, queues: Api<Tolerant<Q>>, name: &str) -> Result<bool, ApiError>
    where
        Q: ReadQueue + Resource<DynamicType = ()> + Clone + TolerantObject + Debug,
    {
        let mut queue = None;
        if is_subdomain(name) {
            let one = ListParams::default().fields(&format!("metadata.name={name}"));
            // None: the kind isn't installed
            let list = if_found(call(queues.list(&one)).await)?;
            queue = list.and_then(|list| list.items.into_iter().next()?.0.ok());
        }
        Ok(self.cluster.with(|index| index.queues(Q::FAMILY).knows(name, queue.as_ref())))
    }
}
