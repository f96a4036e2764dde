//! The values that the chart accepts.

use std::{collections::BTreeSet, fs};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tenure_policy::config::Config;
use tenure_testbed::Output;

use crate::{CHART, keeper::rollout, render, template};

/// As in an upgrade that reuses the values of a chart without them.
#[tokio::test]
async fn a_section_or_a_switch_that_is_missing_is_refused_by_its_name() {
    assert_refused(&[
        (json!({"floors": null, "startTime": null}), "missing properties 'floors', 'startTime'"),
        (json!({"webhook": {"owners": null}}), "'/webhook': missing property 'owners'"),
        (json!({"kueue": {"enabled": null}}), "'/kueue': missing property 'enabled'"),
        (json!({"guard": {"failurePolicy": null}}), "'/guard': missing property 'failurePolicy'"),
        (json!({"guard": {"exemptUsers": null}}), "'/guard': missing property 'exemptUsers'"),
    ])
    .await;
}

/// The values below a path, each with its default, and true if the schema requires it. Maps of any keys, such as labels,
/// are left out.
fn leaves<'v>(
    path: &str,
    values: &'v Value,
    schema: &'v Value,
    root: &'v Value,
) -> Vec<(String, &'v Value, bool)> {
    let of_ref = schema["$ref"].as_str().and_then(|of| root.pointer(of.trim_start_matches('#')));
    let schema = of_ref.unwrap_or(schema);
    let mut all = Vec::new();
    for (key, value) in values.as_object().unwrap() {
        let Some(of_key) = schema["properties"].get(key) else { continue };
        let path = format!("{path}/{key}");
        if value.is_object() {
            all.extend(leaves(&path, value, of_key, root));
        } else {
            let is_required = schema["required"].as_array().is_some_and(|keys| keys.contains(&json!(key)));
            all.push((path, value, is_required));
        }
    }
    all
}

#[tokio::test]
async fn a_value_with_a_default_is_required_and_any_other_may_be_null() {
    let read = |name: &str| fs::read_to_string(format!("{CHART}/{name}")).unwrap();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut nulls = json!({});
    let mut missing = Vec::new();
    for (path, default, is_required) in leaves("", &values, &schema, &schema) {
        let is_empty = *default == json!("") || *default == json!(false);
        if (default.is_string() || default.is_number()) && !is_empty && !is_required {
            missing.push(path);
        } else if is_empty && !is_required {
            let mut place = &mut nulls;
            for key in path.split('/').skip(1) {
                place = &mut place[key];
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "should be required in values.schema.json");
    assert_eq!(render("test", &nulls).await, render("test", &json!({})).await);
}

/// The configuration file with these values.
pub async fn config(values: &Value) -> Value {
    let rendered = render("test", values).await;
    let file = rendered.iter().find_map(|object| object.pointer("/data/tenure.yaml")).unwrap();
    serde_saphyr::from_str(file.as_str().unwrap()).unwrap()
}

const KEEPER: &str = "system:serviceaccount:tenure-system:test-tenure-keeper";

#[tokio::test]
async fn the_keeper_is_a_trusted_writer_wherever_it_runs() {
    for (values, trusted) in [
        (json!({"startTime": {"trustedWriters": []}}), json!([KEEPER])),
        (json!({"startTime": {"trustedWriters": ["b", "a"]}}), json!(["b", "a", KEEPER])),
        (json!({"startTime": {"trustedWriters": [KEEPER]}}), json!([KEEPER])),
        (
            json!({"startTime": {"trustedWriters": []}, "namespaceOverride": "n", "keeper": {"nameOverride": "k"}}),
            json!(["system:serviceaccount:n:k"]),
        ),
        (
            json!({"startTime": {"trustedWriters": []}, "options": {"durationKeeper": {"enabled": false}}}),
            json!([]),
        ),
    ] {
        assert_eq!(config(&values).await["trustedWriters"], trusted, "{values}");
    }
}

#[tokio::test]
async fn value_that_cannot_be_meant_is_refused_by_its_name() {
    let url = |url: &str| json!({"webhook": {"url": url}});
    let certificate = |values: Value| json!({"webhook": {"certificate": values}});
    let keeper = |values: Value| json!({"keeper": values});
    let row = |fields: Value| keeper(json!({"owners": [rollout_with(&fields)]}));
    let table = [
        (json!({"replicas": 2}), "'replicas' not allowed"),
        (json!({"webhook": {"replica": 2}}), "'/webhook': additional properties 'replica' not allowed"),
        (
            certificate(json!({"certManager": {"issuerRef": {"nam": "x"}}})),
            "'/webhook/certificate/certManager/issuerRef': additional properties 'nam' not allowed",
        ),
        (
            certificate(json!({"mode": "certmanager"})),
            "'/webhook/certificate/mode': value must be one of 'selfManaged', 'certManager', 'existingSecret'",
        ),
        (json!({"webhook": {"failurePolicy": "ignore"}}), "'/webhook/failurePolicy': value must be one of"),
        (json!({"log": {"level": "verbose"}}), "'/log/level': value must be one of"),
        (json!({"log": {"level": "trace"}}), "'/log/level': value must be one of"),
        (
            json!({"options": {"durationkeeper": {"enabled": false}}}),
            "'/options': additional properties 'durationkeeper' not allowed",
        ),
        (json!({"namespaceOverride": "T9K"}), "'/namespaceOverride'"),
        (json!({"webhook": {"replicas": 0}}), "'/webhook/replicas': minimum: got 0"),
        (json!({"webhook": {"timeoutSeconds": 31}}), "'/webhook/timeoutSeconds': maximum"),
        (keeper(json!({"replicas": -1})), "'/keeper/replicas': minimum"),
        (keeper(json!({"burst": "100"})), "'/keeper/burst': got string, want integer"),
        (keeper(json!({"threadiness": 0})), "'/keeper/threadiness': minimum"),
        (keeper(json!({"dryrun": true})), "'/keeper': additional properties 'dryrun' not allowed"),
        (keeper(json!({"schedulers": "t9k-scheduler"})), "'/keeper/schedulers': got string, want array"),
        (keeper(json!({"schedulers": ["a,b"]})), "'/keeper/schedulers/0'"),
        (keeper(json!({"schedulers": ["a", "a"]})), "'/keeper/schedulers': items at 0 and 1 are equal"),
        (keeper(json!({"priorityClassThreshold": 2_000_000_000})), "'/keeper/priorityClassThreshold'"),
        (keeper(json!({"expiryNotice": "10 m"})), "'/keeper/expiryNotice'"),
        (keeper(json!({"expiryNotice": "1h,"})), "'/keeper/expiryNotice'"),
        (keeper(json!({"expiryNotice": ["1h", "10 m"]})), "'/keeper/expiryNotice/1'"),
        (keeper(json!({"expiryNotice": vec!["1m"; 9]})), "'/keeper/expiryNotice': maxItems"),
        (keeper(json!({"noticeOnPods": "true"})), "'/keeper/noticeOnPods': got string, want boolean"),
        (keeper(json!({"floorOnPods": "true"})), "'/keeper/floorOnPods': got string, want boolean"),
        (keeper(json!({"pausedHistoryLimit": -1})), "'/keeper/pausedHistoryLimit': minimum"),
        (keeper(json!({"pausedHistoryLimit": "3"})), "'/keeper/pausedHistoryLimit': maxLength"),
        (
            keeper(json!({"leaderElection": {"leaseDuration": "15"}})),
            "'/keeper/leaderElection/leaseDuration'",
        ),
        (
            keeper(json!({"leaderElection": {"enabled": true}})),
            "'/keeper/leaderElection': additional properties 'enabled' not allowed",
        ),
        (
            keeper(json!({"owners": [{"kind": "Rollout"}]})),
            "'/keeper/owners/0': missing properties 'group', 'resource'",
        ),
        (
            row(json!({"group": "kueue.x-k8s.io", "kind": "Workload", "onExpiry": "Delete"})),
            "keeper.owners must not have onExpiry Delete for a Workload of Kueue",
        ),
        (
            keeper(json!({"owners": [rollout(), rollout()]})),
            "keeper.owners has two rows for spec.replicas of kind Rollout in group \"argoproj.io\": remove one",
        ),
        (row(json!({"kind": "DaemonSet"})), "keeper.owners must not have kind DaemonSet"),
        (row(json!({"group": "", "kind": "Pod"})), "keeper.owners must not have kind Pod"),
        (json!({"keeper": {"extraArgs": ["log-level=debug"]}}), "'/keeper/extraArgs/0'"),
        (
            keeper(json!({"retryAfter": "10 s"})),
            "keeper.retryAfter: Invalid value: \"10 s\": must be a duration such as 5s, 90m or 2d",
        ),
        (
            json!({"image": {"registry": "https://registry.example.com/gpu"}}),
            "image.registry: Invalid value: \"https://registry.example.com/gpu\": must be a registry without a scheme, such as registry.example.com/gpu",
        ),
        (json!({"t9k": {"systemNamespace": "T9K"}}), "'/t9k/systemNamespace'"),
        (url("http://10.0.0.7:9443"), "'/webhook/url'"),
        (url("10.0.0.7:9443"), "'/webhook/url'"),
        (url("https://10.0.0.7:65536"), "'/webhook/url'"),
        (url("https://10.0.0.7:0"), "'/webhook/url'"),
        (url("https://10.0.0.7.8"), "'/webhook/url'"),
        (url("https://::1"), "'/webhook/url'"),
        (url("https://[webhook]"), "'/webhook/url'"),
        (url("https://webhook..example.com"), "'/webhook/url'"),
        (url("https://webhook.example.com/mutate"), "'/webhook/url'"),
        (url("https://user@webhook.example.com"), "'/webhook/url'"),
    ];
    assert_refused(&table).await;
}

#[tokio::test]
async fn rows_of_owners_that_cannot_be_meant_are_refused_by_their_places() {
    for rows in [
        // by the schema
        &[
            (json!({"version": "v1"}), "': additional properties 'version' not allowed"),
            (json!({"resource": null}), "/resource': got null, want string"),
            (json!({"value": {"enabled": true}}), "/value': got object"),
            (json!({"value": null}), "/value': got null"),
            (json!({"onExpiry": "delete"}), "/onExpiry': value must be one of"),
        ][..],
        // by the grammar
        &[
            (json!({"resource": "rollouts/scale"}), "/resource'"),
            (json!({"resource": "*"}), "/resource'"),
            (json!({"group": "argoproj.io/v1alpha1"}), "/group'"),
            (json!({"group": "*"}), "/group'"),
            (json!({"kind": "rollouts"}), "/kind'"),
            (json!({"path": "/spec/replicas"}), "/path'"),
            (json!({"path": "metadata.annotations"}), "/path'"),
        ],
    ] {
        let owners: Vec<_> = rows.iter().map(|(fields, _)| rollout_with(fields)).collect();
        let values = json!({"keeper": {"owners": owners}});
        let words = rows.iter().enumerate().map(|(place, (_, end))| format!("'/keeper/owners/{place}{end}"));
        let words: Vec<_> = words.collect();
        let table: Vec<_> = words.iter().map(|words| (values.clone(), words.as_str())).collect();
        assert_refused(&table).await;
    }
}

/// A row of owners, with these fields.
fn rollout_with(fields: &Value) -> Value {
    let mut row = rollout();
    row.as_object_mut().unwrap().append(&mut fields.as_object().unwrap().clone());
    row
}

#[tokio::test]
async fn value_of_the_configuration_file_that_cannot_be_meant_is_refused_by_its_name() {
    let floors = |values: Value| json!({"floors": values});
    let trusted = |values: Value| json!({"startTime": {"trustedWriters": values}});
    let pool = |pool: Value| json!({"floors": {"nodePools": [pool]}});
    assert_refused(&[
        (trusted(json!("a")), "'/startTime/trustedWriters': got string, want array"),
        (trusted(json!([""])), "'/startTime/trustedWriters/0'"),
        (trusted(json!([" a"])), "'/startTime/trustedWriters/0'"),
        (trusted(json!(["a", "a"])), "'/startTime/trustedWriters': items at 0 and 1 are equal"),
        (
            floors(json!({"defaultPremptMinRuntime": "1m"})),
            "'/floors': additional properties 'defaultPremptMinRuntime' not allowed",
        ),
        (floors(json!({"defaultPreemptMinRuntime": "10 m"})), "'/floors/defaultPreemptMinRuntime'"),
        (floors(json!({"defaultReclaimMinRuntime": "-1m"})), "'/floors/defaultReclaimMinRuntime'"),
        (floors(json!({"defaultReclaimMinRuntime": 600})), "'/floors/defaultReclaimMinRuntime': got number"),
        (
            floors(json!({"reclaimResolveMethod": "LCA"})),
            "'/floors/reclaimResolveMethod': value must be one of",
        ),
        (floors(json!({"nodePoolLabelKey": "a/b/c"})), "'/floors/nodePoolLabelKey'"),
        (pool(json!({"defaultPreemptMinRuntime": "1m"})), "'/floors/nodePools/0': missing property 'name'"),
        (pool(json!({"name": "a b"})), "'/floors/nodePools/0/name'"),
        (
            pool(json!({"name": "a", "defaultPreemptMinRuntime": "5"})),
            "'/floors/nodePools/0/defaultPreemptMinRuntime'",
        ),
        (
            floors(json!({"nodePools": [{"name": "a"}, {"name": "a"}]})),
            "floors.nodePools has two rows for pool \"a\": remove one",
        ),
    ])
    .await;
}

#[tokio::test]
async fn workloads_that_do_not_get_ready_stay_unless_a_value_says_otherwise() {
    for nothing in [json!({}), json!({"waitForPodsReady": {}}), json!({"waitForPodsReady": null})] {
        assert_eq!(config(&nothing).await.get("waitForPodsReady"), None, "{nothing}");
    }
    let all = json!({
        "enable": true, "timeout": "10m", "countFrom": "Creation", "recoveryTimeout": "1.5h", "blockAdmission": false,
        "requeuingStrategy": {
            "timestamp": "Creation", "onCapacity": true, "backoffLimitCount": 0, "backoffBaseSeconds": 60, "backoffFactor": "2",
            "backoffMaxSeconds": 12_000_000,
        },
    });
    for wait in [json!({"timeout": "5m"}), all] {
        let values = json!({"waitForPodsReady": wait});
        assert_eq!(config(&values).await["waitForPodsReady"], wait);
    }
}

#[tokio::test]
async fn backoff_that_cannot_be_meant_is_refused_by_its_name() {
    let wait = |wait: Value| json!({"waitForPodsReady": wait});
    let strategy = |strategy: Value| json!({"waitForPodsReady": {"requeuingStrategy": strategy}});
    assert_refused(&[
        (
            wait(json!({"timeouts": "5m"})),
            "'/waitForPodsReady': additional properties 'timeouts' not allowed",
        ),
        (wait(json!({"timeout": "5 m"})), "'/waitForPodsReady/timeout'"),
        (wait(json!({"timeout": "0s"})), "'/waitForPodsReady/timeout'"),
        (wait(json!({"recoveryTimeout": 300})), "'/waitForPodsReady/recoveryTimeout': got number"),
        (
            strategy(json!({"timestamp": "Now"})),
            "'/waitForPodsReady/requeuingStrategy/timestamp': value must be one of",
        ),
        (wait(json!({"countFrom": "Start"})), "'/waitForPodsReady/countFrom': value must be one of"),
        (wait(json!({"blockAdmission": true})), "'/waitForPodsReady/blockAdmission': value must be false"),
        (
            strategy(json!({"onCapacity": "yes"})),
            "'/waitForPodsReady/requeuingStrategy/onCapacity': got string, want boolean",
        ),
        (
            strategy(json!({"backoffLimitTimeout": 600})),
            "waitForPodsReady.requeuingStrategy.backoffLimitTimeout must be left out: set backoffLimitCount",
        ),
        (
            strategy(json!({"backoffLimitCount": -1})),
            "'/waitForPodsReady/requeuingStrategy/backoffLimitCount': minimum",
        ),
        (
            strategy(json!({"backoffBaseSeconds": 0})),
            "'/waitForPodsReady/requeuingStrategy/backoffBaseSeconds': minimum",
        ),
        (
            strategy(json!({"backoffMaxSeconds": 1.5})),
            "'/waitForPodsReady/requeuingStrategy/backoffMaxSeconds': got number, want integer",
        ),
        (
            strategy(json!({"backoffFactor": 2})),
            "'/waitForPodsReady/requeuingStrategy/backoffFactor': got number, want string",
        ),
        (
            strategy(json!({"backoffFactor": "0.5"})),
            "waitForPodsReady.requeuingStrategy.backoffFactor: Invalid value: \"0.5\": must be",
        ),
        (
            strategy(json!({"backoffBaseSeconds": 61, "backoffMaxSeconds": 60})),
            "waitForPodsReady.requeuingStrategy.backoffBaseSeconds must not be more than backoffMaxSeconds: 61 is more than 60",
        ),
    ])
    .await;
}

/// Values, and the configuration file that the programs would get.
type ValuesAndFile = (Value, Value);

fn with_owner(path: &str, value: &Value) -> ValuesAndFile {
    let of_chart =
        json!({"group": "example.com", "kind": "Thing", "resource": "things", "path": path, "value": value});
    let row = json!({"group": "example.com", "kind": "Thing", "path": path, "value": value});
    (json!({"keeper": {"owners": [of_chart]}}), json!({"owners": [row]}))
}

fn with_receiver(url: &str, (field, value): (&str, Value)) -> ValuesAndFile {
    let of_chart = json!({"format": "Slack", "url": url, field: value});
    let row = json!({"name": "ops", "format": "Slack", "url": url, field: value});
    (json!({"keeper": {"receivers": {"ops": of_chart}}}), json!({"receivers": [row]}))
}

fn with_kueue_queues(rows: &Value) -> ValuesAndFile {
    written_alike(json!({"kueue": {"queues": rows}}))
}

/// Values that the file has as they are.
fn written_alike(values: Value) -> ValuesAndFile {
    (values.clone(), values)
}

/// Running programs keep the last good file, and one that starts later has none: it doesn't start.
#[tokio::test]
async fn what_the_programs_refuse_in_their_file_the_chart_refuses_before() {
    let at = |key: &str| format!("metadata.annotations.{key}");
    let http = |url: &str| with_receiver(url, ("allowHTTP", json!(false)));
    let row = |field: &str, of_kueue: &str, queue: &str| json!({field: of_kueue, "queue": queue});
    let no_text = "of kind Thing must be a string, as annotations are: write it in quotes";
    let only_https = "must be an https URL: http is for loopback addresses, and others with allowHTTP: true";
    let mut table = Vec::new();
    for ((values, file), words) in [
        (with_owner(&at("example.com/stop"), &json!(true)), no_text),
        (with_owner(&at("stop"), &json!(0)), no_text),
        (with_owner(&at("tenure.dev/paused"), &json!("a")), "'/keeper/owners/0/path'"),
        (with_owner(&at("a..b/stop"), &json!("a")), "'/keeper/owners/0/path'"),
        (with_owner(&at("example.com/stop."), &json!("a")), "'/keeper/owners/0/path'"),
        (http("http://bus.example.com:80/secret"), "\"http://bus.example.com:80/…\": must be an https URL"),
        (http("http://bus.example.com"), "keeper.receivers.ops.url: Invalid value: \"http://bus"),
        (http("http://localhost.example.com"), only_https),
        (http("http://127.0.0.1.example.com/a"), only_https),
        (http("http://[::2]/a"), only_https),
        (http("https:///a"), "'/keeper/receivers/ops/url'"),
        (
            with_receiver("https://a", ("reasons", json!(["RunEnd"]))),
            "'/keeper/receivers/ops/reasons/0': value must be one of",
        ),
        (
            with_kueue_queues(&json!([row("localQueue", "a", "b"), row("localQueue", "a", "c")])),
            "kueue.queues has two rows for localQueue \"a\": remove one",
        ),
        (
            with_kueue_queues(&json!([row("clusterQueue", "a", "b"), row("clusterQueue", "a", "c")])),
            "kueue.queues has two rows for clusterQueue \"a\": remove one",
        ),
        (with_kueue_queues(&json!([row("localQueue", "a/b..c", "d")])), "'/kueue/queues/0/localQueue'"),
        (with_kueue_queues(&json!([row("clusterQueue", "a.-b", "c")])), "'/kueue/queues/0/clusterQueue'"),
        (with_kueue_queues(&json!([row("localQueue", "a", "b-.c")])), "'/kueue/queues/0/queue'"),
        (
            written_alike(json!({"kai": {"configMap": {"namespace": "a", "name": "b..c"}}})),
            "'/kai/configMap/name'",
        ),
    ] {
        Config::parse(&file.to_string()).expect_err(&file.to_string());
        table.push((values, words));
    }
    assert_refused(&table).await;
}

#[tokio::test]
async fn what_the_programs_take_in_their_file_the_chart_accepts() {
    let plain = |url: &str| with_receiver(url, ("allowHTTP", json!(false)));
    for (values, file) in [
        with_owner("metadata.annotations.example.com/a.b_C", &json!("0")),
        with_owner("metadata.annotations.stop", &json!("$(time)")),
        with_owner("spec.a-b.c_d.E1", &json!(0)),
        plain("http://localhost:8080/a"),
        plain("http://127.1.2.3"),
        plain("http://[::1]:80/?a=b"),
        plain("http://[0:0:0:0:0:0:0:1]/a"),
        plain("https://[fe80::1]/a"),
        with_receiver("http://bus.example.com:80/a", ("allowHTTP", json!(true))),
        with_kueue_queues(&json!([
            {"localQueue": "a", "queue": "d"}, {"localQueue": "b/a", "queue": "d"}, {"clusterQueue": "a", "queue": "d"},
            {"clusterQueue": "a.b-c.d", "queue": "e.f"},
        ])),
    ] {
        for file in [&file, &config(&values).await] {
            Config::parse(&file.to_string()).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }
}

/// Bad values, and words of the expected error.
type BadValues<'w> = (Value, &'w str);

/// Asserts that bad values are refused, each with the words of the expected error.
///
/// Words such as `'/keeper/schedulers/0'` stand for the value alone: the schema names it so, and a rule of the grammar as
/// `keeper.schedulers[0]`, with what it must be.
///
/// Helm names all places that the schema refuses, or else the chart all that the grammar refuses. So values with errors at places
/// of their own share a run, until the error of each is found.
pub async fn assert_refused(table: &[BadValues<'_>]) {
    let (mut placed, mut alone): (Vec<_>, Vec<_>) = table.iter().partition(|row| has_place(row, &row.0));
    while !placed.is_empty() {
        let before = placed.len();
        let (values, run) = together(&placed);
        if run.len() > 1 {
            let output = template("test", &values, &[]).await;
            placed.retain(|row| !run.contains(row) || !is_refused(&output, row.1));
        }
        if placed.len() == before {
            alone.push(placed.remove(0));
        }
    }
    let complaints = stream::iter(alone).map(async |(values, words)| {
        let output = template("test", values, &[]).await;
        (!is_refused(&output, words))
            .then(|| format!("{values} should fail with {words:?}, but: {}", output.stderr))
    });
    let complaints: Vec<_> = complaints.buffered(4).filter_map(async |it| it).collect().await;
    assert_eq!(complaints, Vec::<String>::new());
}

/// True if a line of the errors has these words, at its beginning or behind a space: the path of another value may end alike.
fn is_refused(output: &Output, words: &str) -> bool {
    let has = |line: &str, words: &str| line.starts_with(words) || line.contains(&format!(" {words}"));
    let invalid = by_grammar(words).map(|path| format!("{path}: Invalid value: "));
    let is_named = |line: &str| {
        let by_grammar = |invalid: &String| has(line, invalid) && line.contains(": must ");
        has(line, words) || invalid.as_ref().is_some_and(by_grammar)
    };
    !output.status.success() && output.stderr.lines().any(is_named)
}

/// Returns the first row with all that can share its run, and the values of the run.
fn together<'t, 'w>(rows: &[&'t BadValues<'w>]) -> (Value, Vec<&'t BadValues<'w>>) {
    let (mut values, mut run) = (json!({}), Vec::<&BadValues<'w>>::new());
    for &row in rows {
        let mut more = values.clone();
        if run.iter().all(|other| are_apart(row, other)) && merge(&mut more, &row.0) {
            values = more;
            run.push(row);
        }
    }
    (values, run)
}

/// True if neither has a value where the other is refused: an error depends on nothing but the value at its place. The same values
/// may be refused at several places.
fn are_apart(one: &BadValues<'_>, other: &BadValues<'_>) -> bool {
    one.0 == other.0 || !(has_place(one, &other.0) || has_place(other, &one.0))
}

/// True if there is a value at the place that the expected error of a row names.
fn has_place((_, words): &BadValues<'_>, values: &Value) -> bool {
    let place = match words.strip_prefix("'/") {
        Some(words) => words.split_once('\'').map(|(path, _)| format!("/{path}")),
        None => words
            .split_once(": Invalid value: ")
            .map(|(path, _)| format!("/{}", path.replace(['.', '['], "/").replace(']', ""))),
    };
    place.is_some_and(|place| values.pointer(&place).is_some())
}

/// Adds values. False: there are others at the same place.
fn merge(values: &mut Value, more: &Value) -> bool {
    let (Value::Object(fields), Value::Object(added)) = (&mut *values, more) else {
        return *values == *more;
    };
    added.iter().all(|(name, value)| match fields.get_mut(name) {
        Some(field) => merge(field, value),
        None => fields.insert(name.clone(), value.clone()).is_none(),
    })
}

/// The path of `'/keeper/schedulers/0'` as the grammar has it.
fn by_grammar(words: &str) -> Option<String> {
    let path = words.strip_prefix("'/")?.strip_suffix('\'')?;
    let step = |step: &str| if step.parse::<u8>().is_ok() { format!("[{step}]") } else { format!(".{step}") };
    Some(path.split('/').map(step).collect::<String>().trim_start_matches('.').to_owned())
}

#[test]
fn texts_have_rules_with_sentences_and_no_pattern_of_the_schema() {
    let read = |file: &str| fs::read_to_string(format!("{CHART}/{file}")).unwrap();
    assert!(!read("values.schema.json").contains("\"pattern\""));
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let rules: Vec<Value> = serde_saphyr::from_str(&read("files/grammar.yaml")).unwrap();
    for path in rules.iter().flat_map(|rule| rule["values"].as_array().unwrap()) {
        let path = path.as_str().unwrap();
        let steps = path.split('.').take_while(|step| !step.starts_with(['[', '{', '(']));
        let mut at = Some(&values);
        for step in steps {
            // what is below an empty default is in the schema alone
            if at.is_none_or(|of| of.is_null() || *of == json!({})) {
                break;
            }
            at = at.and_then(|of| of.get(step));
            assert!(at.is_some(), "{path} is no value of the chart");
        }
    }
}

#[test]
fn every_value_is_in_the_schema_and_has_a_default() {
    let read = |file: &str| fs::read_to_string(format!("{CHART}/{file}")).unwrap();
    let mut schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    // Helm's own
    schema["properties"].as_object_mut().unwrap().remove("global");
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    assert_eq!(differences(&values, &schema, "values"), Vec::<String>::new());
}

/// The fields of the object at `path` that are only in the values or only in the schema.
fn differences(values: &Value, schema: &Value, path: &str) -> Vec<String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let defaults = values.as_object().unwrap();
    let names: BTreeSet<_> = defaults.keys().chain(properties.keys()).collect();
    let of = |name: &String| match (defaults.get(name), properties.get(name)) {
        (Some(default), Some(property)) => differences(default, property, &format!("{path}.{name}")),
        _ => vec![format!("{path}.{name}")],
    };
    names.into_iter().flat_map(of).collect()
}
