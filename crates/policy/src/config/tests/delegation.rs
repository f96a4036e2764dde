use crate::{config::Config, delegation::DelegationBounds, floor::PartialFloors};

#[test]
fn no_queue_has_a_bound_by_default() {
    for text in ["", "delegation: ~", "delegation: {}", "delegation: {bounds: ~}"] {
        let config = Config::parse(text).unwrap();
        assert_eq!(config.bounds, DelegationBounds::default(), "{text}");
        assert!(!config.set.contains("delegation.bounds"), "{text}");
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
        ("research".into(), PartialFloors { preempt: duration("2h"), reclaim: duration("30m") }),
        ("sales".into(), PartialFloors { preempt: None, reclaim: duration("0s") }),
    ];
    assert_eq!(config.bounds, DelegationBounds(expected.into()));
    assert_eq!(config.set, ["delegation", "delegation.bounds"].into());
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
            "line 5: delegation.bounds[1].queue: Invalid value: \"a\": is in the list already",
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
