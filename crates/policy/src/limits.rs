//! The limits that apply to the workloads of a queue.
//!
//! The index resolves them once per queue and asks them of each pod. The review of new objects and
//! the plugin's simulation resolve them as well, so all of them see the same ceilings.

use tenure_types::ExtendedDuration;

use crate::{
    extension::Allowance,
    floor::Floors,
    inheritance::EffectiveValues,
    queue::NearestFields,
    tree::{QueueId, QueueTree},
};

/// The limits of the workloads of a queue, with all that the queue inherits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueLimits {
    /// The longest run, or the longest time slice. None: no limit.
    pub ceiling: Option<ExtendedDuration>,
    /// The time that a run may get beyond its ceiling. The default allows none.
    pub extensions: Allowance,
    /// True if the path doesn't end at a root: the parent of its last queue doesn't exist, or is on
    /// the path already.
    pub lacks_parent: bool,
    /// The fields of which the nearest value counts. None in a field: the configured value counts.
    pub nearest: NearestFields,
}

impl QueueLimits {
    /// Resolves the limits of a leaf queue of the run.ai family.
    ///
    /// ```
    /// use tenure_policy::{floor::Floors, limits::QueueLimits, queue::RunaiQueue, tree::QueueTree};
    ///
    /// let research = RunaiQueue { ceiling: "2d".parse().ok(), ..RunaiQueue::default() };
    /// let training = RunaiQueue {
    ///     parent: Some("research".into()),
    ///     ceiling: "1w".parse().ok(),
    ///     ..RunaiQueue::default()
    /// };
    /// let tree: QueueTree = [("research", research), ("training", training)].into_iter().collect();
    /// let training = tree.find("training").unwrap();
    /// let limits = QueueLimits::of(&tree, &Floors::default(), training);
    /// // a queue shortens the ceiling of its parent, and never lengthens it
    /// assert_eq!(limits.ceiling.unwrap().to_string(), "2d");
    /// ```
    pub fn of(tree: &QueueTree, floors: &Floors, leaf: QueueId) -> Self {
        let of = EffectiveValues::of(tree, floors, leaf);
        Self {
            ceiling: of.longest_run,
            extensions: of.extensions.unwrap_or_default(),
            lacks_parent: of.lacks_parent,
            nearest: of.nearest,
        }
    }
}

#[cfg(test)]
mod tests;
