//! How many pods of a `PodGroup` are ready, kept up to date with each of them.

use tenure_policy::{
    gang::{Counts, Shape},
    ready::Readiness,
};
use tenure_types::podgroup::PodGroupKind;

use super::members::Member;

/// The ready pods of a group, and those that are ready or were.
#[derive(Debug, Default)]
pub struct ReadyPods {
    now: Counts,
    ever: Counts,
}

impl ReadyPods {
    /// Counts all members.
    pub fn of<'m>(shape: &Shape, kind: PodGroupKind, members: impl Iterator<Item = &'m Member>) -> Self {
        let none = || shape.counts(0, |_| 0);
        let mut pods = Self { now: none(), ever: none() };
        for member in members {
            pods.replace(shape, kind, None, Some(member));
        }
        pods
    }

    /// Takes a record of a pod in place of another one; says whether a count is another one.
    pub fn replace(
        &mut self,
        shape: &Shape,
        kind: PodGroupKind,
        old: Option<&Member>,
        new: Option<&Member>,
    ) -> bool {
        let (old, new) = (counted(shape, kind, old), counted(shape, kind, new));
        if old == new {
            return false;
        }
        if let Some((number, is_ready)) = old {
            self.ever.remove(shape, number);
            if is_ready {
                self.now.remove(shape, number);
            }
        }
        if let Some((number, is_ready)) = new {
            self.ever.add(shape, number);
            if is_ready {
                self.now.add(shape, number);
            }
        }
        true
    }

    /// True if enough are ready.
    pub fn are_enough(&self, shape: &Shape) -> bool {
        self.now.are_enough(shape)
    }

    /// True if enough are ready, or were.
    pub fn were_enough(&self, shape: &Shape) -> bool {
        self.ever.are_enough(shape)
    }
}

/// The number of a pod's subgroup, and whether it is ready; none if it never was.
fn counted(shape: &Shape, kind: PodGroupKind, member: Option<&Member>) -> Option<(usize, bool)> {
    let member = member?;
    let readiness = member.readiness.get();
    (readiness != Readiness::NotYet)
        .then(|| (shape.number(member.subgroup(kind)), readiness == Readiness::Ready))
}
