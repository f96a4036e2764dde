//! The work that is due, and its results.

use std::collections::BTreeMap;

use super::{Batch, Due, DuePod, Millis, NEVER, Record, Task, later};
use crate::{
    event::{End, Scope},
    naive::Naive,
    world::{MILLI, Nanos, OwnerKind, PodObj},
};

/// The namespace of pods, and their controller or the uid of the pod.
pub type Key = (u8, Option<OwnerKind>, u32);

impl Due {
    fn key(&self, uid: u32) -> Key {
        let controller = self.controller.filter(|_| !self.alone);
        let (kind, uid) = controller.map_or((None, uid), |(kind, uid)| (Some(kind), uid));
        (self.namespace, kind, uid)
    }

    /// When a task is due.
    const fn at(&self, task: Task) -> Option<Millis> {
        match task {
            Task::Expire => self.expire,
            Task::Evict => self.evict,
            Task::Announce | Task::Withdraw => self.notice,
        }
    }

    /// The most urgent task of some, whether it was tried before, and since when it is due.
    fn most_urgent(&self, tasks: &[Task], now: Millis) -> Option<(usize, bool, Millis)> {
        let due = |(place, task): (usize, &Task)| {
            let at = self.at(*task).filter(|at| *at < now)?;
            Some((place, *task == Task::Expire && self.retries, at))
        };
        tasks.iter().enumerate().filter_map(due).min()
    }
}

impl Naive {
    /// What is due of these tasks, the most urgent of each key.
    pub fn work(&self, tasks: &[Task]) -> BTreeMap<Key, (usize, bool, Millis)> {
        let mut work = BTreeMap::new();
        for (uid, due) in &self.dues {
            if let Some(most) = due.most_urgent(tasks, self.now.div_euclid(MILLI)) {
                work.entry(due.key(*uid)).and_modify(|known| *known = most.min(*known)).or_insert(most);
            }
        }
        work
    }

    /// Returns the batch of a key that begins with this pod. None: another pod has a more urgent task, or an earlier time.
    pub fn batch(&self, tasks: &[Task], first: u32) -> Option<Batch> {
        let now = self.now.div_euclid(MILLI);
        let of = self.dues.get(&first)?;
        let key = of.key(first);
        let of_key = self.dues.iter().filter(|(uid, due)| due.key(**uid) == key);
        let due = of_key.filter_map(|(_, due)| due.most_urgent(tasks, now));
        let (place, since) = due.map(|(place, _, at)| (place, at)).min()?;
        let (_, retries, _) = of.most_urgent(tasks, now).filter(|(p, _, at)| (*p, *at) == (place, since))?;
        let task = match tasks[place] {
            Task::Announce if of.expires.is_none() => Task::Withdraw,
            task => task,
        };
        let at = |due: &Due| {
            let is_in_lane = task != Task::Expire || due.retries == retries;
            due.at(task).filter(|at| is_in_lane && *at < now)
        };
        let is_sibling = |uid: u32, due: &Due| {
            due.key(uid) == key
                && due.controller.is_some()
                && due.controller == of.controller
                && due.expires.is_none() == of.expires.is_none()
                && due.outlives == of.outlives
        };
        let others = self.dues.iter().filter(|(uid, due)| **uid != first && is_sibling(**uid, due));
        let others = others.filter_map(|(uid, due)| Some((*uid, at(due)?)));
        let pods = std::iter::once((first, since)).chain(others);
        Some(Batch { task, pods: pods.map(|(uid, since)| self.due_pod(uid, task, since)).collect() })
    }

    fn due_pod(&self, uid: u32, task: Task, since: Millis) -> DuePod {
        let (record, due) = (&self.records[&uid], &self.dues[&uid]);
        let mut pod = DuePod {
            uid,
            family: due.family,
            queue: due.queue,
            deadline: due.expires.unwrap_or(NEVER),
            since,
            handed_out: self.now.div_euclid(MILLI),
            cause: None,
            announced_end: record.announced_end,
            attempts: record.notice_attempts,
            outlives: due.outlives,
        };
        match (task, due.until) {
            (Task::Expire, _) => pod.attempts = record.attempts,
            (Task::Evict, Some((at, cause, family, queue))) => {
                (pod.deadline, pod.cause, pod.family, pod.queue) = (at, Some(cause), family, queue);
                pod.attempts = record.unready.map_or(0, |of| of.attempts);
            }
            _ => {}
        }
        pod
    }

    /// Notes the result of an act on a batch.
    pub fn record_outcome(&mut self, batch: &Batch, scope: Scope, end: End) {
        let now = self.now;
        if (batch.task, end) == (Task::Evict, End::Paused) {
            self.judge(batch.pods[0].uid);
        }
        for (place, pod) in batch.pods.iter().enumerate() {
            let Some(record) = self.records.get_mut(&pod.uid) else { continue };
            let ends_run = matches!(batch.task, Task::Expire | Task::Evict);
            if place == 0 || scope == Scope::All {
                record.alone &= !ends_run;
                record.record_outcome(pod, batch.task, end, now);
            } else if scope == Scope::First && ends_run {
                record.alone = true;
            }
        }
    }

    /// All pods of a workload outlive a pause of it, for which one of them was the first reason.
    fn judge(&mut self, uid: u32) {
        if self.records.get(&uid).is_none_or(|of| of.unready.is_some_and(|of| of.paused)) {
            return;
        }
        let pod = &self.pods[&uid];
        let Some(root) = self.root(pod.controller) else { return };
        let namespace = pod.namespace;
        let uids: Vec<u32> = self.records.keys().copied().collect();
        for uid in uids {
            let pod = &self.pods[&uid];
            if pod.namespace == namespace
                && self.root(pod.controller) == Some(root)
                && let Some(unready) = self.records.get_mut(&uid).and_then(|of| of.unready.as_mut())
            {
                unready.paused = true;
            }
        }
    }

    /// The keeper doesn't lead any more: what it recorded may be lost.
    pub fn forget_notices(&mut self) {
        let ends: Vec<(u32, Option<Millis>)> =
            self.records.keys().map(|uid| (*uid, self.due(*uid).expires)).collect();
        for (uid, end) in ends {
            let Some(record) = self.records.get_mut(&uid) else { continue };
            if record.announced_end.is_some() && record.announced_end == end {
                (record.announced_end, record.given) = (None, None);
            }
        }
    }

    /// Pods that are kept, in order.
    pub fn kept(&self) -> impl Iterator<Item = &PodObj> {
        self.records.keys().map(|uid| &self.pods[uid])
    }

    /// The next instant at which something is due.
    pub fn next_due(&self) -> Option<Millis> {
        let dues = self.dues.values().flat_map(|due| [due.expire, due.notice, due.evict]);
        dues.flatten().min().map(|at| at + 1)
    }

    /// When the next ceiling is reached, or was.
    pub fn next_expiry(&self) -> Option<Millis> {
        self.dues.values().filter(|due| due.expire.is_some()).filter_map(|due| due.expires).min()
    }
}

impl Record {
    /// Allows another try of the tasks that were final under its last controller.
    pub(super) fn revive(&mut self) {
        let unready = self.unready.iter_mut().map(|unready| &mut unready.not_before);
        for not_before in unready.chain([&mut self.not_before]).filter(|at| **at == NEVER) {
            *not_before = Millis::MIN;
        }
    }

    fn record_outcome(&mut self, pod: &DuePod, task: Task, end: End, now: Nanos) {
        match (task, end) {
            (Task::Evict, _) => {
                if let Some(unready) = &mut self.unready {
                    // what is final is no try
                    if end == End::Final {
                        unready.not_before = NEVER;
                        return;
                    }
                    unready.not_before = later(now, 5, 40, unready.attempts.saturating_add(unready.failed));
                    unready.paused |= end == End::Paused;
                    *tried(end, &mut unready.attempts, &mut unready.failed) += 1;
                }
            }
            (Task::Expire, End::Final) => self.not_before = NEVER,
            (Task::Expire, _) => {
                self.not_before = later(now, 5, 40, self.attempts.saturating_add(self.failed));
                *tried(end, &mut self.attempts, &mut self.failed) += 1;
            }
            (_, End::Failed) => {
                self.no_notice_before = later(now, 10, 600, self.notice_attempts);
                self.notice_attempts = self.notice_attempts.saturating_add(1);
            }
            (task, _) => {
                let is_announced = task == Task::Announce;
                self.announced_end = is_announced.then_some(pod.deadline);
                self.given = is_announced.then_some(pod.handed_out);
                self.notice_attempts = 0;
            }
        }
    }
}

/// The count of tries that an end belongs to.
fn tried<'c>(end: End, in_vain: &'c mut u8, failed: &'c mut u8) -> &'c mut u8 {
    if end == End::Failed { failed } else { in_vain }
}
