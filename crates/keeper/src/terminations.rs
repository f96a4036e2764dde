//! Ends pods past their ceiling that terminate for too long: their grace period is their own word.

use std::time::Duration;

use jiff::SignedDuration;
use tenure_index::Overlong;
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    api::ObjectClient, cluster::ClusterState, gate::FreshnessGate, limit::WriteLimit, metrics::Metrics,
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
        let mut rounds = tokio::time::interval(BETWEEN_ROUNDS);
        loop {
            tokio::select! {
                _ = rounds.tick() => {}
                () = shutdown.cancelled() => return,
            }
            if !self.gate.is_open() {
                continue;
            }
            let overlong = self.cluster.with(|index| index.overlong(self.clock.now(), self.longest));
            for pod in overlong {
                if shutdown.is_cancelled() {
                    return;
                }
                self.shorten(&pod).await;
            }
        }
    }

    async fn shorten(&self, pod: &Overlong) {
        self.limit.until_ready().await;
        let Overlong { uid, namespace, name, left, allowed } = pod;
        match self.objects.end_pod(namespace, name, *uid, *allowed).await {
            Ok(()) => {
                self.metrics.shortened();
                let (left, allowed) = (left.as_secs(), allowed.as_secs());
                info!(%namespace, pod = %name, left, allowed, "Shortened the grace period of a pod past its ceiling");
            }
            Err(error @ (ApiError::NotFound | ApiError::Stale(_))) => {
                debug!(%namespace, pod = %name, error = with_causes(&error), "Has ended by itself");
            }
            Err(error) => {
                let error = with_causes(&error);
                warn!(%namespace, pod = %name, error, "Failed to shorten the grace period: will try again");
            }
        }
    }
}
