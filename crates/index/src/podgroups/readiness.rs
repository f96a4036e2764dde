//! The readiness of a run, kept up to date with each of its pods.

use jiff::Timestamp;
use tenure_policy::{
    gang::{Counts, Shape},
    ready::{Lacking, Readiness, RunMemory, Standing},
};
use tenure_types::podgroup::PodGroupKind;

use super::members::Member;
use crate::times::{Milliseconds, in_time};

/// How many pods of a `PodGroup` are ready, and what is remembered of its run.
#[derive(Debug, Default)]
pub struct RunReadiness {
    ready: Counts,
    /// Pods that are ready or were.
    known: Counts,
    /// When the first pod of the run was scheduled.
    first_scheduled: Option<Milliseconds>,
    /// Whether it was ready in this run, and since when it isn't.
    memory: RunMemory,
    /// Whether too few of its pods are ready, as it was last computed.
    lacking: Option<Box<Lacking>>,
}

impl RunReadiness {
    pub const fn lacking(&self) -> Option<&Lacking> {
        match &self.lacking {
            Some(lacking) => Some(lacking),
            None => None,
        }
    }

    /// Counts all members by another shape.
    pub fn count<'m>(
        &mut self,
        shape: &Shape,
        kind: PodGroupKind,
        members: impl Iterator<Item = &'m Member>,
    ) {
        let none = shape.counts(0, |_| 0);
        (self.ready, self.known) = (none.clone(), none);
        for member in members {
            self.replace(shape, kind, None, Some(member));
        }
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
            self.known.remove(shape, number);
            if is_ready {
                self.ready.remove(shape, number);
            }
        }
        if let Some((number, is_ready)) = new {
            self.known.add(shape, number);
            if is_ready {
                self.ready.add(shape, number);
            }
        }
        true
    }

    /// A pod of the run takes room.
    pub fn note_scheduled(&mut self, pod: &Member) {
        self.first_scheduled = Milliseconds::earliest(self.first_scheduled, pod.scheduled.at());
    }

    /// Notes whether the run is ready, or was: pods may show that only once.
    pub fn remember(&mut self, shape: &Shape) {
        self.memory.note(self.ready.are_enough(shape), self.known.are_enough(shape));
    }

    /// Begins another run, with these pods.
    pub fn begin<'m>(&mut self, active: impl Iterator<Item = &'m Member>) {
        (self.memory, self.first_scheduled) = (RunMemory::default(), None);
        for pod in active {
            self.note_scheduled(pod);
        }
    }

    /// Computes whether too few are ready; says whether that is another answer than before. `pods` are those of a run
    /// that has begun at `start`, as far as that is known; none if it doesn't run.
    pub fn compute(&mut self, shape: Option<&Shape>, start: Option<Timestamp>, pods: &[Standing]) -> bool {
        let shown = shape.and_then(|shape| {
            // pods that were replaced took room before those that are there
            let started = in_time(self.first_scheduled).into_iter().chain(start).min()?;
            let is_lacking = !self.ready.are_enough(shape);
            is_lacking.then(|| Lacking::of(shape, pods, Some(started))).flatten()
        });
        let lacking = shown.map(|shown| Box::new(self.memory.recall(shown)));
        let moved = self.lacking != lacking;
        self.lacking = lacking;
        moved
    }

    pub fn are_enough(&self, shape: &Shape) -> bool {
        self.ready.are_enough(shape)
    }
}

/// The number of a pod's subgroup, and whether it is ready; none if it never was.
fn counted(shape: &Shape, kind: PodGroupKind, member: Option<&Member>) -> Option<(usize, bool)> {
    let member = member?;
    let readiness = member.readiness.get();
    (readiness != Readiness::NotYet)
        .then(|| (shape.number(member.subgroup(kind)), readiness == Readiness::Ready))
}
