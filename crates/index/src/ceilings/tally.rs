//! Counts the workloads of each queue, in one look at all pods.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::Family,
    floor::Floors,
    queue_status::{QueueReport, Workloads, longest_floor, protected_until},
    tree::{QueueId, QueueTree},
};
use tenure_types::podgroup::PodGroupKind;

use super::CeilingIndex;
use crate::{Workload, paused::Paused, times::NEVER};

/// The reports on the queues of the run.ai family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The report on each queue, with the queue's name, in no order.
    pub reports: Vec<(String, QueueReport)>,
    /// When it changes by itself: the first protection ends then.
    pub until: Option<Timestamp>,
}

/// The counts of a queue so far.
#[derive(Default)]
struct Count {
    workloads: Workloads,
    /// In milliseconds since the epoch.
    expires: Option<i64>,
    floor: Option<SignedDuration>,
}

struct Counting<'i> {
    tree: &'i QueueTree,
    floors: &'i Floors,
    now: Timestamp,
    counts: HashMap<QueueId, Count>,
    until: Option<Timestamp>,
}

impl CeilingIndex {
    /// The counts of the queues of the run.ai family, as of `now`.
    pub fn tally(&mut self, floors: &Floors, now: Timestamp) -> Tally {
        self.reschedule();
        let tree = self.tree();
        if tree.is_empty() {
            return Tally::default();
        }
        let mut counting = Counting { tree, floors, now, counts: HashMap::new(), until: None };
        self.count_pods(&mut counting);
        self.count_paused(&mut counting);
        counting.tally()
    }

    fn count_pods(&self, counting: &mut Counting<'_>) {
        let gangs = &self.objects.gangs;
        // each group by where the list of its pods is
        let mut counted = HashSet::new();
        for (uid, pod) in self.reader.deadlines.iter().filter(|(_, pod)| !pod.claims_exemption) {
            let memberships = gangs.memberships(uid);
            let group = gangs.workload(memberships);
            let queue = gangs.queue(memberships).or(pod.runai.as_deref());
            if pod.expiry.at != NEVER
                && let Some(queue) = queue
            {
                counting.expires(queue, pod.expiry.at);
            }
            if pod.started.is_none() {
                continue;
            }
            match group {
                None => counting.runs(queue, pod.clocks().started),
                Some(group) if counted.insert(group.members.as_ptr()) => {
                    counting.runs(self.queue_of_group(&group), group.start);
                }
                Some(_) => {}
            }
        }
    }

    /// That which it names itself, else the one that its pods name, which may be several: then it is always the same.
    fn queue_of_group<'w>(&'w self, group: &Workload<'w>) -> Option<&'w str> {
        let mut pods = group.members.iter().filter_map(|uid| self.reader.deadlines.get(*uid));
        of_itself(group).or_else(|| pods.find_map(|pod| pod.runai.as_deref()))
    }

    fn count_paused(&self, counting: &mut Counting<'_>) {
        for paused in self.objects.paused.roots(&self.objects.owners) {
            if self.is_in_runai(paused) && !self.has_pods(paused) {
                counting.waits(paused);
            }
        }
    }

    /// Where the record doesn't say, a queue of both families may be either.
    fn is_in_runai(&self, paused: &Paused) -> bool {
        match paused.family {
            Some(family) => family == Family::Runai,
            None => self.objects.tensorstack.limits(&paused.queue).is_none(),
        }
    }
}

fn of_itself<'w>(group: &Workload<'w>) -> Option<&'w str> {
    group.queue.filter(|_| group.kind == PodGroupKind::Runai).map(ArcStr::as_str)
}

impl Counting<'_> {
    /// None if there is no such queue.
    fn of(&mut self, queue: &str) -> Option<(QueueId, &mut Count)> {
        let id = self.tree.find(queue)?;
        Some((id, self.counts.entry(id).or_default()))
    }

    fn expires(&mut self, queue: &str, at: i64) {
        if let Some((_, count)) = self.of(queue) {
            count.expires = count.expires.into_iter().chain([at]).min();
        }
    }

    fn runs(&mut self, queue: Option<&str>, start: Option<Timestamp>) {
        let (tree, floors, now) = (self.tree, self.floors, self.now);
        let Some((id, count)) = queue.and_then(|queue| self.of(queue)) else { return };
        add_one(&mut count.workloads.running);
        let floor = *count.floor.get_or_insert_with(|| longest_floor(floors, tree, id));
        if let Some(until) = start.and_then(|start| protected_until(start, floor, now)) {
            add_one(&mut count.workloads.protected);
            self.until = self.until.into_iter().chain([until]).min();
        }
    }

    fn waits(&mut self, paused: &Paused) {
        if let Some((_, Count { workloads, .. })) = self.of(&paused.queue) {
            add_one(if paused.returns.comes_back() {
                &mut workloads.requeueing
            } else {
                &mut workloads.paused
            });
        }
    }

    fn tally(mut self) -> Tally {
        let mut children: HashMap<&str, Vec<String>> = HashMap::new();
        for (name, queue) in self.tree.queues() {
            if let Some(parent) = queue.parent.as_deref() {
                children.entry(parent).or_default().push(name.to_owned());
            }
        }
        let reports = self.tree.queues().map(|(name, _)| {
            let mut children = children.remove(name).unwrap_or_default();
            children.sort_unstable();
            let count = self.tree.find(name).and_then(|id| self.counts.remove(&id)).unwrap_or_default();
            let next_expiry = count.expires.and_then(|at| Timestamp::from_millisecond(at).ok());
            (name.to_owned(), QueueReport { children, workloads: count.workloads, next_expiry })
        });
        Tally { reports: reports.collect(), until: self.until }
    }
}

const fn add_one(number: &mut u32) {
    *number = number.saturating_add(1);
}

#[cfg(test)]
mod tests;
