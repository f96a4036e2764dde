use serde_json::json;
use tenure_types::{Written, runai::v3alpha1};

use super::*;

/// Below `company`, `research` is bounded to 2h and 30m, and `vision` below it to 1h.
fn bounds() -> DelegationBounds {
    let bound = |preempt: &str, reclaim: Option<&str>| PartialFloors {
        preempt: Some(duration(preempt)),
        reclaim: reclaim.map(duration),
    };
    let rows = [("research", bound("2h", Some("30m"))), ("vision", bound("1h", None))];
    DelegationBounds(rows.map(|(name, bound)| (name.to_owned(), bound)).into())
}

fn duration(text: &str) -> ExtendedDuration {
    text.parse().unwrap()
}

fn queue(parent: &str, preempt: Option<&str>, reclaim: Option<&str>) -> v3alpha1::QueueSpec {
    let spec = json!({"parentQueue": parent, "preemptMinRuntime": preempt, "reclaimMinRuntime": reclaim});
    serde_json::from_value(spec).unwrap()
}

fn preempt(parent: &str, floor: &str) -> v3alpha1::QueueSpec {
    queue(parent, Some(floor), None)
}

fn none(parent: &str) -> v3alpha1::QueueSpec {
    queue(parent, None, None)
}

fn tree(more: &[(&str, v3alpha1::QueueSpec)]) -> QueueTree {
    let usual = [
        ("company", preempt("", "8h")),
        ("research", preempt("company", "1h")),
        ("vision", none("research")),
        ("sales", none("company")),
    ];
    let read = |(name, spec): &(&str, v3alpha1::QueueSpec)| ((*name).to_owned(), RunaiQueue::read(spec).0);
    usual.iter().chain(more).map(read).collect()
}

fn change(
    name: &str,
    old: Option<&v3alpha1::QueueSpec>,
    new: &v3alpha1::QueueSpec,
    more: &[(&str, v3alpha1::QueueSpec)],
) -> Vec<String> {
    let old = old.map(|old| RunaiQueue::read(old).0);
    let read = RunaiQueue::read(new).0;
    let change = QueueChange { name, new: &read, old: old.as_ref() };
    let written = |field| match field {
        Inherited::Preempt => new.preempt_min_runtime.as_ref().map(Written::as_str),
        Inherited::Reclaim => new.reclaim_min_runtime.as_ref().map(Written::as_str),
    };
    let tree = tree(more);
    let errors = bounds().exceeded(&change, written, &tree, &Floors::default());
    errors.iter().chain(&bounds().brought(&change, &tree)).map(ToString::to_string).collect()
}

fn create(name: &str, new: &v3alpha1::QueueSpec) -> Vec<String> {
    change(name, None, new, &[])
}

const NOTHING: [&str; 0] = [];
const RULE: &str = "delegation.bounds of Tenure's configuration limits queue \"research\" and those below it";

#[test]
fn a_floor_is_at_most_the_bound_of_the_queue_itself_and_of_all_above() {
    for (name, new) in [
        ("a", queue("research", Some("2h"), Some("30m"))),
        ("a", preempt("vision", "60m")),
        ("vision", queue("research", Some("1h"), Some("0s"))),
        ("research", preempt("company", "2h")),
        ("company", preempt("", "1000h")),
        ("a", preempt("sales", "1000h")),
        ("a", none("research")),
    ] {
        assert_eq!(create(name, &new), NOTHING, "{name} {new:?}");
    }
    let expected = |field: &str, text: &str, limit: &str, of: &str| {
        format!(
            "spec.{field}: Invalid value: \"{text}\": must be at most {limit}: delegation.bounds of Tenure's configuration limits queue \"{of}\" and those below it"
        )
    };
    assert_eq!(
        create("a", &queue("research", Some("1000h"), Some("31m"))),
        [
            expected("preemptMinRuntime", "1000h", "2h", "research"),
            expected("reclaimMinRuntime", "31m", "30m", "research"),
        ]
    );
    assert_eq!(
        create("a", &preempt("vision", "61m")),
        [expected("preemptMinRuntime", "61m", "1h", "vision")]
    );
    let by_a_nanosecond = queue("company", None, Some("30m0.000000001s"));
    let text = "30m0.000000001s";
    assert_eq!(
        create("research", &by_a_nanosecond),
        [expected("reclaimMinRuntime", text, "30m", "research")]
    );
}

#[test]
fn without_bounds_every_floor_is_fine() {
    let new = RunaiQueue::read(&preempt("research", "1000h")).0;
    let change = QueueChange { name: "a", new: &new, old: None };
    assert_eq!(DelegationBounds::default().exceeded(&change, |_| None, &tree(&[]), &Floors::default()), []);
}

#[test]
fn a_longer_floor_of_a_queue_below_does_not_make_its_own_longer() {
    // the least counts, not the nearest
    let bounds = DelegationBounds(
        [("research", "1h"), ("vision", "2h")]
            .map(|(name, text)| {
                (name.to_owned(), PartialFloors { preempt: Some(duration(text)), reclaim: None })
            })
            .into(),
    );
    let new = RunaiQueue::read(&preempt("vision", "90m")).0;
    let change = QueueChange { name: "a", new: &new, old: None };
    let errors = bounds.exceeded(&change, |_| Some("90m"), &tree(&[]), &Floors::default());
    assert!(errors[0].to_string().contains("at most 1h"), "{errors:?}");
}

#[test]
fn a_floor_that_was_too_long_may_stay_and_get_shorter_but_not_longer() {
    let old = preempt("research", "10h");
    for (floor, errors) in [("10h", 0), ("600m", 0), ("3h", 0), ("1h", 0), ("10h1s", 1)] {
        assert_eq!(change("a", Some(&old), &preempt("research", floor), &[]).len(), errors, "{floor}");
    }
}

#[test]
fn a_queue_that_moves_below_a_bound_sets_its_floor() {
    let [stays, moves] = ["sales", "company"].map(|parent| preempt(parent, "10h"));
    assert_eq!(change("a", Some(&stays), &moves, &[]), NOTHING);
    let errors = change("a", Some(&stays), &preempt("research", "10h"), &[]);
    assert_eq!(
        errors,
        [format!("spec.preemptMinRuntime: Invalid value: \"10h\": must be at most 2h: {RULE}")]
    );
}

#[test]
fn a_queue_that_moves_below_a_bound_brings_those_below_it() {
    let below =
        [("team", none("sales")), ("leaf", preempt("team", "10h")), ("other", preempt("sales", "20h"))];
    let errors = change("team", Some(&none("sales")), &none("research"), &below);
    assert_eq!(
        errors,
        [format!(
            "spec.parentQueue: Invalid value: \"research\": queue \"leaf\" below it has preemptMinRuntime 10h: must be at most 2h: {RULE}"
        )]
    );
    let short = [("team", none("sales")), ("leaf", preempt("team", "2h"))];
    assert_eq!(change("team", Some(&none("sales")), &none("research"), &short), NOTHING);
}

#[test]
fn a_queue_that_is_created_below_a_bound_brings_those_that_waited_for_it() {
    let waiting = [("leaf", preempt("team", "10h"))];
    let errors = change("team", None, &none("vision"), &waiting);
    assert!(
        errors[0].starts_with("metadata.name: Invalid value: \"team\": queue \"leaf\" below it has"),
        "{errors:?}"
    );
    // what was there before the bound may stay
    let stored = [("team", none("research")), ("leaf", preempt("team", "10h"))];
    assert_eq!(change("team", Some(&none("research")), &none("research"), &stored), NOTHING);
}

#[test]
fn each_bound_may_hold_as_long_as_it_is_not_known_what_is_above() {
    assert_eq!(create("a", &preempt("missing", "1h")), NOTHING);
    let expected = "must be at most 1h until queue \"missing\" exists: delegation.bounds of Tenure's configuration limits queue \"vision\"";
    let errors = create("a", &preempt("missing", "61m"));
    assert!(errors[0].contains(expected), "{errors:?}");
    let circle = [("b", none("c")), ("c", none("b"))];
    let errors = change("a", None, &preempt("b", "61m"), &circle);
    assert!(errors[0].contains("must be at most 1h until the ancestors form no cycle"), "{errors:?}");
}

#[test]
fn a_floor_is_not_removed_where_a_longer_one_is_inherited() {
    let errors = change("research", Some(&preempt("company", "1h")), &none("company"), &[]);
    assert_eq!(
        errors,
        [format!(
            "spec.preemptMinRuntime: Invalid value: null: without one 8h applies, of queue \"company\": must be at most 2h: {RULE}"
        )]
    );
    // below, what is inherited is within the bound
    assert_eq!(change("vision", Some(&preempt("research", "5m")), &none("research"), &[]), NOTHING);
    // what an administrator has left out stays so
    assert_eq!(create("research", &none("company")), NOTHING);
    assert_eq!(change("research", Some(&none("company")), &none("company"), &[]), NOTHING);
    // and one that is as long is no gain
    assert_eq!(change("research", Some(&preempt("company", "9h")), &none("company"), &[]), NOTHING);
}

#[test]
fn a_floor_is_not_removed_where_the_default_is_longer() {
    let floors = Floors {
        reclaim: duration("10m"),
        node_pools: [("a100".into(), PartialFloors { preempt: None, reclaim: Some(duration("1h")) })].into(),
        ..Floors::default()
    };
    let [old, new] =
        [queue("company", None, Some("5m")), none("company")].map(|spec| RunaiQueue::read(&spec).0);
    let change = QueueChange { name: "research", new: &new, old: Some(&old) };
    let errors = bounds().exceeded(&change, |_| None, &tree(&[]), &floors);
    assert!(errors[0].to_string().contains("without one 1h applies, of node pool \"a100\""), "{errors:?}");
}

#[test]
fn what_is_under_review_counts_and_not_what_the_tree_has_of_it() {
    let stale = [("a", preempt("sales", "10h"))];
    assert_eq!(change("a", None, &preempt("research", "2h"), &stale), NOTHING);
    assert_eq!(change("a", None, &preempt("research", "3h"), &stale).len(), 1);
}
