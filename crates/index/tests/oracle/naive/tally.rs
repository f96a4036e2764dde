//! The status of queues.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenure_policy::{
    expiry::Family,
    queue::RunaiQueue,
    queue_status::{QueueReport, WorkloadCounts, longest_floor},
    runs::Runs,
    tree::QueueTree,
};

use super::{Naive, capacity::Counted};
use crate::{
    wire,
    world::{MILLI, Nanos, OwnerKind, PodObj, RunaiObj, timestamp},
};

/// The queues as policy has them.
#[derive(Default)]
pub struct Tree(pub(super) QueueTree);

/// The report on each queue, by name, and the time at which one changes by itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    pub reports: BTreeMap<String, QueueReport>,
    pub until: Option<Nanos>,
}

impl Naive {
    pub(super) fn plant(&mut self) {
        let read = |queue| RunaiQueue::read(&wire::runai(queue)).0;
        let queues = self.runai.iter().map(|(name, queue)| (wire::runai_name(*name), read(queue)));
        let mut tree: QueueTree = queues.collect();
        tree.set_default(self.config.defaults.0.map(wire::runai_name).as_deref());
        self.tree = Tree(tree);
    }

    /// True if a queue means something else than what is known of it.
    pub(super) fn is_other(&self, name: u8, queue: &RunaiObj) -> bool {
        let known = self.tree.0.queue(&wire::runai_name(name)).map(|(_, known)| known);
        known != Some(&RunaiQueue::read(&wire::runai(queue)).0)
    }

    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for name in self.runai.keys() {
            let children = self.runai.iter().filter(|(_, queue)| queue.parent == Some(*name));
            let mut children: Vec<_> = children.map(|(name, _)| wire::runai_name(*name)).collect();
            children.sort_unstable();
            let report = QueueReport { children, place: Some(self.place(*name)), ..QueueReport::default() };
            tally.reports.insert(wire::runai_name(*name), report);
        }
        // of each workload the ends of its floors, as far as it is within them, and when it and its pods started
        let mut runs: BTreeMap<(String, Counted), (Vec<Nanos>, Vec<Nanos>)> = BTreeMap::new();
        for pod in self.workload_pods().filter(|pod| pod.scheduled().is_some()) {
            let run = runs.entry((self.queue_name(pod), self.counted(pod))).or_default();
            run.0.extend(self.protected_until(pod));
            run.1.extend(self.start(pod).into_iter().chain(self.started(pod)));
        }
        let mut starts: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        for ((name, _), (ends, started)) in runs {
            let Some(report) = tally.reports.get_mut(&name) else { continue };
            report.workloads.running += 1;
            starts.entry(name).or_default().extend(started.into_iter().min().map(timestamp));
            if let Some(last) = ends.into_iter().max() {
                report.workloads.protected += 1;
                tally.until = tally.until.into_iter().chain([last]).min();
            }
        }
        for (name, starts) in starts {
            tally.reports.get_mut(&name).expect("it is counted").runs = Runs::of(starts);
        }
        self.count_ends(&mut tally);
        self.count_paused(&mut tally);
        tally
    }

    /// When the workload of a pod started.
    fn start(&self, pod: &PodObj) -> Option<Nanos> {
        let group = pod.keys().find(|key| self.groups.contains_key(key));
        group.map_or_else(|| self.started(pod), |key| self.gangs[&key].start)
    }

    /// The end of the longest floor of a pod, if it is within that.
    fn protected_until(&self, pod: &PodObj) -> Option<Nanos> {
        let tree = self.tree();
        let queue = tree.find(&self.queue_name(pod))?;
        let floor = longest_floor(&self.floors(), tree, queue);
        let end = self.start(pod).filter(|_| pod.scheduled().is_some())?
            + Nanos::try_from(floor.as_nanos()).unwrap();
        Some(end).filter(|end| !floor.is_zero() && self.now < *end)
    }

    /// The pods that are to have marks for autoscalers.
    pub fn marked(&self) -> BTreeSet<u32> {
        self.kept().filter(|pod| self.protected_until(pod).is_some()).map(|pod| pod.uid).collect()
    }

    /// All but those that say that a DaemonSet controls them.
    pub(super) fn workload_pods(&self) -> impl Iterator<Item = &PodObj> {
        self.kept().filter(|pod| !matches!(pod.controller, Some((OwnerKind::DaemonSet, _))))
    }

    fn count_ends(&self, tally: &mut Tally) {
        for pod in self.workload_pods() {
            let Some(end) = self.dues[&pod.uid].expires else { continue };
            if let Some(report) = tally.reports.get_mut(&self.queue_name(pod)) {
                report.next_expiry = report.next_expiry.into_iter().chain([timestamp(end * MILLI)]).min();
            }
        }
    }

    /// The name of the queue in which a pod counts. Empty: none.
    fn queue_name(&self, pod: &PodObj) -> String {
        let queue = self.floor_queue(pod, self.started(pod)).map(|queue| self.bind(Family::Runai, queue));
        queue.map(wire::runai_name).unwrap_or_default()
    }

    fn count_paused(&self, tally: &mut Tally) {
        for (owner, back, _) in self.paused().filter(|(owner, ..)| !self.has_pods(owner)) {
            let Some(record) = owner.record else { continue };
            let is_runai = record
                .tensorstack
                .map_or_else(|| !self.knows(Family::Tensorstack, record.queue), |tensorstack| !tensorstack);
            let Some(report) = tally.reports.get_mut(&wire::runai_name(record.queue)).filter(|_| is_runai)
            else {
                continue;
            };
            let WorkloadCounts { paused, requeueing, .. } = &mut report.workloads;
            *(if back.comes_back() { requeueing } else { paused }) += 1;
        }
    }
}
