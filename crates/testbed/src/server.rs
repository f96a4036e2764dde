//! A server, of the control plane or of Tenure: its start, and the check that it is ready.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tenure_certs::Authority;

use crate::{Process, eventually};

/// The longest time until a server is ready.
const DEADLINE: Duration = Duration::from_mins(1);

/// All input to start a server, and to start it again.
pub(crate) struct ServerProcess {
    /// The name, for messages.
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The file that its output is appended to, at each start.
    pub(crate) log: PathBuf,
    /// The HOME directory of the server: some servers read settings there.
    pub(crate) home: PathBuf,
    /// The health endpoint. None: the server counts as ready once it is started.
    pub(crate) health: Option<Health>,
}

/// A path that answers 200 when its server is ready.
pub(crate) struct Health {
    config: Config,
    path: &'static str,
}

impl Health {
    /// Returns a path of a port on loopback, in the clear.
    pub(crate) fn http(port: u16, path: &'static str) -> Result<Self> {
        Ok(Self { config: loopback(&format!("http://127.0.0.1:{port}"))?, path })
    }

    /// Returns a path of a port on loopback, with a certificate of an authority.
    pub(crate) fn https(port: u16, path: &'static str, authority: &Authority) -> Result<Self> {
        let mut health = Self::http(port, path)?;
        let certificate = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes())?;
        health.config.cluster_url = format!("https://127.0.0.1:{port}").parse()?;
        health.config.root_cert = Some(vec![certificate.to_vec()]);
        Ok(health)
    }

    /// Asks once.
    async fn probe(&self) -> Result<()> {
        let request = http::Request::get(self.path).body(Vec::new())?;
        Client::try_from(self.config.clone())?.request_text(request).await?;
        Ok(())
    }
}

impl ServerProcess {
    /// Starts the server, and waits until it is ready.
    pub(crate) async fn start(&self) -> Result<Process> {
        let mut command = Command::new(&self.program);
        // the heaps of servers are small, and memory is cheaper than processor time on a machine
        // with many of them
        command.args(&self.arguments).env("HOME", &self.home).env("GOGC", "300");
        let mut process = Process::spawn(self.name, command, &self.log)?;
        if let Some(health) = &self.health {
            ready(&mut process, async || health.probe().await.map(Some)).await?;
        }
        Ok(process)
    }
}

/// Returns the configuration of a client for a server on loopback, by its base URL. Each request is
/// sent once.
///
/// No authority is trusted: without a list of authorities, each client would read and parse all of
/// the system's, hundreds of files, even for requests in the clear.
pub fn loopback(url: &str) -> Result<Config> {
    let mut config = Config::new(url.parse()?);
    config.default_retry = false;
    config.root_cert = Some(Vec::new());
    Ok(config)
}

/// Returns a flag of a server: `--name=value`.
pub(crate) fn flag(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

/// Waits until `poll`, about something that `process` does, returns a value. Fails at once when the
/// process ends, and shows its log.
pub(crate) async fn ready<T>(
    process: &mut Process,
    mut poll: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let waited = eventually("it", DEADLINE, async || match process.exit_status()? {
        Some(status) => Ok(Some(Err(status))),
        None => Ok(poll().await?.map(Ok)),
    })
    .await;
    match waited {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(status)) => Err(process.failure(&format!("ended with {status} before it was ready"))),
        Err(error) => Err(process.failure(&format!("is not ready: {error:#}"))),
    }
}
