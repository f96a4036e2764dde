//! Connections to receivers: TLS by public or by own authorities, and proxies by the usual
//! environment variables.
//!
//! The `Poster` of a receiver makes a client here, and a new one when the authorities change.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::{
        legacy::{
            Client,
            connect::{HttpConnector, proxy::Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use thiserror::Error;
use tokio::net::TcpStream;
use tower::Service;

/// The longest time for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The most idle connections to a host.
const IDLE_CONNECTIONS: usize = 4;

/// A client for https and http, which speaks HTTP/1.1.
pub type HttpClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why no client can be made with these authorities.
#[derive(Debug, Error)]
pub enum BadAuthorities {
    /// The file isn't in PEM.
    #[error(transparent)]
    Pem(rustls::pki_types::pem::Error),
    /// A certificate can't be used as an authority.
    #[error(transparent)]
    Certificate(rustls::Error),
    /// The file has no certificate.
    #[error("it has none")]
    None,
}

/// Returns a client that trusts these authorities in PEM. None: the public ones.
pub fn client(authorities: Option<&[u8]>) -> Result<HttpClient, BadAuthorities> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(BadAuthorities::Pem)?;
                roots.add(certificate).map_err(BadAuthorities::Certificate)?;
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    if roots.is_empty() {
        return Err(BadAuthorities::None);
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(Connector::with(Matcher::from_env()));
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(connector);
    Ok(client)
}

/// Connects to an address. For https, takes a proxy if the environment names one.
#[derive(Clone, Debug)]
pub struct Connector {
    direct: HttpConnector,
    proxies: Arc<Matcher>,
}

impl Connector {
    /// Creates a connector with these proxies.
    fn with(proxies: Matcher) -> Self {
        let mut direct = HttpConnector::new();
        direct.enforce_http(false);
        direct.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self { direct, proxies: Arc::new(proxies) }
    }

    /// Returns the proxy on the way to an address. None: no proxy, as for any address of plain
    /// http. Fails for a proxy whose own URL isn't of plain http.
    fn proxy(&self, to: &Uri) -> Result<Option<Intercept>, io::Error> {
        let proxy = self.proxies.intercept(to).filter(|_| to.scheme() == Some(&Scheme::HTTPS));
        if proxy.as_ref().is_some_and(|proxy| proxy.uri().scheme() != Some(&Scheme::HTTP)) {
            return Err(io::Error::other("HTTPS_PROXY or ALL_PROXY must be a proxy by http://"));
        }
        Ok(proxy)
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let proxy = self.proxy(&to);
        let mut direct = self.direct.clone();
        Box::pin(async move {
            let Some(proxy) = proxy? else { return Ok(direct.call(to).await?) };
            let tunnel = Tunnel::new(proxy.uri().clone(), direct);
            let mut tunnel = match proxy.basic_auth() {
                Some(user) => tunnel.with_auth(user.clone()),
                None => tunnel,
            };
            Ok(tunnel.call(to).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    fn proxy(matcher: Matcher, to: &'static str) -> Result<Option<String>, String> {
        let proxy = Connector::with(matcher).proxy(&Uri::from_static(to));
        proxy.map(|proxy| proxy.map(|proxy| proxy.uri().to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn https_takes_the_proxy_of_the_environment_unless_that_excepts_the_host() {
        let matcher = || Matcher::builder().https("http://proxy:3128").no("example.com,10.0.0.0/8").build();
        assert_eq!(proxy(matcher(), "https://hooks.test/x"), Ok(Some("http://proxy:3128/".into())));
        for direct in ["https://a.example.com", "https://10.1.2.3", "http://hooks.test"] {
            assert_eq!(proxy(matcher(), direct), Ok(None), "{direct}");
        }
        let other = Matcher::builder().all("socks5://user:secret@proxy").build();
        let error = proxy(other, "https://hooks.test").unwrap_err();
        assert!(error.starts_with("HTTPS_PROXY or ALL_PROXY must be") && !error.contains("secret"));
    }

    #[tokio::test]
    async fn a_proxy_learns_the_host_and_gets_its_own_password() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://me:word@{}", listener.local_addr().unwrap());
        let seen = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let (mut bytes, mut seen) = ([0; 1024], String::new());
            while !seen.ends_with("\r\n\r\n") {
                let read = connection.read(&mut bytes).await.unwrap();
                seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            seen
        });
        let mut connector = Connector::with(Matcher::builder().https(proxy).build());
        connector.call(Uri::from_static("https://hooks.test/secret")).await.unwrap();
        let seen = seen.await.unwrap();
        assert!(seen.starts_with("CONNECT hooks.test:443 HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("Proxy-Authorization: Basic bWU6d29yZA==\r\n"), "{seen}");
        assert!(!seen.contains("secret"), "{seen}");
    }

    #[test]
    fn authorities_are_certificates() {
        assert!(client(None).is_ok());
        for bad in ["", "x", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"] {
            assert!(client(Some(bad.as_bytes())).is_err(), "{bad}");
        }
    }
}
