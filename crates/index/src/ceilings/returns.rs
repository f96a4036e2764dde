//! Paused owners that come back by themselves, in the order in which they do.
//!
//! For each workload that leaves room in a queue, the next one that waits there comes back before its time. A workload
//! that was paused because its pods didn't get ready calls no other back: two of them would call each other again and
//! again.

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{expiry::Family, ready::leaves_room};
use tenure_types::projection;

use super::{CeilingIndex, limits};
use crate::{
    Uid,
    hand_backs::OwedHandBack,
    paused::{DueReturn, Holder, Paused},
};

/// A workload that takes room in a queue.
type Occupant = (Family, ArcStr, Holder);

impl CeilingIndex {
    /// Returns the next time after `after` at which a paused owner is due to come back by itself.
    pub fn next_return(&self, after: Timestamp) -> Option<Timestamp> {
        self.objects.paused.next_return(&self.objects.owners, after)
    }

    /// Returns the paused owners that come back at `now`, in no order. Leaves out owners with pods, which would count for their
    /// next run. Owners that a person has deactivated are among them, for that to be noted, and owners that run again though
    /// nothing has resumed them, for their record to be taken away.
    pub fn due_returns(&mut self, now: Timestamp) -> Vec<DueReturn> {
        let mut paused = std::mem::take(&mut self.objects.paused);
        let may = |paused: &Paused| !paused.returns.comes_back() || !self.has_pods(paused);
        let is_back = |left: &Holder| self.is_there(left);
        let mut due = paused.due(&self.objects.owners, now, may, is_back);
        let again = paused.running_again(&self.objects.owners, |paused| self.runs_again(paused));
        // one that is due waits until its pods are gone
        let again = again.filter(|paused| paused.due().is_none_or(|at| at > now));
        let again: Vec<Paused> = again.cloned().collect();
        self.objects.paused = paused;
        due.extend(again);
        let with_turn = |mut paused: Paused| {
            let rules = self.rules(paused.rules_of(), &paused.queue).pods_ready;
            let turn = paused.turn(rules.map(|of| of.timestamp).unwrap_or_default());
            // records, too, may name any queue
            if self.objects.limits(paused.rules_of(), &paused.queue).is_none() {
                paused.queue = ArcStr::new();
            }
            DueReturn { paused, turn }
        };
        due.into_iter().map(with_turn).collect()
    }

    /// Returns the owners whose fields are to be handed back to their field managers, in no order.
    pub fn hand_backs(&self) -> Vec<OwedHandBack> {
        self.objects.hand_backs.all().cloned().collect()
    }

    pub(super) fn has_pods(&self, paused: &Paused) -> bool {
        self.pods_under(&paused.namespace, paused.root).next().is_some()
    }

    /// True if an owner has pods that were made after its pause, or in the same second: the API server writes times of
    /// creation in seconds.
    fn runs_again(&self, paused: &Paused) -> bool {
        let at = paused.at.as_second().saturating_mul(1_000);
        self.pods_under(&paused.namespace, paused.root).any(|(_, pod)| pod.created >= at)
    }

    /// The workload of a pod that takes room, before the pod changes; none if no other waits for that room.
    pub(super) fn occupant(&mut self, uid: Uid, changed: &projection::Pod) -> Option<Occupant> {
        let Self { objects, reader } = self;
        if objects.paused.is_empty() || !leaves_room(changed) {
            return None;
        }
        let pod = reader.deadlines.get(uid).filter(|pod| pod.unready.is_none())?;
        pod.started?;
        let root = objects.owners.root(pod.controller);
        if root.is_some_and(|root| objects.paused.is_unready(root)) {
            return None;
        }
        let group = objects.gangs.workload(objects.gangs.memberships(uid));
        let holder = match (group, root) {
            (Some((group, _)), _) => Holder::Group(group.key.clone()),
            (None, Some(root)) => Holder::Owner(pod.namespace.clone(), root),
            (None, None) => Holder::Pod(uid),
        };
        let standing = limits::standing(objects, uid, pod);
        let (family, queue) = standing.first_queue()?;
        Some((family, queue.clone(), holder))
    }

    /// If a workload has left, lets the next one come back that waits in its queue.
    pub(super) fn call_next(&mut self, (family, queue, holder): Occupant) {
        if self.is_there(&holder) {
            return;
        }
        let Some(rules) = self.rules(family, &queue).pods_ready.filter(|rules| rules.on_capacity) else {
            return;
        };
        let waiting = self.objects.paused.waiting(&self.objects.owners, (family, &queue));
        let may_come = waiting.filter_map(|(uid, paused)| {
            let at = rules.backoff.earliest(paused.at, paused.count)?;
            Some((paused.turn(rules.timestamp), uid, at))
        });
        if let Some((_, uid, at)) = may_come.min() {
            self.objects.paused.call(uid, at, holder);
        }
    }

    /// True if a workload has pods, whether or not they take room.
    pub(super) fn is_there(&self, holder: &Holder) -> bool {
        match holder {
            Holder::Group(key) => self.objects.gangs.has_members(key),
            Holder::Owner(namespace, root) => self.pods_of(namespace, *root).next().is_some(),
            Holder::Pod(uid) => self.reader.deadlines.get(*uid).is_some(),
        }
    }
}
