//! Objects by their controller.

use std::collections::BTreeSet;

use crate::Uid;

/// Pairs of a controller and an object. References are claims of tenants: an order can't be flooded as a hash table can,
/// and a controller of very many is no dearer than others.
#[derive(Debug, Default)]
pub struct Controlled(BTreeSet<(Uid, Uid)>);

impl Controlled {
    /// Moves an object from one controller to another.
    pub fn replace(&mut self, uid: Uid, from: Option<Uid>, to: Option<Uid>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.0.remove(&(from, uid));
        }
        self.0.extend(to.map(|to| (to, uid)));
    }

    /// The objects of a controller.
    pub fn by(&self, controller: Uid) -> impl Iterator<Item = Uid> {
        self.0.range((controller, Uid::MIN)..=(controller, Uid::MAX)).map(|(_, uid)| *uid)
    }
}
