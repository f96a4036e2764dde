//! `kubectl tenure list`: the workloads in queues, and the ends of their runs.
//!
//! `gather` reads the cluster, `view` joins pods to workloads, `row` has one workload, and `print`
//! its columns. Other commands use these modules, too: `queue`, `ui`, `simulate`, `forecast`, and
//! changes in bulk.

pub mod ended;
pub mod gather;
pub mod print;
pub mod row;
pub mod view;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use tenure_types::selector::Selector;

use crate::{
    cluster::{ConnectArgs, T9kArgs, explain},
    floors::of_file,
    print::{Format, Printer, print, print_message, with_causes},
    status::runs_dry,
};
use gather::Gatherer;
use row::{WorkloadRow, WorkloadState};
use view::ListView;

/// The shortest time between two reads of a watch.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A watch rests for this multiple of the time that its last read took: it spends at most a tenth
/// of its time on requests.
const REST: u32 = 9;

/// List workloads that are in a queue, and workloads that Tenure has paused
///
/// A workload is the object that Tenure would pause: the topmost owner of pods that it knows, or a pod by itself. AGE
/// and EXPIRES AT count from the pods' creation in queues of T9k (scheduler.tensorstack.dev), and from their scheduling
/// in queues of group scheduling.run.ai. Of several pods, the first to expire counts. FLOOR UNTIL is the end of the
/// workload's preemptMinRuntime and of every reclaimMinRuntime on the way to the root; if no queue sets them, the
/// defaults of --config count.
///
/// STATE is Pending, Running, Expired (about to be paused, or in a dry run it would be), Paused (until it is resumed),
/// Requeueing (paused until the time in COMES BACK AT), Inactive (paused until it is activated), Exempt (never touched) or
/// Terminating. Of a paused workload, AGE counts from the pause.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure list                    # workloads of this namespace
  kubectl tenure list -A -o wide         # workloads of all namespaces, with reasons and start times
  kubectl tenure list research -n team   # workloads of queue research in namespace team
  kubectl tenure list -l app=web -o name # names as kubectl takes them
  kubectl tenure list -A --watch         # print changes until Ctrl-C
  kubectl tenure list --ended            # workloads that Tenure has paused or deleted in the last hour
  kubectl tenure list -A -o json | jq -r '.[] | select(.state == \"Paused\") | .workload'")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ListArgs {
    /// Only workloads in these queues
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,

    /// Workloads of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Only workloads that have these labels themselves, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<Selector>,

    /// Print no line of headers
    #[arg(long)]
    no_headers: bool,

    /// The form of the answer, if not a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,

    /// After the list, print changes until Ctrl-C
    #[arg(short, long)]
    watch: bool,

    /// Show the workloads that Tenure has paused or deleted in the last hour, also those that no longer exist, from the
    /// events of the keeper
    #[arg(long, conflicts_with_all = ["watch", "selector"])]
    ended: bool,

    #[command(flatten)]
    t9k: T9kArgs,

    /// The configuration file of keeper and webhook, whose default floors count; - for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
}

impl ListArgs {
    /// Prints the list, and its changes with `--watch`. A queue that is neither there nor named by
    /// a workload is an error.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { queues, selector, output, all_namespaces, no_headers, .. } = self;
        let config = of_file(self.config.as_deref())?;
        let cluster = connect.connect().await?;
        let namespace = (!all_namespaces).then(|| cluster.namespace.clone());
        let place = namespace.as_ref().map_or_else(String::new, |name| format!(" in {name} namespace"));
        if self.ended {
            let mut ended = ended::ended(&cluster, namespace.as_deref()).await.map_err(explain)?;
            ended.retain(|of| queues.is_empty() || of.queue.as_ref().is_some_and(|of| queues.contains(of)));
            if ended.is_empty() {
                print_message(&format!("Tenure has paused or deleted nothing in the last hour{place}."));
            }
            let mut printer = Printer::new(output, all_namespaces, !no_headers);
            return print(&printer.all(&ended, cluster.clock.now())?);
        }
        let mut gatherer = Gatherer::new(cluster, namespace, self.t9k.system_namespace, config);
        gatherer.selector = selector;
        let printer = Printer::new(output, all_namespaces, !no_headers);
        let runs_dry = runs_dry(&gatherer.cluster).await;
        let mut list = List { gatherer, queues, printer, runs_dry };
        let mut view = list.gatherer.view().await?;
        let mut unknown = list.queues.clone();
        unknown.retain(|queue| !view.snapshot.index.has_queue(queue));
        let rows = list.rows_of(view);
        for queue in unknown {
            let is_there = rows.iter().any(|row| row.is_in(std::slice::from_ref(&queue)));
            ensure!(is_there, no_queue(&queue));
        }
        if rows.is_empty() {
            print_message(&format!("No workloads in a queue found{place}."));
        }
        if self.watch {
            return list.watch(rows).await;
        }
        print(&list.printer.all(&rows, list.gatherer.now())?)
    }
}

/// Returns the error about a queue that doesn't exist.
pub fn no_queue(name: &str) -> String {
    format!("there is no queue {name:?}, as far as you may see")
}

/// A list, and the way in which it is read and printed.
struct List {
    gatherer: Gatherer,
    queues: Vec<String>,
    printer: Printer<WorkloadRow>,
    /// True if the keeper pauses nothing, as far as the user may see.
    runs_dry: bool,
}

impl List {
    /// Returns the rows of the queues that are asked for. In a dry run of the keeper, expired
    /// workloads get reason `DryRun`.
    fn rows_of(&mut self, view: ListView) -> Vec<WorkloadRow> {
        let mut rows = view.rows(self.gatherer.now());
        rows.retain(|row| self.queues.is_empty() || row.is_in(&self.queues));
        if self.runs_dry {
            let mut expired = rows.iter_mut().filter(|row| row.state == WorkloadState::Expired).peekable();
            if expired.peek().is_some() {
                self.gatherer.warn(
                    "the keeper is in dry-run mode: Expired workloads would be paused, and run on".into(),
                );
            }
            expired.for_each(|row| row.reason = Some("DryRun".into()));
        }
        rows
    }

    /// Prints the rows, and then their changes, until standard output is closed.
    async fn watch(&mut self, first: Vec<WorkloadRow>) -> Result<()> {
        self.print(&first)?;
        let mut seen: HashMap<_, WorkloadRow> = first.into_iter().map(|row| (row.key(), row)).collect();
        let mut took = Duration::ZERO;
        loop {
            tokio::time::sleep(POLL_INTERVAL.max(took.saturating_mul(REST))).await;
            let begun = Instant::now();
            match self.gatherer.view().await {
                Ok(view) => {
                    let rows = self.rows_of(view);
                    self.changes(&mut seen, rows)?;
                }
                // a server that is away for a while comes back
                Err(error) => self.gatherer.warn(with_causes(&error)),
            }
            took = begun.elapsed();
        }
    }

    /// Prints the rows that have changed since the last read, then the rows that are gone.
    fn changes(
        &mut self,
        seen: &mut HashMap<row::WorkloadKey, WorkloadRow>,
        rows: Vec<WorkloadRow>,
    ) -> Result<()> {
        let mut gone = std::mem::take(seen);
        for row in rows {
            let before = gone.remove(&row.key());
            if before.is_none_or(|before| self.printer.differ(&before, &row)) {
                self.print(std::slice::from_ref(&row))?;
            }
            seen.insert(row.key(), row);
        }
        let gone = gone.into_values().map(|row| WorkloadRow { state: WorkloadState::Gone, ..row });
        self.print(&gone.collect::<Vec<_>>())
    }

    fn print(&mut self, rows: &[WorkloadRow]) -> Result<()> {
        print(&self.printer.some(rows, self.gatherer.now())?)
    }
}
