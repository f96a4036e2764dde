//! Serving HTTPS, with a certificate that may change and a shutdown that drains.

mod certificate;
mod linger;

use std::{io, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use axum::{
    Extension, Router,
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
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::server::{NoClientAuth, danger::ClientCertVerifier};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tracing::{info, warn};

use crate::{
    address::ListenAddress,
    callers::{AnyClient, ClientCa, ClientChain},
    readiness::ProcessReadiness,
    validity::CertificateEnds,
};
use certificate::{Origin, ServedCertificate};
use linger::Lingering;

pub use certificate::MadeCertificate;

/// The timeout for the handshake of a client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// The timeout for a client's next byte, in any state of the connection. API servers keep idle connections for 90 s,
/// and a server that closes one first makes a request fail.
const IDLE_TIMEOUT: Duration = Duration::from_secs(130);

/// The timeout for a client to read any byte of an answer, whose memory and turn a dead client must not hold for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// The shortest time between two checks of what may change.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The time for requests in flight, once no new ones are accepted.
const GRACE: Duration = Duration::from_secs(20);

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
    tls_reload_interval: Duration,

    /// Time after a signal to end for which requests are still accepted while the process is already unready: the time
    /// that a cluster needs to notice
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    drain_delay: Duration,
}

/// Parses the time between two checks. With none between them the process would do nothing else.
fn interval(text: &str) -> anyhow::Result<Duration> {
    let (interval, shortest) =
        (humantime::parse_duration(text)?, humantime::format_duration(SHORTEST_INTERVAL));
    ensure!(interval >= SHORTEST_INTERVAL, "must be at least {shortest}");
    Ok(interval)
}

impl TlsArgs {
    /// The time between two checks of what may change.
    pub fn reload_interval(&self) -> Duration {
        self.tls_reload_interval
    }

    /// Serves until `shutdown`, then drains. With authorities, it asks clients for a certificate, for [`ClientCa::verify`].
    /// It shows the certificate that is made, or else that of the files, and listens once there is one. The process is
    /// unready while that isn't valid.
    pub async fn serve(
        self,
        router: Router,
        authorities: Vec<ClientCa>,
        (made, ends): (Option<MadeCertificate>, CertificateEnds),
        readiness: ProcessReadiness,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        raise_open_files();
        let Self { listen, tls_cert_file, tls_key_file, tls_reload_interval, drain_delay } = self;
        let clients: Arc<dyn ClientCertVerifier> =
            if authorities.is_empty() { Arc::new(NoClientAuth) } else { AnyClient::new() };
        let origin = match made {
            None => Origin::Files { certificate: tls_cert_file, key: tls_key_file },
            Some(made) => Origin::Made(made),
        };
        let valid = readiness.awaiting("a certificate that is valid");
        let mut certificate = ServedCertificate { origin, clients, ends: ends.clone(), valid };
        let (pair, config) = tokio::select! {
            first = certificate.first() => first?,
            () = shutdown.cancelled() => return Ok(()),
        };
        let listener = listen.bind().await.with_context(|| format!("--listen {listen}"))?;
        info!(address = %listener.local_addr()?, "Serving HTTPS");

        let handle = Handle::new();
        let acceptor = Identify(RustlsAcceptor::new(config.clone()).handshake_timeout(HANDSHAKE_TIMEOUT));
        let mut server = axum_server::from_tcp(listener)?.acceptor(acceptor).handle(handle.clone());
        server.http_builder().http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
        let drain = async {
            shutdown.cancelled().await;
            readiness.drain();
            tokio::time::sleep(drain_delay).await;
            handle.graceful_shutdown(Some(GRACE));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = server.serve(draining(router, readiness.clone()).into_make_service()) => Ok(result?),
            () = certificate.reload(config, pair, tls_reload_interval) => Ok(()),
            () = reload_all(&authorities, &ends, tls_reload_interval) => Ok(()),
            () = drain => Ok(()),
        }
    }
}

/// Raises the number of files that may be open as far as this process may. Container runtimes leave it at 1,024, and
/// each connection is a file.
fn raise_open_files() {
    let bound = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: bound.maximum, ..bound }) {
        warn!(%error, now = bound.current, "Failed to raise the number of files that may be open");
    }
}

/// Tells clients not to use connections again before a shutdown: a request is lost if its connection is closed meanwhile.
fn draining(router: Router, readiness: ProcessReadiness) -> Router {
    router.layer(middleware::map_response(move |mut response: Response| {
        // hyper leaves the header out of HTTP/2, which says the same in its own way
        if readiness.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        std::future::ready(response)
    }))
}

/// Reloads the files of authorities whenever they have changed; never returns.
async fn reload_all(authorities: &[ClientCa], ends: &CertificateEnds, interval: Duration) {
    join_all(authorities.iter().map(|authority| authority.reload(ends, interval))).await;
    std::future::pending::<()>().await;
}

type Connection = Lingering<Pin<Box<TimeoutStream<TcpStream>>>>;

/// Accepts connections, and gives their requests the certificate chain that the client has shown. Without `TCP_NODELAY`
/// the first answer often waits 40 ms for an acknowledgement, and without a timeout a silent client is kept without end.
#[derive(Clone, Debug)]
struct Identify(RustlsAcceptor);

impl<S: Send + 'static> Accept<TcpStream, S> for Identify {
    type Stream = <RustlsAcceptor as Accept<Connection, S>>::Stream;
    type Service = AddExtension<S, ClientChain>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let tls = self.0.clone();
        let accepted = async move {
            stream.set_nodelay(true)?;
            let mut stream = TimeoutStream::new(stream);
            stream.set_read_timeout(Some(IDLE_TIMEOUT));
            stream.set_write_timeout(Some(WRITE_TIMEOUT));
            let (stream, service) = tls.accept(Lingering::new(Box::pin(stream)), service).await?;
            let chain = ClientChain(stream.get_ref().1.peer_certificates().map(Into::into));
            Ok((stream, Extension(chain).layer(service)))
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
        assert_eq!(parse("10ms").unwrap().tls.reload_interval(), Duration::from_millis(10));
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

    #[test]
    fn a_process_may_have_as_many_files_open_as_it_can_be_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let low = Rlimit { current: Some(256), maximum };
        setrlimit(Resource::Nofile, low).unwrap();
        raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
