//! `kubectl tenure usage`: the usage of runs that have ended, from the keeper's record.
//!
//! The record is a ConfigMap in Tenure's namespace, with sums by queue, resource and end. Nothing
//! is computed from pods.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use tenure_types::usage_record::{USAGE_CONFIG_MAP, USAGE_KEY, UsageEnd, UsageRecord};

use crate::{
    cluster::{ConnectArgs, explain_given_by},
    print::{OutputArgs, amount, human, moment, printable, table},
};

/// Show what runs have used, by queue, resource and how they ended
///
/// A run counts when it ends, with the requests of its pod. A resized pod counts with the amounts that its node gave it.
/// The table has hours of one unit: GPU-hours, core-hours, GiB-hours. CUT counts runs that Tenure ended at their ceiling,
/// UNREADY runs that it ended because they weren't ready in time, and DELETED runs that users and other programs deleted.
/// Requires the right to get the ConfigMap with the keeper's record.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure usage
  kubectl tenure usage --queue research --resource nvidia.com/gpu
  kubectl tenure usage --preempted     # how old preempted runs were
  kubectl tenure usage -o json         # in seconds")]
pub struct UsageArgs {
    /// Only these queues
    #[arg(long = "queue", value_name = "QUEUE", value_delimiter = ',')]
    queues: Vec<String>,

    /// Only these resources
    #[arg(long = "resource", value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,

    /// Show how old preempted runs were, in place of the ends
    #[arg(long)]
    preempted: bool,

    /// The namespace in which Tenure is installed
    #[arg(long, value_name = "NAMESPACE", default_value = "tenure-system")]
    tenure_namespace: String,

    /// The ConfigMap with the record: the value of the keeper's flag of this name
    #[arg(long, value_name = "NAME", default_value = USAGE_CONFIG_MAP)]
    usage_config_map: String,

    #[command(flatten)]
    output: OutputArgs,
}

/// Says who gives the right to read the record.
const READERS: &str = "an administrator of Tenure gives this right, by usage.readers of the chart";

/// The headers of the ends of runs, with their names in JSON.
const ENDS: [(&str, &str); 6] = [
    ("SUCCEEDED", "succeeded"),
    ("FAILED", "failed"),
    ("CUT", "cut"),
    ("PREEMPTED", "preempted"),
    ("UNREADY", "evicted_unready"),
    ("DELETED", "deleted"),
];

/// The answer, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageAnswer {
    /// The time since which the keeper counts.
    since: Timestamp,
    /// The time up to which it has counted.
    until: Timestamp,
    /// The number of gaps in which some runs may be missing.
    gaps: u32,
    usage: Vec<UsageRow>,
}

/// The usage of a resource in a queue, in seconds of one unit.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageRow {
    family: String,
    queue: String,
    resource: String,
    /// The sum of all ends.
    total: f64,
    ends: BTreeMap<&'static str, f64>,
    /// The usage of preempted runs, by the age of the run.
    preempted: BTreeMap<&'static str, f64>,
}

impl UsageArgs {
    /// Reads the record and prints it. An error: there is no record, or it can't be read.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let cluster = connect.connect().await?;
        let (namespace, name) = (&self.tenure_namespace, &self.usage_config_map);
        let map = cluster.api::<ConfigMap>(Some(namespace)).get_opt(name).await;
        let map = map.map_err(|error| explain_given_by(error, READERS))?;
        let map = map.with_context(|| {
            format!("there is no ConfigMap {name} in namespace {namespace}: install the chart with usage.enabled=true and without keeper.dryRun, or name the right one with --tenure-namespace and --usage-config-map")
        })?;
        let Some(text) = map.data.as_ref().and_then(|data| data.get(USAGE_KEY)) else {
            bail!(
                "the keeper has written nothing into ConfigMap {namespace}/{name} yet: kubectl tenure status shows whether one leads, and its log says why it doesn't count"
            );
        };
        let record: UsageRecord = serde_json::from_str(text)
            .with_context(|| format!("cannot read {USAGE_KEY} of ConfigMap {namespace}/{name}"))?;
        let answer = self.answer(&record);
        let now = cluster.clock.now();
        self.output.show(&answer, || self.table(&answer, &record, now))
    }

    /// Returns the rows of the queues and the resources that are asked for. No flag: all.
    fn answer(&self, record: &UsageRecord) -> UsageAnswer {
        let is_asked = |asked: &[String], name: &str| asked.is_empty() || asked.iter().any(|of| of == name);
        let queues = record.queues.iter().filter(|of| is_asked(&self.queues, &of.queue));
        let rows = queues.flat_map(|of| {
            let used = of.used.iter().filter(|(resource, _)| is_asked(&self.resources, resource));
            used.map(|(resource, by_end)| UsageRow::new((&of.family, &of.queue), resource, by_end))
        });
        let UsageRecord { since, at, gaps, .. } = record;
        UsageAnswer { since: *since, until: *at, gaps: *gaps, usage: rows.collect() }
    }

    /// Returns the table, with the time and the gaps of the record below it.
    fn table(&self, answer: &UsageAnswer, record: &UsageRecord, now: Timestamp) -> String {
        let ages = UsageEnd::ALL.map(UsageEnd::age).into_iter().filter(|age| !age.is_empty());
        let columns: Vec<(&str, &str)> =
            if self.preempted { ages.map(|age| (age, age)).collect() } else { ENDS.to_vec() };
        let mut headers = vec!["QUEUE", "RESOURCE"];
        headers.extend((!self.preempted).then_some("TOTAL"));
        headers.extend(columns.iter().map(|(header, _)| *header));
        let rows = answer.usage.iter().map(|row| {
            let of = if self.preempted { &row.preempted } else { &row.ends };
            let total = (!self.preempted).then_some(row.total);
            let amounts = columns.iter().map(|(_, key)| of.get(key).copied().unwrap_or_default());
            let queue = if row.queue.is_empty() { "<none>" } else { &row.queue };
            let mut cells = vec![printable(queue), printable(&row.resource)];
            cells.extend(total.into_iter().chain(amounts).map(|seconds| hours(seconds, &row.resource)));
            cells
        });
        let mut text = table(&headers, rows.collect::<Vec<_>>());
        let (since, age) = (moment(answer.since), human(now.duration_since(answer.until)));
        // a write to a string can't fail
        _ = writeln!(
            text,
            "\nHours of one unit, of runs that have ended since {since}. Counted up to {age} ago."
        );
        if let Some(gap) = record.last_gap {
            let (from, to, gaps) = (moment(gap.from), moment(gap.to), answer.gaps);
            _ = writeln!(
                text,
                "Some runs may be missing: no keeper counted for minutes, {gaps} times, the last from {from} to {to}."
            );
        }
        text
    }
}

impl UsageRow {
    /// Returns a row. Amounts of the record are in millionths of a second of one unit.
    fn new((family, queue): (&str, &str), resource: &str, by_end: &BTreeMap<UsageEnd, u128>) -> Self {
        let (mut total, mut ends, mut preempted) = (0.0, BTreeMap::new(), BTreeMap::new());
        for (end, amount) in by_end {
            let seconds = seconds(*amount);
            total += seconds;
            *ends.entry(end.name()).or_default() += seconds;
            if !end.age().is_empty() {
                preempted.insert(end.age(), seconds);
            }
        }
        let [family, queue, resource] = [family, queue, resource].map(str::to_owned);
        Self { family, queue, resource, total, ends, preempted }
    }
}

/// Returns seconds.
#[allow(clippy::cast_precision_loss, reason = "sixteen digits are enough")]
fn seconds(millionths: u128) -> f64 {
    millionths as f64 / 1e6
}

/// Returns hours of one unit, which are GiB-hours for bytes.
fn hours(seconds: f64, resource: &str) -> String {
    let of_bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    amount(seconds / 3_600.0 / if of_bytes { f64::from(1 << 30) } else { 1.0 })
}

#[cfg(test)]
mod tests;
