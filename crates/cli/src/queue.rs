//! `kubectl tenure queue`: who runs in a queue, who comes back and when, and who doesn't.

use std::cmp::Ordering;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::{expiry::Family, requeue::order};
use tenure_types::runai::v3alpha1::RequeuingTimestamp;

use crate::{
    age::until,
    connect::ConnectArgs,
    floors::of_file,
    list::{
        gather::Gatherer,
        print::moment,
        row::{Row, State},
    },
    output::{Output, OutputArgs},
    table::{Part, cell, tables},
    tell::tell,
};

/// Show who runs in a queue, who comes back and when, and who is paused
///
/// RUNNING are workloads that have pods, those that have run for longest first, with how many of their pods are ready
/// and how many it takes; their times are as those of list. COMING BACK are those that Tenure has paused for a while,
/// in the order in which they come back: of those that are due at once the higher priority comes first, then who was
/// paused, or created, earlier, as the queue's requeuingStrategy says. RETURNS is how often a workload was paused because
/// its pods didn't get ready. DEACTIVATED are those that wait for activate, and PAUSED those that wait for resume.
///
/// Workloads of all namespaces, or with -n of one.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct QueueArgs {
    /// The queue
    #[arg(value_name = "QUEUE")]
    name: String,

    /// The namespace in which queues of T9k count, as the keeper has it
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system")]
    t9k_system_namespace: String,

    /// The configuration file of the servers, whose waitForPodsReady and default floors count where no queue has any; -
    /// for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure queue research                  # workloads of all namespaces
  kubectl tenure queue research -n team          # those of one
  kubectl tenure queue research -o json | jq -r '.comingBack[] | \"\\(.requeueAt) \\(.workload)\"'";

impl QueueArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { name, t9k_system_namespace, config, output } = self;
        let config = of_file(config.as_deref())?;
        let is_given = connect.named_namespace().is_some();
        let cluster = connect.connect().await?;
        let namespace = is_given.then(|| cluster.namespace.clone());
        let mut gatherer = Gatherer::new(cluster, namespace, t9k_system_namespace, config);
        let mut view = gatherer.view().await?;
        let (is_known, now) = (view.snapshot.knows(&name), gatherer.now());
        let mut of =
            |family| view.snapshot.index.pods_ready(family, &name).map(|of| of.timestamp).unwrap_or_default();
        let (of_runai, of_tensorstack) = (of(Family::Runai), of(Family::Tensorstack));
        let timestamp = |family| if family == Family::Runai { of_runai } else { of_tensorstack };
        let answer = Answer::new(name, timestamp, view.rows(now), now);
        let tables = answer.tables(!is_given, now);
        if tables.is_empty() && !is_known {
            bail!("there is no queue {:?}, as far as you may see", answer.queue);
        }
        if tables.is_empty() && output.output == Output::Table {
            tell(&format!("Nobody runs, comes back or is paused in queue {}.", answer.queue));
        }
        output.show(&answer, || tables)
    }
}

/// Its workloads, each in one of the lists.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    queue: String,
    /// Those that have pods, the longest runs first.
    running: Vec<Row>,
    /// In the order in which they come back.
    coming_back: Vec<Row>,
    deactivated: Vec<Row>,
    paused: Vec<Row>,
}

impl Answer {
    /// `timestamp`: by what time workloads of a queue of this name are ordered, in each family.
    fn new(
        queue: String,
        timestamp: impl Fn(Family) -> RequeuingTimestamp,
        rows: Vec<Row>,
        now: Timestamp,
    ) -> Self {
        let mut answer = Self { queue, ..Self::default() };
        for row in rows {
            if !row.is_in(std::slice::from_ref(&answer.queue)) {
                continue;
            }
            let list = match row.state {
                State::Requeueing => &mut answer.coming_back,
                State::Inactive => &mut answer.deactivated,
                State::Paused => &mut answer.paused,
                _ => &mut answer.running,
            };
            list.push(row);
        }
        let since = |row: &Row| row.started_at.unwrap_or(Timestamp::MAX);
        answer.running.sort_by_key(since);
        answer.coming_back.sort_by(|one, other| returns(one, other, &timestamp, now));
        answer
    }

    /// One for each list that isn't empty.
    fn tables(&self, namespaces: bool, now: Timestamp) -> String {
        let Self { queue: _, running, coming_back, deactivated, paused } = self;
        let part = |headers: &[&'static str], rows: &[Row], cells: &dyn Fn(&Row) -> Vec<String>| -> Part {
            let row = |row: &Row| {
                let namespace = namespaces.then(|| row.namespace.clone());
                namespace.into_iter().chain([row.workload.clone()]).chain(cells(row)).collect()
            };
            let namespace = namespaces.then_some("NAMESPACE");
            (namespace.into_iter().chain(headers.iter().copied()).collect(), rows.iter().map(row).collect())
        };
        let coming = |row: &Row| {
            let left = row.requeue_at.map(|at| until(at, now));
            [vec![moment(row.requeue_at), cell(left), count(row)], paused_cells(row)].concat()
        };
        let inactive = |row: &Row| [vec![count(row)], paused_cells(row)].concat();
        let parts = [
            part(
                &["RUNNING", "PODS READY", "SINCE", "FLOOR UNTIL", "EXPIRES AT", "STATE"],
                running,
                &running_cells,
            ),
            part(&["COMING BACK", "AT", "IN", "RETURNS", "PAUSED AT", "BECAUSE OF"], coming_back, &coming),
            part(&["DEACTIVATED", "RETURNS", "PAUSED AT", "BECAUSE OF"], deactivated, &inactive),
            part(&["PAUSED", "PAUSED AT", "BECAUSE OF"], paused, &paused_cells),
        ];
        tables(parts)
    }
}

/// Those that are due come back at once, in the order of the queue.
fn returns(
    one: &Row,
    other: &Row,
    timestamp: impl Fn(Family) -> RequeuingTimestamp,
    now: Timestamp,
) -> Ordering {
    let at = |row: &Row| row.requeue_at.unwrap_or(now).max(now);
    let in_order = || match (&one.waiting, &other.waiting) {
        (Some((family, one)), Some((of_other, other))) => {
            family.cmp(of_other).then_with(|| order(timestamp(*family))(one, other))
        }
        _ => Ordering::Equal,
    };
    at(one).cmp(&at(other)).then_with(in_order)
}

fn running_cells(row: &Row) -> Vec<String> {
    let pods = row.ready_pods.zip(row.needed_pods).map(|(ready, needed)| format!("{ready}/{needed}"));
    vec![
        cell(pods),
        moment(row.started_at),
        moment(row.floor_until),
        moment(row.expires_at),
        format!("{:?}", row.state),
    ]
}

fn paused_cells(row: &Row) -> Vec<String> {
    vec![moment(row.paused_at), cell(row.reason.as_deref())]
}

fn count(row: &Row) -> String {
    row.requeue_count.unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests;
