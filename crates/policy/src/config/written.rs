//! A file as it is written, once its keys are checked, and what of it can only be checked together.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Display,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, de::Error};
use tenure_types::{ExtendedDuration, runai::v3alpha1::WaitForPodsReady};

use super::{
    Config, KaiSources, Kueue,
    check::{Checked, TWICE},
    tree::YamlNode,
};
use crate::{
    delegation::{Bound, Bounds},
    expiry::GraceOnChange,
    field::FieldError,
    floor::{Floors, NodePool, ReclaimResolveMethod},
    guard::Guarded,
    kueue::{KueueQueue, Queues},
    message::{DEFAULT_SOURCE, MessageFormat, Receiver, ReceiverUrl, SecretText, check_url},
    notice::NoticePoints,
    owners::{OwnerTable, PauseRule},
    queue::wait_for_pods_ready,
    ready::PodsReady,
    reason::EventReason,
    start::LongestFormation,
    usage::DEFAULT_RESOURCE,
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenConfig {
    #[serde(flatten)]
    floors: WrittenPool,
    #[serde(deserialize_with = "parsed")]
    reclaim_resolve_method: ReclaimResolveMethod,
    node_pool_label_key: Option<String>,
    node_pools: Vec<WrittenPool>,
    #[serde(deserialize_with = "parsed")]
    expiry_notice: NoticePoints,
    notice_on_pods: bool,
    #[serde(deserialize_with = "optional")]
    grace_on_change: Option<ExtendedDuration>,
    owners: Vec<PauseRule>,
    trusted_writers: Option<BTreeSet<String>>,
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

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenPool {
    name: String,
    #[serde(deserialize_with = "optional")]
    default_preempt_min_runtime: Option<ExtendedDuration>,
    #[serde(deserialize_with = "optional")]
    default_reclaim_min_runtime: Option<ExtendedDuration>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tenancy {
    trusted_writers: BTreeSet<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenKueue {
    enabled: Option<bool>,
    queues: Vec<KueueRow>,
}

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
    bounds: Vec<BoundRow>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BoundRow {
    queue: String,
    #[serde(deserialize_with = "optional")]
    preempt_min_runtime: Option<ExtendedDuration>,
    #[serde(deserialize_with = "optional")]
    reclaim_min_runtime: Option<ExtendedDuration>,
}

#[derive(Deserialize)]
struct Usage {
    resources: Option<BTreeSet<String>>,
}

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
    reasons: Option<Vec<String>>,
    #[serde(rename = "allowHTTP", default)]
    allow_http: bool,
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(value: D) -> Result<T, D::Error> {
    String::deserialize(value)?.parse().map_err(D::Error::custom)
}

fn optional<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(value: D) -> Result<Option<T>, D::Error> {
    parsed(value).map(Some)
}

impl WrittenConfig {
    /// Returns the configuration. It counts only if no problem was found.
    pub fn config(self, root: &YamlNode, checked: &mut Checked) -> Config {
        let Self {
            floors: WrittenPool { name: _, default_preempt_min_runtime, default_reclaim_min_runtime },
            reclaim_resolve_method,
            node_pool_label_key,
            node_pools,
            expiry_notice,
            notice_on_pods,
            grace_on_change,
            owners,
            trusted_writers,
            longest_formation,
            wait_for_pods_ready,
            guard,
            tenancy,
            kueue,
            kai,
            delegation,
            usage,
            receivers,
        } = self;
        let defaults = Floors::default();
        let floors = Floors {
            preempt: default_preempt_min_runtime.unwrap_or(defaults.preempt),
            reclaim: default_reclaim_min_runtime.unwrap_or(defaults.reclaim),
            method: reclaim_resolve_method,
            node_pool_label_key: node_pool_label_key.unwrap_or(defaults.node_pool_label_key),
            node_pools: node_pools.into_iter().map(WrittenPool::named).collect(),
        };
        let mut place = Place { root, checked };
        place.owners(&owners);
        let kueue =
            Kueue { enabled: kueue.enabled.unwrap_or(true), queues: place.kueue_queues(kueue.queues) };
        let (rows, table) = (owners.len(), OwnerTable::default().with(owners));
        Config {
            notice: expiry_notice,
            notice_on_pods,
            grace_on_change: grace_on_change.map(|of| GraceOnChange(of.to_signed())).unwrap_or_default(),
            table: if kueue.enabled { table } else { table.without_workloads() },
            rows,
            floors,
            longest_formation: longest_formation
                .map(|of| LongestFormation(of.to_signed()))
                .unwrap_or_default(),
            trusted: trusted_writers.map(|names| names.into_iter().collect()).unwrap_or_default(),
            pods_ready: wait_for_pods_ready.map(|wait| place.pods_ready(&wait)),
            guarded: guard,
            tenancy_writers: tenancy.trusted_writers,
            kueue,
            kai,
            bounds: place.bounds(delegation.bounds),
            usage: usage.map(|usage| usage.resources.unwrap_or_else(|| [DEFAULT_RESOURCE.to_owned()].into())),
            receivers: place.receivers(receivers),
            set: BTreeSet::new(),
        }
    }
}

impl WrittenPool {
    fn named(self) -> (String, NodePool) {
        let Self { name, default_preempt_min_runtime: preempt, default_reclaim_min_runtime: reclaim } = self;
        (name, NodePool { preempt, reclaim })
    }
}

/// The file in which problems are found.
struct Place<'p> {
    root: &'p YamlNode,
    checked: &'p mut Checked,
}

impl Place<'_> {
    /// Refuses the value of a path, which is shown as this text or, without one, as it is written.
    fn refuse(&mut self, path: &str, shown: Option<&str>, detail: &str) {
        let node = self.root.at(path).unwrap_or(self.root);
        let shown = shown.map_or_else(|| node.to_json(), Into::into);
        self.checked.refuse(node, path, shown, detail);
    }

    fn owners(&mut self, rules: &[PauseRule]) {
        let mut seen = HashSet::new();
        for (index, rule) in rules.iter().enumerate() {
            let path = format!("owners[{index}]");
            let PauseRule { group, kind, field, .. } = rule;
            if let Err(error) = rule.check() {
                let field = format!("{path}.{}", error.field);
                self.checked.add_at(self.root, &FieldError { field, ..error });
            } else if !seen.insert((group, kind, field)) {
                let line = self.root.at(&path).map_or(self.root.line, |node| node.line);
                let twice = format!("{path}: {kind} of group {group:?} has a row for {field} already");
                self.checked.add(line, twice);
            }
        }
    }

    fn pods_ready(&mut self, wait: &WaitForPodsReady) -> PodsReady {
        let mut errors = Vec::new();
        wait_for_pods_ready("waitForPodsReady", wait, &mut errors);
        for error in errors {
            self.checked.add_at(self.root, &error);
        }
        PodsReady::from(wait)
    }

    fn kueue_queues(&mut self, rows: Vec<KueueRow>) -> Queues {
        let mut queues = Queues::default();
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
                    self.refuse(&path, None, "must have one of localQueue and clusterQueue");
                    continue;
                }
            };
            if queues.0.iter().any(|(other, _)| *other == of_kueue) {
                self.refuse(&path, None, TWICE);
            } else {
                queues.0.push((of_kueue, queue));
            }
        }
        queues
    }

    fn bounds(&mut self, rows: Vec<BoundRow>) -> Bounds {
        let mut bounds = Bounds::default();
        for (index, row) in rows.into_iter().enumerate() {
            let BoundRow { queue, preempt_min_runtime: preempt, reclaim_min_runtime: reclaim } = row;
            if preempt.is_none() && reclaim.is_none() {
                let detail = "must have preemptMinRuntime, reclaimMinRuntime or both";
                self.refuse(&format!("delegation.bounds[{index}]"), None, detail);
            }
            bounds.0.insert(queue, Bound { preempt, reclaim });
        }
        bounds
    }

    fn receivers(&mut self, rows: Vec<WrittenReceiver>) -> Vec<Receiver> {
        let read = |(index, row)| self.receiver(&format!("receivers[{index}]"), row);
        rows.into_iter().enumerate().filter_map(read).collect()
    }

    fn receiver(&mut self, path: &str, row: WrittenReceiver) -> Option<Receiver> {
        let WrittenReceiver { name, format, url, url_file, token_file, ca_file, source, reasons, allow_http } =
            row;
        let url = match (url, url_file) {
            (Some(url), None) => self.url(&format!("{path}.url"), url, allow_http)?,
            (None, Some(file)) => ReceiverUrl::InFile(file),
            _ => {
                self.refuse(path, Some(&name), "must have one of url and urlFile");
                return None;
            }
        };
        let named = |names: Vec<String>| names.iter().filter_map(|name| EventReason::named(name)).collect();
        Some(Receiver {
            name,
            format,
            url,
            token_file,
            ca_file,
            source: source.unwrap_or_else(|| DEFAULT_SOURCE.into()),
            reasons: reasons.map(named),
            allow_http,
        })
    }

    /// The path of a URL may be a secret. Only its host is shown.
    fn url(&mut self, path: &str, url: String, allow_http: bool) -> Option<ReceiverUrl> {
        if let Err(expected) = check_url(&url, allow_http) {
            let host = check_url(&url, true).ok().and_then(|url| Some(url.authority()?.to_string()));
            let shown = host.map_or_else(|| "<not shown>".to_owned(), |host| format!("http://{host}/…"));
            self.refuse(path, Some(&shown), expected);
            return None;
        }
        Some(ReceiverUrl::Of(SecretText(url)))
    }
}
