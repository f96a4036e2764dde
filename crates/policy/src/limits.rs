//! The limits that apply to the workloads of a queue.

use tenure_types::ExtendedDuration;

use crate::{
    extension::Allowance,
    floor::Floors,
    inheritance::Effective,
    queue::Nearest,
    tree::{Cycle, QueueId, QueueTree},
};

/// The limits of the workloads of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The longest run; none: no limit.
    pub ceiling: Option<ExtendedDuration>,
    /// The time that a run may get beyond its ceiling.
    pub extensions: Allowance,
    /// True if the topmost queue on the way names a parent that isn't there: fields that it sets don't count.
    pub lacks_parent: bool,
    /// The fields of which the nearest value counts. None: the configured one.
    pub nearest: Nearest,
}

impl Limits {
    /// Resolves the limits of a leaf queue of the run.ai family.
    pub fn of(tree: &QueueTree, floors: &Floors, leaf: QueueId) -> Result<Self, Cycle> {
        let of = Effective::of(tree, floors, leaf)?;
        Ok(Self {
            ceiling: of.longest_run,
            extensions: of.extensions.unwrap_or_default(),
            lacks_parent: of.lacks_parent,
            nearest: of.nearest,
        })
    }
}

#[cfg(test)]
mod tests;
