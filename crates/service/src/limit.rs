//! A rate limit of the keeper's and the webhook's calls to the API server.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// A token bucket.
pub type WriteLimit = DefaultDirectRateLimiter;

/// Creates a full bucket with this average rate per second, and this burst.
pub fn write_limit(per_second: NonZeroU32, burst: NonZeroU32) -> WriteLimit {
    RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst))
}
