//! Workloads that leave, and those that come back before their time for that.

use tenure_policy::expiry::Family;

use super::{Naive, owners::Back};
use crate::world::{GroupKey, PodObj, SECOND};

/// A workload as users count it: the topmost owner that can be paused, with all its pods, however they are grouped.
/// Pods without such an owner count by their group, or each alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counted {
    /// In a namespace.
    Owner(u8, u32),
    Group(GroupKey),
    Pod(u32),
}

/// One that takes room in a queue.
pub(super) struct Occupant {
    family: Family,
    queue: u8,
    workload: Counted,
}

impl Naive {
    pub(super) fn counted(&self, pod: &PodObj) -> Counted {
        let group = pod.keys().find(|key| self.groups.contains_key(key));
        match (self.root(pod.controller), group) {
            (Some(root), _) => Counted::Owner(pod.namespace, root),
            (None, Some(key)) => Counted::Group(key),
            (None, None) => Counted::Pod(pod.uid),
        }
    }

    /// The workload of a pod that takes room, and isn't one that others have no use for the room of.
    pub(super) fn occupant(&self, uid: u32) -> Option<Occupant> {
        let record = self.records.get(&uid)?;
        let pod = self.workload_pods().find(|pod| pod.uid == uid)?;
        if pod.scheduled().is_none() || record.is_unready() {
            return None;
        }
        let root = self.root(pod.controller);
        let record = root.filter(|root| self.bears(*root)).and_then(|root| self.owners.get(&root)?.record);
        if record.is_some_and(|record| record.unready && !record.deactivated) {
            return None;
        }
        let standing = self.standing(pod)?;
        let (family, queue) = match (standing.runai, standing.tensorstack) {
            (Some(queue), _) => (Family::Runai, queue),
            (None, queue) => (Family::Tensorstack, queue?),
        };
        Some(Occupant { family, queue, workload: self.counted(pod) })
    }

    pub(super) fn call_next(&mut self, Occupant { family, queue, workload }: Occupant) {
        if self.is_there(&workload) || !self.wait(family, queue).is_some_and(|wait| wait.on_capacity) {
            return;
        }
        let waiting = self.paused().filter(|(owner, back, called)| {
            let of_queue = owner.family() == family && owner.record.is_some_and(|of| of.queue == queue);
            let was_unready = owner.record.is_some_and(|of| of.unready && !of.deactivated);
            of_queue
                && was_unready
                && called.may_be_called()
                && matches!(back, Back::At(at) if self.asked.is_none_or(|asked| *at > asked))
        });
        let next = waiting.map(|(owner, back, _)| self.returning_of(owner, back));
        if let Some(next) = next.min_by(|one, other| one.order.cmp(&other.order)) {
            // after the first delay, which is one second where none is set
            self.call(next.uid, next.paused + SECOND, workload);
        }
    }

    /// Has pods, placed or not.
    pub(super) fn is_there(&self, workload: &Counted) -> bool {
        match workload {
            Counted::Owner(..) => self.kept().any(|pod| self.counted(pod) == *workload),
            Counted::Group(key) => !self.members(*key).is_empty(),
            Counted::Pod(uid) => self.records.contains_key(uid),
        }
    }
}
