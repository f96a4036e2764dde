//! A proxy that terminates TLS on the way to the API server, and breaks the API by rules.
//!
//! A request is noted when it arrives, which is when its client sent it; the API server's answer is
//! noted when it comes.

use std::{
    fmt::{self, Display},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use jiff::{
    SignedDuration, Timestamp,
    fmt::rfc2822::{DateTimeParser, DateTimePrinter},
};
use kube::{Client, Config, client::Body};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::json;
use tenure_testbed::Cluster;
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::{
    Active, Call, FaultAction, Gate, Network, Rule,
    events::{Answer, StreamFaults, carry},
};
use crate::faults::Diary;

/// The error by which a connection is cut.
#[derive(Debug)]
pub struct Severed;

impl Display for Severed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the proxy cuts the connection")
    }
}

impl std::error::Error for Severed {}

/// The objects that the clients of a proxy see: those of one namespace, and of cluster-scoped
/// queues those with a label of this value. So several keepers can work in one cluster, each in its
/// own part.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'s> {
    /// The key of the label.
    pub label: &'static str,
    /// The namespace, and the value of the label.
    pub namespace: &'s str,
}

/// A request that was meant to change something.
#[derive(Clone, Debug)]
pub struct Write {
    /// The name of the client.
    pub by: String,
    /// The number of its process: a client that is started again has the same name.
    pub process: u32,
    /// The time at which the proxy got the request, which is when it was sent.
    pub sent: Timestamp,
    /// The request.
    pub call: Call,
    /// The body of the request, as text.
    pub body: String,
    /// The status of the API server's answer. None: there is no answer yet, or the API server
    /// didn't get the request.
    pub status: Option<StatusCode>,
}

impl Write {
    /// True if the API server has done what was asked.
    pub fn is_done(&self) -> bool {
        self.status.is_some_and(|status| status.is_success())
    }
}

/// A proxy for one client. Its drop ends the proxy and its connections.
pub struct ApiProxy {
    url: String,
    shared: Arc<Shared>,
    _carrier: JoinSet<()>,
}

/// The state of a proxy, for all of its connections.
struct Shared {
    name: String,
    diary: Diary,
    /// A client without credentials of its own: requests have those of their sender.
    upstream: Client,
    /// The label's key and the namespace. None: the client sees all objects.
    scope: Option<(&'static str, String)>,
    network: watch::Sender<Network>,
    /// Counts the cuts of all connections.
    severed: watch::Sender<u64>,
    /// The rules in force, in the order in which they were added.
    rules: Mutex<Vec<Arc<Active>>>,
    /// Counts the changes of rules.
    rule_changes: watch::Sender<u64>,
    /// The seconds by which the clock of the API server is ahead, for connections of even and of
    /// odd numbers: as if two API servers were behind one address.
    clocks: Mutex<[i64; 2]>,
    /// The writes so far, in the order of their arrival.
    writes: Mutex<Vec<Write>>,
    /// Counts the processes of the client.
    processes: AtomicU32,
}

impl ApiProxy {
    /// Starts a proxy for a client of this name. `scope` None: the client sees all objects.
    pub async fn start(
        name: &str,
        cluster: &Cluster,
        scope: Option<Scope<'_>>,
        diary: &Diary,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            name: name.into(),
            diary: diary.clone(),
            upstream: upstream(cluster)?,
            scope: scope.map(|scope| (scope.label, scope.namespace.to_owned())),
            network: watch::Sender::default(),
            severed: watch::Sender::default(),
            rules: Mutex::default(),
            rule_changes: watch::Sender::default(),
            clocks: Mutex::default(),
            writes: Mutex::default(),
            processes: AtomicU32::default(),
        });
        let mut carrier = JoinSet::new();
        carrier.spawn(accept(listener, acceptor(cluster)?, Arc::clone(&shared)));
        Ok(Self { url, shared, _carrier: carrier })
    }

    /// Writes a copy of a kubeconfig that takes this way, and returns its path.
    pub fn kubeconfig(&self, cluster: &Cluster, original: &Path) -> Result<PathBuf> {
        let content = fs::read_to_string(original)?;
        let port = self.url.rsplit(':').next().unwrap_or_default();
        let copy = original.with_extension(format!("by-{port}.kubeconfig"));
        fs::write(&copy, content.replace(cluster.url(), &self.url))?;
        Ok(copy)
    }

    /// Puts a rule in force, and returns a handle to lift it. The first rule that covers a request
    /// counts.
    pub fn add(&self, rule: Rule) -> Arc<Active> {
        let active = Arc::new(Active::new(rule));
        lock(&self.shared.rules).push(Arc::clone(&active));
        self.shared.rule_changes.send_modify(|changes| *changes += 1);
        active
    }

    /// Lifts a rule. Requests that wait for this stop waiting.
    pub fn lift(&self, active: &Arc<Active>) {
        lock(&self.shared.rules).retain(|rule| !Arc::ptr_eq(rule, active));
        active.lift();
        self.shared.rule_changes.send_modify(|changes| *changes += 1);
    }

    /// Stops all traffic without a sign. New connections are accepted, and get no answer.
    pub fn cut(&self) {
        self.shared.network.send_modify(|network| network.is_cut = true);
    }

    /// Lets all traffic pass again, beginning with the data that was sent in the meantime.
    pub fn heal(&self) {
        self.shared.network.send_modify(|network| network.is_cut = false);
    }

    /// Stops all traffic on the open connections without a sign. New connections work.
    pub fn strand(&self) {
        self.shared.network.send_modify(|network| network.generation += 1);
    }

    /// Closes all open connections. New connections work.
    pub fn sever(&self) {
        self.shared.severed.send_modify(|cuts| *cuts += 1);
    }

    /// Sets the seconds by which the API server's clock is ahead, on connections of even and of odd
    /// numbers.
    pub fn set_clocks(&self, ahead: [i64; 2]) {
        *lock(&self.shared.clocks) = ahead;
    }

    /// Counts another process of the client, to which the writes from now on belong.
    pub fn begin_process(&self) {
        self.shared.processes.fetch_add(1, Relaxed);
    }

    /// Returns the writes so far, in the order in which they were sent.
    pub fn writes(&self) -> Vec<Write> {
        lock(&self.shared.writes).clone()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        // requests that wait for the end of a rule stop waiting
        for rule in lock(&self.shared.rules).drain(..) {
            rule.lift();
        }
    }
}

/// Locks a mutex. A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a client of the API server without credentials.
fn upstream(cluster: &Cluster) -> Result<Client> {
    let mut config = Config::new(cluster.url().parse()?);
    let authority = CertificateDer::from_pem_slice(cluster.authority().certificate_pem().as_bytes())?;
    config.root_cert = Some(vec![authority.to_vec()]);
    config.default_retry = false;
    Client::try_from(config).context("cannot make a client")
}

/// Returns the proxy's side of TLS, with a certificate of the cluster's authority.
fn acceptor(cluster: &Cluster) -> Result<TlsAcceptor> {
    let pair = cluster.authority().server(&["127.0.0.1".to_owned()])?;
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut number = 0;
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(serve(client, acceptor.clone(), Arc::clone(&shared), number));
        number += 1;
        while connections.try_join_next().is_some() {}
    }
}

/// Serves a connection until its client ends it or it is severed.
async fn serve(client: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>, number: u64) {
    let mut severed = shared.severed.subscribe();
    let generation = shared.network.borrow().generation;
    let mut gate = Gate { network: shared.network.subscribe(), generation };
    let answer = service_fn({
        let gate = gate.clone();
        move |request| Connection { shared: Arc::clone(&shared), gate: gate.clone(), number }.answer(request)
    });
    let work = async {
        gate.open().await;
        let stream = acceptor.accept(client).await?;
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
        connection.await.map_err(io::Error::other)
    };
    // an error is the end of the connection, which both ends notice by themselves
    select! {
        _ = work => {}
        _ = severed.changed() => {}
    }
}

/// A request of one connection.
struct Connection {
    shared: Arc<Shared>,
    gate: Gate,
    number: u64,
}

impl Connection {
    /// Notes a request, forwards it by the rules, and sets the time of the answer.
    async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Answer>, Severed> {
        let (mut parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Severed)?.to_bytes();
        let call = Call::of(&parts.method, &parts.uri);
        if let Some((label, namespace)) = &self.shared.scope {
            parts.uri = call.restrict(&parts.uri, label, namespace);
        }
        // the upstream client sets its own
        parts.headers.remove(header::HOST);
        let number = self.shared.note(&call, &body);
        let forwarded = Forwarded { shared: Arc::clone(&self.shared), call, parts, body, number };
        let active = self.shared.active(&forwarded.call);
        if let Some(active) = &active {
            let shared = &self.shared;
            shared.diary.note(format!("{}: {}: {:?}", shared.name, forwarded.call, active.action()));
        }
        self.gate.open().await;
        let mut answer = self.obey(active, forwarded).await?;
        self.gate.open().await;
        self.skew(&mut answer);
        Ok(answer)
    }

    /// Forwards a request as a rule says. None: no rule covers it.
    async fn obey(
        &self,
        active: Option<Arc<Active>>,
        forwarded: Forwarded,
    ) -> Result<Response<Answer>, Severed> {
        let Some(active) = active else { return forwarded.send(&self.gate).await };
        match active.action() {
            FaultAction::Refuse(code, retry_after) => Ok(refusal(*code, *retry_after)),
            FaultAction::Sever => Err(Severed),
            FaultAction::Freeze => {
                active.lifted().await;
                Err(Severed)
            }
            FaultAction::LoseAnswer => {
                forwarded.send(&self.gate).await?;
                Err(Severed)
            }
            FaultAction::HangAfterwards => {
                let _answer = forwarded.send(&self.gate).await?;
                active.lifted().await;
                Err(Severed)
            }
            FaultAction::RefuseAfterwards(code) => {
                forwarded.send(&self.gate).await?;
                Ok(refusal(*code, None))
            }
            FaultAction::Late(delay) => forwarded.send_after(*delay, &self.gate).await,
            FaultAction::Slow(delay) => {
                let answer = forwarded.send(&self.gate).await;
                sleep(*delay).await;
                answer
            }
            FaultAction::HaltBefore(halted) => {
                halted.notify_one();
                active.lifted().await;
                forwarded.send(&self.gate).await
            }
            FaultAction::Detain(halted) => {
                halted.notify_one();
                let (rule, gate) = (Arc::clone(&active), self.gate.clone());
                let sending = async move {
                    rule.lifted().await;
                    forwarded.send_now(gate).await
                };
                tokio::spawn(sending).await.map_err(|_| Severed)?
            }
            FaultAction::HaltAfter(halted) => {
                let answer = forwarded.send(&self.gate).await;
                halted.notify_one();
                active.lifted().await;
                answer
            }
            // actions on streams are done in `events`
            _ => forwarded.send(&self.gate).await,
        }
    }

    /// Has an answer show the time of the API server that the connection is to.
    fn skew(&self, answer: &mut Response<Answer>) {
        let ahead = lock(&self.shared.clocks)[usize::try_from(self.number % 2).unwrap_or_default()];
        let date = answer.headers().get(header::DATE);
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date.as_bytes()).ok());
        let date = date.unwrap_or_else(Timestamp::now) + SignedDuration::from_secs(ahead);
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date).expect("a year of four digits");
        let date = HeaderValue::from_str(&date).expect("a date is plain text");
        answer.headers_mut().insert(header::DATE, date);
    }
}

impl Shared {
    /// Returns the first rule that takes a request. Rules before it have counted the request, too.
    fn active(&self, call: &Call) -> Option<Arc<Active>> {
        lock(&self.rules).iter().find(|active| active.takes(call)).cloned()
    }

    /// Notes a write, and returns its number. None: the request changes nothing.
    fn note(&self, call: &Call, body: &Bytes) -> Option<usize> {
        if !call.is_write() {
            return None;
        }
        let mut writes = lock(&self.writes);
        writes.push(Write {
            by: self.name.clone(),
            process: self.processes.load(Relaxed),
            sent: Timestamp::now(),
            call: call.clone(),
            body: String::from_utf8_lossy(body).into_owned(),
            status: None,
        });
        Some(writes.len() - 1)
    }

    /// Notes the answer to a write.
    fn answered(&self, number: Option<usize>, status: StatusCode) {
        if let Some(write) = number.and_then(|number| {
            lock(&self.writes).get_mut(number).map(|w| {
                w.status = Some(status);
                w.call.to_string()
            })
        }) && !write.contains("leases")
        {
            self.diary.note(format!("{}: {write}: answered with {status}", self.name));
        }
    }
}

/// A request that is to be forwarded.
struct Forwarded {
    shared: Arc<Shared>,
    call: Call,
    parts: Parts,
    body: Bytes,
    /// The number of the write. None: the request is no write.
    number: Option<usize>,
}

impl Forwarded {
    async fn send(self, gate: &Gate) -> Result<Response<Answer>, Severed> {
        self.send_after(Duration::ZERO, gate).await
    }

    /// Forwards a request after a delay. A write reaches the API server even if the client gives up
    /// meanwhile.
    async fn send_after(self, delay: Duration, gate: &Gate) -> Result<Response<Answer>, Severed> {
        let (is_write, gate) = (self.call.is_write(), gate.clone());
        let sending = async move {
            sleep(delay).await;
            self.send_now(gate).await
        };
        if is_write { tokio::spawn(sending).await.map_err(|_| Severed)? } else { sending.await }
    }

    /// Forwards a request, and returns the answer: the events of a watch one by one, other answers
    /// as a whole.
    async fn send_now(self, gate: Gate) -> Result<Response<Answer>, Severed> {
        let Self { shared, call, parts, body, number } = self;
        let answer = shared.upstream.send(Request::from_parts(parts, Body::from(body))).await;
        let (parts, body) = answer.map_err(|_| Severed)?.into_parts();
        shared.answered(number, parts.status);
        if call.verb == "watch" && parts.status.is_success() {
            let changes = shared.rule_changes.subscribe();
            let present = present(shared);
            let body = carry(call, body.into_data_stream(), StreamFaults { present, changes, gate });
            return Ok(Response::from_parts(parts, body));
        }
        let body = body.collect_bytes().await.map_err(|_| Severed)?;
        Ok(Response::from_parts(parts, whole(body)))
    }
}

/// Returns a function for the present action on the stream of a watch. Each rule counts a stream
/// once. An action on a stream stays in force until its rule is lifted.
fn present(shared: Arc<Shared>) -> impl Fn(&Call) -> Option<FaultAction> + Send + Sync + 'static {
    let decided: Mutex<Vec<(Arc<Active>, bool)>> = Mutex::default();
    move |call| {
        let mut decided = lock(&decided);
        let rules = lock(&shared.rules).clone();
        rules.into_iter().find_map(|active| {
            if !active.takes_stream(call) {
                return None;
            }
            let known = decided.iter().find(|(rule, _)| Arc::ptr_eq(rule, &active)).map(|(_, takes)| *takes);
            let takes = known.unwrap_or_else(|| {
                let takes = active.counts();
                if takes {
                    shared.diary.note(format!("{}: {call}: {:?}", shared.name, active.action()));
                }
                decided.push((Arc::clone(&active), takes));
                takes
            });
            takes.then(|| active.action().clone())
        })
    }
}

/// Returns the body of an answer that has all its bytes.
fn whole(body: Bytes) -> Answer {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Returns an error as the API server answers it.
fn refusal(code: StatusCode, retry_after: Option<u32>) -> Response<Answer> {
    let reason = match code {
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::GONE => "Expired",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a fault of the test", "reason": reason, "code": code.as_u16(),
    });
    let mut answer = Response::new(whole(status.to_string().into()));
    *answer.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}
