//! Decides if a pod's deletion or eviction is held up because the pod is within its floor or its toleration.
//!
//! A scheduler's deletion of a victim doesn't name the preemptor. It is known from these, best first: the permit that the
//! scheduler extender left behind; the pods that are nominated to the victim's node. If neither shows it, the victim is
//! protected as [`UnknownPreemptor`] says for this scheduler. Every replica sees nominations, so no replica needs the
//! permits of another.
//!
//! Pods of one workload that are deleted at the same moment are judged one by one. The scheduler extender makes sure that
//! not too many pods of an elastic workload go together.

mod hold;
mod users;
mod words;

use jiff::Timestamp;
use tenure_types::projection::Pod;

use crate::{
    gang::Progress,
    preemption::{Preemptor, Rule, Rules, Victim},
};

pub use users::{Guarded, Scheduler, UnknownPreemptor};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// DELETE of a pod.
    Delete,
    /// CREATE of an Eviction, as by a drain of a node.
    Evict,
}

/// A request to delete or evict a pod.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The operation.
    pub operation: Operation,
    /// The user that asks, as the API server has authenticated it.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The namespace of the pod.
    pub namespace: &'a str,
    /// The name of the pod.
    pub name: &'a str,
    /// The judgement of a deletion if nothing shows the preemptor.
    pub unknown_preemptor: UnknownPreemptor,
}

/// The facts about the pod that decide.
#[derive(Clone, Debug, Default)]
pub struct PodFacts<'a> {
    /// The reason why the pod may go in spite of any protection, by its own record: see [`spared`].
    pub spared: Option<Reason>,
    /// True if its namespace is being deleted.
    pub namespace_goes: bool,
    /// True while not all objects are known yet.
    pub syncing: bool,
    /// The pod's state; none if nothing is known of it.
    pub known: Option<GuardedPod<'a>>,
    /// The namespace and name of a preemptor that the extender has granted it to.
    pub permit: Option<(String, String)>,
}

/// A pod that may be protected.
#[derive(Clone, Debug)]
pub struct GuardedPod<'a> {
    /// The rules that decide.
    pub rules: Rules<'a>,
    /// The pod as a victim. If its queue doesn't exist, it has no place: a spelling mistake holds up nothing.
    pub victim: Victim<'a>,
    /// Its priority.
    pub priority: i32,
    /// The name of its `PriorityClass`.
    pub class: Option<&'a str>,
    /// The pods that wait for its node.
    pub nominated: Vec<Nominated<'a>>,
}

/// A pod that its scheduler makes room for on some node.
#[derive(Clone, Copy, Debug)]
pub struct Nominated<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its place, priority and preemption policy.
    pub preemptor: Preemptor<'a>,
}

/// The reason of a verdict, in the order in which the reasons are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The user is a kubelet, which mostly deletes pods that have ended.
    Kubelet,
    /// The user is a controller of Kubernetes itself.
    Controller,
    /// The user is exempt by configuration.
    ExemptUser,
    /// A group of the user is exempt by configuration.
    ExemptGroup,
    /// The namespace is exempt by configuration.
    ExemptNamespace,
    /// The user isn't a scheduler: people may delete their pods.
    OtherUser,
    /// The pod is terminating already.
    Terminating,
    /// The pod has ended.
    Finished,
    /// The pod mirrors a static pod of a kubelet.
    Mirror,
    /// A `DaemonSet` controls the pod.
    DaemonSet,
    /// Annotation `tenure.dev/unguarded` exempts the pod.
    Unguarded,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The cache isn't complete yet.
    Syncing,
    /// Nothing is known of the pod.
    Unknown,
    /// The pod isn't scheduled yet, and has no run to lose.
    NotScheduled,
    /// The scheduler extender has granted it to a preemptor.
    Permit,
    /// A pod that is nominated to the node may preempt it.
    Nominated,
    /// No pod that is nominated to the node may preempt it. Denied.
    NominatedWaits,
    /// Nothing protects it.
    Unprotected,
    /// The protection has no known end: an eviction, or a deletion without a known preemptor, can't wait without limit.
    Endless,
    /// The pod is protected. Denied.
    Protected,
}

impl Reason {
    /// Returns the name of the reason, as in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Controller => "controller",
            Self::ExemptUser => "exempt-user",
            Self::ExemptGroup => "exempt-group",
            Self::ExemptNamespace => "exempt-namespace",
            Self::OtherUser => "other-user",
            Self::Terminating => "terminating",
            Self::Finished => "finished",
            Self::Mirror => "mirror",
            Self::DaemonSet => "daemon-set",
            Self::Unguarded => "unguarded",
            Self::NamespaceTerminating => "namespace-terminating",
            Self::Syncing => "syncing",
            Self::Unknown => "unknown",
            Self::NotScheduled => "not-scheduled",
            Self::Permit => "permit",
            Self::Nominated => "nominated",
            Self::NominatedWaits => "nominated-waits",
            Self::Unprotected => "unprotected",
            Self::Endless => "endless",
            Self::Protected => "protected",
        }
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardVerdict {
    /// Its reason.
    pub reason: Reason,
    /// The preemptor that decided it, if one did: its namespace and name.
    pub preemptor: Option<(String, String)>,
    /// The reason why the pod may not go now; none if it may.
    pub hold: Option<Hold>,
}

/// The reason why a pod may not go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The rule that protects the pod.
    pub rule: Rule,
    /// The end of the protection, if it is known.
    pub until: Option<Timestamp>,
    /// The number of seconds after which to ask again.
    pub retry_after: i32,
    /// The message to the caller: the pod, the reason, the end of the protection, and the remedies.
    pub message: String,
}

impl GuardVerdict {
    /// The verdict that the pod may go.
    pub const fn allowed(reason: Reason) -> Self {
        Self { reason, preemptor: None, hold: None }
    }
}

/// Returns the reason why a pod may go in spite of any protection, by its own record.
pub fn spared(pod: &Pod) -> Option<Reason> {
    let controlled_by = |kind| pod.controller().is_some_and(|owner| owner.kind == kind);
    if pod.metadata.deletion_timestamp.is_some() {
        Some(Reason::Terminating)
    } else if pod.is_finished() {
        Some(Reason::Finished)
    } else if pod.is_mirror() || controlled_by("Node") {
        Some(Reason::Mirror)
    } else if controlled_by("DaemonSet") {
        Some(Reason::DaemonSet)
    } else {
        pod.is_unguarded().then_some(Reason::Unguarded)
    }
}

/// Decides about a request. The pod is looked up only if it matters.
pub fn judge(guarded: &Guarded, asked: &Asked<'_>, look: impl FnOnce() -> GuardVerdict) -> GuardVerdict {
    guarded.passes(asked).map_or_else(look, GuardVerdict::allowed)
}

impl PodFacts<'_> {
    /// Decides about a request that must be judged by its pod.
    pub fn verdict(&self, asked: &Asked<'_>) -> GuardVerdict {
        let gone = self.namespace_goes.then_some(Reason::NamespaceTerminating);
        let syncing = self.syncing.then_some(Reason::Syncing);
        if let Some(reason) = self.spared.or(gone).or(syncing) {
            return GuardVerdict::allowed(reason);
        }
        let Some(known) = &self.known else { return GuardVerdict::allowed(Reason::Unknown) };
        if known.victim.progress == Progress::Waiting {
            return GuardVerdict::allowed(Reason::NotScheduled);
        }
        match asked.operation {
            Operation::Delete => known.deletion(asked, self.permit.as_ref()),
            Operation::Evict => known.eviction(asked),
        }
    }
}

#[cfg(test)]
mod tests;
