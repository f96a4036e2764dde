//! The task pages of `docs/`: the rules of all of them, and each with its commands done word for word.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

mod rules;
mod walks;
