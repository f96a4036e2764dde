//! Tenure's programs as processes, which tests start, freeze, kill and end.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{DEADLINE, RELEASE_NAMESPACE};
use crate::credentials::put;
use crate::ports::free_port;
use crate::server::{Health, ServerProcess, flag};
use crate::{Cluster, Process, program};

/// A program of Tenure that may be running.
pub(super) struct Program {
    pub server: ServerProcess,
    /// The process. None: it wasn't started, or was ended here.
    pub process: Mutex<Option<Process>>,
}

impl Program {
    /// Starts the program, unless it runs, and waits until it is ready.
    pub async fn start(&self) -> Result<()> {
        let mut process = self.process.lock().await;
        // the process may have ended by itself
        if !process.as_mut().is_some_and(Process::is_running) {
            *process = Some(self.server.start().await?);
        }
        Ok(())
    }

    /// Sends a signal to the process. Fails if it has ended.
    pub async fn signal(&self, signal: Signal) -> Result<()> {
        let mut process = self.process.lock().await;
        let process = process.as_mut().context("it was not started")?;
        // once the process is reaped, its id may be another process's
        anyhow::ensure!(process.is_running(), process.failure("has ended"));
        process.signal(signal)
    }

    /// Kills the process, if there is one.
    pub async fn kill(&self) -> Result<()> {
        self.process.lock().await.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Ends the process as kubelet would. Fails if it doesn't end with success in time.
    pub async fn terminate(&self) -> Result<()> {
        let Some(mut process) = self.process.lock().await.take() else {
            return Ok(());
        };
        process.terminate()?;
        let status = process.wait(DEADLINE).await?;
        anyhow::ensure!(status.success(), process.failure(&format!("ended with {status}")));
        Ok(())
    }
}

/// A keeper with an identity of its own, the same each time it is started.
pub struct Keeper {
    pub(super) program: Program,
    identity: String,
    /// The base URL of the admin port.
    url: String,
    /// The kubeconfig of the service account, from which that of the keeper is made.
    account: PathBuf,
    /// The API server's URL in it.
    server: String,
    /// The kubeconfig of the keeper, written at each start.
    kubeconfig: PathBuf,
}

impl Keeper {
    /// Prepares a keeper, and starts nothing. `flags` replace the usual ones.
    pub(super) async fn new(
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

    /// Starts the keeper, and waits until it is ready.
    pub async fn start(&self) -> Result<()> {
        self.start_at(&self.server).await
    }

    /// Starts the keeper with another way to the API server, such as a proxy on 127.0.0.1:
    /// `https://127.0.0.1:<port>`.
    pub async fn start_at(&self, server: &str) -> Result<()> {
        let account = fs::read_to_string(&self.account)?;
        put(&self.kubeconfig, &account.replace(&self.server, server))?;
        self.program.start().await
    }

    /// Ends the keeper as kubelet would, and waits for its end.
    pub async fn stop(&self) -> Result<()> {
        self.program.terminate().await
    }

    /// Kills the keeper (SIGKILL).
    pub async fn kill(&self) -> Result<()> {
        self.program.kill().await
    }

    /// Stops the keeper (SIGSTOP) as if its node had frozen: its connections stay open, its clock
    /// goes on.
    pub async fn pause(&self) -> Result<()> {
        self.program.signal(Signal::STOP).await
    }

    /// Lets the keeper go on after [`Keeper::pause`].
    pub async fn resume(&self) -> Result<()> {
        self.program.signal(Signal::CONT).await
    }

    /// Waits until the keeper ends by itself.
    pub async fn ended(&self, deadline: Duration) -> Result<ExitStatus> {
        self.program.process.lock().await.as_mut().context("it was not started")?.wait(deadline).await
    }

    /// Returns its identity in the election: the holder of the lease while it leads.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the base URL of its admin port.
    pub fn admin_url(&self) -> &str {
        &self.url
    }

    /// Returns its log, to which each start appends.
    pub fn log(&self) -> &Path {
        &self.program.server.log
    }
}

/// Returns a program that isn't started, built if it is missing. `admin` is the port whose `/ready`
/// says when it is ready.
pub(super) async fn our_program(
    name: &'static str,
    log: &str,
    arguments: Vec<OsString>,
    cluster: &Cluster,
    admin: u16,
) -> Result<Program> {
    let server = ServerProcess {
        name,
        program: spawn_blocking(move || program(name)).await??,
        arguments,
        log: cluster.directory().join(log),
        home: cluster.directory().to_owned(),
        health: Some(Health::http(admin, "/ready")?),
    };
    Ok(Program { server, process: Mutex::new(None) })
}
