//! Hands out pods that are due, and takes them back.

use std::num::NonZeroU32;

use arcstr::ArcStr;
use jiff::Timestamp;

use super::{
    Claim, Deadlines, DueBatch, DuePod, MOST_IN_GROUP, ManagedPod, Orders, Outcome, Task,
    order::{Order, Slot},
};
use crate::{Uid, times::NEVER};

impl Deadlines {
    /// Hands out the pods with the next due task of a namespace that `may` take one: expiries come before evictions, and
    /// evictions before notices.
    pub fn claim(&mut self, now: Timestamp, mut may: impl FnMut(&str) -> bool) -> Option<DueBatch> {
        let now = now.as_millisecond();
        let Orders { expiries, evictions, notices } = &self.orders;
        let by_urgency = [(Task::Expire, expiries), (Task::Evict, evictions), (Task::Announce, notices)];
        // many pods of one namespace may be due
        let mut refused: Option<&ArcStr> = None;
        let mut may_claim = |uid: &Uid| {
            let Some(pod) = self.pods.get(uid) else { return false };
            let is_refused = refused.is_some_and(|refused| ArcStr::ptr_eq(refused, &pod.namespace));
            let may = !is_refused && may(&pod.namespace);
            if !may {
                refused = Some(&pod.namespace);
            }
            may
        };
        let mut due =
            |(task, order): (Task, &Order)| Some((task, order.due(now).find(|(_, uid)| may_claim(uid))?));
        let (task, (slot, first)) = by_urgency.into_iter().find_map(&mut due)?;
        let pod = self.pods.get(&first)?;
        let is_withdrawn = task == Task::Announce && pod.expiry.at == NEVER;
        let task = if is_withdrawn { Task::Withdraw } else { task };
        let since = slot.time()?;
        let group = self.siblings(pod, task, slot, now).filter(|(_, uid)| *uid != first);
        let mut group: Vec<(i64, Uid)> = group.collect();
        group.sort_unstable();
        group.truncate(MOST_IN_GROUP.saturating_sub(1));
        group.insert(0, (since, first));
        self.hand_out(task, &group, now)
    }

    /// Pods of the same controller with the same due task.
    fn siblings<'p>(
        &'p self,
        first: &'p ManagedPod,
        task: Task,
        slot: Slot,
        now: i64,
    ) -> impl Iterator<Item = (i64, Uid)> {
        let controller = first.controller.filter(|_| !first.alone);
        let pods = controller.into_iter().flat_map(|controller| self.controlled_by(controller.uid));
        pods.filter_map(move |(uid, pod)| {
            let is_sibling = !pod.alone
                && pod.controller == first.controller
                && pod.namespace == first.namespace
                && (pod.expiry.at == NEVER) == (first.expiry.at == NEVER)
                && pod.outlives() == first.outlives();
            is_sibling.then(|| pod.step(task).slot.due_with(slot, now)).flatten().map(|since| (since, uid))
        })
    }

    fn hand_out(&mut self, task: Task, group: &[(i64, Uid)], now: i64) -> Option<DueBatch> {
        self.claims = self.claims.checked_add(1).unwrap_or(1);
        let claim = Claim(NonZeroU32::new(self.claims)?);
        let mut handed_out = Vec::with_capacity(group.len());
        for (since, uid) in group {
            let Some(mut pod) = self.pods.remove(uid) else { continue };
            self.orders.place(*uid, &mut pod, false);
            pod.claim = Some(claim);
            handed_out.push(pod.due(*uid, claim, task, (*since, now)));
            self.pods.insert(*uid, pod);
        }
        let mut handed_out = handed_out.into_iter();
        let first = handed_out.next()?;
        Some(DueBatch { task, first, rest: handed_out.collect() })
    }

    /// The record that was handed out; none if it was taken back, or dropped, since.
    fn claimed(&mut self, due: &DuePod) -> Option<&mut ManagedPod> {
        let pod = self.pods.get_mut(&due.uid).filter(|pod| pod.claim == Some(due.claim))?;
        (pod.claim, pod.alone) = (None, false);
        Some(pod)
    }

    /// Allows another claim of the pod at once; by itself, if `alone`.
    pub fn release(&mut self, due: &DuePod, alone: bool) {
        if let Some(pod) = self.claimed(due) {
            pod.alone = alone;
        }
    }

    /// Allows another claim of the pod, as its outcome says.
    pub fn settle(&mut self, due: &DuePod, task: Task, outcome: Outcome, now: Timestamp) {
        let retry_after = self.retry_after;
        let Some(pod) = self.claimed(due) else { return };
        match task {
            Task::Expire => pod.expiry.step.tries.settle(outcome, retry_after, now),
            Task::Evict => {
                if let Some(unready) = &mut pod.unready {
                    unready.step.tries.settle(outcome, retry_after, now);
                    unready.paused |= outcome == Outcome::Paused;
                }
            }
            Task::Announce | Task::Withdraw => {
                pod.notice.get_or_insert_default().settle(due, task, outcome, now);
            }
        }
    }

    /// Notes that pods which aren't ready outlive a pause of their workload.
    pub fn outlive(&mut self, pods: &[Uid]) {
        for uid in pods {
            if let Some(unready) = self.pods.get_mut(uid).and_then(|pod| pod.unready.as_mut()) {
                unready.paused = true;
            }
        }
    }

    /// Takes back all claimed pods, and forgets that workloads know the present end of their run. Returns the pods that
    /// this is about.
    pub fn release_all(&mut self) -> Vec<Uid> {
        let released = self.pods.iter_mut().filter_map(|(uid, pod)| {
            let was_claimed = pod.claim.take().is_some();
            let at = pod.expiry.at;
            let was_told = pod.notice.as_mut().is_some_and(|notice| notice.forget(at));
            (was_claimed || was_told).then_some(*uid)
        });
        released.collect()
    }
}
