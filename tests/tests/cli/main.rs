//! The kubectl plugin on a real API server. kubectl, by which people call it, finds it on the PATH and becomes the plugin. Tests of
//! help, exit codes, pipes and signals call it so, and those of completion; all others start the plugin itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

mod bulk;
mod completion;
mod ended;
mod examples;
mod explain;
mod fields;
mod refusals;
mod requeue;
mod rights;
mod simulate;
mod status;
mod ui;
mod users;

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually, program};
use tenure_tests::{
    DEADLINE, World, fixtures,
    policies::Refusal,
    workloads::{
        Namespace, bare_pod, controller, distinct, in_queue, in_runai_queue, owned, queue, runai_queue,
        workload,
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
    sync::OnceCell,
    task::spawn_blocking,
    time::timeout,
};

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    // an example has a queue of version v2
    WORLD.get_or_try_init(|| World::running_with("cli", &["crds.serveV2=true"], &[])).await.unwrap()
}

const NOTHING: Value = Value::Null;

async fn plugin() -> PathBuf {
    spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap()
}

/// `kubectl tenure`, as an administrator.
async fn by_kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    let old = env::var_os("PATH").unwrap_or_default();
    let places = plugin().await.parent().map(PathBuf::from).into_iter().chain(env::split_paths(&old));
    let path: OsString = env::join_paths(places).unwrap();
    let mut command = cluster.command("kubectl", &[&["tenure"], arguments].concat());
    command.env("PATH", path).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The plugin, as a user of the cluster.
async fn tenure(cluster: &Cluster, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(plugin().await);
    command.args(arguments).env("KUBECONFIG", kubeconfig).env("HOME", cluster.directory());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The plugin's output.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Said {
    async fn of(mut command: Command) -> Self {
        let output = timeout(DEADLINE, command.output()).await.unwrap().unwrap();
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The standard output of a call that succeeded without a word of complaint.
    fn good(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The standard error of a call that failed and did nothing.
    fn bad(self) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (Some(1), ""), "{self:?}");
        self.stderr
    }
}

async fn run(world: &World, arguments: &[&str]) -> Said {
    Said::of(tenure(&world.cluster, world.cluster.kubeconfig(), arguments).await).await
}

async fn in_namespace(world: &World, namespace: &str, arguments: &[&str]) -> Said {
    run(world, &[arguments, &["-n", namespace]].concat()).await
}

/// Refuses new pods in a namespace: what was scaled up doesn't run, and the keeper removes no record of a pause.
async fn without_new_pods(namespace: &Namespace) -> Refusal {
    let unless = "request.resource.resource != 'pods' || request.operation != 'CREATE'";
    Refusal::start(world().await, namespace, unless).await
}

/// The list of a namespace, as objects.
async fn listed(world: &World, namespace: &str) -> Vec<Value> {
    let said = in_namespace(world, namespace, &["list", "-o", "json"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    serde_json::from_str(&said.stdout).unwrap()
}

/// Waits until the list of a namespace has one workload, in a state.
async fn await_state(world: &World, namespace: &str, state: &str) -> Value {
    let one = async || match listed(world, namespace).await.as_slice() {
        [row] if row["state"] == state => Ok(Some(row.clone())),
        rows => anyhow::bail!("{rows:?}"),
    };
    eventually(&format!("one workload that is {state}"), DEADLINE, one).await.unwrap()
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// An object as a pause leaves it, without a keeper's doing.
async fn paused(
    namespace: &Namespace,
    object: &Value,
    field: &str,
    value: &Value,
    previous: &Value,
) -> DynamicObject {
    let record = json!({
        "reason": "MaxDurationExceeded", "at": "2026-01-02T03:04:05Z", "queue": "by-hand",
        "field": field, "value": value, "previousValue": previous,
    });
    let mut object = object.clone();
    object["metadata"]["annotations"] = json!({"tenure.dev/paused": record.to_string()});
    let (last, above) = field.rsplit_once('.').map(|(above, last)| (last, above)).unwrap();
    object.pointer_mut(&format!("/{}", above.replace('.', "/"))).unwrap()[last] = value.clone();
    namespace.create(&object).await
}

fn deployment(namespace: &Namespace, name: &str) -> Value {
    distinct(workload("Deployment", namespace.name(), name, &json!({}), &NOTHING), name)
}

async fn record_of(namespace: &Namespace, object: &DynamicObject) -> Option<String> {
    let now = namespace.get(object).await.unwrap();
    now.metadata.annotations.unwrap_or_default().get("tenure.dev/paused").cloned()
}

#[tokio::test]
async fn a_workload_is_listed_from_its_start_to_its_pause_and_resumes() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("cli-life", "1d")).await;
    let object = workload("Deployment", name, "test", &in_queue("cli-life"), &NOTHING);
    let deployment = namespace.create(&object).await;
    namespace.await_running(2).await;

    let row = await_state(world, name, "Running").await;
    assert_eq!((&row["workload"], &row["queue"]), (&json!("deployment/test"), &json!("cli-life")));
    assert_eq!((&row["pods"], &row["family"]), (&json!(2), &json!("t9k")));
    assert_eq!(
        time(&row["expiresAt"]).duration_since(time(&row["startedAt"])),
        SignedDuration::from_hours(24)
    );

    world.apply(&queue("cli-life", "1s")).await;
    namespace.await_paused("Deployment", "test").await;
    let row = await_state(world, name, "Paused").await;
    assert_eq!((&row["queue"], &row["reason"]), (&json!("cli-life"), &json!("MaxDurationExceeded")));
    assert!(row.get("expiresAt").is_none() && row["pausedAt"].is_string(), "{row}");

    world.apply(&queue("cli-life", "1d")).await;
    let resumed = in_namespace(world, name, &["resume", "deploy/test"]).await;
    assert_eq!(resumed.stdout, "deployment.apps/test resumed (spec.replicas: 2)\n");
    assert_eq!(resumed.stderr, "New pods of deployment.apps/test get a full ceiling of queue cli-life.\n");
    assert_eq!(resumed.code, Some(0));
    assert_eq!(namespace.field(&deployment, "spec.replicas").await, 2);
    assert_eq!(record_of(&namespace, &deployment).await, None);
    await_state(world, name, "Running").await;
    let again = in_namespace(world, name, &["resume", "deploy/test"]).await.bad();
    assert_eq!(again, "error: deployment.apps/test isn't paused: it has no annotation tenure.dev/paused\n");
}

#[tokio::test]
async fn a_list_has_many_forms() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-root", "", "2h")).await;
    world.apply(&runai_queue("cli-forms", "cli-root", "3h")).await;
    namespace.create(&bare_pod(name, "test", &in_runai_queue("cli-forms"), &NOTHING)).await;
    await_state(world, name, "Running").await;

    let table = in_namespace(world, name, &["list"]).await.good();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split("   ").map(str::trim).collect()).collect();
    let cells: Vec<&str> = lines[1].iter().copied().filter(|cell| !cell.is_empty()).collect();
    let headers: Vec<&str> = lines[0].iter().copied().filter(|cell| !cell.is_empty()).collect();
    assert_eq!(headers, ["WORKLOAD", "QUEUE", "AGE", "FLOOR UNTIL", "EXPIRES AT", "COMES BACK AT", "STATE"]);
    assert_eq!((cells[0], cells[1], cells[3]), ("pod/test", "cli-forms", "<none>"));
    assert_eq!((cells[5], cells[6]), ("<none>", "Running"));
    assert!(cells[2].ends_with('s') && cells[4].parse::<Timestamp>().is_ok(), "{table}");

    let wide = in_namespace(world, name, &["list", "-o", "wide"]).await.good();
    assert!(wide.lines().next().unwrap().ends_with("CEILING FROM   REASON"), "{wide}");
    assert!(wide.contains("run.ai   cli-root       <none>"), "{wide}");

    let all = run(world, &["list", "-A", "cli-forms"]).await.good();
    assert!(all.starts_with("NAMESPACE ") && all.lines().count() == 2 && all.contains(name), "{all}");

    let one = in_namespace(world, name, &["list", "--no-headers"]).await.good();
    assert!(one.starts_with("pod/test ") && one.lines().count() == 1, "{one}");
    for (selector, names) in
        [("kai.scheduler/queue=cli-forms", "pod/test\n"), ("kai.scheduler/queue!=cli-forms", "")]
    {
        let said = in_namespace(world, name, &["list", "-l", selector, "-o", "name"]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), names), "{said:?}");
    }

    let yaml = in_namespace(world, name, &["list", "-o", "yaml"]).await.good();
    assert_eq!(json!(listed(world, name).await), serde_saphyr::from_str::<Value>(&yaml).unwrap());
}

#[tokio::test]
async fn only_workloads_of_the_queues_that_are_asked_for_are_listed() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    for (queue, pod) in [("cli-one", "one"), ("cli-two", "two"), ("cli-three", "three")] {
        world.apply(&runai_queue(queue, "", "1d")).await;
        namespace.create(&bare_pod(name, pod, &in_runai_queue(queue), &NOTHING)).await;
    }
    namespace.create(&bare_pod(name, "free", &json!({}), &NOTHING)).await;
    assert_eq!(listed(world, name).await.len(), 3);
    let two = in_namespace(world, name, &["list", "cli-three", "cli-one", "-o", "json"]).await.good();
    let two: Vec<Value> = serde_json::from_str(&two).unwrap();
    let names: Vec<&str> = two.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["pod/one", "pod/three"]);
    world.apply(&runai_queue("cli-four", "", "1d")).await;
    let none = in_namespace(world, name, &["list", "cli-four"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
    assert_eq!(none.stderr, format!("No workloads in a queue found in {name} namespace.\n"));
}

#[tokio::test]
async fn floors_count_from_the_scheduling_and_pending_workloads_have_no_clock() {
    let world = world().await;
    let (running, pending) = (Namespace::new(world).await, Namespace::new(world).await);
    let mut floors = runai_queue("cli-floors", "", "1d");
    floors["spec"]["preemptMinRuntime"] = json!("30m");
    floors["spec"]["reclaimMinRuntime"] = json!("1h");
    world.apply(&floors).await;
    let labels = in_runai_queue("cli-floors");
    running.create(&bare_pod(running.name(), "test", &labels, &NOTHING)).await;
    let nowhere = json!({"nodeSelector": {"no-such": "node"}});
    pending.create(&bare_pod(pending.name(), "test", &labels, &nowhere)).await;
    let row = await_state(world, running.name(), "Running").await;
    assert_eq!(
        time(&row["floorUntil"]).duration_since(time(&row["startedAt"])),
        SignedDuration::from_hours(1)
    );
    let row = await_state(world, pending.name(), "Pending").await;
    assert!(["startedAt", "floorUntil", "expiresAt"].iter().all(|key| row.get(*key).is_none()), "{row}");
}

#[tokio::test]
async fn a_job_is_the_workload_though_a_cron_job_owns_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("cli-cron", "1d")).await;
    let job = workload("Job", name, "test", &in_queue("cli-cron"), &NOTHING);
    let cron = namespace
        .create(&json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "test", "namespace": name},
            "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": job["spec"]}},
        }))
        .await;
    namespace.create(&owned(job, &[controller(&cron)])).await;
    assert_eq!(await_state(world, name, "Running").await["workload"], "job/test");
}

/// A watch under way.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: BufReader<ChildStderr>,
}

impl Watching {
    async fn start(world: &World, arguments: &[&str]) -> Self {
        let mut command = by_kubectl(&world.cluster, arguments).await;
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines, stderr }
    }

    /// The next line. A watch rests for nine times as long as a look takes, and that depends on what else runs.
    async fn line(&mut self) -> String {
        timeout(DEADLINE * 5, self.lines.next_line()).await.unwrap().unwrap().unwrap()
    }

    async fn await_line(&mut self, end: &str) {
        while !self.line().await.ends_with(end) {}
    }

    /// The next line on standard error.
    async fn complaint(&mut self) -> String {
        let mut line = String::new();
        timeout(DEADLINE, self.stderr.read_line(&mut line)).await.unwrap().unwrap();
        line
    }

    /// Interrupts the plugin as Ctrl-C does, which must end it without another line.
    async fn interrupt(mut self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
        timeout(DEADLINE, self.child.wait()).await.unwrap().unwrap();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "");
    }
}

#[tokio::test]
async fn a_watch_prints_the_table_and_then_what_changes_until_it_is_interrupted() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("cli-watch", "1d")).await;
    let object = workload("Deployment", name, "test", &in_queue("cli-watch"), &NOTHING);
    let deployment = namespace.create(&object).await;
    await_state(world, name, "Running").await;
    let mut watching = Watching::start(world, &["list", "-n", name, "--watch"]).await;
    assert!(watching.line().await.starts_with("WORKLOAD "));
    assert!(watching.line().await.starts_with("deployment/test   cli-watch   "));
    world.apply(&queue("cli-watch", "1s")).await;
    watching.await_line("Paused").await;
    namespace.delete(&deployment).await;
    watching.await_line("Gone").await;
    watching.interrupt().await;
}

#[tokio::test]
async fn a_watch_of_objects_prints_one_a_line() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("cli-watch-json", "1d")).await;
    let mut watching = Watching::start(world, &["list", "-n", name, "-w", "-o", "json"]).await;
    let nothing = format!("No workloads in a queue found in {name} namespace.\n");
    assert_eq!(watching.complaint().await, nothing);
    let pod = namespace.create(&bare_pod(name, "test", &in_queue("cli-watch-json"), &NOTHING)).await;
    let state = async |watching: &mut Watching| {
        let row: Value = serde_json::from_str(&watching.line().await).unwrap();
        row["state"].as_str().unwrap().to_owned()
    };
    while state(&mut watching).await != "Running" {}
    namespace.delete(&pod).await;
    while state(&mut watching).await != "Gone" {}
    watching.interrupt().await;
}

#[tokio::test]
async fn a_reader_that_has_read_enough_is_no_failure() {
    let world = world().await;
    for arguments in [&["version"] as &[&str], &["list", "-A", "-o", "json"]] {
        let mut command = by_kubectl(&world.cluster, arguments).await;
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop(command);
        let output = timeout(DEADLINE, child.wait_with_output()).await.unwrap().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[tokio::test]
async fn a_pause_is_taken_back_even_if_the_field_held_nothing() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    let job = workload("Job", name, "test", &json!({}), &NOTHING);
    let job = paused(&namespace, &job, "spec.suspend", &json!(true), &Value::Null).await;
    let scaled =
        paused(&namespace, &deployment(&namespace, "a"), "spec.replicas", &json!(0), &json!(3)).await;
    let answer = in_namespace(world, name, &["resume", "jobs.batch/test", "Deployment/a"]).await;
    assert_eq!(
        answer.stdout,
        "job.batch/test resumed (spec.suspend: false)\ndeployment.apps/a resumed (spec.replicas: 3)\n"
    );
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(namespace.field(&scaled, "spec.replicas").await, 3);
    assert_eq!(namespace.field(&job, "spec.suspend").await, false);
    for object in [&job, &scaled] {
        assert_eq!(record_of(&namespace, object).await, None);
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let scaled =
        paused(&namespace, &deployment(&namespace, "a"), "spec.replicas", &json!(0), &json!(3)).await;
    let output =
        in_namespace(world, namespace.name(), &["resume", "deployment", "a", "--dry-run"]).await.good();
    assert_eq!(output, "deployment.apps/a resumed (spec.replicas: 3) (server dry run)\n");
    assert_eq!(namespace.field(&scaled, "spec.replicas").await, 0);
    assert!(record_of(&namespace, &scaled).await.is_some());
}

#[tokio::test]
async fn a_value_that_was_set_since_the_pause_stays() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let scaled =
        paused(&namespace, &deployment(&namespace, "a"), "spec.replicas", &json!(0), &json!(3)).await;
    let _no_pods = without_new_pods(&namespace).await;
    namespace.patch(&scaled, &json!({"spec": {"replicas": 5}})).await;
    let output = in_namespace(world, namespace.name(), &["resume", "deployment", "a"]).await.good();
    assert_eq!(
        output,
        "deployment.apps/a resumed (spec.replicas: 5, which was set after the pause; only the record of the pause was removed)\n"
    );
    assert_eq!(namespace.field(&scaled, "spec.replicas").await, 5);
    assert_eq!(record_of(&namespace, &scaled).await, None);
}

#[tokio::test]
async fn what_cannot_be_resumed_is_reported_and_the_others_go_on() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    let mut stopped = deployment(&namespace, "stopped");
    stopped["spec"]["replicas"] = json!(0);
    namespace.create(&stopped).await;
    let mut unreadable = deployment(&namespace, "unreadable");
    unreadable["spec"]["replicas"] = json!(0);
    unreadable["metadata"]["annotations"] = json!({"tenure.dev/paused": "soon"});
    namespace.create(&unreadable).await;
    let good =
        paused(&namespace, &deployment(&namespace, "good"), "spec.replicas", &json!(0), &json!(1)).await;
    let objects = ["deploy/stopped", "deploy/unreadable", "deploy/gone", "nonsense/a", "deploy/good"];
    let output = in_namespace(world, name, &[&["resume"], &objects[..]].concat()).await;
    assert_eq!(output.stdout, "deployment.apps/good resumed (spec.replicas: 1)\n");
    assert_eq!(output.code, Some(1));
    for expected in [
        "error: deployment.apps/stopped was not paused by Tenure: it has no annotation tenure.dev/paused, though its spec.replicas is 0: set by another user or controller: kubectl get --show-managed-fields -o yaml shows by which\n",
        "error: deployment.apps/unreadable: annotation tenure.dev/paused can't be read: soon\n",
        "Error from server (NotFound): deployments.apps \"gone\" not found\n",
        "error: the server doesn't have a resource type \"nonsense\": kubectl api-resources lists the types\n",
    ] {
        assert!(output.stderr.contains(expected), "{expected} should be in {}", output.stderr);
    }
    assert_eq!(record_of(&namespace, &good).await, None);
    let command = output.stderr.split("To resume by hand: ").nth(1).unwrap().lines().next().unwrap();
    let arguments: Vec<&str> =
        command.split_whitespace().skip(1).map(|word| word.trim_matches('\'')).collect();
    world.cluster.kubectl(&arguments).await.unwrap().success().unwrap();
    let again = in_namespace(world, name, &["resume", "deploy/unreadable"]).await.bad();
    assert!(again.contains("has no annotation tenure.dev/paused\n"), "{again}");
}

#[tokio::test]
async fn custom_kinds_are_listed_and_resumed_too_and_never_mistaken() {
    let world = world().await;
    let groups = ["kubeflow.org", "batch.tensorstack.dev"];
    fixtures::install(world, groups.into_iter().flat_map(fixtures::definitions).collect()).await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    let job = fixtures::object("kubeflow.org/v1", "MPIJob", name, "test", &json!({"runPolicy": {}}));
    let job = paused(&namespace, &job, "spec.runPolicy.suspend", &json!(true), &json!(false)).await;
    let row = await_state(world, name, "Paused").await;
    assert_eq!((&row["workload"], &row["pods"]), (&json!("mpijob.kubeflow.org/test"), &json!(0)));
    // what the API server says of all groups together lags behind what it serves
    let both = "may be any of mpijobs.batch.tensorstack.dev, mpijobs.kubeflow.org: say which";
    let ambiguous = async || {
        let output = in_namespace(world, name, &["resume", "mpijob/test", "--dry-run"]).await;
        Ok(output.stderr.contains(both).then_some(()))
    };
    eventually("both kinds to be known", DEADLINE, ambiguous).await.unwrap();
    let output = in_namespace(world, name, &["resume", "mpijob.kubeflow.org/test"]).await;
    assert_eq!(
        output.stdout, "mpijob.kubeflow.org/test resumed (spec.runPolicy.suspend: false)\n",
        "{output:?}"
    );
    assert_eq!(namespace.field(&job, "spec.runPolicy.suspend").await, false);
    assert!(listed(world, name).await.is_empty());
}

/// A kubeconfig of a user who may do this with pods and Deployments of one namespace, and nothing else.
async fn user(world: &World, namespace: &str, verbs: &str, resources: &str) -> PathBuf {
    let kubectl = async |arguments: &[&str]| {
        let arguments = [arguments, &["-n", namespace]].concat();
        world.cluster.kubectl(&arguments).await.unwrap().success().unwrap();
    };
    kubectl(&["create", "serviceaccount", "user"]).await;
    let (verbs, resources) = (format!("--verb={verbs}"), format!("--resource={resources}"));
    kubectl(&["create", "role", "user", &verbs, &resources]).await;
    let account = format!("--serviceaccount={namespace}:user");
    kubectl(&["create", "rolebinding", "user", "--role=user", &account]).await;
    world.cluster.service_account_kubeconfig(namespace, "user").await.unwrap()
}

#[tokio::test]
async fn who_may_not_see_everything_sees_the_rest_and_a_warning() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&queue("cli-rights", "1d")).await;
    let object = workload("Deployment", name, "test", &in_queue("cli-rights"), &NOTHING);
    namespace.create(&object).await;
    namespace.await_running(2).await;
    let kubeconfig = user(world, name, "get,list", "pods,replicasets.apps,deployments.apps").await;
    let list = ["list", "-n", name, "-o", "json"];
    let said = Said::of(tenure(&world.cluster, &kubeconfig, &list).await).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let rows: Vec<Value> = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((rows.len(), &rows[0]["workload"]), (1, &json!("deployment/test")));
    let (lines, kinds) = (said.stderr.lines().count(), "queues.scheduler.tensorstack.dev");
    assert!(said.stderr.starts_with("Warning: you may not list ") && said.stderr.contains(kinds), "{said:?}");
    assert_eq!(lines, 1, "{said:?}");
    let everywhere = Said::of(tenure(&world.cluster, &kubeconfig, &["list", "-A"]).await).await;
    assert_eq!(everywhere.code, Some(1));
    assert!(everywhere.stderr.contains("Error from server (Forbidden): pods is forbidden"), "{everywhere:?}");
}

/// A user who may list pods and queues, and only get each owner.
#[tokio::test]
async fn the_own_ceiling_of_an_owner_that_may_be_got_and_not_listed_counts_in_a_list() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-own", "", "1d")).await;
    let mut object = workload("Deployment", name, "test", &in_runai_queue("cli-own"), &NOTHING);
    object["metadata"]["annotations"] = json!({"tenure.dev/max-duration": "2h"});
    namespace.create(&object).await;
    namespace.await_running(2).await;
    let kubeconfig = user(world, name, "get,list", "pods").await;
    let kubectl = async |arguments: &[&str]| {
        world.cluster.kubectl(arguments).await.unwrap().success().unwrap();
    };
    let account = format!("--serviceaccount={name}:user");
    let (owners, queues) = (format!("{name}-owners"), format!("{name}-queues"));
    for (role, verb, resources) in [
        (&owners, "--verb=get", "--resource=replicasets.apps,deployments.apps"),
        (&queues, "--verb=list", "--resource=queues.scheduling.run.ai"),
    ] {
        kubectl(&["create", "clusterrole", role, verb, resources]).await;
        kubectl(&["create", "clusterrolebinding", role, &format!("--clusterrole={role}"), &account]).await;
    }
    let list = ["list", "-n", name, "-o", "json"];
    let hours = |from: &Value, to: &Value| time(to).duration_since(time(from)).as_hours();
    let rows = eventually("the rights to count", DEADLINE, async || {
        let said = Said::of(tenure(&world.cluster, &kubeconfig, &list).await).await;
        let rows: Vec<Value> = serde_json::from_str(&said.stdout).unwrap_or_default();
        let may_see = rows
            .first()
            .is_some_and(|row| row["workload"] == "deployment/test" && row["expiresAt"].is_string());
        anyhow::ensure!(may_see && !said.stderr.contains("queues.scheduling.run.ai"), "{said:?}");
        Ok(Some(rows))
    });
    let rows = rows.await.unwrap();
    assert_eq!(hours(&rows[0]["startedAt"], &rows[0]["expiresAt"]), 2, "{rows:?}");
}

#[tokio::test]
async fn who_may_not_resume_sees_which_right_is_missing() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    paused(&namespace, &deployment(&namespace, "a"), "spec.replicas", &json!(0), &json!(3)).await;
    let kubeconfig = user(world, name, "get,list", "deployments.apps").await;
    // a flag of the plugin's own
    let flags = ["resume", "deploy/a", "-n", name, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let output = run(world, &flags).await.bad();
    assert!(
        output.starts_with("Error from server (Forbidden): deployments.apps \"a\" is forbidden: "),
        "{output}"
    );
    assert!(output.contains("cannot patch resource"), "{output}");
    let hint =
        format!("To resume requires the rights to get and to patch deployments.apps in namespace {name}\n");
    assert!(output.ends_with(&hint), "{output}");
}

#[tokio::test]
async fn help_and_version_read_as_a_plugin_of_kubectl() {
    let world = world().await;
    let run = async |arguments: &[&str]| Said::of(by_kubectl(&world.cluster, arguments).await).await;
    let help = run(&["--help"]).await.good();
    assert!(
        help.contains("Usage: kubectl tenure ") && help.contains("kubectl tenure resume deployment/test"),
        "{help}"
    );
    let help = run(&["resume", "--help"]).await.good();
    assert!(help.contains("Usage: kubectl tenure resume "), "{help}");
    for version in ["version", "--version", "-V"] {
        assert!(run(&[version]).await.good().starts_with("kubectl-tenure 0."));
    }
    let misspelt = run(&["lst"]).await;
    assert_eq!(misspelt.code, Some(2), "{misspelt:?}");
    assert!(misspelt.stderr.contains("'list'"), "{misspelt:?}");
}
