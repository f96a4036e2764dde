//! Labels pods with their queue, if the `PodGroup` that named it has gone while they run.
//!
//! The keeper remembers the queue of such a pod as long as it runs. The label lets the next keeper know it, too: without it,
//! a pod would be in no queue after a restart, and so have no ceiling. The API server lets no tenant change the label of a
//! bound pod.

use std::{collections::HashMap, future::pending, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde_json::json;
use tenure_index::{CeilingIndex, Orphan, Uid};
use tenure_policy::expiry::Family;
use tenure_service::{call::ApiError, leadership::Leadership, log::with_causes};
use tenure_types::keys;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    api::ObjectClient, cluster::ClusterState, gate::FreshnessGate, limit::WriteLimit, rounds::Rounds,
    slots::TakenSlot,
};

/// The time between two rounds. A `PodGroup` that is made again at once leaves a label all the same.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(2);

/// The time until a pod that couldn't be labelled is tried again.
const RETRY: Duration = Duration::from_mins(1);

/// The same where the API server has refused it: a `PodGroup` may name what no label may be.
const RETRY_REFUSED: Duration = Duration::from_hours(1);

/// Labels pods with the queue that their `PodGroup` named.
pub struct QueueLabels {
    pub gate: FreshnessGate,
    pub cluster: ClusterState,
    pub objects: ObjectClient,
    pub limit: WriteLimit,
}

impl QueueLabels {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || {}).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut rounds = Rounds::new(|orphan: &Orphan| (orphan.uid, orphan.namespace.as_str()));
        let later: Mutex<HashMap<Uid, Instant>> = Mutex::default();
        let find = || self.orphans(&mut later.lock());
        let label = async |orphan: &Orphan, slot: &TakenSlot| {
            if let Some(after) = self.label(orphan, slot).await {
                later.lock().insert(orphan.uid, Instant::now() + after);
            }
        };
        rounds.run(shutdown, BETWEEN_ROUNDS, pending::<()>, find, label).await;
    }

    /// Returns the pods to label that are not tried again later.
    fn orphans(&self, later: &mut HashMap<Uid, Instant>) -> Vec<Orphan> {
        if !self.gate.is_open() {
            return Vec::new();
        }
        later.retain(|_, at| *at > Instant::now());
        let mut orphans = self.cluster.with(CeilingIndex::orphans);
        orphans.retain(|orphan| !later.contains_key(&orphan.uid));
        orphans
    }

    /// Labels a pod; returns the time until the next try if that failed.
    async fn label(&self, orphan: &Orphan, slot: &TakenSlot) -> Option<Duration> {
        let Orphan { uid, namespace, name, family, queue } = orphan;
        self.limit.until_ready().await;
        let uid = uid.text();
        let key = match family {
            Family::Runai => keys::RUNAI_QUEUE_LABEL,
            Family::Tensorstack => keys::TENSORSTACK_QUEUE_LABEL,
        };
        let pod = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: name.clone(),
            uid: uid.clone(),
            ..OwnerReference::default()
        };
        let patch = json!({"metadata": {"uid": uid, "labels": {key: queue}}});
        if !self.gate.is_open() {
            return None;
        }
        match slot.watch(self.objects.merge(namespace, &pod, &patch)).await {
            Ok(_) => {
                info!(%namespace, pod = %name, %queue, "Labelled a pod with the queue of its PodGroup, which has gone");
                None
            }
            Err(error @ (ApiError::NotFound | ApiError::Stale(_) | ApiError::NotLeading)) => {
                debug!(%namespace, pod = %name, error = with_causes(&error), "Not labelled");
                None
            }
            Err(api_error) => {
                if api_error.is_open() {
                    slot.trouble();
                }
                let error = with_causes(&api_error);
                warn!(%namespace, pod = %name, %queue, error, "Failed to label a pod with the queue of its PodGroup, which has gone: will try again");
                Some(if matches!(api_error, ApiError::Refused(_)) { RETRY_REFUSED } else { RETRY })
            }
        }
    }
}
