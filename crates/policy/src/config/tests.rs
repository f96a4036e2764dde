mod delegation;
mod guard;
mod kai_sources;
mod receivers;
mod tenancy;
mod usage;

use std::iter;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_types::{
    ExtendedDuration,
    runai::v3alpha1::{CountFrom, OnReversal, RequeuingTimestamp},
};

use super::*;
use crate::{
    floor::{PartialFloors, ReclaimResolveMethod},
    guard::SchedulerUser,
    kueue::KueueQueue,
    requeue::Backoff,
};

fn duration(text: &str) -> ExtendedDuration {
    text.parse().unwrap()
}

fn complaints(text: &str) -> Vec<String> {
    Config::parse(text).unwrap_err().problems.iter().map(ToString::to_string).collect()
}

fn knows(config: &Config, api_version: &str, kind: &str) -> bool {
    let owner =
        OwnerReference { api_version: api_version.into(), kind: kind.into(), ..OwnerReference::default() };
    config.table.knows(&owner)
}

const ALL: &str = "\
defaultPreemptMinRuntime: 10m
defaultReclaimMinRuntime: 1d
reclaimResolveMethod: queue
nodePoolLabelKey: example.com/pool
nodePools:
- name: a100
  defaultPreemptMinRuntime: 1h
- {name: h100, defaultReclaimMinRuntime: 0s}
expiryNotice: 10m,1h
noticeOnPods: true
floorOnPods: true
graceOnChange: 30s
pausedHistoryLimit: 3
owners:
- {group: argoproj.io, kind: Rollout, path: spec.replicas, value: 0}
trustedWriters: ['system:serviceaccount:a:b', admin]
waitForPodsReady:
  enable: true
  timeout: 10m
  countFrom: Creation
  blockAdmission: false
  requeuingStrategy: {timestamp: Creation, backoffLimitCount: 0, backoffFactor: '2', onCapacity: true}
guard: {schedulers: [volcano]}
kueue: {enabled: true}
kai: {shards: true}
receivers: [{name: ops, format: Slack, urlFile: /url}]
";

#[test]
fn each_field_is_read() {
    let config = Config::parse(ALL).unwrap();
    let Floors { preempt, reclaim, method, node_pool_label_key, node_pools } = &config.floors;
    assert_eq!((*preempt, *reclaim), (duration("10m"), duration("24h")));
    assert_eq!((*method, node_pool_label_key.as_str()), (ReclaimResolveMethod::Queue, "example.com/pool"));
    assert_eq!(node_pools["a100"], PartialFloors { preempt: Some(duration("1h")), reclaim: None });
    assert_eq!(node_pools["h100"], PartialFloors { preempt: None, reclaim: Some(duration("0s")) });
    assert_eq!((config.notice.to_string(), config.notice_on_pods), ("1h,10m".to_owned(), true));
    assert_eq!((config.rows, config.set.len()), (1, 29));
    assert_eq!((config.floor_on_pods, config.paused_history_limit), (true, Some(3)));
    assert_eq!(Config::default().paused_history_limit, None);
    assert_eq!(config.grace_on_change, GraceOnChange(duration("30s")));
    assert_eq!(Config::default().grace_on_change, GraceOnChange(duration("1m")));
    assert_eq!(config.trusted.iter().collect::<Vec<_>>(), ["admin", "system:serviceaccount:a:b"]);
    let pods_ready = config.pods_ready.unwrap();
    let expected = Backoff { timeout: duration("10m"), factor: 2.0, limit: Some(0), ..Backoff::default() };
    assert_eq!((pods_ready.backoff, pods_ready.recovery), (expected, None));
    assert_eq!(pods_ready.timestamp, RequeuingTimestamp::Creation);
    assert_eq!((pods_ready.count_from, pods_ready.on_capacity), (CountFrom::Creation, true));
    assert!(pods_ready.is_enabled);
    assert_eq!(config.guarded.schedulers, [SchedulerUser::named("volcano")]);
    assert!(knows(&config, "argoproj.io/v1alpha1", "Rollout"));
    assert!(knows(&config, "apps/v1", "Deployment"));
}

/// The page of reference, and that of the block whose fields queues have as well.
const PAGE: &str = include_str!("../../../../docs/configuration.md");
const PAGE_OF_READINESS: &str = include_str!("../../../../docs/requeue.md");

/// The key that a file is refused for, by name. No file may have it.
const REFUSED: &str = "waitForPodsReady.requeuingStrategy.backoffLimitTimeout";

/// The paths of all keys that a reader asks for in a file like this one, without the indices of lists.
fn known_keys(file: &Value) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for pointer in maps(file, "") {
        let mut file = file.clone();
        file.pointer_mut(&pointer).unwrap()["zzzz"] = json!(1);
        let complaints = complaints(&file.to_string());
        let (path, names) =
            complaints.iter().find_map(|text| text.split_once("zzzz: Unknown field: known here: ")).unwrap();
        let path = path.split_once(": ").unwrap().1;
        let path: String = path.split(['[', ']']).step_by(2).collect();
        known.extend(names.split(", ").map(|name| format!("{path}{name}")));
    }
    known
}

/// The JSON pointers to all maps.
fn maps(value: &Value, at: &str) -> Vec<String> {
    let below = |(key, value): (String, &Value)| maps(value, &format!("{at}/{key}"));
    match value {
        Value::Object(fields) => {
            let below = fields.iter().flat_map(|(name, value)| below((name.clone(), value)));
            iter::once(at.to_owned()).chain(below).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(n, it)| below((n.to_string(), it))).collect()
        }
        _ => Vec::new(),
    }
}

/// The paths of the keys that a file sets.
fn set_keys(value: &Value, path: &str) -> BTreeSet<String> {
    match value {
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let mut keys = set_keys(value, &path);
                keys.insert(path);
                keys
            };
            fields.iter().flat_map(of).collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| set_keys(item, path)).collect(),
        _ => BTreeSet::new(),
    }
}

/// The texts between backticks in the first cells of a section's tables.
fn listed(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').step_by(2)).map(|key| key.replace("[]", "")).collect()
}

/// Adds the paths above, of maps, which have no row of their own.
fn with_those_above(keys: BTreeSet<String>) -> BTreeSet<String> {
    let above = |key: String| key.match_indices('.').map(|(at, _)| key[..at].to_owned()).collect::<Vec<_>>();
    let all: Vec<String> = keys.iter().cloned().flat_map(above).collect();
    keys.into_iter().chain(all).collect()
}

#[test]
fn the_page_of_reference_has_every_key_and_no_other() {
    let example = PAGE.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    Config::parse(example).unwrap();
    let example: Value = serde_saphyr::from_str(example).unwrap();
    let mut known = known_keys(&example);
    assert!(known.len() > 40, "{known:?}");
    assert!(known.remove(REFUSED));
    assert_eq!(set_keys(&example, ""), known);

    let (of_readiness, others): (BTreeSet<_>, _) =
        known.into_iter().partition(|key| key.starts_with("waitForPodsReady."));
    assert_eq!(with_those_above(listed(PAGE, "Keys")), others);
    let of_readiness: BTreeSet<_> = of_readiness
        .into_iter()
        .chain([REFUSED.to_owned()])
        .map(|key| key["waitForPodsReady.".len()..].to_owned())
        .collect();
    assert_eq!(with_those_above(listed(PAGE_OF_READINESS, "Configuration")), of_readiness);
}

#[test]
fn workloads_of_kueues_are_paused_unless_the_file_says_otherwise() {
    for text in ["", "kueue: ~", "kueue: {}", "kueue: {enabled: ~}", "kueue: {enabled: true}"] {
        assert!(knows(&Config::parse(text).unwrap(), "kueue.x-k8s.io/v1beta2", "Workload"), "{text}");
    }
    let off = Config::parse("kueue: {enabled: false}").unwrap();
    assert!(!knows(&off, "kueue.x-k8s.io/v1beta2", "Workload"));
    let expected = "line 1: kueue.enabled: Invalid value: \"yes\": must be true or false";
    assert_eq!(complaints("kueue: {enabled: 'yes'}"), [expected]);
}

#[test]
fn queues_of_kueues_stand_for_queues_in_the_order_of_the_file() {
    let config = Config::parse(
        "kueue:\n  queues:\n  - {localQueue: a/main, queue: q}\n  - {localQueue: main, queue: r}\n  - {clusterQueue: gpu, queue: q}\n",
    )
    .unwrap();
    let local = |namespace: Option<&str>| KueueQueue::Local {
        namespace: namespace.map(str::to_owned),
        name: "main".into(),
    };
    let expected = [(local(Some("a")), "q"), (local(None), "r"), (KueueQueue::Cluster("gpu".into()), "q")];
    assert_eq!(config.kueue_queues.0, expected.map(|(queue, of)| (queue, of.to_owned())));
    for (row, path, detail) in [
        (
            "{localQueue: a, clusterQueue: a, queue: q}",
            "",
            "must have exactly one of localQueue and clusterQueue",
        ),
        ("{queue: q}", "", "must have exactly one of localQueue and clusterQueue"),
        (
            "{localQueue: a/b/c, queue: q}",
            ".localQueue",
            "must be the name of a LocalQueue, or its namespace",
        ),
        ("{localQueue: a, queue: Q}", ".queue", "must be the name of an object"),
        ("{clusterQueue: ' ', queue: q}", ".clusterQueue", "must be the name of an object"),
    ] {
        let complaint = complaints(&format!("kueue: {{queues: [{row}]}}")).remove(0);
        let start = format!("line 1: kueue.queues[0]{path}: Invalid value: ");
        assert!(complaint.starts_with(&start) && complaint.contains(detail), "{complaint}");
    }
    let twice = "kueue: {queues: [{localQueue: a, queue: q}, {localQueue: a, queue: r}]}";
    assert!(complaints(twice)[0].ends_with("is in the list already"));
    assert_eq!(
        complaints("kueue: {queues: [{localQueue: a}]}"),
        ["line 1: kueue.queues[0].queue: Required value"]
    );
}

#[test]
fn a_row_may_say_that_kueue_goes_by_its_field() {
    let row = |more: &str| {
        format!("owners: [{{group: example.com, kind: Service, path: spec.replicas, value: 0{more}}}]")
    };
    for (more, expected) in [("", false), (", decidesActivation: true", true)] {
        let config = Config::parse(&row(more)).unwrap();
        let (api_version, kind) = ("example.com/v1".into(), "Service".into());
        let owner = OwnerReference { api_version, kind, ..OwnerReference::default() };
        assert!(config.table.rules(&owner).all(|rule| rule.decides_activation == expected), "{more}");
    }
    let expected = "line 1: owners[0].decidesActivation: Invalid value: 1: must be true or false";
    assert_eq!(complaints(&row(", decidesActivation: 1")), [expected]);
}

#[test]
fn a_row_may_say_what_happens_when_pauses_are_undone() {
    let row = |more: &str| {
        format!("owners: [{{group: example.com, kind: Service, path: spec.replicas, value: 0{more}}}]")
    };
    for (more, expected) in [
        ("", None),
        (", onReversal: Pause", Some(OnReversal::Pause)),
        (", onReversal: DeletePods", Some(OnReversal::DeletePods)),
    ] {
        let config = Config::parse(&row(more)).unwrap();
        let (api_version, kind) = ("example.com/v1".into(), "Service".into());
        let owner = OwnerReference { api_version, kind, ..OwnerReference::default() };
        assert_eq!(config.table.on_reversal(&owner), expected, "{more}");
    }
    for bad in ["Delete", "5"] {
        let complaint = complaints(&row(&format!(", onReversal: {bad}"))).remove(0);
        let start = "line 1: owners[0].onReversal: Invalid value: ";
        assert!(complaint.starts_with(start), "{complaint}");
        assert!(complaint.ends_with(": must be Pause or DeletePods"), "{complaint}");
    }
}

#[test]
fn a_row_may_say_that_owners_are_deleted_at_their_ceiling() {
    let row =
        |more: &str| format!("owners: [{{group: batch, kind: Job, path: spec.suspend, value: true{more}}}]");
    let (api_version, kind) = ("batch/v1".into(), "Job".into());
    let owner = OwnerReference { api_version, kind, ..OwnerReference::default() };
    for (more, expected) in [("", false), (", onExpiry: Pause", false), (", onExpiry: Delete", true)] {
        let config = Config::parse(&row(more)).unwrap();
        assert_eq!(config.table.deletes(&owner), expected, "{more}");
        assert_eq!(config.table.rules(&owner).count(), 1, "it replaces the built-in rule");
    }
    let expected =
        "line 1: owners[0].onExpiry: Invalid value: \"DeletePods\": must be Pause or Delete".to_owned();
    assert_eq!(complaints(&row(", onExpiry: DeletePods")), [expected]);
    let workload = "owners:\n- {group: kueue.x-k8s.io, kind: Workload, path: spec.active, value: false, onExpiry: Delete}";
    let expected = "line 2: owners[0].onExpiry: Invalid value: \"Delete\": must be Pause for a Workload of Kueue, which makes another one for the same job";
    assert_eq!(complaints(workload), [expected]);
}

#[test]
fn an_empty_file_is_the_defaults() {
    let nulls = "owners:\nexpiryNotice: null\ndefaultPreemptMinRuntime: ~\nnodePools: []\n";
    for text in ["", "\n", "# nothing\n", "{}", "owners: []\n", nulls] {
        let config = Config { set: BTreeSet::new(), ..Config::parse(text).unwrap() };
        assert_eq!(config, Config::default(), "{text:?}");
    }
}

#[test]
fn workloads_that_do_not_get_ready_are_left_alone_unless_there_is_a_block() {
    for unset in ["", "waitForPodsReady: ~"] {
        assert_eq!(Config::parse(unset).unwrap().pods_ready, None);
    }
    let by_default = Config::parse("waitForPodsReady: {}").unwrap().pods_ready.unwrap();
    assert_eq!((by_default.backoff, by_default.recovery), (Backoff::default(), None));
    assert_eq!(by_default.timestamp, RequeuingTimestamp::Eviction);
}

#[test]
fn writers_are_trusted_by_their_exact_names() {
    let scheduler = "system:serviceaccount:kai-scheduler:scheduler";
    assert!(!Config::default().trusted.contains(scheduler));
    let kai = Config::parse(&format!("trustedWriters: ['{scheduler}']")).unwrap().trusted;
    assert!(kai.contains(scheduler));
    for other in ["", "scheduler", "system:serviceaccount:kai-scheduler:podgrouper", "system:admin"] {
        assert!(!kai.contains(other), "{other}");
    }
    let two = Config::parse("trustedWriters: [b, a]").unwrap().trusted;
    assert_eq!(two.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert!(!two.contains(scheduler));
}

#[test]
fn an_empty_list_of_trusted_writers_trusts_no_user() {
    assert_eq!(Config::parse("trustedWriters: []").unwrap().trusted.len(), 0);
    for unset in ["", "trustedWriters: ~"] {
        assert_eq!(Config::parse(unset).unwrap().trusted.len(), 0, "{unset}");
    }
}

#[test]
fn a_bad_value_is_refused_with_its_line_and_path() {
    for (text, expected) in [
        (
            "nodePools:\n- name: a\n  defaultPreemptMinRuntime: 10 s\n",
            "line 3: nodePools[0].defaultPreemptMinRuntime: Invalid value: \"10 s\": must be a duration such as 10m, 1h30m or 1d: ",
        ),
        (
            "\ndefaultReclaimMinRuntime: 10\n",
            "line 2: defaultReclaimMinRuntime: Invalid value: 10: must be a duration",
        ),
        (
            "defaultReclaimMinRuntime: +5s",
            "line 1: defaultReclaimMinRuntime: Invalid value: \"+5s\": must be a duration such as 10m, 1h30m or 1d: a sign is not allowed",
        ),
        (
            "defaultReclaimMinRuntime: {a: 1}",
            "line 1: defaultReclaimMinRuntime: Invalid value: {\"a\":1}: must be",
        ),
        (
            "reclaimResolveMethod: LCA",
            "line 1: reclaimResolveMethod: Invalid value: \"LCA\": must be lca (the default) or queue",
        ),
        (
            "nodePoolLabelKey: a/b/c",
            "line 1: nodePoolLabelKey: Invalid value: \"a/b/c\": must be the key of a label",
        ),
        ("nodePoolLabelKey: ''", "line 1: nodePoolLabelKey: Invalid value: \"\": must be the key"),
        ("nodePools: {}", "line 1: nodePools: Invalid value: {}: must be a list"),
        ("nodePools: [a]", "line 1: nodePools[0]: Invalid value: \"a\": must be a map of fields"),
        ("nodePools:\n- defaultPreemptMinRuntime: 1m", "line 2: nodePools[0].name: Required value"),
        ("nodePools: [{name: ''}]", "line 1: nodePools[0].name: Invalid value: \"\": must be the value"),
        (
            "nodePools:\n- name: a\n- name: a\n",
            "line 3: nodePools[1].name: Invalid value: \"a\": is in the list already",
        ),
        (
            "owners: []\nexpiryNotice: soon\n",
            "line 2: expiryNotice: Invalid value: \"soon\": must be a duration",
        ),
        ("trustedWriters: admin", "line 1: trustedWriters: Invalid value: \"admin\": must be a list"),
        ("trustedWriters:\n- a\n- ''\n", "line 3: trustedWriters[1]: Invalid value: \"\": must be the name"),
        ("trustedWriters: [' a']", "line 1: trustedWriters[0]: Invalid value: \" a\": must be the name"),
        ("trustedWriters: [1]", "line 1: trustedWriters[0]: Invalid value: 1: must be the name of a user"),
        (
            "trustedWriters:\n- a\n- b\n- a\n",
            "line 4: trustedWriters[2]: Invalid value: \"a\": is in the list already",
        ),
        ("[]", "line 1: the file: Invalid value: []: must be a map of fields"),
        ("a: 1\na: 1\n", "line 2: "),
    ] {
        assert_refused(text, expected);
    }
}

fn assert_refused(text: &str, expected: &str) {
    let complaints = complaints(text);
    assert!(
        complaints.len() == 1 && complaints[0].starts_with(expected),
        "{complaints:?} should be {expected}"
    );
}

#[test]
fn a_bad_block_of_waiting_for_pods_is_refused_and_kueues_keys_with_what_to_do_instead() {
    for (text, expected) in [
        ("waitForPodsReady: 5m", "line 1: waitForPodsReady: Invalid value: \"5m\": must be a map of fields"),
        (
            "waitForPodsReady:\n  timeout: 5\n",
            "line 2: waitForPodsReady.timeout: Invalid value: 5: must be a duration such as 10m, 1h30m or 1d",
        ),
        (
            "waitForPodsReady:\n  timeout: 5m\n  recoveryTimeout: 0s\n",
            "line 3: waitForPodsReady.recoveryTimeout: Invalid value: \"0s\": must be greater than zero",
        ),
        (
            "waitForPodsReady:\n  requeuingStrategy:\n    backoffBaseSeconds: 61\n    backoffMaxSeconds: 60\n",
            "line 3: waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: 61: must not be more than backoffMaxSeconds, 60",
        ),
        (
            "waitForPodsReady:\n  requeuingStrategy:\n    backoffFactor: 1.5\n",
            "line 3: waitForPodsReady.requeuingStrategy.backoffFactor: Invalid value: 1.5: must be a decimal number in quotes",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: ten}}",
            "line 1: waitForPodsReady.requeuingStrategy.backoffLimitCount: Invalid value: \"ten\": must be a whole number",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}",
            "line 1: waitForPodsReady.requeuingStrategy.timestamp: Invalid value: \"Now\": must be Eviction (the default) or Creation",
        ),
        (
            "waitForPodsReady: {countFrom: Start}",
            "line 1: waitForPodsReady.countFrom: Invalid value: \"Start\": must be Scheduled (the default) or Creation",
        ),
        (
            "waitForPodsReady: {enable: yes please}",
            "line 1: waitForPodsReady.enable: Invalid value: \"yes please\": must be true or false",
        ),
        (
            "waitForPodsReady:\n  blockAdmission: true\n",
            "line 2: waitForPodsReady.blockAdmission: Invalid value: true: must be false or left out: Tenure admits no workloads",
        ),
        (
            "waitForPodsReady:\n  requeuingStrategy:\n    backoffLimitTimeout: 600\n",
            "line 3: waitForPodsReady.requeuingStrategy.backoffLimitTimeout: Invalid value: 600: must be left out: set backoffLimitCount",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {onCapacity: 1}}",
            "line 1: waitForPodsReady.requeuingStrategy.onCapacity: Invalid value: 1: must be true or false",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffMax: 1}}",
            "line 1: waitForPodsReady.requeuingStrategy.backoffMax: Unknown field: did you mean backoffMaxSeconds?",
        ),
    ] {
        assert_refused(text, expected);
    }
}

#[test]
fn an_unknown_field_is_refused_and_the_one_that_was_meant_is_named() {
    for (text, expected) in [
        (
            "expiryNotice: 1m\ndefaultPremptMinRuntime: 1m\n",
            "line 2: defaultPremptMinRuntime: Unknown field: did you mean defaultPreemptMinRuntime?",
        ),
        (
            "nodePools:\n- name: a\n  preemptMinRuntime: 1m\n",
            "line 3: nodePools[0].preemptMinRuntime: Unknown field: known here: name, defaultPreemptMinRuntime, defaultReclaimMinRuntime",
        ),
        ("Owners: []", "line 1: Owners: Unknown field: did you mean owners?"),
    ] {
        assert_eq!(complaints(text), [expected]);
    }
}

#[test]
fn all_that_is_wrong_is_said_in_the_order_of_the_lines() {
    let text = "owners: 1\nexpiryNotice: soon\ndefaultPreemptMinRuntime: 1\nunknown: 1\n";
    let complaints = complaints(text);
    let starts: Vec<_> = complaints.iter().map(|complaint| complaint.split(": ").nth(1).unwrap()).collect();
    assert_eq!(starts, ["owners", "expiryNotice", "defaultPreemptMinRuntime", "unknown"]);
    assert_eq!(Config::parse(text).unwrap_err().to_string(), complaints.join("; "));
}

#[test]
fn a_bad_row_is_refused_with_its_line() {
    let good = "owners:\n- {group: a.b, kind: Good, path: spec.suspend, value: true}\n";
    for (row, expected) in [
        (
            "- {group: a.b, kind: bad, path: spec.suspend, value: true}",
            "line 3: owners[1].kind: Invalid value: \"bad\"",
        ),
        (
            "- group: A_B\n  kind: Bad\n  path: spec.suspend\n  value: true",
            "line 3: owners[1].group: Invalid value: \"A_B\"",
        ),
        (
            "- group: a.b\n  kind: Bad\n  path: status.x\n  value: true",
            "line 5: owners[1].path: Invalid value: \"status.x\"",
        ),
        ("- {group: a.b, kind: Bad, path: spec.x, value: []}", "line 3: owners[1].value: Invalid value: []"),
        (
            "- {group: a.b, kind: Good, path: spec.suspend, value: false}",
            "line 3: owners[1]: Good of group \"a.b\" has a row for spec.suspend already",
        ),
        ("- {group: a.b, kind: Bad, path: spec.x}", "line 3: owners[1].value: Required value"),
        ("- {group: 1, kind: Bad, path: spec.x, value: 1}", "line 3: owners[1].group: Invalid value: 1"),
        (
            "- {group: a.b, kind: Bad, path: spec.x, value: 0, more: 1}",
            "line 3: owners[1].more: Unknown field",
        ),
        ("expiryNotic: 1m", "line 3: expiryNotic: Unknown field: did you mean expiryNotice?"),
    ] {
        let complaints = complaints(&format!("{good}{row}\n"));
        assert!(
            complaints.len() == 1 && complaints[0].starts_with(expected),
            "{complaints:?} should be {expected}"
        );
    }
}

#[test]
fn a_few_lines_whose_aliases_stand_for_too_much_are_refused() {
    let line = |level: u32, item: &str| format!("a{level}: &a{level} [{}]\n", item.repeat(10));
    let above = (1..8).map(|level| line(level, &format!("*a{},", level - 1)));
    let text: String = iter::once(line(0, "x,")).chain(above).collect();
    let error = Config::parse(&text).unwrap_err().to_string();
    assert!(error.contains("its aliases stand for more than 10000 values"), "{error}");
}

#[test]
fn aliases_are_followed() {
    let text = "defaultPreemptMinRuntime: &a 10m\ndefaultReclaimMinRuntime: *a\n";
    assert_eq!(Config::parse(text).unwrap().floors.reclaim, duration("10m"));
}

fn kai_of(text: &str) -> Kai {
    match ConfigFile::parse(text).unwrap() {
        ConfigFile::Kai(kai) => kai,
        ConfigFile::Tenure(config) => panic!("not of KAI: {config:?}"),
    }
}

fn kai(arguments: &str) -> Kai {
    let text = format!(
        "actions: \"allocate, reclaim\"\ntiers:\n- plugins:\n  - name: predicates\n  - name: minruntime\n    arguments:\n{arguments}"
    );
    kai_of(&text)
}

#[test]
fn arguments_of_kais_plugin_are_read() {
    let Kai { floors, set, problems, notes } = kai(
        "      defaultPreemptMinRuntime: \"2d4h30m\"\n      defaultReclaimMinRuntime: 10m\n      reclaimResolveMethod: \"queue\"\n",
    );
    assert_eq!((floors.preempt, floors.reclaim), (duration("52h30m"), duration("10m")));
    assert_eq!((floors.method, set.len()), (ReclaimResolveMethod::Queue, 3));
    assert_eq!((problems, notes), (vec![], vec![]));
}

/// The `ConfigMap` of the plugin's text, and one that has none of its arguments.
#[test]
fn the_example_of_the_plugins_text_is_read_and_its_defaults_are_those_of_the_text() {
    let Kai { floors, set, problems, .. } = kai_of(
        "tiers:\n- plugins:\n  # other plugins...\n  - name: minruntime\n    arguments:\n      defaultPreemptMinRuntime: \"10m\"\n      defaultReclaimMinRuntime: \"10m\"\n      reclaimResolveMethod: \"lca\"  # or \"queue\"\n",
    );
    assert_eq!((floors.preempt, floors.reclaim), (duration("10m"), duration("10m")));
    assert_eq!((floors.method, set.len(), problems), (ReclaimResolveMethod::Lca, 3, vec![]));
    let nothing = duration("0s");
    for Floors { preempt, reclaim, method, .. } in [kai("").floors, Config::parse("").unwrap().floors] {
        assert_eq!((preempt, reclaim, method), (nothing, nothing, ReclaimResolveMethod::Lca));
    }
}

#[test]
fn a_file_of_kais_configures_the_floors_of_a_server() {
    let tiers =
        |arguments: &str| format!("tiers:\n- plugins:\n  - {{name: minruntime, arguments: {arguments}}}\n");
    let config =
        Config::parse(&tiers("{defaultPreemptMinRuntime: 10m, reclaimResolveMethod: queue}")).unwrap();
    let floors =
        Floors { preempt: duration("10m"), method: ReclaimResolveMethod::Queue, ..Floors::default() };
    let set = [PREEMPT, METHOD].into();
    assert_eq!(config, Config { floors, set, ..Config::default() });
    assert_eq!(
        complaints(&tiers("{defaultPreemptMinRuntime: 10 m}"))[0].split(": must").next(),
        Some("line 3: arguments.defaultPreemptMinRuntime: Invalid value: \"10 m\"")
    );
    assert!(complaints("tiers: []")[0].starts_with("line 1: tiers: no plugin minruntime"));
    let both = complaints(&format!("expiryNotice: 1m\n{}", tiers("{}")));
    assert_eq!(both, ["line 1: expiryNotice: must not be in a file of KAI-Scheduler's, which has tiers"]);
}

/// The durations of upstream's own tests.
#[test]
fn durations_are_read_as_upstreams_tests_read_them() {
    let read = |text: &str| kai(&format!("      defaultPreemptMinRuntime: '{text}'\n"));
    for good in ["5s", "10s", "10m5s", "1m", "1.5s", "2m30s", "1h", "1h30m", "2h45m15s", "2d4h30m", "5w4d12h"]
    {
        let Kai { floors, problems, .. } = read(good);
        assert!(floors.preempt > ExtendedDuration::ZERO && problems.is_empty(), "{good}: {problems:?}");
    }
    let invalid = ["5", "1h2", "2h45m15", "abc", "1h-30m", "dfdsfdfdf"];
    let negative = ["-5s", "-10m", "-1h", "-2d", "-3w"];
    for bad in invalid.into_iter().chain(negative) {
        let Kai { floors, problems, .. } = read(bad);
        // upstream says so only in a log
        assert_eq!((floors.preempt, problems.len()), (ExtendedDuration::ZERO, 1), "{bad}");
    }
}

#[test]
fn what_kai_takes_for_something_else_is_said() {
    for (arguments, expected) in [
        (
            "defaultPreemptMinRuntime: -5s",
            "arguments.defaultPreemptMinRuntime: Invalid value: \"-5s\": must not be negative: KAI takes 0s",
        ),
        (
            "defaultPreemptMinRuntime: 5",
            "must be a duration such as 10m, 1h30m or 1d: the unit is missing after \"5\": KAI takes 0s",
        ),
        ("defaultPreemptMinRuntime: ' 5s'", "KAI takes 0s"),
        ("defaultPreemptMinRuntime: 1h30", "KAI takes 0s"),
        ("defaultPreemptMinRuntime: 1D", "KAI takes 0s"),
        ("defaultPreemptMinRuntime: 9999999w", "KAI takes 0s"),
        ("defaultPreemptMinRuntime: ''", "KAI takes 0s"),
        (
            "reclaimResolveMethod: LCA",
            "arguments.reclaimResolveMethod: Invalid value: \"LCA\": must be lca (the default) or queue: KAI takes lca",
        ),
        (
            "defaultPremptMinRuntime: 5s",
            "arguments.defaultPremptMinRuntime: Unknown argument: KAI ignores it: did you mean defaultPreemptMinRuntime?",
        ),
    ] {
        let Kai { floors, problems, notes, .. } = kai(&format!("      {arguments}\n"));
        assert!(problems.len() == 1 && problems[0].text.ends_with(expected), "{arguments}: {problems:?}");
        assert_eq!((problems[0].line, notes.len(), floors), (7, 0, Floors::default()));
    }
}

#[test]
fn what_kai_takes_in_silence_is_no_problem() {
    for arguments in [
        "defaultPreemptMinRuntime: 0",
        "defaultPreemptMinRuntime: 0s",
        "reclaimResolveMethod: ''",
        "reclaimResolveMethod:",
    ] {
        assert_eq!(kai(&format!("      {arguments}\n")).problems, [], "{arguments}");
    }
    let Kai { floors, problems, notes, .. } = kai("      defaultPreemptMinRuntime: +5s\n");
    assert_eq!((floors.preempt, problems.len(), notes.len()), (duration("5s"), 0, 1));
    assert_eq!(kai("").problems, []);
}

#[test]
fn a_kai_without_the_plugin_is_reported() {
    let kai = kai_of("actions: allocate\ntiers:\n- plugins:\n  - name: other\n");
    assert!(kai.problems[0].text.starts_with("tiers: no plugin minruntime"), "{kai:?}");
}

#[test]
fn a_config_map_is_unwrapped_and_lines_are_its_own() {
    let map = |key: &str, inner: &str| format!("kind: ConfigMap\ndata:\n  {key}: |\n{inner}");
    let inner = "    tiers:\n    - plugins:\n      - name: minruntime\n        arguments:\n          defaultPreemptMinRuntime: x\n";
    let ConfigFile::Kai(kai) = ConfigFile::parse(&map("config.yaml", inner)).unwrap() else { panic!() };
    assert_eq!(kai.problems[0].line, 8);
    let ConfigFile::Kai(kai) = ConfigFile::parse(&map("config.yaml", &format!("\n\n{inner}"))).unwrap()
    else {
        panic!()
    };
    assert_eq!(kai.problems[0].line, 10);
    let ours = map("tenure.yaml", "    expiryNotice: 1m\n    unknown: 1\n");
    assert_eq!(ConfigFile::parse(&ours).unwrap_err().problems[0].line, 5);
    let ours = map("tenure.yaml", "    defaultPreemptMinRuntime: 1m\n");
    let ConfigFile::Tenure(config) = ConfigFile::parse(&ours).unwrap() else { panic!() };
    assert_eq!(config.floors.preempt, duration("1m"));
    let folded = "kind: ConfigMap\ndata:\n  config.yaml: \"tiers: []\"\n";
    let ConfigFile::Kai(kai) = ConfigFile::parse(folded).unwrap() else { panic!() };
    assert_eq!(kai.problems[0].line, 3);
    assert!(ConfigFile::parse("kind: ConfigMap\ndata: {other: x}\n").is_err());
}

/// Lines of which many files can be made, good and bad.
const LINES: [&str; 12] = [
    "defaultPreemptMinRuntime: 10m",
    "reclaimResolveMethod: queue",
    "nodePools:",
    "- name: a",
    "  defaultReclaimMinRuntime: 5",
    "owners: [{kind: Thing}]",
    "tiers:",
    "- plugins:",
    "  - name: minruntime",
    "    arguments: {defaultPreemptMinRuntime: x}",
    "kind: ConfigMap",
    "data: {tenure.yaml: 'a: 1', config.yaml: \"\\n\\ntiers: 1\"}",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_line_that_it_has(
        text in prop_oneof![
            "\\PC{0,40}",
            "[a-z:{}\\[\\]&*!|>#\"' \n-]{0,60}",
            proptest::sample::subsequence(&LINES[..], 0..6).prop_map(|lines| lines.join("\n")),
        ],
    ) {
        let lines = u64::try_from(text.lines().count()).unwrap() + 1;
        if let Err(ConfigError { problems }) = ConfigFile::parse(&text) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)), "{problems:?}");
        }
    }
}
