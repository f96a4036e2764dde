//! Takes the objects that the watches show into the index.

use std::collections::HashSet;

use kube::{Api, ResourceExt, core::ApiResource, runtime::watcher};
use tenure_index::{CeilingIndex, RunaiVersion, Uid};
use tenure_policy::{expiry::Family, pause, ready};
use tenure_service::{
    clock::ServerClock,
    leadership::Leadership,
    readiness::ProcessReadiness,
    watch::{Store, TolerantStore, follow},
};
use tenure_types::{
    extension::Extension,
    podgroup::{PodGroup, PodGroupKind},
    projection::{ObservedQueue, Pod, RunaiQueueObject, RunaiQueueV2Object, TensorstackQueueObject},
    runai::QueueVersion,
    store::ObjectKey,
    tolerant::Tolerant,
};

use crate::{
    cluster::ClusterState, extensions::ExtensionStore, handles::Handles, metrics::Metrics, status::Statuses,
};

/// Pods that have not ended.
#[derive(Debug)]
pub struct PodStore {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub lead: Leadership,
    pub metrics: Metrics,
}

impl Store<Pod> for PodStore {
    type Key = Uid;

    fn begin(&mut self) {
        self.cluster.with(CeilingIndex::begin_pods);
    }

    fn apply(&mut self, pod: Pod) {
        if pause::has_journal(&pod.metadata) {
            let pods = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
            self.cluster.outbox.apply(&pods, &pod.metadata, self.clock.now());
        }
        if self.cluster.change(|index| index.apply_pod(&pod))
            // others see the same
            && self.lead.holds()
            && let Some(took) = ready::took(&pod)
        {
            self.metrics.ready.observe(took.as_secs_f64());
        }
    }

    fn delete(&mut self, uid: &Uid) {
        self.cluster.outbox.forget(*uid);
        self.cluster.change(|index| index.delete_pod(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.cluster.change(|index| index.retain_pods(uids));
    }
}

/// `PodGroup`s of one kind.
#[derive(Debug)]
pub struct GroupStore {
    pub cluster: ClusterState,
    pub kind: PodGroupKind,
}

impl Store<PodGroup> for GroupStore {
    type Key = (String, String);

    fn apply(&mut self, group: PodGroup) {
        self.cluster.change(|index| index.apply_group(self.kind, &group));
    }

    fn delete(&mut self, (namespace, name): &(String, String)) {
        self.cluster.change(|index| index.delete_group(self.kind, namespace, name));
    }

    fn retain(&mut self, keys: &HashSet<(String, String)>) {
        self.cluster.change(|index| index.retain_groups(self.kind, keys));
    }
}

/// Queues of the run.ai family, with their statuses.
#[derive(Debug)]
pub struct RunaiStore {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub statuses: Statuses,
}

impl RunaiStore {
    fn change(&self, change: impl FnOnce(&mut CeilingIndex)) {
        let now = self.clock.now();
        self.cluster.change(|index| index.change_queues(now, change));
    }
}

impl<Q: RunaiVersion + ObservedQueue> Store<Q> for RunaiStore {
    type Key = String;

    /// Other writers change the status of queues all the time: that counts as a change only if Tenure's fields are to be
    /// restored.
    fn apply(&mut self, queue: Q) {
        let name = String::of_object(queue.meta());
        let lacks = self.statuses.observe(&name, queue.meta(), queue.observed_status());
        let now = self.clock.now();
        self.cluster
            .change_if(|index| index.change_queues(now, |index| index.apply_runai(&name, &queue)) || lacks);
    }

    fn delete(&mut self, name: &String) {
        self.statuses.delete(name);
        self.change(|index| index.delete_queue(Family::Runai, name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.statuses.retain(names);
        self.change(|index| index.retain_queues(Family::Runai, names));
    }
}

/// Queues of the tensorstack family.
#[derive(Debug)]
pub struct TensorstackStore {
    pub cluster: ClusterState,
    pub clock: ServerClock,
}

impl TensorstackStore {
    fn change(&self, change: impl FnOnce(&mut CeilingIndex)) {
        let now = self.clock.now();
        self.cluster.change(|index| index.change_queues(now, change));
    }
}

impl Store<TensorstackQueueObject> for TensorstackStore {
    type Key = String;

    fn apply(&mut self, queue: TensorstackQueueObject) {
        self.change(|index| index.apply_tensorstack(&queue.name_any(), &queue.spec));
    }

    fn delete(&mut self, name: &String) {
        self.change(|index| index.delete_queue(Family::Tensorstack, name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.change(|index| index.retain_queues(Family::Tensorstack, names));
    }
}

/// Follows all that a ceiling depends on, apart from owners and `PodGroup`s.
pub fn watches(
    Handles { client, cluster, clock, gate, metrics, statuses, extensions, .. }: &Handles,
    readiness: &ProcessReadiness,
    t9k_system_namespace: &str,
    runai_queue_version: QueueVersion,
) -> impl Future<Output = ()> + use<> {
    let all = watcher::Config::default;
    let (client, cluster, clock) = (client.clone(), cluster.clone(), clock.clone());
    let (lead, metrics) = (gate.lead.clone(), metrics.clone());
    let pod_store = PodStore { cluster: cluster.clone(), clock: clock.clone(), lead, metrics };
    // nothing is to be done about pods that have ended, and old clusters are full of them
    let live = all().fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods = follow(Api::all(client.clone()), live, readiness.awaiting("pods"), pod_store);
    let synced = readiness.awaiting("queues.scheduling.run.ai");
    let tensorstack = follow(
        Api::namespaced(client.clone(), t9k_system_namespace),
        all(),
        readiness.awaiting("queues.scheduler.tensorstack.dev"),
        TolerantStore(TensorstackStore { cluster: cluster.clone(), clock: clock.clone() }),
    );
    let extensions = follow(
        Api::<Tolerant<Extension>>::all(client.clone()),
        all(),
        readiness.awaiting("extensions.tenure.dev"),
        TolerantStore(ExtensionStore { cluster: cluster.clone(), open: extensions.clone() }),
    );
    let runai_store = TolerantStore(RunaiStore { cluster, clock, statuses: statuses.clone() });
    let runai = async move {
        match runai_queue_version {
            QueueVersion::V3alpha1 => {
                follow(Api::<Tolerant<RunaiQueueObject>>::all(client), all(), synced, runai_store).await;
            }
            QueueVersion::V2 => {
                follow(Api::<Tolerant<RunaiQueueV2Object>>::all(client), all(), synced, runai_store).await;
            }
        }
    };
    async {
        tokio::join!(pods, runai, tensorstack, extensions);
    }
}
