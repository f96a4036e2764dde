//! Counts the workloads of each queue, in one pass over all pods. The keeper's `StatusController`
//! asks for the counts, writes them to the status of the queues, and exports them as metrics. Only
//! queues of the run.ai family are counted.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::Family,
    floor::Floors,
    queue_status::{QueueReport, TreePlace, WorkloadCounts, longest_floor, protected_until},
    runs::Runs,
    tree::{QueueId, QueueTree},
};

use super::{CeilingIndex, returns::PodsBelow};
use crate::{cluster::ClusterObjects, counted::CountedWorkload};

/// The reports on the queues of the run.ai family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReports {
    /// The report on each queue, with the queue's name, in no order.
    pub reports: Vec<(String, QueueReport)>,
    /// The time at which a report changes without an event: the first protection ends then. None:
    /// no workload is protected.
    pub until: Option<Timestamp>,
}

/// The counts of a queue so far.
#[derive(Default)]
struct Count {
    workloads: WorkloadCounts,
    /// The first end among the pods of the queue.
    expires: Option<Timestamp>,
    /// The longest floor of the queue. None: not computed yet.
    floor: Option<SignedDuration>,
    starts: Vec<Timestamp>,
}

/// The part of a running workload that is in one queue.
#[derive(Default)]
struct TalliedRun {
    /// The time at which the last of the floors that protect the run ends. None: no floor does.
    protected: Option<Timestamp>,
    /// The time from which the ceiling counts: the first start or scheduling of the run's pods.
    since: Option<Timestamp>,
}

struct WorkloadTally<'i> {
    tree: &'i QueueTree,
    floors: &'i Floors,
    now: Timestamp,
    counts: HashMap<QueueId, Count>,
    runs: HashMap<(QueueId, CountedWorkload), TalliedRun>,
}

/// Counts the workloads of the queues of the run.ai family, as of `now`.
pub fn tally(index: &CeilingIndex, floors: &Floors, now: Timestamp) -> QueueReports {
    let tree = index.tree();
    if tree.is_empty() {
        return QueueReports::default();
    }
    let (counts, runs) = (HashMap::new(), HashMap::new());
    let mut counting = WorkloadTally { tree, floors, now, counts, runs };
    counting.pods(index);
    counting.paused(index);
    counting.tally()
}

impl WorkloadTally<'_> {
    /// Counts the pods that take room by their workload, and finds the first end in each queue.
    fn pods(&mut self, index: &CeilingIndex) {
        let ClusterObjects { gangs, owners, .. } = &index.objects;
        for (uid, pod) in index.reader.deadlines.iter().filter(|(_, pod)| !pod.claims_exemption) {
            let memberships = gangs.memberships(uid);
            let own = pod.queues[Family::Runai].as_deref();
            let queue = gangs.floor_queue(memberships, own, pod.scheduled());
            let Some(queue) = queue.and_then(|queue| self.tree.bind(queue)) else { continue };
            if let Some(end) = pod.end() {
                let expires = &mut self.counts.entry(queue).or_default().expires;
                *expires = expires.iter().copied().chain([end]).min();
            }
            let Some(scheduled) = pod.scheduled() else { continue };
            let group = gangs.workload(memberships).map(|(group, _)| group);
            let workload = CountedWorkload::of(owners, group.map(|group| group.key), uid, pod);
            let start = group.map_or(Some(scheduled), |group| group.start);
            self.runs((queue, workload), start, scheduled);
        }
    }

    /// Counts the paused owners whose return no pods hold up, in the queue of the run.ai family that
    /// their record names.
    fn paused(&mut self, index: &CeilingIndex) {
        let pods = PodsBelow::at(self.now);
        for paused in index.objects.paused.topmost(&index.objects.owners) {
            // where the record doesn't say, a queue of both families may be either
            let is_elsewhere = || index.queues(Family::Tensorstack).tree().find(&paused.queue).is_some();
            let is_of_t9k = paused.family.map_or_else(is_elsewhere, |of| of == Family::Tensorstack);
            if is_of_t9k || pods.hold_up(index, paused) {
                continue;
            }
            if let Some(queue) = self.tree.find(&paused.queue) {
                let WorkloadCounts { requeueing, paused: staying, .. } =
                    &mut self.counts.entry(queue).or_default().workloads;
                add_one(if paused.returns.comes_back() { requeueing } else { staying });
            }
        }
    }

    /// Counts a pod as a part of a running workload in a queue. `start` is that of the workload.
    /// None: the workload hasn't started.
    fn runs(&mut self, of: (QueueId, CountedWorkload), start: Option<Timestamp>, scheduled: Timestamp) {
        let Self { tree, floors, now, counts, runs } = self;
        let count = counts.entry(of.0).or_default();
        let floor = *count.floor.get_or_insert_with(|| longest_floor(floors, tree, of.0));
        let protected = start.and_then(|start| protected_until(start, floor, *now));
        let run = runs.entry(of).or_default();
        run.protected = run.protected.max(protected);
        run.since = run.since.into_iter().chain(start).chain([scheduled]).min();
    }

    /// Makes the report of each queue that exists.
    fn tally(mut self) -> QueueReports {
        for ((queue, _), run) in &self.runs {
            let Count { workloads, starts, .. } = self.counts.entry(*queue).or_default();
            starts.extend(run.since);
            add_one(&mut workloads.running);
            if run.protected.is_some() {
                add_one(&mut workloads.protected);
            }
        }
        let until = self.runs.values().filter_map(|run| run.protected).min();
        let mut children: HashMap<&str, Vec<String>> = HashMap::new();
        for (name, queue) in self.tree.queues() {
            if let Some(parent) = queue.parent.as_deref() {
                children.entry(parent).or_default().push(name.to_owned());
            }
        }
        let reports = self.tree.queues().map(|(name, _)| {
            let mut children = children.remove(name).unwrap_or_default();
            children.sort_unstable();
            let id = self.tree.find(name);
            let count = id.and_then(|id| self.counts.remove(&id)).unwrap_or_default();
            let Count { workloads, expires: next_expiry, starts, .. } = count;
            let (runs, place) = (Runs::of(starts), id.map(|id| TreePlace::of(self.tree, id)));
            (name.to_owned(), QueueReport { children, workloads, runs, next_expiry, place })
        });
        QueueReports { reports: reports.collect(), until }
    }
}

const fn add_one(number: &mut u32) {
    *number = number.saturating_add(1);
}

#[cfg(test)]
mod tests;
