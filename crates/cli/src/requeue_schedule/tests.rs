use serde_json::{Value, json};

use super::*;

fn answer(flags: &[&str], queue: Option<&str>) -> RequeueSchedule {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: RequeueScheduleArgs,
    }
    let line: Line = clap::Parser::parse_from(["test"].iter().chain(flags));
    line.args.answer(Backoff::default(), queue)
}

fn table(flags: &[&str]) -> String {
    answer(flags, None).table()
}

#[test]
fn a_limit_says_how_many_rows_there_are_and_when_it_ends() {
    let expected = "\
Timeout 5m, base 1s, factor 1.41284738, maximum none, limit 2 (from flags and defaults)
RETRY   WAIT   CUMULATIVE
1       1s     10m1s
2       1.4s   15m2s
Deactivated after 15m2s, at the timeout that follows retry 2.
";
    assert_eq!(table(&["--backoff-limit-count", "2"]), expected);
    let thirty = table(&["--backoff-limit-count", "30"]);
    assert!(thirty.ends_with("Deactivated after 1d, at the timeout that follows retry 30.\n"), "{thirty}");
}

#[test]
fn without_a_row_there_is_no_table() {
    let expected = "\
Timeout 1m, base 1s, factor 1.41284738, maximum none, limit 0 (from flags and defaults)
Deactivated after 1m, at the first timeout.
";
    assert_eq!(table(&["--backoff-limit-count", "0", "--timeout", "1m"]), expected);
}

#[test]
fn fewer_rows_than_there_are_retries_say_so() {
    assert!(table(&["--retries", "1"]).ends_with("\nAnd so on: there is no limit.\n"));
    let limited = table(&["--retries", "1", "--backoff-limit-count", "3"]);
    assert!(limited.ends_with("\nAnd so on until it is deactivated after retry 3.\n"), "{limited}");
    assert_eq!(table(&[]).lines().count(), 30 + 3);
    assert_eq!(table(&["--retries", "9", "--backoff-limit-count", "3"]).lines().count(), 3 + 3);
}

#[test]
fn programs_get_exact_numbers() {
    let flags = ["--retries", "2", "--backoff-max-seconds", "1", "--timeout", "5m"];
    let answer = answer(&flags, Some("team"));
    let expected: Value = json!({
        "timeout": "5m", "backoffBaseSeconds": 1, "backoffFactor": "1.41284738", "backoffMaxSeconds": 1,
        "backoffLimitCount": null, "from": "flags and queue \"team\"",
        "schedule": [
            {"retry": 1, "waitSeconds": 1.0, "cumulativeSeconds": 601, "wait": "1s", "cumulative": "10m1s"},
            {"retry": 2, "waitSeconds": 1.0, "cumulativeSeconds": 902, "wait": "1s", "cumulative": "15m2s"},
        ],
    });
    assert_eq!(serde_json::to_value(answer).unwrap(), expected);
}

#[test]
fn bad_values_are_refused_with_what_would_be_right() {
    for (read, bad, right) in [
        (timeout("0s").err(), "0s", "must be greater than zero, such as 5m"),
        (factor("0.5").err(), "0.5", "must be a decimal number of at least 1, such as 1.5"),
        (whole("0", 1, i32::MAX).err(), "0", "must be a whole number from 1 to 2147483647"),
        (whole("-1", 0, i32::MAX).err(), "-1", "must be a whole number from 0 to 2147483647"),
        (whole("1000000", 1, MOST_ROWS).err(), "1000000", "must be a whole number from 1 to 100000"),
    ] {
        assert_eq!(read.as_deref(), Some(right), "{bad}");
    }
    assert!(timeout("-5m").unwrap_err().starts_with("must be a duration such as"));
}

#[test]
fn the_table_of_the_documentation_is_what_the_formula_gives() {
    let page = include_str!("../../../../docs/requeue.md");
    let kueues = Backoff { base_seconds: 60, factor: 2.0, max_seconds: Some(3600), ..Backoff::default() };
    let columns = |backoff: Backoff, retry: i32| {
        let at = backoff.schedule().find(|at| at.retry == retry).unwrap();
        let wait = format!("{:.1}", at.wait.as_secs_f64());
        [wait.trim_end_matches(".0").to_owned(), format!("{:.0}", at.cumulative.as_secs_f64())]
    };
    let mut rows = 0;
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Ok(retry) = cells[0].parse() else { continue };
        assert_eq!(cells[1..], [columns(Backoff::default(), retry), columns(kueues, retry)].concat());
        rows += 1;
    }
    assert_eq!(rows, 12);
}

#[test]
fn durations_are_short_and_say_enough() {
    for (millis, expected) in [
        (0, "0s"),
        (1000, "1s"),
        (1413, "1.4s"),
        (1996, "2s"),
        (59_949, "59.9s"),
        (59_960, "1m"),
        (710_904, "11m51s"),
        (86_399_993, "1d"),
        (93_784_000, "1d2h3m4s"),
    ] {
        assert_eq!(short(SignedDuration::from_millis(millis)), expected, "{millis}");
    }
    assert!(short(SignedDuration::MAX).starts_with("106751991167300d"));
}

mod of_queues {
    use serde_json::json;

    use super::*;

    fn queue(name: &str, spec: Value) -> Document {
        let mut value = json!({"metadata": {"name": name}});
        value["spec"] = spec;
        Document {
            source: "q.yaml:1".into(),
            api_version: "scheduling.run.ai/v3alpha1".into(),
            kind: "Queue".into(),
            value,
        }
    }

    fn limit(count: i32) -> Value {
        json!({"requeuingStrategy": {"backoffLimitCount": count}})
    }

    #[test]
    fn the_nearest_block_counts_as_a_whole() {
        let queues = [
            queue(
                "root",
                json!({"waitForPodsReady": {"timeout": "9m", "requeuingStrategy": {"backoffLimitCount": 9}}}),
            ),
            queue("team", json!({"parentQueue": "root", "waitForPodsReady": limit(3)})),
            queue("leaf", json!({"parentQueue": "team", "waitForPodsReady": null})),
            queue("alone", json!({})),
        ];
        let expected = Backoff { limit: Some(3), ..Backoff::default() };
        assert_eq!(find(&queues, "leaf").unwrap(), (expected, Some("team".into())));
        assert_eq!(find(&queues, "alone").unwrap(), (Backoff::default(), None));
        assert_eq!(find(&queues, "root").unwrap().0.limit, Some(9));
    }

    #[test]
    fn the_block_of_a_queue_of_v2_is_an_annotation() {
        let annotated = |text: &str| {
            let mut queue = queue("a", json!({}));
            queue.api_version = "scheduling.run.ai/v2".into();
            queue.value["metadata"]["annotations"] = json!({"tenure.dev/wait-for-pods-ready": text});
            [queue]
        };
        let expected = Backoff { limit: Some(3), ..Backoff::default() };
        let found = find(&annotated(&limit(3).to_string()), "a").unwrap();
        assert_eq!(found, (expected, Some("a".into())));
        let error = find(&annotated("{"), "a").unwrap_err().to_string();
        let expected = "queue \"a\": metadata.annotations[tenure.dev/wait-for-pods-ready] can't be read: must be an object";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_can_not_be_found_or_read_is_reported() {
        let queues = [
            queue("a", json!({"parentQueue": "b"})),
            queue("b", json!({"parentQueue": "a"})),
            queue("c", json!({"waitForPodsReady": []})),
            queue("d", json!({"waitForPodsReady": {"timeout": 5}})),
        ];
        assert_eq!(find(&queues, "a").unwrap(), (Backoff::default(), None), "in a cycle");
        assert!(find(&queues, "c").unwrap_err().to_string().ends_with("must be an object"));
        assert!(find(&queues, "gone").unwrap_err().to_string().contains("no queue \"gone\""));
        assert!(
            find(&queues, "d").unwrap_err().to_string().starts_with("queue \"d\": spec.waitForPodsReady")
        );
    }

    #[test]
    fn values_that_do_not_count_are_warned_of() {
        let wait = json!({"timeout": "0s", "requeuingStrategy": {"backoffFactor": "0"}});
        let documents = [queue("q", json!({"waitForPodsReady": wait}))];
        let snapshot = Snapshot::of_documents(&documents, &Config::default(), None, Timestamp::UNIX_EPOCH);
        let warnings: Vec<String> = snapshot.warnings().collect();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("queue \"q\": spec.waitForPodsReady.timeout: Invalid value: \"0s\""));
        assert!(warnings[0].ends_with(": counts as unset"));
    }
}
