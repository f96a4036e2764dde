//! How a schedule looks.

use jiff::SignedDuration;
use serde::Serialize;
use tenure_policy::requeue::{Backoff, Retry};

use crate::table::tables;

/// What is printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    timeout: String,
    backoff_base_seconds: i32,
    backoff_factor: String,
    backoff_max_seconds: Option<i32>,
    pub backoff_limit_count: Option<i32>,
    from: String,
    schedule: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    retry: i32,
    wait_seconds: f64,
    cumulative_seconds: i64,
    wait: String,
    cumulative: String,
}

impl From<Retry> for Row {
    fn from(Retry { retry, wait, cumulative }: Retry) -> Self {
        Self {
            retry,
            wait_seconds: wait.as_secs_f64(),
            cumulative_seconds: whole_seconds(cumulative),
            wait: short(wait),
            cumulative: long(cumulative),
        }
    }
}

impl Answer {
    /// The first rows of a schedule; `from` says where its numbers come from.
    pub fn new(backoff: &Backoff, from: String, rows: i32) -> Self {
        let rows = usize::try_from(rows).unwrap_or_default();
        Self {
            timeout: short(backoff.timeout),
            backoff_base_seconds: backoff.base_seconds,
            backoff_factor: backoff.factor.to_string(),
            backoff_max_seconds: backoff.max_seconds,
            backoff_limit_count: backoff.limit,
            from,
            schedule: backoff.schedule().take(rows).map(Row::from).collect(),
        }
    }

    pub fn table(&self) -> String {
        let cells = |row: &Row| vec![row.retry.to_string(), row.wait.clone(), row.cumulative.clone()];
        let rows = self.schedule.iter().map(cells).collect();
        let table = tables([(vec!["RETRY", "WAIT", "CUMULATIVE"], rows)]);
        format!("{}\n{table}{}\n", self.heading(), self.end())
    }

    fn heading(&self) -> String {
        let max = self.backoff_max_seconds.map_or("none".into(), |max| format!("{max}s"));
        let limit = self.backoff_limit_count.map_or("none".into(), |limit| limit.to_string());
        format!(
            "Timeout {}, base {}s, factor {}, maximum {max}, limit {limit} (from {})",
            self.timeout, self.backoff_base_seconds, self.backoff_factor, self.from
        )
    }

    fn end(&self) -> String {
        match (self.backoff_limit_count, self.schedule.last()) {
            (Some(0), _) => format!("Deactivated after {}, at the first timeout.", self.timeout),
            (Some(limit), Some(last)) if last.retry == limit => {
                format!("Deactivated after {}, at the timeout that follows retry {limit}.", last.cumulative)
            }
            (Some(limit), _) => format!("And so on until it is deactivated after retry {limit}."),
            (None, _) => "And so on for ever: there is no limit.".into(),
        }
    }
}

fn whole_seconds(duration: SignedDuration) -> i64 {
    let up = i64::from(duration.subsec_millis() >= 500);
    duration.as_secs().saturating_add(up)
}

/// Below a minute with tenths of a second.
fn short(duration: SignedDuration) -> String {
    let tenths = duration.as_millis().saturating_add(50) / 100;
    match (tenths / 10, tenths % 10) {
        (60.., _) => long(duration),
        (seconds, 0) => format!("{seconds}s"),
        (seconds, tenth) => format!("{seconds}.{tenth}s"),
    }
}

/// `1d2h3m4s`, to the second and without what is zero.
fn long(duration: SignedDuration) -> String {
    let seconds = whole_seconds(duration);
    let parts =
        [(seconds / 86_400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let shown = parts.into_iter().filter(|(number, _)| *number > 0);
    let text = shown.map(|(number, unit)| format!("{number}{unit}")).collect::<Vec<_>>().concat();
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(long(SignedDuration::MAX).starts_with("106751991167300d"));
    }
}
