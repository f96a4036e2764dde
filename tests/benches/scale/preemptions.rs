//! The rate at which kube-scheduler preempts, in the shape of `PreemptionAsync` of `scheduler_perf`: without an extender, with one
//! that offers back what it is asked about, and with Tenure. On each node four pods of 900m run, of 4 processors, and each new pod of 3
//! processors needs the room of three of them.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use axum::{Json, Router, extract::DefaultBodyLimit, routing::post};
use clap::Parser;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tenure_service::{readiness::ProcessReadiness, tls::TlsArgs, validity::CertificateEnds};
use tenure_testbed::{Cluster, Process, Tenure, eventually, free_port};
use tenure_tests::{
    World, fixtures,
    scale::{
        each,
        etcd::{Stored, put_all},
        full_or_short, line, namespace, seconds,
    },
    scheduling::EXTENDER,
};
use tokio_util::sync::CancellationToken;

const LOW: &str = "low";
const HIGH: &str = "high";
const VICTIMS_PER_NODE: usize = 4;
/// Of the victims on a node, those whose room a preemptor needs.
const VICTIMS_PER_PREEMPTOR: usize = 3;
const DEADLINE: Duration = Duration::from_mins(10);

/// What kube-scheduler asks before it preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Nothing,
    Echo,
    Tenure,
}

/// Each once in either order, so that none has the quieter half of the run.
const TURNS: [Asks; 6] = [Asks::Nothing, Asks::Echo, Asks::Tenure, Asks::Tenure, Asks::Echo, Asks::Nothing];

impl Asks {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "without an extender",
            Self::Echo => "with an extender that only echoes",
            Self::Tenure => "with Tenure",
        }
    }
}

struct Size {
    nodes: usize,
    preemptors: usize,
}

#[allow(clippy::cast_precision_loss, reason = "the numbers are small")]
pub async fn run() -> Result<()> {
    let size = full_or_short(Size { nodes: 5_000, preemptors: 300 }, Size { nodes: 20, preemptors: 5 });
    let Size { nodes, preemptors } = size;
    println!(
        "preemptions: {preemptors} pods that need room, on {nodes} nodes with {VICTIMS_PER_NODE} pods each"
    );
    let cluster = Cluster::start_api_server_alone("preemptions").await?;
    let tenure = Tenure::install_with(&cluster, EXTENDER, &[]).await?;
    let world = World { cluster, tenure };
    fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
    world.tenure.start_webhook(&world.cluster).await?;
    prepare(&world, nodes).await?;
    let echo = Echo::start(&world)?;
    let mut rates: Vec<(Asks, f64)> = Vec::new();
    // a short run measures nothing, and needs no control
    for asks in full_or_short(&TURNS[..], &TURNS[1..3]) {
        let asked = echo.asked.load(Relaxed);
        let took = Box::pin(turn(&world, &echo, *asks, &size)).await?;
        let asked = echo.asked.load(Relaxed) - asked;
        ensure!((asked >= preemptors) == (*asks == Asks::Echo), "the echo was asked {asked} times");
        let rate = preemptors as f64 / took.as_secs_f64();
        println!("  {}: {rate:.1} pods a second", asks.name());
        rates.push((*asks, rate));
    }
    let mean = |asks: Asks| {
        let of_this: Vec<f64> = rates.iter().filter(|(of, _)| *of == asks).map(|(_, rate)| *rate).collect();
        of_this.iter().sum::<f64>() / of_this.len() as f64
    };
    for asks in [Asks::Nothing, Asks::Echo, Asks::Tenure] {
        line(asks.name(), format!("{:.1} pods a second", mean(asks)), "");
    }
    for than in [Asks::Nothing, Asks::Echo] {
        let ratio = mean(Asks::Tenure) / mean(than);
        line(&format!("Tenure, by the rate {}", than.name()), format!("{ratio:.2}"), "");
    }
    Ok(())
}

/// Creates the nodes, the classes, the queue and its namespace.
async fn prepare(world: &World, nodes: usize) -> Result<()> {
    for (name, value) in [(LOW, 0), (HIGH, 1_000)] {
        namespace(world, name).await;
        world
            .apply(&json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            }))
            .await;
    }
    world
        .apply(&json!({
            "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": LOW},
            "spec": {"preemptMinRuntime": "1m"},
        }))
        .await;
    let api: Api<Node> = Api::all(world.cluster.client()?);
    let create = async |number: usize| {
        let resources = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
        let ready = json!({"type": "Ready", "status": "True"});
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": node_name(number), "labels": {"kubernetes.io/hostname": node_name(number)}},
            "status": {"allocatable": resources, "capacity": resources, "conditions": [ready]},
        }))?;
        let mut node = api.create(&PostParams::default(), &node).await?;
        // a new node has this taint until its controller, which isn't there, removes it
        node.spec.get_or_insert_default().taints = None;
        api.replace(&node_name(number), &PostParams::default(), &node).await?;
        Ok(())
    };
    each(nodes, "nodes created", create).await.map(drop)
}

fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

/// Fills all nodes, and measures how long all preemptors take to get room.
async fn turn(world: &World, echo: &Echo, asks: Asks, size: &Size) -> Result<Duration> {
    let client = world.cluster.client()?;
    let [low, high] = [LOW, HIGH].map(|name| Api::<Pod>::namespaced(client.clone(), name));
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    high.delete_collection(&now, &ListParams::default()).await?;
    put_all(&world.cluster, (0..size.nodes * VICTIMS_PER_NODE).map(victim)).await?;
    let extender = match asks {
        Asks::Nothing => None,
        Asks::Echo => Some(echo.extender(world)),
        Asks::Tenure => Some(world.tenure.extender(&world.cluster)),
    };
    let _scheduler = scheduler(world, extender)?;
    // it has read nodes and pods when it places this one, which needs no preemption
    high.create(&PostParams::default(), &pod("first", "100m")?).await?;
    await_placed(&high).await?;

    let begun = Instant::now();
    let create = async |number: usize| {
        high.create(&PostParams::default(), &pod(&format!("pod-{number}"), "3")?).await?;
        Ok(())
    };
    let (created, placed) = tokio::join!(each(size.preemptors, "pods created", create), async {
        eventually("all pods", DEADLINE, async || {
            let placed = high.list_metadata(&ListParams::default().fields("spec.nodeName!=")).await?;
            Ok((placed.items.len() > size.preemptors).then(|| begun.elapsed()))
        })
        .await
    });
    created?;
    let took = placed?;
    let left = low.list_metadata(&ListParams::default()).await?.items.len();
    let gone = size.nodes * VICTIMS_PER_NODE - left;
    ensure!(gone >= size.preemptors * VICTIMS_PER_PREEMPTOR, "{gone} pods were preempted");
    println!("  {} preempted {gone} pods in {}", asks.name(), seconds(took));
    Ok(took)
}

async fn await_placed(pods: &Api<Pod>) -> Result<()> {
    eventually("the first pod", DEADLINE, async || {
        let placed = pods.list_metadata(&ListParams::default().fields("spec.nodeName!=")).await?;
        Ok((!placed.items.is_empty()).then_some(()))
    })
    .await
}

/// A pod that has run for an hour, longer than its floor.
fn victim(number: usize) -> Stored {
    let name = format!("low-{number:05}");
    let then = Timestamp::now() - SignedDuration::from_hours(1);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": then});
    let value = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": LOW, "uid": format!("705ab4f5-6393-11e8-b7cc-{number:012x}"),
            "creationTimestamp": then, "labels": {"kai.scheduler/queue": LOW},
        },
        "spec": {
            "containers": [{"name": "main", "image": "example.com/image", "resources": {"requests": {"cpu": "900m"}}}],
            "nodeName": node_name(number / VICTIMS_PER_NODE), "priority": 0, "priorityClassName": LOW,
            // no kubelet is there to end it
            "terminationGracePeriodSeconds": 0,
            "schedulerName": "default-scheduler", "restartPolicy": "Always",
        },
        "status": {
            "phase": "Running", "startTime": then, "conditions": [condition("PodScheduled"), condition("Ready")],
        },
    });
    Stored { key: format!("/registry/pods/{LOW}/{name}"), value: value.to_string() }
}

fn pod(name: &str, cpu: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "priorityClassName": HIGH,
            "containers": [{"name": "main", "image": "example.com/image", "resources": {"requests": {"cpu": cpu}}}],
        },
    }))?)
}

/// A kube-scheduler of its own, with the rates of `scheduler_perf`.
fn scheduler(world: &World, extender: Option<Value>) -> Result<Process> {
    let (cluster, port) = (&world.cluster, free_port()?);
    let kubeconfig = cluster.user_kubeconfig("system:kube-scheduler", None)?;
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5_000, "burst": 5_000},
        "leaderElection": {"leaderElect": false},
        "extenders": Vec::from_iter(extender),
    });
    let path = cluster.directory().join("measured-scheduler.yaml");
    std::fs::write(&path, config.to_string())?;
    let mut command = Command::new(cluster.binaries().path("kube-scheduler"));
    command.arg(format!("--config={}", path.display())).arg(format!("--secure-port={port}"));
    command.args(["--bind-address=127.0.0.1", "--authentication-skip-lookup"]);
    Process::spawn("kube-scheduler", command, &cluster.directory().join("measured-scheduler.log"))
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    tls: TlsArgs,
}

/// An extender on the webhook's own server, that offers back all that it is asked about.
struct Echo {
    port: u16,
    asked: Arc<AtomicUsize>,
    shutdown: CancellationToken,
}

impl Echo {
    fn start(world: &World) -> Result<Self> {
        let (port, asked, shutdown) = (free_port()?, Arc::<AtomicUsize>::default(), CancellationToken::new());
        let files = world.cluster.directory().join("webhook");
        let mut flags = vec!["echo".to_owned(), format!("--listen=127.0.0.1:{port}")];
        for (flag, file) in [("cert", "tls.crt"), ("key", "tls.key")] {
            flags.push(format!("--tls-{flag}-file={}", files.join(file).display()));
        }
        let Flags { tls } = Flags::try_parse_from(flags)?;
        let counted = Arc::clone(&asked);
        let route = post(async move |Json(question): Json<Value>| {
            counted.fetch_add(1, Relaxed);
            Json(json!({"NodeNameToMetaVictims": question.get("NodeNameToMetaVictims")}))
        });
        let router = Router::new().route("/preempt", route).layer(DefaultBodyLimit::disable());
        let (certificates, readiness) = ((None, CertificateEnds::default()), ProcessReadiness::default());
        tokio::spawn(tls.serve(router, Vec::new(), certificates, readiness, shutdown.clone()));
        Ok(Self { port, asked, shutdown })
    }

    fn extender(&self, world: &World) -> Value {
        let mut extender = world.tenure.extender(&world.cluster);
        if let Some(url) = extender.get_mut("urlPrefix") {
            *url = json!(format!("https://127.0.0.1:{}", self.port));
        }
        extender
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
