//! Reviews of deletions and evictions of pods on `/guard`: what the API server asks, and what it is answered.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod allowed;
mod odd;
#[path = "../support/oneshot.rs"]
mod oneshot;
mod preemptors;
mod verdicts;
mod world;
