//! Work on one object, for controllers that handle objects in the order in which they find them.

use std::fmt::Debug;

use tenure_index::{ObjectFacts, Uid};
use tenure_service::work::Work;

/// An object to handle. Objects of a namespace go by arrival.
#[derive(Debug)]
pub struct ObjectWork<T>(pub ObjectFacts<T>);

impl<T: Debug> Work for ObjectWork<T> {
    type Key = Uid;
    type Rank = ();

    fn key(&self) -> Uid {
        self.0.uid
    }

    fn namespace(&self) -> &str {
        &self.0.namespace
    }

    fn rank(&self) {}
}
