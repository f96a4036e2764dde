//! Tenure's configuration file as written, and the errors that only several keys together show.
//!
//! `Config` reads a [`WrittenConfig`] once `check` has accepted each key. Each field here has a row
//! in `keys`.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Display,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, de::Error};
use tenure_types::{ExtendedDuration, runai::v3alpha1::WaitForPodsReady};

use super::{
    Config, KaiSources,
    check::{CheckedConfig, TWICE},
};
use crate::{
    delegation::DelegationBounds,
    expiry::{GraceOnChange, PerFamily},
    floor::{Floors, PartialFloors, ReclaimResolveMethod},
    guard::Guarded,
    kueue::{KueueQueue, KueueQueues},
    message::{DEFAULT_SOURCE, MessageFormat, Receiver, ReceiverUrl, SecretText, check_url},
    notice::NoticePoints,
    owner_table::{OwnerTable, PauseRule},
    queue::wait_for_pods_ready,
    ready::PodsReady,
    reason::EventReason,
    start::LongestFormation,
    usage::DEFAULT_RESOURCE,
};

/// The values of a file, before defaults are filled in.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenConfig {
    #[serde(flatten)]
    floors: FloorRow,
    #[serde(deserialize_with = "parsed")]
    reclaim_resolve_method: ReclaimResolveMethod,
    node_pool_label_key: Option<String>,
    node_pools: Vec<FloorRow>,
    #[serde(deserialize_with = "parsed")]
    expiry_notice: NoticePoints,
    notice_on_pods: bool,
    floor_on_pods: bool,
    #[serde(deserialize_with = "optional")]
    grace_on_change: Option<ExtendedDuration>,
    paused_history_limit: Option<i32>,
    owners: Vec<PauseRule>,
    trusted_writers: BTreeSet<String>,
    #[serde(deserialize_with = "optional")]
    longest_formation: Option<ExtendedDuration>,
    wait_for_pods_ready: Option<WaitForPodsReady>,
    guard: Guarded,
    tenancy: Tenancy,
    kueue: WrittenKueue,
    kai: KaiSources,
    delegation: Delegation,
    usage: Option<Usage>,
    receivers: Vec<WrittenReceiver>,
}

/// Floors of all nodes, of a node pool, or of a queue and those below it. The name is empty for all
/// nodes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FloorRow {
    #[serde(alias = "queue")]
    name: String,
    #[serde(alias = "defaultPreemptMinRuntime", alias = "preemptMinRuntime", deserialize_with = "optional")]
    preempt: Option<ExtendedDuration>,
    #[serde(alias = "defaultReclaimMinRuntime", alias = "reclaimMinRuntime", deserialize_with = "optional")]
    reclaim: Option<ExtendedDuration>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tenancy {
    trusted_writers: BTreeSet<String>,
    default_queue: PerFamily<Option<String>>,
}

/// The block `kueue`. Unset, `enabled` is true.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenKueue {
    enabled: Option<bool>,
    queues: Vec<KueueRow>,
}

/// A row that maps a queue of Kueue's. Exactly one of its first two fields must be set.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KueueRow {
    local_queue: Option<String>,
    cluster_queue: Option<String>,
    queue: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delegation {
    bounds: Vec<FloorRow>,
}

/// The block `usage`. Without `resources`, only `DEFAULT_RESOURCE` is counted.
#[derive(Deserialize)]
struct Usage {
    resources: Option<BTreeSet<String>>,
}

/// A receiver of messages. Exactly one of `url` and `urlFile` must be set.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenReceiver {
    name: String,
    format: MessageFormat,
    url: Option<String>,
    url_file: Option<String>,
    token_file: Option<String>,
    ca_file: Option<String>,
    source: Option<String>,
    reasons: Option<BTreeSet<EventReason>>,
    #[serde(rename = "allowHTTP", default)]
    allow_http: bool,
}

/// Reads a text and parses it.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(value: D) -> Result<T, D::Error> {
    String::deserialize(value)?.parse().map_err(D::Error::custom)
}

/// Reads and parses the text of a key that may be absent.
fn optional<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(value: D) -> Result<Option<T>, D::Error> {
    parsed(value).map(Some)
}

impl WrittenConfig {
    /// Returns the configuration, and adds the errors that several keys together show. The result
    /// counts only if `checked` has no problem.
    pub fn config(self, checked: &mut CheckedConfig<'_>) -> Config {
        let defaults = Floors::default();
        let floors = Floors {
            preempt: self.floors.preempt.unwrap_or(defaults.preempt),
            reclaim: self.floors.reclaim.unwrap_or(defaults.reclaim),
            method: self.reclaim_resolve_method,
            node_pool_label_key: self.node_pool_label_key.unwrap_or(defaults.node_pool_label_key),
            node_pools: self.node_pools.into_iter().map(FloorRow::named).collect(),
        };
        checked.owners(&self.owners);
        let kueue_queues = checked.kueue_queues(self.kueue.queues);
        let (rows, table) = (self.owners.len(), OwnerTable::default().with(self.owners));
        let (grace, formation) = (self.grace_on_change, self.longest_formation);
        Config {
            notice: self.expiry_notice,
            notice_on_pods: self.notice_on_pods,
            floor_on_pods: self.floor_on_pods,
            grace_on_change: grace.map(GraceOnChange).unwrap_or_default(),
            paused_history_limit: checked.paused_history_limit(self.paused_history_limit),
            table: if self.kueue.enabled.unwrap_or(true) { table } else { table.without_workloads() },
            rows,
            floors,
            longest_formation: formation.map(LongestFormation).unwrap_or_default(),
            trusted: self.trusted_writers,
            pods_ready: self.wait_for_pods_ready.map(|wait| checked.pods_ready(&wait)),
            guarded: self.guard,
            tenancy_writers: self.tenancy.trusted_writers,
            default_queues: self.tenancy.default_queue,
            kueue_queues,
            kai: self.kai,
            bounds: checked.bounds(self.delegation.bounds),
            usage: self.usage.map(|of| of.resources.unwrap_or_else(|| [DEFAULT_RESOURCE.to_owned()].into())),
            receivers: checked.receivers(self.receivers),
            set: BTreeSet::new(),
        }
    }
}

impl FloorRow {
    /// Returns the name and the floors.
    fn named(self) -> (String, PartialFloors) {
        let Self { name, preempt, reclaim } = self;
        (name, PartialFloors { preempt, reclaim })
    }
}

impl CheckedConfig<'_> {
    /// Checks that the limit isn't negative. None: the limit is unset or refused.
    fn paused_history_limit(&mut self, limit: Option<i32>) -> Option<usize> {
        let limit = usize::try_from(limit?);
        if limit.is_err() {
            self.refuse_at("pausedHistoryLimit", None, "must be a whole number of at least 0");
        }
        limit.ok()
    }

    /// Checks each row, and that no two rows set the same field of a kind.
    fn owners(&mut self, rules: &[PauseRule]) {
        let mut seen = HashSet::new();
        for (index, rule) in rules.iter().enumerate() {
            let path = format!("owners[{index}]");
            let PauseRule { group, kind, field, .. } = rule;
            if let Err(error) = rule.check() {
                let path = format!("{path}.{}", error.field);
                self.add_at(&path, format!("{path}: {}", error.message()));
            } else if !seen.insert((group, kind, field)) {
                let twice = format!("{path}: {kind} of group {group:?} has a row for {field} already");
                self.add_at(&path, twice);
            }
        }
    }

    /// Checks the block by the rules for queues, and reads it.
    fn pods_ready(&mut self, wait: &WaitForPodsReady) -> PodsReady {
        let mut errors = Vec::new();
        wait_for_pods_ready("waitForPodsReady", wait, &mut errors);
        for error in errors {
            self.add_at(&error.field, error.to_string());
        }
        PodsReady::from(wait)
    }

    /// Reads the rows for queues of Kueue. A row that names none or two queues is refused, and so
    /// is a row for a queue that has one already.
    fn kueue_queues(&mut self, rows: Vec<KueueRow>) -> KueueQueues {
        let mut queues = KueueQueues::default();
        for (index, KueueRow { local_queue, cluster_queue, queue }) in rows.into_iter().enumerate() {
            let path = format!("kueue.queues[{index}]");
            let of_kueue = match (local_queue, cluster_queue) {
                (Some(local), None) => match local.split_once('/') {
                    Some((namespace, name)) => {
                        KueueQueue::Local { namespace: Some(namespace.into()), name: name.into() }
                    }
                    None => KueueQueue::Local { namespace: None, name: local },
                },
                (None, Some(cluster)) => KueueQueue::Cluster(cluster),
                _ => {
                    self.refuse_at(&path, None, "must have exactly one of localQueue and clusterQueue");
                    continue;
                }
            };
            if queues.0.iter().any(|(other, _)| *other == of_kueue) {
                self.refuse_at(&path, None, TWICE);
            } else {
                queues.0.push((of_kueue, queue));
            }
        }
        queues
    }

    /// Reads the bounds of floors. A row without a floor is refused.
    fn bounds(&mut self, rows: Vec<FloorRow>) -> DelegationBounds {
        for (index, row) in rows.iter().enumerate() {
            if row.preempt.is_none() && row.reclaim.is_none() {
                let detail = "must have preemptMinRuntime, reclaimMinRuntime or both";
                self.refuse_at(&format!("delegation.bounds[{index}]"), None, detail);
            }
        }
        DelegationBounds(rows.into_iter().map(FloorRow::named).collect())
    }

    fn receivers(&mut self, rows: Vec<WrittenReceiver>) -> Vec<Receiver> {
        let read = |(index, row)| self.receiver(&format!("receivers[{index}]"), row);
        rows.into_iter().enumerate().filter_map(read).collect()
    }

    /// Reads a receiver. None: its URL is refused, or it doesn't have exactly one.
    fn receiver(&mut self, path: &str, row: WrittenReceiver) -> Option<Receiver> {
        let url = match (row.url, row.url_file) {
            (Some(url), None) => self.url(&format!("{path}.url"), url, row.allow_http)?,
            (None, Some(file)) => ReceiverUrl::InFile(file),
            _ => {
                self.refuse_at(path, Some(&row.name), "must have exactly one of url and urlFile");
                return None;
            }
        };
        Some(Receiver {
            name: row.name,
            format: row.format,
            url,
            token_file: row.token_file,
            ca_file: row.ca_file,
            source: row.source.unwrap_or_else(|| DEFAULT_SOURCE.into()),
            reasons: row.reasons,
            allow_http: row.allow_http,
        })
    }

    /// Checks the URL of a receiver. The path of a URL may be a secret, so an error shows only the
    /// host. None: the URL is refused.
    fn url(&mut self, path: &str, url: String, allow_http: bool) -> Option<ReceiverUrl> {
        if let Err(expected) = check_url(&url, allow_http) {
            let host = check_url(&url, true).ok().and_then(|url| Some(url.authority()?.to_string()));
            let shown = host.map_or_else(|| "<not shown>".to_owned(), |host| format!("http://{host}/…"));
            self.refuse_at(path, Some(&shown), expected);
            return None;
        }
        Some(ReceiverUrl::Of(SecretText(url)))
    }
}
