//! `kubectl tenure matrix`: the floors and ceilings of all queues, and the floors between them.
//!
//! The floors are resolved by `tenure_policy`. [`Matrix`] is also used by `ui`. The number of pairs
//! is the square of the number of queues, so pairs are never all in memory.

use std::io;

use anyhow::{Result, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeMap};
use tenure_policy::{
    ceiling,
    floor::{Floor, Source},
    tree::QueueId,
};

use crate::{
    cluster::ConnectArgs,
    floors::{FloorArgs, SourcedValue},
    input::InputArgs,
    print::{OutputArgs, Table, TableOutput, cell, print_message, table},
    snapshot::{Snapshot, queues},
};

/// Show the floors and ceilings of all queues, and the floor between each two of them
///
/// For each queue: its preemptMinRuntime, which holds against workloads of the same leaf queue, and its effective
/// maxDuration. For each ordered pair of queues: the reclaimMinRuntime that holds for a victim in the one against a
/// preemptor in the other. Each value is shown with its source.
///
/// Only queues of group scheduling.run.ai have floors. How they are kept depends on the scheduler
/// (docs/kube-scheduler.md). Pairs are computed as they are printed, and need no memory.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure matrix                                   # the cluster's queues
  kubectl tenure matrix -f queues/                        # queues that are not yet in a cluster
  kubectl tenure matrix --preemptor-queue a --victim-queue b
  kubectl tenure matrix -o json | jq -r '.reclaim[] | \"\\(.preemptor) -> \\(.victim): \\(.value)\"'")]
pub struct MatrixArgs {
    #[command(flatten)]
    input: InputArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// Only pairs with this queue as the preemptor's
    #[arg(long, value_name = "QUEUE")]
    preemptor_queue: Option<String>,

    /// Only pairs with this queue as the victim's
    #[arg(long, value_name = "QUEUE")]
    victim_queue: Option<String>,

    #[command(flatten)]
    floors: FloorArgs,
}

impl MatrixArgs {
    /// Reads the queues, and writes the matrix as it is computed.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { input, output, preemptor_queue, victim_queue, floors: args } = self;
        let config = args.config()?;
        let documents = queues::documents(&input.filename, connect).await?;
        let now = input.now.unwrap_or_else(Timestamp::now);
        let snapshot = Snapshot::of_documents(&documents, &config, None, now);
        snapshot.warn();
        let tree = snapshot.tree();
        for name in preemptor_queue.iter().chain(&victim_queue) {
            ensure!(tree.find(name).is_some(), queues::missing(name));
        }
        if tree.is_empty() {
            print_message("No queues of group scheduling.run.ai found.");
        }
        let asked = [preemptor_queue.as_deref(), victim_queue.as_deref()];
        let matrix = Matrix::new(&snapshot, args.node_pool.as_deref(), asked);
        output.stream(&matrix, |out| tables(&matrix, out))
    }
}

/// The floors and the ceiling of a queue against workloads of the same queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow<'t> {
    pub name: &'t str,
    /// The path from the root to the queue itself.
    path: Vec<&'t str>,
    preempt_min_runtime: SourcedValue,
    /// The ceiling. Null: no limit.
    max_duration: Option<SourcedValue>,
}

/// The floor of a victim in one queue against a preemptor in another.
#[derive(Debug, Serialize)]
struct QueuePair<'t> {
    preemptor: &'t str,
    victim: &'t str,
    #[serde(flatten)]
    floor: SourcedValue,
}

/// The queues of a matrix. The pairs are computed as they are written.
pub struct Matrix<'t> {
    /// The node pool of victims. None: the defaults for all nodes count.
    snapshot: &'t Snapshot,
    pool: Option<&'t str>,
    /// The queues of rows, of preemptors and of victims, each in alphabetical order.
    queues: Vec<(&'t str, QueueId)>,
    preemptors: Vec<(&'t str, QueueId)>,
    victims: Vec<(&'t str, QueueId)>,
    /// True to pair a queue with itself.
    itself: bool,
}

impl<'t> Matrix<'t> {
    /// Returns the matrix of the pairs with this preemptor and this victim. None: with all.
    pub fn new(
        snapshot: &'t Snapshot,
        pool: Option<&'t str>,
        [preemptor, victim]: [Option<&str>; 2],
    ) -> Self {
        let tree = snapshot.tree();
        let queues = |asked: &[Option<&str>]| {
            let is_meant = |name: &str| asked.iter().any(|only| only.is_none_or(|only| only == name));
            let named = tree.queues().filter(|(name, _)| is_meant(name));
            let mut queues: Vec<_> = named.filter_map(|(name, _)| Some((name, tree.find(name)?))).collect();
            queues.sort_unstable_by_key(|(name, _)| *name);
            queues
        };
        Self {
            queues: queues(&[preemptor, victim]),
            preemptors: queues(&[preemptor]),
            victims: queues(&[victim]),
            itself: preemptor.is_some() && preemptor == victim,
            snapshot,
            pool,
        }
    }

    /// Returns the longest name and the longest floor that a pair can have, for the widths of
    /// columns.
    fn widest(&self) -> [String; 2] {
        let names = self.queues.iter().map(|(name, _)| (*name).to_owned());
        let Snapshot { floors, .. } = self.snapshot;
        let own = self.snapshot.tree().queues().filter_map(|(_, queue)| queue.reclaim_floor);
        let of_pools = floors.node_pools.values().filter_map(|pool| pool.reclaim);
        let floors = own.chain(of_pools).chain([floors.reclaim]).map(|floor| floor.to_string());
        [names.max_by_key(String::len), floors.max_by_key(String::len)].map(Option::unwrap_or_default)
    }

    /// Returns a row for each queue.
    pub fn rows(&self) -> impl Iterator<Item = QueueRow<'t>> {
        let (tree, floors) = (self.snapshot.tree(), &self.snapshot.floors);
        self.queues.iter().map(move |(name, id)| {
            let least = ceiling::effective(tree, name);
            QueueRow {
                name,
                path: tree.path(*id).into_iter().rev().map(|id| tree.name(id)).collect(),
                preempt_min_runtime: floors.preempt(tree, Some(*id), self.pool).into(),
                max_duration: least.map(|(from, value)| Floor { value, from: Source::Queue(from) }.into()),
            }
        })
    }

    /// Returns the pairs of queues that are asked for. A queue is paired with itself only if it is
    /// asked for as both.
    fn pairs(&self) -> impl Iterator<Item = QueuePair<'t>> {
        let (tree, floors) = (self.snapshot.tree(), &self.snapshot.floors);
        self.preemptors.iter().flat_map(move |ours| {
            let others = self.victims.iter().filter(move |theirs| self.itself || theirs.1 != ours.1);
            others.map(move |theirs| QueuePair {
                preemptor: ours.0,
                victim: theirs.0,
                floor: floors.reclaim(tree, Some(ours.1), Some(theirs.1), self.pool).into(),
            })
        })
    }
}

/// Writes the tables of queues and of pairs.
fn tables(matrix: &Matrix<'_>, out: TableOutput<'_>) -> io::Result<()> {
    let headers = ["QUEUE", "PREEMPT FLOOR", "FROM", "CEILING", "FROM"];
    write!(out, "{}", table(&headers, matrix.rows().map(cells)))?;
    let mut pairs = matrix.pairs().peekable();
    if pairs.peek().is_some() {
        let headers = ["PREEMPTOR", "VICTIM", "RECLAIM FLOOR", "FROM"].map(str::to_owned);
        let [name, floor] = matrix.widest();
        let table = Table::fitting(&[headers.to_vec(), vec![name.clone(), name, floor]]);
        write!(out, "\n{}", table.line(&headers))?;
        for QueuePair { preemptor, victim, floor: SourcedValue { value, from } } in pairs {
            let line = [preemptor.to_owned(), victim.to_owned(), value, from];
            out.write_all(table.line(&line).as_bytes())?;
        }
    }
    Ok(())
}

/// Returns the cells of a queue's row.
fn cells(row: QueueRow<'_>) -> Vec<String> {
    let SourcedValue { value, from } = row.preempt_min_runtime;
    let (ceiling, of) = row.max_duration.map(|ceiling| (ceiling.value, ceiling.from)).unzip();
    vec![row.name.to_owned(), value, from, cell(ceiling), cell(of)]
}

impl Serialize for Matrix<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("queues", &StreamedItems(|| self.rows()))?;
        map.serialize_entry("reclaim", &StreamedItems(|| self.pairs()))?;
        map.end()
    }
}

/// Items that are made as they are written.
struct StreamedItems<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for StreamedItems<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0())
    }
}
