//! The number of random cases of a test.

/// Returns `few`, the number of cases in `make test`, times `TIMES`, which `make properties` sets.
pub(crate) fn cases(few: u32) -> u32 {
    std::env::var("TIMES").map_or(few, |times| few.saturating_mul(times.parse().unwrap()))
}
