//! The types that Tenure reads and writes on the wire: the custom resources, the duration grammars,
//! the keys of labels and annotations, and the records that annotations hold.
//!
//! The webhook, the keeper and the command line share these types, so all three read an object
//! alike. The library does no IO; only the program `crdgen` writes files.

pub mod amount;
pub mod devices;
#[macro_use]
pub mod duration;
pub mod evidence;
pub mod extender;
pub mod extension;
pub mod hidden;
pub mod journal;
pub mod keys;
pub mod paused;
pub mod podgroup;
pub mod projection;
mod quantity;
pub mod room;
pub mod runai;
pub mod selector;
pub mod store;
pub mod tensorstack;
pub mod text;
pub mod tolerant;
pub mod usage_record;
pub mod wait;

pub use duration::{
    DurationError, ExtendedDuration, GoDuration, Grammar, Points, TensorstackDuration, Written,
};
