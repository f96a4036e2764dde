use std::collections::BTreeSet;
use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client, Config, ResourceExt as _};
use tenure_testbed::{Binaries, Cluster, Tenure, eventually, program};
use tokio::signal::ctrl_c;
use tokio::task::spawn_blocking;

const EXAMPLE: &str = include_str!("../../../../examples/t9k.yaml");

/// The example's ceiling and three seconds.
const LIMIT: SignedDuration = SignedDuration::from_secs(13);

const DEADLINE: Duration = Duration::from_mins(1);

/// Show how a Deployment in a queue with maxDuration 10s is paused, on a control plane of its own
#[derive(Args)]
pub(crate) struct Demo {
    /// Leave everything up at the end, until Ctrl-C
    #[arg(long)]
    keep: bool,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<()> {
        let Self { keep } = self;
        if let Some(url) = reachable_cluster().await {
            println!("KUBECONFIG leads to a cluster that answers, {url}.");
            println!("To install Tenure there:                      make install");
            println!("To see the demo on a cluster of its own:      env -u KUBECONFIG make demo");
            return Ok(());
        }
        step("1/5  Building the control plane and Tenure's programs, unless they are there already");
        spawn_blocking(Binaries::locate).await??;
        for name in ["tenure-webhook", "tenure-keeper"] {
            spawn_blocking(move || program(name)).await??;
        }
        step("2/5  Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok");
        let cluster = Cluster::start("demo").await?;
        step("3/5  helm install tenure charts/tenure");
        let tenure = Tenure::install(&cluster, &[]).await?;
        step("4/5  Starting tenure-webhook and tenure-keeper");
        tenure.start_webhook(&cluster).await?;
        tenure.start_keeper().await?;
        step(
            "5/5  kubectl apply -f examples/t9k.yaml: Queue demo, maxDuration 10s, and Deployment test in it",
        );
        cluster.kubectl_with_input(&["apply", "-f", "-"], EXAMPLE).await?.success()?;
        println!();
        let shown = show(&cluster).await;
        if keep {
            println!();
            println!("All is left up. In another terminal, look around with");
            println!("  export PATH={}:$PATH", cluster.binaries().directory().display());
            println!(
                "  kubectl --kubeconfig={} get tenure,deployments,pods,events -A",
                cluster.kubeconfig().display()
            );
            println!("Logs are in {}. Ctrl-C ends it.", cluster.directory().display());
            ctrl_c().await.context("cannot listen for Ctrl-C")?;
        }
        shown
    }
}

fn step(text: &str) {
    println!("{text}");
}

/// The URL of the cluster that KUBECONFIG leads to, if it answers.
async fn reachable_cluster() -> Option<String> {
    env::var_os("KUBECONFIG").filter(|value| !value.is_empty())?;
    let mut config = Config::infer().await.ok()?;
    let url = config.cluster_url.to_string();
    config.default_retry = false;
    let client = Client::try_from(config).ok()?;
    let answer = tokio::time::timeout(Duration::from_secs(3), client.apiserver_version()).await;
    answer.ok()?.ok().map(|_| url)
}

/// Prints what happens to the Deployment until it is at 0/0, and fails if that isn't what should happen.
async fn show(cluster: &Cluster) -> Result<()> {
    let mut timeline = Timeline::new(cluster.client()?);
    let paused = eventually("Deployment test to be at 0/0", DEADLINE, async || timeline.look().await).await?;
    println!();
    for arguments in [
        &["get", "deployment", "test"][..],
        &["get", "events", "--field-selector", "reason=MaxDurationExceeded"],
    ] {
        println!("$ kubectl {}", arguments.join(" "));
        println!("{}", cluster.kubectl(arguments).await?.success()?);
    }
    let events = timeline.events().await?.len();
    ensure!(events == 1, "there should be one MaxDurationExceeded event, but there are {events}");
    ensure!(
        paused <= LIMIT,
        "the Deployment was at 0/0 {:.1} s after its pods' creation, later than {LIMIT:#}",
        paused.as_secs_f64()
    );
    println!("The Deployment was at 0/0 {:.1} s after its pods' creation.", paused.as_secs_f64());
    Ok(())
}

/// What was seen so far.
struct Timeline {
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    events: Api<Event>,
    started: Instant,
    /// The earliest creation of a pod, by the API server's clock.
    created: Option<Timestamp>,
    told: BTreeSet<String>,
}

impl Timeline {
    fn new(client: Client) -> Self {
        Self {
            deployments: Api::default_namespaced(client.clone()),
            pods: Api::default_namespaced(client.clone()),
            events: Api::default_namespaced(client),
            started: Instant::now(),
            created: None,
            told: BTreeSet::new(),
        }
    }

    /// Tells what is new. At the end it returns the age that the pods would have.
    async fn look(&mut self) -> Result<Option<SignedDuration>> {
        let pods = self.pods.list(&ListParams::default().labels("name=deploy-test")).await?.items;
        for pod in &pods {
            let created = pod.creation_timestamp().map(|time| time.0);
            self.created = self.created.into_iter().chain(created).min();
            self.tell(&format!("pod {} was created", pod.name_any()));
        }
        let deployment = self.deployments.get("test").await?;
        let (spec, status) = (deployment.spec.clone(), deployment.status.clone().unwrap_or_default());
        let (wanted, ready) = (spec.replicas.unwrap_or(1), status.ready_replicas.unwrap_or(0));
        self.tell(&format!("Deployment test is at {ready}/{wanted}"));
        if let Some(record) = deployment.annotations().get("tenure.dev/paused") {
            self.tell(&format!("its annotation tenure.dev/paused is {record}"));
        }
        let events = self.events().await?;
        for event in &events {
            self.tell(&format!("event {}", event.note.as_deref().unwrap_or_default()));
        }
        let over = wanted == 0 && status.replicas.unwrap_or(0) == 0 && pods.is_empty() && !events.is_empty();
        Ok(self.created.filter(|_| over).map(|created| Timestamp::now().duration_since(created)))
    }

    async fn events(&self) -> Result<Vec<Event>> {
        let exceeded = ListParams::default().fields("reason=MaxDurationExceeded");
        Ok(self.events.list(&exceeded).await?.items)
    }

    fn tell(&mut self, what: &str) {
        if self.told.insert(what.to_owned()) {
            println!("{:>7.1} s  {what}", self.started.elapsed().as_secs_f64());
        }
    }
}
