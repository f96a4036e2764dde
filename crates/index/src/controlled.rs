//! Objects by their controller.

use std::collections::BTreeSet;

use crate::Uid;

/// Pairs of a controller, by half of its uid, and an object. Tenants choose the references: an order can't be flooded
/// as a hash table can, and a controller of very many objects costs no more than others.
#[derive(Debug, Default)]
pub struct Controlled(BTreeSet<(u64, Uid)>);

impl Controlled {
    /// Moves an object from one controller to another.
    pub fn replace(&mut self, uid: Uid, from: Option<Uid>, to: Option<Uid>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.0.remove(&(from.half(), uid));
        }
        self.0.extend(to.map(|to| (to.half(), uid)));
    }

    /// The objects of a controller, and perhaps of others: the objects' own records tell.
    pub fn by(&self, controller: Uid) -> impl Iterator<Item = Uid> {
        let half = controller.half();
        self.0.range((half, Uid::MIN)..=(half, Uid::MAX)).map(|(_, uid)| *uid)
    }
}
