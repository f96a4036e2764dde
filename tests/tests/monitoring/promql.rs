//! Prometheus' own parser and engine, in a Go program.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde_json::{Value, json};
use tenure_tests::pages::workspace;

/// What an expression takes of a metric.
#[derive(Debug)]
pub struct Selector {
    /// The metric's name.
    pub metric: String,
    /// The labels that must have a value.
    pub equal: BTreeMap<String, String>,
    /// The other labels that the expression names.
    pub labels: BTreeSet<String>,
}

/// Labels that Prometheus adds to what it scrapes.
const OF_TARGETS: [&str; 3] = ["job", "instance", "pod"];

/// The program. Go leaves one that is up to date as it is, but looks at all of its packages to know.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("promql");
    let built = Command::new("go")
        .arg("build")
        .arg("-o")
        .arg(&program)
        .current_dir(workspace().join("tests/promql"))
        // at what the caller's shell can't change, and with the modules of go.sum alone
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOTOOLCHAIN", "local"),
            ("GOWORK", "off"),
        ])
        .status();
    assert!(built.expect("Go 1.26 is installed").success(), "tests/promql can't be built");
    program
});

/// Asks the program.
fn ask(request: &Value) -> Value {
    let mut program = Command::new(&*PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    program.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "tests/promql ended with {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The errors that `promtool check rules` would print.
pub fn check(rules: &str) -> Vec<String> {
    texts(&ask(&json!({"rules": rules}))["errors"])
}

/// The selectors of each expression. The parser must understand it.
pub fn selectors(expressions: &[&str]) -> Vec<Vec<Selector>> {
    let answer = ask(&json!({"expressions": expressions}));
    let answers = answer["expressions"].as_array().unwrap().iter();
    let selectors = answers.zip(expressions).map(|(answer, expression)| {
        assert_eq!(answer["error"], "", "{expression}");
        answer["selectors"].as_array().unwrap().iter().flat_map(selectors_of).collect()
    });
    selectors.collect()
}

/// A selector of several metrics counts as several.
fn selectors_of(selector: &Value) -> Vec<Selector> {
    let is_own = |label: &str| !OF_TARGETS.contains(&label);
    let equal = selector["equal"].as_object().unwrap().iter();
    let equal: BTreeMap<String, String> =
        equal.map(|(label, value)| (label.clone(), value.as_str().unwrap().to_owned())).collect();
    let labels: BTreeSet<String> =
        texts(&selector["labels"]).into_iter().filter(|label| is_own(label)).collect();
    let metrics = selector["metric"].as_str().unwrap().split('|');
    let of =
        |metric: &str| Selector { metric: metric.to_owned(), equal: equal.clone(), labels: labels.clone() };
    metrics.map(of).collect()
}

/// The labels of each series that each expression results in, 150 minutes after the beginning of the series.
pub fn evaluate(cases: &[(&str, &str)]) -> Vec<Vec<BTreeMap<String, String>>> {
    let cases: Vec<Value> = cases
        .iter()
        .map(|(expression, series)| json!({"expression": expression, "series": series, "minutes": 150}))
        .collect();
    serde_json::from_value(ask(&json!({"cases": cases}))["results"].take()).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).unwrap()
}
