//! The readiness of a run, kept up to date with each of its pods. `Gang` feeds it in the keeper
//! alone. Counts make each change cheap, and the memory keeps facts that replaced pods don't show
//! any more.

use tenure_policy::{
    gang::{AttainedCounts, GangCounts, GangShape},
    ready::{NotReady, Readiness, RunMemory},
};

use super::members::GroupMember;
use crate::times::{Milliseconds, in_time};

/// A change of counts by one pod.
type CountChange = fn(&mut GangCounts, &GangShape, usize);

/// A change of counts towards attained minimums by one pod.
type AttainedChange = fn(&mut AttainedCounts, usize);

/// The counts of ready pods of a `PodGroup`, and the memory of its run.
#[derive(Debug, Default)]
pub struct RunReadiness {
    /// All pods.
    all: GangCounts,
    ready: GangCounts,
    /// The ready pods, counted towards the minimums that all pods can meet. None: not asked for
    /// since a pod has joined or left, which may change these minimums.
    attained: Option<Box<AttainedCounts>>,
    /// Pods that are ready or were.
    known: GangCounts,
    /// True if the counts are those of another shape. They count no pods until all are counted again.
    pub is_stale: bool,
    /// The memory of the run: if it was ready, and the time since which it isn't.
    pub memory: RunMemory,
    /// The creation of the first pod of this run, or of the pods that wait for one, whether or not
    /// that pod was replaced.
    created: Option<Milliseconds>,
    /// The lack of ready pods, as last computed. None: enough are ready.
    pub lacking: Option<Box<NotReady>>,
}

impl RunReadiness {
    /// Counts all members again, by another shape.
    pub fn count<'m>(&mut self, shape: &GangShape, members: impl Iterator<Item = &'m GroupMember>) {
        let none = shape.counts(0, |_| 0);
        (self.all, self.ready, self.known, self.attained) = (none.clone(), none.clone(), none, None);
        self.is_stale = false;
        for member in members {
            self.replace(shape, None, Some(member));
        }
    }

    /// Counts `new` in place of `old`. None: the pod joins or leaves.
    pub fn replace(&mut self, shape: &GangShape, old: Option<&GroupMember>, new: Option<&GroupMember>) {
        if self.is_stale {
            return;
        }
        let [old, new] = [old, new].map(|member| member.map(|of| (of.number(shape), of.readiness.get())));
        if old.map(|(number, _)| number) != new.map(|(number, _)| number) {
            self.attained = None;
        }
        let remove = (GangCounts::remove as CountChange, AttainedCounts::remove as AttainedChange);
        let add = (GangCounts::add as CountChange, AttainedCounts::add as AttainedChange);
        for (member, (change, change_attained)) in [(old, remove), (new, add)] {
            let Some((number, readiness)) = member else { continue };
            change(&mut self.all, shape, number);
            if readiness != Readiness::NotYet {
                change(&mut self.known, shape, number);
            }
            if readiness == Readiness::Ready {
                change(&mut self.ready, shape, number);
                if let Some(attained) = &mut self.attained {
                    change_attained(attained, number);
                }
            }
        }
    }

    /// True if as many pods are ready as the group needs, or all pods that it has: pods that weren't
    /// created aren't waited for.
    pub fn is_complete(&self, shape: &GangShape) -> bool {
        self.ready.are_enough(shape) || self.ready.total() == self.all.total()
    }

    /// Remembers if the run is ready, or was. Tenants' pods may get ready and lose that at any rate,
    /// so this goes by the counts, and looks at no pods.
    pub fn remember(&mut self, shape: &GangShape) {
        let Self { all, ready, known, attained, memory, is_stale, .. } = self;
        if *is_stale {
            return;
        }
        let lacks_none = || {
            // most runs that lack ready pods have fewer than the minimum of all pods
            ready.total() >= shape.minimum.min(all.total())
                && attained
                    .get_or_insert_with(|| Box::new(AttainedCounts::new(shape, all, ready)))
                    .are_enough()
        };
        memory.note(ready.are_enough(shape), known.are_enough(shape), lacks_none);
    }

    /// Takes the creation of a pod that has joined or changed.
    pub fn note_created(&mut self, pod: &GroupMember) {
        self.created = Milliseconds::earliest(self.created, pod.created);
    }

    /// Counts from the creation of these pods alone. Returns true if the first was created at
    /// another time than before.
    pub fn count_from<'m>(&mut self, members: impl Iterator<Item = &'m GroupMember>) -> bool {
        let first = members.fold(None, |first, pod| Milliseconds::earliest(first, pod.created));
        std::mem::replace(&mut self.created, first) != first
    }

    /// Combines the lack that pods show with the memory of the run. Returns true if the result has
    /// changed.
    pub fn recall(&mut self, shown: Option<NotReady>) -> bool {
        let lacking = shown.map(|shown| {
            let created = in_time(self.created).into_iter().chain([shown.created]).min();
            let shown = NotReady { created: created.unwrap_or(shown.created), ..shown };
            // pods that take no room belong to no run yet
            Box::new(if shown.started.is_some() { self.memory.recall(shown) } else { shown })
        });
        std::mem::replace(&mut self.lacking, lacking) != self.lacking
    }
}
