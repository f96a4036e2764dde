//! The guarantees for tests, checked against real clusters.

#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, SCHEDULERS, UNDYING, UNREADY, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const DEADLINE: Duration = Duration::from_secs(30);

static SHARED: OnceCell<Cluster> = OnceCell::const_new();

async fn shared() -> &'static Cluster {
    SHARED.get_or_try_init(|| Cluster::start("test")).await.unwrap()
}

/// A cluster whose servers tests restart. One test at a time has it.
async fn restarted() -> MutexGuard<'static, Cluster> {
    static RESTARTED: OnceCell<Mutex<Cluster>> = OnceCell::const_new();
    let start = async || Cluster::start("test-restart").await.map(Mutex::new);
    RESTARTED.get_or_try_init(start).await.unwrap().lock().await
}

/// A namespace of its own for a test, with its service account.
async fn namespace(client: &Client, name: &str) {
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &parse(json!({"metadata": {"name": name}}))).await.unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
    eventually("the default service account", DEADLINE, async || Ok(accounts.get_opt("default").await?))
        .await
        .unwrap();
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "main", "image": "example.com/image"}]})
}

fn pod(name: &str, label: Option<&str>) -> Pod {
    let labels = label.map(|label| json!({label: ""}));
    parse(json!({"metadata": {"name": name, "labels": labels}, "spec": pod_spec()}))
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn until_ready(pods: &Api<Pod>, name: &str) -> Pod {
    let what = format!("pod {name} to be ready");
    eventually(&what, DEADLINE, async || Ok(Some(pods.get(name).await?).filter(is_ready))).await.unwrap()
}

async fn until_gone(pods: &Api<Pod>, name: &str) {
    let what = format!("pod {name} to go");
    let gone = async || Ok(pods.get_opt(name).await?.is_none().then_some(()));
    eventually(&what, DEADLINE, gone).await.unwrap();
}

async fn remove_label(pods: &Api<Pod>, name: &str, label: &str) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {label: null}}}));
    pods.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn deploy(client: &Client, namespace: &str) {
    let deployment = parse(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec()},
        },
    }));
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let available = async || {
        let status = deployments.get("web").await?.status;
        Ok(status.filter(|status| status.available_replicas == Some(3)))
    };
    eventually("3 replicas to be available", DEADLINE, available).await.unwrap();
}

fn is_alive(pid: u32) -> bool {
    // "7 (name) S …"; where no process reaps orphans, the dead stay as zombies
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

async fn until_dead(pids: &[u32]) {
    let dead = async || Ok(pids.iter().all(|pid| !is_alive(*pid)).then_some(()));
    eventually("the processes to die", DEADLINE, dead).await.unwrap();
}

#[tokio::test]
async fn a_start_finds_the_roles_that_an_api_server_makes_for_itself() {
    let cluster = shared().await;
    let log = fs::read_to_string(cluster.audit_log()).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let verbs = |event: Value| {
        let is_role = event["objectRef"]["resource"] == "clusterroles";
        (is_role && event["user"]["username"] == "system:apiserver").then(|| event["verb"].clone())
    };
    let verbs: Vec<Value> = events.filter_map(verbs).collect();
    assert!(verbs.contains(&json!("get")), "it looks for them");
    assert!(!verbs.contains(&json!("create")), "{verbs:?}");
}

#[tokio::test]
async fn deployment_becomes_available() {
    let client = shared().await.client().unwrap();
    namespace(&client, "deployment").await;
    deploy(&client, "deployment").await;
}

#[tokio::test]
async fn pod_of_every_scheduler_name_gets_ready() {
    let client = shared().await.client().unwrap();
    namespace(&client, "schedulers").await;
    let pods = Api::<Pod>::namespaced(client, "schedulers");
    for scheduler in SCHEDULERS {
        let mut pod = pod(scheduler, None);
        pod.spec.as_mut().unwrap().scheduler_name = Some(scheduler.to_owned());
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    for scheduler in SCHEDULERS {
        let pod = until_ready(&pods, scheduler).await;
        assert_eq!(phase(&pod), Some("Running"));
    }
}

#[tokio::test]
async fn unready_pod_is_bound_and_stays_pending_until_its_label_goes() {
    let client = shared().await.client().unwrap();
    namespace(&client, "unready").await;
    let pods = Api::<Pod>::namespaced(client, "unready");
    pods.create(&PostParams::default(), &pod("late", Some(UNREADY))).await.unwrap();
    let bound = async || Ok(pods.get("late").await?.spec.and_then(|spec| spec.node_name));
    eventually("the pod to be bound", DEADLINE, bound).await.unwrap();
    // a pod made later gets ready earlier
    pods.create(&PostParams::default(), &pod("prompt", None)).await.unwrap();
    until_ready(&pods, "prompt").await;
    assert_eq!(phase(&pods.get("late").await.unwrap()), Some("Pending"));
    remove_label(&pods, "late", UNREADY).await;
    until_ready(&pods, "late").await;
}

#[tokio::test]
async fn undying_pod_stays_terminating_until_its_label_goes() {
    let client = shared().await.client().unwrap();
    namespace(&client, "undying").await;
    let pods = Api::<Pod>::namespaced(client, "undying");
    for (name, label) in [("stubborn", Some(UNDYING)), ("meek", None)] {
        pods.create(&PostParams::default(), &pod(name, label)).await.unwrap();
        until_ready(&pods, name).await;
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until_gone(&pods, "meek").await;
    let stubborn = pods.get("stubborn").await.unwrap();
    assert!(stubborn.metadata.deletion_timestamp.is_some());
    remove_label(&pods, "stubborn", UNDYING).await;
    until_gone(&pods, "stubborn").await;
}

#[tokio::test]
async fn pod_of_a_job_keeps_running() {
    let cluster = shared().await;
    let client = cluster.client().unwrap();
    namespace(&client, "job").await;
    let create = ["-n", "job", "create", "job", "long", "--image=example.com/image"];
    cluster.kubectl(&create).await.unwrap().success().unwrap();
    let pods = Api::<Pod>::namespaced(client, "job");
    let running = async || {
        let pods = pods.list(&ListParams::default()).await?;
        Ok(pods.items.into_iter().find(is_ready))
    };
    let pod = eventually("the job's pod to be ready", DEADLINE, running).await.unwrap();
    assert_eq!(phase(&pod), Some("Running"));
}

#[tokio::test]
async fn service_account_kubeconfig_has_the_rights_of_its_account_alone() {
    let cluster = shared().await;
    namespace(&cluster.client().unwrap(), "rights").await;
    for arguments in [
        &["-n", "rights", "create", "serviceaccount", "reader"][..],
        &["-n", "rights", "create", "role", "reader", "--verb=list", "--resource=pods"],
        &[
            "-n",
            "rights",
            "create",
            "rolebinding",
            "reader",
            "--role=reader",
            "--serviceaccount=rights:reader",
        ],
    ] {
        cluster.kubectl(arguments).await.unwrap().success().unwrap();
    }
    let kubeconfig = cluster.service_account_kubeconfig("rights", "reader").await.unwrap();
    let client = cluster.client_of(&kubeconfig).await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), "rights");
    eventually("the role to count", DEADLINE, async || {
        Ok(pods.list(&ListParams::default()).await.map(Some)?)
    })
    .await
    .unwrap();
    let error = Api::<Secret>::namespaced(client, "rights").list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.is_forbidden()), "{error}");
    let path = kubeconfig.to_str().unwrap();
    let output = cluster.kubectl(&["--kubeconfig", path, "auth", "whoami"]).await.unwrap().success().unwrap();
    assert!(output.contains("system:serviceaccount:rights:reader"), "{output}");
}

#[tokio::test]
async fn kubectl_reads_its_input_and_says_why_it_fails() {
    let cluster = shared().await;
    let client = cluster.client().unwrap();
    namespace(&client, "kubectl").await;
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}).to_string();
    let apply = ["-n", "kubectl", "apply", "-f", "-"];
    cluster.kubectl_with_input(&apply, &manifest).await.unwrap().success().unwrap();
    Api::<ConfigMap>::namespaced(client, "kubectl").get("x").await.unwrap();
    let output = cluster.kubectl_with_input(&apply, "{}").await.unwrap();
    assert!(!output.status.success());
    let error = output.success().unwrap_err().to_string();
    assert!(error.contains("kubectl -n kubectl apply") && error.contains("apiVersion not set"), "{error}");
}

#[tokio::test]
async fn helm_installs_a_chart() {
    let cluster = shared().await;
    let chart = cluster.directory().join("chart");
    fs::create_dir_all(chart.join("templates")).unwrap();
    fs::write(
        chart.join("Chart.yaml"),
        "{apiVersion: v2, name: tiny, version: 0.1.0, kubeVersion: '>=1.36.0'}",
    )
    .unwrap();
    let template = "{apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Name }} }}";
    fs::write(chart.join("templates/map.yaml"), template).unwrap();
    let install =
        ["install", "tiny", chart.to_str().unwrap(), "--namespace", "helm", "--create-namespace", "--wait"];
    cluster.helm(&install).await.unwrap().success().unwrap();
    Api::<ConfigMap>::namespaced(cluster.client().unwrap(), "helm").get("tiny").await.unwrap();
}

#[tokio::test]
async fn audit_log_has_each_write_once() {
    let cluster = shared().await;
    let maps = Api::<ConfigMap>::namespaced(cluster.client().unwrap(), "default");
    let map = parse(json!({"metadata": {"name": "audited"}}));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let writes = async || {
        let log = fs::read_to_string(cluster.audit_log())?;
        let count = log.lines().filter(|line| is_creation(line, "audited")).count();
        Ok((count > 0).then_some(count))
    };
    assert_eq!(eventually("the write to be logged", DEADLINE, writes).await.unwrap(), 1);
}

// the last line may be half written yet
fn is_creation(line: &str, name: &str) -> bool {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let is = |pointer: &str, value: &str| event.pointer(pointer).is_some_and(|found| found == value);
    is("/verb", "create") && is("/objectRef/name", name)
}

#[tokio::test]
async fn cluster_works_on_after_its_api_server_was_away() {
    let cluster = restarted().await;
    let client = cluster.client().unwrap();
    cluster.stop_api_server().await.unwrap();
    client.apiserver_version().await.unwrap_err();
    cluster.start_api_server().await.unwrap();
    deploy(&client, "default").await;
}

#[tokio::test]
async fn a_restarted_scheduler_has_its_new_configuration() {
    let cluster = restarted().await;
    let configure = cluster.configure_scheduler(|config| {
        config["profiles"].as_array_mut().unwrap().push(json!({"schedulerName": "another"}));
    });
    configure.await.unwrap();
    let pods = Api::<Pod>::namespaced(cluster.client().unwrap(), "default");
    for scheduler in ["another", "default-scheduler"] {
        let mut pod = pod(scheduler, None);
        pod.spec.as_mut().unwrap().scheduler_name = Some(scheduler.into());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        until_ready(&pods, scheduler).await;
    }
}

#[tokio::test]
async fn dropped_cluster_leaves_no_process_and_no_directory() {
    let cluster = Cluster::start("test-drop").await.unwrap();
    let (pids, directory) = (cluster.pids().await, cluster.directory().to_owned());
    assert_eq!(pids.len(), 5);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    drop(cluster);
    until_dead(&pids).await;
    assert!(!directory.exists());
}

#[tokio::test]
async fn killed_parent_takes_its_cluster_along() {
    let mut up = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["up", "--name", "test-kill"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("export KUBECONFIG="), "{line}");
    let pids = children(&up).unwrap();
    assert_eq!(pids.len(), 5);
    up.kill().unwrap();
    up.wait().unwrap();
    until_dead(&pids).await;
}

fn children(parent: &Child) -> Result<Vec<u32>> {
    let line = format!("PPid:\t{}", parent.id());
    let is_child = |path: &Path| {
        fs::read_to_string(path.join("status")).is_ok_and(|status| status.lines().any(|other| other == line))
    };
    let paths = fs::read_dir("/proc").context("no /proc")?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| is_child(path))
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect())
}
