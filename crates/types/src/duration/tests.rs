use proptest::prelude::*;

use jiff::SignedDuration;

use super::{DurationError, ExtendedDuration, GoDuration, PointsGrammar, TensorstackDuration, for_people};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;

/// Written by Go itself, see `golden/main.go`.
const GO: &str = include_str!("../../golden/go.tsv");

fn golden() -> impl Iterator<Item = (String, Option<(i64, &'static str)>)> {
    GO.lines().map(|line| {
        let mut columns = line.split('\t');
        let input = unquote(columns.next().unwrap());
        let nanoseconds = columns.next().unwrap().parse().ok();
        (input, nanoseconds.map(|n| (n, columns.next().unwrap())))
    })
}

/// Unquotes a text of the table, for which Go's quoting is the same as JSON's.
fn unquote(quoted: &str) -> String {
    serde_json::from_str(quoted).unwrap()
}

#[test]
fn go_durations_are_what_go_says() {
    for (input, expected) in golden() {
        let parsed = input.parse::<GoDuration>();
        assert_eq!(
            parsed.clone().ok().map(GoDuration::as_nanos),
            expected.map(|e| e.0),
            "{input:?}: {parsed:?}"
        );
        if let Some((_, text)) = expected {
            assert_eq!(parsed.unwrap().to_string(), text, "{input:?}");
        }
    }
}

#[test]
fn extended_durations_are_gos_without_a_sign() {
    for (input, expected) in golden().filter(|(input, _)| !input.contains(['d', 'w'])) {
        let parsed = input.parse::<ExtendedDuration>().map(ExtendedDuration::as_nanos);
        if input.starts_with(['-', '+']) {
            assert_eq!(parsed, Err(DurationError::Signed), "{input:?}");
        } else {
            assert_eq!(parsed.ok(), expected.map(|e| e.0), "{input:?}");
        }
    }
}

#[test]
fn extended_durations_have_days_and_weeks() {
    for (input, hours) in [("1d", 24), ("1w", 168), ("1w2d3h", 219), ("1.5d", 36), ("3h1d", 27), ("0d", 0)] {
        assert_eq!(input.parse::<ExtendedDuration>().unwrap().as_nanos(), hours * HOUR, "{input}");
    }
}

#[test]
fn extended_durations_say_what_is_wrong() {
    let error = |text: &str| text.parse::<ExtendedDuration>().unwrap_err();
    assert_eq!(error(""), DurationError::Empty);
    assert_eq!(error("-5s"), DurationError::Signed);
    assert_eq!(error("h"), DurationError::MissingNumber("h".into()));
    assert_eq!(error("90"), DurationError::MissingUnit("90".into()));
    assert_eq!(error("1h30"), DurationError::MissingUnit("30".into()));
    assert_eq!(error("10 s"), DurationError::UnknownUnit(" s".into()));
    assert_eq!(error("1y"), DurationError::UnknownUnit("y".into()));
    assert_eq!(error("16000w"), DurationError::OutOfRange);
}

#[test]
fn a_duration_is_printed_as_it_was_written_and_is_equal_to_the_same_in_another_spelling() {
    for text in ["90s", "90m", "48h", "1.5h", "3h1d", "2w", "0", "0s", "1000ms", "1h0m0s", "106751d23h47m16s"]
    {
        let duration: ExtendedDuration = text.parse().unwrap();
        let computed = ExtendedDuration::of(duration.to_signed());
        assert_eq!(duration.to_string(), text);
        assert_eq!(duration, computed);
        assert_eq!(computed.to_string().parse(), Ok(duration), "{text}");
    }
    for text in ["1y2w3d4h5m6s7ms", "14d", "90m"] {
        let duration: TensorstackDuration = text.parse().unwrap();
        assert_eq!((duration.to_string(), duration.extended().to_string()), (text.into(), text.into()));
    }
    let long: TensorstackDuration = "0001h00000000000005s7ms".parse().unwrap();
    assert_eq!(long.to_string(), "1h5s7ms");
    let long: ExtendedDuration = "0001h00000000000000m".parse().unwrap();
    assert_eq!(long.to_string(), "1h", "a text that is too long to be remembered");
}

#[test]
fn a_duration_that_was_computed_is_printed_in_one_form() {
    let second = SignedDuration::from_secs(1);
    for (duration, printed) in [
        (SignedDuration::ZERO, "0s"),
        (second * 90, "1m30s"),
        (second * 3600, "1h"),
        (second * 172_800, "2d"),
        (second * 129_605, "1d12h5s"),
        (second * 8_640_000, "100d"),
        (SignedDuration::from_millis(1_500), "1.5s"),
        (SignedDuration::from_millis(500), "500ms"),
        (-second * 90, "1m30s"),
    ] {
        assert_eq!(for_people(duration), printed);
    }
}

#[test]
fn a_duration_in_json_is_read_as_it_is_printed() {
    let read = |text: &str| serde_json::from_str::<ExtendedDuration>(text).map(|of| of.to_string()).ok();
    assert_eq!(read("\"90m\"").as_deref(), Some("90m"));
    assert_eq!((read("\"PT5M\""), read("\"soon\"")), (None, None));
    assert_eq!(serde_json::to_string(&"90m".parse::<ExtendedDuration>().unwrap()).unwrap(), "\"90m\"");
}

#[test]
fn tensorstack_durations_follow_the_t9k_grammar() {
    let day = 24 * HOUR;
    for (input, expected) in [
        ("0", 0),
        ("0s", 0),
        ("10s", 10 * SECOND),
        ("2h", 2 * HOUR),
        ("3w", 21 * day),
        ("2h45m", 2 * HOUR + 2700 * SECOND),
        ("1h20m15s", HOUR + 1215 * SECOND),
        ("15d", 15 * day),
        ("1y", 365 * day),
        ("500ms", SECOND / 2),
        ("1y2w3d4h5m6s7ms", 382 * day + 4 * HOUR + 306 * SECOND + 7_000_000),
    ] {
        assert_eq!(input.parse::<TensorstackDuration>().unwrap().extended().as_nanos(), expected, "{input}");
    }
}

#[test]
fn tensorstack_durations_say_what_is_wrong() {
    let error = |text: &str| text.parse::<TensorstackDuration>().unwrap_err();
    assert_eq!(error(""), DurationError::Empty);
    assert_eq!(error("45m2h"), DurationError::OutOfOrder("h".into()));
    assert_eq!(error("1h1h"), DurationError::OutOfOrder("h".into()));
    assert_eq!(error("1.5h"), DurationError::UnknownUnit(".".into()));
    assert_eq!(error("10 s"), DurationError::UnknownUnit(" s".into()));
    assert_eq!(error("10"), DurationError::MissingUnit("10".into()));
    assert_eq!(error("-1h"), DurationError::MissingNumber("-1h".into()));
    assert_eq!(error(" 1h"), DurationError::MissingNumber(" 1h".into()));
    assert_eq!(error("1M"), DurationError::UnknownUnit("M".into()));
    assert_eq!(error("5min"), DurationError::UnknownUnit("min".into()));
    assert_eq!(error("1us"), DurationError::UnknownUnit("us".into()));
    assert_eq!(error("300y"), DurationError::OutOfRange);
    assert_eq!(error("99999999999999999999y"), DurationError::OutOfRange);
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in ".*") {
        let _ = text.parse::<GoDuration>();
        let _ = text.parse::<ExtendedDuration>();
        let _ = text.parse::<TensorstackDuration>();
    }

    #[test]
    fn nothing_like_a_duration_makes_a_parser_panic(text in "[-+]{0,2}([0-9.]{0,40}(ns|us|µs|ms|s|m|h|d|w|y| ){0,2}){0,6}") {
        let _ = text.parse::<GoDuration>();
        let _ = text.parse::<ExtendedDuration>();
        let _ = text.parse::<TensorstackDuration>();
    }

    #[test]
    fn what_go_prints_reads_back(nanoseconds: i64) {
        let duration = GoDuration::from_nanos(nanoseconds);
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
    }

    #[test]
    fn what_was_computed_is_printed_as_a_queue_takes_it(nanoseconds in 0..=i64::MAX) {
        let duration = ExtendedDuration::from_go(GoDuration::from_nanos(nanoseconds));
        prop_assert_eq!(duration.to_string().parse(), Ok(duration));
    }
}
