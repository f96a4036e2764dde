//! The parts of the cluster that the webhook follows.

use kube::{Api, Client};
use tenure_service::{
    clock::ServerClock,
    readiness::{Awaited, ProcessReadiness},
    watch::{TolerantStore, follow_converted},
};
use tenure_types::{
    projection::{RunaiQueueObject, RunaiQueueV2Object},
    runai::QueueVersion,
    tolerant::Tolerant,
};

use crate::{CurrentConfig, KnownQueues, Placement};

/// The webhook's view of the cluster, its clock and its configuration. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    /// All pods and what protects them.
    pub placement: Placement,
    /// All queues.
    pub queues: KnownQueues,
    /// The clock by which floors end.
    pub clock: ServerClock,
    /// The readiness of the watches and the clock.
    pub readiness: ProcessReadiness,
    /// The configuration.
    pub config: CurrentConfig,
}

/// Follows the queues of the run.ai family. Never ends.
pub async fn follow(version: QueueVersion, client: Client, synced: Awaited, queues: KnownQueues) {
    let store = TolerantStore(queues);
    match version {
        QueueVersion::V3alpha1 => {
            follow_converted(Api::<Tolerant<RunaiQueueObject>>::all(client), synced, store).await;
        }
        // stored as v3alpha1, where the definition is Tenure's
        QueueVersion::V2 => {
            follow_converted(Api::<Tolerant<RunaiQueueV2Object>>::all(client), synced, store).await;
        }
    }
}
