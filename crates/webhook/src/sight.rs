//! The parts of the cluster that the webhook follows.

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

use crate::{Extender, KnownQueues, Placement, scheduler::NominationNudger};

/// The extender's and the guard's view of the cluster, and their clock.
#[derive(Clone)]
pub struct Sight {
    pub placement: Placement,
    pub client: Client,
    pub clock: ServerClock,
    pub readiness: ProcessReadiness,
}

impl Sight {
    /// Follows all objects that the extender and the guard need, as far as they are on. Never ends.
    pub async fn look(self, waker: Option<NominationNudger>, extender: Option<Extender>, guards: bool) {
        let Self { placement, client, clock, readiness } = self;
        if extender.is_none() && !guards {
            return std::future::pending().await;
        }
        let measured = clock.measure(client.clone(), readiness.awaiting("the API server's clock"));
        let namespaces = async {
            if guards {
                placement.clone().follow_namespaces(client.clone(), readiness.clone()).await;
            }
        };
        let wake = async {
            if let Some(waker) = waker {
                waker.run(client.clone()).await;
            }
        };
        let count = async {
            if let Some(extender) = extender {
                extender.count_kept().await;
            }
        };
        let follow = placement.clone().follow(client.clone(), readiness.clone());
        tokio::join!(measured, follow, namespaces, wake, count);
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
