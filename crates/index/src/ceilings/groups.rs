//! `PodGroup`s, and when their workloads started.

use std::collections::HashSet;

use jiff::Timestamp;
use tenure_types::{
    podgroup::{self, PodGroupKind},
    projection,
};

use super::CeilingIndex;
use crate::{Stamped, Stamping, Workload, groups::GroupKey, members::memberships};

impl CeilingIndex {
    /// Takes a `PodGroup` as the API server has it.
    pub fn apply_group(&mut self, kind: PodGroupKind, group: &podgroup::PodGroup) {
        self.queues.gangs.apply_group(kind, group, &mut self.readers);
    }

    /// Forgets a `PodGroup`.
    pub fn delete_group(&mut self, kind: PodGroupKind, namespace: &str, name: &str) {
        let key = GroupKey::new(kind, namespace, name, &mut self.readers.names);
        self.queues.gangs.delete_group(&key);
    }

    /// Forgets all `PodGroup`s of a kind but these, by namespace and name.
    pub fn retain_groups(&mut self, kind: PodGroupKind, keys: &HashSet<(String, String)>) {
        self.queues.gangs.retain_groups(kind, keys);
    }

    /// All `PodGroup`s that there are, with what their pods show.
    pub fn gangs(&mut self) -> impl Iterator<Item = Workload<'_>> {
        self.queues.gangs.compute();
        self.queues.gangs.workloads()
    }

    /// The `PodGroup` that counts for the workload of a pod, if there is one. Its start is as it was when anybody last
    /// asked for [all](Self::gangs).
    pub fn gang(&self, pod: &projection::Pod) -> Option<Workload<'_>> {
        self.queues.gangs.workload(&memberships(pod, |text| text.into()))
    }

    /// Hands out the next start that is to be written on its `PodGroup`. It isn't handed out again before it is taken
    /// back.
    pub fn claim_stamp(&mut self, now: Timestamp) -> Option<Stamping> {
        self.queues.gangs.claim_stamp(now)
    }

    /// When there may be a start to write, unless something changes before.
    pub fn next_stamp(&self) -> Option<Timestamp> {
        self.queues.gangs.next_stamp()
    }

    /// Takes back a start.
    pub fn settle_stamp(&mut self, stamping: &Stamping, stamped: Stamped, now: Timestamp) {
        self.queues.gangs.settle_stamp(stamping, stamped, now, &mut self.readers.names);
    }

    /// Takes back all starts that were handed out: who was to write them is gone.
    pub fn release_stamps(&mut self) {
        self.queues.gangs.release_stamps();
    }
}
