//! The configuration file of the keeper and the webhook, which `kubectl tenure` reads as well.
//!
//! The file is strict: an unknown key or a bad value is refused with its path and line. The one
//! exception is [`Kai`], a file of KAI-Scheduler, which KAI reads leniently. A server refuses such
//! a file if KAI would read a value differently than written.
//!
//! Both servers call [`Config::parse`] at their start and whenever the file has changed. The
//! command line calls [`ConfigFile::parse`].

mod check;
mod file;
mod kai;
mod keys;
mod names;
mod problem;
mod queues;
mod tree;
mod written;

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{
    delegation::DelegationBounds,
    expiry::{GraceOnChange, PerFamily},
    floor::Floors,
    guard::Guarded,
    kueue::KueueQueues,
    message::Receiver,
    notice::NoticePoints,
    owner_table::OwnerTable,
    ready::PodsReady,
    start::LongestFormation,
    usage::UsageResources,
};
use check::CheckedConfig;
use keys::KEYS;
use tree::YamlNode;
use written::WrittenConfig;

pub(crate) use kai::{PLUGIN, set_floor};

pub use file::ConfigFile;
pub use kai::Kai;
pub use keys::{METHOD, PREEMPT, RECLAIM};
pub use names::nearest;
pub use problem::{ConfigError, Problem};
pub use queues::ConfiguredQueue;

/// The configuration, read and checked. The default is the configuration of an empty file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The times before the end of a run at which its workload gets a notice, if no queue sets
    /// `expiryNotice`.
    pub notice: NoticePoints,
    /// True if the keeper notes an announced end of a run on the pods, too.
    pub notice_on_pods: bool,
    /// True if the keeper marks the pods that a floor protects, so that autoscalers leave them.
    pub floor_on_pods: bool,
    /// The time for which a workload with notices runs on after a change of its queue has made it
    /// overdue.
    pub grace_on_change: GraceOnChange,
    /// The most paused Jobs of a `CronJob` that the keeper keeps. None: all of them are kept.
    pub paused_history_limit: Option<usize>,
    /// The owners that can be paused: the built-in kinds, and the rows of the file. Without Kueue's
    /// Workloads if `kueue.enabled` is false.
    pub table: OwnerTable,
    /// Defaults of floors, and how they are resolved.
    pub floors: Floors,
    /// The longest time from the scheduling of a workload's first pod to the workload's start.
    pub longest_formation: LongestFormation,
    /// The users that may set the start of a `PodGroup`: their exact names, as the API server
    /// authenticates them.
    pub trusted: BTreeSet<String>,
    /// The rules for workloads that don't get ready, if no queue sets `waitForPodsReady`. None:
    /// such workloads are left alone.
    pub pods_ready: Option<PodsReady>,
    /// The users whose deletions of pods are guarded, and the exemptions.
    pub guarded: Guarded,
    /// The users that may move a `PodGroup` to another queue: their exact names.
    pub tenancy_writers: BTreeSet<String>,
    /// For each family, the queue that counts for workloads that name a queue that doesn't exist.
    /// None: no queue counts for them.
    pub default_queues: PerFamily<Option<String>>,
    /// The queues of Kueue that stand for queues of Tenure.
    pub kueue_queues: KueueQueues,
    /// The configurations of KAI-Scheduler that the webhook compares with the floors.
    pub kai: KaiSources,
    /// The longest floors that queues of a part of the tree may have.
    pub bounds: DelegationBounds,
    /// The receivers to which the keeper sends messages.
    pub receivers: Vec<Receiver>,
    /// The resources whose usage the keeper counts. None: no usage is counted.
    pub usage: Option<UsageResources>,
    /// The paths of the keys that the file sets, without the keys of list items.
    pub set: BTreeSet<&'static str>,
    /// The number of rows of `owners` in the file.
    pub rows: usize,
}

/// The configurations of KAI-Scheduler that the webhook compares with Tenure's floors. The default
/// is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KaiSources {
    /// The file of a scheduler. None: no file is compared.
    pub config_map: Option<ConfigMapKey>,
    /// True if all `SchedulingShard`s of KAI's operator are compared.
    pub shards: bool,
}

/// The place of a file in a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ConfigMapKey {
    /// The namespace of the `ConfigMap`.
    pub namespace: String,
    /// The name of the `ConfigMap`.
    pub name: String,
    /// The key in `data`. Default: `config.yaml`, which KAI's operator writes.
    #[serde(default = "operators_key")]
    pub key: String,
}

fn operators_key() -> String {
    "config.yaml".into()
}

impl Config {
    /// Reads the file of a server: Tenure's own, or KAI-Scheduler's, of which only the floors are
    /// used. An empty file means the defaults. An error names each problem with its line.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let root = YamlNode::parse(text)?;
        if kai::is_kai(&root) { Self::of_kai(&root) } else { Self::read(&root) }
    }

    /// Reads KAI's file. Refuses values that KAI reads differently than written, keys that KAI
    /// doesn't know, and keys of Tenure's own file: such values and keys are mistakes.
    fn of_kai(root: &YamlNode) -> Result<Self, ConfigError> {
        let Kai { floors, set, problems, notes: _ } = Kai::read(root);
        let mut checked = CheckedConfig { root, set, problems };
        for key in KEYS {
            if let Some(value) = root.get(key.path).filter(|value| !value.is_null()) {
                let text = format!("{}: must not be in a file of KAI-Scheduler's, which has tiers", key.path);
                checked.add(value.line, text);
            }
        }
        let set = checked.end()?;
        Ok(Self { floors, set, ..Self::default() })
    }

    /// Reads Tenure's own file in two passes: each key by its row in the table of keys, and then
    /// the rules that concern several keys. The second pass needs a file without errors in the
    /// first.
    fn read(root: &YamlNode) -> Result<Self, ConfigError> {
        if root.is_null() {
            return Ok(Self::default());
        }
        let mut checked = CheckedConfig { root, set: CheckedConfig::of(root).end()?, problems: Vec::new() };
        let config = match serde_json::from_value::<WrittenConfig>(root.to_json()) {
            Ok(written) => written.config(&mut checked),
            Err(error) => {
                checked.add(root.line, error.to_string());
                Self::default()
            }
        };
        Ok(Self { set: checked.end()?, ..config })
    }

    /// Returns the paths of all keys that a file may have. `[]` stands for the items of a list.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|key| key.path)
    }
}

#[cfg(test)]
mod tests;
