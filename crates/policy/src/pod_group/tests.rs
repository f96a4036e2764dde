use proptest::prelude::*;
use serde_json::{Value, json, value::to_raw_value};
use tenure_types::keys::LAST_START_ANNOTATION as STAMP;

use super::{StampChange::*, *};
use crate::cases::cases;

const NOW: &str = "2026-01-02T12:00:00.5Z";
/// `NOW`, as it is written.
const STAMPED: &str = "2026-01-02T12:00:00Z";
const PAST: &str = "2026-01-02T03:04:05Z";
const OTHER: &str = "2026-01-01T00:00:00Z";
const FUTURE: &str = "2099-01-01T00:00:00Z";
const GARBAGE: &str = "soon";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn reviewed(write: StampWrite<'_>, shown: ReportedStart) -> (Option<String>, StampChange) {
    let Review { stamp, change, warning } = write.review(|| shown, at(NOW));
    // only a value that is dropped or changed causes a warning
    assert_eq!(warning.is_some(), !matches!(change, Admitted | Stamped), "{write:?}");
    assert_eq!(change == Admitted, stamp.as_deref() == write.stamp, "{write:?} {stamp:?}");
    (stamp, change)
}

#[test]
fn a_stamp_is_created_by_trusted_writers_alone() {
    let since = ReportedStart::Since(at(PAST));
    for (trusted, stamp, shown, expected, change) in [
        (false, None, ReportedStart::Nothing, None, Admitted),
        (false, None, ReportedStart::Running, Some(STAMPED), Stamped),
        (false, None, since, Some(PAST), Stamped),
        (false, None, ReportedStart::Since(at(FUTURE)), Some(STAMPED), Stamped),
        (false, Some(PAST), ReportedStart::Nothing, None, Reverted),
        (false, Some(FUTURE), ReportedStart::Nothing, None, Reverted),
        (false, Some(GARBAGE), ReportedStart::Nothing, None, Reverted),
        (false, Some(""), ReportedStart::Nothing, None, Reverted),
        (false, Some(PAST), ReportedStart::Running, Some(STAMPED), Reverted),
        (false, Some(FUTURE), since, Some(PAST), Reverted),
        (false, Some(GARBAGE), since, Some(PAST), Reverted),
        // a review could have set these
        (false, Some(PAST), since, Some(PAST), Admitted),
        (false, Some(STAMPED), ReportedStart::Running, Some(STAMPED), Admitted),
        (true, None, ReportedStart::Nothing, None, Admitted),
        (true, None, ReportedStart::Running, Some(STAMPED), Stamped),
        (true, None, since, Some(PAST), Stamped),
        (true, Some(PAST), ReportedStart::Nothing, Some(PAST), Admitted),
        (true, Some(OTHER), since, Some(OTHER), Admitted),
        (true, Some(FUTURE), ReportedStart::Nothing, Some(STAMPED), Clamped),
        (true, Some(FUTURE), since, Some(STAMPED), Clamped),
        (true, Some(GARBAGE), ReportedStart::Nothing, None, Dropped),
        (true, Some(GARBAGE), ReportedStart::Running, Some(STAMPED), Dropped),
    ] {
        let write = StampWrite { trusted, stamp, old: None };
        assert_eq!(reviewed(write, shown), (expected.map(str::to_owned), change), "{write:?} {shown:?}");
    }
}

#[test]
fn a_stamp_that_is_ahead_by_no_more_than_clocks_differ_stands() {
    for (ahead, stands) in [(1, true), (60, true), (62, false)] {
        let stamp = start::write(at(NOW) + SignedDuration::from_secs(ahead));
        let (expected, change) = if stands { (stamp.as_str(), Admitted) } else { (STAMPED, Clamped) };
        let expected = (Some(expected.to_owned()), change);
        let write = StampWrite { trusted: true, stamp: Some(&stamp), old: None };
        assert_eq!(reviewed(write, ReportedStart::Nothing), expected, "{ahead}");
        let left_alone = StampWrite { trusted: false, old: Some(&stamp), ..write };
        assert_eq!(reviewed(left_alone, ReportedStart::Nothing), expected, "{ahead}");
        let none = StampWrite { trusted: false, stamp: None, old: None };
        assert_eq!(reviewed(none, ReportedStart::Since(at(&stamp))), (expected.0, Stamped), "{ahead}");
    }
}

#[test]
fn a_stamp_is_changed_and_removed_by_trusted_writers_alone() {
    let (nothing, running) = (ReportedStart::Nothing, ReportedStart::Running);
    for (trusted, stamp, old, shown, expected, change) in [
        // added
        (false, Some(PAST), None, nothing, None, Reverted),
        (false, Some(FUTURE), None, running, Some(STAMPED), Reverted),
        (false, Some(STAMPED), None, running, Some(STAMPED), Admitted),
        (false, Some(STAMPED), None, nothing, None, Reverted),
        (true, Some(PAST), None, nothing, Some(PAST), Admitted),
        (true, Some(FUTURE), None, running, Some(STAMPED), Clamped),
        (true, Some(GARBAGE), None, nothing, None, Dropped),
        // changed
        (false, Some(OTHER), Some(PAST), running, Some(PAST), Reverted),
        (false, Some(FUTURE), Some(PAST), nothing, Some(PAST), Reverted),
        (false, Some(GARBAGE), Some(PAST), nothing, Some(PAST), Reverted),
        (false, Some(STAMPED), Some(PAST), running, Some(PAST), Reverted),
        (true, Some(OTHER), Some(PAST), running, Some(OTHER), Admitted),
        (true, Some(FUTURE), Some(PAST), nothing, Some(STAMPED), Clamped),
        (true, Some(GARBAGE), Some(PAST), nothing, None, Dropped),
        (true, Some(GARBAGE), Some(PAST), running, Some(STAMPED), Dropped),
        // removed
        (false, None, Some(PAST), nothing, Some(PAST), Reverted),
        (false, None, Some(PAST), running, Some(PAST), Reverted),
        (true, None, Some(PAST), nothing, None, Admitted),
        (true, None, Some(PAST), running, None, Admitted),
        // left alone
        (false, Some(PAST), Some(PAST), running, Some(PAST), Admitted),
        (true, Some(PAST), Some(PAST), running, Some(PAST), Admitted),
        (false, None, None, nothing, None, Admitted),
        (false, None, None, running, Some(STAMPED), Stamped),
        (true, None, None, running, Some(STAMPED), Stamped),
    ] {
        let write = StampWrite { trusted, stamp, old };
        assert_eq!(reviewed(write, shown), (expected.map(str::to_owned), change), "{write:?} {shown:?}");
    }
}

#[test]
fn what_was_stored_around_the_webhook_is_put_right() {
    let (nothing, running) = (ReportedStart::Nothing, ReportedStart::Running);
    for trusted in [false, true] {
        for (stamp, old, shown, expected, change) in [
            (Some(FUTURE), FUTURE, nothing, Some(STAMPED), Clamped),
            (Some(FUTURE), FUTURE, running, Some(STAMPED), Clamped),
            (Some(GARBAGE), GARBAGE, nothing, None, Dropped),
            (Some(GARBAGE), GARBAGE, running, Some(STAMPED), Dropped),
            (None, GARBAGE, nothing, None, Admitted),
        ] {
            let write = StampWrite { trusted, stamp, old: Some(old) };
            assert_eq!(reviewed(write, shown), (expected.map(str::to_owned), change), "{write:?} {shown:?}");
        }
    }
    for (stamp, old, shown, expected) in [
        (None, FUTURE, nothing, Some(STAMPED)),
        (Some(PAST), FUTURE, nothing, Some(STAMPED)),
        (Some(PAST), GARBAGE, nothing, None),
        (Some(PAST), GARBAGE, running, Some(STAMPED)),
        (Some("later"), GARBAGE, nothing, None),
    ] {
        let write = StampWrite { trusted: false, stamp, old: Some(old) };
        let expected = (expected.map(str::to_owned), Reverted);
        assert_eq!(reviewed(write, shown), expected, "{write:?} {shown:?}");
    }
}

#[test]
fn only_a_fresh_stamp_is_taken_for_the_answer_of_a_review() {
    for (stamp, shown, change) in [
        ("2026-01-02T11:59:30Z", ReportedStart::Running, Admitted),
        ("2026-01-02T11:59:29Z", ReportedStart::Running, Reverted),
        ("2026-01-02T12:00:01Z", ReportedStart::Running, Reverted),
        ("2026-01-02T11:59:30.0Z", ReportedStart::Running, Reverted),
        ("2026-01-02T11:59:30+00:00", ReportedStart::Running, Reverted),
        ("2026-01-02T11:59:30Z", ReportedStart::Since(at(PAST)), Reverted),
    ] {
        let write = StampWrite { trusted: false, stamp: Some(stamp), old: None };
        assert_eq!(reviewed(write, shown).1, change, "{stamp} {shown:?}");
    }
}

#[test]
fn warnings_name_the_change_of_the_stamp_and_who_may_set_it() {
    let warning = |trusted, stamp, old| {
        let warning =
            StampWrite { trusted, stamp, old }.review(|| ReportedStart::Nothing, at(NOW)).warning.unwrap();
        let prefix = "tenure: metadata.annotations[kai.scheduler/last-start-timestamp]: ";
        warning.strip_prefix(prefix).unwrap().to_owned()
    };
    let who = "(see trustedWriters in Tenure's configuration)";
    for (trusted, stamp, old, expected) in [
        (
            false,
            Some(FUTURE),
            Some(PAST),
            format!("\"{FUTURE}\" was set back to \"{PAST}\": only trusted writers may set it {who}"),
        ),
        (
            false,
            Some(FUTURE),
            None,
            format!("\"{FUTURE}\" was dropped: only trusted writers may set it {who}"),
        ),
        (
            false,
            None,
            Some(PAST),
            format!("was set back to \"{PAST}\": only trusted writers may remove it {who}"),
        ),
        (
            true,
            Some(FUTURE),
            None,
            format!("\"{FUTURE}\" was set back to \"{STAMPED}\": it lies in the future"),
        ),
        (
            true,
            Some("a\n"),
            None,
            "\"a\\n\" was dropped: it must be a time such as 2026-01-02T03:04:05Z".into(),
        ),
    ] {
        assert_eq!(warning(trusted, stamp, old), expected);
    }
}

#[test]
fn no_warning_is_so_long_that_it_is_cut() {
    for stamp in [FUTURE.to_owned(), "ä".repeat(10_000), "\u{1}".repeat(10_000)] {
        let write =
            StampWrite { trusted: false, stamp: Some(&stamp), old: Some("2026-01-02T03:04:05.000000+00:00") };
        let warning = write.review(|| ReportedStart::Nothing, at(NOW)).warning.unwrap();
        let length = warning.chars().count();
        assert!(length <= 256 || stamp.starts_with('\u{1}'), "{length}: {warning}");
        assert!(length < 600, "{length}");
    }
}

/// Reviews an object, and returns its stamp.
fn stamp_of(kind: PodGroupKind, object: &Value, old: Option<&Value>) -> (Option<String>, StampChange) {
    let (object, old) = (to_raw_value(object).unwrap(), old.map(|old| to_raw_value(old).unwrap()));
    let Review { stamp, change, .. } =
        review(kind, &object, old.as_deref(), WriterTrust::default(), at(NOW)).unwrap().start;
    (stamp, change)
}

#[test]
fn the_status_of_every_kind_counts() {
    let since = |type_: &str| json!({"phase": "Running", "conditions": [{"type": type_, "status": "True", "lastTransitionTime": PAST}]});
    for (kind, status, expected) in [
        (PodGroupKind::Runai, json!({"resourcesStatus": {"allocated": {"cpu": "1"}}}), Some(STAMPED)),
        (PodGroupKind::Tensorstack, since("GroupScheduled"), Some(PAST)),
        (PodGroupKind::Coscheduling, json!({"phase": "Running"}), Some(STAMPED)),
        (PodGroupKind::Volcano, since("Scheduled"), Some(PAST)),
        (PodGroupKind::Native, since("PodGroupInitiallyScheduled"), None),
        (PodGroupKind::Runai, json!(null), None),
        (PodGroupKind::Runai, json!([1]), None),
    ] {
        let object = json!({"metadata": {"annotations": null}, "status": status});
        let (stamp, _) = stamp_of(kind, &object, Some(&object));
        assert_eq!(stamp.as_deref(), expected, "{kind:?}");
    }
}

#[test]
fn of_an_update_the_status_counts_that_is_stored() {
    let kind = PodGroupKind::Coscheduling;
    let object = |phase: &str| json!({"metadata": {}, "status": {"phase": phase}});
    let (running, pending) = (&object("Running"), &object("Pending"));
    assert_eq!(stamp_of(kind, running, Some(pending)), (None, Admitted));
    assert_eq!(stamp_of(kind, pending, Some(running)), (Some(STAMPED.to_owned()), Stamped));
}

#[test]
fn the_status_of_a_creation_shows_nothing() {
    let since = |type_: &str| json!({"phase": "Running", "conditions": [{"type": type_, "status": "True", "lastTransitionTime": PAST}]});
    for (kind, status) in [
        (PodGroupKind::Runai, json!({"phase": "Running", "resourcesStatus": {"allocated": {"cpu": "1"}}})),
        (PodGroupKind::Tensorstack, since("GroupScheduled")),
        (PodGroupKind::Coscheduling, json!({"phase": "Running"})),
        (PodGroupKind::Volcano, since("Scheduled")),
        (PodGroupKind::Native, since("PodGroupInitiallyScheduled")),
    ] {
        let object = |annotations: Value| json!({"metadata": {"annotations": annotations}, "status": status});
        assert_eq!(stamp_of(kind, &object(json!({})), None), (None, Admitted), "{kind:?}");
        for forged in [FUTURE, PAST, STAMPED, GARBAGE] {
            let claims = object(json!({STAMP: forged}));
            assert_eq!(stamp_of(kind, &claims, None), (None, Reverted), "{kind:?} {forged}");
        }
    }
}

/// The queue that an object keeps.
fn queue_kept(
    kind: PodGroupKind,
    object: &Value,
    old: Option<&Value>,
    trust: WriterTrust,
) -> Option<KeptQueue> {
    let (object, old) = (to_raw_value(object).unwrap(), old.map(|old| to_raw_value(old).unwrap()));
    review(kind, &object, old.as_deref(), trust, at(NOW)).unwrap().queue
}

fn with_spec(spec: &Value) -> Value {
    json!({"metadata": {}, "spec": spec})
}

#[test]
fn the_queue_of_a_group_is_fixed_when_it_is_created() {
    let tenant = WriterTrust { start: true, queue: false };
    let (short, long) = (json!({"minMember": 1, "queue": "short"}), json!({"minMember": 2, "queue": "long"}));
    let none = json!({"minMember": 1});
    for kind in [PodGroupKind::Runai, PodGroupKind::Tensorstack] {
        for (spec, old, queue, has_spec, words) in [
            (&long, &short, Some("short"), true, "\"long\" was set back to \"short\""),
            (&none, &short, Some("short"), true, "was set back to \"short\""),
            (&json!({"queue": null}), &short, Some("short"), true, "was set back to \"short\""),
            (&json!({"queue": ""}), &short, Some("short"), true, "\"\" was set back to \"short\""),
            (&json!({"queue": 7}), &short, Some("short"), true, "\"7\" was set back to \"short\""),
            (&json!(null), &short, Some("short"), false, "was set back to \"short\""),
            (&short, &none, None, true, "\"short\" was dropped"),
            (&short, &json!(null), None, true, "\"short\" was dropped"),
            (&short, &json!({"queue": ""}), Some(""), true, "\"short\" was set back to \"\""),
        ] {
            let kept = queue_kept(kind, &with_spec(spec), Some(&with_spec(old)), tenant).unwrap();
            assert_eq!((kept.queue, kept.has_spec), (queue.map(Value::from), has_spec), "{spec} {old}");
            let warning = format!(
                "tenure: spec.queue: {words}: only trusted writers may change it (see tenancy.trustedWriters in Tenure's configuration)"
            );
            assert_eq!(kept.warning, warning);
        }
    }
}

#[test]
fn the_queue_of_a_group_is_left_alone_where_it_stays_or_the_writer_is_trusted() {
    let (short, long) = (with_spec(&json!({"queue": "short"})), with_spec(&json!({"queue": "long"})));
    let none = with_spec(&json!({"queue": null}));
    let tenant = WriterTrust::default();
    for kind in PodGroupKind::ALL {
        let trusted = WriterTrust { start: false, queue: true };
        assert_eq!(queue_kept(kind, &long, Some(&short), trusted), None, "{kind:?}");
        assert_eq!(queue_kept(kind, &long, None, tenant), None, "{kind:?}");
        assert_eq!(queue_kept(kind, &short, Some(&short), tenant), None, "{kind:?}");
        assert_eq!(queue_kept(kind, &none, Some(&with_spec(&json!({}))), tenant), None, "{kind:?}");
        let fixed = queue_kept(kind, &long, Some(&short), tenant).is_some();
        assert_eq!(fixed, kind.names_queue(), "{kind:?}: the queues of others are not Tenure's");
    }
}

#[test]
fn no_warning_of_a_queue_is_so_long_that_it_is_cut() {
    let (object, old) = ("a".repeat(10_000), "b".repeat(253));
    let (object, old) = (with_spec(&json!({"queue": object})), with_spec(&json!({"queue": old})));
    let kept = queue_kept(PodGroupKind::Runai, &object, Some(&old), WriterTrust::default()).unwrap();
    assert!(kept.warning.chars().count() <= 256, "{}", kept.warning);
}

#[test]
fn the_stamp_of_what_is_held_by_finalizers_is_as_safe_as_any() {
    let kind = PodGroupKind::Coscheduling;
    let object = |stamp: Option<&str>, going: bool| {
        let annotations: Value = stamp.map(|stamp| (STAMP, stamp)).into_iter().collect();
        let deleted = if going { json!(PAST) } else { json!(null) };
        let metadata = json!({"annotations": annotations, "deletionTimestamp": deleted});
        json!({"metadata": metadata, "status": {"phase": "Running"}})
    };
    let going = |stamp| object(stamp, true);
    for stamp in [Some(FUTURE), Some(OTHER), Some(STAMPED), Some(GARBAGE), None] {
        let expected = (Some(PAST.to_owned()), Reverted);
        assert_eq!(stamp_of(kind, &going(stamp), Some(&going(Some(PAST)))), expected, "{stamp:?}");
    }
    assert_eq!(stamp_of(kind, &going(Some(STAMPED)), Some(&going(None))), (None, Reverted));
    assert_eq!(stamp_of(kind, &going(None), Some(&going(None))), (None, Admitted), "it needs none any more");
    // deletion is by request, and an update can't claim it
    let stamped = (Some(STAMPED.to_owned()), Stamped);
    assert_eq!(stamp_of(kind, &going(None), Some(&object(None, false))), stamped);
    assert_eq!(stamp_of(kind, &going(Some(FUTURE)), None), (None, Reverted));
}

#[test]
fn a_status_too_large_to_read_shows_nothing() {
    let status = json!({"phase": "Running", "padding": "x".repeat(300_000)});
    let object = json!({"metadata": {}, "status": status});
    assert_eq!(stamp_of(PodGroupKind::Coscheduling, &object, Some(&object)), (None, Admitted));
}

#[test]
fn what_is_no_object_can_not_be_reviewed() {
    for object in [
        "null",
        "1",
        "[]",
        r#"[{"annotations": {}}]"#,
        "{}",
        r#"{"metadata": null}"#,
        r#"{"metadata": {"annotations": "a"}}"#,
        r#"{"metadata": {"annotations": ["kai.scheduler/last-start-timestamp"]}}"#,
        r#"{"metadata": {"annotations": {"kai.scheduler/last-start-timestamp": 1}}}"#,
    ] {
        let object: Box<RawValue> = serde_json::from_str(object).unwrap();
        let good = to_raw_value(&json!({"metadata": {}})).unwrap();
        let review = |object, old| review(PodGroupKind::Runai, object, old, WriterTrust::default(), at(NOW));
        assert!(review(&object, None).is_err(), "{object}");
        assert!(review(&good, Some(&object)).is_err(), "{object}");
    }
}

#[test]
fn keys_are_read_however_they_are_escaped() {
    let object = r#"{"metadata": {"annotations": {"a\"": "\n", "kai.scheduler\u002flast-start-timestamp": "20\u0032"}}}"#;
    let object: Box<RawValue> = serde_json::from_str(object).unwrap();
    let review = review(PodGroupKind::Runai, &object, None, WriterTrust::default(), at(NOW)).unwrap();
    assert!(review.start.warning.unwrap().contains("\"202\" was dropped"));
}

/// Seconds before or after `NOW`; near it much happens.
fn instant() -> impl Strategy<Value = Timestamp> {
    let offset = prop_oneof![-40_000..40_000_i64, -200_000_000..200_000_000_i64];
    offset.prop_map(|milliseconds| at(NOW) + SignedDuration::from_millis(milliseconds))
}

fn stamps() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        2 => Just(None),
        4 => instant().prop_map(|at| Some(start::write(at))),
        1 => instant().prop_map(|at| Some(at.to_string())),
        1 => ".{0,6}".prop_map(Some),
    ]
}

fn shown() -> impl Strategy<Value = ReportedStart> {
    prop_oneof![
        Just(ReportedStart::Nothing),
        Just(ReportedStart::Running),
        instant().prop_map(ReportedStart::Since)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_review_wrote_is_admitted_by_the_next(
        trusted: bool, stamp in stamps(), old in stamps(), shown in shown(), later in 0..=30_000_i64,
    ) {
        let write = StampWrite { trusted, stamp: stamp.as_deref(), old: old.as_deref() };
        let first = write.review(|| shown, at(NOW));
        // what was taken for an answer has already been on the way for a while
        let is_taken = first.change == Admitted && !trusted && stamp != old;
        let later = if is_taken { 0 } else { later };
        let again = StampWrite { stamp: first.stamp.as_deref(), ..write };
        let second = again.review(|| shown, at(NOW) + SignedDuration::from_millis(later));
        prop_assert_eq!((&second.stamp, second.change, &second.warning), (&first.stamp, Admitted, &None));
    }

    #[test]
    fn no_stamp_from_further_ahead_than_clocks_differ_and_none_that_can_not_be_read_passes(
        trusted: bool, stamp in stamps(), old in stamps(), shown in shown(),
    ) {
        let write = StampWrite { trusted, stamp: stamp.as_deref(), old: old.as_deref() };
        if let Some(stamp) = write.review(|| shown, at(NOW)).stamp {
            prop_assert!(start::read(&stamp).unwrap() <= at(NOW) + SignedDuration::from_mins(1));
        }
    }

    #[test]
    fn only_a_trusted_writer_moves_a_good_stamp(stamp in stamps(), old in instant(), shown in shown()) {
        let old = start::write(old.min(at(NOW) - COMES_BACK_WITHIN));
        let write = StampWrite { trusted: false, stamp: stamp.as_deref(), old: Some(&old) };
        prop_assert_eq!(write.review(|| shown, at(NOW)).stamp, Some(old));
    }
}
