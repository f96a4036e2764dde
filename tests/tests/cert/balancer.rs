//! A Service in front of several webhooks: it passes connections on to ready ones.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// The time between two looks at who is ready: a cluster takes longer, and a webhook waits longer before it closes.
const LOOK: Duration = Duration::from_millis(50);

/// A webhook behind the balancer.
#[derive(Clone, Copy)]
pub struct Backend {
    pub port: u16,
    pub admin: u16,
}

/// The most connections that wait to be accepted. A Service has no such bound.
const BACKLOG: u32 = 4096;

/// Ends when it is dropped, and its connections with it.
pub struct Balancer {
    _tasks: JoinSet<()>,
}

impl Balancer {
    /// Listens on a port of 127.0.0.1.
    pub fn start(port: u16, backends: Vec<Backend>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], port).into()).unwrap();
        let listener = socket.listen(BACKLOG).unwrap();
        let ready = watch::Sender::new(Vec::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, ready.subscribe()));
        tasks.spawn(async move {
            loop {
                let mut found = Vec::new();
                for backend in &backends {
                    if is_ready(backend.admin).await {
                        found.push(backend.port);
                    }
                }
                ready.send_replace(found);
                sleep(LOOK).await;
            }
        });
        Self { _tasks: tasks }
    }
}

/// True if a probe of `/ready` is answered with 200.
pub async fn is_ready(admin: u16) -> bool {
    let probe = async {
        let mut stream = TcpStream::connect(("127.0.0.1", admin)).await?;
        stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok(answer.ends_with(b" 200"))
    };
    matches!(timeout(Duration::from_secs(1), probe).await, Ok(Ok(true)))
}

async fn accept(listener: TcpListener, ready: watch::Receiver<Vec<u16>>) {
    let mut connections = JoinSet::new();
    let turn = Arc::new(AtomicUsize::new(0));
    while let Ok((mut client, _)) = listener.accept().await {
        let backends = ready.borrow().clone();
        let start = turn.fetch_add(1, Relaxed);
        connections.spawn(async move {
            for offset in 0..backends.len() {
                let port = backends[(start + offset) % backends.len()];
                if let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await {
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    // an error is the end of a connection, which both ends notice by themselves
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                    return;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}
