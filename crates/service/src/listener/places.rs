//! The places of connections: a port has a number of places for all peers, and a smaller number for
//! each peer. A peer is an IP address. A client that is known by its certificate gives up its place
//! among those of its peer, and keeps the one of the port.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;

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
    /// The places of each peer. A peer without places has no entry.
    by_peer: HashMap<IpAddr, usize>,
}

/// The place of one connection. Its drop gives the place up.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: ConnectionPlaces,
    /// The peer among whose connections this connection counts. None: the client is known.
    peer: Mutex<Option<IpAddr>>,
}

impl ConnectionPlaces {
    /// Creates the free places of a port.
    pub fn new(most: usize, most_of_peer: usize) -> Self {
        Self { most, most_of_peer, taken: Arc::default() }
    }

    /// Takes a place for a connection of a peer, which may have `times` as many as it may keep.
    /// None: no place is left for this peer.
    pub fn take(&self, peer: IpAddr, times: usize) -> Option<Arc<ConnectionPlace>> {
        // an IPv4 peer has one address, also on a port of IPv6
        let peer = peer.to_canonical();
        let mut taken = self.taken.lock();
        let of_peer = taken.by_peer.get(&peer).copied().unwrap_or_default();
        if taken.all >= self.most || of_peer >= self.most_of_peer.saturating_mul(times) {
            return None;
        }
        taken.all = taken.all.saturating_add(1);
        taken.by_peer.insert(peer, of_peer.saturating_add(1));
        Some(Arc::new(ConnectionPlace { places: self.clone(), peer: Mutex::new(Some(peer)) }))
    }
}

impl ConnectionPlace {
    /// Decides on the place of a connection once it is clear whether its client is known. A known
    /// client doesn't count among those of its peer. False if the peer has too many connections:
    /// the caller closes this one.
    pub fn keep(&self, is_known: bool) -> bool {
        if is_known {
            let peer = self.peer.lock().take();
            self.places.taken.lock().leave(peer);
            return true;
        }
        let peer = *self.peer.lock();
        let taken = self.places.taken.lock();
        peer.and_then(|peer| taken.by_peer.get(&peer)).is_none_or(|taken| *taken <= self.places.most_of_peer)
    }
}

impl Occupancy {
    /// Gives up a place of a peer. None: there was none.
    fn leave(&mut self, peer: Option<IpAddr>) {
        let Some(peer) = peer else { return };
        let left = self.by_peer.get(&peer).copied().unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.by_peer.insert(peer, left);
        } else {
            self.by_peer.remove(&peer);
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let peer = self.peer.get_mut().take();
        let mut taken = self.places.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        taken.leave(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> [IpAddr; 3] {
        [1, 2, 3].map(|number| IpAddr::from([10, 0, 0, number]))
    }

    #[test]
    fn a_peer_takes_no_more_places_than_its_own_and_all_no_more_than_there_are() {
        let places = ConnectionPlaces::new(3, 2);
        let [a, b, c] = peers();
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let kept = [places.take(a, 1).unwrap(), places.take(mapped, 1).unwrap()];
        assert!(places.take(a, 1).is_none());
        let other = places.take(b, 1).unwrap();
        assert!(places.take(c, 1).is_none());
        drop(other);
        assert!(places.take(a, 1).is_none());
        places.take(c, 1).unwrap();
        drop(kept);
        assert!(places.taken.lock().by_peer.is_empty());
        assert_eq!(places.taken.lock().all, 0);
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
        let taken = places.taken.lock();
        assert_eq!((taken.all, taken.by_peer.len()), (0, 0));
    }
}
