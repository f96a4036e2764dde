//! Times in eight bytes each, in milliseconds since the epoch.

use std::num::NonZeroI64;

use jiff::Timestamp;
use tenure_policy::{
    gang::{Progress, progress},
    ready::Readiness,
};
use tenure_types::projection;

/// No time at all.
pub const NEVER: i64 = i64::MAX;

/// A time in milliseconds since the epoch, any but [`NEVER`], so that an `Option` of it has the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milliseconds(NonZeroI64);

impl Milliseconds {
    pub fn new(milliseconds: i64) -> Option<Self> {
        NonZeroI64::new(milliseconds ^ NEVER).map(Self)
    }

    pub const fn get(self) -> i64 {
        self.0.get() ^ NEVER
    }

    /// The earlier of two times, if there is any.
    pub fn earliest(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|at| at.get())
    }
}

/// The time as a timestamp. One that a timestamp can't hold is the last one.
pub fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}

/// The same, of a time that may not be known.
pub fn in_time(at: Option<Milliseconds>) -> Option<Timestamp> {
    at.map(|at| time(at.get()))
}

/// The time in milliseconds, rounded down. None only for [`NEVER`].
pub fn milliseconds(at: Timestamp) -> Option<Milliseconds> {
    Milliseconds::new(at.as_millisecond())
}

/// Rounded up, so that nothing is ever early.
pub fn milliseconds_up(at: Timestamp) -> i64 {
    let milliseconds = at.as_millisecond();
    milliseconds.saturating_add(i64::from(at.subsec_nanosecond() % 1_000_000 > 0))
}

/// When a live pod was scheduled. One that is bound may not say since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled(i64);

impl Scheduled {
    const NOT_YET: i64 = i64::MIN;
    const SOME_TIME: i64 = i64::MAX;

    pub fn of(pod: &projection::Pod) -> Self {
        Self(match (progress(pod), pod.scheduled_at()) {
            (Progress::Running, Some(at)) => at.0.as_millisecond(),
            (Progress::Running, None) => Self::SOME_TIME,
            (Progress::Waiting | Progress::Gone, _) => Self::NOT_YET,
        })
    }

    /// True if it runs.
    pub const fn is_active(self) -> bool {
        self.0 != Self::NOT_YET
    }

    pub fn at(self) -> Option<Milliseconds> {
        Some(self.0).filter(|at| !matches!(*at, Self::NOT_YET | Self::SOME_TIME)).and_then(Milliseconds::new)
    }
}

/// The readiness of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodReadiness(i64);

impl PodReadiness {
    const NOT_YET: i64 = i64::MIN;
    const READY: i64 = i64::MAX;

    /// Reads the readiness of a pod, after what was seen of it before.
    pub fn of(pod: &projection::Pod, before: Option<Self>) -> Self {
        Self(match before.map_or(Readiness::NotYet, Self::get).after(pod) {
            Readiness::NotYet => Self::NOT_YET,
            Readiness::Ready => Self::READY,
            Readiness::Lost(at) => at.as_millisecond(),
        })
    }

    pub fn get(self) -> Readiness {
        match self.0 {
            Self::NOT_YET => Readiness::NotYet,
            Self::READY => Readiness::Ready,
            at => Readiness::Lost(time(at)),
        }
    }
}
