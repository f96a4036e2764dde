//! Times in eight bytes each, in milliseconds since the epoch. The records of pods use them, since
//! a `Timestamp` takes more. Ends are rounded up, so that no run ends early.

use std::num::NonZeroI64;

use jiff::Timestamp;
use tenure_policy::ready::Readiness;
use tenure_types::projection;

/// The number that stands for no time.
pub const NEVER: i64 = i64::MAX;

/// A time in milliseconds since the epoch, any but [`NEVER`], so that an `Option` of it has the
/// same size. Some fields hold a duration in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milliseconds(NonZeroI64);

impl Milliseconds {
    /// Creates a time. None: the number is [`NEVER`].
    pub fn new(milliseconds: i64) -> Option<Self> {
        NonZeroI64::new(milliseconds ^ NEVER).map(Self)
    }

    pub const fn get(self) -> i64 {
        self.0.get() ^ NEVER
    }

    /// Returns the earlier of two times. None: there is neither.
    pub fn earliest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|at| at.get())
    }
}

/// Returns the time as a timestamp. A time that a timestamp can't hold becomes the last one.
pub fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}

/// Returns a time that may not be known as a timestamp.
pub fn in_time(at: Option<Milliseconds>) -> Option<Timestamp> {
    at.map(|at| time(at.get()))
}

/// Returns the time in milliseconds, rounded down. None only for [`NEVER`].
pub fn milliseconds(at: Timestamp) -> Option<Milliseconds> {
    Milliseconds::new(at.as_millisecond())
}

/// Returns the time in milliseconds, rounded up, so that nothing is ever early.
pub fn milliseconds_up(at: Timestamp) -> i64 {
    let milliseconds = at.as_millisecond();
    milliseconds.saturating_add(i64::from(at.subsec_nanosecond() % 1_000_000 > 0))
}

/// The readiness of a pod: `i64::MIN` if it has not been ready, `i64::MAX` if it is, else the time
/// at which it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodReadiness(i64);

impl PodReadiness {
    const NOT_YET: i64 = i64::MIN;
    const READY: i64 = i64::MAX;

    /// Reads the readiness of a pod. `before` is the readiness that was seen before: a pod that was
    /// ready is never again one that has not been.
    pub fn of(pod: &projection::Pod, before: Option<Self>) -> Self {
        Self(match before.map_or(Readiness::NotYet, Self::get).after(pod) {
            Readiness::NotYet => Self::NOT_YET,
            Readiness::Ready => Self::READY,
            Readiness::Lost(at) => at.as_millisecond(),
        })
    }

    /// Returns the readiness. A time is cut to milliseconds.
    pub fn get(self) -> Readiness {
        match self.0 {
            Self::NOT_YET => Readiness::NotYet,
            Self::READY => Readiness::Ready,
            at => Readiness::Lost(time(at)),
        }
    }
}
