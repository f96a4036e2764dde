//! Serving HTTPS, with a certificate that may change and a shutdown that drains. Called by the
//! webhook's `run` alone. The admin port may have a certificate of its own.
//!
//! Each request gets two extensions: the chain that the client has shown, for [`ClientCa::verify`],
//! and its [`Peer`].

mod certificate;
mod unused;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use axum::{
    Extension, Router,
    extract::Request,
    http::{HeaderValue, header::CONNECTION},
    middleware::{self, AddExtension},
    response::Response,
};
use axum_server::{Handle, accept::Accept, tls_rustls::RustlsAcceptor};
use clap::Args;
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use rustls::server::{NoClientAuth, danger::ClientCertVerifier};
use tenure_types::duration::for_people;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tracing::info;

use crate::{
    address::ListenAddress,
    callers::{AnyClient, ClientCa, ClientChain, Peer},
    listener::{Closable, Connection, ListenerLimits, no_place},
    readiness::ProcessReadiness,
    validity::CertificateEnds,
};
pub(crate) use certificate::{CertificateFiles, CertificateOrigin, ServedCertificate};

pub use certificate::MadeCertificate;
use unused::{UnusedConnection, UnusedConnections};

/// The timeout for the handshake of a client.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// The most connections. An API server opens a connection for each call under way when the
/// authority changes.
const CONNECTIONS: usize = 4096;

/// The connections that a peer may have, including those in handshakes, as a multiple of those that
/// it may keep. Clients with a certificate of a configured authority count among them only until
/// the handshake is done.
const HANDSHAKES: usize = 2;

/// The shortest time between two checks of files.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The time for requests in flight, once no new ones are accepted.
const GRACE: Duration = Duration::from_secs(20);

/// The longest wait for the first requests of new connections, before no more are accepted.
const FIRST_REQUESTS: Duration = Duration::from_secs(5);

/// The address and the certificate of HTTPS.
#[derive(Clone, Debug, Args)]
pub struct TlsArgs {
    /// Address of the HTTPS port; without a host, on all interfaces, of IPv6 and of IPv4
    #[arg(long, value_name = "ADDRESS", default_value = ":9443")]
    listen: ListenAddress,

    /// The certificate chain, in PEM
    #[arg(long, value_name = "FILE", default_value = "/certs/tls.crt")]
    tls_cert_file: PathBuf,

    /// The private key, in PEM
    #[arg(long, value_name = "FILE", default_value = "/certs/tls.key")]
    tls_key_file: PathBuf,

    /// Time between two checks of the certificate; a changed one is taken up without a restart
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval)]
    pub tls_reload_interval: Duration,

    /// Time after a signal to end for which requests are still accepted while the process is already unready: the time
    /// that a cluster needs to notice
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    drain_delay: Duration,
}

/// Parses the time between two checks. Without any time between them the process would do nothing
/// else.
fn interval(text: &str) -> anyhow::Result<Duration> {
    let (interval, shortest) = (humantime::parse_duration(text)?, for_people(SHORTEST_INTERVAL));
    ensure!(interval >= SHORTEST_INTERVAL, "must be at least {shortest}");
    Ok(interval)
}

impl TlsArgs {
    /// Serves until `shutdown`, then drains. With `authorities` the server asks clients for a
    /// certificate, for [`ClientCa::verify`]. It serves the self-made certificate, or else the
    /// certificate of the files, and listens once one of these is usable. The process is unready
    /// while that certificate isn't valid.
    ///
    /// To drain, the process becomes unready, serves on for the drain delay and until no connection
    /// waits for its first request, accepts no more connections, and gives requests in flight a
    /// grace period.
    ///
    /// # Errors
    /// If the files are no usable pair at the start, or the address can't be bound.
    pub async fn serve(
        self,
        router: Router,
        authorities: Vec<ClientCa>,
        (made, ends): (Option<MadeCertificate>, CertificateEnds),
        readiness: ProcessReadiness,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let Self { listen, tls_cert_file, tls_key_file, tls_reload_interval, drain_delay } = self;
        let clients: Arc<dyn ClientCertVerifier> =
            if authorities.is_empty() { Arc::new(NoClientAuth) } else { AnyClient::new() };
        let origin = match made {
            None => CertificateOrigin::Files(CertificateFiles {
                certificate: ("tls-cert-file", tls_cert_file),
                key: ("tls-key-file", tls_key_file),
            }),
            Some(made) => CertificateOrigin::Made(made),
        };
        let valid = Some(readiness.awaiting("a certificate that is valid"));
        let mut certificate = ServedCertificate { origin, clients, ends: ends.clone(), valid };
        let (pair, config) = tokio::select! {
            first = certificate.first() => first?,
            () = shutdown.cancelled() => return Ok(()),
        };
        let listener = listen.bind().await.with_context(|| format!("--listen {listen}"))?;
        info!(address = %listener.local_addr()?, "Serving HTTPS");

        let handle = Handle::new();
        let (bounds, tls) = (ListenerLimits::new(CONNECTIONS), RustlsAcceptor::new(config.clone()));
        let tls = tls.handshake_timeout(HANDSHAKE_TIMEOUT);
        let unused = UnusedConnections::default();
        let configured = authorities.iter().cloned().collect();
        let acceptor = Identify { bounds, tls, authorities: configured, unused: unused.clone() };
        let mut server = axum_server::from_tcp(listener)?.acceptor(acceptor).handle(handle.clone());
        ListenerLimits::of_server(&mut server);
        let reload_authorities = async {
            join_all(authorities.iter().map(|authority| authority.reload(&ends, tls_reload_interval))).await;
            std::future::pending::<()>().await;
        };
        let drain = async {
            shutdown.cancelled().await;
            readiness.drain();
            tokio::time::sleep(drain_delay).await;
            // a new connection would be closed before its first request is read
            unused.wait(FIRST_REQUESTS).await;
            handle.graceful_shutdown(Some(GRACE));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = server.serve(draining(router, readiness.clone()).into_make_service()) => Ok(result?),
            () = certificate.reload(config, pair, tls_reload_interval) => Ok(()),
            () = reload_authorities => Ok(()),
            () = drain => Ok(()),
        }
    }
}

/// Notes the first request of each connection, and asks clients not to use connections again before
/// a shutdown: a request is lost if its connection is closed meanwhile.
fn draining(router: Router, readiness: ProcessReadiness) -> Router {
    let router = router.layer(middleware::map_request(async |request: Request| {
        if let Some(connection) = request.extensions().get::<UnusedConnection>() {
            connection.used();
        }
        request
    }));
    router.layer(middleware::map_response(move |mut response: Response| {
        // hyper leaves the header out of HTTP/2, which says the same in its own way
        if readiness.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        std::future::ready(response)
    }))
}

/// Accepts connections over TLS, and gives their requests the certificate chain that the client has
/// shown.
#[derive(Clone, Debug)]
struct Identify {
    bounds: ListenerLimits,
    tls: RustlsAcceptor,
    authorities: Arc<[ClientCa]>,
    unused: UnusedConnections,
}

impl<S: Send + 'static> Accept<TcpStream, S> for Identify {
    type Stream = <RustlsAcceptor as Accept<Connection, S>>::Stream;
    type Service = Closable<
        AddExtension<
            AddExtension<AddExtension<<RustlsAcceptor as Accept<Connection, S>>::Service, ClientChain>, Peer>,
            UnusedConnection,
        >,
    >;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let Self { bounds, tls, authorities, unused } = self.clone();
        let unused = unused.add();
        let accepted = async move {
            let address = stream.peer_addr()?.ip().to_canonical();
            let (stream, place) = bounds.take(stream, HANDSHAKES)?;
            let (stream, service) = tls.accept(stream, service).await?;
            let chain = ClientChain(stream.get_ref().1.peer_certificates().map(Into::into));
            let is_known = authorities.iter().any(|authority| authority.verify_chain(&chain).is_ok());
            if !place.keep(is_known) {
                return Err(no_place());
            }
            let peer = Peer(Some(address).filter(|_| !is_known));
            let service = Extension(peer).layer(Extension(chain).layer(service));
            Ok((stream, Closable::new(Extension(unused).layer(service), place.task())))
        };
        accepted.boxed()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        tls: TlsArgs,
    }

    #[test]
    fn an_interval_of_no_time_is_refused() {
        let parse = |interval: &str| Flags::try_parse_from(["test", "--tls-reload-interval", interval]);
        let error = parse("0s").unwrap_err().to_string();
        assert!(
            error.contains("--tls-reload-interval") && error.contains("must be at least 10ms"),
            "{error}"
        );
        assert_eq!(parse("10ms").unwrap().tls.tls_reload_interval, Duration::from_millis(10));
    }

    #[test]
    fn it_listens_on_all_interfaces_of_ipv6_and_ipv4_unless_an_address_is_said() {
        let parse = |arguments: &[&str]| {
            let flags = Flags::try_parse_from([&["test"], arguments].concat());
            flags.map(|flags| flags.tls.listen.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(parse(&[]).unwrap(), ":9443");
        for address in ["0.0.0.0:9443", "[::]:9443", "127.0.0.1:0", "localhost:9443"] {
            assert_eq!(parse(&["--listen", address]).unwrap(), address);
        }
        let refusal = parse(&["--listen", "::9443"]).unwrap_err();
        assert!(refusal.contains("--listen") && refusal.contains("in brackets"), "{refusal}");
    }
}
