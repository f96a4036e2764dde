//! A server over real TLS on the loopback, and a client that trusts it.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use clap::Parser;
use tenure_certs::CertificatePair;
use tenure_service::{
    callers::ClientCa, readiness::ProcessReadiness, tls::TlsArgs, validity::CertificateEnds,
};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};
use tokio_util::sync::CancellationToken;

/// The time after which a test has failed.
pub const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    tls: TlsArgs,
}

/// A server that runs in the background.
pub struct Server {
    pub address: SocketAddr,
    pub readiness: ProcessReadiness,
    pub shutdown: CancellationToken,
    pub ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

/// Serves with `tls.crt` and `tls.key` of a directory.
pub fn serve(router: Router, certificates: &Path, flags: &[&str]) -> Server {
    serve_clients(router, Vec::new(), certificates, flags)
}

/// Serves in the same way, with authorities of clients.
pub fn serve_clients(
    router: Router,
    authorities: Vec<ClientCa>,
    certificates: &Path,
    flags: &[&str],
) -> Server {
    tenure_service::install_crypto_provider();
    let address = free_address();
    let (certificate, key) = (certificates.join("tls.crt"), certificates.join("tls.key"));
    let own = [
        "server",
        "--listen",
        &address.to_string(),
        "--tls-cert-file",
        certificate.to_str().unwrap(),
        "--tls-key-file",
        key.to_str().unwrap(),
    ];
    let Flags { tls } = Flags::parse_from(own.iter().chain(flags));
    let certificates = (None, CertificateEnds::default());
    let (readiness, shutdown) = (ProcessReadiness::default(), CancellationToken::new());
    let ended =
        tokio::spawn(tls.serve(router, authorities, certificates, readiness.clone(), shutdown.clone()));
    Server { address, readiness, shutdown, ended }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Connects as a client that trusts one authority and speaks `protocols`, best first.
pub async fn connect(
    address: SocketAddr,
    authority: &str,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    connect_as(address, authority, protocols, None).await
}

/// Connects in the same way, as a client that shows a certificate.
pub async fn connect_as(
    address: SocketAddr,
    authority: &str,
    protocols: &[&str],
    client: Option<&CertificatePair>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match client {
        None => config.with_no_client_auth(),
        Some(CertificatePair { certificate, key }) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Asks again and again, until there is an answer.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asked).await.expect(what)
}
