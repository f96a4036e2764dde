//! Extensions of runs.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    ceiling::{least_extensions, path},
    expiry::Family,
    extension::{GoingRun, RequestedRun},
};
use tenure_types::extension::Extension;

use super::{CeilingIndex, Standing, limits};
use crate::{Uid, deadlines::ManagedPod};

impl CeilingIndex {
    /// Adds or updates an extension. Only one that is granted counts.
    pub fn apply_extension(&mut self, extension: &Extension) {
        let Some(uid) = extension.metadata.uid.as_deref() else { return };
        let changed = self.objects.grants.apply(Uid::of(uid), extension);
        self.regrant(changed);
    }

    /// Forgets an extension.
    pub fn delete_extension(&mut self, uid: Uid) {
        let changed = self.objects.grants.delete(uid);
        self.regrant(changed);
    }

    /// Forgets all extensions but these.
    pub fn retain_extensions(&mut self, uids: &HashSet<Uid>) {
        for uid in self.objects.grants.others(uids) {
            self.delete_extension(uid);
        }
    }

    /// Has the ends of the pods of workloads computed again. A workload may be a pod itself.
    fn regrant(&mut self, workloads: impl IntoIterator<Item = Uid>) {
        self.objects.owners.with_grants = !self.objects.grants.is_empty();
        for workload in workloads {
            self.objects.moved.owners.insert(workload);
            self.objects.moved.pods.insert(workload);
        }
    }

    /// Returns the run of a workload that an extension of a namespace is for, which was asked for at `asked`: one that had
    /// begun by then.
    pub fn requested_run(&mut self, namespace: &str, workload: Uid, asked: Timestamp) -> RequestedRun {
        self.reschedule();
        let mut uids: Vec<Uid> = self.pods_of(namespace, workload).map(|(uid, _)| uid).collect();
        uids.extend(self.is_pod(namespace, workload).then_some(workload));
        let running: Vec<(Timestamp, Standing)> = uids
            .into_iter()
            .filter_map(|uid| {
                let standing = self.standing_of_kept(uid)?;
                Some((standing.clocks.started?, standing))
            })
            .collect();
        let runs = running.iter().filter(|(since, _)| *since <= asked);
        let runs: Vec<GoingRun> =
            runs.filter_map(|(since, of)| self.going_run(namespace, workload, *since, of)).collect();
        match runs.into_iter().reduce(joined) {
            Some(run) => RequestedRun::Going(run),
            None if running.is_empty() => RequestedRun::Unknown,
            None => RequestedRun::Over,
        }
    }

    /// True if a pod is kept, and is a workload by itself.
    fn is_pod(&self, namespace: &str, uid: Uid) -> bool {
        let is_alone = |pod: &ManagedPod| {
            pod.namespace == namespace && self.objects.owners.root(pod.controller).is_none()
        };
        self.reader.deadlines.get(uid).is_some_and(is_alone)
    }

    fn standing_of_kept(&mut self, uid: Uid) -> Option<Standing> {
        let Self { objects, reader } = self;
        let pod = reader.deadlines.get(uid)?;
        let of_groups = objects.gangs.of(objects.gangs.memberships(uid));
        Some(limits::standing(objects, uid, pod, of_groups))
    }

    fn going_run(
        &mut self,
        namespace: &str,
        workload: Uid,
        since: Timestamp,
        standing: &Standing,
    ) -> Option<GoingRun> {
        let of_t9k = standing.expires.is_some_and(|(_, family)| family == Family::Tensorstack);
        let (family, queue) = match &standing.runai {
            Some(queue) if !of_t9k => (Family::Runai, queue),
            _ => (Family::Tensorstack, standing.tensorstack.as_ref()?),
        };
        let limits = self.objects.limits(family, queue)?;
        let path = path(self.tree(), queue).unwrap_or_default();
        let limited_by = least_extensions(&path).map(str::to_owned);
        let times = self.objects.grants.of(workload, namespace, since).map(|grant| grant.time);
        let times: Vec<SignedDuration> = times.collect();
        Some(GoingRun {
            queue: queue.to_string(),
            limited_by: limited_by.filter(|_| family == Family::Runai),
            has_ceiling: standing.expires.is_some(),
            allowance: limits.extensions,
            count: times.len().try_into().unwrap_or(u32::MAX),
            total: times.into_iter().fold(SignedDuration::ZERO, SignedDuration::saturating_add),
        })
    }
}

/// Joins what two pods of a run may get: the least counts.
fn joined(one: GoingRun, other: GoingRun) -> GoingRun {
    let (least, more) =
        if one.allowance.max_total <= other.allowance.max_total { (one, other) } else { (other, one) };
    GoingRun {
        has_ceiling: least.has_ceiling || more.has_ceiling,
        allowance: least.allowance.least(more.allowance),
        count: least.count.max(more.count),
        total: least.total.max(more.total),
        ..least
    }
}

#[cfg(test)]
mod tests;
