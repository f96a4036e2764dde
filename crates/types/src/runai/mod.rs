//! The run.ai family: group `scheduling.run.ai`, as KAI-Scheduler and Tenure use it. Its Queue has
//! two versions, KAI's v2 and Tenure's v3alpha1, and [`conversion`] turns one into the other.

pub mod conversion;
mod own;
pub mod v2;
pub mod v3alpha1;
mod version;

pub use own::{OwnField, OwnFields, SPEC_ANNOTATIONS};
pub use version::{FLOOR_ANNOTATIONS, QueueVersion, UnknownQueueVersion};
