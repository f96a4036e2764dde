//! The check of the client certificate of each call, before a route reads the body.
//!
//! `run.rs` puts [`Callers::admit`] in front of all routes. A route with a certificate authority
//! answers only clients that show a certificate of this authority. Of a refused call only the
//! headers are read: the call takes no turn, and its body is dropped as it arrives.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
};
use clap::{ArgAction, Args};
use parking_lot::Mutex;
use tenure_service::callers::ClientCa;
use tokio::time::timeout;
use tracing::warn;

use crate::{Metrics, http::reject, large::pass_over};

/// The remedy for a refused caller of `/scheduler/...`.
const SCHEDULER: &str = "Give kube-scheduler a client certificate of the CA in schedulerExtender.clientCA of the chart (--scheduler-client-ca-file): certFile and keyFile in tlsConfig of this extender in the KubeSchedulerConfiguration. See docs/kube-scheduler.md";

/// The remedy for a refused caller of another route.
const API_SERVER: &str = "Give kube-apiserver a client certificate of the CA in webhook.clientCA of the chart (--api-client-ca-file): a kubeConfigFile in the AdmissionConfiguration of --admission-control-config-file. See the chart's README.md";

/// The bounds on the rest of a refused call that is still received, in bytes and in time. A client
/// that can't send its whole body doesn't read the answer.
const PASSED_OVER_BYTES: usize = 1024 * 1024;
const PASSED_OVER_WITHIN: Duration = Duration::from_secs(1);

/// The least time between log lines about refused calls with one remedy: a scheduler logs only a
/// status code, and some clients call often.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// The callers that are answered.
#[derive(Clone, Debug, Args)]
pub struct CallerArgs {
    /// The authorities, in PEM, of schedulers' client certificates: the questions of all others on /scheduler/preempt are
    /// refused. A changed file is taken up without a restart
    #[arg(long, value_name = "FILE")]
    scheduler_client_ca_file: Option<PathBuf>,

    /// Answer schedulers without a certificate, in place of --scheduler-client-ca-file. All that reach the port may then
    /// ask which pods of a node may go, and have the guard let them go
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    scheduler_allow_anonymous: bool,

    /// The authorities, in PEM, of the API server's client certificate: the reviews of all others on /validate, /mutate,
    /// /guard and /owners are refused. Only for an API server that is configured to show one. A changed file is taken up without
    /// a restart
    #[arg(long, value_name = "FILE")]
    api_client_ca_file: Option<PathBuf>,
}

impl CallerArgs {
    /// Reads the files of the authorities. `extends` is true if schedulers are answered. Fails if a
    /// file can't be loaded. With `extends`, also fails unless exactly one of
    /// `--scheduler-client-ca-file` and `--scheduler-allow-anonymous` is set.
    pub fn load(self, extends: bool) -> anyhow::Result<Callers> {
        let Self { scheduler_client_ca_file, scheduler_allow_anonymous, api_client_ca_file } = self;
        ensure!(
            !extends || scheduler_client_ca_file.is_some() != scheduler_allow_anonymous,
            "--scheduler-extender needs one of two: --scheduler-client-ca-file FILE, the authority of kube-scheduler's client certificate, or --scheduler-allow-anonymous, to answer any caller"
        );
        let load = |flag, file: Option<PathBuf>| file.map(|file| ClientCa::load(flag, file)).transpose();
        Ok(Callers {
            schedulers: load("scheduler-client-ca-file", scheduler_client_ca_file)?,
            api_servers: load("api-client-ca-file", api_client_ca_file)?,
        })
    }
}

/// The authorities of callers.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// The authority of callers of `/scheduler/...`. None: every client may call.
    pub schedulers: Option<ClientCa>,
    /// The authority of callers of all other routes. None: every client may call. Conversions are
    /// always answered: an API server never shows a certificate for them, and an answer contains
    /// only data that the caller has sent.
    pub api_servers: Option<ClientCa>,
}

impl Callers {
    /// Returns all configured authorities. With at least one, the TLS server asks clients for a
    /// certificate.
    pub fn authorities(&self) -> Vec<ClientCa> {
        self.schedulers.iter().chain(&self.api_servers).cloned().collect()
    }

    /// Returns the router with this check in front. A refused call gets status 403 and counts in
    /// the metrics.
    pub fn admit(self, router: Router, metrics: Metrics) -> Router {
        let gate = Gate { callers: self, metrics, warned: Mutex::default() };
        router.layer(middleware::from_fn_with_state(Arc::new(gate), admit))
    }

    /// Returns the authority whose clients may call a path, and the remedy for other callers. None:
    /// every client may call the path.
    fn of(&self, path: &str) -> Option<(&ClientCa, &'static str)> {
        let (authority, remedy) = match path {
            "/convert" => return None,
            _ if path.starts_with("/scheduler") => (&self.schedulers, SCHEDULER),
            _ => (&self.api_servers, API_SERVER),
        };
        authority.as_ref().map(|authority| (authority, remedy))
    }
}

struct Gate {
    callers: Callers,
    metrics: Metrics,
    /// The time of the last log line about a refused call, by remedy.
    warned: Mutex<BTreeMap<&'static str, Instant>>,
}

/// True if a refused call is to be logged with this remedy. Counts the line as written. Refused
/// calls of one route hide no line about another remedy.
fn is_to_warn(warned: &mut BTreeMap<&'static str, Instant>, remedy: &'static str) -> bool {
    let is_due = warned.get(remedy).is_none_or(|last| last.elapsed() >= BETWEEN_WARNINGS);
    if is_due {
        warned.insert(remedy, Instant::now());
    }
    is_due
}

/// Passes an admitted call on. Answers a refused call once its body has been dropped, within the
/// bounds.
async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let Gate { callers, metrics, warned } = &*gate;
    let path = request.uri().path();
    let refused = callers.of(path).and_then(|(authority, remedy)| {
        authority.verify(request.extensions()).err().map(|stranger| (stranger, remedy))
    });
    let Some((stranger, remedy)) = refused else { return next.run(request).await };
    let message = format!("{path} doesn't answer this caller: {stranger}. {remedy}");
    if is_to_warn(&mut warned.lock(), remedy) {
        warn!(error = message, "Refused a call");
    }
    // a late end of the body changes nothing
    let _ = timeout(PASSED_OVER_WITHIN, pass_over(request.into_body(), PASSED_OVER_BYTES)).await;
    reject(metrics, (StatusCode::FORBIDDEN, message))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        callers: CallerArgs,
    }

    fn load(extends: bool, flags: &[&str]) -> anyhow::Result<Callers> {
        Flags::try_parse_from(["test"].iter().chain(flags))?.callers.load(extends)
    }

    #[test]
    fn an_extender_knows_whom_to_answer() {
        assert!(load(false, &[]).unwrap().authorities().is_empty());
        let error = load(true, &[]).unwrap_err().to_string();
        assert!(error.contains("--scheduler-client-ca-file") && error.contains("anonymous"), "{error}");
        assert!(load(true, &["--scheduler-allow-anonymous"]).unwrap().authorities().is_empty());
        load(true, &["--scheduler-allow-anonymous", "--scheduler-client-ca-file=ca.crt"]).unwrap_err();
    }

    #[test]
    fn authorities_that_cannot_be_read_are_named() {
        let error = load(true, &["--scheduler-client-ca-file=/no/ca.crt"]).unwrap_err().to_string();
        assert_eq!(error, "--scheduler-client-ca-file /no/ca.crt");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.crt");
        for (text, why) in [("", "the file has no certificate in PEM"), ("-----BEGIN CERTIFICATE-----", "")] {
            std::fs::write(&file, text).unwrap();
            let error = load(false, &[&format!("--api-client-ca-file={}", file.display())]).unwrap_err();
            assert!(error.to_string().starts_with("--api-client-ca-file "), "{error}");
            assert!(format!("{error:#}").ends_with(why), "{error:#}");
        }
    }

    #[test]
    fn refused_calls_hide_no_line_about_another_remedy() {
        let mut warned = BTreeMap::new();
        let lines = [SCHEDULER, SCHEDULER, API_SERVER, SCHEDULER, API_SERVER];
        let lines = lines.map(|remedy| is_to_warn(&mut warned, remedy));
        assert_eq!(lines, [true, false, true, false, false]);
    }

    #[test]
    fn only_conversions_are_answered_to_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let authority = tenure_certs::Authority::new("test").unwrap();
        std::fs::write(file.path(), authority.certificate_pem()).unwrap();
        let ca = ClientCa::load("flag", file.path().to_owned()).unwrap();
        let callers = Callers { schedulers: Some(ca.clone()), api_servers: Some(ca) };
        for (path, remedy) in [
            ("/scheduler/preempt", Some(SCHEDULER)),
            ("/scheduler/other", Some(SCHEDULER)),
            ("/validate", Some(API_SERVER)),
            ("/mutate", Some(API_SERVER)),
            ("/guard", Some(API_SERVER)),
            ("/owners", Some(API_SERVER)),
            ("/other", Some(API_SERVER)),
            ("/convert", None),
        ] {
            assert_eq!(callers.of(path).map(|(_, remedy)| remedy), remedy, "{path}");
        }
    }
}
