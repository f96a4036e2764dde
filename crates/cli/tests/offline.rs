//! The plugin as it is run, where it needs no cluster.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod plugin;

use std::{
    io::{Read, Write},
    process::Stdio,
};

use plugin::{outcome, plugin, run, with};

fn run_with_input(line: &str, input: &str) -> (String, String, i32) {
    let directory = with(&[]);
    let mut command = plugin(directory.path(), line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    outcome(child.wait_with_output().unwrap())
}

const QUEUES: &str = "\
# the tree of research
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata:
  name: research
spec:
  maxDuration: 1d
  preemptMinRuntime: 10m
  waitForPodsReady:
    timeout: 10m
    requeuingStrategy:
      backoffLimitCount: 2
---
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata:
  name: vision
spec:
  parentQueue: research
  preemptMinRunTime: 5m
---
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata:
  name: speech
spec:
  parentQueue: speech
  maxDuration: 10 s
---
apiVersion: v1
kind: Namespace
metadata:
  name: speech
";

#[test]
fn validate_says_what_is_wrong_where() {
    let (out, err, code) = run(&with(&[("q.yaml", QUEUES)]), "validate -f q.yaml");
    let expected = "\
q.yaml:14: error: queue.scheduling.run.ai/vision: spec.preemptMinRunTime: Invalid value: \"5m\": unknown field: did you mean preemptMinRuntime?
q.yaml:22: error: queue.scheduling.run.ai/speech: spec.maxDuration: Invalid value: \"10 s\": must be a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns): unknown unit \" s\"
q.yaml:22: error: queue.scheduling.run.ai/speech: spec.parentQueue: Invalid value: \"speech\": a queue can't be its own parent
3 reviewed: 1 allowed, 2 refused, 0 with warnings; 1 skipped (Namespace)
";
    assert_eq!((out.as_str(), err.as_str(), code), (expected, "", 1));
}

#[test]
fn validate_speaks_json_and_yaml() {
    let queue = "apiVersion: scheduler.tensorstack.dev/v1beta1\nkind: Queue\nmetadata: {name: a, namespace: t9k-system}\nspec: {maxDuration: '0'}\n";
    let directory = with(&[("q.yaml", queue)]);
    let (out, _, code) = run(&directory, "validate -f q.yaml -o json");
    let expected = r#"[
  {
    "source": "q.yaml:1",
    "apiVersion": "scheduler.tensorstack.dev/v1beta1",
    "kind": "Queue",
    "name": "a",
    "namespace": "t9k-system",
    "allowed": false,
    "errors": [
      {
        "field": "spec.maxDuration",
        "message": "Invalid value: \"0\": must be greater than zero; leave it out for no limit"
      }
    ],
    "warnings": []
  }
]
"#;
    assert_eq!((out.as_str(), code), (expected, 1));
    let (out, _, code) = run(&directory, "validate -f q.yaml -o yaml");
    assert!(
        out.starts_with("- source: q.yaml:1\n  apiVersion: scheduler.tensorstack.dev/v1beta1\n"),
        "{out}"
    );
    assert_eq!(code, 1);
}

#[test]
fn validate_is_content_with_what_is_good() {
    let list = "{\"apiVersion\": \"scheduling.run.ai/v3alpha1\", \"kind\": \"QueueList\", \"items\": [{\"metadata\": {\"name\": \"a\"}}]}";
    for input in [list, &list.replace('\n', "\r\n"), &format!("\u{feff}{list}")] {
        let (out, err, code) = run_with_input("validate -f -", input);
        assert_eq!(out, "1 reviewed: 1 allowed, 0 refused, 0 with warnings; 0 skipped\n", "{err}");
        assert_eq!((err.as_str(), code), ("", 0));
    }
}

#[test]
fn queues_of_kai_count_as_ancestors_and_are_reviewed_with_their_annotations() {
    let input = "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: a, annotations: {tenure.dev/max-duration: 0s}}\n---\napiVersion: scheduling.run.ai/v3alpha1\nkind: Queue\nmetadata: {name: b}\nspec: {parentQueue: a}\n";
    let (out, err, code) = run_with_input("validate -f -", input);
    let error = "<stdin>:1: error: queue.scheduling.run.ai/a: metadata.annotations[tenure.dev/max-duration]: Invalid value: \"0s\": must be greater than zero; leave it out for no limit of its own\n";
    assert_eq!(out, format!("{error}2 reviewed: 1 allowed, 1 refused, 0 with warnings; 0 skipped\n"));
    assert_eq!((err.as_str(), code), ("", 1));
}

#[test]
fn what_can_not_be_read_is_one_line_with_its_place() {
    let queue = "apiVersion: v1\nkind: Queue\n";
    let files = [
        ("none.yaml", "# nothing\n"),
        ("bad.yaml", &*format!("{queue}---\n{queue}spec:\n  a: 1\n  a: 2\n")),
        ("list.json", "[]"),
    ];
    let directory = with(&files);
    for (path, expected) in [
        ("gone.yaml", "error: the path \"gone.yaml\" does not exist\n"),
        ("none.yaml", "error: no objects in none.yaml\n"),
        ("bad.yaml", "error: bad.yaml:8: key \"a\" appears twice\n"),
        ("list.json", "error: list.json:1: an object was expected, with apiVersion, kind and metadata\n"),
        (".", "error: ./bad.yaml:8: key \"a\" appears twice\n"),
        ("- -f -", "error: -f -: standard input can be read only once\n"),
    ] {
        let (out, err, code) = run(&directory, &format!("validate -f {path}"));
        assert_eq!((out.as_str(), err.as_str(), code), ("", expected, 1), "{path}");
    }
}

#[test]
fn a_few_lines_that_stand_for_too_much_are_refused_at_once() {
    use std::fmt::Write;

    let mut bomb = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..40 {
        let aliases = format!("*a{},", level - 1).repeat(9);
        writeln!(bomb, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let (_, err, code) = run_with_input("validate -f -", &bomb);
    assert!(err.contains("its aliases stand for too many values"), "{err}");
    assert_eq!(code, 1);
}

#[test]
fn requeue_schedule_prints_the_table_of_its_queue() {
    let directory = with(&[("q.yaml", QUEUES)]);
    let (out, err, code) = run(&directory, "requeue-schedule -f q.yaml --queue vision");
    let expected = "\
Timeout 10m, base 1s, factor 1.41284738, maximum none, limit 2 (from queue \"research\")
RETRY   WAIT   CUMULATIVE
1       1s     20m1s
2       1.4s   30m2s
Deactivated after 30m2s, at the timeout that follows retry 2.
";
    assert_eq!((out.as_str(), code), (expected, 0));
    let warned =
        |what| err.lines().any(|line| line.starts_with("Warning: queue \"speech\"") && line.contains(what));
    assert!(warned("spec.maxDuration") && warned("is its own parent"), "{err}");
}

#[test]
fn requeue_schedule_shows_thirty_retries_where_there_is_no_limit() {
    let (out, err, code) = run(&with(&[]), "requeue-schedule");
    assert_eq!(out.lines().count(), 33);
    assert!(out.contains("\n30      6h15m30s   1d\n"), "{out}");
    assert!(err.starts_with("note: there is no limit: the first 30 retries are shown"), "{err}");
    assert_eq!(code, 0);
}

#[test]
fn requeue_schedule_gives_programs_exact_numbers() {
    let (out, _, code) = run(&with(&[]), "requeue-schedule -o json --backoff-limit-count 1");
    let expected = r#"{
  "timeout": "5m",
  "backoffBaseSeconds": 1,
  "backoffFactor": "1.41284738",
  "backoffMaxSeconds": null,
  "backoffLimitCount": 1,
  "from": "flags and defaults",
  "schedule": [
    {
      "retry": 1,
      "waitSeconds": 1.0,
      "cumulativeSeconds": 601,
      "wait": "1s",
      "cumulative": "10m1s"
    }
  ]
}
"#;
    assert_eq!((out.as_str(), code), (expected, 0));
}

#[test]
fn a_bad_flag_is_named_with_what_would_be_right() {
    let directory = with(&[]);
    for (line, flag, remedy) in [
        ("requeue-schedule --timeout 0s", "--timeout", "must be greater than zero"),
        ("requeue-schedule --timeout -5m", "--timeout", "must be a duration such as"),
        ("requeue-schedule --backoff-base-seconds 0", "--backoff-base-seconds", "from 1 to"),
        ("requeue-schedule --backoff-base-seconds -1", "--backoff-base-seconds", "from 1 to"),
        ("requeue-schedule --backoff-factor 0.9", "--backoff-factor", "at least 1"),
        ("requeue-schedule --backoff-max-seconds 0", "--backoff-max-seconds", "from 1 to"),
        ("requeue-schedule --backoff-limit-count -1", "--backoff-limit-count", "from 0 to"),
        ("requeue-schedule --retries 0", "--retries", "from 1 to 100000"),
        ("requeue-schedule -f q.yaml", "--queue", "required"),
        ("validate", "--filename", "required"),
        ("completion tcsh", "SHELL", "possible values: bash"),
    ] {
        let (out, err, code) = run(&directory, line);
        assert_eq!((out.as_str(), code), ("", 2), "{line}: {err}");
        assert!(err.contains(flag) && err.contains(remedy), "{line}: {err}");
    }
}

#[test]
fn a_queue_that_is_not_there_is_reported() {
    let directory = with(&[("q.yaml", QUEUES)]);
    let (_, err, code) = run(&directory, "requeue-schedule --queue gone -f q.yaml");
    assert_eq!(
        (err.as_str(), code),
        (
            "error: there is no queue \"gone\" of group scheduling.run.ai: kubectl tenure matrix lists the queues\n",
            1
        )
    );
    let (_, err, code) = run(&directory, "requeue-schedule --queue speech -f q.yaml");
    assert!(err.contains("queue \"speech\" is its own parent"), "{err}");
    assert_eq!(code, 0, "the defaults apply");
}

#[test]
fn completion_needs_nothing_and_nobody() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (out, err, code) = run(&with(&[]), &format!("completion {shell}"));
        assert!(out.contains("requeue-schedule"), "{shell}");
        assert_eq!((err.as_str(), code), ("", 0), "{shell}");
    }
}

#[test]
fn whoever_reads_only_the_first_line_is_no_failure() {
    use std::fmt::Write;

    let mut many = String::new();
    for number in 0..5000 {
        let head = "apiVersion: scheduling.run.ai/v3alpha1\nkind: Queue";
        writeln!(many, "{head}\nmetadata: {{name: q{number}}}\nspec: {{nonsense: 1}}\n---").unwrap();
    }
    let directory = with(&[("q.yaml", &many)]);
    for line in [
        "requeue-schedule --retries 100000",
        "requeue-schedule --retries 100000 -o yaml",
        "completion bash",
        "validate -f q.yaml",
        "validate -f q.yaml -o json",
    ] {
        let mut child =
            plugin(directory.path(), line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 1];
        // closes the pipe at the end of the statement
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(!err.contains("error") && !err.contains("panicked"), "{line}: {err}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{line}");
    }
}
