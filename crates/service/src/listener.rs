//! The listener of every port of a server: [`ListenerLimits`] of the HTTPS port and of the admin port.
//! Connections are bounded in number, in total and per peer; in the bytes that they are held for;
//! and in time. A connection beyond the bounds is closed at once, so that it costs nothing and
//! delays no other. On a full port, a peer with few connections displaces one of the peer with the
//! most.

mod linger;
mod places;
mod task;

use std::{future::ready, io, pin::Pin, sync::Arc, time::Duration};

use axum_server::{Server, accept::Accept};
use hyper_util::rt::TokioTimer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tracing::warn;

use linger::Lingering;
use places::{ConnectionPlace, ConnectionPlaces};
pub use task::Closable;

/// The timeout for a client's next byte, in any state of the connection, and for the headers of a
/// request. API servers keep idle connections for 90 s, and a server that closes a connection
/// before the client makes a request fail.
const IDLE_TIMEOUT: Duration = Duration::from_secs(130);

/// The timeout for a client to read any byte of an answer: a dead client must not hold the memory
/// and the turn of the answer for longer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// The time after which a client of HTTP/2 that sends no whole frame is pinged. In the midst of a
/// frame, or of headers in several frames, no answer to a ping can be sent. So headers are bounded
/// in time here as well, however slowly they trickle.
const PING_AFTER: Duration = Duration::from_secs(30);
/// The timeout for the answer to a ping.
const PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// One peer may keep the connections of a port divided by this number, rounded up.
const PEERS: usize = 16;

/// The most bytes of the headers of a request. The headers of an API server have some 500 bytes.
const HEADER_BYTES: u32 = 16 * 1024;

/// The most bytes of bodies that are held unread for a stream of HTTP/2.
const UNREAD_OF_STREAM: u32 = 64 * 1024;
/// The most bytes of bodies that are held unread for all streams of a connection.
const UNREAD: u32 = 256 * 1024;

/// The most requests at a time on a connection of HTTP/2.
const STREAMS: u32 = 200;

/// A connection that has a place, and gives the place up when it is dropped.
pub type Connection = Lingering<Pin<Box<TimeoutStream<TcpStream>>>>;

/// The bounds of one port. Clones share its places.
#[derive(Clone, Debug)]
pub struct ListenerLimits(ConnectionPlaces);

impl ListenerLimits {
    /// Returns the bounds of a port for this number of connections, or for a quarter of the files
    /// that the process may have open, if that is less. Raises the limit of open files first.
    pub fn new(connections: usize) -> Self {
        let files = raise_open_files().and_then(|files| usize::try_from(files / 4).ok());
        let most = files.map_or(connections, |files| files.min(connections));
        Self(ConnectionPlaces::new(most, most.div_ceil(PEERS)))
    }

    /// Sets what a connection of a server may take, in headers, bodies, streams and time.
    pub fn of_server<A: axum_server::Address, C>(server: &mut Server<A, C>) {
        let http = server.http_builder();
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(HEADER_BYTES as usize);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_TIMEOUT)
            .max_header_list_size(HEADER_BYTES)
            .initial_stream_window_size(UNREAD_OF_STREAM)
            .initial_connection_window_size(UNREAD)
            .max_concurrent_streams(STREAMS);
    }

    /// Takes a connection whose client is known later. Until then, the peer may have `times` as
    /// many connections as it may keep. Requests on the connection are answered by a [`Closable`]
    /// with the task of the place. Without `TCP_NODELAY` the first answer often waits 40 ms for an
    /// acknowledgement.
    ///
    /// # Errors
    /// If the port has no place for the connection.
    pub fn take(&self, stream: TcpStream, times: usize) -> io::Result<(Connection, Arc<ConnectionPlace>)> {
        let place = self.0.take(stream.peer_addr()?.ip(), times).ok_or_else(no_place)?;
        stream.set_nodelay(true)?;
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(IDLE_TIMEOUT));
        stream.set_write_timeout(Some(WRITE_TIMEOUT));
        Ok((Lingering::new(Box::pin(stream), Arc::clone(&place)), place))
    }
}

/// Returns the error that closes a connection beyond the bounds, or one that is displaced.
pub fn no_place() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, "too many connections")
}

/// Accepts connections in the clear, for the admin port.
impl<S> Accept<TcpStream, S> for ListenerLimits {
    type Stream = Connection;
    type Service = Closable<S>;
    type Future = std::future::Ready<io::Result<(Connection, Closable<S>)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let taken = self.take(stream, 1);
        ready(taken.map(|(connection, place)| (connection, Closable::new(service, place.task()))))
    }
}

/// Raises the number of files that may be open to the most that this process may set, and returns
/// it. Container runtimes leave the number at 1,024, and each connection is a file. None: there is
/// no limit.
fn raise_open_files() -> Option<u64> {
    let bound = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: bound.maximum, ..bound }) {
        warn!(%error, now = bound.current, "Failed to raise the number of files that may be open");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use std::{future::pending, net::SocketAddr};

    use axum::{
        Router,
        extract::{Request, State},
        routing::{get, post},
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        select,
        sync::Notify,
        task::JoinHandle,
        time::{Instant, sleep, timeout},
    };

    use super::*;

    /// Serves a port with these bounds.
    fn serve(limits: ListenerLimits, router: Router) -> (SocketAddr, JoinHandle<io::Result<()>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = axum_server::from_tcp(listener).unwrap().acceptor(limits);
        ListenerLimits::of_server(&mut server);
        (address, tokio::spawn(server.serve(router.into_make_service())))
    }

    /// Sends bytes, and then one every five seconds; returns the time until the server closes the connection.
    async fn trickle(begin: &[u8]) -> Duration {
        let (address, task) = serve(ListenerLimits::new(16), Router::new());
        let (mut from_server, mut to_server) = TcpStream::connect(address).await.unwrap().into_split();
        let closed = tokio::spawn(async move { from_server.read_to_end(&mut Vec::new()).await });
        let since = Instant::now();
        to_server.write_all(begin).await.unwrap();
        while !closed.is_finished() && since.elapsed() < 3 * IDLE_TIMEOUT {
            let _ = to_server.write_all(b"a").await;
            sleep(Duration::from_secs(5)).await;
        }
        task.abort();
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn headers_that_trickle_are_cut_off_in_time_though_a_byte_comes_every_few_seconds() {
        let slack = Duration::from_secs(10);
        let took = trickle(b"GET / HTTP/1.1\r\na: ").await;
        assert!(took <= IDLE_TIMEOUT + slack, "{took:?}");
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        // of 4,096 bytes, and of the first of several frames
        let headers = [0, 0x10, 0, 1, 0, 0, 0, 0, 1];
        let took = trickle(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &headers].concat()).await;
        assert!(took <= PING_AFTER + PONG_TIMEOUT + slack, "{took:?}");
    }

    /// Connects from an address of the loopback interface.
    async fn connect(address: SocketAddr, peer: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, peer], 0).into()).unwrap();
        socket.connect(address).await.unwrap()
    }

    async fn answered() -> &'static str {
        "answered"
    }

    /// Notes that a request is there, reads none of its body and never answers it.
    async fn held(State(begun): State<Arc<Notify>>, _request: Request) -> &'static str {
        begun.notify_one();
        pending().await
    }

    /// Sends a request, and reads the answer to its end.
    async fn ask(stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"answered") {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Waits until the server closes a connection, on which it sends nothing more.
    async fn closed(mut stream: TcpStream) {
        let read = timeout(IDLE_TIMEOUT / 2, stream.read(&mut [0])).await;
        // a reset is an end as well
        assert!(!read.unwrap().is_ok_and(|bytes| bytes > 0));
    }

    #[tokio::test]
    async fn a_newcomer_displaces_a_silent_connection_of_the_peer_with_most() {
        let limits = ListenerLimits(ConnectionPlaces::new(2, 2));
        let (address, task) = serve(limits, Router::new().route("/", get(answered)));
        let (one, other) = (connect(address, 2).await, connect(address, 2).await);
        let mut newcomer = connect(address, 3).await;
        ask(&mut newcomer).await.unwrap();
        select! { () = closed(one) => {}, () = closed(other) => {} }
        ask(&mut newcomer).await.unwrap();
        task.abort();
    }

    #[tokio::test]
    async fn a_connection_is_displaced_also_while_its_request_is_answered() {
        let (limits, begun) = (ListenerLimits(ConnectionPlaces::new(2, 2)), Arc::new(Notify::new()));
        let router = Router::new().route("/", get(answered)).route("/held", post(held));
        let (address, task) = serve(limits, router.with_state(Arc::clone(&begun)));
        let (mut busy, mut other) = (connect(address, 2).await, connect(address, 2).await);
        busy.write_all(b"POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nbody").await.unwrap();
        begun.notified().await;
        ask(&mut other).await.unwrap();
        let mut newcomer = connect(address, 3).await;
        ask(&mut newcomer).await.unwrap();
        closed(busy).await;
        ask(&mut other).await.unwrap();
        task.abort();
    }

    #[test]
    fn a_process_may_have_as_many_files_open_as_it_can_be_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // one less: tests that run meanwhile need files, too
        let low = Rlimit { current: maximum.map(|maximum| maximum - 1), maximum };
        setrlimit(Resource::Nofile, low).unwrap();
        assert_eq!(raise_open_files(), maximum);
    }
}
