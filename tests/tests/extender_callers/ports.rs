//! A thousand connections to each port, from other addresses than that of the API server, with headers that never end.

use std::{fs, sync::Arc, time::Duration};

use futures::future::join_all;
use http::StatusCode;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::Value;
use tenure_tests::{
    World,
    callers::Caller,
    keeper::{Keeper, Metrics},
    scheduling,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::TcpSocket,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::flood::review;

const CONNECTIONS: usize = 1_000;

/// The time for all of them to be closed.
const CLOSED_WITHIN: Duration = Duration::from_mins(2);

/// The most memory of a server at any time, in KiB: a quarter of the webhook's limit.
const MOST_MEMORY: u64 = 128 * 1024;

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
}

fn connector(world: &World) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let authority = world.cluster.directory().join("webhook/ca.crt");
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()).into()
}

/// Sends headers until the server closes the connection.
async fn send_headers(mut stream: impl AsyncWrite + Unpin) {
    let mut sent = stream.write_all(b"GET /live HTTP/1.1\r\n").await;
    let header = [b"a: ".as_slice(), &[b'b'; 1_000], b"\r\n"].concat();
    while sent.is_ok() {
        sent = stream.write_all(&header).await;
    }
}

async fn attack(number: usize, port: u16, tls: Option<TlsConnector>) {
    let peer = u8::try_from(2 + number % 8).unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, peer], 0).into()).unwrap();
    let Ok(stream) = socket.connect(([127, 0, 0, 1], port).into()).await else { return };
    let Some(tls) = tls else { return send_headers(stream).await };
    let name = ServerName::try_from("127.0.0.1").unwrap();
    if let Ok(stream) = tls.connect(name, stream).await {
        send_headers(stream).await;
    }
}

fn most_resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_headers_are_cut_off_on_all_ports_while_probes_and_reviews_are_answered() {
    let world = &Box::pin(scheduling::world("ports", &Value::Null)).await.unwrap();
    let keeper = Keeper::start(world, &[]).await;
    let [webhook, _] = world.tenure.admin_urls();
    let tls = connector(world);
    let ports = [
        (port(world.tenure.webhook_url()), Some(tls)),
        (port(webhook), None),
        (port(keeper.admin_url()), None),
    ];
    let attacks: Vec<JoinHandle<()>> = (0..CONNECTIONS)
        .flat_map(|number| ports.clone().map(|(port, tls)| tokio::spawn(attack(number, port, tls))))
        .collect();
    let (closed, caller) = (timeout(CLOSED_WITHIN, join_all(attacks)), Caller::new(world, None));
    let mut closed = Box::pin(closed);
    let closed = loop {
        let answered = async {
            Metrics::of(webhook).await;
            keeper.metrics().await;
            caller
                .post("/validate", review("scheduling.run.ai", "Queue", "queues", "CREATE"))
                .await
                .unwrap()
                .0
        };
        tokio::select! {
            closed = &mut closed => break closed,
            answered = timeout(Duration::from_secs(30), answered) => {
                assert_eq!(answered.expect("answers from 127.0.0.1"), StatusCode::OK);
            }
        }
    };
    assert!(closed.is_ok(), "connections stay open");
    for pid in [keeper.pid(), world.tenure.webhook_pid().await.unwrap()] {
        assert!(most_resident(pid) < MOST_MEMORY, "{} KiB", most_resident(pid));
    }
}
