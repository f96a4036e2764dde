//! A receiver of messages on loopback, as good or as bad as a test needs it. It ends with the
//! runtime of the test that starts it.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use futures::future::Either;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Empty};
use hyper::{
    body::{Bytes, Incoming},
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serde_json::Value;
use tenure_certs::CertificatePair;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// The treatment of a message by an inbox. Each message is kept, also one that is refused or hangs.
#[derive(Clone, Copy, Debug)]
pub enum InboxAnswer {
    /// The inbox takes the message, with status 204.
    Takes,
    /// The inbox answers with this status.
    Status(u16),
    /// The inbox never answers.
    Hangs,
}

/// A message that an inbox got.
#[derive(Clone, Debug)]
pub struct Posted {
    /// The headers of the request.
    pub headers: HeaderMap,
    /// The path of the request.
    pub path: String,
    /// The body, which is JSON. Null: it isn't.
    pub body: Value,
}

/// A receiver of messages. Its drop closes the port and all connections.
pub struct Inbox {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

struct Shared {
    answer: InboxAnswer,
    posted: Mutex<Vec<Posted>>,
    connections: AtomicUsize,
}

impl Inbox {
    /// Starts an inbox for plain HTTP.
    pub async fn start(answer: InboxAnswer) -> Self {
        Self::serve("http", answer, None).await
    }

    /// Starts an inbox for TLS, with this certificate, that takes all messages.
    pub async fn with_certificate(pair: &CertificatePair) -> Self {
        let certificates = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
        let certificates = certificates.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap();
        Self::serve("https", InboxAnswer::Takes, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(scheme: &str, answer: InboxAnswer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (posted, connections) = (Mutex::default(), AtomicUsize::default());
        let shared = Arc::new(Shared { answer, posted, connections });
        let mut server = JoinSet::new();
        server.spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { url, shared, _server: server }
    }

    /// Returns its URL, without a path.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the messages so far, in order.
    pub fn posted(&self) -> Vec<Posted> {
        self.shared.posted.lock().unwrap().clone()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Relaxed)
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Relaxed);
        connections.spawn(carry(connection, tls.clone(), Arc::clone(&shared)));
    }
}

/// Serves one connection. An error ends the connection.
async fn carry(connection: TcpStream, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let served = match tls {
        None => Either::Left(serve(TokioIo::new(connection), shared)),
        Some(tls) => Either::Right(async move {
            if let Ok(connection) = tls.accept(connection).await {
                serve(TokioIo::new(connection), shared).await;
            }
        }),
    };
    served.await;
}

async fn serve(io: impl Read + Write + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request| answer(request, Arc::clone(&shared)));
    drop(http1::Builder::new().serve_connection(io, service).await);
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let posted = Posted { headers: head.headers, path: head.uri.path().to_owned(), body };
    shared.posted.lock().unwrap().push(posted);
    let status = match shared.answer {
        InboxAnswer::Takes => StatusCode::NO_CONTENT,
        InboxAnswer::Status(status) => StatusCode::from_u16(status).unwrap(),
        InboxAnswer::Hangs => pending().await,
    };
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    Ok(response)
}
