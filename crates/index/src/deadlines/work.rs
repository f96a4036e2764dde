//! The work that is due: the pods of a task, and the results of acts on them. `CeilingIndex` calls
//! this for the keeper. Invariant: a batch has pods of one key and one task, which one act on their
//! owner may serve.

use std::collections::HashSet;

use jiff::Timestamp;

use super::{
    ActionOutcome, Deadlines, DueBatch, DueKey, DueOrders, DuePod, DueWork, MOST_IN_BATCH, ManagedPod, Task,
    TaskSet,
    order::{DueOrder, Lane},
};
use crate::{
    Uid,
    times::{NEVER, time},
};

impl DueOrders {
    /// Returns the orders of a set of tasks, the most urgent first.
    fn of(&self, tasks: TaskSet) -> impl Iterator<Item = (Task, &DueOrder)> {
        let order = |task| match task {
            Task::Expire => &self.expiries,
            Task::Evict => &self.evictions,
            Task::Announce | Task::Withdraw | Task::Note => &self.notices,
        };
        tasks.by_urgency().iter().map(move |task| (*task, order(*task)))
    }
}

impl Deadlines {
    /// Returns the work that is due: for each key the most urgent. Ends by a ceiling come before
    /// evictions, and first tries before others.
    pub fn due(&self, tasks: TaskSet, now: Timestamp) -> Vec<DueWork> {
        let mut known = HashSet::new();
        let due = self.orders.of(tasks).flat_map(|(task, order)| {
            order.due(now.as_millisecond()).map(move |(slot, uid)| (task, slot, uid))
        });
        due.filter_map(|(task, slot, uid)| {
            let key = self.pods.get(&uid)?.due_key(uid);
            let work = DueWork { key, task, is_retry: slot.lane() == Lane::Again, since: time(slot.time()?) };
            known.insert(work.key.clone()).then_some(work)
        })
        .collect()
    }

    /// Returns the pods of a key with its most urgent task that is due: ends by a ceiling come
    /// before evictions. At most `MOST_IN_BATCH` pods, the most overdue first. None: no task of the
    /// key is due.
    pub fn batch(&self, tasks: TaskSet, key: &DueKey, now: Timestamp) -> Option<DueBatch> {
        let now = now.as_millisecond();
        let of_key = || self.pods.get(&key.uid).map(|pod| (key.uid, pod.as_ref()));
        // a pod can name itself as its controller
        let others = || self.controlled_by(key.uid).filter(|(uid, _)| *uid != key.uid);
        let pods = || of_key().into_iter().chain(others());
        let pods = || pods().filter(|(uid, pod)| pod.due_key(*uid) == *key);
        // looks in both lanes: a pod that was tried doesn't wait for a flood of others of its
        // controller
        let first = |task: &Task| {
            let slots = pods().map(|(uid, pod)| (uid, pod.step(*task).slot));
            let due = slots.filter_map(|(uid, slot)| Some((slot.time().filter(|at| *at < now)?, uid, slot)));
            due.min_by_key(|(at, uid, _)| (*at, *uid)).map(|(_, uid, slot)| (*task, slot, uid))
        };
        let (task, slot, uid) = tasks.by_urgency().iter().find_map(first)?;
        let first = self.pods.get(&uid)?;
        let is_withdrawn = task == Task::Announce && first.expiry.at == NEVER;
        let task = if is_withdrawn { Task::Withdraw } else { task };
        let due = |since, uid, pod: &ManagedPod| pod.due(uid, task, (since, now));
        let siblings = pods().filter(|(of, pod)| *of != uid && pod.is_sibling(first));
        let mut siblings: Vec<(i64, Uid, &ManagedPod)> = siblings
            .filter_map(|(uid, pod)| Some((pod.step(task).slot.due_with(slot, now)?, uid, pod)))
            .collect();
        siblings.sort_unstable_by_key(|(since, uid, _)| (*since, *uid));
        siblings.truncate(MOST_IN_BATCH.saturating_sub(1));
        let rest = siblings.into_iter().map(|(since, uid, pod)| due(since, uid, pod)).collect();
        Some(DueBatch { task, first: due(slot.time()?, uid, first), rest })
    }

    /// Marks a pod whose end needs an act of its own. The mark ends with the next act that ends
    /// runs.
    pub fn try_alone(&mut self, uid: Uid) {
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.alone = true;
        }
    }

    /// Records the result of an act on a pod. The pod's place in the orders changes with the next
    /// `schedule`.
    pub fn record_outcome(&mut self, due: &DuePod, task: Task, outcome: ActionOutcome, now: Timestamp) {
        let retry_after = self.retry_after;
        let Some(pod) = self.pods.get_mut(&due.uid) else { return };
        pod.alone &= !task.ends_run();
        match task {
            Task::Expire => pod.expiry.step.tries.record_outcome(outcome, retry_after, now),
            Task::Evict => {
                if let Some(unready) = &mut pod.unready {
                    unready.step.tries.record_outcome(outcome, retry_after, now);
                    unready.paused |= outcome == ActionOutcome::Paused;
                }
            }
            Task::Note => {}
            Task::Announce | Task::Withdraw => {
                pod.notice.get_or_insert_default().record_outcome(due, task, outcome, now);
            }
        }
    }

    /// Records that pods which aren't ready outlive a pause of their workload.
    pub fn outlive(&mut self, pods: &[Uid]) {
        for uid in pods {
            if let Some(unready) = self.pods.get_mut(uid).and_then(|pod| pod.unready.as_mut()) {
                unready.paused = true;
            }
        }
    }

    /// Forgets the notices that gave the present end of a run. Returns the pods whose notice was
    /// forgotten.
    pub fn forget_notices(&mut self) -> Vec<Uid> {
        let forgotten = self.pods.iter_mut().filter_map(|(uid, pod)| {
            let at = pod.expiry.at;
            pod.notice.as_mut().is_some_and(|notice| notice.forget(at)).then_some(*uid)
        });
        forgotten.collect()
    }
}
