//! The queue of a `PodGroup`, which is fixed when it is created.
//!
//! To have none is fixed as well: its pods are then in queue `default`, or in that of their label, and to fill it in while
//! they run would move them to another ceiling.

use serde_json::Value;

use super::{read::RawPodGroup, words};

/// The queue that a group keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptQueue {
    /// `spec.queue` as it is stored; none if there is none.
    pub queue: Option<Value>,
    /// True if the object that is written has a `spec`.
    pub has_spec: bool,
    /// The warning to the writer.
    pub warning: String,
}

/// Returns the queue that the group keeps; none if the write doesn't change it.
pub fn kept(object: &RawPodGroup<'_>, old: &RawPodGroup<'_>) -> Option<KeptQueue> {
    let (written, queue) = (object.queue(), old.queue());
    (written != queue).then(|| KeptQueue {
        warning: words::kept_queue(written.as_ref(), queue.as_ref()),
        has_spec: object.has_spec(),
        queue,
    })
}
