//! Tenure itself on a cluster: the chart by helm, webhook and keeper as processes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tenure_certs::Authority;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::credentials::put;
use crate::directory::workspace;
use crate::ports::free_port;
use crate::server::{Health, Server};
use crate::{Cluster, Process, eventually, program};

/// The namespace that the chart is installed in.
pub const RELEASE_NAMESPACE: &str = "tenure-system";

const DEADLINE: Duration = Duration::from_secs(30);

/// Values of the chart by which queues are read as v2: that of a definition that is KAI-Scheduler's, and that which says so.
const READ_AS_V2: [&str; 2] = ["crds.runai=false", "queueVersion=v2"];

/// Values of the chart that turn on features of the webhook that are off by default, and the flags that they set.
const FEATURES: [(&str, &str); 4] = [
    (EXTENDER, "scheduler-extender"),
    ("schedulerExtender.allowAnonymous=true", "scheduler-allow-anonymous"),
    ("guard.enabled=true", "guard"),
    ("webhook.owners.enabled=true", "answer-owners"),
];

/// The value of the chart that has the webhook answer schedulers.
const EXTENDER: &str = "schedulerExtender.enabled=true";

/// The Secret with the webhook's certificate, which the tests bring.
const SECRET: &str = "tenure-webhook-tls";

/// The authority of schedulers' certificates, in the chart's `ConfigMap`.
const SCHEDULER_CA: &str = "scheduler-client-ca.crt";

/// The key in the chart's `ConfigMap` of the patch that names the converter of queues: present if Helm doesn't install
/// it.
const CONVERSION_PATCH: &str = "conversion.json";

/// The versions of queues of the run.ai family: Tenure's own, and KAI-Scheduler's.
const QUEUE_VERSIONS: [&str; 2] = ["v3alpha1", "v2"];

/// The most keepers at a time.
pub const KEEPERS: usize = 2;

/// Tenure, installed on a cluster. The programs act as the service accounts of the chart, with no more than their
/// rights.
pub struct Tenure {
    webhook: Program,
    keepers: Vec<Keeper>,
    webhook_url: String,
    webhook_metrics: String,
    config: PathBuf,
    scheduler_client: PathBuf,
    queue_version: &'static str,
}

/// A program of ours that may be running.
struct Program {
    server: Server,
    process: Mutex<Option<Process>>,
}

impl Program {
    async fn start(&self) -> Result<()> {
        let mut process = self.process.lock().await;
        // it may have ended by itself
        if !process.as_mut().is_some_and(Process::is_running) {
            *process = Some(self.server.start().await?);
        }
        Ok(())
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        let mut process = self.process.lock().await;
        let process = process.as_mut().context("it was not started")?;
        // after the reaping its id may be another process's
        anyhow::ensure!(process.is_running(), process.failure("has ended"));
        let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw).context("no such process id")?;
        Ok(kill_process(pid, signal)?)
    }

    async fn kill(&self) -> Result<()> {
        self.process.lock().await.take().map_or(Ok(()), |mut process| process.kill())
    }

    async fn terminate(&self) -> Result<()> {
        let Some(mut process) = self.process.lock().await.take() else {
            return Ok(());
        };
        process.terminate()?;
        let status = process.wait(DEADLINE).await?;
        anyhow::ensure!(status.success(), process.failure(&format!("ended with {status}")));
        Ok(())
    }
}

/// A keeper with an identity of its own: the same each time it is started.
pub struct Keeper {
    program: Program,
    identity: String,
    url: String,
    /// The parts of its kubeconfig: the one of the service account, and the API server's URL in it.
    account: PathBuf,
    server: String,
    kubeconfig: PathBuf,
}

impl Keeper {
    async fn new(
        cluster: &Cluster,
        index: usize,
        account: &Path,
        config: &Path,
        flags: &[&str],
    ) -> Result<Self> {
        let port = free_port()?;
        let identity = format!("keeper-{index}");
        let kubeconfig = cluster.directory().join(format!("{identity}.kubeconfig"));
        let ours = [
            flag("kubeconfig", &kubeconfig),
            flag("admin-listen", format!("127.0.0.1:{port}")),
            flag("threadiness", "8"),
            flag("leader-elect-identity", &identity),
            flag("leader-elect-resource-namespace", RELEASE_NAMESPACE),
            flag("config", config),
            flag("config-reload-interval", "100ms"),
        ];
        // of a flag that comes twice, the last counts
        let arguments = ours.into_iter().chain(flags.iter().map(OsString::from)).collect();
        let log = if index == 0 { "tenure-keeper.log".into() } else { format!("tenure-{identity}.log") };
        Ok(Self {
            program: our_program("tenure-keeper", &log, arguments, cluster, port).await?,
            identity,
            url: format!("http://127.0.0.1:{port}"),
            account: account.to_owned(),
            server: cluster.url().to_owned(),
            kubeconfig,
        })
    }

    /// Starts it, and waits until it is ready.
    pub async fn start(&self) -> Result<()> {
        self.start_at(&self.server).await
    }

    /// The same with another way to the API server, such as a proxy on 127.0.0.1: `https://127.0.0.1:<port>`.
    pub async fn start_at(&self, server: &str) -> Result<()> {
        self.aim(server)?;
        self.program.start().await
    }

    fn aim(&self, server: &str) -> Result<()> {
        let account = fs::read_to_string(&self.account)?;
        put(&self.kubeconfig, &account.replace(&self.server, server))
    }

    /// Ends it as kubelet would, and waits for it.
    pub async fn stop(&self) -> Result<()> {
        self.program.terminate().await
    }

    /// Kills it (SIGKILL).
    pub async fn kill(&self) -> Result<()> {
        self.program.kill().await
    }

    /// Stops it (SIGSTOP) as if its node had frozen: its connections stay open, its clock goes on.
    pub async fn pause(&self) -> Result<()> {
        self.program.signal(Signal::STOP).await
    }

    /// Lets it go on after [`Keeper::pause`].
    pub async fn resume(&self) -> Result<()> {
        self.program.signal(Signal::CONT).await
    }

    /// Waits until it ends by itself.
    pub async fn ended(&self, deadline: Duration) -> Result<ExitStatus> {
        self.program.process.lock().await.as_mut().context("it was not started")?.wait(deadline).await
    }

    /// Returns its identity in the election: the holder of the lease while it leads.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The base URL of its admin port.
    pub fn admin_url(&self) -> &str {
        &self.url
    }

    /// Its log. It goes on when it is started again.
    pub fn log(&self) -> &Path {
        &self.program.server.log
    }
}

impl Tenure {
    /// Installs the chart, with more values such as `crds.runai=false`. Neither program runs yet. The webhook gets the
    /// certificate in `webhook/` of the cluster's directory, if there is one.
    pub async fn install(cluster: &Cluster, values: &[&str]) -> Result<Self> {
        Self::install_with(cluster, values, &[]).await
    }

    /// Installs Tenure with more flags of the keepers, such as `--schedulers=a`, which replace the usual ones.
    pub async fn install_with(cluster: &Cluster, values: &[&str], keeper_flags: &[&str]) -> Result<Self> {
        let (port, webhook_admin) = (free_port()?, free_port()?);
        let url = format!("https://127.0.0.1:{port}");
        let chart = workspace().join("charts/tenure").display().to_string();
        let ours = [&*format!("webhook.url={url}"), "keeper.replicas=0", "crds.tensorstack=true"];
        let values = [&ours, values].concat().join(",");
        let release = ["install", "tenure", &chart, "--namespace", RELEASE_NAMESPACE, "--create-namespace"];
        let authority = Authority::new("schedulers")?;
        let scheduler_client = cluster.directory().join("scheduler-client");
        fs::create_dir_all(&scheduler_client)?;
        authority.client("kube-scheduler", None)?.write(&scheduler_client)?;
        let client_ca = format!("schedulerExtender.clientCA={}", authority.certificate_pem());
        let knows_schedulers = values.contains(EXTENDER) && !values.contains("allowAnonymous");
        let known: &[&str] = if knows_schedulers { &["--set-string", &client_ca] } else { &[] };
        let certificate = cluster.directory().join("webhook");
        let brought = bring_certificate(cluster, &certificate).await?;
        let brought: Vec<&str> = brought.iter().map(String::as_str).collect();
        cluster.helm(&[&release[..], &["--set", &values], &brought, known].concat()).await?.success()?;

        let [ours, kais] = QUEUE_VERSIONS;
        let reads_v2 = READ_AS_V2.iter().any(|value| values.contains(value));
        let queue_version = if reads_v2 { kais } else { ours };
        let config = fetch_config(cluster).await?;
        let mut webhook = vec![
            flag("kubeconfig", account(cluster, "webhook").await?),
            flag("admin-listen", format!("127.0.0.1:{webhook_admin}")),
            flag("listen", format!("127.0.0.1:{port}")),
            flag("tls-cert-file", certificate.join("tls.crt")),
            flag("tls-key-file", certificate.join("tls.key")),
            flag("tls-reload-interval", "100ms"),
            flag("drain-delay", "0s"),
            flag("config", &config),
            flag("config-reload-interval", "100ms"),
        ];
        if knows_schedulers {
            webhook.push(flag("scheduler-client-ca-file", cluster.directory().join(SCHEDULER_CA)));
        }
        let patch = cluster.directory().join(CONVERSION_PATCH);
        if patch.exists() {
            webhook.push(flag("conversion-patch-file", patch));
        }
        let features = FEATURES.iter().filter(|(value, _)| values.contains(value));
        let webhook = webhook.into_iter().chain(features.map(|(_, name)| flag(name, "true"))).collect();
        let account = account(cluster, "keeper").await?;
        let mut keepers = Vec::new();
        for index in 0..KEEPERS {
            keepers.push(Keeper::new(cluster, index, &account, &config, keeper_flags).await?);
        }
        let mut tenure = Self {
            webhook: our_program("tenure-webhook", "tenure-webhook.log", webhook, cluster, webhook_admin)
                .await?,
            keepers,
            webhook_url: url,
            webhook_metrics: format!("http://127.0.0.1:{webhook_admin}"),
            config,
            scheduler_client,
            queue_version,
        };
        tenure.read_queues_as(queue_version);
        Ok(tenure)
    }

    /// Has programs that are started from now on read queues of the run.ai family in another version, as an upgrade of
    /// the chart would: v3alpha1, or v2 where KAI-Scheduler owns the definition.
    pub fn read_queues_as(&mut self, version: &'static str) {
        self.queue_version = version;
        let keepers = self.keepers.iter_mut().map(|keeper| &mut keeper.program);
        for program in keepers.chain([&mut self.webhook]) {
            program.server.arguments.push(flag("runai-queue-version", version));
        }
    }

    /// Starts the webhook, and waits until the API server asks it.
    pub async fn start_webhook(&self, cluster: &Cluster) -> Result<()> {
        self.webhook.start().await?;
        let probe = probe(self.queue_version);
        eventually("the API server to ask the webhook", DEADLINE, async || {
            let apply = ["apply", "--dry-run=server", "-f", "-"];
            let output = cluster.kubectl_with_input(&apply, &probe).await?;
            let asked = output.stderr.contains("Warning: ");
            output.success()?;
            Ok(asked.then_some(()))
        })
        .await
    }

    /// Ends the webhook as kubelet would, and waits for it.
    pub async fn stop_webhook(&self) -> Result<()> {
        self.webhook.terminate().await
    }

    /// The webhook's process.
    pub async fn webhook_pid(&self) -> Result<u32> {
        self.webhook.process.lock().await.as_ref().map(Process::pid).context("it was not started")
    }

    /// A keeper, by its number from 0. None runs until it is started.
    ///
    /// # Panics
    /// If the number isn't below [`KEEPERS`].
    #[expect(clippy::indexing_slicing, reason = "the number is written in a test")]
    pub fn keeper(&self, index: usize) -> &Keeper {
        &self.keepers[index]
    }

    /// Starts the first keeper, and waits until it is ready.
    pub async fn start_keeper(&self) -> Result<()> {
        self.keeper(0).start().await
    }

    /// Ends the first keeper as kubelet would, and waits for it.
    pub async fn stop_keeper(&self) -> Result<()> {
        self.keeper(0).stop().await
    }

    /// Kills the first keeper (SIGKILL).
    pub async fn kill_keeper(&self) -> Result<()> {
        self.keeper(0).kill().await
    }

    /// The entry in `extenders` of kube-scheduler's configuration that has it ask the webhook.
    pub fn extender(&self, cluster: &Cluster) -> Value {
        json!({
            "urlPrefix": format!("{}/scheduler", self.webhook_url),
            "preemptVerb": "preempt",
            "enableHTTPS": true,
            "nodeCacheCapable": true,
            "ignorable": false,
            "httpTimeout": "5s",
            "tlsConfig": {
                "caFile": cluster.directory().join("webhook/ca.crt"),
                "certFile": self.scheduler_client.join("tls.crt"),
                "keyFile": self.scheduler_client.join("tls.key"),
            },
        })
    }

    /// The webhook's base URL. Its certificate is in `webhook/` of the cluster's directory, with `ca.crt`.
    pub fn webhook_url(&self) -> &str {
        &self.webhook_url
    }

    /// Base URLs of the admin ports of webhook and first keeper.
    pub fn admin_urls(&self) -> [&str; 2] {
        [&self.webhook_metrics, self.keeper(0).admin_url()]
    }

    /// The configuration file of webhook and keepers, which look at it ten times a second. At first it is as in the
    /// chart's `ConfigMap`.
    pub fn config_file(&self) -> &Path {
        &self.config
    }

    /// Has the files that programs take up be as in the chart's `ConfigMap` again, as kubelets would after an upgrade.
    pub async fn update_config(&self, cluster: &Cluster) -> Result<()> {
        fetch_config(cluster).await.map(drop)
    }

    /// A directory with `tls.crt` and `tls.key` of a client that the webhook answers as a scheduler.
    pub fn scheduler_client(&self) -> &Path {
        &self.scheduler_client
    }

    /// The log of the first keeper.
    pub fn keeper_log(&self) -> &Path {
        self.keeper(0).log()
    }
}

/// A queue for which only the webhook returns a warning.
fn probe(version: &str) -> String {
    format!(
        r#"{{"apiVersion": "scheduling.run.ai/{version}", "kind": "Queue", "metadata": {{"name": "probe"}},
        "spec": {{"parentQueue": "no-such-queue"}}}}"#
    )
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

/// A kubeconfig of the chart's service account.
async fn account(cluster: &Cluster, component: &str) -> Result<PathBuf> {
    cluster.service_account_kubeconfig(RELEASE_NAMESPACE, &format!("tenure-{component}")).await
}

async fn our_program(
    name: &'static str,
    log: &str,
    arguments: Vec<OsString>,
    cluster: &Cluster,
    admin: u16,
) -> Result<Program> {
    let server = Server {
        name,
        program: spawn_blocking(move || program(name)).await??,
        arguments,
        log: cluster.directory().join(log),
        home: cluster.directory().to_owned(),
        health: Some(Health::http(admin, "/ready")?),
    };
    Ok(Program { server, process: Mutex::new(None) })
}

async fn fetch_config(cluster: &Cluster) -> Result<PathBuf> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client()?, RELEASE_NAMESPACE);
    let map = maps.get("tenure-config").await?;
    let mut data = map.data.unwrap_or_default();
    let file = cluster.directory().join("tenure.yaml");
    fs::write(&file, data.remove("tenure.yaml").context("the ConfigMap has no tenure.yaml")?)?;
    for name in [SCHEDULER_CA, CONVERSION_PATCH] {
        if let Some(text) = data.remove(name) {
            fs::write(cluster.directory().join(name), text)?;
        }
    }
    Ok(file)
}

/// Makes the Secret of the webhook's certificate, as an administrator does who brings one. Returns the values of the
/// chart for it. Where the directory has no certificate yet, it gets one.
async fn bring_certificate(cluster: &Cluster, directory: &Path) -> Result<Vec<String>> {
    let ca = directory.join("ca.crt");
    if !ca.exists() {
        let authority = Authority::new("webhook")?;
        fs::create_dir_all(directory)?;
        fs::write(&ca, authority.certificate_pem())?;
        authority.server(&["127.0.0.1".to_owned()])?.write(directory)?;
    }
    let read = |name: &str| fs::read_to_string(directory.join(name));
    let labels = json!({"app.kubernetes.io/part-of": "tenure", "app.kubernetes.io/component": "webhook"});
    let data = json!({"ca.crt": read("ca.crt")?, "tls.crt": read("tls.crt")?, "tls.key": read("tls.key")?});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE_NAMESPACE}},
        {
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "stringData": data,
            "metadata": {"name": SECRET, "namespace": RELEASE_NAMESPACE, "labels": labels},
        },
    ]});
    cluster.kubectl_with_input(&["apply", "-f", "-"], &objects.to_string()).await?.success()?;
    let value = |key: &str, value: &str| format!("webhook.certificate.{key}={value}");
    let ca = value("existingSecret.caBundle", &ca.display().to_string());
    let by = [value("mode", "existingSecret"), value("existingSecret.name", SECRET)].join(",");
    Ok(vec!["--set".into(), by, "--set-file".into(), ca])
}
