//! Runs the commands and configurations of `docs/kube-scheduler.md` on a real kube-scheduler.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, ResourceExt, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World,
    keeper::Metrics,
    pages::{Walk, run_in},
    scheduling::{Arena, EXTENDER, Wish},
    workloads::Namespace,
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The host in the certificate of a webhook that runs outside of the cluster.
const HOST: &str = "127.0.0.1";

/// More than kube-scheduler offers by default.
const NODES: u64 = 120;

/// The blocks of a language below a heading of the page.
fn blocks(heading: &str, language: &str) -> Vec<String> {
    let page = fs::read_to_string(format!("{WORKSPACE}/docs/kube-scheduler.md")).unwrap();
    let (_, section) = page.split_once(&format!("\n{heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let fence = format!("```{language}\n");
    let blocks = section.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    let blocks: Vec<_> = blocks.collect();
    assert!(!blocks.is_empty(), "{heading}");
    blocks
}

/// Tenure with the extender on.
async fn world(name: &str) -> World {
    let values = [EXTENDER, &["webhook.failurePolicy=Ignore"]].concat();
    let world = Box::pin(World::installed(name, &values)).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    publish_ca(&world).await;
    world
}

/// The cluster of the page, with the page's commands run that turn the extender on and fetch the CA. It has one kube-scheduler, so
/// one test at a time configures it.
async fn turned_on() -> (&'static World, MutexGuard<'static, ()>) {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let world = WORLD.get_or_init(|| Box::pin(world("page"))).await;
    for commands in blocks("## Turn it on", "bash") {
        run(world, &commands).await;
    }
    world.tenure.update_config(&world.cluster).await.unwrap();
    (world, turn)
}

/// Publishes the webhook's CA as mode `selfManaged` does: here the webhook's certificate is brought.
async fn publish_ca(world: &World) {
    let ca = fs::read_to_string(world.cluster.directory().join("webhook/ca.crt")).unwrap();
    let metadata = json!({"name": "tenure-webhook-ca", "namespace": RELEASE_NAMESPACE});
    let data = json!({"ca.crt": ca});
    world.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})).await;
}

/// The directory in which the page's commands are run: chart and examples are where they name them, and no other test
/// writes there.
fn directory(world: &World) -> PathBuf {
    world.cluster.directory().join("page")
}

async fn run(world: &World, commands: &str) {
    let directory = directory(world);
    if !directory.exists() {
        fs::create_dir(&directory).unwrap();
        for name in ["charts", "examples"] {
            symlink(format!("{WORKSPACE}/{name}"), directory.join(name)).unwrap();
        }
    }
    run_in(&world.cluster, &directory, commands).await;
}

/// A configuration of the page, with the host and the CA of this cluster's webhook, and the client certificate that the
/// page has had made.
fn adapted(world: &World, text: &str) -> Value {
    let names = ["tenure-ca.crt", "tenure-client.crt", "tenure-client.key"];
    with_files(world, text, names.map(|name| directory(world).join(name)))
}

/// A configuration with the host of this cluster's webhook, and these files: the CA, the client's certificate, its key.
fn with_files(world: &World, text: &str, [ca, certificate, key]: [PathBuf; 3]) -> Value {
    let files = [("caFile", ca), ("certFile", certificate), ("keyFile", key)];
    let mut config: Value = serde_saphyr::from_str(text).unwrap();
    let extender = &mut config["extenders"][0];
    let path = extender["urlPrefix"].as_str().unwrap().split('/').skip(3).collect::<Vec<_>>().join("/");
    extender["urlPrefix"] = json!(format!("{}/{path}", world.tenure.webhook_url()));
    for (field, file) in files {
        let field = &mut extender["tlsConfig"][field];
        assert!(field.is_string(), "{text}");
        *field = json!(file);
    }
    config
}

/// Gives kube-scheduler a configuration and an identity, its own or that of a kubeconfig, and nothing else.
async fn configure(world: &World, mut config: Value, kubeconfig: Option<&Path>) {
    let own = world.cluster.user_kubeconfig("system:kube-scheduler", None).unwrap();
    config["clientConnection"]["kubeconfig"] = json!(kubeconfig.unwrap_or(&own));
    world.cluster.configure_scheduler(|running| *running = config).await.unwrap();
}

/// A node that is full of one pod, which is safe from its own queue alone, and for long.
async fn safe_from_its_queue(arena: &Arena<'_>, more: &Value) -> (String, DynamicObject) {
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h", "reclaimMinRuntime": "0s"})).await;
    let victim = arena.placed(&wish("victim", &queue, 100, more)).await;
    (queue, victim)
}

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32, more: &Value) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: more.clone() }
}

/// A pod of the victim's queue is refused, and one of another queue gets its room.
async fn assert_floors_hold(arena: &Arena<'_>, more: &Value) -> DynamicObject {
    let (queue, victim) = safe_from_its_queue(arena, more).await;
    let refused = arena.pod(&wish("refused", &queue, 200, more)).await;
    arena.await_refused(&refused).await;
    await_event(arena, &refused, "preemption: no candidate node for preemption").await;
    arena.assert_untouched(&victim).await;
    let other = arena.queue("other", json!({})).await;
    arena.placed(&wish("preemptor", &other, 300, more)).await;
    arena.await_preempted(&victim).await;
    victim
}

/// Waits until kube-scheduler has said this about a pod that it couldn't place.
async fn await_event(arena: &Arena<'_>, pod: &DynamicObject, words: &str) {
    let events: Api<Event> = Api::namespaced(arena.world.cluster.client().unwrap(), arena.namespace.name());
    let of_pod = ListParams::default().fields(&format!("involvedObject.name={}", pod.name_any()));
    let reported = async || {
        let events = json!(events.list(&of_pod).await?.items).to_string();
        anyhow::ensure!(events.contains(words), events);
        Ok(Some(()))
    };
    eventually(&format!("{words:?}"), DEADLINE, reported).await.unwrap();
}

/// Asserts that kube-scheduler offers all nodes, even many, where all pods are protected.
async fn assert_all_nodes_are_offered(arena: &Arena<'_>) {
    let queue = arena.queue("team", json!({"preemptMinRuntime": "1h"})).await;
    let nodes: Vec<String> = (1..NODES).map(|number| format!("{}-{number}", arena.node())).collect();
    join_all(nodes.iter().map(|node| arena.add_node(node, 1))).await;
    let names: Vec<String> = (0..NODES).map(|number| format!("victim-{number}")).collect();
    join_all(names.iter().map(async |name| arena.placed(&wish(name, &queue, 100, &Value::Null)).await)).await;
    let before = answered(arena).await;
    let refused = arena.pod(&wish("refused", &queue, 200, &Value::Null)).await;
    arena.await_refused(&refused).await;
    let after = answered(arena).await;
    let (questions, protected) = (after.0 - before.0, after.1 - before.1);
    assert!(questions > 0);
    assert_eq!(protected, questions * NODES);
}

/// The number of questions that the webhook has answered, and of nodes that it has dropped for the sake of a pod.
async fn answered(arena: &Arena<'_>) -> (u64, u64) {
    let [admin, _] = arena.world.tenure.admin_urls();
    let metrics = Metrics::of(admin).await;
    let protected = [("result", "Protected")];
    (
        metrics.count("tenure_webhook_preemption_duration_seconds_count", &[]),
        metrics.count("tenure_webhook_preemption_nodes_total", &protected),
    )
}

#[tokio::test]
async fn kube_scheduler_that_is_configured_as_on_the_page_keeps_floors_and_trusts_the_ca_alone() {
    let (world, _turn) = turned_on().await;
    let text = blocks("### The configuration", "yaml").remove(0);
    let page = adapted(world, &text);
    // this webhook's certificate is for another name than that of the page
    let mut impostor = page.clone();
    impostor["leaderElection"]["leaderElect"] = json!(false);
    configure(world, impostor.clone(), None).await;
    let arena = &Arena::new(world, 1).await;
    let victim = arena.placed(&wish("victim", "", 100, &Value::Null)).await;
    let refused = arena.pod(&wish("refused", "", 200, &Value::Null)).await;
    arena.await_refused(&refused).await;
    await_event(arena, &refused, "tls: failed to verify certificate: x509: ").await;
    arena.assert_untouched(&victim).await;

    impostor["extenders"][0]["tlsConfig"].as_object_mut().unwrap().remove("caFile");
    configure(world, impostor, None).await;
    arena.await_preempted(&victim).await;

    let mut page = page;
    page["extenders"][0]["tlsConfig"]["serverName"] = json!(HOST);
    let mut stranger = page.clone();
    stranger["leaderElection"]["leaderElect"] = json!(false);
    for field in ["certFile", "keyFile"] {
        stranger["extenders"][0]["tlsConfig"].as_object_mut().unwrap().remove(field);
    }
    configure(world, stranger, None).await;
    let arena = &Arena::new(world, 1).await;
    let victim = arena.placed(&wish("victim", "", 100, &Value::Null)).await;
    let refused = arena.pod(&wish("refused", "", 200, &Value::Null)).await;
    arena.await_refused(&refused).await;
    await_event(arena, &refused, "code 403").await;
    arena.assert_untouched(&victim).await;

    configure(world, page, None).await;
    play_try_out(world).await;
    assert_floors_hold(&Arena::new(world, 1).await, &Value::Null).await;
    assert_all_nodes_are_offered(&Arena::new(world, 1).await).await;
    for commands in blocks("## Turn it off", "bash") {
        run(world, &commands).await;
    }
}

/// Plays the page's try-out, with a floor of seconds: the second pod waits for the end of the first one's floor.
async fn play_try_out(world: &World) {
    let room = json!({"cpu": "8", "pods": "50", "nvidia.com/gpu": "8"});
    // its creation sets its status, too
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "gpu-node-7", "labels": {"kubernetes.io/hostname": "gpu-node-7"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    });
    Namespace::of(world, "default").create(&node).await;
    let file =
        blocks("## Try it", "yaml").remove(0).replace("preemptMinRuntime: 2m", "preemptMinRuntime: 20s");
    fs::write(directory(world).join("try.yaml"), file).unwrap();
    for commands in blocks("## Try it", "bash") {
        // it shows events until Ctrl-C
        let commands: Vec<_> = commands.lines().filter(|line| !line.contains("--watch")).collect();
        run(world, &commands.join("\n")).await;
    }
    let refused = async || {
        let events = ["get", "events", "--field-selector", "involvedObject.name=second", "-o", "json"];
        let events = world.cluster.kubectl(&events).await?.success()?;
        Ok(events.contains("preemption: no candidate node for preemption").then_some(()))
    };
    eventually("the second pod to wait", DEADLINE, refused).await.unwrap();
    run(world, "kubectl wait --for=condition=PodScheduled --timeout=60s pod/second").await;
    run(world, "! kubectl get pod first").await;
}

#[tokio::test]
async fn newcomer_sees_a_floor_hold_as_on_the_page_about_kind() {
    let world = &world("page-kind").await;
    let mut walk = Walk::new(world, "floors-on-kind.md")
        .with("node tenure-control-plane", "node node-1")
        .with("/status/capacity/", "/status/allocatable/")
        .with("preemptMinRuntime: 2m", "preemptMinRuntime: 20s");
    walk.follow("1. Make a cluster whose scheduler reads your file").await;
    let chart = format!("{WORKSPACE}/charts/tenure");
    let ca = world.cluster.directory().join("floors-on-kind.md/ca.crt");
    let ca = format!("schedulerExtender.clientCA={}", ca.display());
    let release = ["upgrade", "tenure", &chart, "--namespace", RELEASE_NAMESPACE];
    let values = ["--reset-then-reuse-values", "--set-file", &ca];
    world.cluster.helm(&[&release[..], &values].concat()).await.unwrap().success().unwrap();
    world.tenure.update_config(&world.cluster).await.unwrap();
    walk.follow("2. Let kube-scheduler ask").await;
    let files = world.cluster.directory().join("floors-on-kind.md/tenure");
    let text = fs::read_to_string(files.join("kube-scheduler.yaml")).unwrap();
    let names = ["webhook.crt", "client.crt", "client.key"];
    let mut config = with_files(world, &text, names.map(|name| files.join(name)));
    config["extenders"][0]["tlsConfig"]["serverName"] = json!(HOST);
    configure(world, config, None).await;
    walk.follow("3. Preempt").await;
    let refused = ["get", "events", "--field-selector", "involvedObject.name=second,reason=FailedScheduling"];
    let refused = world.cluster.kubectl(&refused).await.unwrap().success().unwrap();
    assert!(refused.contains("no candidate node for preemption"), "{refused}");
    run(world, "! kubectl get pod first").await;
    walk.end();
}

#[tokio::test]
async fn second_kube_scheduler_of_the_page_keeps_floors_with_its_own_rights() {
    let (world, _turn) = turned_on().await;
    let cluster = &world.cluster;
    for commands in blocks("## Managed control planes", "bash") {
        run(world, &commands).await;
    }
    let manifests = fs::read_to_string(format!("{WORKSPACE}/examples/second-scheduler.yaml")).unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
    let text = objects.iter().find_map(|object| object["data"]["kube-scheduler.yaml"].as_str()).unwrap();
    let account = cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-scheduler").await.unwrap();
    configure(world, adapted(world, text), Some(&account)).await;
    let more = json!({"spec": {"schedulerName": "tenure-scheduler"}});
    let arena = &Arena::new(world, 1).await;
    let victim = assert_floors_hold(arena, &more).await;
    let user = format!("system:serviceaccount:{RELEASE_NAMESPACE}:tenure-scheduler");
    let deletes = async || {
        let log = fs::read_to_string(cluster.audit_log())?;
        let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut deletions = entries.filter(|entry| {
            entry["verb"] == "delete"
                && entry["objectRef"]["namespace"] == arena.namespace.name()
                && entry["objectRef"]["name"] == victim.name_any()
        });
        Ok(deletions.any(|entry| entry["user"]["username"] == user).then_some(()))
    };
    eventually("the deletion by the second scheduler", DEADLINE, deletes).await.unwrap();
    let guarded = ["get", "configmap", "tenure-config", "-n", RELEASE_NAMESPACE, "-o", "yaml"];
    let guarded = cluster.kubectl(&guarded).await.unwrap().success().unwrap();
    assert!(guarded.contains(&user), "{guarded}");
}
