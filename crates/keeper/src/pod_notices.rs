//! Notes on the pods of a workload when its run ends, as its owner was told: a file of the downward API shows that inside
//! the pod. Nothing reads it back.

mod told;

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::json;
use tenure_index::Uid;
use tenure_policy::pause::{self, OwnerObject};
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tenure_types::keys;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    api::ObjectClient, cluster::ClusterState, config::Current, gate::FreshnessGate, limit::WriteLimit,
};

use told::PodToShow;
pub use told::ToldWorkloads;

/// The time between two rounds, in which pods are found that have come later.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(5);

/// Writes the end of runs on pods.
pub struct PodNotices {
    pub gate: FreshnessGate,
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub objects: ObjectClient,
    /// Shared with the announcements on owners.
    pub limit: Arc<WriteLimit>,
    pub config: Current,
    pub told: ToldWorkloads,
}

/// The result for one pod.
enum Shown {
    /// It shows the end, or never will: its own refusal is not asked again before the next notice.
    Done,
    /// It is gone, or terminates.
    Gone,
    /// It was changed at the same time: the next round tries again.
    Again,
}

impl PodNotices {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || self.told.clear()).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut rounds = tokio::time::interval(BETWEEN_ROUNDS);
        loop {
            tokio::select! {
                _ = rounds.tick() => {}
                () = self.told.changed() => {}
                () = shutdown.cancelled() => return,
            }
            if !self.config.get().notice_on_pods {
                self.told.clear();
            } else if self.gate.is_open()
                && let Err(error) = self.round(shutdown).await
            {
                debug!(error = with_causes(&error), "Failed to note the end of runs on pods: will try again");
            }
        }
    }

    /// Handles pods until none is left for which something can be done now.
    async fn round(&self, shutdown: &CancellationToken) -> Result<(), ApiError> {
        let mut has_progressed = true;
        while has_progressed {
            has_progressed = false;
            let now = self.clock.now();
            for pod in self.cluster.with(|index| self.told.next(index, now)) {
                if shutdown.is_cancelled() {
                    return Ok(());
                }
                match self.show(&pod).await? {
                    Shown::Done => self.told.shown(&pod),
                    Shown::Gone => self.told.gone(&pod),
                    Shown::Again => continue,
                }
                has_progressed = true;
            }
        }
        Ok(())
    }

    async fn show(&self, pod: &PodToShow) -> Result<Shown, ApiError> {
        let PodToShow { uid, namespace, name, end, .. } = pod;
        let found = match self.objects.pod_metadata(namespace, name).await {
            Err(ApiError::NotFound) => return Ok(Shown::Gone),
            found => found?,
        };
        if found.uid.as_deref().map(Uid::of) != Some(*uid) || found.deletion_timestamp.is_some() {
            return Ok(Shown::Gone);
        }
        if shown(&found) == end.map(|end| end.to_string()).as_deref() {
            return Ok(Shown::Done);
        }
        let reference = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: name.clone(),
            uid: found.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let patch = pause::show_end(OwnerObject(&json!({"metadata": found})), *end);
        self.limit.until_ready().await;
        match self.objects.merge(namespace, &reference, &patch).await {
            Ok(_) => Ok(Shown::Done),
            Err(ApiError::NotFound) => Ok(Shown::Gone),
            Err(ApiError::Stale(_)) => Ok(Shown::Again),
            Err(error) if error.is_open() || matches!(error, ApiError::NotLeading) => Err(error),
            Err(error) => {
                let error = with_causes(&error);
                warn!(%namespace, pod = %name, error, "Not allowed to note the end of its run on a pod");
                Ok(Shown::Done)
            }
        }
    }
}

/// The end that a pod shows.
fn shown(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(keys::EXPIRES_AT_ANNOTATION).map(String::as_str)
}
