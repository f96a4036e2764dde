//! The configuration file, which both servers and the command line read.
//!
//! It is strict: an unknown key or a bad value is refused with its path and line. The one exception is [`Kai`], a file of
//! KAI-Scheduler, which KAI reads leniently. As the file of a server, that is also refused where KAI reads a value as another
//! one than is written.

mod check;
mod file;
mod kai;
mod keys;
mod names;
mod problem;
mod tree;
mod written;

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{
    delegation::Bounds,
    expiry::{GraceOnChange, PerFamily},
    floor::Floors,
    guard::Guarded,
    kueue::Queues,
    message::Receiver,
    notice::NoticePoints,
    owners::OwnerTable,
    ready::PodsReady,
    start::LongestFormation,
    usage::UsageResources,
};
use check::Checked;
use keys::KEYS;
use tree::YamlNode;
use written::WrittenConfig;

pub(crate) use kai::{PLUGIN, set_floor};

pub use file::ConfigFile;
pub use kai::Kai;
pub use keys::{METHOD, PREEMPT, RECLAIM};
pub use names::nearest;
pub use problem::{ConfigError, Problem};

/// The configuration, read and checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The points before its end at which a workload gets a notice, where its queue has no value.
    pub notice: NoticePoints,
    /// True if the end of a run that is told is noted on its pods, too.
    pub notice_on_pods: bool,
    /// True if the pods that a floor protects tell autoscalers to leave them.
    pub floor_on_pods: bool,
    /// The time for which a workload that gets a notice runs on when a change of its queue has made it overdue.
    pub grace_on_change: GraceOnChange,
    /// The most Jobs of a `CronJob` that stay paused. None: all of them do.
    pub paused_history_limit: Option<usize>,
    /// The owners that can be paused.
    pub table: OwnerTable,
    /// Defaults of floors, and how they are resolved.
    pub floors: Floors,
    /// The longest time from the scheduling of its first pod to a workload's start.
    pub longest_formation: LongestFormation,
    /// The users that may set when a `PodGroup` started, by their exact names, as the API server authenticates them.
    pub trusted: BTreeSet<String>,
    /// The rules for workloads that don't get ready, where their queue has none. None: they are left alone.
    pub pods_ready: Option<PodsReady>,
    /// The users whose deletions of pods are held up.
    pub guarded: Guarded,
    /// The users who may move a `PodGroup` to another queue.
    pub tenancy_writers: BTreeSet<String>,
    /// The queues that count for workloads that name a queue that doesn't exist.
    pub default_queues: PerFamily<Option<String>>,
    /// The configuration for Kueue.
    pub kueue: Kueue,
    /// The configurations of KAI-Scheduler that are compared with the floors.
    pub kai: KaiSources,
    /// The longest floors that queues may have.
    pub bounds: Bounds,
    /// The receivers of messages.
    pub receivers: Vec<Receiver>,
    /// The resources whose use is counted. None: no use is counted.
    pub usage: Option<UsageResources>,
    /// The paths of the keys that the file sets, without those of items of lists.
    pub set: BTreeSet<&'static str>,
    /// The number of rows that it adds to the table.
    pub rows: usize,
}

/// The configuration for Kueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kueue {
    /// True if its Workloads are paused in place of the jobs that it runs.
    pub enabled: bool,
    /// Queues of Kueue's that stand for queues of Tenure's.
    pub queues: Queues,
}

impl Default for Kueue {
    fn default() -> Self {
        Self { enabled: true, queues: Queues::default() }
    }
}

/// The configurations of KAI that are compared with Tenure's floors. By default none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KaiSources {
    /// The file of a scheduler.
    pub config_map: Option<ConfigMapKey>,
    /// True if all `SchedulingShard`s are compared.
    pub shards: bool,
}

/// A text in a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ConfigMapKey {
    /// The namespace of the `ConfigMap`.
    pub namespace: String,
    /// The name of the `ConfigMap`.
    pub name: String,
    /// The key in its data; by default the one that KAI's operator writes.
    #[serde(default = "operators_key")]
    pub key: String,
}

fn operators_key() -> String {
    "config.yaml".into()
}

impl Config {
    /// Reads the file of a server: Tenure's own, or KAI-Scheduler's, of which only the floors are used. An empty file
    /// means the defaults.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let root = YamlNode::parse(text)?;
        if kai::is_kai(&root) { Self::of_kai(&root) } else { Self::read(&root) }
    }

    /// Refuses values that KAI reads as another value than the written one, and keys that KAI doesn't know: neither
    /// is intended.
    fn of_kai(root: &YamlNode) -> Result<Self, ConfigError> {
        let Kai { floors, set, problems, notes: _ } = Kai::read(root);
        let mut checked = Checked { root, set, problems };
        for key in KEYS {
            if let Some(value) = root.get(key.path).filter(|value| !value.is_null()) {
                let text = format!("{}: must not be in a file of KAI-Scheduler's, which has tiers", key.path);
                checked.add(value.line, text);
            }
        }
        let set = checked.end()?;
        Ok(Self { floors, set, ..Self::default() })
    }

    fn read(root: &YamlNode) -> Result<Self, ConfigError> {
        if root.is_null() {
            return Ok(Self::default());
        }
        let mut checked = Checked { root, set: Checked::of(root).end()?, problems: Vec::new() };
        let config = match serde_json::from_value::<WrittenConfig>(root.to_json()) {
            Ok(written) => written.config(&mut checked),
            Err(error) => {
                checked.add(root.line, error.to_string());
                Self::default()
            }
        };
        Ok(Self { set: checked.end()?, ..config })
    }

    /// Returns the paths of all keys that a file may have.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|key| key.path)
    }
}

#[cfg(test)]
mod tests;
