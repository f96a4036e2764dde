//! Notes on the pods of a workload when its run ends, as its owner was told: a file of the downward API shows that inside
//! the pod. Nothing reads it back.

mod failing;
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
    rounds::Rounds, slots::TakenSlot,
};

use failing::FailingNamespaces;
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
    /// It was changed at the same time, or is to show another end by now: the next round tries again.
    Again,
}

impl PodNotices {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || self.told.clear()).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut rounds = Rounds::new(|pod: &PodToShow| (pod.uid, pod.namespace.as_str()));
        let failing = FailingNamespaces::default();
        let find = || self.missing(&failing);
        let show = async |pod: &PodToShow, slot: &TakenSlot| self.handle(pod, slot, &failing).await;
        rounds.run(shutdown, BETWEEN_ROUNDS, async || self.told.changed().await, find, show).await;
    }

    /// Returns the pods to write now.
    fn missing(&self, failing: &FailingNamespaces) -> Vec<PodToShow> {
        if !self.config.get().notice_on_pods {
            self.told.clear();
        } else if self.gate.is_open() {
            let now = self.clock.now();
            let mut pods = self.cluster.with(|index| self.told.missing(index, now));
            pods.retain(|pod| failing.may_try(&pod.namespace));
            return pods;
        }
        Vec::new()
    }

    async fn handle(&self, pod: &PodToShow, slot: &TakenSlot, failing: &FailingNamespaces) {
        let namespace = &pod.namespace;
        // another call may have failed since the round began
        if !failing.may_try(namespace) {
            return;
        }
        match self.show(pod, slot).await {
            Ok(Shown::Done) => {
                failing.worked(namespace);
                self.told.shown(pod);
            }
            Ok(Shown::Gone) => self.told.gone(pod),
            Ok(Shown::Again) | Err(ApiError::NotLeading) => {}
            Err(error) => {
                slot.trouble();
                let error = with_causes(&error);
                if failing.failed(namespace) {
                    warn!(%namespace, error, "Failed to note the end of runs on pods of a namespace: will try again");
                } else {
                    debug!(%namespace, error, "Failed to note the end of runs on pods again");
                }
            }
        }
    }

    async fn show(&self, pod: &PodToShow, slot: &TakenSlot) -> Result<Shown, ApiError> {
        let PodToShow { uid, namespace, name, end, .. } = pod;
        let found = match slot.watch(self.objects.pod_metadata(namespace, name)).await {
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
        if !self.gate.is_open() || !self.told.is_missing(pod) {
            return Ok(Shown::Again);
        }
        match slot.watch(self.objects.merge(namespace, &reference, &patch)).await {
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
