//! Decides whether a pod's deletion or eviction must wait because the pod is within its floor or
//! its toleration.
//!
//! The webhook calls [`judge`] for each such request. The index gathers the [`PodFacts`] and asks
//! for their verdict.
//!
//! A scheduler's deletion of a victim doesn't name the preemptor. Two sources show the preemptor,
//! the better one first: the permit that the scheduler extender left behind, and the pods that are
//! nominated to the victim's node. If neither shows the preemptor, the victim is protected as
//! [`UnknownPreemptor`] says for this scheduler. Every replica sees nominations, so no replica
//! needs the permits of another.
//!
//! Pods of one workload that are deleted at the same moment are judged one by one. The scheduler
//! extender makes sure that not too many pods of an elastic workload go together.

mod hold;
mod messages;
mod users;

use jiff::Timestamp;
use tenure_types::projection::Pod;

use crate::{
    expiry::{Exemption, exemption_by},
    gang::PodProgress,
    preemption::{Preemptor, Rule, Rules, Victim},
};

pub use users::{Guarded, SchedulerUser, UnknownPreemptor};

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
pub struct RemovalRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// The user that sent the request, as the API server has authenticated it.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The namespace of the pod.
    pub namespace: &'a str,
    /// The name of the pod.
    pub name: &'a str,
    /// The protection from this user's deletions if nothing shows the preemptor.
    pub unknown_preemptor: UnknownPreemptor,
}

/// The facts about a pod that decide on its deletion or eviction.
#[derive(Clone, Debug, Default)]
pub struct PodFacts<'a> {
    /// The reason why the pod may go in spite of any protection, by its own record: see [`spared`].
    /// None: there is no such reason.
    pub spared: Option<VerdictReason>,
    /// True if the pod's namespace is being deleted.
    pub namespace_goes: bool,
    /// True while the cache lacks some objects. The pod may go then.
    pub syncing: bool,
    /// The pod's state. None: nothing is known of the pod, and it may go.
    pub known: Option<GuardedPod<'a>>,
    /// The namespace and name of a preemptor to which the extender has granted the pod. None: there
    /// is no permit.
    pub permit: Option<(String, String)>,
}

/// A pod that may be protected, and its possible preemptors.
#[derive(Clone, Debug)]
pub struct GuardedPod<'a> {
    /// The rules that decide.
    pub rules: Rules<'a>,
    /// The pod as a victim. If its queue doesn't exist, it has no place: a spelling mistake delays
    /// nothing.
    pub victim: Victim<'a>,
    /// The pod's priority.
    pub priority: i32,
    /// The name of the pod's `PriorityClass`.
    pub class: Option<&'a str>,
    /// The pods that are nominated to the pod's node, the most important first.
    pub nominated: Vec<NominatedPod<'a>>,
}

/// A pod that its scheduler makes room for on a node.
#[derive(Clone, Copy, Debug)]
pub struct NominatedPod<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The pod's place, priority and preemption policy.
    pub preemptor: Preemptor<'a>,
}

/// The reason of a verdict, in the order in which the reasons are checked. Only
/// [`Self::NominatedWaits`] and [`Self::Protected`] deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerdictReason {
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
    /// The scheduler extender has granted the pod to a preemptor.
    Permit,
    /// A pod that is nominated to the node may preempt the pod.
    Nominated,
    /// No pod that is nominated to the node may preempt it. Denied.
    NominatedWaits,
    /// Nothing protects the pod.
    Unprotected,
    /// The protection has no known end. An eviction, or a deletion by a scheduler of the weaker
    /// rule, can't wait without limit.
    Endless,
    /// The pod is protected. Denied.
    Protected,
}

impl VerdictReason {
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

/// The decision about a request. The request is denied if `hold` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardVerdict {
    /// The reason of the decision.
    pub reason: VerdictReason,
    /// The namespace and name of the preemptor that decided the request. None: no preemptor did.
    pub preemptor: Option<(String, String)>,
    /// The reason why the pod may not go now. None: the pod may go.
    pub hold: Option<Hold>,
}

/// The reason why a pod may not go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The rule that protects the pod.
    pub rule: Rule,
    /// The end of the protection. None: the end isn't known.
    pub until: Option<Timestamp>,
    /// The seconds after which the caller is to ask again; at least 1.
    pub retry_after: i32,
    /// The message to the caller: the pod, the reason, the end of the protection, and the remedies.
    pub message: String,
}

impl GuardVerdict {
    /// Returns the verdict that the pod may go, without a preemptor.
    pub const fn allowed(reason: VerdictReason) -> Self {
        Self { reason, preemptor: None, hold: None }
    }
}

/// Returns the reason why a pod may go in spite of any protection, by its own record. None: its
/// protection counts.
pub fn spared(pod: &Pod) -> Option<VerdictReason> {
    let by_owner = pod.controller().and_then(exemption_by);
    if pod.metadata.deletion_timestamp.is_some() {
        Some(VerdictReason::Terminating)
    } else if pod.is_finished() {
        Some(VerdictReason::Finished)
    } else if pod.is_mirror() || by_owner == Some(Exemption::StaticPod) {
        Some(VerdictReason::Mirror)
    } else if by_owner == Some(Exemption::DaemonSet) {
        Some(VerdictReason::DaemonSet)
    } else {
        pod.is_unguarded().then_some(VerdictReason::Unguarded)
    }
}

/// Decides about a request. `f` decides by the pod, and is called only if the request alone
/// doesn't decide.
pub fn judge(
    guarded: &Guarded,
    asked: &RemovalRequest<'_>,
    f: impl FnOnce() -> GuardVerdict,
) -> GuardVerdict {
    guarded.passes(asked).map_or_else(f, GuardVerdict::allowed)
}

impl PodFacts<'_> {
    /// Decides about a request by its pod.
    pub fn verdict(&self, asked: &RemovalRequest<'_>) -> GuardVerdict {
        let gone = self.namespace_goes.then_some(VerdictReason::NamespaceTerminating);
        let syncing = self.syncing.then_some(VerdictReason::Syncing);
        if let Some(reason) = self.spared.or(gone).or(syncing) {
            return GuardVerdict::allowed(reason);
        }
        let Some(known) = &self.known else { return GuardVerdict::allowed(VerdictReason::Unknown) };
        if known.victim.progress == PodProgress::Waiting {
            return GuardVerdict::allowed(VerdictReason::NotScheduled);
        }
        match asked.operation {
            Operation::Delete => known.deletion(asked, self.permit.as_ref()),
            Operation::Evict => known.eviction(asked),
        }
    }
}

#[cfg(test)]
mod tests;
