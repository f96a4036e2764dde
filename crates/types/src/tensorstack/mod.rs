//! The tensorstack (T9k) family: group `scheduler.tensorstack.dev`.

pub mod v1beta1;
