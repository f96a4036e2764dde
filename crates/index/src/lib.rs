//! One model of the cluster, [`ClusterModel`], with two readers. [`CeilingIndex`] has the deadlines
//! that the keeper acts on; the kubectl plugin computes standings with the same type.
//! [`PlacementIndex`] has the pods by node, from which the scheduler extender and the guard of the
//! webhook answer. [`UsageLedger`] counts the usage of runs for the keeper.
//!
//! All code is synchronous, talks to no server and reads no clock: callers pass objects from lists
//! and watches, and the present time as `now`. So the crate is tested without a server.

mod ceilings;
mod cluster;
mod counted;
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
mod usage_ledger;

pub use ceilings::{
    CeilingCounts, CeilingIndex, CeilingOptions, Ceilings, MissingEvidence, ObjectFacts, Overlong,
    PodStanding, PodWorkload, QueueReports, SeenPod, StaleEnd, StaleMarks,
};
pub use cluster::{ClusterIndex, ClusterModel};
pub use deadlines::{
    ActionOutcome, BatchCoverage, DueBatch, DueKey, DuePod, DueWork, RetryAfter, Task, TaskSet,
};
pub use hand_backs::OwedHandBack;
pub use own::{AnnotatedKind, IneffectiveReason, IneffectiveValue};
pub use paused::{DueReturn, Paused, ReturnRank};
pub use placement::{
    GuardInput, KeptPod, NodeVerdict, Pending, PendingPod, PlacementIndex, Placements, PreemptiblePod,
    PreemptionRequest, Rejection, RemovedPod,
};
pub use podgroups::{Crew, GroupKey, GroupWorkload, PartId, PendingStamp, StampForm};
pub use queues::{FamilyQueues, ReadQueue};
pub use uid::Uid;
pub use usage_ledger::{RunPlace, SeenClaim, SeenRun, StreamClock, UsageLedger};
