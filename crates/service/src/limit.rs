//! How fast the API server is called.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// A token bucket for writes.
pub type WriteLimit = DefaultDirectRateLimiter;

/// So many a second on the average, so many at once.
pub fn write_limit(per_second: NonZeroU32, burst: NonZeroU32) -> WriteLimit {
    RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst))
}
