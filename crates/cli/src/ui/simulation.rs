//! Simulations for the page: the report of a file, or one that the page asks for.
//!
//! Called by `ui` for the flag `--simulation`, and by the server for the limits that the user tries.

use std::fs;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use serde_json::Value;

use crate::floors::duration;

/// Reads a report that `simulate -o json` has written. The error names the file.
pub fn of_report(path: &str) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let report: Value = serde_json::from_str(&text).with_context(|| not_a_report(path))?;
    let has = |name: &str, is: fn(&Value) -> bool| report.get(name).is_some_and(is);
    let is_report = has("sentence", Value::is_string) && has("queues", Value::is_array);
    is_report.then_some(report).with_context(|| not_a_report(path))
}

/// Returns the error about a file that is no report.
fn not_a_report(path: &str) -> String {
    format!("{path} is no report: write one with kubectl tenure simulate --output json")
}

/// The limits that the user tries for all queues, as texts. Empty: not set.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TriedLimits {
    max_duration: String,
    preempt_min_runtime: String,
    reclaim_min_runtime: String,
}

impl TriedLimits {
    /// Returns the limits as flags of `simulate`. The error names the limit that isn't a duration.
    pub fn flags(&self) -> Result<Vec<String>> {
        let Self { max_duration, preempt_min_runtime, reclaim_min_runtime } = self;
        let limits = [
            ("maxDuration", "--max-duration", max_duration),
            ("preemptMinRuntime", "--preempt-min-runtime", preempt_min_runtime),
            ("reclaimMinRuntime", "--reclaim-min-runtime", reclaim_min_runtime),
        ];
        let mut flags = Vec::new();
        for (name, flag, text) in limits.into_iter().filter(|(_, _, text)| !text.trim().is_empty()) {
            let value = duration(text.trim()).map_err(|error| anyhow!("{name} {text:?}: {error}"))?;
            flags.extend([flag.to_owned(), value.to_string()]);
        }
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_durations_become_flags_of_the_simulation() {
        let tried = |limits| serde_json::from_value::<TriedLimits>(limits).unwrap().flags();
        assert_eq!(
            tried(json!({"maxDuration": " 2d ", "reclaimMinRuntime": ""})).unwrap(),
            ["--max-duration", "2d"]
        );
        let error = tried(json!({"preemptMinRuntime": "--trace=/etc/passwd"})).unwrap_err().to_string();
        assert!(error.starts_with("preemptMinRuntime \"--trace=/etc/passwd\": "), "{error}");
    }
}
