//! The cluster as seen: compact records of queues and pods, and when each pod's ceiling is reached. Plain
//! synchronous code, so that it is tested without a server.

mod ceilings;
mod due;
mod gang;
mod gangs;
mod groups;
mod kinds;
mod members;
mod names;
mod own;
mod owners;
mod paused;
mod placement;
mod pod;
mod pods;
mod queues;
mod stamps;
mod tally;
mod uid;

pub use ceilings::{CeilingIndex, Seen, Settings, Standing};
pub use due::{Due, Group, Outcome, Served, Task};
pub use gangs::Workload;
pub use paused::Paused;
pub use placement::{Answer, Dropped, Guarding, Offer, Pending, PlacementIndex, Question, Sought, Taken};
pub use queues::{RunaiQueues, TensorstackQueues};
pub use stamps::{Stamped, Stamping};
pub use tally::Tally;
pub use uid::Uid;
