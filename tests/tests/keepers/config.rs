//! The configuration file changes while the programs run.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::UNIX_EPOCH,
};

use serde_json::{Value, json};
use tenure_testbed::{eventually, program};
use tenure_tests::{
    DEADLINE, World, audit, fixtures,
    keeper::Metrics,
    workloads::{
        Namespace, bare_pod, controller, in_queue, owned, pause_event, queue, runai_queue, workload,
    },
};
use tokio::task::spawn_blocking;

use crate::{with_keeper, world};

/// The programs, by the names in their metrics.
const PROGRAMS: [&str; 2] = ["webhook", "keeper"];

/// Changes the file, and waits until both programs have judged it.
async fn configure(world: &World, text: &str, good: bool) {
    static CHANGES: AtomicU32 = AtomicU32::new(1);
    // so that it is a change, even if another test has left the same
    let text = format!("{text}# {}\n", CHANGES.fetch_add(1, Relaxed));
    fs::write(world.tenure.config_file(), text).unwrap();
    // a program waits 200 ms until a changed file is complete: what it takes up earlier is the file
    // that was there before
    let changed = fs::metadata(world.tenure.config_file()).unwrap().modified().unwrap();
    let earliest = changed.duration_since(UNIX_EPOCH).unwrap().as_secs_f64() + 0.1;
    eventually("both programs to have looked at the file", DEADLINE, async || {
        let taken = taken_up(world).await;
        let done = |(at, is_good): &(f64, bool)| if good { *at > earliest && *is_good } else { !is_good };
        Ok(taken.iter().all(done).then_some(()))
    })
    .await
    .unwrap();
}

/// The time of each program's last reload of the configuration, and true if that was good.
async fn taken_up(world: &World) -> Vec<(f64, bool)> {
    let mut taken = Vec::new();
    for (program, url) in PROGRAMS.iter().zip(world.tenure.admin_urls()) {
        let metrics = Metrics::of(url).await;
        let gauge = |name: &str| metrics.gauge(&format!("tenure_{program}_config_last_reload_{name}"));
        taken.push((gauge("success_timestamp_seconds").unwrap(), gauge("successful").unwrap() > 0.5));
    }
    taken
}

/// The number of changes that the keeper has refused.
async fn failures(world: &World) -> u64 {
    Metrics::of_world(world).await.count("tenure_keeper_config_reload_failures_total", &[])
}

fn log(world: &World) -> String {
    fs::read_to_string(world.tenure.keeper_log()).unwrap()
}

/// The leader, the time since which it leads, and the number of times that this has changed.
async fn lease(world: &World) -> String {
    let path = "-o=jsonpath={.spec.holderIdentity} {.spec.acquireTime} {.spec.leaseTransitions}";
    let get = ["get", "lease", "tenure-keeper", "-n", tenure_testbed::RELEASE_NAMESPACE, path];
    world.cluster.kubectl(&get).await.unwrap().success().unwrap()
}

/// A pod without an owner that runs for a day.
async fn pod(namespace: &Namespace, name: &str) -> kube::core::DynamicObject {
    namespace.create(&bare_pod(namespace.name(), name, &in_queue("a-day"), &Value::Null)).await
}

async fn await_notice(namespace: &Namespace, pod: &kube::core::DynamicObject) {
    eventually("the end of its run to be announced", DEADLINE, async || {
        let annotations = namespace.field(pod, "metadata.annotations").await;
        Ok(annotations.get("tenure.dev/expires-at").map(drop))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn keeper_takes_up_a_changed_notice_and_keeps_the_last_good_one_while_the_file_is_bad() {
    let world = &*with_keeper().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("a-day", "1d")).await;
    let (led, refused) = (lease(world).await, failures(world).await);
    configure(world, "expiryNotice: 1h\n", true).await;
    let first = pod(&namespace, "first").await;
    configure(world, "expiryNotice: 2d\n", true).await;
    await_notice(&namespace, &first).await;

    configure(world, "# not yet\nexpiryNotice: soon\ndefaultPremptMinRuntime: 1m\n", false).await;
    await_notice(&namespace, &pod(&namespace, "second").await).await;
    assert_eq!(failures(world).await, refused + 1);
    let log = log(world);
    let complaints: Vec<_> = log.lines().filter(|line| line.contains("Keeping the last good")).collect();
    let complaint = complaints.last().unwrap();
    let file = world.tenure.config_file().display().to_string();
    for words in
        ["level=error", &file, "line 2: expiryNotice: Invalid value", "line 3: defaultPremptMinRuntime"]
    {
        assert!(complaint.contains(words), "{words} in {complaint}");
    }

    configure(world, "expiryNotice: 0s\n", true).await;
    let third = pod(&namespace, "third").await;
    configure(world, "expiryNotice: 3d\n", true).await;
    await_notice(&namespace, &third).await;
    fs::remove_file(world.tenure.config_file()).unwrap();
    let gone = async || Ok((failures(world).await == refused + 2).then_some(()));
    eventually("the file to be missed", DEADLINE, gone).await.unwrap();
    await_notice(&namespace, &pod(&namespace, "fourth").await).await;
    assert_eq!(lease(world).await, led, "the leader hasn't changed");
    configure(world, "", true).await;
}

#[tokio::test]
async fn keeper_takes_up_changed_owners_and_the_ceilings_noted_on_them() {
    const ROW: &str = "owners:\n- {group: argoproj.io, kind: Rollout, path: spec.replicas, value: 0}\n";
    let world = &*with_keeper().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("a-day", "1d")).await;
    configure(world, "", true).await;
    let mut rollout = fixtures::object(
        "argoproj.io/v1alpha1",
        "Rollout",
        namespace.name(),
        "first",
        &json!({"replicas": 3}),
    );
    // which isn't read as long as it isn't known how a Rollout is paused
    rollout["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "1s"});
    let first = namespace.create(&rollout).await;
    let set = workload("ReplicaSet", namespace.name(), "first", &in_queue("a-day"), &Value::Null);
    namespace.create(&owned(set, &[controller(&first)])).await;
    namespace.await_running(2).await;
    configure(world, ROW, true).await;
    namespace.await_pause_of(&first, "spec.replicas", &json!(0)).await;
    let events = namespace.await_events_of("MaxDurationExceeded", 1).await;
    assert_eq!(events, [pause_event(&first, "spec.replicas", "0")]);
    audit::assert_changes(&world.cluster, namespace.name(), &["patch rollouts/first"]).await;

    // without the row, the owner below it is paused
    configure(world, "owners: []\n", true).await;
    namespace.apply(&queue("a-day", "1s")).await;
    namespace.await_paused("ReplicaSet", "first").await;
    // the ceiling of the Rollout is noted on the pods for which it counted
    let changes = async || {
        let mut changes = audit::changes_of_keeper(&world.cluster, namespace.name());
        changes.retain(|change| !change.starts_with("patch pods/"));
        Ok((changes.len() >= 2).then_some(changes))
    };
    let changes = eventually("both pauses", DEADLINE, changes).await.unwrap();
    assert_eq!(changes, ["patch rollouts/first", "patch replicasets/first"]);
    configure(world, "", true).await;
}

#[tokio::test]
async fn webhook_warns_of_ceilings_below_the_configured_default_floor() {
    let world = &*with_keeper().await;
    let warnings = async || {
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let queue = runai_queue("short", "", "5m").to_string();
        let output = world.cluster.kubectl_with_input(&apply, &queue).await.unwrap();
        let warnings = output.stderr.clone();
        output.success().unwrap();
        warnings
    };
    configure(world, "reclaimResolveMethod: lca\n", true).await;
    assert!(!warnings().await.contains("Warning"), "{}", warnings().await);
    configure(world, "defaultPreemptMinRuntime: 10m\n", true).await;
    let expected = "Warning: spec.maxDuration: 5m is shorter than the default preemptMinRuntime, 10m: workloads end before the floor does";
    assert!(warnings().await.contains(expected), "{}", warnings().await);
    configure(world, "defaultPreemptMinRuntime: 10\n", false).await;
    assert!(warnings().await.contains(expected), "the last good one holds: {}", warnings().await);
    configure(world, "defaultPreemptMinRuntime: 5m\n", true).await;
    assert!(!warnings().await.contains("Warning"), "{}", warnings().await);
    configure(world, "", true).await;
}

/// The file of one of KAI's schedulers.
fn of_kai(preempt: &str) -> String {
    let plugin = format!("{{name: minruntime, arguments: {{defaultPreemptMinRuntime: {preempt}}}}}");
    format!("tiers:\n- plugins:\n  - name: predicates\n  - {plugin}\n")
}

/// The `ConfigMap` that it is in.
fn scheduler_config(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": text},
        "metadata": {"name": "scheduler-config", "namespace": "default"},
    })
}

fn shard(pool: &str, preempt: &str) -> Value {
    json!({
        "apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "shard"},
        "spec": {"partitionLabelValue": pool, "minRuntime": {"preemptMinRuntime": preempt}},
    })
}

/// Waits until the webhook counts `maps` `ConfigMap`s and `shards` shards with another default floor, and
/// `issues` issues.
async fn await_counts(world: &World, maps: u64, shards: u64, issues: u64) {
    let [webhook, _] = world.tenure.admin_urls();
    eventually(&format!("{maps} and {shards} to differ, and {issues} issues"), DEADLINE, async || {
        let metrics = Metrics::of(webhook).await;
        let differ = |source| {
            let labels = [("source", source), ("field", "defaultPreemptMinRuntime")];
            metrics.count("tenure_webhook_kai_floors_differ", &labels)
        };
        let found = metrics.count("tenure_webhook_kai_configuration_issues", &[]);
        let all = (differ("ConfigMap"), differ("SchedulingShard"), found);
        anyhow::ensure!(all == (maps, shards, issues), "{all:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn default_floors_of_kai_that_differ_are_logged_once_and_counted_until_they_do_not() {
    let world = &*with_keeper().await;
    let log = || fs::read_to_string(world.cluster.directory().join("tenure-webhook.log")).unwrap();
    let count =
        |words: &[&str]| log().lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
    let config = "kai: {shards: true, configMap: {namespace: default, name: scheduler-config}}\n\
        defaultPreemptMinRuntime: 5m\nnodePools: [{name: a100, defaultPreemptMinRuntime: 1h}]\n";
    configure(world, config, true).await;
    // it isn't there, and shards aren't known
    await_counts(world, 0, 0, 1).await;
    assert!(count(&["level=warn", "kind=ConfigMap", "there is no such ConfigMap"]) > 0, "{}", log());

    world.apply(&scheduler_config(&of_kai("10m"))).await;
    await_counts(world, 1, 0, 0).await;
    let all = [
        "level=warn",
        "kind=ConfigMap name=default/scheduler-config",
        "minruntime.arguments.defaultPreemptMinRuntime",
        "kai=10m tenure=5m",
        "set floors.defaultPreemptMinRuntime to 10m in Tenure's configuration",
    ];
    assert_eq!(count(&all), 1, "{}", log());
    fixtures::install(world, fixtures::definitions(fixtures::KAI)).await;
    world.apply(&shard("a100", "2h")).await;
    await_counts(world, 1, 1, 0).await;
    let of_pool = ["kind=SchedulingShard name=shard", "floors.nodePools[a100].defaultPreemptMinRuntime"];
    assert_eq!(count(&of_pool), 1, "{}", log());

    // other changes don't cause the same message again
    configure(world, &format!("{config}expiryNotice: 1m\n"), true).await;
    world.apply(&scheduler_config(&format!("actions: allocate\n{}", of_kai("600s")))).await;
    world.apply(&shard("a100", "1h")).await;
    await_counts(world, 1, 0, 0).await;
    assert_eq!((count(&all), count(&of_pool)), (1, 1), "{}", log());
    world.apply(&scheduler_config(&of_kai("5m"))).await;
    await_counts(world, 0, 0, 0).await;
    assert_eq!(count(&["level=info", "don't differ from Tenure's any more"]), 2, "{}", log());

    // an object that can't be read gives a warning and nothing more, and so does a kind that goes
    world.apply(&scheduler_config("tiers: [")).await;
    await_counts(world, 0, 0, 1).await;
    world.apply(&shard("", "1h")).await;
    await_counts(world, 0, 1, 1).await;
    let delete = ["delete", "crd", "schedulingshards.kai.scheduler"];
    world.cluster.kubectl(&delete).await.unwrap().success().unwrap();
    await_counts(world, 0, 0, 1).await;
    configure(world, "", true).await;
    await_counts(world, 0, 0, 0).await;
}

#[tokio::test]
async fn a_file_of_kais_is_taken_up_as_tenures_floors_where_kai_takes_it_as_it_is_written() {
    let world = &*with_keeper().await;
    configure(world, &of_kai("10m"), true).await;
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    let queue = runai_queue("short", "", "5m").to_string();
    let output = world.cluster.kubectl_with_input(&apply, &queue).await.unwrap();
    let expected = "5m is shorter than the default preemptMinRuntime, 10m";
    assert!(output.stderr.contains(expected), "{output:?}");
    configure(world, &of_kai("10 m"), false).await;
    configure(world, "", true).await;
}

#[tokio::test]
async fn neither_program_starts_with_a_bad_file() {
    let file = std::env::temp_dir().join(format!("tenure-config-{}.yaml", std::process::id()));
    fs::write(&file, "\nnodePools:\n- defaultPreemptMinRuntime: 1m\n").unwrap();
    for name in ["tenure-webhook", "tenure-keeper"] {
        let path = spawn_blocking(move || program(name)).await.unwrap().unwrap();
        let output = Command::new(path).arg("--config").arg(&file).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected = format!("--config {}: line 3: nodePools[0].name: Required value", file.display());
        assert!(said.contains(&expected), "{said}");
    }
    fs::remove_file(&file).unwrap();
}

/// `kubectl-tenure config check -`: its exit code, what it prints, and its complaints.
async fn check(input: String) -> (Option<i32>, String, String) {
    let check = move || {
        let mut plugin = Command::new(program("kubectl-tenure")?);
        plugin.args(["config", "check", "-"]).stdin(Stdio::piped());
        let mut plugin = plugin.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        plugin.stdin.take().unwrap().write_all(input.as_bytes())?;
        Ok::<_, anyhow::Error>(plugin.wait_with_output()?)
    };
    let output = spawn_blocking(check).await.unwrap().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), out, err)
}

#[tokio::test]
async fn plugin_checks_the_configuration_of_a_cluster() {
    let world = &*world().await;
    let get = ["get", "configmap", "tenure-config", "-n", tenure_testbed::RELEASE_NAMESPACE, "--output=yaml"];
    let map = world.cluster.kubectl(&get).await.unwrap().success().unwrap();
    let (code, said, complaints) = check(map.clone()).await;
    assert_eq!((code, complaints.as_str()), (Some(0), ""));
    let is_said = said.lines().any(|row| row.split_whitespace().eq(["expiryNotice", "0s", "file"]));
    assert!(is_said, "{said}");
    let (line, _) = map.lines().enumerate().find(|(_, line)| line.contains("expiryNotice")).unwrap();
    let (code, _, complaints) = check(map.replace("expiryNotice", "expiryNotic")).await;
    let expected = format!(
        "error: standard input:{}: expiryNotic: Unknown field: did you mean expiryNotice?\n",
        line + 1
    );
    assert_eq!((code, complaints), (Some(1), expected));
}
