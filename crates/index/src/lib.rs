//! One model of the cluster, [`ClusterModel`], with two readers. [`CeilingIndex`] has the deadlines
//! that the keeper acts on; the kubectl plugin computes standings with the same type.
//! [`PlacementIndex`] has the pods by node, from which the scheduler extender and the guard of the
//! webhook answer. [`UsageLedger`] counts for the keeper what runs have used.
//!
//! All code is synchronous, talks to no server and reads no clock: callers pass objects from lists
//! and watches, and the present time as `now`. So the crate is tested without a server.

mod ceilings;
mod cluster;
mod deadlines;
mod grants;
mod hand_backs;
mod kinds;
mod names;
mod own;
mod owners;
mod paused;
mod placement;
mod podgroups;
mod queues;
mod shown_ends;
mod times;
mod uid;
mod usage;

pub use ceilings::{
    CeilingIndex, Ceilings, Counts, MissingEvidence, Overlong, PodWorkload, Seen, Settings, StaleEnd,
    StaleMarks, Standing, Tally,
};
pub use cluster::{ClusterModel, Reader};
pub use deadlines::{BatchCoverage, DueBatch, DueKey, DuePod, DueWork, Outcome, RetryAfter, Task, TaskSet};
pub use hand_backs::OwedHandBack;
pub use own::{Bearer, Ineffective, NoEffect};
pub use paused::{DueReturn, Paused, Turn};
pub use placement::{
    Guarding, KeptPod, NodeVerdict, Pending, PendingPod, PlacementIndex, Placements, PreemptionRequest,
    Rejection, Sought, Taken,
};
pub use podgroups::{Crew, GroupKey, GroupWorkload, PartId, Stamped, Stamping};
pub use queues::{Queues, ReadQueue};
pub use uid::Uid;
pub use usage::{RunPlace, SeenRun, StreamClock, UsageLedger};
