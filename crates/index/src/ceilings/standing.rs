//! The standing of a pod: its queues and clocks.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    ceiling,
    expiry::{Clocks, Family, PerFamily},
    ready::{NotReady, PodsReady},
    tree::QueueTree,
};
use tenure_types::{ExtendedDuration, duration::for_people, paused::ExceededCeiling, projection};

use super::limits::{self, ignored_own};
use crate::{
    RunPlace, Uid,
    cluster::{ClusterModel, Objects},
    deadlines::ManagedPod,
    own::OwnCeilings,
    podgroups::{Membership, memberships},
    times::{in_time, milliseconds},
};

/// The standing of a pod: its clocks, queues and the end of its run. See [`CeilingIndex::standing`].
#[derive(Clone, Debug)]
pub struct Standing {
    /// The two clocks that its ceilings run by.
    pub clocks: Clocks,
    /// The start of its workload: that of its `PodGroup`, if there is one.
    pub start: Option<Timestamp>,
    /// True if there is one.
    pub is_grouped: bool,
    /// Its queue of each family.
    pub queues: PerFamily<Option<ArcStr>>,
    /// The name that its workload gives, where no queue has it and the default queue counts.
    pub by_default: PerFamily<Option<ArcStr>>,
    /// The least of the ceilings that people have noted on it, its root owner and its `PodGroup`s.
    pub own: Option<SignedDuration>,
    /// The time that its run was granted beyond that ceiling.
    pub extension: SignedDuration,
    /// The time at which its run ends, and the family whose ceiling sets it.
    pub expires: Option<(Timestamp, Family)>,
    /// The lack of ready pods in its `PodGroup`. None: enough are ready.
    pub lacking: Option<NotReady>,
}

impl Standing {
    /// Its queue of a family.
    pub fn queue(&self, family: Family) -> Option<&ArcStr> {
        self.queues[family].as_ref()
    }

    /// Its queue whose rules for workloads that don't get ready count.
    pub(super) fn first_queue(&self) -> Option<(Family, &ArcStr)> {
        Family::ALL.into_iter().find_map(|family| Some((family, self.queue(family)?)))
    }

    /// Its queue whose ceiling ends its run, or would.
    pub fn ending_queue(&self) -> Option<(Family, &ArcStr)> {
        match self.expires {
            Some((_, family)) => Some((family, self.queue(family)?)),
            None => self.first_queue(),
        }
    }

    /// Returns the ceiling that ends a run with this standing, and the queue that sets it. None: no ceiling applies.
    pub fn ceiling(&self, trees: PerFamily<&QueueTree>) -> Option<ExceededCeiling> {
        let (end, family) = self.expires?;
        let run = end.duration_since(self.clocks.since(family)?);
        let ceiling = run.saturating_sub(self.extension);
        let queue = self.queue(family)?.as_str();
        let set_by =
            if self.own == Some(ceiling) { None } else { ceiling::effective(trees[family], queue).ok()? };
        let extended = self.extension.is_positive().then(|| for_people(self.extension));
        let (queue, written) = set_by.unzip();
        let written = written.filter(|written| written.to_signed() == ceiling);
        let max_duration = written.unwrap_or_else(|| ExtendedDuration::of(ceiling)).to_string();
        Some(ExceededCeiling { max_duration, queue: queue.map(str::to_owned), extended })
    }

    /// Returns the ceiling that a workload notes itself, where that of its queue is shorter and counts.
    pub fn ignored_own<R>(&self, model: &mut ClusterModel<R>) -> Option<SignedDuration> {
        ignored_own(&mut model.objects, self)
    }
}

/// A pod that was seen, and isn't kept.
#[derive(Debug)]
pub struct Seen {
    pub(super) uid: Uid,
    pub(super) pod: ManagedPod,
    of: Box<[Membership]>,
}

impl Seen {
    /// Reads a pod, to compute its standing later, when all pods of its `PodGroup`s are known. None: it is in no queue.
    pub fn read<R>(pod: &projection::Pod, model: &mut ClusterModel<R>) -> Option<Self> {
        Self::read_by(pod, &mut model.objects, None)
    }

    /// Reads a pod of which `known` is known.
    pub(super) fn read_by(
        pod: &projection::Pod,
        objects: &mut Objects,
        known: Option<&ManagedPod>,
    ) -> Option<Self> {
        let of = memberships(pod, |text| objects.interner.names.shared(text));
        let uid = Uid::of(pod.metadata.uid.as_deref().unwrap_or_default());
        Some(Self { uid, pod: ManagedPod::read(pod, &mut objects.interner, known)?, of })
    }

    /// The end of its run that it shows. A tenant may write it.
    pub fn shown_end(&self) -> Option<Timestamp> {
        in_time(self.pod.shown_end)
    }

    /// Computes its standing by the queues, `PodGroup`s and owners that are known.
    pub fn standing<R>(&self, model: &mut ClusterModel<R>) -> Option<Standing> {
        self.standing_by(&mut model.objects)
    }

    pub(super) fn standing_by(&self, objects: &mut Objects) -> Option<Standing> {
        let root = objects.owners.own_ceiling(self.pod.controller);
        self.standing_with(objects, root)
    }

    /// Computes its standing by one of its owners as it is now. Only the ceiling of its root owner counts.
    pub(super) fn standing_below(&self, objects: &mut Objects, owner: &ObjectMeta) -> Option<Standing> {
        let uid = Uid::of(owner.uid.as_deref().unwrap_or_default());
        let root = if objects.owners.root(self.pod.controller) == Some(uid) {
            OwnCeilings::ceiling(owner)
        } else {
            objects.owners.own_ceiling(self.pod.controller)
        };
        self.standing_with(objects, root)
    }

    /// Computes its standing if its root owner notes this ceiling.
    fn standing_with(&self, objects: &mut Objects, root: Option<SignedDuration>) -> Option<Standing> {
        objects.gangs.compute();
        let of_groups = objects.gangs.of(&self.of);
        let standing = limits::standing_below(objects, root, (self.uid, &self.pod), of_groups);
        standing.first_queue().is_some().then_some(standing)
    }

    /// Returns its queues and the ends of its run, by these rules for unready workloads. None: it is in no queue.
    pub(super) fn run_place(
        &self,
        objects: &mut Objects,
        rules: Option<PodsReady>,
        is_exempt: bool,
    ) -> Option<RunPlace> {
        let standing = self.standing_by(objects)?;
        let ready_until = limits::ready_until(objects, rules, &self.pod, &standing);
        // pods may name any queue: what is counted by queue has no other queues than there are
        let existing = |family| {
            let queue = standing.queue(family)?;
            Some(if objects.limits(family, queue).is_some() { queue.clone() } else { ArcStr::new() })
        };
        Some(RunPlace {
            queues: PerFamily::new(existing),
            is_grouped: standing.is_grouped,
            deadline: standing.expires.filter(|_| !is_exempt).and_then(|(at, _)| milliseconds(at)),
            ready_until: ready_until
                .filter(|_| !is_exempt && !standing.is_grouped)
                .and_then(|of| milliseconds(of.at)),
        })
    }
}
