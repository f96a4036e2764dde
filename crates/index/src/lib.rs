//! The cluster as seen: compact records of queues and pods, and when each pod's ceiling is reached. Plain
//! synchronous code, so that it is tested without a server.

mod ceilings;
mod due;
mod groups;
mod kinds;
mod names;
mod own;
mod owners;
mod pod;
mod pods;
mod queues;
mod uid;

pub use ceilings::{CeilingIndex, Settings, Standing};
pub use due::{Due, Group, Outcome, Served, Task};
pub use queues::{Limits, RunaiQueues, TensorstackQueues};
pub use uid::Uid;
