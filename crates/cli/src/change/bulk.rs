//! Commands on the workloads that flags select, in place of names.
//!
//! Called by [`super::ChangeArgs`] if the command line names no object. Deactivated workloads are
//! left out: `activate` alone lets them run again.

use anyhow::{Result, anyhow, ensure};
use clap::{Args, error::ErrorKind};
use jiff::Timestamp;
use tenure_policy::{config::Config, owner_table::OwnerTable};
use tenure_types::{ExtendedDuration, selector::Selector};

use super::{ChangeCommand, Changer, ObjectName};
use crate::{
    cluster::ConnectArgs,
    floors::duration,
    list::{gather::Gatherer, row::WorkloadRow, row::WorkloadState},
    print::{AlreadyReported, print, print_message},
};

/// Flags that select workloads by the records of their pauses. All of them must hold.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub struct BulkArgs {
    /// In place of names: workloads that were paused in this queue. Can be repeated
    #[arg(long = "queue", value_name = "QUEUE", conflicts_with_all = ["objects", "fields"])]
    queues: Vec<String>,

    /// In place of names: paused workloads that have these labels, such as app=web,tier!=test
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with_all = ["objects", "fields"])]
    selector: Option<Selector>,

    /// In place of names: all paused workloads of the namespace, or with -A of all namespaces
    #[arg(long, conflicts_with_all = ["objects", "fields"])]
    all: bool,

    /// With --queue, -l or --all: of all namespaces
    #[arg(short = 'A', long, conflicts_with = "objects")]
    all_namespaces: bool,

    /// With --queue, -l or --all: only workloads that were paused at most that long ago, such as 30m
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "objects")]
    since: Option<ExtendedDuration>,
}

impl BulkArgs {
    /// True if the flags select workloads. A namespace or a time alone selects nothing.
    pub fn selects(&self) -> bool {
        let by_labels = self.selector.as_ref().is_some_and(|selector| !selector.is_empty());
        self.all || by_labels || !self.queues.is_empty()
    }

    /// True if a row matches the queues and the time. The selector has been applied by the list.
    fn is_wanted(&self, row: &WorkloadRow, now: Timestamp) -> bool {
        let Self { queues, since, selector: _, all: _, all_namespaces: _ } = self;
        // a record that can't be read has neither queue nor time
        let is_recent = |since: &ExtendedDuration| {
            row.paused_at.is_some_and(|at| now.duration_since(at) <= since.to_signed())
        };
        (queues.is_empty() || row.is_in(queues)) && since.as_ref().is_none_or(is_recent)
    }
}

#[cfg(test)]
impl BulkArgs {
    /// Returns the flag `--all`.
    pub fn all() -> Self {
        Self { all: true, ..Self::default() }
    }
}

/// Runs a command on the workloads that its flags select, and prints the numbers of changed and
/// refused workloads. A bad command line if the flags select nothing.
pub async fn run<C: ChangeCommand>(command: C, connect: ConnectArgs, dry_run: bool) -> Result<()> {
    let Some(bulk) = command.bulk().filter(|bulk| bulk.selects()).cloned() else {
        let message = "no workloads: name them as in deployment/test, or select them with --queue NAME, -l SELECTOR, or --all for all paused ones of the namespace (with -A of all namespaces)\n";
        return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message).into());
    };
    let cluster = connect.connect().await?;
    let namespace = (!bulk.all_namespaces).then(|| cluster.namespace.clone());
    let place = namespace.as_ref().map_or_else(String::new, |name| format!(" in {name} namespace"));
    let mut gatherer = Gatherer::new(cluster, namespace, String::new(), Config::default());
    gatherer.selector.clone_from(&bulk.selector);
    let (mut rows, is_incomplete) = gatherer.paused().await?;
    let now = gatherer.now();
    rows.retain(|row| bulk.is_wanted(row, now));
    let all = rows.len();
    // a user or a limit has stopped these: they are for activate
    rows.retain(|row| row.state != WorkloadState::Inactive);
    let inactive = all.saturating_sub(rows.len());

    let (cluster, table) = (gatherer.cluster, OwnerTable::default());
    let changer =
        Changer { command, cluster, table, dry_run, in_bulk: true, namespaces: bulk.all_namespaces };
    let objects = rows.iter().map(|WorkloadRow { api_version, kind, name, namespace, .. }| {
        let found = changer.cluster.kinds.version(api_version, kind);
        let found = found.ok_or_else(|| anyhow!("the server doesn't have {api_version} {kind}"))?;
        Ok(ObjectName { kind: found, name, namespace })
    });
    let (done, refused) = changer.change_all(objects).await?;
    if rows.is_empty() {
        print_message(&format!("No paused workloads to {} found{place}.", C::VERB));
    } else {
        print(&summary(C::VERB, done, refused, dry_run))?;
    }
    if inactive > 0 {
        print_message(&format!(
            "{inactive} deactivated left out: kubectl tenure activate lets them run again."
        ));
    }
    ensure!(refused == 0 && !is_incomplete, AlreadyReported);
    Ok(())
}

/// Returns the last line of the output. The verbs that take these flags end in "e".
fn summary(verb: &str, done: usize, refused: usize, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    let refused = if refused > 0 { format!(", {refused} refused") } else { String::new() };
    format!("{done} {would}{verb}d{refused}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_what_was_done_and_what_was_refused() {
        assert_eq!(summary("resume", 12, 1, false), "12 resumed, 1 refused\n");
        assert_eq!(summary("resume", 12, 0, true), "12 would be resumed\n");
    }

    #[test]
    fn a_namespace_a_time_or_an_empty_selector_alone_selects_nothing() {
        let of = |bulk: BulkArgs| bulk.selects();
        let since = Some("1h".parse().unwrap());
        assert!(!of(BulkArgs { all_namespaces: true, since, ..BulkArgs::default() }));
        assert!(!of(BulkArgs { selector: Some(Selector::default()), ..BulkArgs::default() }));
        assert!(of(BulkArgs { queues: vec!["a".into()], ..BulkArgs::default() }));
        assert!(of(BulkArgs { selector: Some("a=b".parse().unwrap()), ..BulkArgs::default() }));
        assert!(of(BulkArgs { all: true, ..BulkArgs::default() }));
    }

    #[test]
    fn a_workload_is_wanted_by_the_queue_and_the_time_of_its_record() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let row = |queue: Option<&str>, paused_at: Option<&str>| WorkloadRow {
            queue: queue.map(str::to_owned),
            paused_at: paused_at.map(|at| at.parse().unwrap()),
            ..WorkloadRow::default()
        };
        let bulk = BulkArgs {
            queues: vec!["a".into(), "b".into()],
            since: Some("1h".parse().unwrap()),
            ..BulkArgs::default()
        };
        for (row, expected) in [
            (row(Some("a"), Some("2026-01-02T02:04:05Z")), true),
            (row(Some("b"), Some("2026-01-02T03:04:05Z")), true),
            (row(Some("a"), Some("2026-01-02T02:04:04Z")), false),
            (row(Some("c"), Some("2026-01-02T03:04:05Z")), false),
            (row(None, None), false),
        ] {
            assert_eq!(bulk.is_wanted(&row, now), expected, "{row:?}");
        }
        assert!(BulkArgs { all: true, ..BulkArgs::default() }.is_wanted(&row(None, None), now));
    }
}
