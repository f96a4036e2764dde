//! The connections to the page: HTTP/1 only, bounded in number, bytes and time.
//!
//! Called by the server. Every user of the machine can open connections to the port. Without bounds
//! they would take all files that the process may open, and then it couldn't reach the API server.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Extension, Router, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, task::JoinHandle};

/// The most connections at a time: an eighth of the files that a process may usually open.
pub const CONNECTIONS: usize = 128;

/// The timeout for the headers of a request, which starts when the connection is idle.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of the headers of a request. Browsers send the cookies of all ports of a host.
const HEADER_BYTES: usize = 64 * 1024;

/// A connection, as its requests know it: an extension of each.
#[derive(Clone, Debug, Default)]
pub struct PageConnection(Arc<AtomicBool>);

impl PageConnection {
    /// Keeps the place of the connection from newcomers: its browser has signed in.
    pub fn keep(&self) {
        self.0.store(true, Relaxed);
    }

    /// True if the connection has a request of a browser that has signed in.
    fn is_kept(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Serves requests to a port. On a full port, a newcomer displaces the oldest connection without a
/// signed-in browser. Never returns.
pub async fn serve(mut listener: TcpListener, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEADER_BYTES);
    let mut open: VecDeque<(PageConnection, JoinHandle<()>)> = VecDeque::new();
    loop {
        let (stream, _) = Listener::accept(&mut listener).await;
        open.retain(|(_, task)| !task.is_finished());
        if open.len() >= CONNECTIONS {
            let oldest = open.iter().position(|(connection, _)| !connection.is_kept());
            let Some((_, task)) = oldest.and_then(|oldest| open.remove(oldest)) else { continue };
            task.abort();
            // an error means that the task was aborted; its socket is closed now
            let _ = task.await;
        }
        let connection = PageConnection::default();
        let service = TowerToHyperService::new(router.clone().layer(Extension(connection.clone())));
        let served = http.serve_connection(TokioIo::new(stream), service);
        let task = tokio::spawn(async move {
            // a client that breaks off is no failure of the server
            let _ = served.await;
        });
        open.push_back((connection, task));
    }
}
