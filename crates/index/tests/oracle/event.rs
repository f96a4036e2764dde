//! The events of a history.

use tenure_types::podgroup::PodGroupKind;

use crate::{
    object::List,
    world::{ConfigObj, ExtensionObj, GroupObj, OwnerKind, OwnerObj, PodObj, RunaiObj, TensorstackObj},
};

/// The result of a stamp that was to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StampEnd {
    Written,
    Said,
    Failed,
}

/// The result of a try to show an end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EndShown {
    Written,
    /// It was written, and the watch tells it later or never.
    Unseen,
    Failed,
}

/// The pods of a batch that an act served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scope {
    All,
    First,
    Gone,
}

/// The result of an act. One that isn't possible for a task stands for the first that is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Done,
    Paused,
    Final,
    Failed,
}

/// A preemptor of a queue and a priority, and the pods of a node that would go: those whose bits are set, by uid.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ask {
    pub queue: Option<u8>,
    pub priority: i32,
    pub node: u8,
    pub victims: u8,
    /// The preemptor is one of the pods that wait for a node, with the queue and the priority of that.
    pub pending: Option<u8>,
    /// The other node is offered, too, with the pods of these bits.
    pub other: Option<u8>,
}

/// An event. Each is complete by itself, so that any may be left out.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Milliseconds pass.
    Pass(i64),
    Pod(PodObj),
    DeletePod(u32),
    /// The watch of pods is broken off, and all are about to be listed.
    ListPods,
    RetainPods(List<u32>),
    Group(GroupObj),
    DeleteGroup(PodGroupKind, u8, u8),
    RetainGroups(PodGroupKind, List<(u8, u8)>),
    Owner(OwnerObj),
    DeleteOwner(u32),
    RetainOwners(OwnerKind, List<u32>),
    Extension(ExtensionObj),
    DeleteExtension(u32),
    RetainExtensions(List<u32>),
    RunaiQueue(u8, RunaiObj),
    DeleteRunai(u8),
    RetainRunai(List<u8>),
    TensorstackQueue(u8, TensorstackObj),
    DeleteTensorstack(u8),
    RetainTensorstack(List<u8>),
    Configure(ConfigObj),
    /// Begins an act on what is due, unless the place is taken.
    Take(u8),
    /// Ends the act of a place.
    RecordOutcome(u8, Scope, End),
    /// The keeper doesn't lead any more.
    LoseLead,
    /// Looks for stamps that are to be written, and begins to write them.
    CheckStamps,
    /// Ends one of those.
    EndStamp(u8, StampEnd),
    /// Looks for objects that show another end than their run has.
    CheckEnds,
    /// Tries to show one of the ends that were found.
    ShowEnd(u8, EndShown),
    /// A user writes an end on an object, or removes it. In milliseconds.
    WriteEnd(u8, Option<i64>),
    /// The keeper asks which returns are due.
    Returns,
    /// A scheduler asks whether a preemptor may have victims.
    Ask(Ask),
}

impl Event {
    /// The same with one detail less, each.
    pub fn simpler(&self) -> Vec<Self> {
        match self {
            Self::Pod(pod) => pod.simpler().into_iter().map(Self::Pod).collect(),
            Self::Group(group) => group.simpler().into_iter().map(Self::Group).collect(),
            Self::Owner(owner) => owner.simpler().into_iter().map(Self::Owner).collect(),
            Self::Extension(extension) => extension.simpler().into_iter().map(Self::Extension).collect(),
            Self::RetainExtensions(kept) => kept.simpler().map(Self::RetainExtensions).collect(),
            Self::Configure(config) => config.simpler().into_iter().map(Self::Configure).collect(),
            Self::RunaiQueue(name, queue) => {
                queue.simpler().into_iter().map(|queue| Self::RunaiQueue(*name, queue)).collect()
            }
            Self::TensorstackQueue(name, queue) => {
                queue.simpler().into_iter().map(|queue| Self::TensorstackQueue(*name, queue)).collect()
            }
            Self::RetainPods(kept) => kept.simpler().map(Self::RetainPods).collect(),
            Self::RetainGroups(kind, kept) => {
                kept.simpler().map(|kept| Self::RetainGroups(*kind, kept)).collect()
            }
            Self::RetainOwners(kind, kept) => {
                kept.simpler().map(|kept| Self::RetainOwners(*kind, kept)).collect()
            }
            Self::RetainRunai(kept) => kept.simpler().map(Self::RetainRunai).collect(),
            Self::RetainTensorstack(kept) => kept.simpler().map(Self::RetainTensorstack).collect(),
            Self::Ask(ask) => {
                let simpler = [Ask { pending: None, ..*ask }, Ask { other: None, ..*ask }];
                simpler.into_iter().filter(|simpler| simpler != ask).map(Self::Ask).collect()
            }
            _ => Vec::new(),
        }
    }
}
