//! Certificates that the webhook makes by itself, on real API servers.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod account;
mod added;
mod balancer;
mod handshakes;
mod lifecycle;
mod load;
mod rendered;
mod rotations;
mod world;
