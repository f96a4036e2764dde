//! A connection to the API server that can be cut, and that may have a latency: then requests are
//! on the way when it is cut.

use std::{io, time::Duration};

use anyhow::{Context, Result};
use kube::config::Kubeconfig;
use tenure_testbed::Cluster;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
    try_join,
};

use crate::proxy::Proxy;

/// A connection to the API server that can be cut. Its drop ends the connection.
pub(super) struct Way {
    proxy: Proxy,
    url: String,
    _carrier: JoinSet<()>,
}

impl Way {
    /// Starts a connection to the API server that can be cut. Requests take `latency` to the point
    /// of the cut. Answers arrive at once.
    pub async fn to(cluster: &Cluster, latency: Duration) -> Result<Self> {
        let proxy = Proxy::start(cluster.url()).await;
        let by_it = Kubeconfig::read_from(proxy.kubeconfig(cluster.kubeconfig()))?;
        let server = by_it.clusters.into_iter().find_map(|cluster| cluster.cluster?.server);
        let next = server.as_deref().and_then(|url| url.strip_prefix("https://"));
        let next = next.context("the kubeconfig has a server")?.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let mut carrier = JoinSet::new();
        carrier.spawn(accept(listener, next, latency));
        Ok(Self { proxy, url, _carrier: carrier })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn cut(&self) {
        self.proxy.cut();
    }

    pub fn heal(&self) {
        self.proxy.heal();
    }
}

async fn accept(listener: TcpListener, next: String, latency: Duration) {
    let mut connections = JoinSet::new();
    while let Ok((from, _)) = listener.accept().await {
        connections.spawn(carry(from, next.clone(), latency));
    }
}

/// Carries a connection. An error is the end of the connection, which both ends notice by
/// themselves.
async fn carry(from: TcpStream, next: String, latency: Duration) -> io::Result<()> {
    let (mut answers, to) = TcpStream::connect(next).await?.into_split();
    let (from, mut back) = from.into_split();
    let (sender, on_the_way) = mpsc::unbounded_channel();
    let answer = async {
        copy(&mut answers, &mut back).await?;
        back.shutdown().await
    };
    try_join!(depart(from, sender, latency), arrive(on_the_way, to), answer).map(drop)
}

/// Data that is sent together, and its time of arrival. Empty: the sender has closed its end.
type Piece = (Instant, Vec<u8>);

/// Reads what a client sends, without waiting for its arrival.
async fn depart(
    mut from: OwnedReadHalf,
    way: mpsc::UnboundedSender<Piece>,
    latency: Duration,
) -> io::Result<()> {
    loop {
        let mut piece = Vec::with_capacity(16 * 1024);
        // a failed read counts as the end: what was read before is sent all the same
        let count = from.read_buf(&mut piece).await.unwrap_or_default();
        if way.send((Instant::now() + latency, piece)).is_err() || count == 0 {
            return Ok(());
        }
    }
}

/// Delivers each piece at its time.
async fn arrive(mut way: mpsc::UnboundedReceiver<Piece>, mut to: OwnedWriteHalf) -> io::Result<()> {
    while let Some((time, piece)) = way.recv().await {
        sleep_until(time).await;
        if piece.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&piece).await?;
    }
    Ok(())
}
