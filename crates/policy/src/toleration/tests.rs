use proptest::prelude::*;

use super::*;

const MIN: &str = MINIMUM_PREEMPTABLE_PRIORITY_ANNOTATION;
const SEC: &str = TOLERATION_SECONDS_ANNOTATION;
const LOWER: PreemptorClaim = PreemptorClaim { priority: 0, never_preempts: false };

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn read(value: i32, pairs: &[(&str, &str)]) -> Result<(i64, i64), Vec<String>> {
    Toleration::read(value, Some(&annotations(pairs)))
        .map(|toleration| (toleration.minimum_preemptable_priority, toleration.seconds))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn class(value: i32, pairs: &[(&str, &str)]) -> ClassState {
    ClassState::of(value, Some(&annotations(pairs)))
}

fn preemptor(priority: i32) -> PreemptorClaim {
    PreemptorClaim { priority, never_preempts: false }
}

fn never(priority: i32) -> PreemptorClaim {
    PreemptorClaim { priority, never_preempts: true }
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn known(minimum_preemptable_priority: i64, seconds: i64) -> ClassState {
    ClassState::Known(Toleration { minimum_preemptable_priority, seconds })
}

#[test]
fn the_annotations_are_read_as_the_plugins_tests_read_them() {
    let bad_priority = format!("metadata.annotations[{MIN}]: Invalid value: \"a\": {PRIORITY}");
    let bad_seconds = format!("metadata.annotations[{SEC}]: Invalid value: \"a\": {SECONDS}");
    for (number, pairs, expected) in [
        ("P1", &[][..], Ok((2, 0))),
        ("P2", &[(MIN, "100"), (SEC, "10")], Ok((100, 10))),
        ("P3", &[(MIN, "a")], Err(vec![bad_priority.clone()])),
        ("P4", &[(SEC, "a")], Err(vec![bad_seconds.clone()])),
        ("P5", &[(MIN, "100"), (SEC, "-1")], Ok((100, -1))),
        ("all that is wrong is told", &[(MIN, "a"), (SEC, "a")], Err(vec![bad_priority, bad_seconds])),
    ] {
        assert_eq!(read(1, pairs), expected, "{number}");
    }
}

#[test]
fn a_class_without_annotations_has_the_defaults() {
    let defaults = Toleration { minimum_preemptable_priority: 2, seconds: 0 };
    assert_eq!(Toleration::read(1, None), Ok(defaults));
    assert_eq!(read(i32::MAX, &[]), Ok((1 << 31, 0)));
    assert_eq!(read(1, &[("example.com/toleration-seconds", "a")]), Ok((2, 0)));
}

#[test]
fn a_number_is_what_go_takes_for_one() {
    for (text, value) in [("+10", 10), ("-5", -5), ("007", 7), ("-0", 0), ("2147483647", i32::MAX)] {
        assert_eq!(read(1, &[(MIN, text), (SEC, text)]), Ok((value.into(), value.into())), "{text}");
    }
    let bad =
        ["", " ", "+", "-", " 10", "10 ", "10s", "1e3", "1_000", "1.0", "0x10", "١", "9223372036854775808"];
    for text in bad {
        assert_eq!(read(1, &[(MIN, text), (SEC, text)]).map_err(|errors| errors.len()), Err(2), "{text:?}");
    }
    for (text, good) in [("3000000000", true), ("-9223372036854775808", true), ("2147483648", true)] {
        assert_eq!(read(1, &[(SEC, text)]).is_ok(), good, "{text}");
        assert_eq!(read(1, &[(MIN, text)]).is_ok(), !good, "{text}");
    }
}

/// The plugin's own unit tests.
#[test]
fn a_victim_is_judged_as_the_plugins_tests_judge_it() {
    let min_200 = |seconds| class(100, &[(MIN, "200"), (SEC, seconds)]);
    let beginning_of_time = Timestamp::MIN;
    for (number, class, scheduled_at, preemptor, exempt) in [
        // there, an error that rules out the node: here, the pod is exempt, which comes to the same
        ("E1", ClassState::Missing, None, preemptor(2), true),
        ("E2", class(1, &[(MIN, "a")]), None, preemptor(2), false),
        ("E3", class(1, &[(MIN, "10"), (SEC, "a")]), None, preemptor(2), false),
        ("E4", class(1, &[]), None, never(2), true),
        ("E5", class(1, &[]), None, preemptor(2), false),
        ("E6", class(3, &[]), None, preemptor(2), true),
        ("E7", class(100, &[(MIN, "200")]), Some(now()), preemptor(201), false),
        ("E8", class(100, &[(MIN, "200")]), Some(now()), preemptor(200), false),
        ("E9", min_200("0"), Some(now()), preemptor(199), false),
        ("E10", min_200("-1"), Some(beginning_of_time), preemptor(199), true),
        ("E11", min_200("100"), Some(ago(101)), preemptor(199), false),
        ("E12", min_200("100"), Some(ago(10)), preemptor(199), true),
    ] {
        let judgement = judge(class, scheduled_at, &preemptor, now());
        assert_eq!(judgement.is_exempt(), exempt, "{number}: {judgement}");
    }
}

/// The plugin's integration tests, less the cluster: a victim of priority 1000.
#[test]
fn a_victim_is_judged_as_the_plugins_integration_tests_judge_it() {
    let beginning_of_time = Timestamp::MIN;
    for (number, annotations, preemptor, scheduled_at, exempt) in [
        ("I1", &[(MIN, "1010")][..], preemptor(1010), now(), false),
        ("I2", &[(MIN, "1010"), (SEC, "30")], preemptor(1010), now(), false),
        ("I3", &[(MIN, "1010")], preemptor(1009), now(), false),
        ("I4", &[(MIN, "1010"), (SEC, "-1")], preemptor(1009), beginning_of_time, true),
        ("I5", &[(MIN, "1010"), (SEC, "30")], preemptor(1005), now(), true),
        ("I6", &[(MIN, "1010"), (SEC, "5")], preemptor(1005), ago(10), false),
        ("I7", &[(MIN, "a")], preemptor(1001), now(), false),
        ("I8", &[(MIN, "a")], never(1001), beginning_of_time, true),
    ] {
        let judgement = judge(class(1000, annotations), Some(scheduled_at), &preemptor, now());
        assert_eq!(judgement.is_exempt(), exempt, "{number}: {judgement}");
    }
}

const SYSTEM: i32 = 10_000;
const HIGH: i32 = 9_000;
const LOW: i32 = 8_000;

/// The first use case of the text: `low-non-preempted`, beside `low`.
#[test]
fn what_can_not_be_resumed_gives_way_to_what_is_critical_alone() {
    let low_non_preempted = class(LOW, &[(MIN, "10000"), (SEC, "-1")]);
    let low = ClassState::of(LOW, None);
    let long_ago = ago(365 * 24 * 60 * 60);
    for (priority, spared, low_spared) in
        [(SYSTEM, false, false), (SYSTEM - 1, true, false), (HIGH, true, false), (LOW + 1, true, false)]
    {
        for scheduled_at in [now(), long_ago] {
            let exempt = |class| judge(class, Some(scheduled_at), &preemptor(priority), now()).is_exempt();
            assert_eq!((exempt(low_non_preempted), exempt(low)), (spared, low_spared), "{priority}");
        }
    }
}

/// The second use case of the text: `low-non-preempted-10min` and `-30min`, beside `low`.
#[test]
fn a_running_time_is_guaranteed_against_all_below_the_minimum() {
    let guaranteed = |seconds| class(LOW, &[(MIN, "10000"), (SEC, seconds)]);
    let classes = [guaranteed("600"), guaranteed("1800"), ClassState::of(LOW, None)];
    for (priority, ran, expected) in [
        (SYSTEM, 0, [false, false, false]),
        (HIGH, 0, [true, true, false]),
        (HIGH, 599, [true, true, false]),
        (HIGH, 600, [false, true, false]),
        (HIGH, 1799, [false, true, false]),
        (HIGH, 1800, [false, false, false]),
        (LOW + 1, 599, [true, true, false]),
        (SYSTEM - 1, 599, [true, true, false]),
    ] {
        let exempt =
            classes.map(|class| judge(class, Some(ago(ran)), &preemptor(priority), now()).is_exempt());
        assert_eq!(exempt, expected, "{priority} after {ran}s");
    }
}

#[test]
fn what_the_plugins_tests_leave_open_is_settled() {
    let min_200 = |seconds| known(200, seconds);
    let end_of_time = Timestamp::MAX;
    for (rule, class, scheduled_at, preemptor, exempt) in [
        (
            "seconds alone tolerate no preemptor",
            class(100, &[(SEC, "600")]),
            Some(now()),
            preemptor(101),
            false,
        ),
        (
            "a minimum alone tolerates until scheduled",
            class(100, &[(MIN, "200")]),
            None,
            preemptor(199),
            true,
        ),
        ("and not afterwards", class(100, &[(MIN, "200")]), Some(now()), preemptor(199), false),
        ("0 seconds end at once", min_200(0), Some(now()), preemptor(199), false),
        ("a class of the highest value has a minimum", class(i32::MAX, &[]), None, preemptor(199), true),
        ("a second before the deadline", min_200(100), Some(ago(99)), preemptor(199), true),
        ("at the deadline", min_200(100), Some(ago(100)), preemptor(199), false),
        ("no limit is no limit", min_200(i64::MIN), Some(Timestamp::MIN), preemptor(199), true),
        ("no limit has a minimum too", min_200(-1), Some(now()), preemptor(200), false),
        ("not scheduled within some time", min_200(10), None, preemptor(199), true),
        ("a minimum below zero", known(-5, -1), Some(now()), preemptor(-6), true),
        ("is reached by zero", known(-5, -1), Some(now()), LOWER, false),
        ("no class, no exemption", ClassState::None, None, preemptor(1), false),
        ("no class, for any preemptor", ClassState::None, None, never(1), false),
        ("a missing class comes before Never", ClassState::Missing, None, never(1), true),
        // there, the seconds overflow and protect no pod
        ("seconds saturate", min_200(i64::MAX), Some(now()), preemptor(199), true),
        ("from the plugin's overflow on", min_200(9_223_372_037), Some(ago(1)), preemptor(199), true),
        // there, exempt until the future has come
        ("the future counts as now", min_200(0), Some(ago(-60)), preemptor(199), false),
        ("however far it is", min_200(10), Some(end_of_time), preemptor(199), true),
        // there, nothing is above a minimum of 2147483647
        ("almost system-critical", known(i64::MAX, -1), Some(now()), preemptor(1_999_999_999), true),
        ("system-critical", known(i64::MAX, -1), Some(now()), preemptor(2_000_000_000), false),
        ("system-node-critical", ClassState::Missing, None, preemptor(2_000_001_000), false),
        ("system-critical comes before Never", known(i64::MAX, -1), None, never(2_000_000_000), false),
    ] {
        let judgement = judge(class, scheduled_at, &preemptor, now());
        assert_eq!(judgement.is_exempt(), exempt, "{rule}: {judgement}");
    }
}

#[test]
fn an_exemption_says_when_it_ends_by_itself() {
    let until = |class, scheduled_at| judge(class, scheduled_at, &preemptor(199), now()).until();
    assert_eq!(until(known(200, 100), Some(ago(40))), Some(ago(-60)));
    assert_eq!(until(known(200, 100), Some(ago(-1000))), Some(ago(-100)), "the future counts as now");
    for (class, scheduled_at) in [
        (known(200, 100), None),
        (known(200, 100), Some(ago(100))),
        (known(200, -1), Some(now())),
        (known(200, i64::MAX), Some(now())),
        (known(199, 100), Some(now())),
        (ClassState::Missing, Some(now())),
        (ClassState::None, Some(now())),
    ] {
        assert_eq!(until(class, scheduled_at), None, "{class:?}");
    }
}

#[test]
fn a_judgement_is_described_in_english() {
    let tolerates = "its PriorityClass tolerates preemption by priorities below 10000";
    let unreadable =
        "its PriorityClass has an annotation preemption-toleration.scheduling.x-k8s.io/… that can't be read";
    let over = format!("{tolerates} for 600s after it was scheduled, until 2026-01-01T11:58:20Z");
    for (class, scheduled_at, preemptor, expected) in [
        (
            ClassState::None,
            None,
            preemptor(2_000_001_000),
            "the preemptor is system-critical: priority 2000001000 may always preempt".to_owned(),
        ),
        (ClassState::None, None, LOWER, "it has no PriorityClass that could tolerate preemption".into()),
        (
            ClassState::Missing,
            None,
            LOWER,
            "its PriorityClass doesn't exist: what it tolerates isn't known".into(),
        ),
        (ClassState::Unreadable, None, never(0), "the preemptor's preemptionPolicy is Never".into()),
        (ClassState::Unreadable, None, LOWER, unreadable.into()),
        (known(10_000, -1), None, preemptor(10_000), format!("{tolerates}, and the preemptor's is 10000")),
        (known(10_000, -1), None, LOWER, format!("{tolerates} without a time limit")),
        (known(10_000, 600), None, LOWER, format!("{tolerates}, and it has not been scheduled yet")),
        (known(10_000, 600), Some(now()), LOWER, format!("{tolerates} for 600s after it was scheduled")),
        (known(10_000, 600), Some(ago(700)), LOWER, over),
        (known(10_000, 0), Some(now()), LOWER, "its PriorityClass gives no protection".into()),
    ] {
        assert_eq!(judge(class, scheduled_at, &preemptor, now()).to_string(), expected);
    }
}

fn timestamps() -> impl Strategy<Value = Timestamp> {
    (Timestamp::MIN.as_second()..=Timestamp::MAX.as_second())
        .prop_map(|second| Timestamp::from_second(second).unwrap())
}

/// Numbers of all sizes, and of both signs.
fn seconds() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), -10..1_000_i64, (0_u32..63).prop_map(|bits| 1 << bits)]
}

/// True if the first toleration ends no later than the second.
fn no_longer(one: i64, other: i64) -> bool {
    other < 0 || (0 <= one && one <= other)
}

proptest! {
    #[test]
    fn a_longer_toleration_never_takes_an_exemption_away(
        one in seconds(),
        other in seconds(),
        minimum in any::<i32>(),
        scheduled_at in proptest::option::of(timestamps()),
        priority in any::<i32>(),
        never_preempts in any::<bool>(),
        now in timestamps(),
    ) {
        let (shorter, longer) = if no_longer(one, other) { (one, other) } else { (other, one) };
        let preemptor = PreemptorClaim { priority, never_preempts };
        let exempt = |seconds| judge(known(minimum.into(), seconds), scheduled_at, &preemptor, now).is_exempt();
        prop_assert!(!exempt(shorter) || exempt(longer));
    }

    #[test]
    fn an_exemption_ends_when_it_says_and_not_before(
        seconds in 0..i64::MAX,
        scheduled_at in timestamps(),
        now in timestamps(),
    ) {
        let at = |now| judge(known(1, seconds), Some(scheduled_at), &LOWER, now);
        if let Some(until) = at(now).until() {
            prop_assert!(now < until);
            prop_assert!(scheduled_at > now || !at(until).is_exempt());
            prop_assert!(at(until - SignedDuration::from_nanos(1)).is_exempt());
        }
    }

    #[test]
    fn nothing_exempts_from_system_critical_preemptors(
        minimum in any::<i64>(),
        seconds in seconds(),
        priority in SYSTEM_CRITICAL_PRIORITY..,
        never_preempts in any::<bool>(),
    ) {
        let preemptor = PreemptorClaim { priority, never_preempts };
        prop_assert!(!judge(known(minimum, seconds), None, &preemptor, now()).is_exempt());
    }

    #[test]
    fn any_text_is_read_or_refused_and_any_class_judged(
        value in any::<i32>(),
        minimum in "[-+ 0-9a]{0,12}",
        seconds in "[-+ 0-9a]{0,21}",
        priority in any::<i32>(),
        scheduled_at in proptest::option::of(timestamps()),
        now in timestamps(),
    ) {
        let class = class(value, &[(MIN, &minimum), (SEC, &seconds)]);
        let judgement = judge(class, scheduled_at, &preemptor(priority), now);
        prop_assert!(!judgement.to_string().is_empty());
    }
}
