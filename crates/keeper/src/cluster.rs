//! The index, fed by the watches.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use kube::{
    ResourceExt,
    core::{ApiResource, ObjectMeta},
};
use parking_lot::Mutex;
use tenure_index::{CeilingIndex, Settings, Uid};
use tenure_policy::ready;
use tenure_service::{leadership::Leadership, watch::Store};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::{ObservedStatus, Pod, RunaiQueue, RunaiQueueV2, TensorstackQueue},
};
use tokio::sync::watch;

use crate::{metrics::Metrics, recent::RecentPauses, status::Statuses};

const CROWD: Duration = Duration::from_millis(50);

/// The cluster as the watches have seen it. Clones share it.
#[derive(Clone, Debug)]
pub struct Cluster {
    index: Arc<Mutex<CeilingIndex>>,
    changed: Arc<watch::Sender<()>>,
    /// The kinds of owners, by the numbers of their watches.
    kinds: Arc<Mutex<HashMap<u16, ApiResource>>>,
    /// What was paused of late.
    pub recent: RecentPauses,
    /// What the statuses of queues say.
    pub statuses: Statuses,
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        Self {
            index: Arc::new(Mutex::new(CeilingIndex::new(settings))),
            changed: Arc::default(),
            kinds: Arc::default(),
            recent: RecentPauses::default(),
            statuses: Statuses::default(),
        }
    }

    /// Looks at the index, or changes it without a need for anybody to look again.
    pub fn with<T>(&self, look: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        look(&mut self.index.lock())
    }

    /// The kind of owners that a watch shows.
    pub fn kind(&self, source: u16) -> Option<ApiResource> {
        self.kinds.lock().get(&source).cloned()
    }

    /// A watch shows owners of this kind.
    pub fn shows(&self, source: u16, kind: ApiResource) {
        self.kinds.lock().insert(source, kind);
    }

    /// The changes from now on, for one who looks at the index whenever there is any.
    pub fn changes(&self) -> Changes {
        Changes(self.changed.subscribe())
    }

    /// Takes a queue, whose status others write all the time: that is a change only if ours is to be put back.
    fn take_queue(
        &self,
        (metadata, status): (&ObjectMeta, ObservedStatus),
        apply: impl FnOnce(&mut CeilingIndex, &str) -> bool,
    ) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let lacks = self.statuses.observe(name, metadata, status);
        if self.with(|index| apply(index, name)) || lacks {
            self.changed.send_replace(());
        }
    }

    fn forget_queue(&self, name: &str) {
        self.statuses.delete(name);
        self.change(|index| index.delete_runai(name));
    }

    fn retain_queues(&self, names: &HashSet<String>) {
        self.statuses.retain(names);
        self.change(|index| index.retain_runai(names));
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut CeilingIndex) -> T) -> T {
        let result = self.with(change);
        self.changed.send_replace(());
        result
    }
}

/// Changes that watches have made. Nobody else's looks take any away.
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Returns when there was one since this was last asked, and a moment later: changes come in crowds, and each look
    /// may have all pods scheduled anew.
    pub async fn next(&mut self) {
        // an error would mean that the sender is gone, but the cluster has it
        let _ = self.0.changed().await;
        tokio::time::sleep(CROWD).await;
    }
}

#[derive(Debug)]
pub struct PodStore {
    pub cluster: Cluster,
    pub lead: Leadership,
    pub metrics: Metrics,
}

impl Store<Pod> for PodStore {
    type Key = Uid;

    fn key(metadata: &ObjectMeta) -> Uid {
        Uid::of(metadata.uid.as_deref().unwrap_or_default())
    }

    fn apply(&mut self, pod: Pod) {
        if self.cluster.change(|index| index.apply_pod(&pod))
            // others see the same
            && self.lead.holds()
            && let Some(took) = ready::took(&pod)
        {
            self.metrics.ready(took.as_secs_f64());
        }
    }

    fn delete(&mut self, uid: &Uid) {
        self.cluster.change(|index| index.delete_pod(*uid));
    }

    fn retain(&mut self, uids: &HashSet<Uid>) {
        self.cluster.change(|index| index.retain_pods(uids));
    }
}

/// `PodGroup`s of one kind.
#[derive(Debug)]
pub struct GroupStore {
    pub cluster: Cluster,
    pub kind: PodGroupKind,
}

impl Store<PodGroup> for GroupStore {
    type Key = (String, String);

    fn key(metadata: &ObjectMeta) -> (String, String) {
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }

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

#[derive(Debug)]
pub struct RunaiStore(pub Cluster);

impl Store<RunaiQueue> for RunaiStore {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: RunaiQueue) {
        let RunaiQueue { metadata, spec, status } = queue;
        self.0.take_queue((&metadata, status), |index, name| index.apply_runai(name, &spec));
    }

    fn delete(&mut self, name: &String) {
        self.0.forget_queue(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.retain_queues(names);
    }
}

/// Where KAI-Scheduler owns the definition.
impl Store<RunaiQueueV2> for RunaiStore {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: RunaiQueueV2) {
        let status = queue.observed_status();
        self.0.take_queue((&queue.metadata, status), |index, name| index.apply_runai_v2(name, &queue));
    }

    fn delete(&mut self, name: &String) {
        self.0.forget_queue(name);
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.retain_queues(names);
    }
}

#[derive(Debug)]
pub struct TensorstackStore(pub Cluster);

impl Store<TensorstackQueue> for TensorstackStore {
    type Key = String;

    fn key(metadata: &ObjectMeta) -> String {
        metadata.name.clone().unwrap_or_default()
    }

    fn apply(&mut self, queue: TensorstackQueue) {
        self.0.change(|index| index.apply_tensorstack(&queue.name_any(), &queue.spec));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|index| index.delete_tensorstack(name));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|index| index.retain_tensorstack(names));
    }
}
