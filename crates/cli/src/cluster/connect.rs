//! The flags for the cluster, the user and the namespace, and the connection that they describe.
//!
//! Each command that asks a cluster takes [`ConnectArgs`]. The kubeconfig is found as kubectl finds
//! it; in a pod, its service account counts.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use clap::Args;
use http::Uri;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tenure_policy::naming::is_segment;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::{
    cluster::{ClusterReader, unreachable},
    floors::duration,
};

/// The least verbosity of kubectl that shows requests.
const REQUESTS: u8 = 6;

/// The namespace of objects in files that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The usual namespace of queues of T9k.
pub const T9K_SYSTEM_NAMESPACE: &str = "t9k-system";

/// The flag of commands that read queues of T9k.
#[derive(Clone, Debug, Args)]
pub struct T9kArgs {
    /// The namespace of T9k's queues (scheduler.tensorstack.dev): the value of the keeper's flag of this name
    #[arg(long = "t9k-system-namespace", value_name = "NAMESPACE", default_value = T9K_SYSTEM_NAMESPACE)]
    pub system_namespace: String,
}

/// The flags of kubectl that matter here.
#[derive(Clone, Debug, Args)]
pub struct ConnectArgs {
    /// The namespace; without it, that of the context
    #[arg(short, long, value_name = "NAMESPACE", global = true)]
    namespace: Option<String>,

    /// The kubeconfig file; without it, as kubectl: $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "CONTEXT", global = true)]
    context: Option<String>,

    /// The cluster of the kubeconfig; without it, that of the context
    #[arg(long, value_name = "CLUSTER", global = true)]
    cluster: Option<String>,

    /// The user of the kubeconfig; without it, that of the context
    #[arg(long, value_name = "USER", global = true)]
    user: Option<String>,

    /// The address of the API server; without it, that of the context
    #[arg(short, long, value_name = "URL", global = true, value_parser = url)]
    server: Option<Uri>,

    /// A file with the certificates of the authorities that may sign the API server's certificate
    #[arg(long, value_name = "FILE", global = true)]
    certificate_authority: Option<PathBuf>,

    /// Don't check the API server's certificate: others on the way to it can read and change everything
    #[arg(long, global = true, conflicts_with = "certificate_authority")]
    insecure_skip_tls_verify: bool,

    /// A bearer token in place of the user's credentials. Other users of the machine see flags: `$TENURE_TOKEN` hides it
    #[arg(long, value_name = "TOKEN", global = true, env = TOKEN_VARIABLE, hide_env = true)]
    token: Option<Secret>,

    /// Act as this user, as far as you may: system:serviceaccount:NAMESPACE:NAME is a service account
    #[arg(long = "as", value_name = "USER", global = true)]
    as_user: Option<String>,

    /// With --as: act as a member of this group. Can be repeated
    #[arg(long = "as-group", value_name = "GROUP", global = true, requires = "as_user")]
    as_groups: Vec<String>,

    /// The longest wait for an answer to a request, such as 10s; a number alone is seconds, and 0 is no limit
    #[arg(long, value_name = "DURATION", global = true, value_parser = timeout, default_value = "1m")]
    request_timeout: Duration,

    /// From 6 on, log each request to the API server on standard error
    #[arg(
        short = 'v',
        long = "v",
        value_name = "LEVEL",
        global = true,
        default_value_t,
        hide_default_value = true
    )]
    verbosity: u8,
}

/// The variable of the environment that has a bearer token.
pub const TOKEN_VARIABLE: &str = "TENURE_TOKEN";

/// A text that is never logged.
#[derive(Clone)]
struct Secret(String);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Reads the URL of a server: http or https, with a host.
pub fn url(text: &str) -> Result<Uri, String> {
    let is_one = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    let url = text.parse().ok().filter(is_one);
    url.ok_or_else(|| "must be a URL such as https://10.0.0.1:6443".into())
}

/// Reads a timeout: a duration, or a number of seconds. 0 is no limit.
fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    let written = || duration(text).ok().and_then(|written| written.to_signed().try_into().ok());
    let rule = "must be a duration such as 10s or 1m, a number of seconds, or 0 for no limit";
    seconds.or_else(written).ok_or_else(|| rule.into())
}

impl ConnectArgs {
    /// Returns the flags with which another process of the plugin reaches the same cluster as the
    /// same user, even after the kubeconfig's current context has changed. The namespace and the
    /// [token](Self::token) aren't among them.
    pub fn flags(&self) -> Vec<String> {
        let Self { namespace: _, kubeconfig, context, cluster, user, server, .. } = self;
        let Self { certificate_authority, insecure_skip_tls_verify, token: _, .. } = self;
        let Self { as_user, as_groups, request_timeout, verbosity: _, .. } = self;
        let current = || read_kubeconfig(kubeconfig.as_deref()).ok()?.current_context;
        let usual = Duration::from_mins(1);
        let values = [
            ("--kubeconfig", kubeconfig.as_ref().map(|path| path.display().to_string())),
            ("--context", context.clone().or_else(current).filter(|context| !context.is_empty())),
            ("--cluster", cluster.clone()),
            ("--user", user.clone()),
            ("--server", server.as_ref().map(ToString::to_string)),
            (
                "--certificate-authority",
                certificate_authority.as_ref().map(|path| path.display().to_string()),
            ),
            ("--as", as_user.clone()),
            (
                "--request-timeout",
                (*request_timeout != usual).then(|| format!("{}ms", request_timeout.as_millis())),
            ),
        ];
        let values = values.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        let groups = as_groups.iter().map(|group| ("--as-group", group.clone()));
        let values = values.chain(groups).flat_map(|(flag, value)| [flag.to_owned(), value]);
        values.chain(insecure_skip_tls_verify.then(|| "--insecure-skip-tls-verify".to_owned())).collect()
    }

    /// The bearer token, which another process gets by the variable [`TOKEN_VARIABLE`]. An empty one
    /// is none: a secret of a pipeline that isn't set is empty.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|Secret(token)| token.as_str()).filter(|token| !token.is_empty())
    }

    /// Logs the requests to the API server if the verbosity says so. Call it once.
    pub fn log_requests(&self) {
        if self.verbosity < REQUESTS {
            return;
        }
        let shown = Targets::new().with_target("kube_client", LevelFilter::DEBUG);
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
        tracing_subscriber::registry().with(lines).with(shown).init();
    }

    /// Returns the namespace of `-n`, or that of the context. `offline`: no kubeconfig is read, and
    /// the default is `default`.
    pub async fn namespace(&self, offline: bool) -> Result<String> {
        match self.named_namespace() {
            Some(namespace) => Ok(namespace.to_owned()),
            None if offline => Ok(DEFAULT_NAMESPACE.into()),
            None => Ok(self.config().await?.default_namespace),
        }
    }

    /// Returns the namespace of `-n`. None: the flag is absent or empty.
    pub fn named_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }

    /// Connects to the API server and reads the kinds that it serves. An error names the server and
    /// what to check.
    pub async fn connect(self) -> Result<ClusterReader> {
        let mut config = self.config().await?;
        // kube's own policy can make a write land minutes after it was decided
        config.default_retry = false;
        // a list on a connection that died unnoticed would never end
        config.read_timeout = Some(self.request_timeout).filter(|timeout| !timeout.is_zero());
        if let Some(timeout) = config.read_timeout {
            config.connect_timeout = Some(config.connect_timeout.map_or(timeout, |usual| usual.min(timeout)));
        }
        // otherwise the time that a connection was idle would count
        config.reset_reader_on_write = true;
        let namespace = self.named_namespace().unwrap_or(&config.default_namespace).to_owned();
        ensure!(is_segment(&namespace), "{namespace:?} can't be a namespace");
        let server = config.cluster_url.clone();
        let client = Client::try_from(config).map_err(|error| unreachable(error, &server))?;
        ClusterReader::discover(client, namespace).await.map_err(|error| unreachable(error, &server))
    }

    /// Returns the configuration of the kubeconfig, changed by the flags.
    async fn config(&self) -> Result<Config> {
        let mut config = self.kubeconfig().await?;
        if let Some(server) = &self.server {
            config.cluster_url = server.clone();
        }
        if let Some(path) = &self.certificate_authority {
            let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
            let certificates = certificates.ok().filter(|all| !all.is_empty());
            let certificates =
                certificates.with_context(|| format!("{} has no certificates in PEM", path.display()))?;
            config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
            config.accept_invalid_certs = false;
        }
        if self.insecure_skip_tls_verify {
            (config.accept_invalid_certs, config.root_cert) = (true, None);
        }
        if let Some(token) = self.token() {
            config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        }
        if let Some(user) = &self.as_user {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(self.as_groups.clone());
        }
        Ok(config)
    }

    /// Reads the kubeconfig. Without one, and without a flag that asks for one, the configuration
    /// of a pod counts, or the address of `--server` alone.
    async fn kubeconfig(&self) -> Result<Config> {
        let Self { context, cluster, user, .. } = self.clone();
        let options = KubeConfigOptions { context, cluster, user };
        let config = match read_kubeconfig(self.kubeconfig.as_deref()) {
            // kube would go on as no user
            Ok(file) if let Some(user) = self.user.as_ref().filter(|user| !has_user(&file, user)) => {
                bail!("the kubeconfig has no user {user:?}: kubectl config get-users shows which it has")
            }
            Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
            Err(error) => Err(error),
        };
        let is_asked_for = [&self.context, &self.cluster, &self.user].iter().any(|of| of.is_some())
            || self.kubeconfig.is_some();
        match config {
            // there is no kubeconfig in a pod
            Err(error) if !is_asked_for && is_absent(&error) => {
                let remedy = "no cluster: set KUBECONFIG, or give --kubeconfig or --server";
                let config = Config::incluster().ok().or_else(|| self.server.clone().map(Config::new));
                config.ok_or_else(|| unreadable(error).context(remedy))
            }
            config => config.map_err(unreadable),
        }
    }
}

fn has_user(file: &Kubeconfig, user: &str) -> bool {
    file.auth_infos.iter().any(|of| of.name == user)
}

/// Reads this file; or, as kubectl does, those files in the list of `$KUBECONFIG` that exist,
/// merged; or `~/.kube/config`.
pub fn read_kubeconfig(file: Option<&Path>) -> Result<Kubeconfig, KubeconfigError> {
    if let Some(file) = file {
        return Kubeconfig::read_from(file);
    }
    let listed = env::var_os("KUBECONFIG").unwrap_or_default();
    let mut listed = env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()).peekable();
    if listed.peek().is_none() {
        return Kubeconfig::read();
    }
    let (mut merged, mut missing) = (None, None);
    for path in listed {
        match Kubeconfig::read_from(path) {
            Ok(next) => merged = Some(merged.unwrap_or_else(Kubeconfig::default).merge(next)?),
            Err(error) if is_absent(&error) => missing = missing.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    merged.ok_or_else(|| missing.unwrap_or(KubeconfigError::FindPath))
}

/// True if there is no kubeconfig, or no current context in it.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet => true,
        _ => false,
    }
}

/// Returns an error that says what is wrong with the kubeconfig.
fn unreadable(error: KubeconfigError) -> Error {
    match error {
        KubeconfigError::ReadConfig(error, path) => {
            anyhow!("cannot read the kubeconfig {}: {error}", path.display())
        }
        KubeconfigError::FindPath => {
            anyhow!("there is no home directory to look for a kubeconfig in: give --kubeconfig, or set HOME")
        }
        KubeconfigError::CurrentContextNotSet => {
            anyhow!(
                "the kubeconfig has no current context: give --context, or set one with kubectl config use-context"
            )
        }
        KubeconfigError::LoadContext(name) => {
            anyhow!("the kubeconfig has no context {name:?}: kubectl config get-contexts shows which it has")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            anyhow!(
                "the kubeconfig has no cluster {name:?}, which --cluster or its context names: kubectl config get-clusters shows which it has"
            )
        }
        // for a file that isn't YAML, the message also has the lines
        other => {
            let text = other.to_string();
            anyhow!("cannot use the kubeconfig: {}", text.lines().next().unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_written_as_for_kubectl() {
        let seconds = |text| timeout(text).unwrap().as_secs();
        assert_eq!(["5", "90s", "2m", "0", "0s"].map(seconds), [5, 90, 120, 0, 0]);
        for bad in ["", "-1", "soon", "-5s", "1.5"] {
            assert!(timeout(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_is_a_url() {
        for good in ["https://10.0.0.1:6443", "http://localhost:8080", "https://[::1]:6443/prefix"] {
            assert!(url(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost", "localhost:8080", "ftp://a", "https://", "/path"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
