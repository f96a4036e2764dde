//! Sends new connections to the servers that are ready, in turns. Connections that are open stay
//! where they are, as with a Service.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Carries connections until it is dropped.
pub(super) struct Balancer {
    /// The ports of the servers that are ready.
    ready: watch::Sender<Vec<u16>>,
    _carrier: JoinSet<()>,
}

impl Balancer {
    /// Listens on a port of 127.0.0.1. No server is ready at first.
    pub async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.context("the balancer's port")?;
        let ready = watch::Sender::default();
        let mut carrier = JoinSet::new();
        carrier.spawn(accept(listener, ready.subscribe()));
        Ok(Self { ready, _carrier: carrier })
    }

    /// Notes that a server that listens on this port of 127.0.0.1 is ready, or isn't.
    pub fn set_ready(&self, port: u16, is_ready: bool) {
        self.ready.send_modify(|ready| {
            ready.retain(|other| *other != port);
            ready.extend(is_ready.then_some(port));
        });
    }
}

async fn accept(listener: TcpListener, ready: watch::Receiver<Vec<u16>>) {
    let (mut connections, mut turn) = (JoinSet::new(), 0_usize);
    while let Ok((mut client, _)) = listener.accept().await {
        turn = turn.wrapping_add(1);
        let port = {
            let ready = ready.borrow();
            ready.get(turn.checked_rem(ready.len()).unwrap_or_default()).copied()
        };
        // without a server, the client finds its connection closed
        let Some(port) = port else { continue };
        connections.spawn(async move {
            let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            copy_bidirectional(&mut client, &mut server).await
        });
        while connections.try_join_next().is_some() {}
    }
}
