//! Stamps each `PodGroup` with its start time, from the conditions of its pods.

use std::collections::HashSet;

use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde_json::json;
use tenure_index::{CeilingIndex, Stamped, Stamping};
use tenure_policy::start;
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tenure_types::{keys, podgroup::PodGroupKind};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    api::ObjectClient,
    cluster::ClusterState,
    limit::WriteLimit,
    metrics::{Metrics, StampResult},
    sleep,
};

/// The number of groups that are written at the same time. The limiter sets the rate; this only hides latency.
const AT_ONCE: usize = 16;

/// Keeps the stamps of `PodGroup`s right.
pub struct Stamps {
    cluster: ClusterState,
    clock: ServerClock,
    objects: ObjectClient,
    limit: WriteLimit,
    metrics: Metrics,
    dry_run: bool,
    /// Kinds that can't be written, as was said.
    refused: Mutex<HashSet<PodGroupKind>>,
}

#[derive(Debug, Error)]
enum StampError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("the API server took the patch, but a webhook has set the annotation back or dropped it")]
    Dropped,
}

impl Stamps {
    /// Takes a `limit` apart from that of pauses, which must not wait for a stamp. A dry run decides everything, and writes
    /// nothing.
    pub fn new(
        cluster: ClusterState,
        clock: ServerClock,
        objects: ObjectClient,
        limit: WriteLimit,
        metrics: Metrics,
        dry_run: bool,
    ) -> Self {
        Self { cluster, clock, objects, limit, metrics, dry_run, refused: Mutex::default() }
    }

    /// Works whenever this keeper leads, until `shutdown`; then finishes what is in flight.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(
            shutdown,
            async || self.work(shutdown).await,
            || self.cluster.with(CeilingIndex::release_stamps),
        )
        .await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut changes = self.cluster.changes();
        let mut writes = FuturesUnordered::new();
        loop {
            let open = !shutdown.is_cancelled();
            while open
                && writes.len() < AT_ONCE
                && let Some(stamping) = self.cluster.with(|index| index.claim_stamp(self.clock.now()))
            {
                writes.push(self.stamp(stamping));
            }
            if !open && writes.is_empty() {
                return;
            }
            tokio::select! {
                Some(()) = writes.next() => {}
                () = self.next_retry(), if open && writes.len() < AT_ONCE => {}
                () = changes.next(), if open => {}
                () = shutdown.cancelled(), if open => {}
            }
        }
    }

    async fn next_retry(&self) {
        sleep::towards(&self.clock, self.cluster.with(|index| index.next_stamp())).await;
    }

    async fn stamp(&self, stamping: Stamping) {
        let stamped = if self.dry_run {
            self.count(&stamping, StampResult::WouldStamp);
            let (namespace, group, start) = (&stamping.namespace, describe(&stamping), stamping.start);
            info!(%namespace, group, %start, "Dry run: would stamp");
            Stamped::Said
        } else {
            let result = self.write(&stamping).await;
            self.record(&stamping, result)
        };
        // ends may have moved
        self.cluster.change(|index| index.settle_stamp(&stamping, stamped, self.clock.now()));
    }

    /// Returns the version that the group has then.
    async fn write(&self, stamping: &Stamping) -> Result<String, StampError> {
        self.limit.until_ready().await;
        let Stamping { namespace, uid, resource_version, start, .. } = stamping;
        let patch = json!({"metadata": {
            "uid": uid,
            "resourceVersion": resource_version,
            "annotations": {keys::LAST_START_ANNOTATION: start::write(*start)},
        }});
        let written = self.objects.merge(namespace, &reference(stamping), &patch).await?;
        if start::stamp(&written.metadata) == Some(Ok(*start)) {
            Ok(written.metadata.resource_version.unwrap_or_default())
        } else {
            Err(StampError::Dropped)
        }
    }

    fn record(&self, stamping: &Stamping, result: Result<String, StampError>) -> Stamped {
        let (namespace, group, start) = (&stamping.namespace, describe(stamping), stamping.start);
        match result {
            Ok(version) => {
                self.refused.lock().remove(&stamping.kind);
                self.count(stamping, StampResult::Stamped);
                debug!(%namespace, group, %start, "Stamped");
                Stamped::Written(version)
            }
            Err(StampError::Api(ApiError::Stale(_) | ApiError::NotFound | ApiError::NotLeading)) => {
                self.count(stamping, StampResult::Stale);
                debug!(%namespace, group, "Changed or gone before it was stamped");
                Stamped::Stale
            }
            Err(error) => {
                self.count(stamping, StampResult::Failed);
                self.complain(stamping, &error);
                Stamped::Failed
            }
        }
    }

    fn complain(&self, stamping: &Stamping, error: &StampError) {
        let (namespace, group) = (&stamping.namespace, describe(stamping));
        let text = with_causes(error);
        let remedy = match error {
            StampError::Api(ApiError::Forbidden(_)) => Some("grant patch of podgroups to the keeper"),
            StampError::Dropped => Some("add the keeper's user to trustedWriters of the webhook"),
            StampError::Api(_) => None,
        };
        match remedy {
            // an API server that has just started forbids everything for a moment, and the webhook's clock may be behind
            Some(remedy) if stamping.attempts > 0 => {
                if self.refused.lock().insert(stamping.kind) {
                    let api_group = stamping.kind.group();
                    warn!(api_group, %namespace, group, error = text, remedy, "Can't stamp PodGroups of this kind");
                }
            }
            Some(_) => debug!(%namespace, group, error = text, "Failed to stamp"),
            _ if stamping.attempts > 0 => debug!(%namespace, group, error = text, "Failed again to stamp"),
            _ => warn!(%namespace, group, error = text, "Failed to stamp: will try again"),
        }
    }

    fn count(&self, stamping: &Stamping, result: StampResult) {
        self.metrics.stamped(stamping.kind.group(), result);
    }
}

/// Returns the reference by which an object that the `PodGroup` owned would name it. Any served version will do.
fn reference(stamping: &Stamping) -> OwnerReference {
    let version = stamping.kind.versions().first().copied().unwrap_or_default();
    OwnerReference {
        api_version: format!("{}/{version}", stamping.kind.group()),
        kind: "PodGroup".into(),
        name: stamping.name.clone(),
        uid: stamping.uid.clone(),
        ..OwnerReference::default()
    }
}

/// A group for people: `test (scheduling.run.ai)`.
fn describe(stamping: &Stamping) -> String {
    format!("{} ({})", stamping.name, stamping.kind.group())
}
