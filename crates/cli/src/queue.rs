//! `kubectl tenure queue`: the running, returning and paused workloads of a queue, and the subjects
//! that may use it.
//!
//! The workloads are those of `list`. The order of those that come back is computed by the keeper's
//! own code.

use std::cmp::Ordering;

use anyhow::{Result, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::{
    expiry::{Family, PerFamily},
    requeue::order,
};
use tenure_types::runai::v3alpha1::RequeuingTimestamp;

use crate::{
    access::grants::{self, QueueGrant, grants},
    cluster::{ConnectArgs, T9kArgs},
    floors::of_file,
    list::{
        gather::Gatherer, no_queue, print::EXPIRES_AT, print::FLOOR_UNTIL, print::STATE, print::left,
        row::WorkloadRow, row::WorkloadState,
    },
    print::{Column, ListRow, OutputArgs, OutputFormat, TablePart, cell, moment_cell, print_message, tables},
};

/// Show the workloads of a queue: running, coming back, deactivated and paused
///
/// RUNNING are workloads that have pods, the longest runs first, with the number of ready pods and the number that they
/// need; their times are as in list. COMING BACK are workloads that Tenure has paused for a while, in the order in
/// which they come back. Of workloads that are due at once, the higher priority comes first, then the earlier pause or
/// creation, by the queue's requeuingStrategy. RETURNS is the number of pauses because pods didn't get ready.
/// DEACTIVATED are workloads that wait for activate, and PAUSED workloads that wait for resume.
///
/// MAY USE are the accounts, users and groups that may use the queue, where the chart's tenancy.queueAccess asks for that
/// right.
///
/// Workloads of all namespaces, or with -n of one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure queue research                  # workloads of all namespaces
  kubectl tenure queue research -n team          # workloads of one namespace
  kubectl tenure queue research -o json | jq -r '.comingBack[] | \"\\(.requeueAt) \\(.workload)\"'")]
pub struct QueueArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    name: String,

    #[command(flatten)]
    t9k: T9kArgs,

    /// The configuration file of keeper and webhook, whose waitForPodsReady and default floors count if no queue has
    /// any; - for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

impl QueueArgs {
    /// Prints the queue. An error: the queue doesn't exist, as far as the user may see, and no
    /// workload names it.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { name, t9k, config, output } = self;
        let config = of_file(config.as_deref())?;
        let is_given = connect.named_namespace().is_some();
        let cluster = connect.connect().await?;
        let namespace = is_given.then(|| cluster.namespace.clone());
        let place = namespace.clone();
        let mut gatherer = Gatherer::new(cluster, namespace, t9k.system_namespace, config);
        let mut view = gatherer.view().await?;
        let (is_known, now) = (view.snapshot.index.has_queue(&name), gatherer.now());
        let rules = PerFamily::new(|family| view.snapshot.index.queue_rules(family, &name).pods_ready);
        let timestamp = |family| rules[family].map(|rules| rules.timestamp).unwrap_or_default();
        let mut answer = QueueOverview::new(name, timestamp, view.rows(now), now);
        let is_empty = answer.tables(!is_given, now).is_empty();
        ensure!(is_known || !is_empty, no_queue(&answer.queue));
        if is_empty && output.output == OutputFormat::Table {
            print_message(&format!("No workloads run, come back or are paused in queue {}.", answer.queue));
        }
        match grants(&gatherer.cluster, place.as_deref(), &answer.queue).await? {
            Some(Ok(grants)) => answer.grants = Some(grants),
            Some(Err(unknown)) => print_message(&unknown),
            None => {}
        }
        output.show(&answer, || answer.tables(!is_given, now))
    }
}

/// The workloads of a queue, each in one of the lists.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueOverview {
    queue: String,
    /// Workloads that have pods, the longest runs first.
    running: Vec<WorkloadRow>,
    /// Workloads that come back by themselves, in this order.
    coming_back: Vec<WorkloadRow>,
    /// Workloads that wait for `activate`.
    deactivated: Vec<WorkloadRow>,
    /// Workloads that wait for `resume`.
    paused: Vec<WorkloadRow>,
    /// The subjects that may use the queue. `None`: queues take no right, or the user may not see
    /// who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    grants: Option<Vec<QueueGrant>>,
}

impl QueueOverview {
    /// Sorts rows into the lists, and leaves out those of other queues. `timestamp` returns the
    /// time by which the queue of this name orders workloads, in each family.
    fn new(
        queue: String,
        timestamp: impl Fn(Family) -> RequeuingTimestamp,
        rows: Vec<WorkloadRow>,
        now: Timestamp,
    ) -> Self {
        let mut answer = Self { queue, ..Self::default() };
        for row in rows {
            if !row.is_in(std::slice::from_ref(&answer.queue)) {
                continue;
            }
            let list = match row.state {
                WorkloadState::Requeueing => &mut answer.coming_back,
                WorkloadState::Inactive => &mut answer.deactivated,
                WorkloadState::Paused => &mut answer.paused,
                _ => &mut answer.running,
            };
            list.push(row);
        }
        let since = |row: &WorkloadRow| row.started_at.unwrap_or(Timestamp::MAX);
        answer.running.sort_by_key(since);
        // all workloads that are due come back at once, in the order of the queue
        let at = |row: &WorkloadRow| row.requeue_at.unwrap_or(now).max(now);
        let in_order = |one: &WorkloadRow, other: &WorkloadRow| match (&one.waiting, &other.waiting) {
            (Some((family, one)), Some((of_other, other))) => {
                family.cmp(of_other).then_with(|| order(timestamp(*family))(one, other))
            }
            _ => Ordering::Equal,
        };
        answer.coming_back.sort_by(|one, other| at(one).cmp(&at(other)).then_with(|| in_order(one, other)));
        answer
    }

    /// Returns a table for each list that isn't empty. `namespaces`: with a column of namespaces.
    fn tables(&self, namespaces: bool, now: Timestamp) -> String {
        let part = |columns: &[Column<WorkloadRow>], rows: &[WorkloadRow]| -> TablePart {
            let columns = || namespaces.then_some(&WorkloadRow::NAMESPACE).into_iter().chain(columns);
            let cells = |row| columns().map(|(_, show)| show(row, Some(now))).collect();
            (columns().map(|(header, _)| *header).collect(), rows.iter().map(cells).collect())
        };
        tables([
            part(&RUNNING, &self.running),
            part(&COMING_BACK, &self.coming_back),
            part(&DEACTIVATED, &self.deactivated),
            part(&PAUSED, &self.paused),
            grants::part(self.grants.as_deref().unwrap_or_default()),
        ])
    }
}

const RETURNS: Column<WorkloadRow> = ("RETURNS", |row, _| row.requeue_count.unwrap_or_default().to_string());
const PAUSED_AT: Column<WorkloadRow> = ("PAUSED AT", |row, _| moment_cell(row.paused_at));
const BECAUSE_OF: Column<WorkloadRow> = ("BECAUSE OF", |row, _| cell(row.reason.as_deref()));

const RUNNING: [Column<WorkloadRow>; 6] = [
    ("RUNNING", |row, _| row.workload.clone()),
    ("PODS READY", |row, _| {
        cell(row.ready_pods.zip(row.needed_pods).map(|(ready, needed)| format!("{ready}/{needed}")))
    }),
    ("SINCE", |row, _| moment_cell(row.started_at)),
    FLOOR_UNTIL,
    EXPIRES_AT,
    STATE,
];

const COMING_BACK: [Column<WorkloadRow>; 6] = [
    ("COMING BACK", |row, _| row.workload.clone()),
    ("AT", |row, _| moment_cell(row.requeue_at)),
    ("IN", |row, now| left(row.requeue_at, now)),
    RETURNS,
    PAUSED_AT,
    BECAUSE_OF,
];

const DEACTIVATED: [Column<WorkloadRow>; 4] =
    [("DEACTIVATED", |row, _| row.workload.clone()), RETURNS, PAUSED_AT, BECAUSE_OF];

const PAUSED: [Column<WorkloadRow>; 3] = [("PAUSED", |row, _| row.workload.clone()), PAUSED_AT, BECAUSE_OF];

#[cfg(test)]
mod tests;
