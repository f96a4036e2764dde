//! Ends pods past their ceiling that terminate for too long: their grace period is their own word.

use std::{future::pending, time::Duration};

use jiff::SignedDuration;
use tenure_index::{Overlong, Uid};
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    api::ObjectClient, cluster::ClusterState, gate::FreshnessGate, limit::WriteLimit, metrics::Metrics,
    rounds::Rounds, slots::TakenSlot,
};

/// The time between two rounds. A pod that couldn't be ended is tried again in the next.
const BETWEEN_ROUNDS: Duration = Duration::from_secs(5);

/// Shortens the grace periods of pods past their ceiling.
pub struct Terminations {
    pub gate: FreshnessGate,
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub objects: ObjectClient,
    pub limit: WriteLimit,
    pub metrics: Metrics,
    /// The longest time that a pod may terminate.
    pub longest: SignedDuration,
}

impl Terminations {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || {}).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut rounds = Rounds::new(|pod: &Overlong| (pod.uid, pod.namespace.as_str()));
        let (find, shorten) =
            (|| self.overlong(), async |pod: &Overlong, slot: &TakenSlot| self.shorten(pod, slot).await);
        rounds.run(shutdown, BETWEEN_ROUNDS, pending::<()>, find, shorten).await;
    }

    fn overlong(&self) -> Vec<Overlong> {
        if !self.gate.is_open() {
            return Vec::new();
        }
        self.cluster.with(|index| index.overlong(self.clock.now(), self.longest))
    }

    async fn shorten(&self, pod: &Overlong, slot: &TakenSlot) {
        let Overlong { namespace, name, .. } = pod;
        match self.try_to_shorten(pod, slot).await {
            Ok(Some(Overlong { left, allowed, .. })) => {
                self.metrics.shortened();
                let (left, allowed) = (left.as_secs(), allowed.as_secs());
                info!(%namespace, pod = %name, left, allowed, "Shortened the grace period of a pod past its ceiling");
            }
            Ok(None) => debug!(%namespace, pod = %name, "May not be shortened any more"),
            Err(error @ (ApiError::NotFound | ApiError::Stale(_))) => {
                debug!(%namespace, pod = %name, error = with_causes(&error), "Has ended by itself");
            }
            Err(error) => {
                if error.is_open() {
                    slot.trouble();
                }
                let error = with_causes(&error);
                warn!(%namespace, pod = %name, error, "Failed to shorten the grace period: will try again");
            }
        }
    }

    /// Returns what was shortened: nothing if the pod doesn't terminate for too long by what is known when its turn has come.
    async fn try_to_shorten(&self, pod: &Overlong, slot: &TakenSlot) -> Result<Option<Overlong>, ApiError> {
        let Overlong { uid, namespace, name, .. } = pod;
        let found = slot.watch(self.objects.pod_metadata(namespace, name)).await?.uid;
        let found = found.filter(|found| Uid::of(found) == *uid).ok_or(ApiError::NotFound)?;
        self.limit.until_ready().await;
        if !self.gate.is_open() {
            return Ok(None);
        }
        let now = self.clock.now();
        let pod = self.cluster.with(|index| index.overlong_pod(*uid, now, self.longest));
        if let Some(Overlong { allowed, .. }) = &pod {
            slot.watch(self.objects.end_pod(namespace, name, &found, *allowed)).await?;
        }
        Ok(pod)
    }
}
