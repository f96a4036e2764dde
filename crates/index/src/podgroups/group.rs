//! `PodGroup`s, as the API server has them.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{gang::Shape, start};
use tenure_types::{
    keys,
    podgroup::{self, PodGroupKind},
};

use crate::{
    names::Interner,
    own::Bearer,
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
    /// As the API server writes it, since writes name it.
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub created: Option<Milliseconds>,
    /// None, too, if it can't be read.
    pub stamp: Option<Timestamp>,
    /// The queue of its pods, in the family of its kind.
    pub queue: Option<ArcStr>,
    /// The workload's own ceiling.
    pub own: Option<SignedDuration>,
    pub shape: Shape,
}

impl GroupRecord {
    pub fn read(kind: PodGroupKind, group: &podgroup::PodGroup, interner: &mut Interner) -> Self {
        let spec = kind.spec(&group.spec);
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
            own: interner.own.read(Bearer::PodGroup(kind), &group.metadata),
            shape: Shape::of(kind, &spec),
        }
    }
}
