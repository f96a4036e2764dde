//! Reads the part of a configuration file about the bounds for administrators of a part of the tree.

use std::collections::BTreeSet;

use super::{
    fields::{Field, Problems},
    tree::YamlNode,
};
use crate::{
    delegation::{Bound, Bounds},
    owners::is_subdomain,
    tree::Inherited,
};

/// The longest floors that queues may have.
pub const DELEGATION_BOUNDS: &str = "delegation.bounds";

const BOUNDS: &str = "bounds";
const QUEUE: &str = "queue";

const QUEUE_EXPECTED: &str = "must be the name of a queue of scheduling.run.ai: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253";

/// The bounds that it sets: by default none.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Bounds {
    let Some(mut fields) = field.fields(problems) else { return Bounds::default() };
    let bounds = fields.take(BOUNDS).map(|field| rows(&field, problems));
    fields.end(problems);
    bounds.unwrap_or_default()
}

fn rows(field: &Field<'_>, problems: &mut Problems) -> Bounds {
    let mut bounds = Bounds::default();
    for item in field.list(problems) {
        let Some(mut fields) = item.fields(problems) else { continue };
        let queue = fields.require(QUEUE, problems);
        let [preempt, reclaim] =
            [Inherited::Preempt, Inherited::Reclaim].map(|floor| fields.take(floor.name()));
        if preempt.is_none() && reclaim.is_none() {
            item.refuse("must have preemptMinRuntime, reclaimMinRuntime or both", problems);
        }
        let mut duration = |field: Option<Field<'_>>| field.and_then(|field| field.duration(problems));
        let bound = Bound { preempt: duration(preempt), reclaim: duration(reclaim) };
        fields.end(problems);
        let Some(queue) = queue else { continue };
        match queue.text(QUEUE_EXPECTED, problems) {
            Some(name) if !is_subdomain(name) => queue.refuse(QUEUE_EXPECTED, problems),
            Some(name) if bounds.0.contains_key(name) => queue.refuse("has a bound already", problems),
            Some(name) => {
                bounds.0.insert(name.to_owned(), bound);
            }
            None => {}
        }
    }
    bounds
}

/// The paths of the fields that it sets.
pub fn set(delegation: &YamlNode) -> BTreeSet<&'static str> {
    let bounds = delegation.get(BOUNDS).filter(|value| !value.is_null());
    bounds.map(|_| DELEGATION_BOUNDS).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, DELEGATION};

    #[test]
    fn no_queue_has_a_bound_by_default() {
        for text in ["", "delegation: ~", "delegation: {}", "delegation: {bounds: ~}"] {
            let config = Config::parse(text).unwrap();
            assert_eq!(config.bounds, Bounds::default(), "{text}");
            assert!(!config.set.contains(DELEGATION_BOUNDS), "{text}");
        }
    }

    #[test]
    fn a_bound_limits_one_floor_or_both() {
        let text = "\
delegation:
  bounds:
  - {queue: research, preemptMinRuntime: 2h, reclaimMinRuntime: 30m}
  - {queue: sales, reclaimMinRuntime: 0s}
";
        let config = Config::parse(text).unwrap();
        let duration = |text: &str| Some(text.parse().unwrap());
        let expected = [
            ("research".into(), Bound { preempt: duration("2h"), reclaim: duration("30m") }),
            ("sales".into(), Bound { preempt: None, reclaim: duration("0s") }),
        ];
        assert_eq!(config.bounds, Bounds(expected.into()));
        assert_eq!(config.set, [DELEGATION, DELEGATION_BOUNDS].into());
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line_and_path() {
        for (row, expected) in [
            (
                "queue: a",
                "line 3: delegation.bounds[0]: Invalid value: {\"queue\":\"a\"}: must have preemptMinRuntime, reclaimMinRuntime or both",
            ),
            ("preemptMinRuntime: 1h", "line 3: delegation.bounds[0].queue: Required value"),
            (
                "queue: A\n    preemptMinRuntime: 1h",
                "line 3: delegation.bounds[0].queue: Invalid value: \"A\": must be the name of a queue",
            ),
            (
                "queue: a\n    preemptMinRuntime: -1h",
                "line 4: delegation.bounds[0].preemptMinRuntime: Invalid value: \"-1h\": must be a duration such as",
            ),
            (
                "queue: a\n    reclaimMinRuntime: 10",
                "line 4: delegation.bounds[0].reclaimMinRuntime: Invalid value: ",
            ),
            (
                "queue: a\n    reclaimMinRuntime: 1h\n    preemptMinRuntme: 1h",
                "line 5: delegation.bounds[0].preemptMinRuntme: Unknown field: did you mean preemptMinRuntime?",
            ),
            (
                "queue: a\n    reclaimMinRuntime: 1h\n  - queue: a\n    reclaimMinRuntime: 2h",
                "line 5: delegation.bounds[1].queue: Invalid value: \"a\": has a bound already",
            ),
        ] {
            let text = format!("delegation:\n  bounds:\n  - {row}\n");
            let complaint = Config::parse(&text).unwrap_err().to_string();
            assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
        }
        for (text, expected) in [
            ("delegation: []", "line 1: delegation: Invalid value: []: must be a map of fields"),
            ("delegation: {bounds: {}}", "line 1: delegation.bounds: Invalid value: {}: must be a list"),
            ("delegation: {bound: []}", "line 1: delegation.bound: Unknown field: did you mean bounds?"),
        ] {
            let complaint = Config::parse(text).unwrap_err().to_string();
            assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
        }
    }
}
