//! Tenure itself on a cluster: the chart by helm, and webhook and keepers as processes on this
//! machine. The processes have the kubeconfigs of the chart's service accounts, and the chart's
//! configuration.

mod installed;
mod keeper;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::header::WARNING;
use serde_json::{Value, json};
use tenure_certs::Authority;

use installed::{account, bring_certificate, fetch_config, probe};
pub use keeper::Keeper;
use keeper::{Program, our_program};

use crate::{Cluster, Process, directory::workspace, eventually, ports::free_port, server::flag};

/// The namespace that the chart is installed in.
pub const RELEASE_NAMESPACE: &str = "tenure-system";

/// The longest time until the API server asks a started webhook, and for the end of a program.
const DEADLINE: Duration = Duration::from_secs(30);

/// Values of the chart by which queues are read as v2: one leaves the definition to KAI-Scheduler,
/// the other names the version.
const READ_AS_V2: [&str; 2] = ["crds.runai=false", "queueVersion=v2"];

/// Values of the chart that turn on features of the webhook that are off by default, and the flags
/// that they set.
const FEATURES: [(&str, &str); 4] = [
    (EXTENDER, "scheduler-extender"),
    ("schedulerExtender.allowAnonymous=true", "scheduler-allow-anonymous"),
    ("guard.enabled=true", "guard"),
    ("guard.evictionResponder=true", "eviction-responder"),
];

/// The value of the chart that has the webhook answer schedulers.
const EXTENDER: &str = "schedulerExtender.enabled=true";

/// The Secret with the webhook's certificate, which the tests bring.
const SECRET: &str = "tenure-webhook-tls";

/// The authority of schedulers' certificates: its key in the chart's `ConfigMap`, and its file.
const SCHEDULER_CA: &str = "scheduler-client-ca.crt";

/// The key in the chart's `ConfigMap` of the patch that names the converter of queues, and its
/// file. Present if queues are served as v2 and Helm doesn't install their definition.
const CONVERSION_PATCH: &str = "conversion.json";

/// The most keepers at a time.
pub const KEEPERS: usize = 2;

/// Tenure, installed on a cluster. The programs act as the service accounts of the chart, with no
/// more rights than those, and are killed when this value is dropped.
pub struct Tenure {
    webhook: Program,
    keepers: Vec<Keeper>,
    webhook_url: String,
    /// The base URL of the webhook's admin port.
    webhook_metrics: String,
    /// The configuration file of all programs.
    config: PathBuf,
    /// The directory with a scheduler's certificate and key.
    scheduler_client: PathBuf,
    /// The version in which programs read queues of the run.ai family: `v3alpha1` or `v2`.
    queue_version: &'static str,
}

impl Tenure {
    /// Installs the chart, with more values such as `crds.runai=false`. Neither program runs yet.
    /// The webhook gets the certificate in `webhook/` of the cluster's directory, if there is one,
    /// else a new one.
    pub async fn install(cluster: &Cluster, values: &[&str]) -> Result<Self> {
        Self::install_with(cluster, values, &[]).await
    }

    /// Installs Tenure with more flags of the keepers, such as `--schedulers=a`, which replace the
    /// usual ones.
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

        let is_v2 = READ_AS_V2.iter().any(|value| values.contains(value));
        let queue_version = if is_v2 { "v2" } else { "v3alpha1" };
        let config = fetch_config(cluster).await?;
        let mut webhook = vec![
            flag("kubeconfig", account(cluster, "webhook").await?),
            flag("admin-listen", format!("127.0.0.1:{webhook_admin}")),
            flag("listen", format!("127.0.0.1:{port}")),
            flag("tls-cert-file", certificate.join("tls.crt")),
            flag("tls-key-file", certificate.join("tls.key")),
            // each time the webhook reads and parses its certificates
            flag("tls-reload-interval", "1s"),
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
        let answers = Some("answer-owners").filter(|_| !values.contains("webhook.owners.enabled=false"));
        let features = features.map(|(_, name)| *name).chain(answers);
        let webhook = webhook.into_iter().chain(features.map(|name| flag(name, "true"))).collect();
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

    /// Has programs that are started from now on read queues of the run.ai family in another
    /// version, as an upgrade of the chart would: v3alpha1, or v2 where KAI-Scheduler owns the
    /// definition.
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
        let client = cluster.client()?;
        eventually("the API server to ask the webhook", DEADLINE, async || {
            let (head, body) = client.send(probe(self.queue_version)?).await?.into_parts();
            let text = body.collect_bytes().await?;
            ensure!(head.status.is_success(), "{}", String::from_utf8_lossy(&text));
            Ok(head.headers.contains_key(WARNING).then_some(()))
        })
        .await
    }

    /// Ends the webhook as kubelet would, and waits for it.
    pub async fn stop_webhook(&self) -> Result<()> {
        self.webhook.terminate().await
    }

    /// Returns the id of the webhook's process. Fails if it isn't started.
    pub async fn webhook_pid(&self) -> Result<u32> {
        self.webhook.process.lock().await.as_ref().map(Process::pid).context("it was not started")
    }

    /// Returns a keeper, by its number from 0. A keeper doesn't run until it is started.
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

    /// Returns the entry in `extenders` of kube-scheduler's configuration that has it ask the
    /// webhook.
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

    /// Returns the webhook's base URL. Its certificate is in `webhook/` of the cluster's directory,
    /// with `ca.crt`.
    pub fn webhook_url(&self) -> &str {
        &self.webhook_url
    }

    /// Returns the base URLs of the admin ports of webhook and first keeper.
    pub fn admin_urls(&self) -> [&str; 2] {
        [&self.webhook_metrics, self.keeper(0).admin_url()]
    }

    /// Returns the configuration file of webhook and keepers, which read it ten times a second. At
    /// first it is as in the chart's `ConfigMap`.
    pub fn config_file(&self) -> &Path {
        &self.config
    }

    /// Writes the files that programs take up as they are in the chart's `ConfigMap` now, as
    /// kubelets would after an upgrade.
    pub async fn update_config(&self, cluster: &Cluster) -> Result<()> {
        fetch_config(cluster).await.map(drop)
    }

    /// Returns a directory with `tls.crt` and `tls.key` of a client that the webhook answers as a
    /// scheduler.
    pub fn scheduler_client(&self) -> &Path {
        &self.scheduler_client
    }

    /// Returns the log of the first keeper.
    pub fn keeper_log(&self) -> &Path {
        self.keeper(0).log()
    }
}
