//! The places of connections: a port has a number of places for all peers, and a smaller number for
//! each peer. A peer is an IP address. A client that is known by its certificate gives up its place
//! among those of its peer, and keeps the one of the port.
//!
//! On a full port, the peer with the most connections loses one to a peer with fewer. So peers that
//! take all places together keep no other peer out.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::task::ConnectionTask;

/// The places of a port. Clones share the places.
#[derive(Clone, Debug)]
pub struct ConnectionPlaces {
    /// The most connections of the port.
    most: usize,
    /// The most connections that a peer may keep whose clients aren't known.
    most_of_peer: usize,
    taken: Arc<Mutex<Occupancy>>,
}

/// The places that are taken.
#[derive(Debug, Default)]
struct Occupancy {
    all: usize,
    /// The number of the next connection.
    next: u64,
    /// The connections of each peer whose clients aren't known, by number. A peer without any has no
    /// entry.
    by_peer: HashMap<IpAddr, BTreeMap<u64, Arc<ConnectionTask>>>,
}

/// The place of one connection. Its drop gives the place up, unless another connection has it.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: ConnectionPlaces,
    peer: IpAddr,
    /// The number of the connection among those of the port.
    number: u64,
    task: Arc<ConnectionTask>,
    /// True if the client is known: the connection doesn't count among those of its peer.
    is_known: AtomicBool,
}

impl ConnectionPlaces {
    /// Creates the free places of a port.
    pub fn new(most: usize, most_of_peer: usize) -> Self {
        Self { most, most_of_peer, taken: Arc::default() }
    }

    /// Takes a place for a connection of a peer, which may have `times` as many as it may keep. On a
    /// full port, the place is that of a connection of the peer with the most, which is closed.
    /// None: no place is left for this peer.
    pub fn take(&self, peer: IpAddr, times: usize) -> Option<Arc<ConnectionPlace>> {
        // an IPv4 peer has one address, also on a port of IPv6
        let peer = peer.to_canonical();
        let task = Arc::new(ConnectionTask::default());
        let mut taken = self.taken.lock();
        if taken.of_peer(peer) >= self.most_of_peer.saturating_mul(times) {
            return None;
        }
        let displaced = if taken.all < self.most { None } else { Some(taken.displace(peer)?) };
        let number = taken.add(peer, &task);
        // the rest needs no lock
        drop(taken);
        if let Some(displaced) = displaced {
            displaced.close();
        }
        let (places, is_known) = (self.clone(), AtomicBool::new(false));
        Some(Arc::new(ConnectionPlace { places, peer, number, task, is_known }))
    }
}

impl ConnectionPlace {
    /// Returns the task of the connection.
    pub fn task(&self) -> &Arc<ConnectionTask> {
        &self.task
    }

    /// Decides on the place of a connection once it is clear whether its client is known. A known
    /// client doesn't count among those of its peer, and isn't displaced any more. False if the peer
    /// has too many connections, or if another connection has the place: the caller closes this one.
    pub fn keep(&self, is_known: bool) -> bool {
        let mut taken = self.places.taken.lock();
        if is_known {
            if taken.leave(self.peer, self.number).is_some() {
                self.is_known.store(true, Relaxed);
            }
            return self.is_known.load(Relaxed);
        }
        let of_peer = taken.by_peer.get(&self.peer);
        of_peer.is_some_and(|all| all.contains_key(&self.number) && all.len() <= self.places.most_of_peer)
    }
}

impl Occupancy {
    /// Returns the number of a peer's connections whose clients aren't known.
    fn of_peer(&self, peer: IpAddr) -> usize {
        self.by_peer.get(&peer).map_or(0, BTreeMap::len)
    }

    /// Takes a place for a connection of a peer, and returns its number.
    fn add(&mut self, peer: IpAddr, task: &Arc<ConnectionTask>) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.all = self.all.saturating_add(1);
        self.by_peer.entry(peer).or_default().insert(number, Arc::clone(task));
        number
    }

    /// Gives up a place for a newcomer, and returns its task: of the peer with the most connections,
    /// the one that has been idle for the longest time. None: with one more, the newcomer's peer
    /// would have as many as that peer.
    fn displace(&mut self, newcomer: IpAddr) -> Option<Arc<ConnectionTask>> {
        let (fullest, tasks) = self.by_peer.iter().max_by_key(|(_, tasks)| tasks.len())?;
        if self.of_peer(newcomer).saturating_add(1) >= tasks.len() {
            return None;
        }
        let (number, _) = tasks.iter().min_by_key(|(_, task)| task.used_at())?;
        let (fullest, number) = (*fullest, *number);
        let displaced = self.leave(fullest, number)?;
        self.all = self.all.saturating_sub(1);
        Some(displaced)
    }

    /// Removes a connection from those of its peer, and returns its task. None: it isn't among them.
    fn leave(&mut self, peer: IpAddr, number: u64) -> Option<Arc<ConnectionTask>> {
        let tasks = self.by_peer.get_mut(&peer)?;
        let task = tasks.remove(&number);
        if tasks.is_empty() {
            self.by_peer.remove(&peer);
        }
        task
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        // a displaced connection is no longer among those of its peer, and its place isn't free
        if taken.leave(self.peer, self.number).is_some() || self.is_known.load(Relaxed) {
            taken.all = taken.all.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        task::{Context, Poll, Waker},
        time::Duration,
    };

    use tokio::time::advance;

    use super::*;

    fn peers() -> [IpAddr; 4] {
        [1, 2, 3, 4].map(|number| IpAddr::from([10, 0, 0, number]))
    }

    fn is_closed(place: &ConnectionPlace) -> bool {
        place.task().check(&Context::from_waker(Waker::noop())).is_err()
    }

    fn read(place: &ConnectionPlace) -> Poll<std::io::Result<()>> {
        place.task().transfer(&mut Context::from_waker(Waker::noop()), |_| Poll::Ready(Ok(())))
    }

    /// The taken places, and the peers that have some.
    fn taken(places: &ConnectionPlaces) -> (usize, usize) {
        let taken = places.taken.lock();
        (taken.all, taken.by_peer.len())
    }

    #[test]
    fn a_peer_takes_no_more_places_than_its_own_and_all_no_more_than_there_are() {
        let places = ConnectionPlaces::new(3, 2);
        let [a, b, c, d] = peers();
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let [one, other] = [a, mapped].map(|peer| places.take(peer, 1).unwrap());
        assert!(places.take(a, 1).is_none());
        drop(other);
        let others = [b, c].map(|peer| places.take(peer, 1).unwrap());
        assert!(places.take(d, 1).is_none());
        assert_eq!(taken(&places), (3, 3));
        drop((one, others));
        places.take(d, 1).unwrap();
        assert_eq!(taken(&places), (0, 0));
    }

    #[test]
    fn a_known_client_has_its_place_beside_those_of_its_peer() {
        let places = ConnectionPlaces::new(10, 2);
        let [peer, ..] = peers();
        let strangers: Vec<_> = (0..2).map(|_| places.take(peer, 2).unwrap()).collect();
        assert!(strangers.iter().all(|place| place.keep(false)));
        let [known, stranger] = [places.take(peer, 2).unwrap(), places.take(peer, 2).unwrap()];
        assert!(places.take(peer, 2).is_none(), "too many at the same time");
        assert!(known.keep(true) && !stranger.keep(false));
        drop(stranger);
        assert!(places.take(peer, 2).is_some());
        drop((known, strangers));
        assert_eq!(taken(&places), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_displaces_one_of_the_address_that_has_most() {
        let places = ConnectionPlaces::new(5, 3);
        let [a, b, c, _] = peers();
        let others = [b, b].map(|peer| places.take(peer, 1).unwrap());
        let mut most = Vec::new();
        for _ in 0..3 {
            advance(Duration::from_secs(1)).await;
            most.push(places.take(a, 1).unwrap());
        }
        advance(Duration::from_secs(1)).await;
        assert!(read(&most[0]).is_ready(), "the second is idle for longer from now on");
        let newcomer = places.take(c, 1).unwrap();
        assert_eq!([&most[0], &most[1], &most[2]].map(|place| is_closed(place)), [false, true, false]);
        assert!(matches!(read(&most[1]), Poll::Ready(Err(_))));
        assert!(newcomer.keep(false) && !others.iter().any(|place| is_closed(place)));
        assert_eq!(taken(&places), (5, 3));
    }

    #[test]
    fn an_address_with_as_many_as_the_fullest_is_refused() {
        let places = ConnectionPlaces::new(4, 4);
        let [a, b, c, _] = peers();
        let first = [a, a, b, b].map(|peer| places.take(peer, 1).unwrap());
        assert!(places.take(a, 1).is_none() && places.take(b, 1).is_none());
        assert!(!first.iter().any(|place| is_closed(place)));
        let _newcomer = places.take(c, 1).unwrap();
        assert!(places.take(c, 1).is_none(), "it would have as many");
        assert_eq!(first.iter().filter(|place| is_closed(place)).count(), 1);
        assert_eq!(taken(&places), (4, 3));
    }

    #[test]
    fn a_displaced_place_is_freed_once() {
        let places = ConnectionPlaces::new(2, 2);
        let [a, b, c, _] = peers();
        let [displaced, kept] = [a, a].map(|peer| places.take(peer, 1).unwrap());
        let newcomer = places.take(b, 1).unwrap();
        assert!(is_closed(&displaced) && !is_closed(&kept));
        assert!(!displaced.keep(true) && !displaced.keep(false));
        assert_eq!(taken(&places), (2, 2));
        drop(displaced);
        assert_eq!(taken(&places), (2, 2));
        assert!(places.take(c, 1).is_none());
        drop((kept, newcomer));
        assert_eq!(taken(&places), (0, 0));
    }

    #[test]
    fn a_known_client_is_not_displaced() {
        let places = ConnectionPlaces::new(3, 3);
        let [a, b, ..] = peers();
        let known = [a, a, a].map(|peer| places.take(peer, 1).unwrap());
        assert!(known.iter().all(|place| place.keep(true)));
        assert!(places.take(b, 1).is_none());
        assert!(!known.iter().any(|place| is_closed(place)));
        drop(known);
        assert_eq!(taken(&places), (0, 0));
    }
}
