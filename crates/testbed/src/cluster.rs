//! A control plane from its start to its end, and the clients, kubeconfigs and commands of its
//! users. A test that must not see the objects of others starts a [`Cluster`] of its own.

mod backup;
mod first_start;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tenure_certs::Authority;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::binaries::Binaries;
use crate::command::{Output, run};
use crate::credentials::{Credentials, put};
use crate::directory::Directory;
use crate::plan::ServerPlan;
use crate::process::Process;
use crate::server::{ServerProcess, ready};
use crate::{install_crypto_provider, nodes};

/// The number of nodes of a cluster: `node-1`, `node-2` and so on.
pub const NODES: usize = 3;

// longer than any test, shorter than what the API server would refuse
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// A running control plane.
///
/// The control plane ends when this value is dropped, or when this process ends, even if it is
/// killed. Logs, keys and data are in [`Cluster::directory`], which is removed at the drop unless
/// `TENURE_TESTBED_KEEP` is set.
pub struct Cluster {
    // Fields are dropped in this order: a process goes before the server that it needs, the
    // directory last.
    controllers: Vec<Process>,
    /// kube-scheduler. None: this control plane has an API server alone.
    scheduler: Option<Box<SchedulerProcess>>,
    api_server_process: Mutex<Process>,
    etcd_process: Mutex<Process>,
    etcd_url: String,
    /// The servers of etcd and kube-apiserver, to start them again.
    etcd: ServerProcess,
    api_server: ServerProcess,
    /// The configuration of an administrator's client.
    config: Config,
    kubeconfig: PathBuf,
    url: String,
    credentials: Credentials,
    binaries: Binaries,
    directory: Directory,
}

/// kube-scheduler and its settings at the start.
struct SchedulerProcess {
    process: Mutex<Process>,
    server: ServerProcess,
    /// The file with its `KubeSchedulerConfiguration`, as JSON.
    file: PathBuf,
}

impl Cluster {
    /// Starts a control plane, and waits until pods can run on it: about four seconds.
    ///
    /// The first start on a machine builds the binaries, see [`Binaries::locate`]. `name` is for
    /// the work directory. An error names the process that failed, its log, and the log's end.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[], true).await
    }

    /// Starts a control plane like [`start`](Self::start), with more flags of the API server.
    /// `("feature-gates", "GenericWorkload=true")` is for all servers, and
    /// `("controllers", TYPE_CHECKER)` for kube-controller-manager.
    pub async fn start_with_flags(name: &str, flags: &[(&str, &str)]) -> Result<Self> {
        Self::start_with(name, flags, true).await
    }

    /// Starts etcd and kube-apiserver alone: there are no nodes, and no controller acts on objects.
    ///
    /// The caller has to create the service account `default` in each namespace with pods: pods are
    /// refused without it.
    pub async fn start_api_server_alone(name: &str) -> Result<Self> {
        Self::start_with(name, &[], false).await
    }

    /// Starts a control plane like [`start_api_server_alone`](Self::start_api_server_alone), with
    /// more flags of the API server.
    pub async fn start_api_server_with_flags(name: &str, flags: &[(&str, &str)]) -> Result<Self> {
        Self::start_with(name, flags, false).await
    }

    async fn start_with(name: &str, flags: &[(&str, &str)], with_controllers: bool) -> Result<Self> {
        install_crypto_provider();
        // the future is large, and most callers hold it inside several others
        Box::pin(Self::bring_up(name, flags, with_controllers)).await
    }

    async fn bring_up(name: &str, flags: &[(&str, &str)], with_controllers: bool) -> Result<Self> {
        let binaries = spawn_blocking(Binaries::locate).await??;
        let mut directory = Directory::create(name)?;
        let credentials = Credentials::create(directory.join("pki"))?;
        let of_others = ["feature-gates", "controllers"];
        let [gates, controller] =
            of_others.map(|of| flags.iter().find(|(name, _)| *name == of).map(|(_, value)| *value));
        let more: Vec<_> = flags.iter().copied().filter(|(name, _)| !of_others.contains(name)).collect();
        let plan = ServerPlan {
            binaries: &binaries,
            credentials: &credentials,
            directory: &directory,
            gates,
            controller,
        };

        first_start::copy_data(&binaries, &directory.join("etcd")).await?;
        let (etcd, etcd_port) = plan.etcd()?;
        let etcd_process = etcd.start().await?;
        let (api_server, url) = plan.api_server(etcd_port, &more)?;
        let api_server_process = api_server.start().await?;
        let kubeconfig = credentials.token_kubeconfig(&url, "admin")?;
        let config = read(&kubeconfig).await?;
        let (mut controllers, mut scheduler) = (Vec::new(), None);
        if with_controllers {
            let started = start_controllers(&plan, &url, &config).await?;
            (controllers, scheduler) = (started.0, Some(Box::new(started.1)));
        }

        // the logs of a successful run aren't needed
        directory.is_disposable = true;
        Ok(Self {
            controllers,
            scheduler,
            api_server_process: Mutex::new(api_server_process),
            etcd_process: Mutex::new(etcd_process),
            etcd,
            etcd_url: format!("http://127.0.0.1:{etcd_port}"),
            api_server,
            config,
            kubeconfig,
            url,
            credentials,
            binaries,
            directory,
        })
    }

    /// Returns a client of an administrator, for the runtime of the caller: a client must not
    /// outlive its runtime, and each `#[tokio::test]` has its own.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.config.clone()).context("cannot make a client")
    }

    /// Returns an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the API server's URL: `https://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns etcd's URL, which accepts requests without authentication:
    /// `http://127.0.0.1:<port>`.
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// Returns the work directory, with a log for each process: `kube-apiserver.log` and so on.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// Returns the log of every request to the API server: JSON lines of `audit.k8s.io/v1` events
    /// at level Metadata.
    ///
    /// Each request has one event of stage `ResponseComplete`, written about when it is answered. A
    /// watch has another, `ResponseStarted`, when it begins.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// Returns the authority that the API server and its clients trust, to certify more servers,
    /// such as webhooks.
    pub fn authority(&self) -> &Authority {
        &self.credentials.authority
    }

    /// True if there are nodes, kube-scheduler, and the controllers of Kubernetes.
    pub const fn has_controllers(&self) -> bool {
        self.scheduler.is_some()
    }

    /// Returns the control plane's binaries.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Returns a new kubeconfig that acts as a service account, with a token for a day. A
    /// kubeconfig of the same account is overwritten.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client()?, namespace);
        let spec =
            TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let token = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let token =
            token.with_context(|| format!("cannot get a token of service account {namespace}/{name}"))?;
        let token =
            token.status.and_then(|status| status.token).context("the API server granted no token")?;
        self.credentials.kubeconfig(&self.url, &format!("{namespace}.{name}"), &json!({ "token": token }))
    }

    /// Returns a new kubeconfig of a user, by a client certificate. The user is in
    /// `system:authenticated`, and in one more group if it is given. RBAC decides about the user's
    /// rights.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        self.credentials.certificate_kubeconfig(&self.url, user, group)
    }

    /// Returns a client with the rights of a kubeconfig.
    pub async fn client_of(&self, kubeconfig: &Path) -> Result<Client> {
        Client::try_from(read(kubeconfig).await?).context("cannot make a client")
    }

    /// Runs kubectl as an administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Runs kubectl as an administrator with a text on its standard input, for `apply -f -`.
    pub async fn kubectl_with_input(&self, arguments: &[&str], stdin: &str) -> Result<Output> {
        run(self.command("kubectl", arguments), stdin).await
    }

    /// Runs kubectl with the rights of a kubeconfig and a text on its standard input.
    pub async fn kubectl_as(&self, kubeconfig: &Path, arguments: &[&str], stdin: &str) -> Result<Output> {
        let mut command = self.command("kubectl", arguments);
        command.env("KUBECONFIG", kubeconfig);
        run(command, stdin).await
    }

    /// Runs helm as an administrator. It renders a chart without reading schemas.
    pub async fn helm(&self, arguments: &[&str]) -> Result<Output> {
        let renders = arguments.first().is_some_and(|verb| ["install", "template", "upgrade"].contains(verb));
        // the API server is strict in any case; Helm would read all schemas to learn that it can be
        let more: &[&str] = if renders { &["--disable-openapi-validation"] } else { &[] };
        run(self.command("helm", &[arguments, more].concat()), "").await
    }

    /// Kills the API server: connections break at once, and new ones are refused.
    pub async fn stop_api_server(&self) -> Result<()> {
        self.api_server_process.lock().await.kill()
    }

    /// Starts the API server again, at the same URL, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let mut process = self.api_server_process.lock().await;
        process.kill()?;
        *process = self.api_server.start().await?;
        Ok(())
    }

    /// Restarts kube-scheduler with a changed `KubeSchedulerConfiguration`, and waits until it is
    /// ready. Fails on a control plane without kube-scheduler.
    pub async fn configure_scheduler(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let scheduler = self.scheduler.as_ref().context("this control plane has no kube-scheduler")?;
        let mut config = serde_json::from_str(&fs::read_to_string(&scheduler.file)?)?;
        change(&mut config);
        let mut process = scheduler.process.lock().await;
        process.kill()?;
        put(&scheduler.file, &format!("{config:#}\n"))?;
        *process = scheduler.server.start().await?;
        Ok(())
    }

    /// Returns the ids of all processes of this control plane, as they are now. A restart changes
    /// them.
    pub async fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.etcd_process.lock().await.pid(), self.api_server_process.lock().await.pid()];
        if let Some(scheduler) = &self.scheduler {
            pids.push(scheduler.process.lock().await.pid());
        }
        pids.extend(self.controllers.iter().map(Process::pid));
        pids
    }

    /// Returns a command, kubectl or helm, of an administrator. It reads and writes files of the
    /// cluster, and none of the user.
    pub fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let home = self.directory();
        let mut command = Command::new(self.binaries.path(name));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).env("HOME", home);
        // a command ends before garbage collection pays, which takes a third of its processor time
        command.env("KUBECACHEDIR", home.join("kubectl")).env("GOGC", "off");
        // both compress and read all texts of their language at each start, in French a few names of
        // commands instead of 350 kB; what isn't translated is English
        command.env("LC_ALL", "fr_FR.UTF-8");
        for (variable, directory) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, home.join("helm").join(directory));
        }
        command
    }
}

/// Starts kube-controller-manager, kube-scheduler and kwok at once, and waits until pods can run.
async fn start_controllers(
    plan: &ServerPlan<'_>,
    url: &str,
    config: &Config,
) -> Result<(Vec<Process>, SchedulerProcess)> {
    let (manager, (server, file), kwok) =
        (plan.controller_manager(url)?, plan.scheduler(url)?, plan.kwok(url)?);
    let client = Client::try_from(config.clone())?;
    let nodes = nodes::create(client.clone(), NODES);
    let (manager, scheduler, mut kwok, ()) =
        tokio::try_join!(manager.start(), server.start(), kwok.start(), nodes)?;
    // kwok is ready when its nodes are
    ready(&mut kwok, async || nodes::can_run_pods(client.clone()).await).await?;
    let scheduler = SchedulerProcess { process: Mutex::new(scheduler), server, file };
    Ok((vec![kwok, manager], scheduler))
}

/// Returns the configuration of a client with a kubeconfig.
async fn read(kubeconfig: &Path) -> Result<Config> {
    let content = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(content, &KubeConfigOptions::default()).await;
    config.with_context(|| format!("cannot use {}", kubeconfig.display()))
}
