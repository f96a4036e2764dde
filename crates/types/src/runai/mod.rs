//! The run.ai family: group `scheduling.run.ai`, as KAI-Scheduler and Tenure use it.

pub mod conversion;
pub mod v2;
pub mod v3alpha1;
mod version;

pub use version::{FLOOR_ANNOTATIONS, JSON_FIELDS, QueueVersion, SPEC_ANNOTATIONS, UnknownQueueVersion};
