//! The keeper's view of the cluster: the times at which ceilings are reached, and by which workloads must be ready.

mod answers;
mod drivers;
mod ends;
mod extensions;
mod history;
mod limits;
mod marks;
mod missing;
mod returns;
mod standing;
mod tally;
mod terminating;
mod work;
mod workload;

use std::collections::HashSet;

use jiff::Timestamp;
use tenure_policy::{
    expiry::{Family, GraceOnChange, PerFamily, PolicyChange, Scope},
    extension::RequestedRun,
    floor::Floors,
    kueue,
    notice::NoticePoints,
    owners::OwnerTable,
    ready::{PodsReady, Readiness},
    start::LongestFormation,
};
use tenure_types::{extension::Extension, projection};

pub use answers::{Counts, MissingEvidence};
pub use ends::StaleEnd;
pub use marks::StaleMarks;
pub use standing::{Seen, Standing};
pub use tally::Tally;
pub use workload::PodWorkload;

use crate::{
    Uid,
    cluster::{ClusterModel, Moved, Objects, Reader},
    deadlines::{Deadlines, ManagedPod, RetryAfter},
};

/// The settings of an index.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The pods that count.
    pub scope: Scope,
    /// The owners that can be paused.
    pub table: OwnerTable,
    /// The notices before the end of a run, where the queue doesn't say.
    pub notice: NoticePoints,
    /// The time for which a workload runs on when a change of its queue has made it overdue.
    pub grace_on_change: GraceOnChange,
    /// The rules for workloads that don't get ready, where the queue doesn't say. None: they never make room.
    pub pods_ready: Option<PodsReady>,
    /// The floors of workloads, where no queue says.
    pub floors: Floors,
    /// The longest time between the scheduling of a workload's first pod and its start.
    pub longest_formation: LongestFormation,
    /// The queues that Kueue's queues stand for. They don't change.
    pub kueue_queues: kueue::Queues,
    /// The wait before another try to stop a pod, from the keeper's flags. It doesn't change.
    pub retry_after: RetryAfter,
    /// The queues that count for workloads that name a queue that doesn't exist.
    pub default_queues: PerFamily<Option<String>>,
}

/// The pods in queues, by the time at which their tasks are due.
#[derive(Debug, Default)]
pub struct Ceilings {
    deadlines: Deadlines,
    notice: NoticePoints,
    pods_ready: Option<PodsReady>,
    terminating: Terminating,
    grace_on_change: GraceOnChange,
    /// True once all queues were listed: events after that are changes.
    knows_queues: bool,
    /// A change of queues whose effect on pods is not computed yet.
    policy_change: Option<PolicyChange>,
    missing: MissingQueues,
}

impl Reader for Ceilings {
    fn pods(&self) -> impl Iterator<Item = Uid> {
        self.deadlines.uids().chain(self.terminating.0.keys().copied())
    }

    fn delete_pod(&mut self, objects: &mut Objects, uid: Uid) {
        let before = facts(&self.deadlines, uid);
        self.deadlines.delete(uid);
        self.terminating.0.remove(&uid);
        drive(objects, &mut self.deadlines, uid, before);
    }

    fn delete_queue(&mut self, family: Family, name: &str) {
        if self.knows_queues {
            self.missing.gone.push((family, name.to_owned()));
        }
    }
}

use drivers::{drive, facts};
use extensions::{going_run, joined};
use missing::MissingQueues;
pub use terminating::Overlong;
use terminating::Terminating;

/// The model of the keeper: everything that a ceiling's expiry depends on.
pub type CeilingIndex = ClusterModel<Ceilings>;

impl CeilingIndex {
    /// An index of an empty cluster.
    pub fn new(settings: Settings) -> Self {
        let mut index = Self::default();
        index.reader.deadlines = Deadlines::new(settings.scope.clone(), settings.retry_after);
        index.objects.gangs.serve_keeper();
        index.objects.owners.makers = Some(index.objects.interner.kinds.makers());
        index.objects.interner.kueue_queues.clone_from(&settings.kueue_queues);
        index.configure(settings);
        index
    }

    /// Replaces the settings, apart from those that don't change.
    pub fn configure(&mut self, settings: Settings) {
        let Settings {
            table,
            notice,
            grace_on_change,
            pods_ready,
            floors,
            longest_formation,
            default_queues,
            ..
        } = settings;
        let Objects { interner, queues, owners, moved, gangs, .. } = &mut self.objects;
        owners.set_pausable(interner.kinds.pausable(&table));
        queues[Family::Runai].configure(floors);
        for family in Family::ALL {
            queues[family].set_default(default_queues[family].as_deref());
        }
        gangs.set_longest_formation(longest_formation);
        (self.reader.notice, self.reader.pods_ready) = (notice, pods_ready);
        self.reader.grace_on_change = grace_on_change;
        moved.all = true;
    }

    /// Says that all queues have been listed. What the first lists show is no change: queues were so before.
    pub const fn know_queues(&mut self) {
        self.reader.knows_queues = true;
    }

    /// Changes queues or the configuration, and nothing else, at `now`. A run that this makes overdue goes on for a while if it gets a notice.
    pub fn change_queues<T>(&mut self, now: Timestamp, change: impl FnOnce(&mut Self) -> T) -> T {
        if !self.objects.moved.all {
            // the ends of all runs by the queues as they were
            self.reschedule();
        }
        let result = change(self);
        let Ceilings { grace_on_change, knows_queues, policy_change, .. } = &mut self.reader;
        if *knows_queues && self.objects.moved.all {
            policy_change.get_or_insert(PolicyChange { at: now, grace: *grace_on_change });
        }
        result
    }

    /// Adds or updates a pod; says whether it was seen before it was ever ready, and is ready now.
    pub fn apply_pod(&mut self, pod: &projection::Pod) -> bool {
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::of) else { return false };
        let occupant = self.occupant(uid, pod);
        if pod.metadata.deletion_timestamp.is_some() {
            // with the last of its pods, the queue of a group that is gone is forgotten
            self.reschedule();
        }
        self.apply_member(pod);
        let Self { objects, reader: Ceilings { terminating, deadlines, .. } } = self;
        terminating.apply(objects, (uid, pod), deadlines.get(uid), deadlines.exempts(pod));
        let readiness = |deadlines: &Deadlines| Some(deadlines.get(uid)?.readiness.get());
        let was_new = readiness(deadlines) == Some(Readiness::NotYet);
        let before = facts(deadlines, uid);
        let is_kept = deadlines.apply(uid, pod, &mut objects.interner);
        drive(objects, deadlines, uid, before);
        let is_ready_now = was_new && readiness(deadlines) == Some(Readiness::Ready);
        if is_kept && objects.gangs.workload(objects.gangs.memberships(uid)).is_none() {
            self.schedule([uid]);
        } else if is_kept {
            // once its group is computed, which has changed with it
            objects.moved.pods.insert(uid);
        }
        if let Some(occupant) = occupant {
            self.call_next(occupant);
        }
        is_ready_now
    }

    /// The pods of a root owner. One of the whole cluster may have some in any namespace.
    fn pods_of(&self, namespace: &str, root: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let owners = &self.objects.owners;
        self.pods_under(namespace, root).filter(move |(_, pod)| owners.root(pod.controller) == Some(root))
    }

    /// The pods of an owner, whether or not others are above it.
    fn pods_under(&self, namespace: &str, owner: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let Self { objects: Objects { owners, .. }, reader } = self;
        let controllers = owners.with_descendants(owner).into_iter();
        let pods = controllers.flat_map(|of| reader.deadlines.controlled_by(of));
        pods.filter(move |(_, pod)| {
            (namespace.is_empty() || pod.namespace == namespace)
                && owners.ancestors(pod.controller).any(|above| above.uid == owner)
        })
    }

    /// Adds or updates an extension. Only one that is granted counts.
    pub fn apply_extension(&mut self, extension: &Extension) {
        let changed = self.objects.grants.apply(extension);
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

    /// Returns the run of a workload for which an extension of a namespace was asked at `asked`: one that had begun by then.
    pub fn requested_run(&mut self, namespace: &str, workload: Uid, asked: Timestamp) -> RequestedRun {
        self.reschedule();
        let mut uids: Vec<Uid> = self.pods_of(namespace, workload).map(|(uid, _)| uid).collect();
        let Self { objects, reader: Ceilings { deadlines, .. } } = self;
        let is_alone =
            |pod: &&ManagedPod| pod.namespace == namespace && objects.owners.root(pod.controller).is_none();
        uids.extend(deadlines.get(workload).filter(is_alone).map(|_| workload));
        let running = uids.into_iter().filter_map(|uid| {
            let standing = limits::standing(objects, uid, deadlines.get(uid)?);
            Some((standing.clocks.started?, standing))
        });
        let running: Vec<(Timestamp, Standing)> = running.collect();
        let begun = || running.iter().filter(|(since, _)| *since <= asked);
        let runs = begun().filter_map(|(since, of)| going_run(objects, namespace, workload, *since, of));
        match (runs.reduce(joined), begun().find_map(|(_, of)| of.ending_queue())) {
            (Some(run), _) => RequestedRun::Going(run),
            (None, Some((_, queue))) => RequestedRun::WithoutQueue(queue.to_string()),
            (None, None) if running.is_empty() => RequestedRun::Unknown,
            (None, None) => RequestedRun::Over,
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

    fn schedule(&mut self, pods: impl IntoIterator<Item = Uid>) {
        let Self { objects, reader: Ceilings { deadlines, notice, pods_ready, policy_change, .. } } = self;
        for uid in pods {
            let deadlines_of = |pod: &ManagedPod| limits::deadlines(objects, *notice, *pods_ready, uid, pod);
            deadlines.schedule(uid, *policy_change, deadlines_of);
        }
    }

    /// Computes the times of tasks that may have changed. All answers do that first.
    pub fn reschedule(&mut self) {
        let of_groups = self.objects.gangs.moved();
        let Moved { all, owners, pods } = std::mem::take(&mut self.objects.moved);
        let (deadlines, known) = (&self.reader.deadlines, &self.objects.owners);
        let moved: HashSet<Uid> = if all {
            deadlines.iter().map(|(uid, _)| uid).collect()
        } else {
            let below: HashSet<Uid> =
                owners.into_iter().flat_map(|owner| known.with_descendants(owner)).collect();
            let below = below.into_iter().flat_map(|of| deadlines.controlled_by(of).map(|(uid, _)| uid));
            below.chain(of_groups).chain(pods).collect()
        };
        self.schedule(moved);
        if let Some(change) = self.reader.policy_change.take() {
            self.reader.missing.look(&mut self.objects, change.at);
        }
        self.follow_ends();
    }
}

#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod requeue_tests;
#[cfg(test)]
mod tests;
