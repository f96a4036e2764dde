//! Each page that has commands, followed from its first to its last.

use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_testbed::RELEASE_NAMESPACE;
use tenure_tests::{
    World,
    keeper::Keeper,
    pages::{Walk, workspace},
    workloads::{Namespace, bare_pod, distinct, in_runai_queue, runai_queue, workload},
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Users see queues, of which there is one kind, the guard is on, and the release has keepers for `kubectl rollout`.
const VALUES: [&str; 7] = [
    "crds.tensorstack=false",
    "guard.enabled=true",
    "keeper.replicas=2",
    "users.seeQueues[0].kind=Group",
    "users.seeQueues[0].apiGroup=rbac.authorization.k8s.io",
    "users.seeQueues[0].name=system:authenticated",
    "webhook.failurePolicy=Fail",
];

/// The cluster of all pages. They change the release and stop its servers, so one is followed at a time.
async fn world() -> (&'static World, MutexGuard<'static, ()>) {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let world = WORLD.get_or_try_init(|| Box::pin(World::installed("pages", &VALUES))).await.unwrap();
    // the page before may have failed while they were down
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    (world, turn)
}

/// A workload whose pods run.
async fn running(namespace: &Namespace, kind: &str, name: &str, queue: &str) {
    let labels = if queue.is_empty() { json!({}) } else { in_runai_queue(queue) };
    let object = workload(kind, namespace.name(), name, &labels, &Value::Null);
    namespace.create(&distinct(object, name)).await;
    namespace.await_running(if kind == "Job" { 1 } else { 2 }).await;
}

async fn upgrade(world: &World, value: &str) {
    let chart = workspace().join("charts/tenure").display().to_string();
    let release = ["upgrade", "tenure", &chart, "--namespace", RELEASE_NAMESPACE];
    let values = ["--reset-then-reuse-values", "--set", value];
    world.cluster.helm(&[&release[..], &values].concat()).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn first_rollout_pauses_nothing_before_it_is_turned_on() {
    let (world, _turn) = world().await;
    let team = Namespace::named(world, "team").await;
    world.tenure.stop_keeper().await.unwrap();
    upgrade(world, "keeper.dryRun=true").await;
    let config = format!("--config={}", world.tenure.config_file().display());
    let keeper = Keeper::start(world, &["--dry-run", &config]).await;
    running(&team, "Job", "training", "research").await;

    let mut walk =
        Walk::new(world, "first-rollout.md").with("\"7d\"", "\"2s\"").with(", expiryNotice: 1d", "");
    walk.read_log(keeper.log_file());
    walk.follow("1. Install a dry run").await;
    walk.follow("2. Make one queue, with a long ceiling").await;
    walk.follow("3. Try the ceiling that you want").await;
    assert_eq!(team.pause("Job", "training").await, None);
    keeper.stop().await;
    world.tenure.start_keeper().await.unwrap();
    walk.follow("5. Turn it on").await;
    assert_eq!(team.pause("Job", "training").await, None);
    team.await_running(1).await;
    walk.end();
}

#[tokio::test]
async fn newcomer_sees_a_job_paused_and_gets_it_back() {
    let (world, _turn) = world().await;
    let mut walk = Walk::new(world, "quickstart.md")
        .with("maxDuration: 2m, expiryNotice: 1m", "maxDuration: 12s, expiryNotice: 8s")
        .with("ceiling of 2m", "ceiling of 12s");
    for heading in ["2. Make a queue with a ceiling", "3. Watch it end", "4. Get it back"] {
        walk.follow(heading).await;
    }
    let quickstart = Namespace::of(world, "quickstart");
    assert_eq!(quickstart.events_of("MaxDurationApproaching").await.len(), 1);
    quickstart.await_running(1).await;
    walk.end();
}

#[tokio::test]
async fn a_ceiling_is_chosen_by_the_past_of_the_cluster() {
    let (world, _turn) = world().await;
    let mut walk = Walk::new(world, "choosing.md");
    for heading in ["Look at the past", "Choose the ceiling"] {
        walk.follow(heading).await;
    }
    walk.end();
}

#[tokio::test]
async fn exceptions_are_made_as_on_the_page() {
    let (world, _turn) = world().await;
    let lab = Namespace::named(world, "lab").await;
    running(&lab, "Deployment", "web", "vision").await;
    let mut walk = Walk::new(world, "exceptions.md");
    for heading in ["A longer queue", "A namespace", "A PriorityClass"] {
        walk.follow(heading).await;
    }
    walk.end();
}

#[tokio::test]
async fn user_finds_out_who_paused_a_job_and_gets_it_back() {
    let (world, _turn) = world().await;
    let team = Namespace::named(world, "team-a").await;
    world.apply(&runai_queue("speech", "", "2s")).await;
    running(&team, "Job", "training", "speech").await;
    let mut walk = Walk::new(world, "paused.md").with_the_rights_of(user(world, team.name()).await);
    walk.follow("See what is paused").await;
    walk.follow("Why").await;
    world.apply(&runai_queue("speech", "", "1h")).await;
    walk.follow("Get it back").await;
    walk.follow("Before the next time").await;
    assert_eq!(team.pause("Job", "training").await, None);
    team.await_running(1).await;
    walk.end();
}

/// A kubeconfig of a user with role `edit` in a namespace.
async fn user(world: &World, namespace: &str) -> PathBuf {
    let account = format!("--serviceaccount={namespace}:user");
    for create in [
        ["create", "serviceaccount", "user"].as_slice(),
        &["create", "rolebinding", "user", "--clusterrole=edit", &account],
    ] {
        world.cluster.kubectl(&[create, &["-n", namespace]].concat()).await.unwrap().success().unwrap();
    }
    world.cluster.service_account_kubeconfig(namespace, "user").await.unwrap()
}

#[tokio::test]
async fn node_is_drained_while_the_guard_is_on() {
    let (world, _turn) = world().await;
    let drained = Namespace::named(world, "drained").await;
    let mut queue = runai_queue("careful", "", "1d");
    queue["spec"]["preemptMinRuntime"] = json!("30m");
    world.apply(&queue).await;
    let resources = json!({"cpu": "8", "memory": "64Gi", "pods": "50"});
    let alone = json!({"key": "gpu", "effect": "NoSchedule"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "gpu-node-7", "labels": {"kubernetes.io/hostname": "gpu-node-7"}},
        "spec": {"taints": [alone]},
        "status": {"allocatable": resources, "capacity": resources},
    });
    let node = drained.create(&node).await;
    let spec = json!({
        "nodeSelector": {"kubernetes.io/hostname": "gpu-node-7"},
        "tolerations": [alone],
        "terminationGracePeriodSeconds": 0,
    });
    let pod = bare_pod(drained.name(), "training", &in_runai_queue("careful"), &spec);
    drained.create(&pod).await;
    drained.await_running(1).await;
    let mut walk = Walk::new(world, "drains.md");
    for heading in ["See what will wait", "Wait for it", "Let some pods go", "In an emergency"] {
        walk.follow(heading).await;
    }
    assert!(drained.pod_names().await.is_empty());
    drained.delete(&node).await;
    walk.end();
}

#[tokio::test]
async fn keeper_and_webhook_that_are_down_are_found_and_got_back() {
    let (world, _turn) = world().await;
    let night = Namespace::named(world, "night").await;
    world.apply(&runai_queue("short", "", "7d")).await;
    running(&night, "Job", "training", "short").await;
    // both servers are processes beside the cluster here
    let mut walk = Walk::new(world, "outages.md")
        .with("tenure-keeper-6d4cf56db6-x7k2p", "keeper-0")
        .with("tenure-webhook   2/2     2            2           5m", "...");
    let tenure = &world.tenure;
    walk.follow("Is the keeper there?").await;
    tenure.stop_keeper().await.unwrap();
    world.apply(&runai_queue("short", "", "1s")).await;
    walk.follow("While no keeper leads").await;
    walk.follow("Get the keeper back").await;
    world.apply(&runai_queue("short", "", "7d")).await;
    tenure.stop_webhook().await.unwrap();
    walk.follow("Is the webhook there?").await;
    walk.follow("Write queues without a webhook").await;
    tenure.start_webhook(&world.cluster).await.unwrap();
    tenure.start_keeper().await.unwrap();
    walk.end();
}

#[tokio::test]
async fn apply_from_git_leaves_a_pause_alone_where_the_field_is_not_in_git() {
    let (world, _turn) = world().await;
    let gitops = Namespace::named(world, "gitops").await;
    world.apply(&runai_queue("web", "", "1d")).await;
    let labels = json!({"kai.scheduler/queue": "web"});
    let mut web = distinct(workload("Deployment", gitops.name(), "web", &labels, &Value::Null), "web");
    web["spec"]["replicas"] = json!(3);
    // with the field in Git, and then without it
    let apply = ["apply", "--server-side", "--field-manager=kustomize-controller", "-f", "-"];
    let sync = async |web: &Value| {
        world.cluster.kubectl_with_input(&apply, &web.to_string()).await.unwrap().success().unwrap();
    };
    sync(&web).await;
    gitops.await_running(3).await;
    let mut walk = Walk::new(world, "gitops.md");
    walk.follow("Leave the field out of Git").await;
    web["spec"].as_object_mut().unwrap().remove("replicas");
    sync(&web).await;
    gitops.await_running(3).await;
    world.apply(&runai_queue("web", "", "1s")).await;
    gitops.await_paused("Deployment", "web").await;
    walk.follow("See whether an apply undoes a pause").await;
    walk.end();
}

#[tokio::test]
async fn release_is_upgraded_and_rolled_back() {
    let (world, _turn) = world().await;
    let mut walk = Walk::new(world, "upgrade.md");
    for heading in ["Before", "Upgrade", "Rollback"] {
        walk.follow(heading).await;
    }
    walk.end();
}

#[tokio::test]
async fn symptoms_are_looked_into_as_on_the_page() {
    let (world, _turn) = world().await;
    let lost = Namespace::named(world, "lost").await;
    lost.create(&bare_pod(lost.name(), "training", &json!({}), &Value::Null)).await;
    lost.await_running(1).await;
    let mut walk = Walk::new(world, "troubleshooting.md");
    for heading in
        ["Troubleshooting", "A workload isn't paused", "A queue can't be written or read", "Configuration"]
    {
        walk.follow(heading).await;
    }
    walk.end();
}
