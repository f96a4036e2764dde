//! What objects are read with: names and kinds that many records share.

use crate::{kinds::Kinds, names::Names, own::OwnCeilings};

/// Names, kinds and own ceilings, as records keep them.
#[derive(Debug, Default)]
pub struct Interner {
    pub kinds: Kinds,
    pub names: Names,
    pub own: OwnCeilings,
}
