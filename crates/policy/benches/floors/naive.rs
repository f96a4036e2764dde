//! The control: floors as one would find them without a tree, by names, with a path for each question.

use std::collections::HashMap;

use tenure_policy::{queue::RunaiQueue, tree::Inherited};
use tenure_types::ExtendedDuration;

use crate::resolutions::Way;

pub struct Naive(HashMap<String, RunaiQueue>);

impl Naive {
    pub fn new(queues: &[(String, RunaiQueue)]) -> Self {
        Self(queues.iter().cloned().collect())
    }

    pub fn floor(&self, way: Way, preemptor: &str, victim: &str) -> Option<ExtendedDuration> {
        match way {
            Way::Preempt => self.upward(victim, Inherited::Preempt),
            Way::ReclaimQueue => self.upward(victim, Inherited::Reclaim),
            Way::ReclaimLca => {
                let (preemptor, victim) = (self.path(preemptor), self.path(victim));
                let common = preemptor.iter().zip(&victim).take_while(|(one, other)| one == other).count();
                let from = victim.get(common).or(victim.last())?;
                self.upward(from, Inherited::Reclaim)
            }
        }
    }

    /// Root first.
    fn path<'a>(&'a self, leaf: &'a str) -> Vec<&'a str> {
        let mut path: Vec<&str> =
            std::iter::successors(Some(leaf), |name| self.0.get(*name)?.parent.as_deref()).collect();
        path.reverse();
        path
    }

    fn upward(&self, leaf: &str, field: Inherited) -> Option<ExtendedDuration> {
        let mut queue = self.0.get(leaf)?;
        loop {
            if let Some(floor) = field.of(queue) {
                return Some(floor);
            }
            queue = self.0.get(queue.parent.as_deref()?)?;
        }
    }
}
