//! Reviews of deletions and evictions of pods on `/guard`: the API server's questions, and the answers.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod allowed;
mod odd;
#[path = "../support/oneshot.rs"]
mod oneshot;
mod preemptors;
mod verdicts;
mod world;
