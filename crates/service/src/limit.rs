//! The rate limit of calls to the API server.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// A token bucket for writes.
pub type WriteLimit = DefaultDirectRateLimiter;

/// Creates a limit with this average rate a second, and this burst.
pub fn write_limit(per_second: NonZeroU32, burst: NonZeroU32) -> WriteLimit {
    RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst))
}
