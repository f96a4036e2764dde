//! Connections that the server closes last. A shutdown waits until the client has closed its end,
//! for at most 5 seconds and 64 KiB. A connection whose place goes to another is closed at once.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::places::ConnectionPlace;

/// The time for a client to close its end, once all answers are sent.
const LINGER: Duration = Duration::from_secs(5);

/// The most bytes that are read in that time. An update of an HTTP/2 window has 13.
const LINGER_BYTES: usize = 64 * 1024;

/// A stream that is read to its end after its shutdown, and whose bytes are dropped.
///
/// The kernel answers bytes for a closed socket with a reset. A client of HTTP/2 that still sends,
/// such as an update of a window, then drops responses that it already has.
#[derive(Debug)]
pub struct Lingering<S> {
    stream: S,
    /// The place of the connection, given up when the stream is dropped.
    place: Arc<ConnectionPlace>,
    /// The end of the time to linger. None: the stream isn't shut down yet.
    until: Option<Pin<Box<Sleep>>>,
    /// The bytes that may still be read until then.
    most: usize,
}

impl<S> Lingering<S> {
    /// Wraps a stream that holds a place.
    pub fn new(stream: S, place: Arc<ConnectionPlace>) -> Self {
        Self { stream, place, until: None, most: LINGER_BYTES }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, place, .. } = &mut *self;
        place.task().transfer(cx, |cx| Pin::new(stream).poll_read(cx, into))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, place, .. } = &mut *self;
        place.task().transfer(cx, |cx| Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, place, .. } = &mut *self;
        place.task().transfer(cx, |cx| Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.place.task().check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, place, until, most } = &mut *self;
        place.task().check(cx)?;
        if until.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
        }
        let until = until.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut bytes = [0; 1024];
        while until.as_mut().poll(cx).is_pending() {
            let mut unread = ReadBuf::new(&mut bytes);
            // an error is an end as well
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut unread));
            let bytes = unread.filled().len();
            *most = most.saturating_sub(bytes);
            if read.is_err() || bytes == 0 || *most == 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        spawn,
    };

    use super::{super::places::ConnectionPlaces, *};

    /// A client's end of a connection whose server answers and then closes.
    async fn answered() -> (TcpStream, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let mut server = Lingering::new(stream, ConnectionPlaces::new(1, 1).take(peer.ip(), 1).unwrap());
        let ends = spawn(async move {
            server.write_all(b"answer").await.unwrap();
            server.shutdown().await.unwrap();
        });
        (client, ends)
    }

    #[tokio::test]
    async fn what_a_client_sends_after_the_last_answer_resets_nothing() {
        let (mut client, ends) = answered().await;
        for _ in 0..3 {
            client.write_all(b"a window").await.unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        for _ in 0..3 {
            client.write_all(b"a window").await.unwrap();
        }
        assert!(!ends.is_finished());
        drop(client);
        ends.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_is_waited_for_five_seconds() {
        let (client, ends) = answered().await;
        let begin = tokio::time::Instant::now();
        ends.await.unwrap();
        assert_eq!(begin.elapsed().as_secs(), LINGER.as_secs());
        drop(client);
    }
}
