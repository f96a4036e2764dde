//! All `PodGroup`s and their pods. Either may come first, and names are reused.
//!
//! `ClusterModel` feeds `Gangs` from the watches of pods and groups. Starts are computed late, by
//! `compute` or `moved`, since the pods of a gang come one by one. A group is kept while it exists
//! or a live pod names it.

mod gang;
mod group;
mod members;
mod readiness;
mod stamps;
mod workloads;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tenure_policy::start::LongestFormation;
use tenure_types::{
    podgroup::{self, PodGroupKind},
    projection,
};

use crate::{Uid, names::Interner, uid::UidMap};

use gang::Gang;
pub use gang::GroupQueue;
pub use group::GroupKey;
use group::GroupRecord;
use members::GroupMember;
pub use members::{Membership, memberships};
use stamps::{AT_ONCE, StampSchedule};
pub use stamps::{PendingStamp, StampForm};
pub use workloads::{Crew, GangId, GroupCrews, GroupFacts, GroupWorkload, PartId, floor_queue};

/// The number of a group's pods that are compared with a new pod. Most groups have fewer subgroups.
const FEW: usize = 8;

/// `PodGroup`s by kind, namespace and name, and pods that are in any by uid.
#[derive(Debug, Default)]
pub struct Gangs {
    by_key: HashMap<GroupKey, Box<Gang>>,
    members: UidMap<Box<GroupMember>>,
    /// Groups whose start must be computed.
    changed: HashSet<GroupKey>,
    /// Changed groups that have named another queue or own ceiling since: their pods are moved.
    renamed: HashSet<GroupKey>,
    /// Pods whose workload has another queue, ceiling or start, or another lack of ready pods, than
    /// before, or whose run isn't in doubt any more.
    moved: HashSet<Uid>,
    /// Groups whose stamp must be checked, in the keeper.
    stamps: StampSchedule,
    /// True if the readiness of runs and their stamps are kept.
    for_keeper: bool,
    /// The longest time between the scheduling of a workload's first pod and its start.
    formation: LongestFormation,
}

impl Gangs {
    /// Keeps the readiness of runs and their stamps, too. The webhook needs neither, and saves the
    /// memory. To be called before any pod or group is added.
    pub const fn serve_keeper(&mut self) {
        self.for_keeper = true;
    }

    /// Sets the longest time between the scheduling of a workload's first pod and its start.
    pub fn set_longest_formation(&mut self, formation: LongestFormation) {
        if std::mem::replace(&mut self.formation, formation) != formation {
            self.changed.extend(self.by_key.keys().cloned());
        }
    }

    /// Adds or updates a pod. A pod in no group, or one that has ended or is terminating, is
    /// forgotten.
    pub fn apply_pod(&mut self, uid: Uid, pod: &projection::Pod, interner: &mut Interner) {
        let known = self.members.get(&uid);
        let before = known.map(AsRef::as_ref);
        let Interner { kinds, names, .. } = interner;
        let mut member = GroupMember::read(pod, before, kinds, |text| names.shared(text)).map(Box::new);
        if known == member.as_ref() {
            for of in known.filter(|known| known.is_active()).iter().flat_map(|known| &*known.of) {
                if let Some(gang) = self.by_key.get_mut(&of.group)
                    && gang.go_on(uid)
                {
                    self.moved.extend(gang.members());
                }
            }
            return;
        }
        if let Some(member) = &mut member
            && let Some(same) = self.same_memberships(&member.of)
        {
            member.of = same;
        }
        let has_succeeded = pod.status.phase.as_deref() == Some("Succeeded");
        self.replace(uid, member, has_succeeded);
    }

    /// Returns the memberships of another pod of the group, if they are the same: they are kept
    /// once, and looked up once in a question.
    fn same_memberships(&self, of: &[Membership]) -> Option<Arc<[Membership]>> {
        let gang = self.by_key.get(&of.first()?.group)?;
        let mut others = gang.members().iter().take(FEW).filter_map(|uid| self.members.get(uid));
        others.find(|other| *other.of == *of).map(|other| Arc::clone(&other.of))
    }

    pub fn delete_pod(&mut self, uid: Uid) {
        self.replace(uid, None, false);
    }

    /// Returns the uids of all pods that are in any group.
    pub fn pods(&self) -> impl Iterator<Item = Uid> {
        self.members.keys().copied()
    }

    /// Ends a list of all pods: pods that it didn't show are deleted.
    pub fn end_list(&mut self) {
        for (key, gang) in &mut self.by_key {
            if gang.end_list(&self.members) {
                self.changed.insert(key.clone());
                self.moved.extend(gang.members());
            }
        }
    }

    /// Begins a list of all pods: changes may have been missed before it.
    pub fn begin_list(&mut self) {
        for gang in self.by_key.values_mut() {
            gang.begin_list();
        }
    }

    /// Replaces the record of a pod in all groups that the pod names or has named. None for
    /// `member`: the pod is in no group.
    fn replace(&mut self, uid: Uid, member: Option<Box<GroupMember>>, has_succeeded: bool) {
        if let Some(old) = self.members.get(&uid).filter(|old| !old.shows_as(member.as_deref())) {
            for Membership { group: key, .. } in &*old.of {
                if let Some(gang) = self.by_key.get_mut(key) {
                    gang.show(&self.members);
                }
            }
        }
        let old = self.members.remove(&uid);
        let (old, new) = (old.as_deref(), member.as_deref());
        let left = old.into_iter().flat_map(|old| &*old.of);
        let left = left.filter(|of| new.is_none_or(|new| !new.is_of(&of.group)));
        for Membership { group: key, .. } in new.into_iter().flat_map(|new| &*new.of).chain(left) {
            let is_of = |member: &&GroupMember| member.is_of(key);
            let gang = self.by_key.entry(key.clone()).or_insert_with(|| Box::new(Gang::new(self.for_keeper)));
            let says = |gang: &Gang| (gang.queue().cloned(), gang.is_in_doubt(), gang.is_start_remembered());
            let before = says(gang);
            gang.replace(uid, old.filter(is_of), new.filter(is_of), has_succeeded, &self.members);
            if says(gang) != before {
                self.moved.extend(gang.members());
            }
            self.changed.insert(key.clone());
            self.prune(key);
        }
        if member.is_none() {
            self.moved.remove(&uid);
        }
        self.members.extend(member.map(|member| (uid, member)));
    }

    pub fn apply_group(&mut self, kind: PodGroupKind, object: &podgroup::PodGroup, interner: &mut Interner) {
        let mut shared = |text: &Option<String>| interner.names.shared(text.as_deref().unwrap_or_default());
        let (namespace, name) = (shared(&object.metadata.namespace), shared(&object.metadata.name));
        let key = GroupKey { kind, namespace, name };
        let group = GroupRecord::read(kind, object, interner);
        self.put(&key, Some(Box::new(group)));
    }

    /// Returns the keys of all groups of a kind that exist.
    pub fn keys(&self, kind: PodGroupKind) -> impl Iterator<Item = &GroupKey> {
        let known = self.by_key.iter().filter(move |(key, gang)| key.kind == kind && gang.group.is_some());
        known.map(|(key, _)| key)
    }

    /// Replaces a group. None for `group`: there is no such group.
    pub fn put(&mut self, key: &GroupKey, group: Option<Box<GroupRecord>>) {
        if group.is_none() && !self.by_key.contains_key(key) {
            return;
        }
        let for_keeper = self.for_keeper;
        let gang = self.by_key.entry(key.clone()).or_insert_with(|| Box::new(Gang::new(for_keeper)));
        if gang.group == group {
            return;
        }
        let says = |gang: &Gang| (gang.queue().cloned(), gang.group.as_ref().map(|group| group.own));
        let before = says(gang);
        gang.put(group, &self.members);
        if says(gang) != before {
            self.renamed.insert(key.clone());
        }
        self.changed.insert(key.clone());
        self.prune(key);
    }

    /// Forgets the record of a group that is gone and has no members.
    fn prune(&mut self, key: &GroupKey) {
        if self.by_key.get(key).is_some_and(|gang| gang.is_nothing())
            && let Some(gang) = self.by_key.remove(key)
        {
            self.changed.remove(key);
            if let Some(mut keeper) = gang.keeper {
                self.stamps.place(key, &mut keeper.stamp, None);
            }
        }
    }

    /// Computes the starts that may have changed, and the lack of ready pods.
    pub fn compute(&mut self) {
        let Self { by_key, members, changed, renamed, moved, stamps, formation, .. } = self;
        let renamed = std::mem::take(renamed);
        for key in std::mem::take(changed) {
            let Some(gang) = by_key.get_mut(&key) else { continue };
            if gang.compute(members, *formation) || renamed.contains(&key) {
                moved.extend(gang.members());
            }
            if let Some(keeper) = &mut gang.keeper {
                stamps.place(&key, &mut keeper.stamp, Some(AT_ONCE));
            }
        }
    }

    /// True if no start may have changed since [`Self::moved`] was last asked.
    pub fn are_computed(&self) -> bool {
        self.changed.is_empty() && self.moved.is_empty()
    }

    /// Takes the pods whose workload has another queue, ceiling or start, or another lack of ready
    /// pods, than at the last call.
    pub fn moved(&mut self) -> HashSet<Uid> {
        self.compute();
        std::mem::take(&mut self.moved)
    }
}

#[cfg(test)]
mod tests;
