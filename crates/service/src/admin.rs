//! The admin port of both servers: `/livez`, `/readyz` and `/metrics`. `/live` and `/ready` are the
//! same by other names.
//!
//! Without a certificate the port serves plain HTTP, without credentials. With a certificate it
//! serves HTTPS, and [`MetricsAccess`] decides who may read `/metrics`. Probes need no credentials.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
use axum_server::tls_rustls::RustlsAcceptor;
use clap::Args;
use futures::{FutureExt, future::BoxFuture};
use kube::Client;
use prometheus_client::{encoding::text::encode, metrics::info::Info, registry::Registry};
use rustls::server::NoClientAuth;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};
use tracing::info;

use crate::{
    address::ListenAddress,
    client,
    listener::ListenerLimits,
    metrics_access::MetricsAccess,
    process::ProcessMetrics,
    readiness::ProcessReadiness,
    tls::{CertificateFiles, CertificateOrigin, HANDSHAKE_TIMEOUT, ServedCertificate},
    validity::CertificateEnds,
};

/// The most connections. Those of kubelets and of Prometheus are few.
const CONNECTIONS: usize = 1024;

/// The pause after the metrics were written, as a multiple of the time that this took. Any caller
/// of the port may ask for metrics at any rate. With the pauses they cost a tenth of a processor,
/// and more only if writing them takes longer than a ninth of `LONGEST_PAUSE`.
const PAUSES: u32 = 9;
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The time between two checks of the certificate's files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Returns a registry with the version of Tenure, the resources of the process, and its requests to
/// the API server. The metrics of a program are a part of it, below a prefix of their own.
pub fn registry(version: &'static str) -> Registry {
    let mut registry = Registry::default();
    let help = "The version of Tenure, as the label says";
    registry.register("tenure_build", help, Info::new([("version", version)]));
    registry.register_collector(Box::new(ProcessMetrics));
    let help = "Requests to the API server, by method and the code of the answer: <error> for none";
    registry.register("rest_client_requests", help, client::requests());
    registry
}

/// The address of probes and metrics.
#[allow(clippy::struct_field_names, reason = "they are the names of the flags")]
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// Address of the admin port, which serves /livez, /readyz and /metrics; without a host, on all interfaces
    #[arg(long, visible_alias = "metrics-addr", value_name = "ADDRESS", default_value = ":8080")]
    admin_listen: ListenAddress,

    /// The certificate chain of the admin port, in PEM. With it, the port serves HTTPS, and /metrics answers only clients
    /// with the token of a user that may get the path /metrics. Without it, the port serves plain HTTP to all. A changed
    /// file is taken up without a restart
    #[arg(long, value_name = "FILE", requires = "admin_tls_key_file")]
    admin_tls_cert_file: Option<PathBuf>,

    /// The private key of the admin port, in PEM
    #[arg(long, value_name = "FILE", requires = "admin_tls_cert_file")]
    admin_tls_key_file: Option<PathBuf>,
}

impl AdminArgs {
    /// Binds the port, and serves it as long as the returned future is polled. `client` is the one
    /// that asks about the readers of metrics.
    ///
    /// # Errors
    /// If the port can't be bound, or the files are no usable pair. The message names the flag.
    pub async fn serve(
        self,
        readiness: ProcessReadiness,
        mut registry: Registry,
        client: Client,
    ) -> anyhow::Result<BoxFuture<'static, anyhow::Result<()>>> {
        let Self { admin_listen, admin_tls_cert_file, admin_tls_key_file } = self;
        let context = || format!("--admin-listen {admin_listen}");
        let listener = admin_listen.bind().await.with_context(context)?;
        let (address, limits) = (listener.local_addr()?, ListenerLimits::new(CONNECTIONS));
        let server = axum_server::from_tcp(listener)?;
        let Some((certificate, key)) = admin_tls_cert_file.zip(admin_tls_key_file) else {
            info!(%address, "Serving probes and metrics");
            let mut server = server.acceptor(limits).http1_only();
            ListenerLimits::of_server(&mut server);
            let router = router(readiness, registry, None).into_make_service();
            // the future is large, and would be in every future around it
            return Ok(async move { Ok(server.serve(router).await?) }.boxed());
        };
        let origin = CertificateOrigin::Files(CertificateFiles {
            certificate: ("admin-tls-cert-file", certificate),
            key: ("admin-tls-key-file", key),
        });
        let ends = CertificateEnds::register(registry.sub_registry_with_prefix("tenure_admin"));
        // the process does its work without metrics
        let mut certificate =
            ServedCertificate { origin, clients: Arc::new(NoClientAuth), ends, valid: None };
        let (pair, config) = certificate.first().await?;
        info!(%address, "Serving probes and metrics over TLS");
        let tls = RustlsAcceptor::new(config.clone()).handshake_timeout(HANDSHAKE_TIMEOUT).acceptor(limits);
        let mut server = server.acceptor(tls);
        ListenerLimits::of_server(&mut server);
        let access = MetricsAccess::new(client);
        let router = router(readiness, registry, Some(access)).into_make_service();
        let both = async move {
            tokio::select! {
                result = server.serve(router) => Ok(result?),
                () = certificate.reload(config, pair, RELOAD_INTERVAL) => Ok(()),
            }
        };
        Ok(both.boxed())
    }
}

/// Returns the routes of the admin port. `/livez` always succeeds, and `/readyz` fails with 503 and
/// the reason. Without `access`, all may read the metrics.
pub fn router(readiness: ProcessReadiness, registry: Registry, access: Option<MetricsAccess>) -> Router {
    let text = Arc::new(MetricsText { registry, last: Mutex::default() });
    let mut read = get(metrics).with_state(text);
    if let Some(access) = access {
        read = read.layer(from_fn_with_state(Arc::new(access), MetricsAccess::admit));
    }
    Router::new()
        // liveness never depends on the cluster: a restart mends nothing there
        .route("/livez", get(live))
        .route("/live", get(live))
        .route("/readyz", get(ready).with_state(readiness.clone()))
        .route("/ready", get(ready).with_state(readiness))
        .route("/metrics", read)
}

/// The metrics as text, written once for all requests that wait for them.
struct MetricsText {
    registry: Registry,
    /// The text that was last written. Its lock is held while the next is written.
    last: Mutex<Option<WrittenText>>,
}

/// A text, and the time that it took to write.
struct WrittenText {
    begun: Instant,
    ended: Instant,
    text: Bytes,
}

impl MetricsText {
    /// Returns a text that was begun after the call. Waits for the pause after the last one.
    async fn fresh(&self) -> Result<Bytes, fmt::Error> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(last) = &*last {
            if last.begun >= asked {
                return Ok(last.text.clone());
            }
            let pause = last.ended.duration_since(last.begun).saturating_mul(PAUSES);
            sleep_until(last.ended + pause.min(LONGEST_PAUSE)).await;
        }
        let (begun, mut text) = (Instant::now(), String::new());
        encode(&mut text, &self.registry)?;
        let text = Bytes::from(text);
        *last = Some(WrittenText { begun, ended: Instant::now(), text: text.clone() });
        Ok(text)
    }
}

async fn live() -> &'static str {
    "live\n"
}

async fn ready(State(readiness): State<ProcessReadiness>) -> (StatusCode, String) {
    match readiness.reason() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

async fn metrics(State(metrics): State<Arc<MetricsText>>) -> Response {
    match metrics.fresh().await {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        thread,
    };

    use axum::{body::Body, http::Request};
    use clap::Parser;
    use futures::future::join_all;
    use http_body_util::BodyExt;
    use prometheus_client::{
        collector::Collector,
        encoding::{DescriptorEncoder, EncodeMetric},
        metrics::{
            MetricType,
            counter::{ConstCounter, Counter},
        },
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpSocket, TcpStream},
    };
    use tower::ServiceExt;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        admin: AdminArgs,
    }

    #[test]
    fn the_version_is_among_the_metrics() {
        let mut text = String::new();
        let mut registry = registry("1.2.3");
        let counter: Counter = Counter::default();
        registry.sub_registry_with_prefix("tenure_keeper").register("a", "a", counter);
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("\ntenure_build_info{version=\"1.2.3\"} 1\n"), "{text}");
        assert!(text.contains("\ntenure_keeper_a_total 0\n"), "{text}");
        #[cfg(target_os = "linux")]
        for name in [
            "process_cpu_seconds_total",
            "process_start_time_seconds",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
        ] {
            let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            assert!(value.is_some_and(|value| value.parse::<f64>().unwrap() >= 0.0), "{name}: {text}");
        }
    }

    fn admin(arguments: &[&str]) -> Result<AdminArgs, clap::Error> {
        Program::try_parse_from([&["program"], arguments].concat()).map(|program| program.admin)
    }

    /// Returns a client of an API server that doesn't answer.
    fn client() -> Client {
        crate::install_crypto_provider();
        Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap()
    }

    #[test]
    fn a_certificate_and_its_key_belong_together() {
        for flag in ["--admin-tls-cert-file=a", "--admin-tls-key-file=a"] {
            let refusal = admin(&[flag]).unwrap_err().to_string();
            assert!(
                refusal.contains("--admin-tls-cert-file") && refusal.contains("--admin-tls-key-file"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn the_address_has_the_default_and_the_name_of_the_text() {
        assert_eq!(admin(&[]).unwrap().admin_listen.to_string(), ":8080");
        assert_eq!(admin(&["--metrics-addr=[::1]:9"]).unwrap().admin_listen.to_string(), "[::1]:9");
        let refusal = admin(&["--metrics-addr", "8080"]).unwrap_err().to_string();
        assert!(refusal.contains("'8080'") && refusal.contains("--admin-listen"), "{refusal}");
    }

    #[tokio::test]
    async fn connections_with_endless_headers_are_closed_and_probes_are_answered() {
        let (readiness, port) = (ProcessReadiness::default(), free_port());
        let served = admin(&["--admin-listen", &format!("127.0.0.1:{port}")]).unwrap();
        let served = tokio::spawn(served.serve(readiness, Registry::default(), client()).await.unwrap());
        let endless = |number: u8| async move {
            let mut stream = connect(2 + number % 8, port).await;
            let _ = stream.write_all(b"GET /live HTTP/1.1\r\n").await;
            let mut bytes = 0;
            while stream.write_all(&[b"a: ".as_slice(), &[b'b'; 1_000], b"\r\n"].concat()).await.is_ok() {
                bytes += 1_000;
                tokio::task::yield_now().await;
            }
            bytes
        };
        let bytes = join_all((0..=255).cycle().take(1_000).map(endless)).await;
        assert!(bytes.iter().all(|bytes| *bytes < 10_000_000), "{:?}", bytes.iter().max());
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(connect(2, port).await);
        }
        let closed = silent
            .iter_mut()
            .skip(64)
            .map(async |stream| stream.read(&mut [0]).await.is_ok_and(|read| read > 0));
        assert!(join_all(closed).await.iter().all(|answered| !answered));
        probe(port).await;
        served.abort();
    }

    #[tokio::test]
    async fn silent_connections_of_many_addresses_keep_no_probe_out() {
        let (readiness, port) = (ProcessReadiness::default(), free_port());
        let served = admin(&["--admin-listen", &format!("127.0.0.1:{port}")]).unwrap();
        let served = tokio::spawn(served.serve(readiness, Registry::default(), client()).await.unwrap());
        let mut silent = Vec::new();
        // all places of the port, and more
        for _ in 0..=CONNECTIONS / 64 {
            for peer in 2..66 {
                silent.push(connect(peer, port).await);
            }
        }
        for _ in 0..100 {
            probe(port).await;
        }
        served.abort();
    }

    /// Connects from an address of the loopback interface.
    async fn connect(peer: u8, port: u16) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, peer], 0).into()).unwrap();
        socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
    }

    /// Checks that the kubelet's probe is answered.
    async fn probe(port: u16) {
        let mut probe = connect(1, port).await;
        probe.write_all(b"GET /live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    fn free_port() -> u16 {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn an_address_in_use_is_named_with_its_flag() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let served = admin(&["--admin-listen", &address]).unwrap().serve(
            ProcessReadiness::default(),
            Registry::default(),
            client(),
        );
        let error = format!("{:#}", served.await.err().unwrap());
        assert!(error.starts_with(&format!("--admin-listen {address}: ")), "{error}");
    }

    async fn answer(readiness: &ProcessReadiness, path: &str) -> (StatusCode, String) {
        let counter = Counter::<u64>::default();
        counter.inc();
        let mut registry = Registry::with_prefix("tenure");
        registry.register("deeds", "What was done", counter);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(readiness.clone(), registry, None).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_says_what_is_awaited() {
        let readiness = ProcessReadiness::default();
        let pods = readiness.awaiting("pods");
        let (status, body) = answer(&readiness, "/ready").await;
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "waiting for pods\n"));
        assert_eq!(answer(&readiness, "/readyz").await, (status, body));
        for path in ["/live", "/livez"] {
            assert_eq!(answer(&readiness, path).await.0, StatusCode::OK, "{path}");
        }
        pods.done();
        for path in ["/ready", "/readyz"] {
            assert_eq!(answer(&readiness, path).await.0, StatusCode::OK, "{path}");
        }
    }

    /// Counts how often it is written, which takes 10 ms.
    #[derive(Debug, Default)]
    struct Counted(Arc<AtomicU64>);

    impl Collector for Counted {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            thread::sleep(Duration::from_millis(10));
            let written = ConstCounter::new(self.0.fetch_add(1, Relaxed) + 1);
            written.encode(encoder.encode_descriptor("written", "How often", None, MetricType::Counter)?)
        }
    }

    #[tokio::test]
    async fn metrics_are_written_once_for_all_that_wait_and_a_tenth_of_the_time() {
        let (written, mut registry) = (Arc::default(), Registry::default());
        registry.register_collector(Box::new(Counted(Arc::clone(&written))));
        let metrics = MetricsText { registry, last: Mutex::default() };
        let begin = Instant::now();
        let first = metrics.fresh().await.unwrap();
        assert!(first.ends_with(b"\nwritten_total 1\n# EOF\n"));
        for round in 2..=4 {
            let texts = join_all((0..1_000).map(|_| metrics.fresh())).await;
            let fresh = format!("\nwritten_total {round}\n# EOF\n");
            assert!(texts.iter().all(|text| text.as_ref().unwrap().ends_with(fresh.as_bytes())));
        }
        assert_eq!(written.load(Relaxed), 4);
        assert!(begin.elapsed() >= Duration::from_millis(3 * 90), "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn metrics_are_served() {
        let (status, body) = answer(&ProcessReadiness::default(), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("tenure_deeds_total 1"), "{body}");
    }
}
