//! Names, kinds, ceilings and queues that many records share.

use tenure_policy::kueue;

use crate::{kinds::KindHasher, names::Names, own::OwnCeilings};

/// Names, kinds, own ceilings and queues, as records keep them.
#[derive(Debug, Default)]
pub struct Interner {
    pub kinds: KindHasher,
    pub names: Names,
    pub own: OwnCeilings,
    /// The queues of pods that name a queue of Kueue, and none of Tenure. It doesn't change while pods are kept.
    pub kueue_queues: kueue::Queues,
}
