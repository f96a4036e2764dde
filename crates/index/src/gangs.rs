//! All `PodGroup`s and their pods. Either may come first, and names are used again.

mod workloads;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;
use tenure_types::{
    podgroup::{self, PodGroupKind},
    projection,
};

use crate::{
    Uid,
    ceilings::Readers,
    gang::Gang,
    groups::{GroupKey, PodGroup},
    members::{Member, Membership},
    names::Names,
    stamps::{Stamped, Stamping, Stamps},
    uid::UidMap,
};

pub use workloads::{Counted, GangId, OfGroups, Workload};

/// Of the pods of a group, that are compared with a new one. Subgroups are fewer.
const FEW: usize = 8;

/// `PodGroup`s by kind, namespace and name, and pods that are in any by uid.
#[derive(Debug, Default)]
pub struct Gangs {
    by_key: HashMap<GroupKey, Box<Gang>>,
    members: UidMap<Box<Member>>,
    /// Whose start is to be computed anew.
    changed: Vec<GroupKey>,
    /// Pods whose workload has another queue, ceiling or start than before.
    moved: HashSet<Uid>,
    stamps: Stamps,
}

impl Gangs {
    /// Takes a pod as the API server has it.
    pub fn apply_pod(&mut self, uid: Uid, pod: &projection::Pod, names: &mut Names) {
        let mut member = Member::read(pod, |text| names.shared(text)).map(Box::new);
        if self.members.get(&uid) == member.as_ref() {
            return;
        }
        if let Some(member) = &mut member
            && let Some(same) = self.same_memberships(&member.of)
        {
            member.of = same;
        }
        self.replace(uid, member);
    }

    /// Those of another pod, if it has the very same: then they are kept once, and who asks about many pods needs to look
    /// them up once.
    fn same_memberships(&self, of: &[Membership]) -> Option<Arc<[Membership]>> {
        let gang = self.by_key.get(&of.first()?.group)?;
        let mut others = gang.members().iter().take(FEW).filter_map(|uid| self.members.get(uid));
        others.find(|other| *other.of == *of).map(|other| Arc::clone(&other.of))
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, uid: Uid) {
        self.replace(uid, None);
    }

    /// Forgets all pods but these.
    pub fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        let gone: Vec<Uid> = self.members.keys().copied().filter(|uid| !uids.contains(uid)).collect();
        let left = gone.iter().flat_map(|uid| self.memberships(*uid)).map(|of| of.group.clone());
        let left: HashSet<GroupKey> = left.collect();
        for uid in gone {
            self.replace(uid, None);
        }
        for key in left {
            if let Some(gang) = self.by_key.get_mut(&key) {
                gang.doubt(&self.members);
            }
        }
    }

    fn replace(&mut self, uid: Uid, member: Option<Box<Member>>) {
        for membership in member.iter().flat_map(|member| &*member.of) {
            let gang = self.by_key.entry(membership.group.clone()).or_default();
            if let Some(member) = &member {
                gang.join(uid, member);
            }
            change(&mut self.changed, &membership.group, gang);
        }
        let stays = |group: &GroupKey| member.as_ref().is_some_and(|member| member.is_of(group));
        if let Some(old) = self.members.remove(&uid) {
            for Membership { group, .. } in &*old.of {
                let Some(gang) = self.by_key.get_mut(group) else { continue };
                gang.leave(uid, &old, stays(group));
                change(&mut self.changed, group, gang);
                if gang.is_nothing() {
                    self.by_key.remove(group);
                }
            }
        }
        if member.is_none() {
            self.moved.remove(&uid);
        }
        self.members.extend(member.map(|member| (uid, member)));
        self.sweep();
    }

    /// Takes a group as the API server has it.
    pub fn apply_group(&mut self, kind: PodGroupKind, object: &podgroup::PodGroup, readers: &mut Readers) {
        let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let key = GroupKey::new(kind, namespace, name, &mut readers.names);
        let group = PodGroup::read(kind, object, readers);
        self.put(&key, Some(Box::new(group)));
    }

    /// Forgets a group.
    pub fn delete_group(&mut self, key: &GroupKey) {
        self.put(key, None);
    }

    /// Forgets all groups of a kind but these, by namespace and name.
    pub fn retain_groups(&mut self, kind: PodGroupKind, keys: &HashSet<(String, String)>) {
        let kept: HashSet<(&str, &str)> =
            keys.iter().map(|(of, name)| (of.as_str(), name.as_str())).collect();
        let is_gone = |key: &GroupKey, gang: &Gang| {
            key.kind == kind
                && gang.group.is_some()
                && !kept.contains(&(key.namespace.as_str(), key.name.as_str()))
        };
        let gone = self.by_key.iter().filter(|(key, gang)| is_gone(key, gang)).map(|(key, _)| key.clone());
        for key in gone.collect::<Vec<_>>() {
            self.put(&key, None);
        }
    }

    fn put(&mut self, key: &GroupKey, group: Option<Box<PodGroup>>) {
        if group.is_none() && !self.by_key.contains_key(key) {
            return;
        }
        let gang = self.by_key.entry(key.clone()).or_default();
        if gang.group == group {
            return;
        }
        let says = |group: &Option<Box<PodGroup>>| group.as_ref().map(|of| (of.queue.clone(), of.own));
        let shows = |group: &Option<Box<PodGroup>>| {
            group.as_ref().map(|of| (of.uid.clone(), of.stamp, of.shape.clone()))
        };
        if says(&gang.group) != says(&group) {
            self.moved.extend(gang.members());
        }
        if shows(&gang.group) != shows(&group) {
            change(&mut self.changed, key, gang);
        }
        gang.put(group);
        self.stamps.renewed(key, &mut gang.stamp);
        if gang.is_nothing() {
            self.by_key.remove(key);
        }
        self.sweep();
    }

    /// Groups come and go, and nobody may ask: a keeper that doesn't lead has no use for either.
    fn sweep(&mut self) {
        let most = self.by_key.len().saturating_mul(2).max(64);
        if self.changed.len() > most {
            self.compute();
        }
        if self.stamps.queued() > most {
            let queued = self.by_key.iter().filter(|(_, gang)| gang.stamp.is_queued());
            self.stamps.requeue(queued.map(|(key, _)| key.clone()));
        }
    }

    /// Computes the starts that may be others by now.
    pub fn compute(&mut self) {
        let Self { by_key, members, changed, moved, stamps } = self;
        for key in std::mem::take(changed) {
            let Some(gang) = by_key.get_mut(&key).filter(|gang| gang.changed) else { continue };
            if gang.compute(key.kind, members) {
                moved.extend(gang.members());
            }
            stamps.judge(&key, &mut gang.stamp);
        }
    }

    /// Pods whose workload has another queue, ceiling or start than when this was last asked.
    pub fn moved(&mut self) -> HashSet<Uid> {
        self.compute();
        std::mem::take(&mut self.moved)
    }

    /// Hands out the next stamp that is to be written.
    pub fn claim_stamp(&mut self, now: Timestamp) -> Option<Stamping> {
        self.compute();
        while let Some(key) = self.stamps.next(now) {
            let Some(gang) = self.by_key.get_mut(&key) else { continue };
            // not only when that is written: it may not be possible
            if gang.start_by(now) && gang.compute(key.kind, &self.members) {
                self.moved.extend(gang.members());
            }
            let claimed = gang.claim_stamp(&key, now);
            if claimed.is_some() {
                return claimed;
            }
        }
        None
    }

    /// When there may be a stamp to write again, unless something changes before.
    pub fn next_stamp(&self) -> Option<Timestamp> {
        self.stamps.next_retry()
    }

    /// Takes back a stamp.
    pub fn settle_stamp(&mut self, stamping: &Stamping, stamped: Stamped, now: Timestamp, names: &mut Names) {
        let key = GroupKey::new(stamping.kind, &stamping.namespace, &stamping.name, names);
        if let Some(gang) = self.by_key.get_mut(&key) {
            self.stamps.settle(&key, gang, stamping, stamped, now);
            change(&mut self.changed, &key, gang);
        }
    }

    /// Nobody will ask what is to be stamped.
    pub fn discard_stamps(&mut self) {
        self.stamps = Stamps::default();
    }

    /// Takes back all stamps: who was to write them is gone.
    pub fn release_stamps(&mut self) {
        for (key, gang) in &mut self.by_key {
            self.stamps.release(key, &mut gang.stamp);
        }
    }

    /// How many groups anything is known of, and how many pods are in any.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize) {
        (self.by_key.len(), self.members.len())
    }

    /// How much is kept for those that ask.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.changed.len() + self.moved.len() + self.stamps.queued()
    }
}

fn change(changed: &mut Vec<GroupKey>, key: &GroupKey, gang: &mut Gang) {
    if !std::mem::replace(&mut gang.changed, true) {
        changed.push(key.clone());
    }
}

#[cfg(test)]
mod tests;
