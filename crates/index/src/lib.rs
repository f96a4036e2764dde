//! The cluster as seen: compact records of queues and pods, and when each pod's ceiling is reached. Plain
//! synchronous code, so that it is tested without a server.

mod ceilings;
mod names;
mod pods;
mod queues;
mod uid;

pub use ceilings::CeilingIndex;
pub use pods::{Due, Group};
pub use queues::{QueueIndex, RunaiQueues, TensorstackQueues};
pub use uid::Uid;
