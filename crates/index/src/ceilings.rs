//! The keeper's view of the cluster: the times at which ceilings are reached, and by which
//! workloads must be ready.
//!
//! The keeper's watches feed a [`CeilingIndex`], and its tasks ask the index what is due. The
//! kubectl plugin builds one from the objects that it has listed, and computes standings. A change
//! only marks the pods that it concerns: their ends are computed by `reschedule`, which all answers
//! that depend on ends call first.

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

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use tenure_policy::{
    config::ConfiguredQueue,
    expiry::{Family, GraceOnChange, PerFamily, PolicyChange, Scope},
    extension::RequestedRun,
    floor::Floors,
    notice::NoticePoints,
    owner_table::OwnerTable,
    ready::{PodsReady, Readiness},
    start::LongestFormation,
};
use tenure_types::{extension::Extension, projection};

pub use answers::{CeilingCounts, MissingEvidence, ObjectFacts};
pub use ends::StaleEnd;
pub use marks::StaleMarks;
pub use standing::{PodStanding, SeenPod};
pub use tally::QueueReports;
pub use workload::PodWorkload;

use crate::{
    Uid,
    cluster::{ClusterIndex, ClusterModel, ClusterObjects, PendingChanges},
    deadlines::{Deadlines, ManagedPod, RetryAfter},
};

/// The settings of a [`CeilingIndex`], which the keeper and the plugin take from their
/// configuration.
#[derive(Clone, Debug, Default)]
pub struct CeilingOptions {
    /// The owners that can be paused.
    pub table: OwnerTable,
    /// The notices before the end of a run, for queues that set none.
    pub notice: NoticePoints,
    /// The time for which a workload with notices runs on after a change of its queue has made it
    /// overdue.
    pub grace_on_change: GraceOnChange,
    /// The rules for workloads that don't get ready, for queues that set none. None: workloads of
    /// such queues may take any time to get ready.
    pub pods_ready: Option<PodsReady>,
    /// The configuration of floors, with the defaults for queues that set none.
    pub floors: Floors,
    /// The longest time between the scheduling of a workload's first pod and its start.
    pub longest_formation: LongestFormation,
    /// The queue of each family that counts for workloads whose queue doesn't exist. None: no queue
    /// does.
    pub default_queues: PerFamily<Option<String>>,
    /// The queues of each family that the configuration names. A missing one is logged.
    pub configured_queues: PerFamily<BTreeSet<ConfiguredQueue>>,
}

/// The keeper's reading of pods: the pods in queues by the time at which their tasks are due, and
/// the terminating pods.
#[derive(Debug, Default)]
pub struct Ceilings {
    deadlines: Deadlines,
    /// The configured notices, for queues that set none.
    notice: NoticePoints,
    /// The configured rules for workloads that don't get ready, for queues that set none.
    pods_ready: Option<PodsReady>,
    terminating: Terminating,
    grace_on_change: GraceOnChange,
    /// True once all queues were listed: events after that are changes.
    knows_queues: bool,
    /// A change of queues whose effect on pods is not computed yet.
    policy_change: Option<PolicyChange>,
    /// The queues that are named and don't exist.
    missing: MissingQueues,
}

impl ClusterIndex for Ceilings {
    fn pods(&self) -> impl Iterator<Item = Uid> {
        self.deadlines.uids().chain(self.terminating.0.keys().copied())
    }

    fn delete_pod(&mut self, objects: &mut ClusterObjects, uid: Uid) {
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
    /// Creates the index of an empty cluster.
    pub fn new(settings: CeilingOptions) -> Self {
        let mut index = Self::default();
        index.objects.gangs.serve_keeper();
        index.objects.owners.climb = index.objects.interner.kinds.climb();
        index.configure(settings);
        index
    }

    /// Sets the pods that Tenure manages, and the wait before the second try to stop a pod. To be
    /// called before any pod is added.
    pub fn set_flags(&mut self, scope: Scope, retry_after: RetryAfter) {
        self.reader.deadlines = Deadlines::new(scope, retry_after);
    }

    /// Replaces the settings. The next [`reschedule`](Self::reschedule) computes the ends of all pods
    /// again.
    pub fn configure(&mut self, settings: CeilingOptions) {
        let CeilingOptions {
            table,
            notice,
            grace_on_change,
            pods_ready,
            floors,
            longest_formation,
            default_queues,
            mut configured_queues,
        } = settings;
        let ClusterObjects { interner, queues, owners, moved, gangs, .. } = &mut self.objects;
        owners.pausable = interner.kinds.pausable(&table);
        queues[Family::Runai].configure(floors);
        for family in Family::ALL {
            queues[family].set_default(default_queues[family].as_deref());
            queues[family].set_configured(std::mem::take(&mut configured_queues[family]));
        }
        gangs.set_longest_formation(longest_formation);
        (self.reader.notice, self.reader.pods_ready) = (notice, pods_ready);
        self.reader.grace_on_change = grace_on_change;
        moved.all = true;
    }

    /// Records that all queues have been listed: from now on, changes of queues grant time. The
    /// first lists show no change, since queues were like that before.
    pub const fn know_queues(&mut self) {
        self.reader.knows_queues = true;
    }

    /// Calls `change`, which may change queues or the configuration and nothing else, at `now`. A
    /// run that the change makes overdue goes on for the configured grace if the run gets a notice.
    /// If further changes come before the next [`reschedule`](Self::reschedule), the time of the
    /// first counts for all.
    pub fn change_queues<T>(&mut self, now: Timestamp, change: impl FnOnce(&mut Self) -> T) -> T {
        if !self.objects.moved.all {
            // computes the ends of all runs by the queues as they were
            self.reschedule();
        }
        let result = change(self);
        let Ceilings { grace_on_change, knows_queues, policy_change, .. } = &mut self.reader;
        if *knows_queues && self.objects.moved.all {
            policy_change.get_or_insert(PolicyChange { at: now, grace: *grace_on_change });
        }
        result
    }

    /// Adds or updates a pod. Returns true if the index has known the pod before it was ever ready,
    /// and the pod is ready now. A pod without a uid is ignored.
    pub fn apply_pod(&mut self, pod: &projection::Pod) -> bool {
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::of) else { return false };
        let occupant = self.occupant(uid, pod);
        if pod.metadata.deletion_timestamp.is_some() {
            // fixes the queue of a deleted group, which is forgotten with the last of the group's
            // pods. Plans this pod alone: tenants delete all pods of a group at once, and each
            // computation of the group reads all of them
            self.schedule([uid]);
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
            // planned once the pod's group is computed, which has changed with the pod
            objects.moved.pods.insert(uid);
        }
        if let Some(occupant) = occupant {
            self.call_next(occupant);
        }
        is_ready_now
    }

    /// Returns the pods whose root owner is `root`. An empty `namespace` is that of a
    /// cluster-scoped owner, which may have pods in any namespace.
    fn pods_of(&self, namespace: &str, root: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let owners = &self.objects.owners;
        self.pods_under(namespace, root).filter(move |(_, pod)| owners.root(pod.controller) == Some(root))
    }

    /// Returns the pods below an owner, whether or not the owner is a root owner. Empty
    /// `namespace`: in any namespace.
    fn pods_under(&self, namespace: &str, owner: Uid) -> impl Iterator<Item = (Uid, &ManagedPod)> {
        let Self { objects: ClusterObjects { owners, .. }, reader } = self;
        let controllers = owners.with_descendants(owner).into_iter();
        let pods = controllers.flat_map(|of| reader.deadlines.controlled_by(of));
        pods.filter(move |(_, pod)| {
            (namespace.is_empty() || pod.namespace == namespace)
                && owners.ancestors(pod.controller).any(|above| above.uid == owner)
        })
    }

    /// Adds or updates an extension. Only grants, and denials by people, count.
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

    /// Returns the run of a workload for which an extension of `namespace` was requested at
    /// `asked`: the run must have begun by then. `workload` is the uid of a root owner, or of a pod
    /// without one. If several pods run, the least allowance counts.
    pub fn requested_run(&mut self, namespace: &str, workload: Uid, asked: Timestamp) -> RequestedRun {
        self.reschedule();
        let mut uids: Vec<Uid> = self.pods_of(namespace, workload).map(|(uid, _)| uid).collect();
        let owners = &self.objects.owners;
        let is_alone =
            |pod: &&ManagedPod| pod.namespace == namespace && owners.root(pod.controller).is_none();
        uids.extend(self.reader.deadlines.get(workload).filter(is_alone).map(|_| workload));
        let Self { objects, reader: Ceilings { deadlines, .. } } = self;
        let running = uids.into_iter().filter_map(|uid| {
            let standing = limits::standing(objects, uid, deadlines.get(uid)?);
            // a pod whose PodGroup doesn't exist, and that names no queue itself
            standing.ending_queue()?;
            Some((standing.began?, standing))
        });
        let running: Vec<(Timestamp, PodStanding)> = running.collect();
        let begun = || running.iter().filter(|(since, _)| *since <= asked);
        let runs = begun().filter_map(|(since, of)| going_run(objects, namespace, workload, *since, of));
        match (runs.reduce(joined), begun().find_map(|(_, of)| of.ending_queue())) {
            (Some(run), _) => RequestedRun::Going(run),
            (None, Some((_, queue))) => RequestedRun::WithoutQueue(queue.to_string()),
            (None, None) if running.is_empty() => RequestedRun::Unknown,
            (None, None) => RequestedRun::Over,
        }
    }

    /// Has the ends of the pods of workloads computed again. A workload is a root owner or a pod by
    /// itself.
    fn regrant(&mut self, workloads: impl IntoIterator<Item = Uid>) {
        self.objects.owners.with_grants = !self.objects.grants.is_empty();
        for workload in workloads {
            self.objects.moved.owners.insert(workload);
            self.objects.moved.pods.insert(workload);
        }
    }

    /// Computes the times of the tasks of these pods. Pods that aren't kept are skipped.
    fn schedule(&mut self, pods: impl IntoIterator<Item = Uid>) {
        let Self { objects, reader: Ceilings { deadlines, notice, pods_ready, policy_change, .. } } = self;
        for uid in pods {
            let deadlines_of = |pod: &ManagedPod| limits::deadlines(objects, *notice, *pods_ready, uid, pod);
            deadlines.schedule(uid, *policy_change, deadlines_of);
        }
    }

    /// Computes the times of tasks that may have changed since the last call. Answers that depend
    /// on these times call this first.
    pub fn reschedule(&mut self) {
        let of_groups = self.objects.gangs.moved();
        let PendingChanges { all, owners, pods } = std::mem::take(&mut self.objects.moved);
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
            self.reader.missing.refresh(&mut self.objects, change.at);
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
