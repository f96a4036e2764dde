//! The standing of a pod: its queues and clocks.
//!
//! A standing is computed from the queues, `PodGroup`s and owners that the index knows, and not
//! kept. The keeper computes one whenever it plans or judges a run, and the plugin for each pod
//! that it lists or explains.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    ceiling,
    expiry::{Clocks, Family, PerFamily},
    extension::Allowance,
    ready::{NotReady, PodsReady},
    tree::QueueTree,
};
use tenure_types::{
    ExtendedDuration, duration::for_people, paused::ExceededCeiling, projection, store::ObjectKey,
};

use super::limits::{self, ignored_own};
use crate::{
    RunPlace, Uid,
    cluster::{ClusterModel, ClusterObjects},
    deadlines::ManagedPod,
    names::Interner,
    own::OwnCeilings,
    podgroups::{Membership, memberships},
    times::{in_time, milliseconds},
};

/// The standing of a pod: its clocks, its queues and the end of its run. See
/// `CeilingIndex::standing`.
#[derive(Clone, Debug)]
pub struct PodStanding {
    /// The two clocks that the pod's ceilings run by.
    pub clocks: Clocks,
    /// The start of the run as far as no tenant can have written it: grants count that were
    /// requested since then. None: the run hasn't begun.
    pub began: Option<Timestamp>,
    /// The start of the pod's workload: that of its `PodGroup`, or the scheduling of a pod without
    /// a group. None: the workload hasn't started.
    pub start: Option<Timestamp>,
    /// True if a `PodGroup` that exists counts for the workload.
    pub is_grouped: bool,
    /// The pod's queue of each family, which may not exist. None: the pod is in no queue of the
    /// family.
    pub queues: PerFamily<Option<ArcStr>>,
    /// The queues in which schedulers place the pod: those that its label or group names. They differ
    /// from `queues` where another queue ends the run earlier. None: neither names one.
    pub placed: PerFamily<Option<ArcStr>>,
    /// The name of a queue that the workload gives, where no queue has that name and the default
    /// queue counts.
    pub by_default: PerFamily<Option<ArcStr>>,
    /// The queues of the run.ai family that allow the least total of extensions, the least without
    /// approval, and the least number, of all that the run has had. Empty: none of them exists.
    pub lending: Vec<ArcStr>,
    /// The extensions that the run may get: the least of what all its queues allow.
    pub allowance: Allowance,
    /// The least of the ceilings that people have noted on the pod, its root owner and its
    /// `PodGroup`s.
    pub own: Option<SignedDuration>,
    /// The time that the run was granted beyond the ceiling that ends it. Zero: no time was
    /// granted.
    pub extension: SignedDuration,
    /// The time at which the run ends, and the family whose ceiling sets it. None: no ceiling
    /// applies.
    pub expires: Option<(Timestamp, Family)>,
    /// The same without the ceilings that people have noted.
    pub expires_by_queue: Option<(Timestamp, Family)>,
    /// The lack of ready pods in the pod's `PodGroup`. None: enough pods are ready, or there is no
    /// group.
    pub lacking: Option<NotReady>,
}

impl PodStanding {
    /// Returns the pod's queue of a family.
    pub fn queue(&self, family: Family) -> Option<&ArcStr> {
        self.queues[family].as_ref()
    }

    /// Returns the pod's queue whose rules for workloads that don't get ready count: that of the
    /// run.ai family, if there is one.
    pub(super) fn first_queue(&self) -> Option<(Family, &ArcStr)> {
        Family::ALL.into_iter().find_map(|family| Some((family, self.queue(family)?)))
    }

    /// Returns the pod's queue whose ceiling ends the run. If no ceiling applies, returns the queue
    /// of the run.ai family, if there is one, or else that of T9k's.
    pub fn ending_queue(&self) -> Option<(Family, &ArcStr)> {
        match self.expires {
            Some((_, family)) => Some((family, self.queue(family)?)),
            None => self.first_queue(),
        }
    }

    /// Returns the ceiling that ends a run with this standing, and the queue that sets it. None: no
    /// ceiling applies.
    pub fn ceiling(&self, trees: PerFamily<&QueueTree>) -> Option<ExceededCeiling> {
        let (end, family) = self.expires?;
        let run = end.duration_since(self.clocks.since(family)?);
        let ceiling = run.saturating_sub(self.extension);
        let queue = self.queue(family)?.as_str();
        let set_by = if self.own == Some(ceiling) { None } else { ceiling::effective(trees[family], queue) };
        let extended = self.extension.is_positive().then(|| for_people(self.extension));
        let (queue, written) = set_by.unzip();
        let written = written.filter(|written| written.to_signed() == ceiling);
        let max_duration = written.unwrap_or_else(|| ExtendedDuration::of(ceiling)).to_string();
        Some(ExceededCeiling { max_duration, queue: queue.map(str::to_owned), extended })
    }

    /// Returns the ceiling that the workload notes itself, if it has no effect: the ceilings of the
    /// pod's queues are shorter.
    pub fn ignored_own<R>(&self, model: &mut ClusterModel<R>) -> Option<SignedDuration> {
        ignored_own(&mut model.objects, self)
    }
}

/// A pod that was read, and that the index doesn't keep. The plugin reads all pods first, and then
/// computes their standings.
#[derive(Debug)]
pub struct SeenPod {
    pub(super) uid: Uid,
    pub(super) pod: ManagedPod,
    of: Box<[Membership]>,
}

impl SeenPod {
    /// Reads a pod, to compute its standing later, when all pods of its `PodGroup`s are known.
    /// None: the pod is in no queue.
    pub fn read<R>(pod: &projection::Pod, model: &mut ClusterModel<R>) -> Option<Self> {
        Self::read_by(pod, &mut model.objects, None)
    }

    /// Reads a pod. `known` is the index's record of the pod. None: the pod is in no queue.
    pub(super) fn read_by(
        pod: &projection::Pod,
        objects: &mut ClusterObjects,
        known: Option<&ManagedPod>,
    ) -> Option<Self> {
        let Interner { kinds, names, .. } = &mut objects.interner;
        let of = memberships(pod, kinds, |text| names.shared(text));
        let uid = Uid::of_object(&pod.metadata);
        Some(Self { uid, pod: ManagedPod::read(pod, &mut objects.interner, known)?, of })
    }

    /// Returns the end of the run that the pod shows. A tenant may have written it.
    pub fn shown_end(&self) -> Option<Timestamp> {
        in_time(self.pod.shown_end)
    }

    /// Computes the pod's standing by the queues, `PodGroup`s and owners that are known. None: the
    /// pod is in no queue.
    pub fn standing<R>(&self, model: &mut ClusterModel<R>) -> Option<PodStanding> {
        self.standing_by(&mut model.objects, None)
    }

    /// Computes the pod's standing. `owner` is one of the pod's owners, as it was just read: if it is
    /// the root owner, its ceiling counts in place of the one that the index knows. None: the pod is
    /// in no queue.
    pub(super) fn standing_by(
        &self,
        objects: &mut ClusterObjects,
        owner: Option<&ObjectMeta>,
    ) -> Option<PodStanding> {
        let (owners, controller) = (&objects.owners, self.pod.controller);
        let root = owner.filter(|owner| owners.root(controller) == Some(Uid::of_object(owner)));
        let own = root.map_or_else(|| owners.own_ceiling(controller), OwnCeilings::ceiling);
        objects.gangs.compute();
        let of_groups = objects.gangs.of(&self.of);
        let standing = limits::standing_below(objects, own, (self.uid, &self.pod), of_groups);
        standing.first_queue().is_some().then_some(standing)
    }

    /// Fixes what ends the run of a terminating pod with this standing. Returns true if the pod lacks
    /// evidence of that.
    pub(super) fn fix(&mut self, objects: &mut ClusterObjects, standing: PodStanding) -> bool {
        let Self { pod, of, .. } = self;
        // no readiness counts any more
        let run = limits::bound_run(objects, pod, of, standing, false);
        pod.fix(run) || pod.lacks_since(None)
    }

    /// Returns the pod's namespace and queues, and the ends of its run. `rules` are the configured
    /// rules for unready workloads. An exempt pod has no ends. None: the pod is in no queue.
    pub(super) fn run_place(
        &self,
        objects: &mut ClusterObjects,
        rules: Option<PodsReady>,
        is_exempt: bool,
    ) -> Option<RunPlace> {
        let standing = self.standing_by(objects, None)?;
        let ready_until = limits::ready_until(objects, rules, &self.pod, &standing);
        // pods may name any queue: usage by queue has only queues that exist, and the empty name
        // for all others
        let existing = |family| {
            let queue = standing.placed[family].as_ref().or(standing.queue(family))?;
            Some(if objects.limits(family, queue).is_some() { queue.clone() } else { ArcStr::new() })
        };
        Some(RunPlace {
            namespace: self.pod.namespace.clone(),
            queues: PerFamily::new(existing),
            is_grouped: standing.is_grouped,
            // a ceiling that users note and remove would make each deletion a cut
            deadline: standing.expires_by_queue.filter(|_| !is_exempt).and_then(|(at, _)| milliseconds(at)),
            ready_until: ready_until
                .filter(|_| !is_exempt && !standing.is_grouped)
                .and_then(|of| milliseconds(of.at)),
        })
    }
}
