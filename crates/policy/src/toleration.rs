//! The toleration of preemption by its victims, from annotations on their `PriorityClass`: the
//! rules of the scheduler plugin `PreemptionToleration`. A ruling about a victim asks [`judge`],
//! and admission reads the annotations.
//!
//! Four decisions differ from that plugin's:
//! - A system-critical preemptor may always preempt. There, a class can tolerate even those.
//! - A missing `PriorityClass` exempts the pod. There, it is an error that rules out the whole
//!   node.
//! - Seconds saturate. There, more than 292 years of them overflow, and protect no pod.
//! - A pod scheduled in the future counts as scheduled now. There, it is exempt until then even for
//!   0 seconds.

use std::{collections::BTreeMap, fmt, str::FromStr};

use jiff::{SignedDuration, Timestamp};
use tenure_types::keys::{
    MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION, PREEMPTION_TOLERATION_PREFIX, TOLERATION_SECONDS_ANNOTATION,
};

use crate::{expiry::SYSTEM_CRITICAL_PRIORITY, field::FieldError};

/// The toleration of the pods of a `PriorityClass`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toleration {
    /// The least priority of preemptors that aren't tolerated. Wider than a priority, because its
    /// default is one more than the value of the class.
    pub minimum_preemptable_priority: i64,
    /// The time after its scheduling for which the pod tolerates preemption, in seconds. Negative:
    /// without an end.
    pub seconds: i64,
}

impl Toleration {
    /// Reads the annotations of a class with this value. An annotation of the plugin that can't be
    /// read is an error.
    pub fn read(value: i32, annotations: Option<&BTreeMap<String, String>>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let minimum: Option<i32> =
            integer(annotations, MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION, PRIORITY, &mut errors);
        let seconds: Option<i64> = integer(annotations, TOLERATION_SECONDS_ANNOTATION, SECONDS, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        let minimum_preemptable_priority = minimum.map_or(i64::from(value) + 1, i64::from);
        Ok(Self { minimum_preemptable_priority, seconds: seconds.unwrap_or(0) })
    }

    fn judge(&self, priority: i32, scheduled_at: Option<Timestamp>, now: Timestamp) -> Judgement {
        let Self { minimum_preemptable_priority: minimum, seconds } = *self;
        if i64::from(priority) >= minimum {
            return Judgement::PriorityReached { minimum, priority };
        }
        if seconds < 0 {
            return Judgement::Forever { minimum };
        }
        let Some(scheduled_at) = scheduled_at else { return Judgement::NotScheduled { minimum } };
        // seconds aren't negative here, so only the end of time can be exceeded
        let duration = SignedDuration::from_secs(seconds);
        let until = scheduled_at.min(now).checked_add(duration).unwrap_or(Timestamp::MAX);
        if now < until {
            Judgement::Within { minimum, seconds, until }
        } else {
            Judgement::Over { minimum, seconds, at: until }
        }
    }
}

const PRIORITY: &str = "must be a priority, a whole number from -2147483648 to 2147483647";
const SECONDS: &str = "must be a whole number of seconds, such as 600; -1 means no limit";

/// Returns the path of an annotation, for errors.
pub(crate) fn field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// Reads a number by the grammar of Go's `strconv.ParseInt` with base 10: a sign and leading zeros
/// are fine, spaces aren't. None: the annotation is absent or, with an error added, can't be read.
fn integer<T: FromStr>(
    annotations: Option<&BTreeMap<String, String>>,
    key: &str,
    detail: &str,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    let text = annotations?.get(key)?;
    text.parse().map_err(|_| errors.push(FieldError::invalid(field(key), text.as_str(), detail))).ok()
}

/// A victim's `PriorityClass`, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassState {
    /// The pod names no class.
    None,
    /// The pod names a class that doesn't exist.
    Missing,
    /// The class has annotations that can't be read: admission would have refused them, but they
    /// got stored.
    Unreadable,
    /// The class has this toleration, or the defaults.
    Known(Toleration),
}

impl ClassState {
    /// Returns the state of a class that exists, by its value and its annotations.
    pub fn of(value: i32, annotations: Option<&BTreeMap<String, String>>) -> Self {
        Toleration::read(value, annotations).map_or(Self::Unreadable, Self::Known)
    }
}

/// The properties of a pod that wants to preempt, as far as tolerations depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptorClaim {
    /// `spec.priority`. A pod without it has 0.
    pub priority: i32,
    /// True if its `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
}

/// The decision whether a victim is exempt from preemption by a preemptor, with its reason.
/// `Display` writes the reason, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Not exempt: no class tolerates preemption by system-critical pods.
    SystemCritical {
        /// The priority of the preemptor.
        priority: i32,
    },
    /// Not exempt: the victim has no class.
    NoClass,
    /// Exempt: the toleration of its class can't be known.
    MissingClass,
    /// Exempt: the preemptor's policy is never to preempt.
    PreemptorNever,
    /// Not exempt: annotations that can't be read protect no pod.
    Unreadable,
    /// Not exempt: the preemptor's priority isn't tolerated.
    PriorityReached {
        /// The least priority that isn't tolerated.
        minimum: i64,
        /// The priority of the preemptor.
        priority: i32,
    },
    /// Exempt without an end.
    Forever {
        /// The least priority that isn't tolerated.
        minimum: i64,
    },
    /// Exempt: the time of its toleration hasn't begun.
    NotScheduled {
        /// The least priority that isn't tolerated.
        minimum: i64,
    },
    /// Exempt for some time.
    Within {
        /// The least priority that isn't tolerated.
        minimum: i64,
        /// The length of the toleration, in seconds.
        seconds: i64,
        /// The end of the exemption.
        until: Timestamp,
    },
    /// No longer exempt.
    Over {
        /// The least priority that isn't tolerated.
        minimum: i64,
        /// The length of the toleration, in seconds.
        seconds: i64,
        /// The end of the exemption.
        at: Timestamp,
    },
}

impl Judgement {
    /// True if the preemptor may not have the victim.
    pub const fn is_exempt(&self) -> bool {
        match self {
            Self::MissingClass
            | Self::PreemptorNever
            | Self::Forever { .. }
            | Self::NotScheduled { .. }
            | Self::Within { .. } => true,
            Self::SystemCritical { .. }
            | Self::NoClass
            | Self::Unreadable
            | Self::PriorityReached { .. }
            | Self::Over { .. } => false,
        }
    }

    /// Returns the time at which the victim's exemption ends by itself. None: the victim isn't
    /// exempt now, or the exemption has no end or ends only when another object changes.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            // an exemption until the last timestamp has no end
            Self::Within { until, .. } if until.as_second() < Timestamp::MAX.as_second() => Some(*until),
            _ => None,
        }
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemCritical { priority } => {
                write!(f, "the preemptor is system-critical: priority {priority} may always preempt")
            }
            Self::NoClass => f.write_str("it has no PriorityClass that could tolerate preemption"),
            Self::MissingClass => {
                f.write_str("its PriorityClass doesn't exist: what it tolerates isn't known")
            }
            Self::PreemptorNever => f.write_str("the preemptor's preemptionPolicy is Never"),
            Self::Unreadable => write!(
                f,
                "its PriorityClass has an annotation {PREEMPTION_TOLERATION_PREFIX}… that can't be read"
            ),
            Self::PriorityReached { minimum, priority } => {
                write!(f, "{}, and the preemptor's is {priority}", tolerates(*minimum))
            }
            Self::Forever { minimum } => write!(f, "{} without a time limit", tolerates(*minimum)),
            Self::NotScheduled { minimum } => {
                write!(f, "{}, and it has not been scheduled yet", tolerates(*minimum))
            }
            Self::Within { minimum, seconds, .. } => {
                write!(f, "{} for {seconds}s after it was scheduled", tolerates(*minimum))
            }
            Self::Over { seconds: 0, .. } => f.write_str("its PriorityClass gives no protection"),
            Self::Over { minimum, seconds, at } => {
                write!(f, "{} for {seconds}s after it was scheduled, until {at}", tolerates(*minimum))
            }
        }
    }
}

/// Returns the beginning of the reason, with the least priority that isn't tolerated.
fn tolerates(minimum: i64) -> String {
    format!("its PriorityClass tolerates preemption by priorities below {minimum}")
}

/// Decides if a victim tolerates a preemptor. `scheduled_at` is when the victim's `PodScheduled`
/// condition became true. None: it isn't true. The scheduler makes sure that the victim's priority
/// is lower than the preemptor's.
pub fn judge(
    class: ClassState,
    scheduled_at: Option<Timestamp>,
    preemptor: &PreemptorClaim,
    now: Timestamp,
) -> Judgement {
    if preemptor.priority >= SYSTEM_CRITICAL_PRIORITY {
        return Judgement::SystemCritical { priority: preemptor.priority };
    }
    match class {
        ClassState::None => Judgement::NoClass,
        ClassState::Missing => Judgement::MissingClass,
        _ if preemptor.never_preempts => Judgement::PreemptorNever,
        ClassState::Unreadable => Judgement::Unreadable,
        ClassState::Known(toleration) => toleration.judge(preemptor.priority, scheduled_at, now),
    }
}

#[cfg(test)]
mod tests;
