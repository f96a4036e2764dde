//! The status of queues.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenure_policy::{
    expiry::Family,
    queue::RunaiQueue,
    queue_status::{QueueReport, WorkloadCounts, longest_floor},
    runs::Runs,
    tree::QueueTree,
};
use tenure_types::podgroup::PodGroupKind;

use super::{Naive, capacity::Holder};
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
        let Tree(tree) = &self.tree;
        let mut tally = Tally::default();
        for name in self.runai.keys() {
            let children = self.runai.iter().filter(|(_, queue)| queue.parent == Some(*name));
            let mut children: Vec<_> = children.map(|(name, _)| wire::runai_name(*name)).collect();
            children.sort_unstable();
            let report = QueueReport { children, place: Some(self.place(*name)), ..QueueReport::default() };
            tally.reports.insert(wire::runai_name(*name), report);
        }
        let floors = wire::floors(&self.config);
        // of each workload the ends of its floors, as far as it is within them, and when it and its pods started
        let mut runs: BTreeMap<(String, Holder), (Vec<Nanos>, Vec<Nanos>)> = BTreeMap::new();
        for pod in self.workload_pods().filter(|pod| pod.scheduled.is_some()) {
            let group = pod.keys().find(|key| self.groups.contains_key(key));
            let (queue, start) = match group {
                None => (self.runai_of(pod), pod.scheduled()),
                Some(key) => {
                    let own = self.queue_of_group(key).filter(|_| key.0 == PodGroupKind::Runai);
                    let named = || self.kept().filter(|pod| pod.is_member(key)).find_map(|pod| pod.runai);
                    (own.or_else(named), self.gangs[&key].start)
                }
            };
            let queue = queue.map(|queue| self.bind(Family::Runai, queue));
            let name = queue.map(wire::runai_name).unwrap_or_default();
            let floor = tree.find(&name).map(|id| longest_floor(&floors, tree, id)).unwrap_or_default();
            let end = start.map(|start| start + Nanos::try_from(floor.as_nanos()).unwrap());
            let holder = match (self.root(pod.controller), group) {
                (Some(root), _) => Holder::Owner(pod.namespace, root),
                (None, Some(key)) => Holder::Group(key),
                (None, None) => Holder::Pod(pod.uid),
            };
            let run = runs.entry((name, holder)).or_default();
            run.0.extend(end.filter(|end| !floor.is_zero() && self.now < *end));
            run.1.extend(start.into_iter().chain(pod.scheduled()));
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

    /// All but those that say that a DaemonSet controls them.
    fn workload_pods(&self) -> impl Iterator<Item = &PodObj> {
        self.kept().filter(|pod| !matches!(pod.controller, Some((OwnerKind::DaemonSet, _))))
    }

    fn count_ends(&self, tally: &mut Tally) {
        for pod in self.workload_pods() {
            let Some(end) = self.dues[&pod.uid].expires else { continue };
            let queue = self.runai_of(pod).map(|queue| wire::runai_name(self.bind(Family::Runai, queue)));
            let queue = queue.unwrap_or_default();
            if let Some(report) = tally.reports.get_mut(&queue) {
                report.next_expiry = report.next_expiry.into_iter().chain([timestamp(end * MILLI)]).min();
            }
        }
    }

    fn runai_of(&self, pod: &PodObj) -> Option<u8> {
        let group = pod.keys().next().filter(|key| key.0 == PodGroupKind::Runai);
        group.and_then(|key| self.queue_of_group(key)).or(pod.runai)
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
