//! Values of the cluster that a word may be: contexts, queues, namespaces and workloads.
//!
//! Called by the completion, with the names of values in the command line's help (`QUEUE`,
//! `OBJECT`). The command line that is being completed decides which cluster is asked.

use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use futures::TryStreamExt;
use tenure_policy::{config::Config, expiry::Family, owner_table::OwnerTable};

use super::Completion;
use crate::{
    args::Cli,
    cluster::{ClusterReader, ConnectArgs, T9K_SYSTEM_NAMESPACE, read_kubeconfig},
    list::{gather::Gatherer, row::WorkloadRow, row::WorkloadState},
};

/// Returns the values for a name such as `QUEUE`. `command` is the subcommand, `before` the
/// positional arguments before the value, and `words` the whole line.
pub async fn of(name: &str, command: &str, before: &[String], words: &[String]) -> Result<Vec<Completion>> {
    if name == "CONTEXT" {
        let contexts = read_kubeconfig(None)?.contexts;
        return Ok(contexts.into_iter().map(|context| (context.name, None)).collect());
    }
    let cluster = ConnectArgs::from_arg_matches(&matches(words)?)?.connect().await?;
    let kinds: Vec<_> = match name {
        "QUEUE" => {
            // the flag for another namespace isn't read here
            let place = |family: Family| family.row().is_namespaced.then_some(T9K_SYSTEM_NAMESPACE);
            let queues = |family| Some((cluster.kinds.queues(family)?, place(family)));
            Family::ALL.into_iter().filter_map(queues).collect()
        }
        "NAMESPACE" => cluster.kinds.find("", "Namespace").map(|kind| (kind, None)).into_iter().collect(),
        "OBJECT" => return workloads(cluster, command, before).await,
        _ => Vec::new(),
    };
    let mut found = Vec::new();
    for (kind, place) in kinds {
        // a user may be allowed to list the queues of one family alone
        found.extend(cluster.metadata(kind, place).try_concat().await.unwrap_or_default());
    }
    Ok(found.into_iter().filter_map(|metadata| Some((metadata.name?, None))).collect())
}

/// Parses words that may not be a whole command line yet.
fn matches(words: &[String]) -> Result<ArgMatches> {
    let words = ["kubectl-tenure"].into_iter().chain(words.iter().map(String::as_str));
    Ok(Cli::command().ignore_errors(true).try_get_matches_from(words)?)
}

/// Returns the workloads that a command takes: running ones for `deactivate`, paused ones in the
/// right state for the others. The description has state and queue.
async fn workloads(cluster: ClusterReader, command: &str, before: &[String]) -> Result<Vec<Completion>> {
    let namespace = Some(cluster.namespace.clone());
    let mut gatherer = Gatherer::new(cluster, namespace, T9K_SYSTEM_NAMESPACE.into(), Config::default());
    gatherer.is_silent = true;
    let rows = if command == "deactivate" {
        gatherer.view().await?.rows(gatherer.now())
    } else {
        gatherer.paused().await?.0
    };
    let cluster = gatherer.cluster;
    let is_wanted = |row: &&WorkloadRow| match command {
        "resume" => true,
        "requeue" => row.state == WorkloadState::Requeueing,
        "activate" => row.state == WorkloadState::Inactive,
        _ => row.kind != "Pod",
    };
    let shown = |row: &WorkloadRow, name: &str| {
        let queue = row.queue.as_ref().map_or_else(String::new, |queue| format!(", queue {queue}"));
        (name.to_owned(), Some(format!("{:?}{queue}", row.state)))
    };
    let rows = rows.iter().filter(is_wanted);
    Ok(match before.first().filter(|word| !word.contains('/')) {
        None => rows.map(|row| shown(row, &row.workload)).collect(),
        // after one kind, names alone follow
        Some(word) => {
            let table = OwnerTable::default();
            let Ok(kind) = cluster.kinds.resolve(word, &table) else { return Ok(Vec::new()) };
            let is_of = |row: &&WorkloadRow| {
                row.kind == kind.resource.kind && row.api_version == kind.resource.api_version
            };
            rows.filter(is_of).map(|row| shown(row, &row.name)).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_a_line_that_is_not_whole() {
        for line in ["resume -n team", "-n team resume", "queue --namespace=team", "explain -n team"] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let connect = ConnectArgs::from_arg_matches(&matches(&words).unwrap()).unwrap();
            assert_eq!(connect.named_namespace(), Some("team"), "{line}");
        }
    }
}
