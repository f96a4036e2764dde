//! What tenants try, and what stops them: a user with exactly a tenant's rights, on a real API server.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod rights;
