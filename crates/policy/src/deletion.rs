//! The time at which a pod's deletion was requested, and the end of its grace period.
//!
//! The index and `kubectl tenure forecast` read the times of terminating pods here.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The times of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionTimes {
    /// The time of the request, or of the pod's creation if the request isn't known.
    pub asked: Timestamp,
    /// The time at which the grace period ends.
    pub until: Timestamp,
}

impl DeletionTimes {
    /// Returns the times of a pod's deletion. None: the pod isn't being deleted.
    ///
    /// Users choose the length of the grace period. For a very long one, the API server's sum of
    /// the time and the length overflows, and `deletionTimestamp` may be long ago. So if the
    /// request seems older than the pod, the length counts from the creation of the pod.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let until = metadata.deletion_timestamp.as_ref()?.0;
        let created = metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds.unwrap_or(0).max(0));
        Some(match until.checked_sub(grace) {
            Ok(asked) if asked >= created => Self { asked, until },
            _ => Self { asked: created, until: created.checked_add(grace).unwrap_or(Timestamp::MAX) },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn times(deleted: &str, grace: i64) -> (String, String) {
        let metadata: Value = json!({
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": deleted,
            "deletionGracePeriodSeconds": grace,
        });
        let DeletionTimes { asked, until } =
            DeletionTimes::of(&serde_json::from_value(metadata).unwrap()).unwrap();
        (asked.to_string(), until.to_string())
    }

    #[test]
    fn a_deletion_was_asked_for_its_grace_period_before_it_ends() {
        assert_eq!(DeletionTimes::of(&ObjectMeta::default()), None);
        let expected = ("2026-01-01T01:00:00Z".to_owned(), "2026-01-01T01:00:30Z".to_owned());
        assert_eq!(times("2026-01-01T01:00:30Z", 30), expected);
    }

    #[test]
    fn a_grace_period_that_overflows_counts_from_the_creation_by_its_length() {
        for (grace, until) in [
            // 584 years: as many nanoseconds as 64 bits hold, and four seconds
            (18_446_744_078, "2610-07-22T23:34:38Z".to_owned()),
            (36_028_797_018_960_368, Timestamp::MAX.to_string()),
        ] {
            let expected = ("2026-01-01T00:00:00Z".to_owned(), until);
            assert_eq!(times("2026-01-01T01:00:04Z", grace), expected, "{grace}");
        }
    }
}
