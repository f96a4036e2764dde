//! The webhook over real TLS: both versions of HTTP, certificates that change, clients that show one, and a shutdown that
//! drains.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

#[path = "tls/callers.rs"]
mod callers;
mod support;
#[path = "support/tls.rs"]
mod tls;

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    body::Bytes,
    http::{Request, Response, StatusCode, Version, header::CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use support::{UID, review, webhook};
use tempfile::TempDir;
use tenure_certs::{Authority, CertificatePair};
use tenure_webhook::KnownQueues;
use tls::{DEADLINE, Server, connect, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    client::TlsStream,
    rustls::pki_types::{CertificateDer, pem::PemObject},
};

const HTTP_1: &str = "http/1.1";

/// A mounted Secret: `tls.crt` is a link to `..data/tls.crt`, and `..data` to a directory that is never written
/// again. It changes when another link takes the place of `..data`.
struct Secret {
    directory: TempDir,
    authority: Authority,
}

impl Secret {
    fn new() -> Self {
        let secret =
            Self { directory: tempfile::tempdir().unwrap(), authority: Authority::new("test").unwrap() };
        secret.mount(&secret.issue());
        for file in ["tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(file), secret.path().join(file)).unwrap();
        }
        secret
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn issue(&self) -> CertificatePair {
        self.authority.server(&["localhost".to_owned()]).unwrap()
    }

    fn mount(&self, pair: &CertificatePair) {
        let version = tempfile::Builder::new().prefix("..version_").tempdir_in(self.path()).unwrap().keep();
        pair.write(&version).unwrap();
        let link = self.path().join("..data_tmp");
        symlink(version.file_name().unwrap(), &link).unwrap();
        let data = self.path().join("..data");
        let before = fs::read_link(&data).ok();
        fs::rename(link, data).unwrap();
        if let Some(before) = before {
            fs::remove_dir_all(self.path().join(before)).unwrap();
        }
    }

    fn serve(&self, flags: &[&str]) -> Server {
        tls::serve(webhook(KnownQueues::default()), self.path(), flags)
    }

    async fn connect(&self, server: &Server, protocols: &[&str]) -> io::Result<TlsStream<TcpStream>> {
        connect(server.address, self.authority.certificate_pem(), protocols).await
    }

    /// Connects once the server listens.
    async fn connected(&self, server: &Server, protocols: &[&str]) -> TlsStream<TcpStream> {
        eventually("connected", async || self.connect(server, protocols).await.ok()).await
    }

    async fn served(&self, server: &Server) -> CertificateDer<'static> {
        leaf(&self.connected(server, &[HTTP_1]).await)
    }
}

fn leaf(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain.first().unwrap().clone().into_owned()
}

fn der(pair: &CertificatePair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
}

fn good() -> Value {
    let object = json!({"metadata": {"name": "demo"}, "spec": {"maxDuration": "1d"}});
    review("scheduling.run.ai", "CREATE", &object, &Value::Null)
}

fn request(uri: &str) -> Request<Full<Bytes>> {
    Request::post(uri)
        .header(CONTENT_TYPE, "application/json")
        .header("host", "localhost")
        .body(Full::from(good().to_string()))
        .unwrap()
}

async fn check(response: Response<Incoming>) {
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["response"], json!({"uid": UID, "allowed": true}));
}

async fn http1(stream: TlsStream<TcpStream>) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn protocol(stream: &TlsStream<TcpStream>) -> Option<&str> {
    let protocol = stream.get_ref().1.alpn_protocol();
    protocol.map(|protocol| str::from_utf8(protocol).unwrap())
}

#[tokio::test]
async fn http_1_is_spoken_with_who_asks_for_it() {
    let secret = Secret::new();
    let server = secret.serve(&[]);
    for protocols in [&[HTTP_1][..], &[]] {
        let stream = secret.connected(&server, protocols).await;
        assert_eq!(protocol(&stream), protocols.first().copied());
        let mut sender = http1(stream).await;
        for _ in 0..3 {
            let response = sender.send_request(request("/validate")).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_11);
            check(response).await;
        }
    }
}

#[tokio::test]
async fn http_2_is_spoken_with_who_asks_for_it() {
    let secret = Secret::new();
    let server = secret.serve(&[]);
    let stream = secret.connected(&server, &["h2", HTTP_1]).await;
    assert_eq!(protocol(&stream), Some("h2"));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let ask = |_| {
        let asked = sender.send_request(request("https://localhost/validate"));
        async {
            let response = asked.await.unwrap();
            assert_eq!(response.version(), Version::HTTP_2);
            check(response).await;
        }
    };
    futures::future::join_all((0..10).map(ask)).await;
}

#[tokio::test]
async fn a_changed_certificate_is_taken_up_without_a_restart() {
    let secret = Secret::new();
    let server = secret.serve(&["--tls-reload-interval", "20ms"]);
    let mut old = http1(secret.connected(&server, &[HTTP_1]).await).await;
    for _ in 0..3 {
        let pair = secret.issue();
        secret.mount(&pair);
        let taken = async || (secret.served(&server).await == der(&pair)).then_some(());
        eventually("served the changed certificate", taken).await;
        // open connections stay open
        check(old.send_request(request("/validate")).await.unwrap()).await;
    }
    assert!(!server.ended.is_finished());
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn keep(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn lines(&self, what: &str) -> usize {
        let log = self.0.lock().unwrap();
        let text = String::from_utf8_lossy(&log);
        text.lines().filter(|line| line.contains(what)).count()
    }
}

#[tokio::test]
async fn a_broken_pair_is_refused_and_the_old_one_served_on() {
    let log = Log::default();
    let _kept = log.keep();
    let secret = Secret::new();
    let server = secret.serve(&["--tls-reload-interval", "20ms"]);
    let first = secret.served(&server).await;
    let (one, other) = (secret.issue(), secret.issue());
    let pair =
        |certificate: &str, key: &str| CertificatePair { certificate: certificate.into(), key: key.into() };
    let broken = [
        pair(&one.certificate, &other.key),
        pair("", ""),
        pair(&one.certificate, ""),
        pair("certificate", "key"),
        pair(&one.key, &one.certificate),
        pair(&one.certificate[..one.certificate.len() / 2], &one.key),
    ];
    for (number, pair) in broken.iter().enumerate() {
        secret.mount(pair);
        let refused = async || (log.lines("Kept the old certificate") > number).then_some(());
        eventually("refused the broken pair", refused).await;
        assert_eq!(secret.served(&server).await, first, "{number}");
    }
    assert_eq!(log.lines("Took up the changed certificate"), 0);

    fs::remove_file(secret.path().join("..data")).unwrap();
    let missed = async || (log.lines("--tls-cert-file") > 0).then_some(());
    eventually("missed the files", missed).await;
    assert_eq!(secret.served(&server).await, first);

    secret.mount(&one);
    let taken = async || (secret.served(&server).await == der(&one)).then_some(());
    eventually("served the good pair after all", taken).await;
}

#[tokio::test]
async fn a_server_without_a_usable_certificate_does_not_start() {
    let secret = Secret::new();
    let (one, other) = (secret.issue(), secret.issue());
    secret.mount(&CertificatePair { key: other.key, ..one });
    let error = secret.serve(&[]).ended.await.unwrap().unwrap_err();
    assert!(error.to_string().ends_with("tls.key are no usable pair"), "{error}");
    fs::remove_file(secret.path().join("tls.key")).unwrap();
    let error = secret.serve(&[]).ended.await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("--tls-key-file "), "{error}");
}

#[tokio::test]
async fn a_silent_client_keeps_no_other_waiting() {
    let secret = Secret::new();
    let server = secret.serve(&[]);
    secret.connected(&server, &[]).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let mut sender = http1(secret.connected(&server, &[]).await).await;
    check(sender.send_request(request("/validate")).await.unwrap()).await;
}

#[tokio::test]
async fn a_shutdown_is_announced_then_drained_and_loses_no_request() {
    let secret = Secret::new();
    let server = secret.serve(&["--drain-delay", "2s"]);
    let mut in_flight = secret.connected(&server, &[HTTP_1]).await;
    let body = good().to_string();
    let (first, rest) = body.split_at(body.len() / 2);
    let head = format!(
        "POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    in_flight.write_all((head + first).as_bytes()).await.unwrap();
    let mut idle = http1(secret.connected(&server, &[HTTP_1]).await).await;
    check(idle.send_request(request("/validate")).await.unwrap()).await;
    assert_eq!(server.readiness.reason(), None);

    server.shutdown.cancel();
    let unready = async || server.readiness.reason();
    assert_eq!(eventually("unready", unready).await, "shutting down");
    // a cluster that hasn't noticed yet is still served, on old connections and new
    check(idle.send_request(request("/validate")).await.unwrap()).await;
    let mut new = http1(secret.connect(&server, &[HTTP_1]).await.unwrap()).await;
    check(new.send_request(request("/validate")).await.unwrap()).await;

    let closed = async || TcpStream::connect(server.address).await.err();
    eventually("refused connections", closed).await;
    let idle_closed = async || (idle.is_closed() && new.is_closed()).then_some(());
    eventually("closed the idle connections", idle_closed).await;
    assert!(!server.ended.is_finished(), "a request is in flight");

    in_flight.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_flight.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(&format!("\"uid\":\"{UID}\"")), "{answer}");
    let ended = tokio::time::timeout(DEADLINE, server.ended).await.expect("ended");
    ended.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_has_just_connected_before_a_shutdown_is_answered() {
    let secret = Secret::new();
    let server = secret.serve(&["--drain-delay", "0s"]);
    let mut new = http1(secret.connected(&server, &[HTTP_1]).await).await;
    server.shutdown.cancel();
    eventually("unready", async || server.readiness.reason()).await;
    let closed = eventually("closed", async || new.is_closed().then_some(()));
    tokio::time::timeout(std::time::Duration::from_millis(300), closed).await.unwrap_err();
    check(new.send_request(request("/validate")).await.unwrap()).await;
    let ended = tokio::time::timeout(DEADLINE, server.ended).await.expect("ended");
    ended.unwrap().unwrap();
}
