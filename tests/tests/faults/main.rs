//! Guarantees that hold when things break: nothing is lost, nothing is done twice, and nothing is done early.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod outages;
mod plans;
