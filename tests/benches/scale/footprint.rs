//! The memory and time that a keeper takes in a cluster of 150,000 pods and 5,000 queues.
//!
//! Creating all pods through the API server would take a quarter of an hour. Therefore only one
//! Deployment, its `ReplicaSet` and one of their pods are created through the API server. Copies of
//! the answers are written into etcd.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use http::{Request, header::ACCEPT};
use k8s_openapi::api::core::v1::{self as core, Pod};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tenure_testbed::{Process, RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World,
    keeper::keeper_program,
    scale::{each, etcd::put_all, full_or_short, is_measured, line, random, seconds, world},
    workloads::{queue, runai_queue},
};
use tokio::time::interval;

use crate::model::{Family, Model, PODS_PER_OWNER, Places, namespace_name, pod_of, queue_name};

/// In KiB.
const MIB: f64 = 1024.0;

/// Objects at once, as the keeper lists them.
const PAGE: u32 = 500;

/// The keeper lists 300 pages then, on a machine that has the API server to run as well.
const READY: Duration = Duration::from_mins(5);

/// The size of a run.
struct Size {
    pods: usize,
    places: Places,
    updates: u32,
    /// For how long pods and queues are updated.
    churn: Duration,
}

impl Size {
    fn of_this_run() -> Self {
        let large = Self {
            pods: 150_000,
            places: Places { namespaces: 1_000, queues: 5_000 },
            updates: 1_000,
            // all watches begin again in that time
            churn: Duration::from_mins(2),
        };
        let small = Self {
            // two pages
            pods: 600,
            places: Places { namespaces: 5, queues: 10 },
            updates: 10,
            churn: Duration::from_secs(1),
        };
        full_or_short(large, small)
    }

    const fn owners(&self) -> usize {
        self.pods / PODS_PER_OWNER
    }
}

pub async fn run() -> Result<()> {
    let size = Size::of_this_run();
    let Size { pods, places: Places { namespaces, queues }, .. } = size;
    println!(
        "footprint: {pods} pods of {owners} ReplicaSets of {owners} Deployments, in {queues} queues and {namespaces} namespaces",
        owners = size.owners()
    );
    let world = &world("footprint", &[]).await?;
    let (empty, took_when_empty) = Keeper::start(world).await?;
    let control = empty.memory()?;
    drop(empty);

    let bytes = fill(world, &size).await?;
    let listed = list_all(&world.cluster.client()?).await?;
    let (keeper, took) = Keeper::start(world).await?;
    let ready = keeper.memory()?;
    keeper.ensure_complete(pods).await?;
    churn(world, &size).await?;
    let after = keeper.memory()?;
    keeper.ensure_complete(pods).await?;

    println!();
    println!(
        "pods and owners were written into etcd, as copies of some that were created through the API server: {bytes} bytes of JSON a pod"
    );
    println!("                                       resident MiB   thereof heap   most so far");
    control.print("keeper in an empty cluster (control)");
    ready.print("keeper when ready");
    after.print(&format!("after {} updates in {:?}", size.updates, size.churn));
    let goal = |goal| if is_measured() { goal } else { "" };
    line("most resident", mib(after.most), goal("goal: at most 128.0 MiB"));
    line(
        "more than in the empty cluster, a pod",
        format!("{:.0} bytes", after.more_than(&control, pods)),
        "",
    );
    line("from its start until it is ready", seconds(took), "");
    line("for these lists to be read and dropped (control)", seconds(listed), "");
    line("from its start in the empty cluster (control)", seconds(took_when_empty), "");
    Ok(())
}

fn mib(kib: f64) -> String {
    format!("{:.1} MiB", kib / MIB)
}

/// Returns the resident memory of a process, in KiB.
struct Memory {
    resident: f64,
    heap: f64,
    most: f64,
}

impl Memory {
    fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse().ok());
            kib.with_context(|| format!("{name} is not in the status of process {pid}"))
        };
        Ok(Self { resident: field("VmRSS:")?, heap: field("RssAnon:")?, most: field("VmHWM:")? })
    }

    /// Bytes for each pod.
    fn more_than(&self, other: &Self, pods: usize) -> f64 {
        let pods = u32::try_from(pods).map_or(f64::NAN, f64::from);
        (self.resident - other.resident) * 1024.0 / pods
    }

    fn print(&self, when: &str) {
        let [resident, heap, most] = [self.resident, self.heap, self.most].map(|kib| kib / MIB);
        println!("{when:<38} {resident:>12.1} {heap:>14.1} {most:>13.1}");
    }
}

struct Keeper {
    process: Process,
    admin: Client,
}

impl Keeper {
    /// Starts one, and returns how long it takes until it is ready.
    async fn start(world: &World) -> Result<(Self, Duration)> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let account = world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-keeper").await?;
        let mut command = Command::new(keeper_program().await);
        command.arg("--kubeconfig").arg(account).arg(format!("--admin-listen=127.0.0.1:{port}"));
        // it takes over the lease of the one before
        command.arg("--leader-elect-identity=keeper");
        command.arg(format!("--leader-elect-resource-namespace={RELEASE_NAMESPACE}"));
        let log = world.cluster.directory().join("keeper.log");
        let begin = Instant::now();
        let mut process = Process::spawn("tenure-keeper", command, &log)?;
        let mut config = Config::new(format!("http://127.0.0.1:{port}").parse()?);
        // each poll is a try
        config.default_retry = false;
        let admin = Client::try_from(config)?;
        let ready = async || match process.exit_status()? {
            Some(status) => Ok(Some(Err(status))),
            None => Ok(get(&admin, "/ready").await.ok().map(Ok)),
        };
        let ready = eventually("the keeper to be ready", READY, ready).await;
        match ready {
            Ok(Ok(_)) => Ok((Self { process, admin }, begin.elapsed())),
            not => Err(process.failure(&format!("isn't ready: {not:?}"))),
        }
    }

    fn memory(&self) -> Result<Memory> {
        Memory::of(self.process.pid())
    }

    /// Fails unless all pods are held to a ceiling.
    async fn ensure_complete(&self, pods: usize) -> Result<()> {
        let expected = format!("tenure_keeper_pods_under_ceiling {pods}.0");
        let all = async || {
            let metrics = get(&self.admin, "/metrics").await?;
            Ok(metrics.lines().any(|line| line == expected).then_some(()))
        };
        eventually(&expected, DEADLINE, all).await
    }
}

async fn get(client: &Client, path: &str) -> Result<String> {
    Ok(client.request_text(Request::get(path).body(Vec::new())?).await?)
}

/// Reads what a keeper has to list of this, page by page, and drops it; returns how long that takes.
async fn list_all(client: &Client) -> Result<Duration> {
    let whole = "application/json";
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let begin = Instant::now();
    tokio::try_join!(
        list(client, "/api/v1/pods", whole),
        list(client, "/apis/apps/v1/replicasets", metadata),
        list(client, "/apis/apps/v1/deployments", metadata),
    )?;
    Ok(begin.elapsed())
}

async fn list(client: &Client, path: &str, accept: &str) -> Result<()> {
    let mut next = Some(String::new());
    while let Some(page) = next {
        let request = Request::get(format!("{path}?limit={PAGE}&continue={page}")).header(ACCEPT, accept);
        let text = client.request_text(request.body(Vec::new())?).await?;
        // it stands before the items, so that these needn't be decoded
        let (_, rest) = text.split_once(r#""continue":""#).unwrap_or_default();
        next = rest.split_once('"').map(|(page, _)| page.to_owned()).filter(|page| !page.is_empty());
    }
    Ok(())
}

/// Puts everything into the cluster; returns the bytes of a pod.
async fn fill(world: &World, size: &Size) -> Result<usize> {
    let client = &world.cluster.client()?;
    each(size.places.namespaces, "namespaces created", async |number| {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_name(number)}});
        create(&namespaces(client), &object).await
    })
    .await?;
    each(size.places.queues, "queues created", async |number| create_queue(client, number).await).await?;
    let model = Model::create(world).await?;
    let begin = Instant::now();
    put_all(&world.cluster, (0..size.owners()).flat_map(|owner| model.copies(owner, size.places))).await?;
    let (pods, owners) = (size.pods, 2 * size.owners());
    println!("  {pods} pods and {owners} owners written into etcd in {}", seconds(begin.elapsed()));
    await_pods(client, pods).await?;
    println!("  the API server has all of them {} after the begin of that", seconds(begin.elapsed()));
    Ok(model.pod_size())
}

async fn await_pods(client: &Client, count: usize) -> Result<()> {
    let pods: Api<Pod> = Api::all(client.clone());
    let all = async || {
        let first = pods.list(&ListParams::default().limit(1)).await?;
        let rest = usize::try_from(first.metadata.remaining_item_count.unwrap_or_default())?;
        let there = first.items.len() + rest;
        ensure!(there == count, "the API server has {there} pods, and not {count}");
        Ok(Some(()))
    };
    eventually("the API server to have all pods", READY, all).await
}

fn namespaces(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<core::Namespace>(&()))
}

async fn create(api: &Api<DynamicObject>, object: &Value) -> Result<()> {
    api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
    Ok(())
}

async fn create_queue(client: &Client, number: usize) -> Result<()> {
    let (name, ceiling) = (queue_name(number), format!("{}d", 60 + number % 30));
    let object = match Family::of(number) {
        Family::Tensorstack => queue(&name, &ceiling),
        Family::Runai => runai_queue(&name, "", &ceiling),
    };
    create(&queues(client, Family::of(number)), &object).await
}

fn queues(client: &Client, family: Family) -> Api<DynamicObject> {
    let resource = |group, version| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "Queue"));
    match family {
        Family::Tensorstack => {
            let resource = resource("scheduler.tensorstack.dev", "v1beta1");
            Api::namespaced_with(client.clone(), "t9k-system", &resource)
        }
        Family::Runai => Api::all_with(client.clone(), &resource("scheduling.run.ai", "v3alpha1")),
    }
}

/// Updates pods all over the cluster, and now and then a queue's ceiling.
async fn churn(world: &World, size: &Size) -> Result<()> {
    let client = world.cluster.client()?;
    let mut each = interval(size.churn / size.updates);
    for update in 0..size.updates {
        each.tick().await;
        let number = usize::try_from(random(0, update.into()))?;
        update_pod(&client, number % size.pods, size).await?;
        if update % 100 == 0 {
            update_queue(&client, number % size.places.queues).await?;
        }
    }
    Ok(())
}

async fn update_pod(client: &Client, number: usize, size: &Size) -> Result<()> {
    let (namespace, name) = pod_of(number, size.places);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {"example.com/progress": number.to_string()}}}));
    pods.patch(&name, &PatchParams::default(), &patch).await.context(name)?;
    Ok(())
}

async fn update_queue(client: &Client, number: usize) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"maxDuration": "120d"}}));
    queues(client, Family::of(number)).patch(&queue_name(number), &PatchParams::default(), &patch).await?;
    Ok(())
}
