//! Tenure itself on a cluster: the chart by helm, webhook and keeper as processes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tenure_certs::Pair;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::directory::workspace;
use crate::server::{Health, Server, free_port};
use crate::{Cluster, Process, eventually, program};

/// The namespace that the chart is installed in.
pub const RELEASE_NAMESPACE: &str = "tenure-system";

const DEADLINE: Duration = Duration::from_secs(30);

/// A queue that draws a warning from the webhook, and from nobody else.
const PROBE: &str = r#"{"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "probe"},
    "spec": {"parentQueue": "no-such-queue"}}"#;

/// Tenure, installed on a cluster. The programs act as the service accounts of the chart, with no more than their
/// rights.
pub struct Tenure {
    webhook: Program,
    keeper: Program,
    webhook_url: String,
    webhook_metrics: String,
    keeper_metrics: String,
}

/// A program of ours that may be running.
struct Program {
    server: Server,
    process: Mutex<Option<Process>>,
}

impl Program {
    async fn start(&self) -> Result<()> {
        let mut process = self.process.lock().await;
        if process.is_none() {
            *process = Some(self.server.start().await?);
        }
        Ok(())
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

impl Tenure {
    /// Installs the chart, with more values such as `crds.runai=false`. Neither program runs yet.
    pub async fn install(cluster: &Cluster, values: &[&str]) -> Result<Self> {
        let (port, webhook_admin, keeper_admin) = (free_port()?, free_port()?, free_port()?);
        let url = format!("https://127.0.0.1:{port}");
        let chart = workspace().join("charts/tenure").display().to_string();
        let values = [&[&*format!("webhook.url={url}"), "keeper.replicas=0"], values].concat().join(",");
        let release = ["install", "tenure", &chart, "--namespace", RELEASE_NAMESPACE, "--create-namespace"];
        cluster.helm(&[&release[..], &["--set", &values]].concat()).await?.success()?;

        let certificate = cluster.directory().join("webhook");
        fetch_certificate(cluster, &certificate).await?;
        let mut webhook = common("webhook", cluster, webhook_admin).await?;
        webhook.extend([
            flag("listen", format!("127.0.0.1:{port}")),
            flag("tls-cert-file", certificate.join("tls.crt")),
            flag("tls-key-file", certificate.join("tls.key")),
            flag("tls-reload-interval", "100ms"),
            flag("drain-delay", "0s"),
        ]);
        let keeper = common("keeper", cluster, keeper_admin).await?;
        Ok(Self {
            webhook: our_program("tenure-webhook", webhook, cluster, webhook_admin).await?,
            keeper: our_program("tenure-keeper", keeper, cluster, keeper_admin).await?,
            webhook_url: url,
            webhook_metrics: format!("http://127.0.0.1:{webhook_admin}"),
            keeper_metrics: format!("http://127.0.0.1:{keeper_admin}"),
        })
    }

    /// Starts the webhook, and waits until the API server asks it.
    pub async fn start_webhook(&self, cluster: &Cluster) -> Result<()> {
        self.webhook.start().await?;
        eventually("the API server to ask the webhook", DEADLINE, async || {
            let apply = ["apply", "--dry-run=server", "-f", "-"];
            let output = cluster.kubectl_with_input(&apply, PROBE).await?;
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

    /// Starts the keeper, and waits until it keeps ceilings.
    pub async fn start_keeper(&self) -> Result<()> {
        self.keeper.start().await
    }

    /// Ends the keeper as kubelet would, and waits for it.
    pub async fn stop_keeper(&self) -> Result<()> {
        self.keeper.terminate().await
    }

    /// Kills the keeper (SIGKILL).
    pub async fn kill_keeper(&self) -> Result<()> {
        self.keeper.kill().await
    }

    /// The webhook's base URL. Its certificate is in `webhook/` of the cluster's directory, with `ca.crt`.
    pub fn webhook_url(&self) -> &str {
        &self.webhook_url
    }

    /// Base URLs of the admin ports of webhook and keeper.
    pub fn admin_urls(&self) -> [&str; 2] {
        [&self.webhook_metrics, &self.keeper_metrics]
    }

    /// The keeper's log.
    pub fn keeper_log(&self) -> &Path {
        &self.keeper.server.log
    }
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

async fn common(component: &str, cluster: &Cluster, admin: u16) -> Result<Vec<OsString>> {
    let account = format!("tenure-{component}");
    let kubeconfig = cluster.service_account_kubeconfig(RELEASE_NAMESPACE, &account).await?;
    Ok(vec![flag("kubeconfig", kubeconfig), flag("admin-listen", format!("127.0.0.1:{admin}"))])
}

async fn our_program(
    name: &'static str,
    arguments: Vec<OsString>,
    cluster: &Cluster,
    admin: u16,
) -> Result<Program> {
    let server = Server {
        name,
        program: spawn_blocking(move || program(name)).await??,
        arguments,
        log: cluster.directory().join(format!("{name}.log")),
        home: cluster.directory().to_owned(),
        health: Some(Health::http(admin, "/ready")?),
    };
    Ok(Program { server, process: Mutex::new(None) })
}

/// What the chart's notes tell a person to do who runs the webhook by hand.
async fn fetch_certificate(cluster: &Cluster, directory: &PathBuf) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(cluster.client()?, RELEASE_NAMESPACE);
    let secret = secrets.get("tenure-webhook-tls").await?;
    let text = |key: &str| {
        let bytes = secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .with_context(|| format!("the Secret has no {key}"));
        bytes.and_then(|bytes| Ok(String::from_utf8(bytes.0.clone())?))
    };
    fs::create_dir_all(directory)?;
    fs::write(directory.join("ca.crt"), text("ca.crt")?)?;
    Pair { certificate: text("tls.crt")?, key: text("tls.key")? }.write(directory)?;
    Ok(())
}
