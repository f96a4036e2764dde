//! The bounds of what requests take: bytes, memory and time.

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

use crate::review::MAX_BODY_BYTES;

/// Each peer has this part of all bytes, and one more body if no other has it: with fewer than so many peers that send halves of
/// bodies, another finds room.
const PEERS: usize = 16;

/// Bytes of large bodies of reviews that are held at the same time, on all paths together: one of the largest of each peer.
const LARGE_IN_FLIGHT: usize = PEERS * MAX_BODY_BYTES;

/// The size from which a body is large, in bytes: ten times an ordinary review.
pub(crate) const LARGE_BYTES: u64 = 64 * 1024;

/// Bytes of all other bodies, and of the beginnings of large ones.
const SMALL_IN_FLIGHT: usize = 32 * 1024 * 1024;

/// The longest time for a request, its turn and its body included.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The least bytes a second of a body after its first [`BODY_TIMEOUT`].
const LEAST_RATE: u64 = 1024 * 1024;

/// The bytes of bodies that are in memory. Clones share them: a process has one memory, however many paths lead into it. A body
/// takes them as they come, and not as its sender announces them: one that doesn't come is in the way of none. A body takes them
/// from those of its [peer](Peer), too: one that stays half is in the way of that peer's alone.
#[derive(Clone, Debug)]
pub struct LargeBodies {
    all: Arc<Room>,
    peers: Arc<Mutex<HashMap<IpAddr, Weak<Room>>>>,
    in_flight: usize,
    largest: usize,
}

/// Bytes that bodies can take at the same time.
#[derive(Debug)]
struct Room {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// The turn of a body that goes on although all bytes are taken: otherwise two halves could wait for each other.
    last: Arc<Semaphore>,
}

/// The turn of a request: the bytes that it takes until this is dropped, also where the work goes on without the caller.
#[derive(Debug, Default)]
pub(crate) struct Turn(Vec<Share>);

/// The bytes that a body takes of a room.
#[derive(Debug)]
struct Share {
    room: Arc<Room>,
    bytes: Vec<OwnedSemaphorePermit>,
    is_last: bool,
}

/// The reason why a body can't be read, and the status to answer with.
pub(crate) type Refusal = (StatusCode, String);

/// A body that was read to its end, and its turn.
pub(crate) struct Whole {
    pub body: Result<Bytes, Refusal>,
    pub turn: Turn,
}

impl Default for LargeBodies {
    fn default() -> Self {
        Self::new(LARGE_IN_FLIGHT, MAX_BODY_BYTES)
    }
}

impl LargeBodies {
    /// Turns for so many bytes of large bodies at the same time, and one more body. A body above `largest` is refused.
    pub(crate) fn new(in_flight: usize, largest: usize) -> Self {
        let all = Arc::new(Room::new(SMALL_IN_FLIGHT, in_flight));
        Self { all, peers: Arc::default(), in_flight, largest }
    }

    /// Reads a body of a peer.
    pub(crate) async fn read(&self, body: Body, peer: Peer) -> Whole {
        let rooms = peer.0.map(|peer| self.of_peer(peer)).into_iter().chain([Arc::clone(&self.all)]);
        let share = |room| Share { room, bytes: Vec::new(), is_last: false };
        let mut turn = Turn(rooms.map(share).collect());
        let body = self.receive(body, &mut turn).await;
        Whole { body, turn }
    }

    /// The room of a peer, which is forgotten with the last body in it.
    fn of_peer(&self, peer: IpAddr) -> Arc<Room> {
        let mut peers = self.peers.lock();
        if let Some(room) = peers.get(&peer).and_then(Weak::upgrade) {
            return room;
        }
        peers.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Room::new(SMALL_IN_FLIGHT / PEERS, self.in_flight / PEERS));
        peers.insert(peer, Arc::downgrade(&room));
        room
    }

    async fn receive(&self, mut body: Body, turn: &mut Turn) -> Result<Bytes, Refusal> {
        let (mut begun, mut whole) = (Instant::now(), Vec::new());
        loop {
            let most = BODY_TIMEOUT + Duration::from_secs(whole.len() as u64 / LEAST_RATE);
            let frame = timeout_at(begun + most, body.frame()).await;
            let frame =
                frame.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "the body comes too slowly".to_owned()))?;
            let Some(frame) = frame else { return Ok(whole.into()) };
            let frame = frame.map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("Failed to buffer the request body: {error}"))
            })?;
            let Some(data) = frame.data_ref() else { continue };
            let length = whole.len().saturating_add(data.len());
            if length > self.largest {
                return Err((StatusCode::PAYLOAD_TOO_LARGE, "length limit exceeded".to_owned()));
            }
            let waits = Instant::now();
            // what a peer takes beyond its part would be missing to others
            let mut is_within = true;
            for share in &mut turn.0 {
                is_within = share.take(length, data.len(), is_within).await;
            }
            // the sender isn't slow meanwhile
            begun += waits.elapsed();
            whole.extend_from_slice(data);
        }
    }
}

impl Room {
    fn new(small: usize, large: usize) -> Self {
        let [small, large, last] = [small, large, 1].map(|turns| Arc::new(Semaphore::new(turns)));
        Self { small, large, last }
    }
}

impl Share {
    /// Takes the next bytes of a body that has so many by then, or the turn that needs no room; without `has_room` that turn alone.
    /// Returns false if it has that turn.
    async fn take(&mut self, length: usize, more: usize, has_room: bool) -> bool {
        if self.is_last {
            return false;
        }
        let Room { small, large, last } = &*self.room;
        let bytes = if length as u64 <= LARGE_BYTES { small } else { large };
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

impl<S: Sync> FromRequest<S> for Whole {
    type Rejection = Infallible;

    async fn from_request(mut request: Request, _: &S) -> Result<Self, Infallible> {
        let bodies: LargeBodies = request.extensions_mut().remove().unwrap_or_default();
        let peer = Peer::of(request.extensions());
        Ok(bodies.read(request.into_body(), peer).await)
    }
}

/// Limits the size of bodies of reviews, the bytes of them that are held at the same time, and the time for that.
pub(crate) fn limited(router: Router, bodies: &LargeBodies) -> Router {
    router
        .layer(Extension(bodies.clone()))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, BODY_TIMEOUT))
}
