//! `kubectl tenure requeue-schedule`: the times at which a workload whose pods don't get ready
//! comes back.
//!
//! The delays are computed by `tenure_policy::requeue`, as the keeper does. The queue's own block
//! counts as a whole, and flags override its fields.

use anyhow::{Context, Result, ensure};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_policy::{
    config::Config,
    requeue::{self, Backoff, Retry},
};
use tenure_types::{
    ExtendedDuration, Grammar,
    duration::for_people,
    keys,
    runai::{QueueVersion, v3alpha1::WaitForPodsReady},
};

use crate::{
    cluster::ConnectArgs,
    input::Document,
    print::{OutputArgs, print_message, tables, warn},
    snapshot::{Snapshot, queues},
};

/// The number of rows, if neither a flag nor a limit sets it.
const ROWS: i32 = 30;

/// The largest number of rows.
const MOST_ROWS: i32 = 100_000;

/// Show when a workload whose pods don't get ready comes back, and when it is deactivated
///
/// A workload that doesn't have enough ready pods within the timeout is paused. It comes back after a delay, which grows
/// from one time to the next: backoffBaseSeconds * backoffFactor^(retry - 1), at most backoffMaxSeconds. Once it has
/// come back backoffLimitCount times, it is deactivated: it stays paused until it is activated. Each delay gets an
/// addition of up to 0.01 percent, which differs by workload and retry and isn't shown.
///
/// CUMULATIVE is the time from the first start to the timeout that follows the retry.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure requeue-schedule                              # with the defaults
  kubectl tenure requeue-schedule --backoff-limit-count 10 --backoff-max-seconds 3600
  kubectl tenure requeue-schedule --queue research             # as it is for a queue of the cluster
  kubectl tenure requeue-schedule --queue research -f queues/ --timeout 10m")]
pub struct RequeueScheduleArgs {
    /// Take waitForPodsReady from this queue, or else from its nearest ancestor that has one; flags override it
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    /// Take queues from this file and not from the cluster: YAML or JSON; of a directory all .yaml, .yml and .json
    /// files; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", requires = "queue")]
    filename: Vec<String>,

    /// The time in which pods must get ready [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = timeout, allow_hyphen_values = true)]
    timeout: Option<ExtendedDuration>,

    /// The first delay, in seconds [default: 1]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, i32::MAX), allow_negative_numbers = true)]
    backoff_base_seconds: Option<i32>,

    /// The factor from one delay to the next [default: 1.41284738]
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    backoff_factor: Option<f64>,

    /// The longest delay, in seconds [default: none]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, i32::MAX), allow_negative_numbers = true)]
    backoff_max_seconds: Option<i32>,

    /// The number of times that a workload comes back [default: always]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 0, i32::MAX), allow_negative_numbers = true)]
    backoff_limit_count: Option<i32>,

    /// The number of rows to print [default: as many as the limit, else 30]
    #[arg(long, value_name = "N", value_parser = |text: &str| whole(text, 1, MOST_ROWS), allow_negative_numbers = true)]
    retries: Option<i32>,

    #[command(flatten)]
    output: OutputArgs,
}

impl RequeueScheduleArgs {
    /// Reads the queue, if one is named, and prints the schedule.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let (backoff, queue) = match &self.queue {
            None => (Backoff::default(), None),
            Some(queue) => find(&queues::documents(&self.filename, connect).await?, queue)?,
        };
        if let (Some(leaf), None) = (&self.queue, &queue) {
            print_message(&format!(
                "note: neither queue {leaf:?} nor one above it has waitForPodsReady: its workloads are never paused for their pods, and this is what the defaults would give"
            ));
        }
        let answer = self.answer(backoff, queue.as_deref());
        if self.retries.is_none() && answer.backoff_limit_count.is_none() {
            print_message(&format!(
                "note: there is no limit: the first {ROWS} retries are shown; --retries shows more"
            ));
        }
        self.output.show(&answer, || answer.table())
    }

    /// Returns the schedule. Flags override the fields of a queue.
    fn answer(&self, found: Backoff, queue: Option<&str>) -> RequeueSchedule {
        let Self { timeout, backoff_base_seconds: base, backoff_factor: factor, .. } = self;
        let (max, limit) = (self.backoff_max_seconds, self.backoff_limit_count);
        let has_flags = timeout.is_some() || factor.is_some() || base.or(max).or(limit).is_some();
        let source = queue.map_or_else(|| "defaults".to_owned(), |name| format!("queue {name:?}"));
        let backoff = Backoff {
            timeout: timeout.unwrap_or(found.timeout),
            base_seconds: base.unwrap_or(found.base_seconds),
            factor: factor.unwrap_or(found.factor),
            max_seconds: max.or(found.max_seconds),
            limit: limit.or(found.limit),
        };
        let rows = self.retries.or(backoff.limit).unwrap_or(ROWS).min(MOST_ROWS);
        let row = |Retry { retry, wait, cumulative }| ScheduleRow {
            retry,
            wait_seconds: wait.as_secs_f64(),
            cumulative_seconds: whole_seconds(cumulative),
            wait: short(wait),
            cumulative: for_people(SignedDuration::from_secs(whole_seconds(cumulative))),
        };
        RequeueSchedule {
            timeout: backoff.timeout.to_string(),
            backoff_base_seconds: backoff.base_seconds,
            backoff_factor: backoff.factor.to_string(),
            backoff_max_seconds: backoff.max_seconds,
            backoff_limit_count: backoff.limit,
            from: if has_flags { format!("flags and {source}") } else { source },
            schedule: backoff.schedule().take(usize::try_from(rows).unwrap_or_default()).map(row).collect(),
        }
    }
}

/// Reads a timeout, which must not be zero.
fn timeout(text: &str) -> Result<ExtendedDuration, String> {
    let value: ExtendedDuration =
        text.parse().map_err(|error| format!("must be {}: {error}", ExtendedDuration::EXPECTED))?;
    if value.is_zero() { Err("must be greater than zero, such as 5m".into()) } else { Ok(value) }
}

/// Reads a factor of at least 1.
fn factor(text: &str) -> Result<f64, String> {
    requeue::factor(text).ok_or_else(|| "must be a decimal number of at least 1, such as 1.5".into())
}

/// Reads a whole number within bounds, both included.
fn whole(text: &str, least: i32, most: i32) -> Result<i32, String> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
}

/// Returns the `waitForPodsReady` of the nearest queue on the way to the root that has one, with
/// the name of that queue. None: no queue has one, and the defaults are returned.
///
/// The block counts as a whole: a field that it leaves out has the default, and not the value of an
/// ancestor.
fn find(documents: &[Document], leaf: &str) -> Result<(Backoff, Option<String>)> {
    let snapshot = Snapshot::of_documents(documents, &Config::default(), None, Timestamp::now());
    let tree = snapshot.tree();
    let id = tree.find(leaf).with_context(|| queues::missing(leaf))?;
    snapshot.warnings().for_each(|warning| warn(&warning));
    let (documents, _) = queues::counting(documents);
    let nearest = tree.path(id).into_iter().find_map(|id| {
        let (version, block) = block(documents.get(tree.name(id))?)?;
        Some((tree.name(id), version, block))
    });
    let Some((queue, version, block)) = nearest else { return Ok((Backoff::default(), None)) };
    let what = || format!("queue {queue:?}: {} can't be read", version.path("waitForPodsReady"));
    // serde would read a list as well, field by field
    ensure!(block.is_object(), "{}: must be an object", what());
    let wait = WaitForPodsReady::deserialize(&block).with_context(what)?;
    Ok((Backoff::from(&wait), Some(queue.into())))
}

/// Returns the `waitForPodsReady` that a queue itself has, and the version of the queue. None: it
/// has none.
fn block(document: &Document) -> Option<(QueueVersion, Value)> {
    let version = document.version().parse().unwrap_or_default();
    let value = match version {
        QueueVersion::V3alpha1 => document.value.pointer("/spec/waitForPodsReady")?.clone(),
        QueueVersion::V2 => {
            let text = queues::annotations(document).remove(keys::QUEUE_WAIT_FOR_PODS_READY_ANNOTATION)?;
            // a text that isn't JSON is reported as a value that is no object
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
    };
    Some((version, value)).filter(|(_, value)| !value.is_null())
}

/// The schedule, and the values that it was computed from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequeueSchedule {
    timeout: String,
    backoff_base_seconds: i32,
    backoff_factor: String,
    /// The longest delay. Null: no limit.
    backoff_max_seconds: Option<i32>,
    /// The number of returns after which the workload is deactivated. Null: never.
    backoff_limit_count: Option<i32>,
    /// The origin of the values, in words.
    from: String,
    schedule: Vec<ScheduleRow>,
}

/// One return: `wait` before it, and the time from the first start to the timeout that follows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ScheduleRow {
    retry: i32,
    wait_seconds: f64,
    cumulative_seconds: i64,
    wait: String,
    cumulative: String,
}

impl RequeueSchedule {
    fn table(&self) -> String {
        let cells = |row: &ScheduleRow| vec![row.retry.to_string(), row.wait.clone(), row.cumulative.clone()];
        let rows = self.schedule.iter().map(cells).collect();
        let table = tables([(vec!["RETRY", "WAIT", "CUMULATIVE"], rows)]);
        let Self { timeout, backoff_base_seconds: base, backoff_factor: factor, from, .. } = self;
        let max = self.backoff_max_seconds.map_or("none".into(), |max| format!("{max}s"));
        let limit = self.backoff_limit_count.map_or("none".into(), |limit| limit.to_string());
        format!(
            "Timeout {timeout}, base {base}s, factor {factor}, maximum {max}, limit {limit} (from {from})\n{table}{}\n",
            self.end()
        )
    }

    /// Returns a sentence about what follows the last row.
    fn end(&self) -> String {
        match (self.backoff_limit_count, self.schedule.last()) {
            (Some(0), _) => format!("Deactivated after {}, at the first timeout.", self.timeout),
            (Some(limit), Some(last)) if last.retry == limit => {
                format!("Deactivated after {}, at the timeout that follows retry {limit}.", last.cumulative)
            }
            (Some(limit), _) => format!("And so on until it is deactivated after retry {limit}."),
            (None, _) => "And so on: there is no limit.".into(),
        }
    }
}

/// Returns whole seconds. Half a second is rounded up.
fn whole_seconds(duration: SignedDuration) -> i64 {
    let up = i64::from(duration.subsec_millis() >= 500);
    duration.as_secs().saturating_add(up)
}

/// Returns a duration for people. Below a minute it has tenths of a second.
fn short(duration: SignedDuration) -> String {
    let tenths = duration.as_millis().saturating_add(50) / 100;
    let below_a_minute = i64::try_from(tenths).ok().filter(|tenths| *tenths < 600);
    let whole = || SignedDuration::from_secs(whole_seconds(duration));
    for_people(below_a_minute.map_or_else(whole, |tenths| SignedDuration::from_millis(tenths * 100)))
}

#[cfg(test)]
mod tests;
