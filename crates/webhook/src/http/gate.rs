//! The bounds on request bodies: bytes, memory and time.
//!
//! The routes of admission share one [`LargeBodies`]; `/convert` has one of its own. A body takes
//! its bytes first from the room of its peer and then from the room of all peers. So a peer that
//! never completes its bodies blocks only itself. The less room is free, the less a peer may hold. So
//! however many peers never complete their bodies, one that holds little finds room.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::StatusCode,
};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tenure_service::callers::Peer;
use tokio::{
    select,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tower_http::timeout::TimeoutLayer;

use crate::admission_review::MAX_BODY_BYTES;

/// The number of parts of all bytes: a peer may take one part at most, and one more body at a time.
const PEERS: usize = 16;

/// The number of parts of the bytes that are free: a peer may take bytes until it holds one of these
/// parts. Half of all bytes are still free when this number of peers hold the most that they may.
const PEERS_OF_FREE: usize = PEERS / 2;

/// The bytes of large review bodies in memory at the same time, over all paths: one body of the
/// largest size for each part.
const LARGE_IN_FLIGHT: usize = PEERS * MAX_BODY_BYTES;

/// A body of more bytes than this is large. An ordinary review has a tenth of it.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;

/// The bytes in memory of all other bodies, and of the first [`LARGE_BYTES`] of large bodies.
const SMALL_IN_FLIGHT: usize = 32 * 1024 * 1024;

/// The time limit of a review, including its turn and its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The least rate of a body after its first [`BODY_TIMEOUT`], in bytes per second.
const LEAST_RATE: u64 = 1024 * 1024;

/// Bounds the bytes of bodies in memory. Clones share one bound: a process has one memory for all
/// paths.
///
/// A body takes bytes as they arrive, not as its sender announces them: a body that never arrives
/// blocks no other. A body also takes its bytes from the part of its [peer](Peer): a body that
/// stays incomplete blocks only bodies of the same peer.
#[derive(Clone, Debug)]
pub struct LargeBodies {
    /// The room of all peers together.
    all: Arc<BodyRoom>,
    /// The rooms of the peers that have a body in memory.
    peers: Arc<Mutex<HashMap<IpAddr, Weak<BodyRoom>>>>,
    /// The bytes of large bodies in the room of all peers.
    in_flight: usize,
    /// The size limit of one body, in bytes.
    largest: usize,
}

/// Bytes that bodies can take at the same time.
#[derive(Debug)]
struct BodyRoom {
    /// The bytes for small bodies, and for the beginnings of large ones.
    small: ByteRoom,
    /// The bytes for the rest of large bodies.
    large: ByteRoom,
    /// The turn of the one body that goes on although all bytes are taken. Otherwise two incomplete
    /// bodies could wait for each other.
    last: Arc<Semaphore>,
}

/// A number of bytes, with a permit for each free one.
#[derive(Debug)]
struct ByteRoom {
    bytes: usize,
    free: Arc<Semaphore>,
}

/// The turn of a request. Its bytes stay taken until the turn is dropped, even if the work goes on
/// without the caller.
#[derive(Debug, Default)]
pub(crate) struct RequestTurn(Vec<BodyShare>);

/// The bytes that a body has taken from one room.
#[derive(Debug)]
struct BodyShare {
    room: Arc<BodyRoom>,
    bytes: Vec<OwnedSemaphorePermit>,
    /// True if the body has the turn that needs no room.
    is_last: bool,
}

/// The status of a refused request, and the message for its caller.
pub(crate) type HttpRefusal = (StatusCode, String);

/// A body that was read to its end or refused, and its turn.
pub(crate) struct ReceivedBody {
    pub body: Result<Bytes, HttpRefusal>,
    pub turn: RequestTurn,
}

/// Returns the refusal of a body of more than `most` bytes.
pub(crate) fn body_too_large(most: usize) -> HttpRefusal {
    (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {most} bytes"))
}

impl Default for LargeBodies {
    fn default() -> Self {
        Self::new(LARGE_IN_FLIGHT, MAX_BODY_BYTES)
    }
}

impl LargeBodies {
    /// Creates room for `in_flight` bytes of large bodies at the same time, and for one more body.
    /// A body of more than `largest` bytes is refused with 413.
    pub(crate) fn new(in_flight: usize, largest: usize) -> Self {
        let all = Arc::new(BodyRoom::new(SMALL_IN_FLIGHT, in_flight));
        Self { all, peers: Arc::default(), in_flight, largest }
    }

    /// Reads a body as fast as its peer and all peers together have room. A peer without an address
    /// has a client certificate, and needs only the room of all peers.
    pub(crate) async fn read(&self, body: Body, peer: Peer) -> ReceivedBody {
        let rooms = peer.0.map(|peer| self.of_peer(peer)).into_iter().chain([Arc::clone(&self.all)]);
        let share = |room| BodyShare { room, bytes: Vec::new(), is_last: false };
        let mut turn = RequestTurn(rooms.map(share).collect());
        let body = self.receive(body, &mut turn).await;
        ReceivedBody { body, turn }
    }

    /// Returns the room of a peer. A room goes away with the last body in it.
    fn of_peer(&self, peer: IpAddr) -> Arc<BodyRoom> {
        let mut peers = self.peers.lock();
        if let Some(room) = peers.get(&peer).and_then(Weak::upgrade) {
            return room;
        }
        peers.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(BodyRoom::new(SMALL_IN_FLIGHT / PEERS, self.in_flight / PEERS));
        peers.insert(peer, Arc::downgrade(&room));
        room
    }

    /// Receives a body part by part. Errors: 408 for a body that is too slow, 413 for one that is
    /// too large, and 400 for one that breaks off.
    async fn receive(&self, mut body: Body, turn: &mut RequestTurn) -> Result<Bytes, HttpRefusal> {
        let (mut begun, mut whole) = (Instant::now(), Vec::new());
        loop {
            let most = BODY_TIMEOUT + Duration::from_secs(whole.len() as u64 / LEAST_RATE);
            let frame = timeout_at(begun + most, body.frame()).await;
            let frame = frame.map_err(|_| {
                (StatusCode::REQUEST_TIMEOUT, format!("the body takes longer than {} s", most.as_secs()))
            })?;
            let Some(frame) = frame else { return Ok(whole.into()) };
            let frame = frame.map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("the body can't be read to its end: {error}"))
            })?;
            let Some(data) = frame.data_ref() else { continue };
            let length = whole.len().saturating_add(data.len());
            if length > self.largest {
                return Err(body_too_large(self.largest));
            }
            let waits = Instant::now();
            // a body beyond its peer's part must not take room that other peers need
            let mut is_within = turn.is_within(length, data.len());
            for share in &mut turn.0 {
                is_within = share.take(length, data.len(), is_within).await;
            }
            // the wait for room doesn't count as the sender's time
            begun += waits.elapsed();
            whole.extend_from_slice(data);
        }
    }
}

impl RequestTurn {
    /// True if the peer may take `more` bytes for a body that then has `length` bytes: with them, it
    /// holds no more than its part of the free bytes of all peers. A peer without an address may.
    fn is_within(&self, length: usize, more: usize) -> bool {
        let [peer, all] = self.0.as_slice() else { return true };
        let [peer, all] = [peer, all].map(|share| share.room.for_length(length));
        let taken = peer.bytes.saturating_sub(peer.free.available_permits());
        taken.saturating_add(more) <= all.free.available_permits() / PEERS_OF_FREE
    }
}

impl BodyRoom {
    fn new(small: usize, large: usize) -> Self {
        let [small, large] = [small, large].map(ByteRoom::new);
        Self { small, large, last: Arc::new(Semaphore::new(1)) }
    }

    /// Returns the room for the next bytes of a body, which then has `length` bytes.
    fn for_length(&self, length: usize) -> &ByteRoom {
        if length as u64 <= LARGE_BYTES { &self.small } else { &self.large }
    }
}

impl ByteRoom {
    fn new(bytes: usize) -> Self {
        Self { bytes, free: Arc::new(Semaphore::new(bytes)) }
    }
}

impl BodyShare {
    /// Takes room for `more` bytes of a body, which then has `length` bytes, or the turn that needs
    /// no room, as soon as either is free. Without `has_room`, waits for this turn alone. Returns
    /// false if the body has this turn.
    async fn take(&mut self, length: usize, more: usize, has_room: bool) -> bool {
        if self.is_last {
            return false;
        }
        let (bytes, last) = (&self.room.for_length(length).free, &self.room.last);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let taken = select! {
            biased;
            taken = Arc::clone(bytes).acquire_many_owned(more), if has_room => taken,
            last = Arc::clone(last).acquire_owned() => {
                self.is_last = true;
                last
            }
        };
        // an error would mean that a semaphore was closed, which never happens
        self.bytes.extend(taken.ok());
        !self.is_last
    }
}

impl<S: Sync> FromRequest<S> for ReceivedBody {
    type Rejection = Infallible;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, Infallible> {
        let bodies: LargeBodies = request.extensions_mut().remove().unwrap_or_default();
        let peer = Peer::of(request.extensions());
        Ok(bodies.read(request.into_body(), peer).await)
    }
}

/// Returns the router with the bounds of reviews: the size of a body, the bytes in memory and the
/// time. A request that takes too long gets 408.
pub(crate) fn limited(router: Router, bodies: &LargeBodies) -> Router {
    router
        .layer(Extension(bodies.clone()))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT))
}
