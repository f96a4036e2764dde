//! The parts of the cluster that the webhook follows.

use futures::future::OptionFuture;
use kube::{Api, Client, runtime::watcher};
use tenure_service::{
    clock::ServerClock,
    readiness::{Awaited, ProcessReadiness},
    watch,
};
use tenure_types::{
    projection::{RunaiQueueObject, RunaiQueueV2Object},
    runai::QueueVersion,
    tolerant::Tolerant,
};

use crate::{CurrentConfig, Extender, KnownQueues, Placement};

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

impl Sight {
    /// Follows all objects that the extender and the guard need, as far as they are on. Never ends.
    pub(crate) async fn look(self, client: Client, extender: Option<Extender>, guards: bool) {
        let Self { placement, clock, readiness, .. } = self;
        if extender.is_none() && !guards {
            return std::future::pending().await;
        }
        let measured = clock.measure(client.clone(), readiness.awaiting("the API server's clock"));
        let namespaces =
            guards.then(|| placement.clone().follow_namespaces(client.clone(), readiness.clone()));
        let wake = extender.as_ref().and_then(Extender::waker).map(|waker| waker.run(client.clone()));
        let count = OptionFuture::from(extender.as_ref().map(Extender::count_kept));
        let (namespaces, wake) = (OptionFuture::from(namespaces), OptionFuture::from(wake));
        tokio::join!(measured, placement.clone().follow(client, readiness), namespaces, wake, count);
    }
}

/// Follows the queues of the run.ai family. Never ends.
pub async fn follow(version: QueueVersion, client: Client, synced: Awaited, queues: KnownQueues) {
    let all = watcher::Config::default();
    match version {
        QueueVersion::V3alpha1 => {
            let api: Api<Tolerant<RunaiQueueObject>> = Api::all(client);
            watch::follow_converted(api, all, synced, watch::TolerantStore(queues)).await;
        }
        QueueVersion::V2 => {
            let api: Api<Tolerant<RunaiQueueV2Object>> = Api::all(client);
            // stored as v3alpha1, where the definition is Tenure's
            watch::follow_converted(api, all, synced, watch::TolerantStore(queues)).await;
        }
    }
}
