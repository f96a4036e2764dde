//! Two proxies on the way to the API server: a network that can be cut, and one that knows the API
//! and can break it.
//!
//! [`Proxy`] carries bytes. [`ApiProxy`] terminates TLS, and does by [`Rule`]s what networks and
//! API servers do when they fail.

mod api;
mod call;
mod events;
mod rule;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use api::{ApiProxy, Scope, Write};
pub use call::{Call, DRY_RUN};
pub use rule::{Active, FaultAction, Match, Rule};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    try_join,
};

/// The traffic that passes.
#[derive(Clone, Copy, Default)]
struct Network {
    is_cut: bool,
    /// The present generation. Connections of an older one are dead.
    generation: u32,
}

/// Carries connections to a server. Its drop ends the proxy and its connections.
///
/// It lives on the runtime of the test that starts it, so a test that blocks its runtime blocks the
/// proxy.
pub struct Proxy {
    server: String,
    url: String,
    network: watch::Sender<Network>,
    _carrier: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy on the way to a server: `https://<host>:<port>`.
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let network = watch::Sender::new(Network::default());
        let address = server.strip_prefix("https://").expect("a URL of HTTPS").to_owned();
        let mut carrier = JoinSet::new();
        carrier.spawn(accept(listener, address, network.subscribe()));
        Self { server: server.into(), url, network, _carrier: carrier }
    }

    /// Writes a copy of a kubeconfig that takes this way, and returns its path.
    pub fn kubeconfig(&self, original: &Path) -> PathBuf {
        let content = fs::read_to_string(original).unwrap();
        assert!(content.contains(&self.server), "{} is for another server", original.display());
        let port = self.url.rsplit(':').next().unwrap();
        let copy = original.with_extension(format!("by-{port}.kubeconfig"));
        fs::write(&copy, content.replace(&self.server, &self.url)).unwrap();
        copy
    }

    /// Returns its own URL: `https://<host>:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops all traffic without a sign: connections are accepted and stay open, old ones too.
    pub fn cut(&self) {
        self.network.send_modify(|network| network.is_cut = true);
    }

    /// Lets all traffic pass again, beginning with the data that was sent in the meantime, even by
    /// clients that have given up.
    pub fn heal(&self) {
        self.network.send_modify(|network| network.is_cut = false);
    }

    /// Stops all traffic on the open connections without a sign, as if a device between had
    /// forgotten them. New connections work.
    pub fn strand(&self) {
        self.network.send_modify(|network| network.generation += 1);
    }
}

async fn accept(listener: TcpListener, server: String, network: watch::Receiver<Network>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let generation = network.borrow().generation;
        let gate = Gate { network: network.clone(), generation };
        connections.spawn(carry(client, server.clone(), gate));
    }
}

/// Lets the data of one connection through, as long as the network lets its generation.
#[derive(Clone)]
struct Gate {
    network: watch::Receiver<Network>,
    generation: u32,
}

impl Gate {
    /// Returns when data may pass.
    async fn open(&mut self) {
        let open = |network: &Network| !network.is_cut && network.generation == self.generation;
        // an error means that the proxy is gone, which ends this connection
        let _ = self.network.wait_for(open).await;
    }
}

/// Carries a connection. An error is the end of the connection, which both ends notice by
/// themselves.
async fn carry(client: TcpStream, server: String, mut gate: Gate) -> io::Result<()> {
    gate.open().await;
    let server = TcpStream::connect(server).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = forward(from_client, to_server, gate.clone());
    let back = forward(from_server, to_client, gate);
    try_join!(there, back).map(drop)
}

/// Carries one direction of a connection. What was read before a cut passes after it.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: Gate) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        gate.open().await;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}
