//! The replicas of a webhook, and their certificate. The certificate is in files that change as a
//! kubelet changes those of a Secret.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::{Context, Result, ensure};
use tenure_certs::Authority;
use tenure_testbed::{Process, RELEASE_NAMESPACE, eventually, free_port, program};
use tokio::{sync::Mutex, task::spawn_blocking};

use super::{balancer::Balancer, file};
use crate::{DEADLINE, World, keeper::get};

/// The number of replicas, as in the chart.
const REPLICAS: usize = 2;

/// The link that a kubelet changes when a Secret has changed.
const DATA: &str = "..data";

/// Replicas behind a balancer, which listens where the API server looks for the webhook.
pub(super) struct Replicas {
    all: Vec<Replica>,
    balancer: Balancer,
    authority: Authority,
    /// The directory of the certificate.
    directory: PathBuf,
    /// The number of certificates so far.
    rotations: AtomicU32,
}

/// A process of the webhook.
struct Replica {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    port: u16,
    /// The base URL of its admin port.
    admin: String,
    /// The process. None: it isn't started.
    process: Mutex<Option<Process>>,
}

impl Replicas {
    /// Starts the replicas and the balancer.
    pub async fn start(world: &World, authority: Authority) -> Result<Self> {
        let port = world.tenure.webhook_url().rsplit(':').next().context("the URL has a port")?.parse()?;
        let directory = world.cluster.directory().join("rotated");
        fs::create_dir_all(&directory)?;
        let mut all = Vec::new();
        for number in 0..REPLICAS {
            all.push(Replica::new(world, number, &directory).await?);
        }
        let replicas = Self {
            all,
            balancer: Balancer::start(port).await?,
            authority,
            directory,
            rotations: AtomicU32::new(0),
        };
        replicas.rotate()?;
        for replica in &replicas.all {
            replica.start().await?;
            replicas.balancer.set_ready(replica.port, true);
        }
        Ok(replicas)
    }

    /// Writes a new certificate of the same authority, as a kubelet does: a new directory, and a
    /// link that is changed at once.
    pub fn rotate(&self) -> Result<()> {
        let number = self.rotations.fetch_add(1, Relaxed);
        let data = self.directory.join(format!("..{number}"));
        fs::create_dir_all(&data)?;
        self.authority.server(&["127.0.0.1".into()])?.write(&data)?;
        let link = self.directory.join("..data_tmp");
        symlink(data.file_name().context("it has a name")?, &link)?;
        fs::rename(&link, self.directory.join(DATA))?;
        for name in ["tls.crt", "tls.key"].iter().filter(|_| number == 0) {
            symlink(Path::new(DATA).join(name), self.directory.join(name))?;
        }
        if let Some(last) = number.checked_sub(1) {
            fs::remove_dir_all(self.directory.join(format!("..{last}")))?;
        }
        Ok(())
    }

    /// Restarts one of the replicas, by turns, as a rollout does: the balancer sends it no
    /// connections from when it is unready until it is ready again.
    pub async fn restart(&self, number: u32) -> Result<()> {
        let replica = self.all.get(number as usize % REPLICAS).context("there is such a replica")?;
        let mut process = replica.process.lock().await.take().context("it was started")?;
        process.terminate()?;
        // the Service notices a little later
        let unready = async || Ok(get(&replica.admin, "/ready").await.is_err().then_some(()));
        eventually("the replica to be unready", DEADLINE, unready).await?;
        self.balancer.set_ready(replica.port, false);
        let status = process.wait(DEADLINE).await?;
        ensure!(status.success(), process.failure(&format!("ended with {status}")));
        replica.start().await?;
        self.balancer.set_ready(replica.port, true);
        Ok(())
    }
}

impl Replica {
    /// Prepares a replica, and starts nothing.
    async fn new(world: &World, number: usize, certificate: &Path) -> Result<Self> {
        let (port, admin) = (free_port()?, free_port()?);
        let account = world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-webhook").await?;
        let arguments = vec![
            format!("--kubeconfig={}", account.display()),
            format!("--admin-listen=127.0.0.1:{admin}"),
            format!("--listen=127.0.0.1:{port}"),
            format!("--tls-cert-file={}", file(certificate, "tls.crt")),
            format!("--tls-key-file={}", file(certificate, "tls.key")),
            "--tls-reload-interval=100ms".into(),
            "--drain-delay=2s".into(),
            format!("--config={}", world.tenure.config_file().display()),
        ];
        Ok(Self {
            program: spawn_blocking(|| program("tenure-webhook")).await??,
            arguments,
            log: world.cluster.directory().join(format!("tenure-webhook-{number}.log")),
            port,
            admin: format!("http://127.0.0.1:{admin}"),
            process: Mutex::new(None),
        })
    }

    /// Starts the process, and waits until it is ready.
    async fn start(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        let mut process = Process::spawn("tenure-webhook", command, &self.log)?;
        let ready = async || {
            ensure!(process.is_running(), process.failure("has ended"));
            Ok(get(&self.admin, "/ready").await.ok())
        };
        eventually("the replica to be ready", DEADLINE, ready).await?;
        *self.process.lock().await = Some(process);
        Ok(())
    }
}
