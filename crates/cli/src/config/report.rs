//! The values that apply with a configuration file, as `config check` prints them.
//!
//! The configuration is taken apart field by field, without `..`: a new field doesn't compile
//! before it is reported here.

use std::collections::BTreeSet;

use serde::Serialize;
use tenure_policy::{
    config::{Config, ConfigFile, ConfigMapKey, METHOD, PREEMPT, RECLAIM},
    expiry::PerFamily,
    floor::{Floors, PartialFloors},
    guard::{Guarded, SchedulerUser, UnknownPreemptor},
    ready::PodsReady,
    requeue::Backoff,
    usage::UsageResources,
};
use tenure_types::runai::v3alpha1::CountFrom;

use crate::print::{cell, tables};

/// The values of a file, for people and programs. An empty list isn't in the JSON.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReport {
    /// The program whose configuration the file is: `Tenure` or `KAI-Scheduler`.
    of: &'static str,
    parameters: Vec<Parameter>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    node_pools: Vec<PoolDefaults>,
    /// The users that may set the start of a `PodGroup`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trusted_writers: Vec<String>,
    /// The users that may move a `PodGroup` to another queue.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    tenancy_writers: BTreeSet<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bounds: Vec<BoundRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<Guarded>,
}

/// A value with the name of its field.
#[derive(Debug, PartialEq, Serialize)]
struct Parameter {
    name: &'static str,
    value: String,
    /// `file` or `default`.
    from: &'static str,
}

/// The defaults of a node pool. A value that the file leaves out is that for all nodes.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolDefaults {
    name: String,
    default_preempt_min_runtime: String,
    default_reclaim_min_runtime: String,
}

/// The longest floors that a queue and the queues below it may set.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct BoundRow {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    preempt_min_runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reclaim_min_runtime: Option<String>,
}

impl ConfigReport {
    /// Returns the values that apply with a file.
    pub fn of(file: &ConfigFile) -> Self {
        let (of, floors, set) = match file {
            ConfigFile::Kai(kai) => ("KAI-Scheduler", &kai.floors, &kai.set),
            ConfigFile::Tenure(config) => ("Tenure", &config.floors, &config.set),
        };
        let Floors { preempt, reclaim, method, node_pools, .. } = floors;
        let mut values = vec![
            (PREEMPT, preempt.to_string()),
            (RECLAIM, reclaim.to_string()),
            (METHOD, method.to_string()),
        ];
        let mut report = Self { of, ..Self::default() };
        if let ConfigFile::Tenure(config) = file {
            values.extend(own(config));
            let pool = |(name, pool): (&String, &PartialFloors)| PoolDefaults {
                name: name.clone(),
                default_preempt_min_runtime: pool.preempt.unwrap_or(*preempt).to_string(),
                default_reclaim_min_runtime: pool.reclaim.unwrap_or(*reclaim).to_string(),
            };
            let bound = |(queue, PartialFloors { preempt, reclaim }): (&String, &PartialFloors)| BoundRow {
                queue: queue.clone(),
                preempt_min_runtime: preempt.map(|bound| bound.to_string()),
                reclaim_min_runtime: reclaim.map(|bound| bound.to_string()),
            };
            report.node_pools = node_pools.iter().map(pool).collect();
            report.trusted_writers = config.trusted.iter().cloned().collect();
            report.tenancy_writers.clone_from(&config.tenancy_writers);
            report.bounds = config.bounds.0.iter().map(bound).collect();
            report.guard = Some(config.guarded.clone());
        }
        let from = |name| if set.contains(name) { "file" } else { "default" };
        let parameter = |(name, value)| Parameter { name, value, from: from(name) };
        report.parameters = values.into_iter().map(parameter).collect();
        report
    }

    /// Returns a table for each part that isn't empty.
    pub fn tables(&self) -> String {
        let Self { of: _, parameters, node_pools, trusted_writers, tenancy_writers, bounds, guard } = self;
        let row =
            |Parameter { name, value, from }: &Parameter| vec![(*name).into(), value.clone(), (*from).into()];
        let pool = |pool: &PoolDefaults| {
            let PoolDefaults {
                name,
                default_preempt_min_runtime: preempt,
                default_reclaim_min_runtime: reclaim,
            } = pool;
            vec![name.clone(), preempt.clone(), reclaim.clone()]
        };
        let pools = node_pools.iter().map(pool).collect();
        let writers = [names(trusted_writers, "start times"), names(tenancy_writers, "queues")].concat();
        let bound = |row: &BoundRow| {
            let BoundRow { queue, preempt_min_runtime: preempt, reclaim_min_runtime: reclaim } = row;
            vec![queue.clone(), cell(preempt.clone()), cell(reclaim.clone())]
        };
        let parts = [
            (vec!["PARAMETER", "VALUE", "FROM"], parameters.iter().map(row).collect()),
            (vec!["NODE POOL", "DEFAULT PREEMPT", "DEFAULT RECLAIM"], pools),
            (vec!["TRUSTED WRITER", "OF"], writers),
            (
                vec!["BOUND OF QUEUE", "LONGEST PREEMPT", "LONGEST RECLAIM"],
                bounds.iter().map(bound).collect(),
            ),
            (vec!["GUARD", "AS"], guard.as_ref().map(guarded).unwrap_or_default()),
        ];
        tables(parts)
    }
}

/// Returns a row for each name, with its role.
fn names<'n>(names: impl IntoIterator<Item = &'n String>, what: &str) -> Vec<Vec<String>> {
    names.into_iter().map(|name| vec![name.clone(), what.to_owned()]).collect()
}

/// Returns the rows of the guard: schedulers, then exempt users, groups and namespaces.
fn guarded(of: &Guarded) -> Vec<Vec<String>> {
    let Guarded { schedulers, exempt_users, exempt_groups, exempt_namespaces } = of;
    let scheduler = |SchedulerUser { name, unknown_preemptor }: &SchedulerUser| {
        let unknown = match unknown_preemptor {
            UnknownPreemptor::Stricter => "",
            UnknownPreemptor::Weaker => ", unknown preemptor: weaker",
        };
        vec![name.clone(), format!("scheduler{unknown}")]
    };
    let lists = [
        schedulers.iter().map(scheduler).collect(),
        names(exempt_users, "exempt user"),
        names(exempt_groups, "exempt group"),
        names(exempt_namespaces, "exempt namespace"),
    ];
    lists.concat()
}

/// Returns the parameters that only Tenure's own form of the file has, with their values as text.
/// Lists are counted.
fn own(config: &Config) -> [(&'static str, String); 24] {
    let count = |number: usize, noun: &str| match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    };
    let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".into());
    let Config {
        notice,
        notice_on_pods,
        floor_on_pods,
        grace_on_change,
        paused_history_limit,
        // `rows` counts the rows of the file
        table,
        floors,
        longest_formation,
        trusted,
        pods_ready: readiness,
        guarded: Guarded { schedulers, exempt_users, exempt_groups, exempt_namespaces },
        tenancy_writers,
        default_queues: PerFamily { tensorstack, runai },
        kueue_queues,
        kai,
        bounds: delegated,
        receivers,
        usage: counted,
        set: _,
        rows,
    } = config;
    [
        ("nodePoolLabelKey", floors.node_pool_label_key.clone()),
        ("expiryNotice", notice.to_string()),
        ("noticeOnPods", notice_on_pods.to_string()),
        ("floorOnPods", floor_on_pods.to_string()),
        ("graceOnChange", grace_on_change.0.to_string()),
        ("pausedHistoryLimit", paused_history_limit.map_or_else(|| "none".into(), |most| most.to_string())),
        ("waitForPodsReady", readiness.as_ref().map_or_else(|| "off".to_owned(), pods_ready)),
        ("owners", count(*rows, "row")),
        ("longestFormation", longest_formation.0.to_string()),
        ("trustedWriters", count(trusted.len(), "user")),
        ("tenancy.trustedWriters", count(tenancy_writers.len(), "user")),
        ("tenancy.defaultQueue.runai", or_none(runai)),
        ("tenancy.defaultQueue.tensorstack", or_none(tensorstack)),
        ("kueue.enabled", table.has_workloads().to_string()),
        ("kueue.queues", count(kueue_queues.0.len(), "row")),
        ("kai.configMap", kai.config_map.as_ref().map_or_else(|| "none".to_owned(), config_map)),
        ("kai.shards", kai.shards.to_string()),
        ("delegation.bounds", count(delegated.0.len(), "queue")),
        ("usage.resources", counted.as_ref().map_or_else(|| "off".to_owned(), usage)),
        ("receivers", count(receivers.len(), "receiver")),
        ("guard.schedulers", count(schedulers.len(), "user")),
        ("guard.exemptUsers", count(exempt_users.len(), "user")),
        ("guard.exemptGroups", count(exempt_groups.len(), "group")),
        ("guard.exemptNamespaces", count(exempt_namespaces.len(), "namespace")),
    ]
}

/// Returns the names of counted resources: `cpu, nvidia.com/gpu`.
fn usage(resources: &UsageResources) -> String {
    resources.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Returns a key of a ConfigMap: `kai-scheduler/scheduler-config, config.yaml`.
fn config_map(of: &ConfigMapKey) -> String {
    let ConfigMapKey { namespace, name, key } = of;
    format!("{namespace}/{name}, {key}")
}

/// Returns the rules for pods that don't get ready: `10m, back after 60s × 2, at most 3600s, 10
/// times, by Eviction`.
fn pods_ready(of: &PodsReady) -> String {
    let PodsReady { is_enabled, backoff, count_from, recovery, timestamp, on_capacity } = of;
    if !is_enabled {
        return "off".to_owned();
    }
    let Backoff { timeout, base_seconds, factor, max_seconds, limit } = backoff;
    let parts = [
        Some(timeout.to_string()),
        (*count_from == CountFrom::Creation).then(|| "from creation".to_owned()),
        recovery.map(|recovery| format!("recovery {recovery}")),
        Some(format!("back after {base_seconds}s × {factor}")),
        max_seconds.map(|max| format!("at most {max}s")),
        limit.map(|limit| format!("{limit} times")),
        Some(format!("by {timestamp:?}")),
        on_capacity.then(|| "earlier on capacity".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        ConfigReport::of(&ConfigFile::parse(text).unwrap()).tables()
    }

    #[test]
    fn each_parameter_is_shown_with_where_it_is_from() {
        let text = "\
defaultReclaimMinRuntime: 1h
nodePools: [{name: a100, defaultPreemptMinRuntime: 1d}]
owners: [{group: a.b, kind: Thing, path: spec.x, value: 0}]
trustedWriters: ['system:serviceaccount:kai-scheduler:scheduler']
";
        let expected = "\
PARAMETER                          VALUE                     FROM
defaultPreemptMinRuntime           0s                        default
defaultReclaimMinRuntime           1h                        file
reclaimResolveMethod               lca                       default
nodePoolLabelKey                   kai.scheduler/node-pool   default
expiryNotice                       0s                        default
noticeOnPods                       false                     default
floorOnPods                        false                     default
graceOnChange                      1m                        default
pausedHistoryLimit                 none                      default
waitForPodsReady                   off                       default
owners                             1 row                     file
longestFormation                   30m                       default
trustedWriters                     1 user                    file
tenancy.trustedWriters             0 users                   default
tenancy.defaultQueue.runai         none                      default
tenancy.defaultQueue.tensorstack   none                      default
kueue.enabled                      true                      default
kueue.queues                       0 rows                    default
kai.configMap                      none                      default
kai.shards                         false                     default
delegation.bounds                  0 queues                  default
usage.resources                    off                       default
receivers                          0 receivers               default
guard.schedulers                   1 user                    default
guard.exemptUsers                  0 users                   default
guard.exemptGroups                 0 groups                  default
guard.exemptNamespaces             1 namespace               default

NODE POOL   DEFAULT PREEMPT   DEFAULT RECLAIM
a100        1d                1h

TRUSTED WRITER                                  OF
system:serviceaccount:kai-scheduler:scheduler   start times

GUARD                   AS
system:kube-scheduler   scheduler
kube-system             exempt namespace
";
        assert_eq!(printed(text), expected);
    }

    #[test]
    fn each_parameter_is_a_key_of_the_file() {
        for Parameter { name, .. } in ConfigReport::of(&ConfigFile::parse("").unwrap()).parameters {
            assert!(Config::keys().any(|key| key == name), "{name}");
        }
    }

    #[test]
    fn where_nobody_is_trusted_or_guarded_against_nobody_is_shown() {
        let printed = printed("{trustedWriters: [], guard: {schedulers: [], exemptNamespaces: []}}");
        assert!(
            printed.contains("\ntrustedWriters                     0 users                   file\n"),
            "{printed}"
        );
        assert!(
            printed.ends_with("\nguard.exemptNamespaces             0 namespaces              file\n"),
            "{printed}"
        );
    }

    #[test]
    fn trusted_writers_are_shown_with_what_they_may_write() {
        let printed = printed("{trustedWriters: [a], tenancy: {trustedWriters: [b]}}");
        let expected = "\nTRUSTED WRITER   OF\na                start times\nb                queues\n";
        assert!(printed.contains(expected), "{printed}");
    }

    #[test]
    fn bounds_are_shown_with_their_queues() {
        let printed = printed("delegation: {bounds: [{queue: research, preemptMinRuntime: 90m}]}");
        let expected = "\nBOUND OF QUEUE   LONGEST PREEMPT   LONGEST RECLAIM\nresearch         90m               <none>\n";
        assert!(printed.contains(expected), "{printed}");
        assert!(
            printed.contains("\ndelegation.bounds                  1 queue                   file\n"),
            "{printed}"
        );
    }

    #[test]
    fn when_workloads_make_room_that_do_not_get_ready_is_shown() {
        let by_default = printed("waitForPodsReady: {}");
        let expected =
            "\nwaitForPodsReady                   5m, back after 1s × 1.41284738, by Eviction   file\n";
        assert!(by_default.contains(expected), "{by_default}");
        let strategy = "{timestamp: Creation, backoffBaseSeconds: 60, backoffFactor: '2', backoffMaxSeconds: 3600, backoffLimitCount: 10}";
        let text =
            format!("waitForPodsReady: {{timeout: 10m, recoveryTimeout: 1m, requeuingStrategy: {strategy}}}");
        let expected = " 10m, recovery 1m, back after 60s × 2, at most 3600s, 10 times, by Creation   file\n";
        assert!(printed(&text).contains(expected), "{}", printed(&text));
        let expected =
            " 5m, from creation, back after 1s × 1.41284738, by Eviction, earlier on capacity   file\n";
        let text = "waitForPodsReady: {countFrom: Creation, requeuingStrategy: {onCapacity: true}}";
        assert!(printed(text).contains(expected), "{}", printed(text));
        assert!(printed("waitForPodsReady: {enable: false}").contains(" off "));
    }

    #[test]
    fn what_is_compared_of_kais_is_shown() {
        let printed = printed("kai: {shards: true, configMap: {namespace: a, name: b}}");
        for expected in [
            "\nkai.configMap                      a/b, config.yaml ",
            "\nkai.shards                         true ",
        ] {
            assert!(printed.contains(expected), "{printed}");
        }
    }

    #[test]
    fn who_is_exempt_is_shown_by_what_it_is() {
        let text = "guard: {schedulers: [volcano, {name: kai, unknownPreemptor: weaker}], exemptUsers: [a], exemptGroups: [b], exemptNamespaces: [c]}";
        let expected = "
GUARD     AS
volcano   scheduler
kai       scheduler, unknown preemptor: weaker
a         exempt user
b         exempt group
c         exempt namespace
";
        assert!(printed(text).ends_with(expected), "{}", printed(text));
    }

    #[test]
    fn of_kai_only_what_its_plugin_has_is_shown() {
        let arguments = "{defaultPreemptMinRuntime: 5m, defaultReclaimMinRuntime: '5'}";
        let text = format!("tiers: [{{plugins: [{{name: minruntime, arguments: {arguments}}}]}}]");
        let expected = "\
PARAMETER                  VALUE   FROM
defaultPreemptMinRuntime   5m      file
defaultReclaimMinRuntime   0s      default
reclaimResolveMethod       lca     default
";
        assert_eq!(printed(&text), expected);
    }

    #[test]
    fn json_and_yaml_say_the_same() {
        let report =
            ConfigReport::of(&ConfigFile::parse("{nodePools: [{name: a}], trustedWriters: [kai]}").unwrap());
        let json = serde_json::to_value(&report).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&serde_saphyr::to_string(&report).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(json["nodePools"][0]["defaultPreemptMinRuntime"], "0s");
        assert_eq!(json["parameters"][2]["name"], "reclaimResolveMethod");
        assert_eq!(json["trustedWriters"][0], "kai");
        assert_eq!(json["guard"]["exemptNamespaces"][0], "kube-system");
        assert_eq!(json["guard"]["schedulers"][0]["unknownPreemptor"], "stricter");
    }
}
