//! The answers of `matrix` and `explain` about objects of files.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

const NOW: &str = "2026-01-01T01:00:00Z";

fn tenure(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-tenure"))
        .args(arguments)
        .env("KUBECONFIG", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // a command that refuses its arguments doesn't read
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn answer(arguments: &[&str], input: &str) -> (Value, Vec<String>) {
    let Output { status, stdout, stderr } = tenure(arguments, input);
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{said}");
    (serde_json::from_slice(&stdout).unwrap(), said.lines().map(str::to_owned).collect())
}

fn objects(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

fn group(name: &str, queue: &str, min: u32, start: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {
            "name": name, "namespace": "ns", "annotations": {"kai.scheduler/last-start-timestamp": start},
        },
        "spec": {"queue": queue, "minMember": min},
    })
}

fn pod(name: &str, group: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"pod-group-name": group},
        },
        "spec": {"nodeName": "node-1", "priority": 10},
        "status": {"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:59:00Z"},
        ]},
    })
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

/// Two trees, with a gang of three, an elastic workload of three pods that needs one, and a preemptor in each tree.
fn cluster() -> Vec<Value> {
    let start = "2026-01-01T00:59:50Z";
    let mut items = vec![
        queue("dev", &json!({"preemptMinRuntime": "5s", "reclaimMinRuntime": "10s"})),
        queue("dev-team1", &json!({"parentQueue": "dev", "reclaimMinRuntime": "8s"})),
        queue("prod", &json!({"preemptMinRuntime": "20s", "reclaimMinRuntime": "30s", "maxDuration": "2h"})),
        queue(
            "prod-team2",
            &json!({"parentQueue": "prod", "preemptMinRuntime": "15s", "reclaimMinRuntime": "35s"}),
        ),
        group("gang", "prod-team2", 3, start),
        group("elastic", "prod-team2", 1, start),
        group("ours", "prod-team2", 1, start),
        group("theirs", "dev-team1", 1, start),
    ];
    for number in 0..3 {
        items.push(pod(&format!("gang-{number}"), "gang"));
        items.push(pod(&format!("elastic-{number}"), "elastic"));
    }
    for group in ["ours", "theirs"] {
        items.push(with(pod(group, group), "spec", json!({"priority": 100})));
    }
    items
}

struct Verdict {
    allowed: bool,
    kind: String,
    /// For each victim: true if it is protected, the rule, and the end.
    rulings: Vec<Value>,
    because: String,
}

fn preemption(items: &[Value], preemptor: &str, victims: &[&str]) -> Verdict {
    let preemptor = format!("--preemptor=ns/{preemptor}");
    let victims: Vec<String> = victims.iter().map(|victim| format!("--victim=ns/{victim}")).collect();
    let mut arguments = vec!["explain", "preemption", "-f", "-", "-o", "json", "--now", NOW, &preemptor];
    arguments.extend(victims.iter().map(String::as_str));
    let (answer, _) = answer(&arguments, &objects(items));
    let victims = answer["victims"].as_array().unwrap();
    Verdict {
        allowed: answer["allowed"].as_bool().unwrap(),
        kind: answer["kind"].as_str().unwrap().into(),
        rulings: victims.iter().map(|of| json!([of["protected"], of["rule"], of["until"]])).collect(),
        because: victims.iter().map(|of| of["because"].to_string()).collect(),
    }
}

#[test]
fn a_matrix_has_all_queues_and_each_ordered_pair() {
    let (answer, said) = answer(&["matrix", "-f", "-", "-o", "json"], &objects(&cluster()));
    assert_eq!(said, [""; 0]);
    let expected = json!({
        "name": "prod-team2",
        "path": ["prod", "prod-team2"],
        "preemptMinRuntime": {"value": "15s", "from": "queue \"prod-team2\""},
        "maxDuration": {"value": "2h", "from": "queue \"prod\""},
    });
    assert_eq!(answer["queues"][3], expected);
    assert_eq!(answer["queues"][0]["maxDuration"], Value::Null);
    assert_eq!(answer["queues"].as_array().unwrap().len(), 4);
    let pairs = answer["reclaim"].as_array().unwrap();
    assert_eq!(pairs.len(), 4 * 3);
    let expected =
        json!({"preemptor": "dev-team1", "victim": "prod-team2", "value": "30s", "from": "queue \"prod\""});
    assert!(pairs.contains(&expected), "{pairs:#?}");
}

#[test]
fn a_matrix_takes_defaults_and_methods_from_flags_and_shows_one_pair() {
    let chosen =
        ["matrix", "-f", "-", "-o", "json", "--preemptor-queue=dev-team1", "--victim-queue=prod-team2"];
    let arguments = [chosen.as_slice(), &["--reclaim-resolve-method", "queue"]].concat();
    let expected = json!([{
        "preemptor": "dev-team1", "victim": "prod-team2", "value": "35s", "from": "queue \"prod-team2\"",
    }]);
    assert_eq!(answer(&arguments, &objects(&cluster())).0["reclaim"], expected);
    let defaults = ["--default-reclaim-min-runtime=90m", "--default-preempt-min-runtime=1d"];
    let arguments = [["matrix", "-f", "-", "-o", "json"].as_slice(), &defaults].concat();
    let (answer, _) = answer(&arguments, &objects(&[queue("a", &json!({})), queue("b", &json!({}))]));
    let value = json!({"value": "1d", "from": "default"});
    assert_eq!(answer["queues"][0]["preemptMinRuntime"], value);
    let pair = json!({"preemptor": "a", "victim": "b", "value": "90m", "from": "default"});
    assert_eq!(answer["reclaim"][0], pair);
}

#[test]
fn a_matrix_is_the_same_in_yaml_and_a_table_for_people() {
    let printed = |format: &str| {
        let output = tenure(&["matrix", "-f", "-", "-o", format], &objects(&cluster()));
        String::from_utf8(output.stdout).unwrap()
    };
    let (json, _) = answer(&["matrix", "-f", "-", "-o", "json"], &objects(&cluster()));
    let yaml: Value = serde_saphyr::from_str(&printed("yaml")).unwrap();
    assert_eq!(yaml, json);
    let table = printed("table");
    let row = "prod-team2   15s             queue \"prod-team2\"   2h        queue \"prod\"";
    assert!(table.contains(row), "{table}");
    assert!(table.contains("dev-team1    prod-team2   30s             queue \"prod\"\n"), "{table}");
}

#[test]
fn a_matrix_of_a_queue_that_is_not_there_says_so() {
    let output = tenure(&["matrix", "-f", "-", "--victim-queue", "missing"], &objects(&cluster()));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "error: there is no queue \"missing\" of group scheduling.run.ai: kubectl tenure matrix lists the queues\n"
    );
}

#[test]
fn a_gang_is_protected_by_the_floor_of_its_kind() {
    let verdict = preemption(&cluster(), "ours", &["gang-0"]);
    assert_eq!((verdict.allowed, verdict.kind.as_str()), (false, "preempt"));
    assert_eq!(verdict.rulings, [json!([true, "preemptMinRuntime", "2026-01-01T01:00:05Z"])]);
    let verdict = preemption(&cluster(), "theirs", &["gang-0"]);
    assert_eq!((verdict.allowed, verdict.kind.as_str()), (false, "reclaim"));
    assert_eq!(verdict.rulings, [json!([true, "reclaimMinRuntime", "2026-01-01T01:00:20Z"])]);
    let because = verdict.because;
    assert!(because.contains("reclaimMinRuntime is 30s, from queue \\\"prod\\\""), "{because}");
}

#[test]
fn an_elastic_workload_may_shrink_to_its_minimum() {
    let verdict = preemption(&cluster(), "theirs", &["elastic-0", "elastic-1"]);
    assert_eq!((verdict.allowed, verdict.rulings), (true, vec![json!([false, null, null]); 2]));
    let verdict = preemption(&cluster(), "theirs", &["elastic-0", "elastic-1", "elastic-2"]);
    let protected = |rule| json!([true, rule, "2026-01-01T01:00:20Z"]);
    // the last one is all that it takes
    let rulings = ["minAvailable", "minAvailable", "reclaimMinRuntime"].map(protected);
    assert_eq!((verdict.allowed, verdict.rulings), (false, rulings.to_vec()));
}

#[test]
fn pods_that_are_terminating_do_not_count_as_running() {
    let mut items = cluster();
    for item in &mut items {
        if ["elastic-1", "elastic-2"].map(Value::from).contains(&item["metadata"]["name"]) {
            item["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:59:59Z");
        }
    }
    assert!(!preemption(&items, "theirs", &["elastic-0"]).allowed);
    let Verdict { allowed, because, .. } = preemption(&items, "theirs", &["elastic-1"]);
    assert!(allowed && because.contains("terminating"), "{because}");
}

#[test]
fn the_rule_is_named_that_protects_for_longest() {
    let class = |seconds: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "tolerant", "annotations": {
                "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "200",
                "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": seconds,
            }},
            "value": 10,
        })
    };
    let spec = json!({"nodeName": "node-1", "priority": 10, "priorityClassName": "tolerant"});
    let judged = |seconds: &str| {
        let mut items = cluster();
        items.extend([class(seconds), with(pod("gang-0", "gang"), "spec", spec.clone())]);
        preemption(&items, "theirs", &["gang-0"]).rulings.remove(0)
    };
    assert_eq!(judged("600"), json!([true, "preemptionToleration", "2026-01-01T01:09:00Z"]));
    assert_eq!(judged("-1"), json!([true, "preemptionToleration", null]));
    assert_eq!(judged("0"), json!([true, "reclaimMinRuntime", "2026-01-01T01:00:20Z"]));
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let input = objects(&cluster());
    let asked = |arguments: &[&str]| {
        let arguments = [&["explain", "preemption", "-f", "-"], arguments].concat();
        let output = tenure(&arguments, &input);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, expected) in [
        (["--preemptor=ns/ours", "--victim=ns/ours"].as_slice(), "a pod can't preempt itself"),
        (&["--preemptor=ns/ours", "--victim=ns/gang-0", "--victim=ns/gang-0"], "named twice"),
        (&["--preemptor=ns/ours", "--victim=ns/gone"], "pod ns/gone is not among the objects"),
        (&["--preemptor=ns/ours", "--victim=a/b/c"], "must be NAMESPACE/POD"),
        (&["--preemptor=ns/ours"], "--victim"),
        (&["--preemptor=ns/ours", "--victim=ns/gang-0", "--now", "noon"], "must be a time"),
    ] {
        let said = asked(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn a_pod_is_explained_with_its_floors_its_end_and_what_would_be_paused() {
    let mut items = cluster();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "ns", "uid": "7"},
    });
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "7", "controller": true}]);
    for item in &mut items {
        if item["metadata"]["name"] == "gang-0" {
            item["metadata"]["ownerReferences"] = owner.clone();
        }
    }
    items.push(job);
    let arguments = ["explain", "pod", "ns/gang-0", "-f", "-", "--now", NOW];
    let (answer, said) = answer(&[arguments.as_slice(), &["-o", "json"]].concat(), &objects(&items));
    assert_eq!(said, [""; 0]);
    let would = json!({"action": "pause", "kind": "Job", "name": "ns/train", "field": "spec.suspend", "value": true, "resume": "kubectl tenure resume job.batch/train -n ns"});
    for (pointer, expected) in [
        ("/pod", json!("ns/gang-0")),
        ("/workload", json!("PodGroup ns/gang")),
        ("/path", json!(["prod", "prod-team2"])),
        ("/startedAt", json!("2026-01-01T00:59:50Z")),
        ("/expiresAt", json!("2026-01-01T02:59:00Z")),
        ("/ceilingSinceFrom", json!("when it was scheduled")),
        ("/maxDuration", json!({"value": "2h", "from": "queue \"prod\""})),
        ("/would", would),
        ("/protected/0/preemptor", json!("same")),
        ("/protected/0/until", json!("2026-01-01T01:00:05Z")),
        ("/protected/1/preemptorQueue", json!("prod")),
        ("/protected/1/until", json!("2026-01-01T01:00:25Z")),
        ("/protected/2/preemptorQueue", json!("dev")),
        ("/protected/2/until", json!("2026-01-01T01:00:20Z")),
    ] {
        assert_eq!(answer.pointer(pointer), Some(&expected), "{pointer} of {answer:#}");
    }
    let text = String::from_utf8(tenure(&arguments, &objects(&items)).stdout).unwrap();
    assert!(text.contains("then Job ns/train is paused: spec.suspend is set to true"), "{text}");
    assert!(!text.contains("onReversal"), "{text}");

    // its queue's onReversal, unless it comes back by itself
    let undone = "once three pauses of Job ns/train were undone, each for a full run, it isn't paused any more: its pods are deleted in its place (onReversal: DeletePods)";
    let prod = |action: &str| {
        let spec = json!({"maxDuration": "2h", "onReversal": "DeletePods", "maxDurationAction": action});
        objects(&[items.as_slice(), &[queue("prod", &spec)]].concat())
    };
    let explanation = |action| String::from_utf8(tenure(&arguments, &prod(action)).stdout).unwrap();
    assert!(explanation("Pause").contains(undone), "{}", explanation("Pause"));
    assert!(!explanation("Requeue").contains("onReversal"), "{}", explanation("Requeue"));
}

/// Each warning is printed once, by each command that meets it.
#[test]
fn what_can_not_be_meant_draws_a_warning_each_and_nothing_hangs() {
    let mut items = cluster();
    items.extend([
        queue("c1", &json!({"parentQueue": "c2", "preemptMinRuntime": "1h"})),
        queue("c2", &json!({"parentQueue": "c1", "reclaimMinRuntime": "1h"})),
        queue("self", &json!({"parentQueue": "self"})),
        queue("lonely", &json!({"parentQueue": "missing"})),
        queue("negative", &json!({"preemptMinRuntime": "-5s"})),
        group("future", "c1", 1, "2099-01-01T00:00:00Z"),
        pod("from-the-future", "future"),
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "garbage", "annotations": {
                "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "ten",
            }},
            "value": 1,
        }),
    ]);
    let input = objects(&items);
    for arguments in [
        ["matrix"].as_slice(),
        &["explain", "pod", "ns/from-the-future"],
        &["explain", "preemption", "--preemptor=ns/ours", "--victim=ns/from-the-future"],
    ] {
        let arguments = [arguments, &["-f", "-", "-o", "json", "--now", NOW]].concat();
        let (_, said) = answer(&arguments, &input);
        for expected in [
            "c1 -> c2 -> c1",
            "queue \"self\" is its own parent",
            "its parent \"missing\" doesn't exist",
            "queue \"negative\": spec.preemptMinRuntime: Invalid value: \"-5s\"",
            "2099-01-01T00:00:00Z lies in the future",
            "PriorityClass \"garbage\": metadata.annotations",
        ] {
            let times = said.iter().filter(|line| line.contains(expected)).count();
            assert_eq!(times, 1, "{arguments:?}: {expected}: {said:#?}");
        }
        assert_eq!(said.len(), 6, "{arguments:?}: {said:#?}");
    }
    let verdict = preemption(&items, "ours", &["from-the-future"]);
    let floor_of_c2 = json!([true, "reclaimMinRuntime", "2026-01-01T01:59:00Z"]);
    assert_eq!(verdict.rulings, [floor_of_c2], "in a cycle the nearest floor counts");
}

#[test]
fn a_stamp_from_the_future_gives_way_to_what_the_pods_show_and_else_counts_as_now() {
    for (min, expected) in
        [(1, json!([false, null, null])), (2, json!([true, "preemptMinRuntime", "2026-01-01T01:00:15Z"]))]
    {
        let mut items = cluster();
        items.extend([group("future", "prod-team2", min, "2099-01-01T00:00:00Z"), pod("early", "future")]);
        assert_eq!(preemption(&items, "ours", &["early"]).rulings, [expected]);
    }
}

fn explained(items: &[Value], pod: &str) -> (Value, Vec<String>) {
    answer(&["explain", "pod", &format!("ns/{pod}"), "-f", "-", "-o", "json", "--now", NOW], &objects(items))
}

#[test]
fn a_pod_is_explained_with_what_its_workload_may_lose() {
    assert_eq!(explained(&cluster(), "elastic-0").0["elastic"], true);
    assert_eq!(explained(&cluster(), "gang-0").0["elastic"], false);
    let mut items = cluster();
    items.push(with(
        pod("gang-0", "gang"),
        "metadata",
        json!({
            "name": "gang-0", "namespace": "ns", "annotations": {"pod-group-name": "gang"},
            "deletionTimestamp": "2026-01-01T00:59:59Z",
        }),
    ));
    let (gone, _) = explained(&items, "gang-0");
    assert_eq!((&gone["protected"], &gone["would"]), (&json!([]), &Value::Null), "{gone:#}");
}

#[test]
fn a_class_that_is_not_there_is_named_by_both_explanations() {
    let mut items = cluster();
    let spec = json!({"nodeName": "node-1", "priority": 10, "priorityClassName": "lost"});
    items.push(with(pod("gang-0", "gang"), "spec", spec));
    let (explained, _) = explained(&items, "gang-0");
    assert!(explained["priorityClassTrouble"].as_str().unwrap().contains("\"lost\" doesn't exist"));
    let verdict = preemption(&items, "theirs", &["gang-0"]);
    assert_eq!(verdict.rulings, [json!([true, "preemptionToleration", null])]);
}

#[test]
fn the_classes_of_every_cluster_have_their_priorities_in_manifests_too() {
    let mut items = cluster();
    let spec = json!({"priorityClassName": "system-node-critical"});
    items.push(with(pod("theirs", "theirs"), "spec", spec.clone()));
    assert!(preemption(&items, "theirs", &["gang-0"]).allowed);
    items.push(with(pod("gang-0", "gang"), "spec", spec));
    assert!(explained(&items, "gang-0").0["exempt"].is_string());
}

#[test]
fn a_pod_of_no_subgroup_may_go() {
    let mut items = cluster();
    let mut group = group("parts", "prod-team2", 3, "2026-01-01T00:59:50Z");
    group["spec"]["subGroups"] =
        json!([{"name": "lead", "minMember": 1}, {"name": "worker", "minMember": 1}]);
    items.push(group);
    for (name, subgroup) in [("lead", "lead"), ("worker", "worker"), ("extra", "unknown")] {
        let mut pod = pod(name, "parts");
        pod["metadata"]["labels"] = json!({"kai.scheduler/subgroup-name": subgroup});
        items.push(pod);
    }
    assert!(preemption(&items, "theirs", &["extra"]).allowed);
    assert!(!preemption(&items, "theirs", &["worker"]).allowed);
}

#[test]
fn what_can_not_be_read_is_warned_of_and_in_nobodys_way() {
    let mut items = cluster();
    items.push(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd", "namespace": "ns"}, "spec": 7}),
    );
    items.push(pod("lonely", "no-such-group"));
    let (_, said) = answer(&["matrix", "-f", "-", "-o", "json"], &objects(&items));
    assert!(said.len() == 1 && said[0].contains("not a Pod"), "{said:?}");
    let (_, said) = explained(&items, "lonely");
    assert!(said.iter().any(|line| line.contains("its PodGroup \"no-such-group\" is not there")), "{said:?}");
}

#[test]
fn of_a_job_that_kueue_runs_the_workload_would_be_paused() {
    let mut items = cluster();
    let job =
        || json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": true});
    let mut owned = pod("gang-0", "gang");
    owned["metadata"]["ownerReferences"] = json!([job()]);
    items.push(owned);
    items.push(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "ns", "uid": "1"}}));
    assert_eq!(explained(&items, "gang-0").0["would"]["kind"], "Job");
    let metadata = json!({"name": "job-train-1f", "namespace": "ns", "uid": "2", "ownerReferences": [job()]});
    let status = json!({"conditions": [{"type": "Admitted", "status": "True"}]});
    items.push(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": metadata, "status": status,
    }));
    let would = json!({
        "action": "pause", "kind": "Workload", "name": "ns/job-train-1f", "kueueWorkloadOf": "Job ns/train",
        "field": "spec.active", "value": false, "resume": "kubectl tenure resume job.batch/train -n ns",
    });
    assert_eq!(explained(&items, "gang-0").0["would"], would);

    // the row of the Job says that it is deleted, and so it counts for the Job itself
    let config = tempfile::NamedTempFile::new().unwrap();
    let row = "owners: [{group: batch, kind: Job, path: spec.suspend, value: true, onExpiry: Delete}]\n";
    std::fs::write(config.path(), row).unwrap();
    let path = config.path().to_str().unwrap();
    let arguments = ["explain", "pod", "ns/gang-0", "-f", "-", "--now", NOW, "--config", path];
    let deleted = answer(&[arguments.as_slice(), &["-o", "json"]].concat(), &objects(&items)).0;
    assert_eq!(deleted["would"], json!({"action": "delete", "kind": "Job", "name": "ns/train"}));
    let text = String::from_utf8(tenure(&arguments, &objects(&items)).stdout).unwrap();
    let expected =
        "then Job ns/train would be deleted with its pods, and can't be resumed (onExpiry: Delete)";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn what_the_servers_configuration_says_of_owners_counts() {
    let config = tempfile::NamedTempFile::new().unwrap();
    let rows = "owners: [{group: argoproj.io, kind: Rollout, path: spec.replicas, value: 0}]\n";
    std::fs::write(config.path(), rows).unwrap();
    let mut items = cluster();
    let mut owned = pod("gang-0", "gang");
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web", "uid": "1", "controller": true,
    }]);
    items.push(owned);
    items.push(json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web", "namespace": "ns"}}));
    let would = |more: &[&str]| {
        let arguments =
            [&["explain", "pod", "ns/gang-0", "-f", "-", "-o", "json", "--now", NOW], more].concat();
        answer(&arguments, &objects(&items)).0["would"].clone()
    };
    assert_eq!(would(&[])["action"], "delete");
    let configured = would(&["--config", config.path().to_str().unwrap()]);
    assert_eq!((&configured["action"], &configured["kind"]), (&json!("pause"), &json!("Rollout")));
}

#[test]
fn nothing_of_an_object_commands_the_terminal() {
    let mut items = cluster();
    items.push(queue("a", &json!({"parentQueue": "\u{1b}[2J\u{9b}", "maxDuration": "\u{1b}]0;x\u{7}"})));
    let mut odd = pod("gang-0", "gang");
    odd["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "\u{1b}[31mX", "name": "\u{202e}j", "uid": "1", "controller": true}]);
    items.push(odd);
    let commands = ['\u{1b}', '\u{9b}', '\u{7}', '\u{202e}'];
    for arguments in
        [["matrix"].as_slice(), &["explain", "pod", "ns/gang-0"], &["explain", "pod", "ns/\u{1b}[2J"]]
    {
        let output = tenure(&[arguments, &["-f", "-", "--now", NOW]].concat(), &objects(&items));
        for text in [output.stdout, output.stderr] {
            let text = String::from_utf8(text).unwrap();
            assert!(!text.contains(commands), "{arguments:?}: {text:?}");
        }
    }
}

#[test]
fn a_time_slice_lasts_as_long_as_the_default_floor_where_no_queue_says() {
    let slices = json!({"maxDuration": "1m", "maxDurationAction": "Requeue", "reclaimMinRuntime": "0s"});
    let items = [queue("q", &slices), group("g", "q", 1, "2026-01-01T00:59:00Z"), pod("a", "g")];
    let arguments = ["explain", "pod", "ns/a", "-f", "-", "-o", "json", "--now", NOW];
    for (more, end) in [
        ([].as_slice(), "2026-01-01T01:00:00Z"),
        (&["--default-preempt-min-runtime=30m", "--default-reclaim-min-runtime=2h"], "2026-01-01T01:29:00Z"),
    ] {
        let (answer, _) = answer(&[arguments.as_slice(), more].concat(), &objects(&items));
        assert_eq!(answer["expiresAt"], end, "{more:?}");
    }
}

#[test]
fn an_own_ceiling_without_effect_is_reported() {
    let noted = |name: &str, text: &str| {
        let mut pod = pod(name, "ours");
        pod["metadata"]["annotations"]["tenure.dev/max-duration"] = json!(text);
        pod
    };
    let mut items = cluster();
    items.extend([noted("invalid", "soon"), noted("longer", "3h"), noted("shorter", "1h")]);
    let without_effect = |name: &str| {
        let pod = format!("ns/{name}");
        let arguments = ["explain", "pod", "-f", "-", "-o", "json", "--now", NOW, &pod];
        answer(&arguments, &objects(&items)).0["withoutEffect"].clone()
    };
    assert_eq!(without_effect("shorter"), Value::Null);
    assert_eq!(
        without_effect("longer"),
        json!([
            "Annotation tenure.dev/max-duration of 3h has no effect: Queue prod ends a run after 2h, and a workload can only shorten that"
        ])
    );
    let invalid = without_effect("invalid")[0].as_str().unwrap().to_owned();
    let begin = "Pod invalid: metadata.annotations[tenure.dev/max-duration]: Invalid value: \"soon\": must be a duration";
    assert!(invalid.starts_with(begin) && invalid.ends_with(": it has no effect"), "{invalid}");
}

fn of_workload(items: &[Value], object: &str) -> Value {
    let arguments = ["explain", object, "-n", "ns", "-f", "-", "-o", "json", "--now", NOW];
    answer(&arguments, &objects(items)).0
}

fn job(name: &str, record: Option<&Value>) -> Value {
    let annotations = record.map(|record| json!({"tenure.dev/paused": record.to_string()}));
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
        "spec": {"suspend": record.is_some()},
    })
}

fn of_job(pod: Value, job: &str) -> Value {
    let mut pod = pod;
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true}]);
    pod
}

#[test]
fn a_workload_is_explained_by_the_pod_that_ends_first() {
    let mut items = cluster();
    let slices = json!({"maxDuration": "1h", "maxDurationAction": "Requeue", "requeueDelay": "5m", "expiryNotice": "10m,30m"});
    items.extend([queue("slices", &slices), group("sliced", "slices", 1, "2026-01-01T00:59:00Z")]);
    items.extend([job("train", None), job("slice", None), job("idle", None)]);
    items.extend(["gang-7", "gang-8"].map(|name| of_job(pod(name, "gang"), "train")));
    items.push(of_job(pod("slice-0", "sliced"), "slice"));
    let of = of_workload(&items, "job/train");
    assert_eq!(
        (&of["workload"], &of["pods"], &of["paused"]),
        (&json!("Job ns/train"), &json!(2), &Value::Null)
    );
    assert_eq!(of["firstPod"]["pod"], "ns/gang-7");
    assert_eq!(of["firstPod"]["would"]["resume"], "kubectl tenure resume job.batch/train -n ns", "{of:#}");
    let slice = &of_workload(&items, "jobs.batch/slice")["firstPod"];
    assert_eq!(slice["noticesAt"], json!(["2026-01-01T01:29:00Z", "2026-01-01T01:49:00Z"]), "{slice:#}");
    assert_eq!(slice["would"]["comesBackAfter"], "5m");
    let idle = of_workload(&items, "job/idle");
    assert_eq!((&idle["pods"], &idle["firstPod"]), (&json!(0), &Value::Null));
    assert_eq!(of_workload(&items, "podgroup/elastic")["pods"], 3);
    assert_eq!(of_workload(&items, "po/gang-7")["pod"], "ns/gang-7");
    let arguments = ["explain", "job", "slice", "-n", "ns", "-f", "-", "--now", NOW];
    let text = tenure(&arguments, &objects(&items)).stdout;
    let text = String::from_utf8(text).unwrap();
    for line in [
        "Job ns/slice\n  - one pod of it is in a queue\n\nns/slice-0\n",
        "  - its workload gets a notice at 2026-01-01T01:29:00Z (29m from now), and at 2026-01-01T01:49:00Z (49m from now)\n",
        "  - it comes back by itself 5m later, or before that by kubectl tenure resume job.batch/slice -n ns\n",
    ] {
        assert!(text.contains(line), "{line:?} should be in {text}");
    }
}

#[test]
fn what_was_paused_is_explained_with_what_resumes_it() {
    let record = |reason: &str| {
        json!({
            "reason": reason, "at": "2026-01-01T00:30:00Z", "queue": "prod-team2",
            "queueGroup": "scheduling.run.ai", "ceiling": {"maxDuration": "2h", "queue": "prod"},
            "field": "spec.suspend", "value": true, "previousValue": false,
        })
    };
    let paused = record("MaxDurationExceeded");
    let back = json!({"count": 0, "requeueAt": "2026-01-01T01:10:00Z"});
    let mut returning = job("returning", Some(&paused));
    returning["metadata"]["annotations"]["tenure.dev/requeue-state"] = json!(back.to_string());
    let mut resumed = job("resumed", Some(&paused));
    resumed["spec"]["suspend"] = json!(false);
    let mut inactive = job("inactive", Some(&record("Deactivated")));
    inactive["metadata"]["annotations"]["tenure.dev/active"] = json!("false");
    let mut unreadable = job("unreadable", Some(&paused));
    unreadable["metadata"]["annotations"]["tenure.dev/paused"] = json!("soon");
    let mut others = job("others", None);
    others["spec"]["suspend"] = json!(true);
    let with = |key: &str, value: &str| {
        let mut record = paused.clone();
        record[key] = json!(value);
        record
    };
    let forged = job("forged", Some(&with("field", "spec.parallelism")));
    let mut copied = job("copied", Some(&with("uid", "another")));
    copied["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Other", "name": "a", "uid": "a", "controller": true}]);
    let jobs =
        vec![job("paused", Some(&paused)), returning, resumed, inactive, unreadable, others, forged, copied];
    let items = [cluster(), jobs].concat();
    let text = |name: &str| {
        let arguments = ["explain", "job", name, "-n", "ns", "-f", "-", "--now", NOW];
        let Output { status, stdout, stderr } = tenure(&arguments, &objects(&items));
        assert!(status.success() && stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    let json = &of_workload(&items, "job/paused")["paused"];
    assert_eq!((&json["ceiling"]["queue"], &json["comesBackAt"]), (&json!("prod"), &Value::Null));
    assert_eq!(
        (&json["command"], &json["inForce"]),
        (&json!("kubectl tenure resume job.batch/paused -n ns"), &json!(true))
    );
    assert_eq!(
        text("paused"),
        "Job ns/paused\n  - Tenure paused it at 2026-01-01T00:30:00Z (MaxDurationExceeded): spec.suspend was set from false to true\n  - Its run in Queue prod-team2 has reached the ceiling of 2h, set by Queue prod above it. It stays paused until you resume it, with a full ceiling again: kubectl tenure resume job.batch/paused -n ns\n  - none of its pods is left in a queue\n"
    );
    for (name, expected) in [
        (
            "returning",
            "It is paused, and comes back by itself at 2026-01-01T01:10:00Z. To resume it now: kubectl",
        ),
        (
            "resumed",
            "something else has set spec.suspend to false since: kubectl tenure resume job.batch/resumed",
        ),
        (
            "inactive",
            "stays paused until you activate it: kubectl tenure activate job.batch/inactive -n ns\n",
        ),
        ("unreadable", "annotation tenure.dev/paused can't be read: soon\n"),
        ("others", "its spec.suspend is true, which something else than Tenure has set\n"),
        (
            "forged",
            "isn't a record that Tenure follows: it names spec.parallelism, which Tenure doesn't set for this kind: {",
        ),
        ("copied", "isn't a record that Tenure follows: it is of another object's pause: {"),
    ] {
        let text = text(name);
        assert!(text.contains(expected), "{expected:?} should be in {text}");
    }
}

#[test]
fn a_record_on_a_workload_counts_if_kueue_runs_the_job_by_no_other_and_tenure_follows_it() {
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train", "controller": true}]);
    let workload = |name: &str, condition: &str, paused: Option<&str>| {
        let record = |uid: &str| {
            json!({
                "reason": "MaxDurationExceeded", "at": "2026-01-01T00:30:00Z", "queue": "prod-team2", "uid": uid,
                "field": "spec.active", "value": false, "previousValue": true,
            })
        };
        let annotations = paused.map(|uid| json!({"tenure.dev/paused": record(uid).to_string()}));
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "ownerReferences": owner, "annotations": annotations,
            },
            "spec": {"active": paused.is_none()},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        })
    };
    let explained = |workloads: Vec<Value>| {
        let of = of_workload(&[cluster(), vec![job("train", None)], workloads].concat(), "job/train");
        (of["paused"]["kueueWorkload"].clone(), of["note"].clone())
    };
    let forged = workload("forged", "Requeued", Some("forged"));
    let running = explained(vec![workload("real", "Admitted", None), forged.clone()]);
    assert_eq!(running, (Value::Null, Value::Null));
    assert_eq!(explained(vec![workload("real", "Evicted", Some("real")), forged]).0, "real");
    let (paused, note) = explained(vec![workload("real", "Evicted", Some("another"))]);
    assert!(paused.is_null() && note.to_string().contains("it is of another object's pause"), "{note}");
}

#[test]
fn what_tenure_does_not_pause_is_not_of_workload() {
    let mut set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "namespace": "ns"}});
    set["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true}]);
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": "ns"}});
    let items = [cluster(), vec![set, cron]].concat();
    for (object, expected) in [
        (
            "rs/web-1",
            "error: ReplicaSet ns/web-1 is controlled by deployment/web, which Tenure pauses instead: explain that\n",
        ),
        (
            "cronjob/nightly",
            "error: Tenure doesn't pause a CronJob: explain one of its pods, or an object that it controls\n",
        ),
        (
            "job/gone",
            "error: job/gone of namespace ns is not among the objects that were read: name its namespace with -n, and its file with -f\n",
        ),
        ("job", "error: no name after \"job\": name an object as in deployment/test\n"),
    ] {
        let Output { status, stderr, .. } =
            tenure(&["explain", object, "-n", "ns", "-f", "-"], &objects(&items));
        assert_eq!((status.code(), String::from_utf8(stderr).unwrap().as_str()), (Some(1), expected));
    }
}
