//! The order in which owners come back. Each queue has its own, and waits for no other.

use std::collections::VecDeque;

use tenure_index::Paused;

use crate::slots::{FairSlots, TakenSlot};

/// Owners that are due to come back, in their order.
#[derive(Debug, Default)]
pub struct ReturnOrder(VecDeque<Paused>);

impl ReturnOrder {
    /// Adds owners after all others.
    pub fn extend(&mut self, due: Vec<Paused>) {
        self.0.extend(due);
    }

    /// Takes the next owner that may be resumed now, with its slot. In a queue one is resumed after the other, but one
    /// that is slow, or whose namespace has no slot, doesn't hold up the next.
    pub fn next(&mut self, slots: &FairSlots) -> Option<(Paused, TakenSlot)> {
        let slot = |paused: &Paused| {
            let line = format!("{:?}/{}", paused.rules_of(), paused.queue);
            slots.take_in_line(&paused.namespace, Some(line))
        };
        let (place, slot) =
            self.0.iter().enumerate().find_map(|(place, paused)| Some((place, slot(paused)?)))?;
        Some((self.0.remove(place)?, slot))
    }
}
