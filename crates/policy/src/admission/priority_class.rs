//! Errors and warnings about the annotations of a `PriorityClass` that set its toleration of
//! preemption.
//!
//! `crate::review` calls [`review`] for the admission webhook and for `kubectl tenure validate`.
//! The annotations and their meaning are those of the scheduler plugin `PreemptionToleration`; they
//! are read by `crate::toleration`, as for decisions.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_types::keys::{
    MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION as MINIMUM, PREEMPTION_TOLERATION_PREFIX as PREFIX,
    TOLERATION_SECONDS_ANNOTATION as SECONDS,
};

use super::Findings;
use crate::{
    expiry::SYSTEM_CRITICAL_PRIORITY,
    field::FieldError,
    toleration::{Toleration, field},
};

/// The prefix that the annotations had before they were part of a SIG's project. Such annotations
/// have no effect, and get a warning.
const FORMER_PREFIX: &str = "preemption-toleration.scheduling.sigs.k8s.io/";

/// Reviews the annotations of a priority class with this value. A value that can't be read is an
/// error. An unknown key, and a value without effect, are warnings.
pub fn review(value: i32, annotations: &BTreeMap<String, String>) -> Findings {
    let mut warnings: Vec<String> = annotations.iter().filter_map(unknown).collect();
    match Toleration::read(value, Some(annotations)) {
        Ok(toleration) => {
            warnings.extend(without_effect(value, &toleration, annotations));
            Findings { warnings, ..Findings::default() }
        }
        Err(errors) => Findings { errors, warnings, missing_parent: None },
    }
}

/// Returns the warning about an annotation that has a known prefix but isn't one of the two known
/// keys. None: the key is known, or has another prefix.
fn unknown((key, text): (&String, &String)) -> Option<String> {
    if [MINIMUM, SECONDS].contains(&key.as_str()) {
        return None;
    }
    let property = key.strip_prefix(PREFIX).or_else(|| key.strip_prefix(FORMER_PREFIX))?;
    let meant = [MINIMUM, SECONDS].into_iter().find(|known| known.strip_prefix(PREFIX) == Some(property));
    let meant = meant.map_or_else(|| format!("{MINIMUM} or {SECONDS}"), str::to_owned);
    Some(warning(key, text.as_str(), &format!("has no effect; did you mean {meant}?")))
}

/// Returns the warnings about readable annotations that don't change which preemptions are
/// tolerated.
fn without_effect(
    value: i32,
    toleration: &Toleration,
    annotations: &BTreeMap<String, String>,
) -> Vec<String> {
    match (annotations.contains_key(MINIMUM), annotations.contains_key(SECONDS)) {
        (true, _) => minimum_without_effect(value, toleration),
        (false, true) => {
            let default = i64::from(value) + 1;
            let remedy = format!(
                "has no effect without {MINIMUM}, whose default is {default}: set that above {default}"
            );
            vec![warning(SECONDS, toleration.seconds, &remedy)]
        }
        (false, false) => Vec::new(),
    }
}

/// Returns the warnings about a minimum that every possible preemptor reaches, that is above what
/// is system-critical, or that ends when a pod is scheduled.
fn minimum_without_effect(value: i32, toleration: &Toleration) -> Vec<String> {
    let Toleration { minimum_preemptable_priority: minimum, seconds } = *toleration;
    let (least, critical) = (i64::from(value) + 1, i64::from(SYSTEM_CRITICAL_PRIORITY));
    let reached = format!(
        "has no effect: every pod that may preempt a pod of priority {value} reaches it; set it above {least}"
    );
    let beyond =
        format!("counts as {critical}: system-critical pods may always preempt; set it to {critical}");
    let ends_at_once = format!(
        "tolerates nothing once a pod is scheduled, because {SECONDS} is 0 or unset; set that to a number of seconds, or to -1 for no limit"
    );
    [(minimum <= least, reached), (minimum > critical, beyond), (seconds == 0, ends_at_once)]
        .into_iter()
        .filter(|(applies, _)| *applies)
        .map(|(_, remedy)| warning(MINIMUM, minimum, &remedy))
        .collect()
}

/// Returns a warning in the form of an error: path, value and remedy. A long value is cut.
fn warning(key: &str, value: impl Into<Value>, remedy: &str) -> String {
    let FieldError { field, value, detail } = FieldError::invalid(field(key), value, remedy);
    format!("{field}: {value} {detail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reviews a class of value 8000.
    fn review_of(pairs: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let annotations = pairs.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        let Findings { errors, warnings, .. } = review(8000, &annotations);
        (errors.iter().map(ToString::to_string).collect(), warnings)
    }

    fn warnings_of(pairs: &[(&str, &str)]) -> Vec<String> {
        let (errors, warnings) = review_of(pairs);
        assert!(errors.is_empty(), "{errors:?}");
        warnings
    }

    fn at(key: &str, rest: &str) -> String {
        format!("metadata.annotations[{key}]: {rest}")
    }

    #[test]
    fn admits_a_good_class_without_a_word() {
        for pairs in [
            &[][..],
            &[("example.com/toleration-seconds", "soon")],
            &[(MINIMUM, "10000"), (SECONDS, "600")],
            &[(MINIMUM, "10000"), (SECONDS, "-1")],
            &[(MINIMUM, "8002"), (SECONDS, "9223372036854775807")],
            &[(MINIMUM, "2000000000"), (SECONDS, "1")],
        ] {
            assert_eq!(review_of(pairs), (vec![], vec![]), "{pairs:?}");
        }
    }

    #[test]
    fn refuses_all_that_can_not_be_read() {
        let (errors, warnings) = review_of(&[(MINIMUM, "high"), (SECONDS, "10m")]);
        let priority =
            "Invalid value: \"high\": must be a priority, a whole number from -2147483648 to 2147483647";
        let seconds =
            "Invalid value: \"10m\": must be a whole number of seconds, such as 600; -1 means no limit";
        assert_eq!(errors, [at(MINIMUM, priority), at(SECONDS, seconds)]);
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn warns_of_seconds_without_a_minimum() {
        let rest = format!("has no effect without {MINIMUM}, whose default is 8001: set that above 8001");
        for seconds in ["600", "-1", "0"] {
            assert_eq!(warnings_of(&[(SECONDS, seconds)]), [at(SECONDS, &format!("{seconds} {rest}"))]);
        }
    }

    #[test]
    fn warns_of_a_minimum_that_ends_when_a_pod_is_scheduled() {
        let rest = format!(
            "10000 tolerates nothing once a pod is scheduled, because {SECONDS} is 0 or unset; set that to a number of seconds, or to -1 for no limit"
        );
        for pairs in [&[(MINIMUM, "10000")][..], &[(MINIMUM, "10000"), (SECONDS, "0")]] {
            assert_eq!(warnings_of(pairs), [at(MINIMUM, &rest)]);
        }
    }

    #[test]
    fn warns_of_a_minimum_that_every_preemptor_reaches() {
        let rest =
            "has no effect: every pod that may preempt a pod of priority 8000 reaches it; set it above 8001";
        for minimum in ["-1", "8000", "8001"] {
            let warnings = warnings_of(&[(MINIMUM, minimum), (SECONDS, "600")]);
            assert_eq!(warnings, [at(MINIMUM, &format!("{minimum} {rest}"))]);
        }
        assert_eq!(warnings_of(&[(MINIMUM, "8000")]).len(), 2);
    }

    #[test]
    fn warns_of_a_minimum_above_what_is_system_critical() {
        let rest = "counts as 2000000000: system-critical pods may always preempt; set it to 2000000000";
        for minimum in ["2000000001", "2147483647"] {
            let warnings = warnings_of(&[(MINIMUM, minimum), (SECONDS, "600")]);
            assert_eq!(warnings, [at(MINIMUM, &format!("{minimum} {rest}"))]);
        }
    }

    #[test]
    fn warns_of_a_key_that_has_no_effect_and_says_which_was_meant() {
        let either = format!("{MINIMUM} or {SECONDS}");
        for (prefix, property, meant) in [
            (FORMER_PREFIX, "toleration-seconds", SECONDS),
            (FORMER_PREFIX, "minimum-preemptable-priority", MINIMUM),
            (FORMER_PREFIX, "tolerationSeconds", &either),
            (PREFIX, "tolerationSeconds", &either),
            (PREFIX, "", &either),
        ] {
            let key = format!("{prefix}{property}");
            let rest = format!("\"soon\" has no effect; did you mean {meant}?");
            assert_eq!(warnings_of(&[(&key, "soon")]), [at(&key, &rest)]);
        }
    }

    #[test]
    fn a_refusal_keeps_the_warnings_of_other_keys() {
        let key = format!("{PREFIX}seconds");
        let (errors, warnings) = review_of(&[(SECONDS, "soon"), (&key, "soon")]);
        assert_eq!((errors.len(), warnings.len()), (1, 1));
    }

    #[test]
    fn a_warning_is_short_however_long_the_value() {
        let key = format!("{PREFIX}seconds");
        let warnings = warnings_of(&[(&key, &"9".repeat(10_000)), (SECONDS, &format!("{:0>10000}", 1))]);
        assert!(warnings.iter().all(|warning| warning.len() < 600), "{warnings:?}");
    }
}
