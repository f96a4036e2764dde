//! A proxy that terminates TLS on the way to the API server, and breaks the API by rules.

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
    Active, Call, Deed, Gate, Network, Rule,
    events::{Answer, Deeds, carry},
};
use crate::faults::Diary;

/// The connection is cut.
#[derive(Debug)]
pub struct Severed;

impl Display for Severed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the proxy cuts the connection")
    }
}

impl std::error::Error for Severed {}

/// The objects that the clients of a proxy see: those of one namespace, and of cluster-scoped queues those with a label
/// of that value. So several keepers can work in one cluster, each in its own part of it.
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
    /// The client.
    pub by: String,
    /// The number of its process: a client that is started again has the same name.
    pub process: u32,
    /// The time at which the proxy got it, which is when it was sent.
    pub sent: Timestamp,
    /// The request.
    pub call: Call,
    /// Its body, as text.
    pub body: String,
    /// The API server's answer; none while it has none, or if it didn't get the request.
    pub status: Option<StatusCode>,
}

impl Write {
    /// True if the API server has done it.
    pub fn is_done(&self) -> bool {
        self.status.is_some_and(|status| status.is_success())
    }
}

/// A proxy for one client. It ends when this is dropped, and its connections with it.
pub struct ApiProxy {
    url: String,
    shared: Arc<Shared>,
    _carrier: JoinSet<()>,
}

struct Shared {
    name: String,
    diary: Diary,
    upstream: Client,
    /// The label's key and the namespace.
    scope: Option<(&'static str, String)>,
    network: watch::Sender<Network>,
    /// Counts the cuts of all connections.
    severed: watch::Sender<u64>,
    rules: Mutex<Vec<Arc<Active>>>,
    rule_changes: watch::Sender<u64>,
    /// The seconds by which the clock of the API server is ahead, for connections of even and of odd numbers: as if two
    /// API servers were behind one address.
    clocks: Mutex<[i64; 2]>,
    writes: Mutex<Vec<Write>>,
    /// Counts the processes of the client.
    processes: AtomicU32,
}

impl ApiProxy {
    /// Starts a proxy for a client of this name.
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

    /// A copy of a kubeconfig that takes this way.
    pub fn kubeconfig(&self, cluster: &Cluster, original: &Path) -> Result<PathBuf> {
        let content = fs::read_to_string(original)?;
        let port = self.url.rsplit(':').next().unwrap_or_default();
        let copy = original.with_extension(format!("by-{port}.kubeconfig"));
        fs::write(&copy, content.replace(cluster.url(), &self.url))?;
        Ok(copy)
    }

    /// Puts a rule in force. Of several that cover a request, the first counts.
    pub fn add(&self, rule: Rule) -> Arc<Active> {
        let active = Arc::new(Active::new(rule));
        lock(&self.shared.rules).push(Arc::clone(&active));
        self.shared.rule_changes.send_modify(|changes| *changes += 1);
        active
    }

    /// Lifts a rule.
    pub fn lift(&self, active: &Arc<Active>) {
        lock(&self.shared.rules).retain(|rule| !Arc::ptr_eq(rule, active));
        active.lift();
        self.shared.rule_changes.send_modify(|changes| *changes += 1);
    }

    /// Stops all traffic without a sign.
    pub fn cut(&self) {
        self.shared.network.send_modify(|network| network.is_cut = true);
    }

    /// Lets all traffic pass again, beginning with what was sent in the meantime.
    pub fn heal(&self) {
        self.shared.network.send_modify(|network| network.is_cut = false);
    }

    /// Stops all traffic on the open connections without a sign. New connections work.
    pub fn strand(&self) {
        self.shared.network.send_modify(|network| network.generation += 1);
    }

    /// Closes all open connections.
    pub fn sever(&self) {
        self.shared.severed.send_modify(|cuts| *cuts += 1);
    }

    /// Sets by how many seconds the API server's clock is ahead, on connections of even and of odd numbers.
    pub fn set_clocks(&self, ahead: [i64; 2]) {
        *lock(&self.shared.clocks) = ahead;
    }

    /// Takes the writes from now on for those of another process.
    pub fn begin_process(&self) {
        self.shared.processes.fetch_add(1, Relaxed);
    }

    /// The writes so far, in the order in which they were sent.
    pub fn writes(&self) -> Vec<Write> {
        lock(&self.shared.writes).clone()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        // what waits for the end of a rule
        for rule in lock(&self.shared.rules).drain(..) {
            rule.lift();
        }
    }
}

/// A panic elsewhere leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn upstream(cluster: &Cluster) -> Result<Client> {
    let mut config = Config::new(cluster.url().parse()?);
    let authority = CertificateDer::from_pem_slice(cluster.authority().certificate_pem().as_bytes())?;
    config.root_cert = Some(vec![authority.to_vec()]);
    config.default_retry = false;
    Client::try_from(config).context("cannot make a client")
}

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
            shared.diary.note(format!("{}: {}: {:?}", shared.name, forwarded.call, active.deed()));
        }
        self.gate.open().await;
        let mut answer = self.obey(active, forwarded).await?;
        self.gate.open().await;
        self.skew(&mut answer);
        Ok(answer)
    }

    /// Forwards a request as a rule says.
    async fn obey(
        &self,
        active: Option<Arc<Active>>,
        forwarded: Forwarded,
    ) -> Result<Response<Answer>, Severed> {
        let Some(active) = active else { return forwarded.send(&self.gate).await };
        match active.deed() {
            Deed::Refuse(code, retry_after) => Ok(refusal(*code, *retry_after)),
            Deed::Sever => Err(Severed),
            Deed::Freeze => {
                active.lifted().await;
                Err(Severed)
            }
            Deed::LoseAnswer => {
                forwarded.send(&self.gate).await?;
                Err(Severed)
            }
            Deed::HangAfterwards => {
                let _answer = forwarded.send(&self.gate).await?;
                active.lifted().await;
                Err(Severed)
            }
            Deed::RefuseAfterwards(code) => {
                forwarded.send(&self.gate).await?;
                Ok(refusal(*code, None))
            }
            Deed::Late(delay) => forwarded.send_after(*delay, &self.gate).await,
            Deed::Slow(delay) => {
                let answer = forwarded.send(&self.gate).await;
                sleep(*delay).await;
                answer
            }
            Deed::HaltBefore(halted) => {
                halted.notify_one();
                active.lifted().await;
                forwarded.send(&self.gate).await
            }
            Deed::Detain(halted) => {
                halted.notify_one();
                let (rule, gate) = (Arc::clone(&active), self.gate.clone());
                let sending = async move {
                    rule.lifted().await;
                    forwarded.send_now(gate).await
                };
                tokio::spawn(sending).await.map_err(|_| Severed)?
            }
            Deed::HaltAfter(halted) => {
                let answer = forwarded.send(&self.gate).await;
                halted.notify_one();
                active.lifted().await;
                answer
            }
            // deeds to streams
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
    fn active(&self, call: &Call) -> Option<Arc<Active>> {
        lock(&self.rules).iter().find(|active| active.takes(call)).cloned()
    }

    /// The number of a write among all.
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
    number: Option<usize>,
}

impl Forwarded {
    async fn send(self, gate: &Gate) -> Result<Response<Answer>, Severed> {
        self.send_after(Duration::ZERO, gate).await
    }

    /// A write reaches the API server also if the client gives up meanwhile.
    async fn send_after(self, delay: Duration, gate: &Gate) -> Result<Response<Answer>, Severed> {
        let (is_write, gate) = (self.call.is_write(), gate.clone());
        let sending = async move {
            sleep(delay).await;
            self.send_now(gate).await
        };
        if is_write { tokio::spawn(sending).await.map_err(|_| Severed)? } else { sending.await }
    }

    async fn send_now(self, gate: Gate) -> Result<Response<Answer>, Severed> {
        let Self { shared, call, parts, body, number } = self;
        let answer = shared.upstream.send(Request::from_parts(parts, Body::from(body))).await;
        let (parts, body) = answer.map_err(|_| Severed)?.into_parts();
        shared.answered(number, parts.status);
        if call.verb == "watch" && parts.status.is_success() {
            let changes = shared.rule_changes.subscribe();
            let present = present(shared);
            let body = carry(call, body.into_data_stream(), Deeds { present, changes, gate });
            return Ok(Response::from_parts(parts, body));
        }
        let body = body.collect_bytes().await.map_err(|_| Severed)?;
        Ok(Response::from_parts(parts, whole(body)))
    }
}

/// The present deed to the stream of a watch. Each rule counts a stream once; a deed that lasts is the same one until
/// its rule is lifted.
fn present(shared: Arc<Shared>) -> impl Fn(&Call) -> Option<Deed> + Send + Sync + 'static {
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
                    shared.diary.note(format!("{}: {call}: {:?}", shared.name, active.deed()));
                }
                decided.push((Arc::clone(&active), takes));
                takes
            });
            takes.then(|| active.deed().clone())
        })
    }
}

fn whole(body: Bytes) -> Answer {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// An error as the API server answers it.
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
