//! Times a scheduler's wait for the extender of a large cluster, over TLS on the loopback, beside a server that only
//! reads and answers: `cargo bench -p tenure-webhook --bench preemptions`. With a text, only the runs whose titles
//! contain it: `-- uids`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failed step is a failed bench"
)]

mod cluster;
#[path = "../../tests/support/tls.rs"]
mod tls;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::DefaultBodyLimit,
    http::{Request, StatusCode, header::CONTENT_TYPE, header::HOST},
    routing::post,
};
use cluster::{CANDIDATES, Form, PODS_PER_NODE, Sort, VICTIMS};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tenure_certs::Authority;
use tenure_service::clock::ServerClock;
use tenure_webhook::{ClusterView, Extender, Metrics, Placement, scheduler_router};
use tls::{Server, connect, eventually};

const PATH: &str = "/scheduler/preempt";

/// The mixture of answers.
const MIXED: &str = "of 10 nodes 7 kept, 2 substituted, 1 dropped";

/// The number of times by which a second cluster is larger.
const LARGER: usize = 4;

/// The number of nodes that are enough for a scheduler.
const ENOUGH: usize = 100;

/// Candidates of a question with whole pods.
const WHOLE: usize = 100;

/// Counts the bytes that are allocated and not yet freed, while it is on.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static HELD: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            HELD.fetch_add(layout.size(), Relaxed);
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            HELD.fetch_add(size, Relaxed);
            HELD.fetch_sub(layout.size(), Relaxed);
        }
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if COUNTS.load(Relaxed) {
            HELD.fetch_sub(layout.size(), Relaxed);
        }
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The size of cluster and questions.
struct Scale {
    nodes: usize,
    candidates: usize,
    /// Questions in the form of uids, and in that of whole pods.
    rounds: [usize; 2],
}

impl Scale {
    /// As `cargo test --benches` has no use for numbers, it gets a run that only shows that this works.
    fn from_env() -> Self {
        if std::env::args().any(|argument| argument == "--bench") {
            Self { nodes: 5_000, candidates: CANDIDATES, rounds: [1_000, 150] }
        } else {
            Self { nodes: 200, candidates: 20, rounds: [2, 2] }
        }
    }

    /// A cluster with this many times the nodes, whose scheduler offers as many times the candidates.
    const fn times(&self, number: usize) -> Self {
        let Self { nodes, candidates, rounds } = *self;
        Self { nodes: nodes * number, candidates: candidates * number, rounds }
    }

    /// The candidates, all of these sorts.
    fn candidates(&self, sorts: &[Sort]) -> Vec<usize> {
        let of_sorts = (0..self.nodes).filter(|node| sorts.contains(&Sort::of(*node)));
        of_sorts.take(self.candidates).collect()
    }
}

/// A server, with a question and the answer that it must give.
#[derive(Clone)]
struct Asked<'s> {
    server: &'s Server,
    question: Bytes,
    answer: Bytes,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scale = Scale::from_env();
    let authority = Authority::new("bench")?;
    let directory = tempfile::tempdir()?;
    authority.server(&["localhost".to_owned()])?.write(directory.path())?;
    let placed = placement(&scale);
    introduce();
    // as with tests: those whose titles contain it
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let is_wanted = |title: &str| filter.as_ref().is_none_or(|filter| title.contains(filter));

    let webhook = webhook(placed, directory.path());
    let all = [Sort::Kept, Sort::Substituted, Sort::Dropped];
    for (what, sorts) in [
        (MIXED, &all[..]),
        ("all nodes kept", &[Sort::Kept]),
        ("all nodes substituted", &[Sort::Substituted]),
        ("all nodes searched and dropped", &[Sort::Dropped]),
    ] {
        let all_of_these = scale.candidates(sorts);
        // more whole pods than that are refused
        let some = &all_of_these[..all_of_these.len().min(WHOLE)];
        for (form, of_form, candidates, rounds, goal) in [
            (Form::Uids, "uids", &all_of_these[..], scale.rounds[0], 5),
            (Form::Pods, "pods", some, scale.rounds[1], 50),
        ] {
            let title = format!("{what}, {of_form}");
            if !is_wanted(&title) {
                continue;
            }
            let ours = asked(&webhook, form, candidates, &scale, &authority).await?;
            println!("\n{title}: {} bytes in, {} bytes out", ours.question.len(), ours.answer.len());
            let control = serve(control(ours.answer.clone()), directory.path());
            let controls = Asked { server: &control, ..ours.clone() };
            anyhow::ensure!(first_answer(&control, &authority, ours.question.clone()).await? == ours.answer);
            let mut took = in_turns([&ours, &controls], rounds, &authority).await?;
            report(["webhook", "control"], &mut took);
            let p99 = quantile(&mut took[0], 99);
            let reached = if p99 <= Duration::from_millis(goal) { "reached" } else { "missed" };
            println!("           goal: p99 of {goal} ms, {reached}");
            control.shutdown.cancel();
            control.ended.await??;
        }
    }
    let large = scale.times(LARGER);
    let title = format!("{LARGER} times the nodes and candidates: {MIXED}, uids");
    if is_wanted(&title) {
        println!();
        let larger = self::webhook(placement(&large), directory.path());
        let [some, more] = [&scale, &large].map(|scale| scale.candidates(&all));
        let asked_less = asked(&webhook, Form::Uids, &some, &scale, &authority).await?;
        let asked_more = asked(&larger, Form::Uids, &more, &large, &authority).await?;
        println!("{title}: {} and {} candidates", more.len(), some.len());
        let mut took = in_turns([&asked_more, &asked_less], scale.rounds[1], &authority).await?;
        report(["larger", "as above"], &mut took);
        println!("           goal: p50 of {LARGER} times");
        larger.shutdown.cancel();
        larger.ended.await??;
    }
    webhook.shutdown.cancel();
    webhook.ended.await??;
    Ok(())
}

/// Starts a webhook that knows these pods.
fn webhook(placement: Placement, certificates: &Path) -> Server {
    serve(scheduler_router(Some(extender(placement)), metrics()), certificates)
}

/// Asks about candidates for the first time, and checks the answer.
async fn asked<'s>(
    server: &'s Server,
    form: Form,
    candidates: &[usize],
    scale: &Scale,
    authority: &Authority,
) -> anyhow::Result<Asked<'s>> {
    let question = Bytes::from(cluster::question(form, candidates, scale.nodes).to_string());
    let answer = first_answer(server, authority, question.clone()).await?;
    check(&answer, candidates)?;
    Ok(Asked { server, question, answer })
}

/// Asks two servers in turns, so that both meet the same noise. Returns the latencies of each.
async fn in_turns(
    both: [&Asked<'_>; 2],
    rounds: usize,
    authority: &Authority,
) -> anyhow::Result<[Vec<Duration>; 2]> {
    let mut clients = [client(both[0].server, authority).await?, client(both[1].server, authority).await?];
    let mut latencies = [Vec::new(), Vec::new()];
    for round in 0..=rounds + rounds / 10 {
        for ((client, Asked { question, answer, .. }), latencies) in
            clients.iter_mut().zip(both).zip(&mut latencies)
        {
            let begin = Instant::now();
            let heard = ask(client, question.clone()).await?;
            let took = begin.elapsed();
            anyhow::ensure!(heard == *answer, "another answer to the same question");
            if round > rounds / 10 {
                latencies.push(took);
            }
        }
    }
    Ok(latencies)
}

fn placement(scale: &Scale) -> Placement {
    let before = HELD.load(Relaxed);
    COUNTS.store(true, Relaxed);
    let index = cluster::index(scale.nodes);
    COUNTS.store(false, Relaxed);
    let pods = scale.nodes * PODS_PER_NODE;
    // and the preemptor
    assert_eq!(index.pods(), pods + 1);
    let held = HELD.load(Relaxed) - before;
    println!("index    {pods} pods on {} nodes, two thirds of them in groups of 8", scale.nodes);
    println!("         {} bytes a pod, {} MiB", held / pods, held >> 20);
    let placement = Placement::default();
    placement.change(|empty| *empty = index);
    placement
}

fn extender(placement: Placement) -> Extender {
    let (clock, queues) = (ServerClock::starting_at(cluster::now()), cluster::queues());
    Extender::new(ClusterView { placement, queues, clock, ..ClusterView::default() }, metrics())
}

fn metrics() -> Metrics {
    Metrics::register(&mut Registry::default())
}

fn introduce() {
    println!(
        "webhook  answers kube-scheduler about {CANDIDATES} candidate nodes with {VICTIMS} victims each, or {WHOLE} if it sends whole pods"
    );
    println!(
        "control  the same server and client, but a route that reads the same body and answers the same bytes"
    );
    println!(
        "both     over TLS on the loopback, HTTP/1.1 keep-alive, client and servers in one process on {} processors, one question after the other",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    println!("         latency is what the client sees, from a question to the end of its answer");
    println!("Only the ratios can be compared between machines.");
}

/// Checks that every candidate got an answer of its sort, and that other victims were sought until
/// enough nodes remained.
fn check(answer: &Bytes, candidates: &[usize]) -> anyhow::Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    let nodes = &answer["NodeNameToMetaVictims"];
    let (mut remain, mut could) = (0, 0);
    for node in candidates {
        let victims = nodes[cluster::node_name(*node)]["Pods"].as_array().map(Vec::len);
        let is_right = match Sort::of(*node) {
            Sort::Kept => victims == Some(VICTIMS),
            Sort::Substituted => victims.is_none_or(|victims| victims > 0),
            Sort::Dropped => victims.is_none(),
        };
        anyhow::ensure!(is_right, "node {node}: {victims:?}");
        remain += usize::from(victims.is_some());
        could += usize::from(Sort::of(*node) != Sort::Dropped);
    }
    anyhow::ensure!(remain >= could.min(ENOUGH), "{remain} of {could} nodes remain");
    Ok(())
}

fn quantile(latencies: &mut [Duration], percent: usize) -> Duration {
    latencies.sort_unstable();
    latencies[(latencies.len() - 1) * percent / 100]
}

fn report(names: [&str; 2], took: &mut [Vec<Duration>; 2]) {
    println!("             min ms   p50 ms   p99 ms");
    let both = took
        .each_mut()
        .map(|latencies| [0, 50, 99].map(|percent| quantile(latencies, percent).as_secs_f64() * 1e3));
    for (name, [min, p50, p99]) in names.into_iter().zip(both) {
        println!("  {name:<8} {min:>9.3} {p50:>8.3} {p99:>8.3}");
    }
    let [min, p50, p99] = [0, 1, 2].map(|place| both[0][place] / both[1][place]);
    println!("  ratio    {min:>9.2} {p50:>8.2} {p99:>8.2}");
}

fn serve(router: Router, certificates: &Path) -> Server {
    tls::serve(router, certificates, &["--drain-delay", "0s"])
}

fn control(answer: Bytes) -> Router {
    let read = async move |body: Bytes| {
        std::hint::black_box(body);
        ([(CONTENT_TYPE, "application/json")], answer.clone())
    };
    Router::new().route(PATH, post(read)).layer(DefaultBodyLimit::disable())
}

async fn client(server: &Server, authority: &Authority) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = connect(server.address, authority.certificate_pem(), &["http/1.1"]).await?;
    let (client, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn first_answer(server: &Server, authority: &Authority, question: Bytes) -> anyhow::Result<Bytes> {
    server.readiness.ready().await;
    let mut client = eventually("connected", async || client(server, authority).await.ok()).await;
    ask(&mut client, question).await
}

async fn ask(client: &mut SendRequest<Full<Bytes>>, question: Bytes) -> anyhow::Result<Bytes> {
    let request = Request::post(PATH)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(question))?;
    client.ready().await?;
    let response = client.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    anyhow::ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
