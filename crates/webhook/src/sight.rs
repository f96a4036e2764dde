//! The parts of the cluster that the webhook follows. Watches write them, and requests read them.

use kube::{Api, Client};
use tenure_policy::config::Config;
use tenure_service::{
    clock::ServerClock,
    config::Current,
    readiness::{AwaitedCondition, ProcessReadiness},
    watch::{TolerantStore, follow_converted},
};
use tenure_types::{
    projection::{RunaiQueueObject, RunaiQueueV2Object},
    runai::QueueVersion,
    tolerant::Tolerant,
};

use crate::{KnownQueues, Placement};

/// The webhook's view of the cluster, its clock and its configuration. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// All pods and the objects that protect them. Empty if extender and guard are off.
    pub placement: Placement,
    /// The queues of the run.ai family.
    pub queues: KnownQueues,
    /// The clock of the API server, by which floors end.
    pub clock: ServerClock,
    /// The readiness of the watches and the clock.
    pub readiness: ProcessReadiness,
    /// The configuration.
    pub config: Current<Config>,
}

/// Follows the queues of the run.ai family in the given version, into `queues`. `synced` is done
/// once all queues are known. Never ends.
pub async fn follow(version: QueueVersion, client: Client, synced: AwaitedCondition, queues: KnownQueues) {
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
