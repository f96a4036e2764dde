//! Tenure's servers, each with a proxy of its own on the way to the API server. The servers of a
//! plan have flags and a configuration of their own, and log into the cluster's directory.

use std::{
    convert::Infallible,
    ffi::OsString,
    future::pending,
    net::Ipv4Addr,
    path::PathBuf,
    process::Command,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use tenure_testbed::{Process, RELEASE_NAMESPACE, eventually, free_port, program};
use tokio::{net::TcpStream, select, sync::Mutex, task::spawn_blocking, time::sleep};

use super::{Diary, absences::Absences, fault::Blow, scene::GRACE_ON_CHANGE};
use crate::{
    DEADLINE, World,
    keeper::get,
    proxy::{ApiProxy, Scope},
};

/// The key of the label by which cluster-scoped queues belong to a plan.
pub(super) const PLAN_LABEL: &str = "tenure-tests-plan";

/// The time for which a leader that can't renew its Lease goes on. Shorter than the default, as the
/// plans are short.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(4);

/// The longest time until a process that was asked to end has ended.
const GRACE: Duration = Duration::from_secs(30);

/// The time between two looks at a listener that is about to be closed.
const LOOK: Duration = Duration::from_millis(20);

/// The flags of the election, for [`RENEW_DEADLINE`].
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=500ms",
];

/// A server, and its proxy.
pub(super) struct Server {
    pub name: String,
    pub proxy: ApiProxy,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// The base URL of its admin port.
    admin: String,
    log: PathBuf,
    /// The process. None: it wasn't started, or a blow has ended it.
    process: Mutex<Option<Process>>,
    /// The port of a webhook's listener. None: a keeper.
    port: Option<u16>,
    absences: std::sync::Mutex<Absences>,
    diary: Diary,
}

impl Server {
    /// Creates a keeper of a plan, which isn't started. The keeper sees only the plan's namespace,
    /// which has its queues of T9k and its Lease, too.
    pub async fn keeper(world: &World, name: &str, namespace: &str, diary: &Diary) -> Result<Self> {
        let scope = Scope { label: PLAN_LABEL, namespace };
        let mut server = Self::new(world, "tenure-keeper", name, namespace, Some(scope), diary).await?;
        // the usual grace would make each plan a minute longer
        let config = world.cluster.directory().join(format!("{namespace}-{name}.yaml"));
        let usual = tokio::fs::read_to_string(world.tenure.config_file()).await?;
        tokio::fs::write(&config, format!("{usual}\ngraceOnChange: {GRACE_ON_CHANGE}s\n")).await?;
        let flags = [
            "--threadiness=8".to_owned(),
            format!("--leader-elect-identity={name}"),
            format!("--leader-elect-resource-namespace={namespace}"),
            format!("--t9k-system-namespace={namespace}"),
            format!("--config={}", config.display()),
        ];
        server.arguments.extend(flags.iter().map(String::as_str).chain(ELECTION).map(OsString::from));
        Ok(server)
    }

    /// Creates a webhook beside the one that the API server asks, with all of its features on.
    pub async fn webhook(world: &World, namespace: &str, port: u16, diary: &Diary) -> Result<Self> {
        let mut server = Self::new(world, "tenure-webhook", "webhook", namespace, None, diary).await?;
        let certificate = world.cluster.directory().join("webhook");
        let flags = [
            format!("--listen=127.0.0.1:{port}"),
            format!("--tls-cert-file={}", certificate.join("tls.crt").display()),
            format!("--tls-key-file={}", certificate.join("tls.key").display()),
            "--drain-delay=1s".into(),
            format!("--config={}", world.tenure.config_file().display()),
            "--guard=true".into(),
            "--scheduler-extender=true".into(),
            "--scheduler-allow-anonymous=true".into(),
        ];
        server.arguments.extend(flags.map(OsString::from));
        server.port = Some(port);
        Ok(server)
    }

    /// Creates a server without the flags of its program. `scope` are the objects that it sees.
    /// None: all objects.
    async fn new(
        world: &World,
        program_name: &'static str,
        name: &str,
        namespace: &str,
        scope: Option<Scope<'_>>,
        diary: &Diary,
    ) -> Result<Self> {
        let proxy = ApiProxy::start(name, &world.cluster, scope, diary).await?;
        let account = world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, program_name).await?;
        let kubeconfig = proxy.kubeconfig(&world.cluster, &account)?;
        let admin = free_port()?;
        Ok(Self {
            name: name.into(),
            proxy,
            program: spawn_blocking(move || program(program_name)).await??,
            arguments: vec![
                format!("--kubeconfig={}", kubeconfig.display()).into(),
                format!("--admin-listen=127.0.0.1:{admin}").into(),
            ],
            admin: format!("http://127.0.0.1:{admin}"),
            log: world.cluster.directory().join(format!("{namespace}-{name}.log")),
            process: Mutex::default(),
            port: None,
            absences: std::sync::Mutex::default(),
            diary: diary.clone(),
        })
    }

    /// Starts the process, and doesn't wait for readiness. Fails if it runs.
    pub async fn start(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        let mut process = self.process.lock().await;
        ensure!(process.is_none(), "{} runs", self.name);
        self.proxy.begin_process();
        *process = Some(Process::spawn(&self.name, command, &self.log)?);
        self.diary.note(format!("{} starts", self.name));
        Ok(())
    }

    /// Waits until the server is ready, which ends an absence.
    pub async fn ready(&self) -> Result<()> {
        let ready = async || get(&self.admin, "/ready").await.map(Some);
        let what = format!("{} to be ready; its log is {}", self.name, self.log.display());
        eventually(&what, DEADLINE, ready).await?;
        self.absences().end(Timestamp::now());
        Ok(())
    }

    fn absences(&self) -> MutexGuard<'_, Absences> {
        self.absences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the server could not answer at some time of a span: from SIGKILL until it is ready
    /// again, from SIGSTOP until SIGCONT, and from the close of its listener after SIGTERM until it
    /// is ready again.
    pub fn was_away(&self, from: Timestamp, to: Timestamp) -> bool {
        self.absences().touch(from, to)
    }

    /// Deals a blow, and begins an absence.
    pub async fn inject(&self, blow: Blow) -> Result<()> {
        self.diary.note(format!("{}: {blow:?}", self.name));
        self.absences().begin(Timestamp::now());
        match blow {
            Blow::Stop => self.signal(Signal::STOP).await,
            Blow::Kill => self.process.lock().await.take().map_or(Ok(()), |mut process| process.kill()),
            Blow::Terminate => self.terminate().await,
        }
    }

    /// Asks the process to end, and waits until it has ended with success. The process counts as
    /// running until then.
    async fn terminate(&self) -> Result<()> {
        if let Some(process) = self.process.lock().await.as_mut() {
            process.terminate()?;
        }
        let ended = async || self.process.lock().await.as_mut().map_or(Ok(None), Process::exit_status);
        let what = format!("{} to end", self.name);
        let status = select! {
            status = eventually(&what, GRACE, ended) => status?,
            never = self.follow_listener() => match never {},
        };
        let process = self.process.lock().await.take();
        ensure!(
            status.success(),
            process.map_or_else(|| anyhow!("{status}"), |of| of.failure(&status.to_string()))
        );
        Ok(())
    }

    /// Moves the beginning of the absence on while connections are accepted. Never returns.
    async fn follow_listener(&self) -> Infallible {
        let Some(port) = self.port else { return pending().await };
        loop {
            let at = Timestamp::now();
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                return pending().await;
            }
            self.absences().begin(at);
            sleep(LOOK).await;
        }
    }

    /// Undoes a blow.
    pub async fn recover(&self, blow: Blow) -> Result<()> {
        self.diary.note(format!("{}: end of {blow:?}", self.name));
        match blow {
            Blow::Stop => {
                self.signal(Signal::CONT).await?;
                self.absences().end(Timestamp::now());
                Ok(())
            }
            Blow::Kill | Blow::Terminate => self.start().await,
        }
    }

    /// Sends a signal. Fails if the process has ended.
    async fn signal(&self, signal: Signal) -> Result<()> {
        let mut process = self.process.lock().await;
        let process = process.as_mut().with_context(|| format!("{} doesn't run", self.name))?;
        // once the process is reaped, its id may be another process's
        ensure!(process.is_running(), process.failure("has ended"));
        let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw).context("no such process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// True from the start until a blow has ended the process.
    pub async fn is_started(&self) -> bool {
        self.process.lock().await.is_some()
    }

    /// Fails if the process has ended by itself.
    pub async fn check(&self) -> Result<()> {
        let mut process = self.process.lock().await;
        match process.as_mut() {
            Some(process) => match process.exit_status()? {
                Some(status) => Err(process.failure(&format!("ended by itself with {status}"))),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}
