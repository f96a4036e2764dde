//! One model of the cluster: objects are taken in once, and readers answer what each program asks.
//!
//! The keeper and the webhook feed the model from watches, and the plugin from lists. Objects may
//! come in any order. After a list, the `retain_…` methods forget all objects that the list didn't
//! show.

use std::collections::HashSet;

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    expiry::{Family, PerFamily},
    kueue,
    limits::QueueLimits,
    queue::RunaiQueue,
    tree::QueueTree,
};
use tenure_types::{
    podgroup::{self, PodGroupKind},
    projection,
};

use crate::{
    Uid,
    grants::Grants,
    hand_backs::HandBacks,
    names::Interner,
    own::{AnnotatedKind, OwnCeilings},
    owners::{Controller, NotedCeiling, OwnerRecord, OwnerRecords},
    paused::PausedOwners,
    podgroups::{Gangs, GroupKey, GroupWorkload, memberships},
    queues::{FamilyQueues, ReadQueue},
    shown_ends::ShownEnds,
    times::in_time,
};

/// A reading of the pods of a cluster: [`Ceilings`](crate::Ceilings) for the keeper and the plugin,
/// [`Placements`](crate::Placements) for the webhook.
pub trait ClusterIndex {
    /// Returns the uids of all pods that are kept. Some may occur twice.
    fn pods(&self) -> impl Iterator<Item = Uid>;

    /// Forgets a pod.
    fn delete_pod(&mut self, objects: &mut ClusterObjects, uid: Uid);

    /// Called after a queue was deleted.
    fn delete_queue(&mut self, _family: Family, _name: &str) {}
}

/// The objects of a cluster, as the API server has them, and the state that `R` derives from its
/// pods.
///
/// Queues, `PodGroup`s and owners may come after their pods, and one change may concern many pods.
/// So each change is only recorded; its effects are computed when they are next asked for.
#[derive(Debug, Default)]
pub struct ClusterModel<R> {
    pub(crate) objects: ClusterObjects,
    pub(crate) reader: R,
}

/// The objects that pods depend on, the same for all readers.
#[derive(Debug, Default)]
pub struct ClusterObjects {
    pub interner: Interner,
    pub queues: PerFamily<FamilyQueues>,
    pub gangs: Gangs,
    pub owners: OwnerRecords,
    pub grants: Grants,
    pub paused: PausedOwners,
    pub hand_backs: HandBacks,
    pub shown_ends: ShownEnds,
    pub moved: PendingChanges,
}

/// Changes whose effect on the deadlines of pods is not computed yet. The webhook has no deadlines.
#[derive(Debug, Default)]
pub struct PendingChanges {
    /// True if all pods are concerned.
    pub all: bool,
    /// Owners: all pods below them are concerned.
    pub owners: HashSet<Uid>,
    pub pods: HashSet<Uid>,
}

impl ClusterObjects {
    /// Returns the limits for workloads of a queue. None: there is no such queue.
    pub fn limits(&mut self, family: Family, queue: &str) -> Option<QueueLimits> {
        self.queues[family].limits(queue)
    }

    /// Returns the trees of queues.
    pub fn trees(&self) -> PerFamily<&QueueTree> {
        PerFamily::new(|family| self.queues[family].tree())
    }

    /// Returns the name of the queue that counts for a workload that gives this name: the default
    /// queue's name, if no queue has the given one and the default queue exists. Otherwise returns
    /// the given name.
    pub fn bound(&mut self, family: Family, name: ArcStr) -> ArcStr {
        let tree = self.queues[family].tree();
        match tree.bind(&name).map(|id| tree.name(id)) {
            Some(of) if of != name.as_str() => self.interner.names.shared(of),
            _ => name,
        }
    }
}

impl<R: ClusterIndex> ClusterModel<R> {
    /// Returns the queues of a family.
    pub fn queues(&self, family: Family) -> &FamilyQueues {
        &self.objects.queues[family]
    }

    /// Returns the tree of queues of the run.ai family, which alone has floors.
    pub fn tree(&self) -> &QueueTree {
        self.queues(Family::Runai).tree()
    }

    /// Returns the trees of queues of both families.
    pub fn trees(&self) -> PerFamily<&QueueTree> {
        self.objects.trees()
    }

    /// Sets the queues that Kueue's queues stand for. Only pods that are added or updated later are
    /// in those queues.
    pub fn set_kueue_queues(&mut self, queues: kueue::KueueQueues) {
        self.objects.interner.kueue_queues = queues;
    }

    /// Adds or updates a queue. Returns true if a decision may have changed.
    pub fn apply_queue<Q: ReadQueue>(&mut self, name: &str, queue: &Q) -> bool {
        let changed = self.objects.queues[Q::FAMILY].apply(name, queue);
        self.objects.moved.all |= changed;
        changed
    }

    /// Adds or replaces a queue that was read before, or that the plugin simulates.
    pub fn put_queue(&mut self, family: Family, name: &str, queue: RunaiQueue) {
        self.objects.moved.all |= self.objects.queues[family].put(name, queue);
    }

    /// Forgets a queue of a family.
    pub fn delete_queue(&mut self, family: Family, name: &str) {
        if self.objects.queues[family].delete(name) {
            self.objects.moved.all = true;
            self.reader.delete_queue(family, name);
        }
    }

    /// Forgets all queues of a family but these, and ends a list of all queues.
    pub fn retain_queues(&mut self, family: Family, names: &HashSet<String>) {
        for name in self.objects.queues[family].retain(names) {
            self.objects.moved.all = true;
            self.reader.delete_queue(family, &name);
        }
    }

    /// Adds or updates a `PodGroup`.
    pub fn apply_group(&mut self, kind: PodGroupKind, group: &podgroup::PodGroup) {
        self.objects.gangs.apply_group(kind, group, &mut self.objects.interner);
    }

    /// Forgets a `PodGroup`.
    pub fn delete_group(&mut self, kind: PodGroupKind, namespace: &str, name: &str) {
        self.objects.gangs.put(&GroupKey { kind, namespace: namespace.into(), name: name.into() }, None);
    }

    /// Forgets all `PodGroup`s of a kind but these, by namespace and name.
    pub fn retain_groups(&mut self, kind: PodGroupKind, keys: &HashSet<(String, String)>) {
        let is_gone = |key: &&GroupKey| !keys.contains(&(key.namespace.to_string(), key.name.to_string()));
        let gone: Vec<GroupKey> = self.objects.gangs.keys(kind).filter(is_gone).cloned().collect();
        for key in gone {
            self.objects.gangs.put(&key, None);
        }
    }

    /// Adds or updates an object that may own pods. `source` is the number of its watch: each kind
    /// has its own. The own ceiling of an object below an owner that can be paused is read without
    /// reporting errors: its annotations are copies of that owner's.
    pub fn apply_owner(&mut self, source: u16, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.as_deref().map(Uid::of) else { return };
        let ClusterObjects { interner, owners, paused, hand_backs, shown_ends, moved, .. } =
            &mut self.objects;
        let controller = projection::controller(metadata);
        let controller = controller.map(|above| Controller::read(above, &interner.kinds));
        paused.apply(uid, source, metadata, (controller, uid), &mut interner.names);
        hand_backs.apply(uid, source, metadata);
        shown_ends.apply(uid, source, metadata, &mut interner.names);
        let is_copy = controller.is_some_and(|above| owners.is_pausable(above));
        if controller.is_none() {
            interner.own.label(uid, source, metadata);
        }
        let ceiling = if is_copy {
            OwnCeilings::ceiling(metadata)
        } else {
            interner.own.read(AnnotatedKind::Owner(source), metadata)
        };
        let own = ceiling.map(|ceiling| {
            let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
            Box::new(NotedCeiling {
                ceiling,
                namespace: text(&metadata.namespace),
                name: text(&metadata.name),
            })
        });
        let owner = OwnerRecord { controller, own, source };
        if owners.replace(uid, Some(owner)) {
            moved.owners.insert(uid);
        }
    }

    /// Returns the end of its run that an owner shows. None: the owner shows none, or isn't known.
    /// A tenant may have written it.
    pub fn shown_end(&self, owner: Uid) -> Option<Timestamp> {
        in_time(self.objects.shown_ends.get(owner))
    }

    /// Adds or updates a Kueue Workload. Returns true if the Workload is or was paused, or owed a
    /// hand-back: all others change often and don't matter. The job owns its Workload, but copies
    /// no annotations to it, so a record on a Workload is its own.
    pub fn apply_workload(&mut self, source: u16, metadata: &ObjectMeta) -> bool {
        let Some(uid) = metadata.uid.as_deref().map(Uid::of) else { return false };
        let root = kueue::known_as(metadata).map_or(uid, |of| Uid::of(&of.uid));
        let ClusterObjects { interner, paused, hand_backs, .. } = &mut self.objects;
        let mattered = paused.has(uid) || hand_backs.has(uid);
        paused.apply(uid, source, metadata, (None, root), &mut interner.names);
        hand_backs.apply(uid, source, metadata);
        mattered || paused.has(uid) || hand_backs.has(uid)
    }

    /// Forgets an owner.
    pub fn delete_owner(&mut self, uid: Uid) {
        self.objects.paused.delete(uid);
        self.objects.hand_backs.delete(uid);
        self.objects.shown_ends.delete(uid);
        if self.objects.owners.replace(uid, None) {
            self.objects.moved.owners.insert(uid);
        }
    }

    /// Forgets all owners of a source but these.
    pub fn retain_owners(&mut self, source: u16, uids: &HashSet<Uid>) {
        let ClusterObjects { owners, paused, hand_backs, shown_ends, .. } = &self.objects;
        let known = owners.seen_by(source).chain(paused.seen_by(source)).chain(hand_backs.seen_by(source));
        let known = known.chain(shown_ends.seen_by(source));
        let gone: Vec<Uid> = known.filter(|uid| !uids.contains(uid)).collect();
        for uid in gone {
            self.delete_owner(uid);
        }
    }

    /// Adds or updates a pod as a member of its `PodGroup`s alone.
    pub fn apply_member(&mut self, pod: &projection::Pod) {
        if let Some(uid) = pod.metadata.uid.as_deref() {
            self.objects.gangs.apply_pod(Uid::of(uid), pod, &mut self.objects.interner);
        }
    }

    /// Begins a list of all pods: changes may have been missed before it.
    pub fn begin_pods(&mut self) {
        self.objects.gangs.begin_list();
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, uid: Uid) {
        self.objects.moved.pods.remove(&uid);
        self.objects.gangs.delete_pod(uid);
        self.reader.delete_pod(&mut self.objects, uid);
    }

    /// Forgets all pods but these, and ends the list of all pods.
    pub fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        let known = self.objects.gangs.pods().chain(self.reader.pods());
        let gone: Vec<Uid> = known.filter(|uid| !uids.contains(uid)).collect();
        for uid in gone {
            self.delete_pod(uid);
        }
        self.objects.gangs.end_list();
    }

    /// Returns all `PodGroup`s that exist, with what their pods show. Computes the starts that may
    /// have changed first.
    pub fn gangs(&mut self) -> impl Iterator<Item = GroupWorkload<'_>> {
        self.objects.gangs.compute();
        self.objects.gangs.workloads()
    }

    /// Returns the `PodGroup` that counts for the workload of a pod, as of the last call of
    /// [`gangs`](Self::gangs). None: no group that the pod names exists.
    pub fn gang(&self, pod: &projection::Pod) -> Option<GroupWorkload<'_>> {
        let of = memberships(pod, &self.objects.interner.kinds, |text| text.into());
        self.objects.gangs.workload(&of).map(|(group, _)| group)
    }
}
