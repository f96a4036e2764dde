//! Thousands of connections of every sort to each port, from other addresses than that of the API server and of probes.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::StatusCode;
use jiff::SignedDuration;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    callers::Caller,
    keeper::{Keeper, Metrics},
    neighbour::worst_lateness,
    scale,
    scheduling::EXTENDER,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, sink, split},
    net::TcpSocket,
    runtime::{Builder, Runtime},
    select,
    sync::Semaphore,
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tokio_rustls::TlsConnector;

use super::flood::review;

/// The namespace of pods that have nothing to do with the attack.
const NEIGHBOUR: &str = "neighbour";

/// The addresses of the attackers.
const PEERS: usize = 64;

/// The connections to each admin port that send nothing: all that a port takes, and more. They come from addresses of
/// their own.
const SILENT: usize = 1_024 + PEERS;

/// The connections of the attackers that are open at the same time: a process may have 20,000 files.
const OPEN: usize = 12_000;

/// The time for connections with endless headers to be closed.
const CLOSED_WITHIN: Duration = Duration::from_mins(2);

/// The most memory of webhook and keeper at any time, in KiB: half of their limits.
const MOST_MEMORY: [u64; 2] = [256 * 1024, 512 * 1024];

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
}

fn connector(world: &World, protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = world.cluster.directory().join("webhook/ca.crt");
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Arc::new(config).into()
}

/// What a client does with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// Sends nothing, not even the beginning of a handshake.
    Silent,
    /// Sends headers without an end, as fast as they are taken.
    EndlessHeaders,
    /// Sends a byte of headers every few seconds.
    TricklingHeaders,
    /// Sends half of a body, and then a byte every few seconds.
    EndlessBody,
    /// Sends requests, and reads no answer.
    UnreadAnswers,
    /// Begins four requests of HTTP/2, each with as much of a body as the server takes, and ends none.
    Streams,
}

impl Sort {
    const ALL: [Self; 6] = [
        Self::Silent,
        Self::EndlessHeaders,
        Self::TricklingHeaders,
        Self::EndlessBody,
        Self::UnreadAnswers,
        Self::Streams,
    ];

    /// Uses a connection until the server closes it.
    async fn use_up(self, stream: impl AsyncRead + AsyncWrite) {
        let (mut answers, mut stream) = split(stream);
        let ends = async move {
            match self {
                Self::UnreadAnswers => std::future::pending().await,
                _ => copy(&mut answers, &mut sink()).await.map(drop),
            }
        };
        let uses = async {
            match self {
                Self::Silent => std::future::pending().await,
                Self::EndlessHeaders => {
                    stream.write_all(b"GET /live HTTP/1.1\r\n").await?;
                    repeat(&mut stream, &[&b"a: "[..], &[b'b'; 1_000], b"\r\n"].concat(), Duration::ZERO)
                        .await
                }
                Self::TricklingHeaders => {
                    stream.write_all(b"GET /live HTTP/1.1\r\na: ").await?;
                    repeat(&mut stream, b"b", Duration::from_secs(3)).await
                }
                Self::EndlessBody => {
                    let headers = b"POST /validate HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 3000000\r\n\r\n";
                    stream.write_all(headers).await?;
                    stream.write_all(" ".repeat(64 * 1024).as_bytes()).await?;
                    repeat(&mut stream, b" ", Duration::from_secs(3)).await
                }
                Self::UnreadAnswers => {
                    repeat(&mut stream, b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n", Duration::ZERO).await
                }
                Self::Streams => {
                    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
                    stream.write_all(&frame(4, 0, &[])).await?;
                    for number in 0..4 {
                        // POST https a /validate
                        let headers = b"\x83\x87\x01\x01a\x04\x09/validate";
                        stream.write_all(&frame(1, 1 + 2 * number, headers)).await?;
                        for _ in 0..4 {
                            stream
                                .write_all(&frame(0, 1 + 2 * number, " ".repeat(16_000).as_bytes()))
                                .await?;
                        }
                    }
                    std::future::pending().await
                }
            }
        };
        select! { _ = ends => {}, _ = uses => {} }
    }
}

/// A frame of HTTP/2. Headers are whole.
fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let flags = if kind == 1 { 4 } else { 0 };
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Writes bytes again and again until the server closes the connection.
async fn repeat(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    after: Duration,
) -> std::io::Result<()> {
    loop {
        stream.write_all(bytes).await?;
        sleep(after).await;
    }
}

/// Opens a connection from an address, and uses it until the server closes it.
async fn attack(
    peer: [u8; 4],
    sort: Sort,
    port: u16,
    tls: Option<[TlsConnector; 2]>,
    begun: Arc<AtomicUsize>,
) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((peer, 0).into()).unwrap();
    let connected = socket.connect(([127, 0, 0, 1], port).into()).await;
    begun.fetch_add(1, Relaxed);
    let Ok(stream) = connected else { return };
    let Some([http1, http2]) = tls.filter(|_| sort != Sort::Silent) else { return sort.use_up(stream).await };
    let tls = if sort == Sort::Streams { http2 } else { http1 };
    if let Ok(stream) = tls.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await {
        sort.use_up(stream).await;
    }
}

fn most_resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The threads of the attackers: on those of the neighbour it would wait its turn behind the handshakes of all of them.
struct Attackers(Option<Runtime>);

impl Attackers {
    fn new() -> Self {
        Self(Some(Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()))
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // a runtime that waits for its tasks may not be dropped by a task
        self.0.take().unwrap().shutdown_background();
    }
}

/// The number of connections of an attack to each port, besides those that fill an admin port, the number of addresses
/// that they come from, and the bounds of what others notice of the attack.
struct Attack {
    connections: usize,
    peers: usize,
    answered_within: Duration,
    late: SignedDuration,
}

impl Attack {
    async fn play(self, name: &str) {
        let Self { connections, peers, answered_within, late } = self;
        let world = &Box::pin(World::installed_alone(name, EXTENDER)).await.unwrap();
        world.tenure.start_webhook(&world.cluster).await.unwrap();
        let keeper = Keeper::start(world, &["--threadiness=8"]).await;
        scale::namespace(world, NEIGHBOUR).await;
        let [webhook, _] = world.tenure.admin_urls();
        let tls = [connector(world, b"http/1.1"), connector(world, b"h2")];
        let ports = [
            (port(world.tenure.webhook_url()), Some(tls)),
            (port(webhook), None),
            (port(keeper.admin_url()), None),
        ];
        let (open, begun) = (Arc::new(Semaphore::new(OPEN)), Arc::new(AtomicUsize::new(0)));
        let (mut attacks, mut endless) = (JoinSet::new(), JoinSet::new());
        let attackers = Attackers::new();
        let address = |net: u8, number: usize| [127, 0, net, u8::try_from(2 + number).unwrap()];
        let [_, admin_ports @ ..] = &ports;
        let silent = (0..SILENT).map(|number| (address(1, number % PEERS), Sort::Silent, &admin_ports[..]));
        let others = (0..connections).map(|number| {
            (address(0, number % peers), Sort::ALL[number / peers % Sort::ALL.len()], &ports[..])
        });
        for (peer, sort, ports) in silent.chain(others) {
            for (port, tls) in ports.iter().cloned() {
                let (open, begun) = (Arc::clone(&open), Arc::clone(&begun));
                let set = if sort == Sort::EndlessHeaders { &mut endless } else { &mut attacks };
                let attack = async move {
                    let _open = open.acquire_owned().await.unwrap();
                    attack(peer, sort, port, tls, begun).await;
                };
                set.spawn_on(attack, attackers.0.as_ref().unwrap().handle());
            }
        }
        let all = connections * ports.len() + SILENT * admin_ports.len();
        let answers = async {
            let (caller, mut ticks) = (Caller::new(world, None), interval(Duration::from_millis(200)));
            loop {
                ticks.tick().await;
                let within = async |what: &str, answered: BoxFuture<'_, StatusCode>| {
                    let answered = timeout(answered_within, answered).await;
                    assert_eq!(answered, Ok(StatusCode::OK), "{what}, in {answered_within:?}");
                };
                let body = review("scheduling.run.ai", "Queue", "queues", "CREATE");
                within("the webhook's metrics", Metrics::of(webhook).map(|_| StatusCode::OK).boxed()).await;
                within("the keeper's metrics", keeper.metrics().map(|_| StatusCode::OK).boxed()).await;
                within("a review", caller.post("/validate", body).map(|answer| answer.unwrap().0).boxed())
                    .await;
            }
        };
        let all_begun = async || Ok((begun.load(Relaxed) == all).then_some(()));
        let (worst, ()) = select! {
            () = answers => unreachable!("it has no end"),
            done = async { tokio::join!(worst_lateness(world, NEIGHBOUR, 20), async {
                eventually("all connections to be tried", CLOSED_WITHIN + DEADLINE, all_begun).await.unwrap();
                timeout(CLOSED_WITHIN, async { while endless.join_next().await.is_some() {} }).await.unwrap();
            }) } => done,
        };
        let (worst, pids) = (worst.unwrap(), [world.tenure.webhook_pid().await.unwrap(), keeper.pid()]);
        let most = pids.map(most_resident);
        println!(
            "{} KiB of the webhook and {} of the keeper at most; the end of a neighbour's run was {worst:#} late",
            most[0], most[1]
        );
        assert!(most.iter().zip(MOST_MEMORY).all(|(most, bound)| *most <= bound), "{most:?} KiB");
        assert!(worst <= late, "the end of a neighbour's run was {worst:#} late");
        attacks.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_every_sort_take_little_memory_and_delay_neither_probes_nor_reviews_nor_ends() {
    // other tests run beside this one
    let (answered_within, late) = (Duration::from_secs(30), SignedDuration::from_secs(20));
    Box::pin(Attack { connections: 1_000, peers: PEERS, answered_within, late }.play("ports")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a machine that does nothing else: make floods"]
async fn ten_thousand_connections_of_every_sort_to_each_port_delay_no_end_by_more_than_two_seconds() {
    let (answered_within, late) = (Duration::from_secs(10), SignedDuration::from_secs(2));
    // streams of more addresses could hold more than half of the memory by what isn't read of their bodies
    Box::pin(Attack { connections: 10_000, peers: 8, answered_within, late }.play("ports-many")).await;
}
