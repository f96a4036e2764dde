//! Paused owners that come back by themselves, in the order in which they do. The keeper's
//! `Requeuer` resumes them.
//!
//! When a workload leaves room in a queue, the next owner that waits there comes back before its
//! time, if the queue's rules say so. A workload that was paused because its pods didn't get ready
//! calls back no other owner: two such workloads would call each other back again and again.

use std::{cell::RefCell, collections::HashMap};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{expiry::Family, ready::has_left_room};
use tenure_types::projection;

use super::{CeilingIndex, limits};
use crate::{
    ObjectFacts, Uid,
    counted::CountedWorkload,
    hand_backs::OwedHandBack,
    paused::{DueReturn, Paused},
};

/// The queue in which a workload takes room, and the workload.
type QueueOccupant = (Family, ArcStr, CountedWorkload);

/// The live pods below root owners at a time, by namespace and root. Each root is searched once,
/// since tenants may write any number of records of pauses with one root.
pub(super) struct PodsBelow {
    now: Timestamp,
    known: RefCell<HashMap<(ArcStr, Uid), LivePods>>,
}

/// The live pods below a root owner.
#[derive(Clone, Copy, Default)]
struct LivePods {
    /// The creation of the newest pod in milliseconds. None: there is no pod.
    newest: Option<i64>,
    /// True if a pod is past its ceiling.
    any_overdue: bool,
}

impl PodsBelow {
    pub fn at(now: Timestamp) -> Self {
        Self { now, known: RefCell::default() }
    }

    /// True if pods below the root owner of a pause still hold up its return. A pod past its ceiling
    /// always does: the owner would be paused again. Other pods do for some time after the pause.
    pub fn hold_up(&self, index: &CeilingIndex, paused: &Paused) -> bool {
        let LivePods { newest, any_overdue } = self.below(index, paused);
        any_overdue || newest.is_some() && self.now < paused.held_until()
    }

    /// True if an owner has pods that were created after its pause, or in the same second: the API
    /// server writes the time of creation in whole seconds.
    fn runs_again(&self, index: &CeilingIndex, paused: &Paused) -> bool {
        let at = paused.at.as_second().saturating_mul(1_000);
        self.below(index, paused).newest.is_some_and(|created| created >= at)
    }

    fn below(&self, index: &CeilingIndex, paused: &Paused) -> LivePods {
        let Paused { namespace, root, .. } = paused;
        let find = || {
            let pods = index.pods_under(namespace, *root);
            pods.fold(LivePods::default(), |LivePods { newest, any_overdue }, (_, pod)| LivePods {
                newest: newest.max(Some(pod.created)),
                any_overdue: any_overdue || pod.end().is_some_and(|end| end <= self.now),
            })
        };
        *self.known.borrow_mut().entry((namespace.clone(), *root)).or_insert_with(find)
    }
}

impl CeilingIndex {
    /// Returns the next time after `after` at which a paused owner is due to come back by itself, or
    /// at which pods hold up a return no longer. None: there is no such time.
    pub fn next_return(&mut self, after: Timestamp) -> Option<Timestamp> {
        self.reschedule();
        let pods = PodsBelow::at(after);
        let is_held = |paused: &Paused| paused.returns.comes_back() && pods.hold_up(self, paused);
        self.objects.paused.next_return(&self.objects.owners, after, is_held)
    }

    /// Returns the paused owners that come back at `now`, in no order. Owners whose pods hold up their
    /// return are left out, since the pods would count for the next run. Two kinds of owners are
    /// included only to correct their records: owners that a person has deactivated, which the record
    /// must show, and owners that run again although Tenure hasn't resumed them, whose record must be
    /// removed.
    pub fn due_returns(&mut self, now: Timestamp) -> Vec<DueReturn> {
        self.reschedule();
        let mut paused = std::mem::take(&mut self.objects.paused);
        let pods = PodsBelow::at(now);
        let may = |paused: &Paused| !paused.returns.comes_back() || !pods.hold_up(self, paused);
        let is_back = |left: &CountedWorkload| self.is_there(left);
        let due = paused.due(&self.objects.owners, now, may, is_back);
        let again = paused.running_again(&self.objects.owners, |paused| pods.runs_again(self, paused));
        // an owner that is due and held up by pods comes back later
        let again = again.filter(|paused| paused.due().is_none_or(|at| at > now) || !may(paused));
        let again: Vec<Paused> = again.cloned().collect();
        self.objects.paused = paused;
        let due = due.into_iter().map(|paused| (paused, true));
        let with_turn = |(mut paused, is_due): (Paused, bool)| {
            let rules = self.queue_rules(paused.rules_of(), &paused.queue).pods_ready;
            let turn = paused.turn(rules.map(|of| of.timestamp).unwrap_or_default());
            // tenants write records, too, which may name any queue
            if self.objects.limits(paused.rules_of(), &paused.queue).is_none() {
                paused.queue = ArcStr::new();
            }
            DueReturn { paused, turn, is_due }
        };
        due.chain(again.into_iter().map(|paused| (paused, false))).map(with_turn).collect()
    }

    /// Returns the owners whose fields are to be handed back to their field managers, in no order.
    pub fn hand_backs(&self) -> Vec<ObjectFacts<OwedHandBack>> {
        self.objects.hand_backs.all().cloned().collect()
    }

    /// Returns the workload of a pod that takes room, before the pod leaves. None: the pod runs on,
    /// or its room brings no paused owner back.
    pub(super) fn occupant(&mut self, uid: Uid, changed: &projection::Pod) -> Option<QueueOccupant> {
        let Self { objects, reader } = self;
        if objects.paused.is_empty() || !has_left_room(changed) {
            return None;
        }
        let pod = reader.deadlines.get(uid).filter(|pod| pod.unready.is_none() && !pod.claims_exemption)?;
        pod.started?;
        let group = objects.gangs.workload(objects.gangs.memberships(uid)).map(|(group, _)| group.key);
        let workload = CountedWorkload::of(&objects.owners, group, uid, pod);
        if let CountedWorkload::Owner(namespace, root) = &workload
            && objects.paused.is_unready(namespace, *root)
        {
            return None;
        }
        let standing = limits::standing(objects, uid, pod);
        let (family, queue) = standing.first_queue()?;
        Some((family, queue.clone(), workload))
    }

    /// Lets the next owner that waits in a queue come back earlier, if a workload that took room
    /// there has left.
    pub(super) fn call_next(&mut self, (family, queue, workload): QueueOccupant) {
        let Some(rules) = self.queue_rules(family, &queue).pods_ready.filter(|rules| rules.on_capacity)
        else {
            return;
        };
        if self.is_there(&workload) {
            return;
        }
        let waiting = self.objects.paused.waiting(&self.objects.owners, (family, &queue));
        let may_come = waiting.filter_map(|(uid, paused)| {
            let at = rules.backoff.earliest(paused.at, paused.count)?;
            Some((paused.turn(rules.timestamp), uid, at))
        });
        if let Some((_, uid, at)) = may_come.min() {
            self.objects.paused.call(uid, at, workload);
        }
    }

    /// True if a workload has pods, whether or not they take room. A group is there while a pod
    /// of any owner names it.
    fn is_there(&self, workload: &CountedWorkload) -> bool {
        match workload {
            CountedWorkload::Owner(namespace, root) => self.pods_of(namespace, *root).next().is_some(),
            CountedWorkload::Group(key) => self.objects.gangs.has_members(key),
            CountedWorkload::Pod(uid) => self.reader.deadlines.get(*uid).is_some(),
        }
    }
}
