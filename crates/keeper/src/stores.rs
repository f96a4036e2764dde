//! Takes the objects that the watches show into the index.
//!
//! `Args::run` runs [`watches`] in every replica, whether it leads or not. A store replaces what it
//! knows: `apply` for an object that was added or changed, `retain` after a list of all objects.

use std::collections::HashSet;

use kube::{Api, core::ApiResource, runtime::watcher};
use tenure_index::{CeilingIndex, ReadQueue, Uid};
use tenure_policy::{pause, ready};
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
use tokio::task::JoinSet;

use crate::{
    cluster::ClusterState, extensions::ExtensionStore, handles::Handles, metrics::Metrics, status::Statuses,
};

/// Takes pods, with those that have ended. Also hands their journals to the outbox, and measures
/// how long they took to get ready.
#[derive(Debug)]
pub struct PodStore {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    /// Says whether this keeper leads: only the leader measures.
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
            // every replica sees this pod, and one must count it
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

/// Takes `PodGroup`s of one kind. Their key is namespace and name.
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

/// Takes queues of a family, with their statuses where Tenure writes them.
#[derive(Debug)]
pub struct QueueStore {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    /// The statuses to compare. None: Tenure writes no status of this family.
    pub statuses: Option<Statuses>,
}

impl QueueStore {
    /// Changes queues in the index as of now, and wakes its readers.
    fn change(&self, change: impl FnOnce(&mut CeilingIndex)) {
        let now = self.clock.now();
        self.cluster.change(|index| index.change_queues(now, change));
    }
}

impl<Q: ReadQueue + ObservedQueue> Store<Q> for QueueStore {
    type Key = String;

    /// Wakes the readers of the index only if a decision may have changed, or if the status lacks
    /// fields that Tenure wrote: other writers change statuses all the time.
    fn apply(&mut self, queue: Q) {
        let name = String::of_object(queue.meta());
        let observe = |statuses: &Statuses| statuses.observe(&name, queue.meta(), queue.observed_status());
        let now = self.clock.now();
        self.cluster.change_if(|index| {
            let changed = index.change_queues(now, |index| index.apply_queue(&name, &queue));
            // under the lock, so that no count is of another generation than the statuses know
            self.statuses.as_ref().is_some_and(observe) || changed
        });
    }

    fn delete(&mut self, name: &String) {
        self.statuses.iter().for_each(|statuses| statuses.delete(name));
        self.change(|index| index.delete_queue(Q::FAMILY, name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.statuses.iter().for_each(|statuses| statuses.retain(names));
        self.change(|index| index.retain_queues(Q::FAMILY, names));
    }
}

/// Follows all that a ceiling depends on, apart from owners and `PodGroup`s: pods, queues of both
/// families, and Extensions. Each watch is a task that never ends, so an event polls no other
/// watch.
pub fn watches(
    Handles { client, cluster, clock, gate, metrics, statuses, extensions, .. }: &Handles,
    readiness: &ProcessReadiness,
    t9k_system_namespace: &str,
    runai_queue_version: QueueVersion,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let all = watcher::Config::default;
    let (client, cluster, clock) = (client.clone(), cluster.clone(), clock.clone());
    let (lead, metrics) = (gate.lead.clone(), metrics.clone());
    let pod_store = PodStore { cluster: cluster.clone(), clock: clock.clone(), lead, metrics };
    // ended pods as well: a watch without them shows each end as a deletion, and can't tell success
    // from failure
    tasks.spawn(follow(Api::all(client.clone()), all(), readiness.awaiting("pods"), pod_store));
    let synced = readiness.awaiting("queues.scheduling.run.ai");
    tasks.spawn(follow(
        Api::<Tolerant<TensorstackQueueObject>>::namespaced(client.clone(), t9k_system_namespace),
        all(),
        readiness.awaiting("queues.scheduler.tensorstack.dev"),
        TolerantStore(QueueStore { cluster: cluster.clone(), clock: clock.clone(), statuses: None }),
    ));
    tasks.spawn(follow(
        Api::<Tolerant<Extension>>::all(client.clone()),
        all(),
        readiness.awaiting("extensions.tenure.dev"),
        TolerantStore(ExtensionStore { cluster: cluster.clone(), open: extensions.clone() }),
    ));
    let runai_store = TolerantStore(QueueStore { cluster, clock, statuses: Some(statuses.clone()) });
    match runai_queue_version {
        QueueVersion::V3alpha1 => {
            tasks.spawn(follow(Api::<Tolerant<RunaiQueueObject>>::all(client), all(), synced, runai_store))
        }
        QueueVersion::V2 => {
            tasks.spawn(follow(Api::<Tolerant<RunaiQueueV2Object>>::all(client), all(), synced, runai_store))
        }
    };
    tasks
}
