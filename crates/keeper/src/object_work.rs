//! Work on one object, for controllers that handle objects in the order in which they find them.

use std::fmt::Debug;

use tenure_index::Uid;
use tenure_service::work::Work;

/// An object to handle. Objects of a namespace go by arrival.
#[derive(Debug)]
pub struct ObjectWork<T> {
    pub uid: Uid,
    pub namespace: String,
    /// The facts about the object, as the index has them.
    pub of: T,
}

impl<T: Debug> Work for ObjectWork<T> {
    type Key = Uid;
    type Rank = ();

    fn key(&self) -> Uid {
        self.uid
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn rank(&self) {}
}
