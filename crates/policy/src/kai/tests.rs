use serde_json::json;

use super::*;
use crate::floor::{PartialFloors, ReclaimResolveMethod};

fn ours(text: &str) -> Floors {
    crate::config::Config::parse(text).unwrap().floors
}

fn map(text: &str) -> BTreeMap<String, String> {
    [("config.yaml".to_owned(), text.to_owned())].into()
}

fn of_arguments(arguments: &str) -> KaiDefaults {
    let text = format!("tiers:\n- plugins:\n  - {{name: minruntime, arguments: {arguments}}}\n");
    KaiDefaults::of_config_map(&map(&text), "config.yaml").unwrap()
}

/// The differences, as `field: theirs, tenure's field: ours`.
fn differences(kai: &KaiDefaults, ours: &Floors) -> Vec<String> {
    let line = |KaiDifference { setting: _, field, kai, tenures_field, tenure }| {
        format!("{field}: {kai}, {tenures_field}: {tenure}")
    };
    kai.differences(ours).into_iter().map(line).collect()
}

#[test]
fn each_default_that_differs_is_named_on_both_sides() {
    let kai = of_arguments("{defaultPreemptMinRuntime: 10m, reclaimResolveMethod: queue}");
    let here = "data[config.yaml]: minruntime.arguments";
    let expected = [
        format!("{here}.defaultPreemptMinRuntime: 10m, floors.defaultPreemptMinRuntime: 1h"),
        format!("{here}.defaultReclaimMinRuntime: 0s, floors.defaultReclaimMinRuntime: 5s"),
        format!("{here}.reclaimResolveMethod: queue, floors.reclaimResolveMethod: lca"),
    ];
    let tenure = ours("defaultPreemptMinRuntime: 1h\ndefaultReclaimMinRuntime: 5s\n");
    assert_eq!(differences(&kai, &tenure), expected);
    let settings = kai.differences(&tenure).into_iter().map(|difference| difference.setting);
    assert_eq!(settings.collect::<Vec<_>>(), KaiDefault::ALL);
    let remedy = kai.differences(&tenure)[2].remedy();
    let expected = "set floors.reclaimResolveMethod to queue in Tenure's configuration, or data[config.yaml]: minruntime.arguments.reclaimResolveMethod to lca in KAI-Scheduler's";
    assert_eq!(remedy, expected);
}

#[test]
fn the_same_time_written_otherwise_is_no_difference() {
    let kai = of_arguments("{defaultPreemptMinRuntime: +90m, defaultReclaimMinRuntime: 1d}");
    let tenure = ours("defaultPreemptMinRuntime: 1h30m\ndefaultReclaimMinRuntime: 24h\n");
    assert_eq!(differences(&kai, &tenure), [""; 0]);
    assert_eq!(kai.issues, [""; 0]);
    assert_eq!(differences(&of_arguments("{}"), &Floors::default()), [""; 0]);
}

#[test]
fn what_kai_takes_for_something_else_counts_as_kai_takes_it() {
    let kai = of_arguments("{defaultPreemptMinRuntime: 10 m, defaultReclaimMinRuntime: -5s}");
    assert_eq!(differences(&kai, &Floors::default()), [""; 0]);
    assert_eq!(kai.issues.len(), 2);
    assert!(kai.issues[0].starts_with("data[config.yaml]: line 3: arguments.defaultPreemptMinRuntime: "));
    let without = KaiDefaults::of_config_map(&map("tiers: []"), "config.yaml").unwrap();
    assert!(without.issues[0].contains("KAI protects no workload"), "{:?}", without.issues);
    assert_eq!(differences(&without, &ours("defaultPreemptMinRuntime: 1m")).len(), 1);
}

#[test]
fn a_config_map_without_a_configuration_of_kais_says_nothing_of_floors() {
    let of = |text, key| KaiDefaults::of_config_map(&map(text), key).unwrap_err();
    assert_eq!(of("tiers: []", "other"), "data[other]: Required value");
    for text in ["", "a: 1", "defaultPreemptMinRuntime: 10m", "[]"] {
        let expected = "data[config.yaml]: must be a configuration of KAI-Scheduler, with tiers";
        assert_eq!(of(text, "config.yaml"), expected, "{text}");
    }
    assert!(of("tiers: [", "config.yaml").starts_with("data[config.yaml]: line 1: "));
}

#[test]
fn a_shard_without_floors_has_kais_own_defaults() {
    for spec in [json!(null), json!({}), json!({"minRuntime": {}}), json!({"minRuntime": 5, "plugins": []})] {
        let shard = KaiDefaults::of_shard(&spec);
        assert_eq!((differences(&shard, &Floors::default()), shard.issues), (vec![], vec![]), "{spec}");
    }
    let found = differences(&KaiDefaults::of_shard(&json!({})), &ours("defaultReclaimMinRuntime: 1m"));
    let expected = "spec.minRuntime.reclaimMinRuntime: 0s, floors.defaultReclaimMinRuntime: 1m";
    assert_eq!(found, [expected]);
}

#[test]
fn a_shard_of_a_node_pool_is_compared_with_the_floors_of_that_pool() {
    let minimums = json!({"preemptMinRuntime": "5m", "reclaimMinRuntime": "2d"});
    let shard =
        |pool: &str| KaiDefaults::of_shard(&json!({"partitionLabelValue": pool, "minRuntime": minimums}));
    let tenure = ours(
        "defaultPreemptMinRuntime: 5m\ndefaultReclaimMinRuntime: 1h\nnodePools: [{name: a, defaultReclaimMinRuntime: 2d}]",
    );
    assert_eq!(differences(&shard("a"), &tenure), [""; 0]);
    let reclaim = "spec.minRuntime.reclaimMinRuntime: 2d, floors.";
    assert_eq!(differences(&shard(""), &tenure), [format!("{reclaim}defaultReclaimMinRuntime: 1h")]);
    let expected = format!("{reclaim}nodePools[b].defaultReclaimMinRuntime: 1h");
    assert_eq!(differences(&shard("b"), &tenure), [expected]);
    assert_eq!(tenure.node_pools["a"], PartialFloors { preempt: None, reclaim: Some("2d".parse().unwrap()) });
}

#[test]
fn arguments_of_a_shards_plugin_replace_its_minimums() {
    let shard = KaiDefaults::of_shard(&json!({
        "minRuntime": {"preemptMinRuntime": "5m"},
        "plugins": {"minruntime": {"arguments": {"reclaimResolveMethod": "queue", "defaultReclaimMinRuntime": "x"}}},
    }));
    let here = "spec.plugins.minruntime.arguments";
    let tenure = Floors { method: ReclaimResolveMethod::Queue, ..ours("defaultPreemptMinRuntime: 5m") };
    let expected = format!("{here}.defaultPreemptMinRuntime: 0s, floors.defaultPreemptMinRuntime: 5m");
    assert_eq!(differences(&shard, &tenure), [expected]);
    let [ignored, unread] = &shard.issues[..] else { panic!("{:?}", shard.issues) };
    let expected = format!("spec.minRuntime.preemptMinRuntime: KAI ignores it: {here} are all that count");
    assert_eq!(*ignored, expected);
    assert!(unread.starts_with(&format!("{here}.defaultReclaimMinRuntime: Invalid value: \"x\": ")));
    assert!(unread.ends_with(": KAI takes 0s"), "{unread}");
}

#[test]
fn a_shard_whose_plugin_is_off_protects_nobody() {
    let shard = KaiDefaults::of_shard(&json!({
        "minRuntime": {"preemptMinRuntime": "5m"}, "plugins": {"minruntime": {"enabled": false}},
    }));
    let off = "spec.plugins.minruntime.enabled: Invalid value: false: KAI protects no workload, no matter which floors queues have";
    assert_eq!(shard.issues, [off]);
    assert_eq!(differences(&shard, &Floors::default()), [""; 0]);
    assert_eq!(differences(&shard, &ours("defaultPreemptMinRuntime: 5m")).len(), 1);
}
