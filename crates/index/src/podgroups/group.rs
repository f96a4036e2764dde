//! `PodGroup`s, as the API server has them: the fields that starts, queues and ceilings depend on.
//! Users of a namespace may write its groups, so a stamp, a queue or a ceiling is a claim.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{gang::GangShape, start};
use tenure_types::{
    keys,
    podgroup::{self, PodGroupKind},
};

use crate::{
    names::Interner,
    own::AnnotatedKind,
    times::{Milliseconds, milliseconds},
};

/// The kind, namespace and name of a `PodGroup`, which may not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The kind.
    pub kind: PodGroupKind,
    /// The namespace.
    pub namespace: ArcStr,
    /// The name.
    pub name: ArcStr,
}

/// The record of a `PodGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// The group's uid, as the API server writes it, since writes name it.
    pub uid: Box<str>,
    /// The version of the group. A stamp is written to this version alone.
    pub resource_version: Box<str>,
    pub created: Option<Milliseconds>,
    /// The stamped start. None: there is no stamp that can be read.
    pub stamp: Option<Timestamp>,
    /// The queue that the group names, in the family of its kind. A group of T9k's that names none
    /// is in the default queue.
    pub queue: Option<ArcStr>,
    /// The workload's own ceiling.
    pub own: Option<SignedDuration>,
    /// The pods that the group needs to run, in all and by subgroup.
    pub shape: GangShape,
}

impl GroupRecord {
    pub fn read(kind: PodGroupKind, group: &podgroup::PodGroup, interner: &mut Interner) -> Self {
        let spec = group.minimums(kind);
        let default = (kind == PodGroupKind::Tensorstack).then_some(keys::TENSORSTACK_DEFAULT_QUEUE);
        let queue = spec.queue.as_deref().filter(|queue| !queue.is_empty()).or(default);
        let created = group.metadata.creation_timestamp.as_ref();
        let text = |text: Option<&str>| text.unwrap_or_default().into();
        Self {
            uid: text(group.metadata.uid.as_deref()),
            resource_version: text(group.metadata.resource_version.as_deref()),
            created: created.and_then(|time| milliseconds(time.0)),
            stamp: start::stamp(&group.metadata).and_then(Result::ok),
            queue: queue.map(|queue| interner.names.shared(queue)),
            own: interner.own.read(AnnotatedKind::PodGroup(kind), &group.metadata),
            shape: GangShape::of(kind, &spec),
        }
    }
}
