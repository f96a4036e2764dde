//! Whether a pod's deletion or eviction is held up because it is within its floor or its toleration.
//!
//! A scheduler's deletion of a victim doesn't say who the preemptor is. Who knows it, best first: the permit that the
//! scheduler extender left behind; the pods that are nominated to the victim's node; nobody, and then the victim is
//! protected as [`UnknownPreemptor`] says for this scheduler. Nominations are seen by every replica, so no replica needs
//! the permits of another.
//!
//! Pods of one workload that are deleted at the same moment are judged one by one: that not too many of an elastic one go
//! together is for the scheduler extender to see to.

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

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// DELETE of a pod.
    Delete,
    /// CREATE of an Eviction: whoever drains a node asks so.
    Evict,
}

/// What everybody knows who is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What is asked for.
    pub operation: Operation,
    /// Who asks, as the API server has authenticated them.
    pub user: &'a str,
    /// The groups that they are in.
    pub groups: &'a [String],
    /// Of the pod.
    pub namespace: &'a str,
    /// Of the pod.
    pub name: &'a str,
    /// How a deletion is judged if nothing shows the preemptor.
    pub unknown_preemptor: UnknownPreemptor,
}

/// What is found out about the pod.
#[derive(Clone, Debug, Default)]
pub struct Found<'a> {
    /// Why it may go whatever protects it, by its own record: see [`spared`].
    pub spared: Option<Reason>,
    /// Whether its namespace is about to go.
    pub namespace_goes: bool,
    /// Whether not all that is there is known yet.
    pub syncing: bool,
    /// None, if nothing is known of it.
    pub known: Option<Known<'a>>,
    /// The namespace and name of a preemptor that the extender has granted it to.
    pub permit: Option<(String, String)>,
}

/// A pod that may have something to lose.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// What decisions are taken by.
    pub rules: Rules<'a>,
    /// As rules see it. Its workload names no queue if there is no such queue: nothing is held up by a spelling mistake.
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
    /// What it may have.
    pub preemptor: Preemptor<'a>,
}

/// What a verdict is based on, in the order in which it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A kubelet asks: for the most part, because the pod has ended.
    Kubelet,
    /// A controller of Kubernetes itself asks.
    Controller,
    /// The user is exempt by configuration.
    ExemptUser,
    /// A group of the user is.
    ExemptGroup,
    /// The namespace is.
    ExemptNamespace,
    /// Somebody deletes it who is no scheduler: people may delete their pods.
    OtherUser,
    /// It is about to go as it is.
    Terminating,
    /// It has ended.
    Finished,
    /// It mirrors a static pod of a kubelet.
    Mirror,
    /// A `DaemonSet` controls it.
    DaemonSet,
    /// Annotation `tenure.dev/unguarded` says so.
    Unguarded,
    /// Its namespace is about to go.
    NamespaceTerminating,
    /// Not all that is there is known yet.
    Syncing,
    /// Nothing is known of it.
    Unknown,
    /// It wasn't scheduled yet, and has no run to lose.
    NotScheduled,
    /// The scheduler extender has granted it to a preemptor.
    Permit,
    /// A pod that is nominated to its node may have it.
    Nominated,
    /// No pod that is nominated to its node may have it. Denied.
    NominatedWaits,
    /// Nothing protects it.
    Unprotected,
    /// What protects it has no end that is known, and who asks doesn't wait for ever: an eviction, or a deletion by a
    /// scheduler that shows no preemptor.
    Endless,
    /// It is protected. Denied.
    Protected,
}

impl Reason {
    /// In a word.
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

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What it is based on.
    pub reason: Reason,
    /// The preemptor that decided it, if one did: its namespace and name.
    pub preemptor: Option<(String, String)>,
    /// None, if the pod may go.
    pub hold: Option<Hold>,
}

/// Why a pod may not go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What protects it.
    pub rule: Rule,
    /// Until when, if that is known.
    pub until: Option<Timestamp>,
    /// When to ask again, in seconds.
    pub retry_after: i32,
    /// For whoever asked: which pod, why, until when, and what they can do.
    pub message: String,
}

impl Verdict {
    /// The pod may go.
    pub const fn allowed(reason: Reason) -> Self {
        Self { reason, preemptor: None, hold: None }
    }
}

/// Why a pod may go whatever protects it, as it says itself.
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

/// What becomes of a request. The pod is looked up only if it matters.
pub fn judge(guarded: &Guarded, asked: &Asked<'_>, look: impl FnOnce() -> Verdict) -> Verdict {
    guarded.passes(asked).map_or_else(look, Verdict::allowed)
}

impl Found<'_> {
    /// What becomes of the request of somebody who isn't passed unseen.
    pub fn verdict(&self, asked: &Asked<'_>) -> Verdict {
        let gone = self.namespace_goes.then_some(Reason::NamespaceTerminating);
        let syncing = self.syncing.then_some(Reason::Syncing);
        if let Some(reason) = self.spared.or(gone).or(syncing) {
            return Verdict::allowed(reason);
        }
        let Some(known) = &self.known else { return Verdict::allowed(Reason::Unknown) };
        if known.victim.progress == Progress::Waiting {
            return Verdict::allowed(Reason::NotScheduled);
        }
        match asked.operation {
            Operation::Delete => known.deletion(asked, self.permit.as_ref()),
            Operation::Evict => known.eviction(asked),
        }
    }
}

#[cfg(test)]
mod tests;
