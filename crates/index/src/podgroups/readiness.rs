//! How many pods of a `PodGroup` are ready, kept up to date with each of them.

use tenure_policy::{gang::Shape, ready::Readiness};
use tenure_types::podgroup::PodGroupKind;

use super::members::Member;

/// Ready pods, and those that were ready and aren't any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    ready: u32,
    lost: u32,
}

/// The counts of a group, and of each of its subgroups by their numbers.
#[derive(Debug, Default)]
pub struct Counts {
    all: Count,
    of_each: Box<[Count]>,
}

impl Count {
    const fn part(&mut self, readiness: Readiness) -> Option<&mut u32> {
        match readiness {
            Readiness::Ready => Some(&mut self.ready),
            Readiness::Lost(_) => Some(&mut self.lost),
            Readiness::NotYet => None,
        }
    }

    fn shift(&mut self, readiness: Readiness, joins: bool) {
        if let Some(part) = self.part(readiness) {
            *part = if joins { part.saturating_add(1) } else { part.saturating_sub(1) };
        }
    }
}

impl Counts {
    /// Counts all members.
    pub fn of<'m>(shape: &Shape, kind: PodGroupKind, members: impl Iterator<Item = &'m Member>) -> Self {
        let mut counts =
            Self { all: Count::default(), of_each: vec![Count::default(); shape.leaves()].into() };
        for member in members {
            counts.shift(shape, kind, member, true);
        }
        counts
    }

    /// Takes a record of a pod in place of another one; says whether a count is another one.
    pub fn replace(
        &mut self,
        shape: &Shape,
        kind: PodGroupKind,
        old: Option<&Member>,
        new: Option<&Member>,
    ) -> bool {
        if counted(kind, old) == counted(kind, new) {
            return false;
        }
        for (member, joins) in [(old, false), (new, true)] {
            if let Some(member) = member {
                self.shift(shape, kind, member, joins);
            }
        }
        true
    }

    fn shift(&mut self, shape: &Shape, kind: PodGroupKind, member: &Member, joins: bool) {
        let readiness = member.readiness.get();
        self.all.shift(readiness, joins);
        if let Some(count) = self.of_each.get_mut(shape.number(member.subgroup(kind))) {
            count.shift(readiness, joins);
        }
    }

    /// True if enough are ready.
    pub fn is_ready(&self, shape: &Shape) -> bool {
        self.is_met(shape, |count| count.ready)
    }

    /// True if enough are ready, or were.
    pub fn was_ready(&self, shape: &Shape) -> bool {
        self.is_met(shape, |count| count.ready.saturating_add(count.lost))
    }

    fn is_met(&self, shape: &Shape, of: impl Fn(Count) -> u32) -> bool {
        shape.is_met(of(self.all), |leaf| self.of_each.get(leaf).map_or(0, |count| of(*count)))
    }
}

/// What is counted of a pod: whether it is ready or was, and in which subgroup.
fn counted(kind: PodGroupKind, member: Option<&Member>) -> Option<(bool, Option<&str>)> {
    let member = member?;
    match member.readiness.get() {
        Readiness::Ready => Some((true, member.subgroup(kind))),
        Readiness::Lost(_) => Some((false, member.subgroup(kind))),
        Readiness::NotYet => None,
    }
}
