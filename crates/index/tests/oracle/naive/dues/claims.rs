//! Claims of due pods, and their results.

use super::{Claim, Due, DuePod, Millis, NEVER, Record, Task, later};
use crate::{
    event::{End, Scope},
    naive::Naive,
    world::{MILLI, Nanos, PodObj},
};

impl Naive {
    /// The pods with which a claim of `now` may begin, in no order: any of them. `since` is the same for all.
    pub fn claimable(&self) -> Option<(Task, Vec<u32>)> {
        let now = self.now.div_euclid(MILLI);
        let first = |at: fn(&Due) -> Option<Millis>| {
            let due = self.dues.iter().filter_map(|(uid, of)| Some((at(of).filter(|at| *at < now)?, *uid)));
            let due: Vec<_> = due.collect();
            let first = due.iter().map(|(at, _)| *at).min()?;
            Some(due.into_iter().filter(|(at, _)| *at == first).map(|(_, uid)| uid).collect())
        };
        let expired = first(|of| of.expire.filter(|_| !of.retries)).or_else(|| first(|of| of.expire));
        if let Some(expired) = expired {
            return Some((Task::Expire, expired));
        }
        if let Some(unready) = first(|of| of.evict) {
            return Some((Task::Evict, unready));
        }
        let untold: Vec<u32> = first(|of| of.notice)?;
        let withdraw = |uid: &u32| self.dues[uid].expires.is_none();
        let task = if untold.iter().all(withdraw) { Task::Withdraw } else { Task::Announce };
        Some((task, untold))
    }

    /// Returns the claim that begins with this pod.
    pub fn claim(&mut self, first: u32) -> Claim {
        let (tier, _) = self.claimable().expect("there is something to claim");
        let of = &self.dues[&first];
        let task = match tier {
            Task::Announce | Task::Withdraw if of.expires.is_none() => Task::Withdraw,
            Task::Withdraw => Task::Announce,
            task => task,
        };
        let at = |due: &Due| match task {
            Task::Expire => due.expire.filter(|_| due.retries == of.retries),
            Task::Evict => due.evict,
            Task::Announce | Task::Withdraw => due.notice,
        };
        let now = self.now.div_euclid(MILLI);
        let is_sibling = |due: &Due| {
            !of.alone
                && !due.alone
                && of.controller.is_some()
                && due.controller == of.controller
                && due.namespace == of.namespace
                && due.expires.is_none() == of.expires.is_none()
                && due.outlives == of.outlives
        };
        let others = self.dues.iter().filter(|(uid, due)| **uid != first && is_sibling(due));
        let others = others.filter(|(_, due)| at(due).is_some_and(|at| at < now)).map(|(uid, _)| *uid);
        let uids: Vec<u32> = std::iter::once(first).chain(others).collect();
        let pods =
            uids.iter().map(|uid| self.due_pod(*uid, task, at(&self.dues[uid]).unwrap_or(0))).collect();
        let id = self.next_id();
        for uid in &uids {
            self.records.get_mut(uid).expect("it is kept").claim = Some(id);
        }
        Claim { id, task, pods }
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
            told: record.told,
            attempts: record.tell_attempts,
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

    /// Takes a claim back.
    pub fn settle(&mut self, claim: &Claim, scope: Scope, end: End) {
        let now = self.now;
        if (claim.task, end) == (Task::Evict, End::Paused) {
            self.judge(claim.pods[0].uid);
        }
        for (place, pod) in claim.pods.iter().enumerate() {
            let Some(record) = self.records.get_mut(&pod.uid).filter(|of| of.claim == Some(claim.id)) else {
                continue;
            };
            (record.claim, record.alone) = (None, false);
            if place == 0 || scope == Scope::All {
                record.settle(pod, claim.task, end, now);
            } else {
                record.alone = scope == Scope::First;
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

    pub fn release_all(&mut self) {
        let ends: Vec<(u32, Option<Millis>)> =
            self.records.keys().map(|uid| (*uid, self.due(*uid).expires)).collect();
        for (uid, end) in ends {
            let Some(record) = self.records.get_mut(&uid) else { continue };
            record.claim = None;
            if record.told.is_some() && record.told == end {
                (record.told, record.given) = (None, None);
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

    fn settle(&mut self, pod: &DuePod, task: Task, end: End, now: Nanos) {
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
                self.not_told_before = later(now, 10, 600, self.tell_attempts);
                self.tell_attempts = self.tell_attempts.saturating_add(1);
            }
            (task, _) => {
                let is_told = task == Task::Announce;
                self.told = is_told.then_some(pod.deadline);
                self.given = is_told.then_some(pod.handed_out);
                self.tell_attempts = 0;
            }
        }
    }
}

/// The count of tries that an end belongs to.
fn tried<'c>(end: End, in_vain: &'c mut u8, failed: &'c mut u8) -> &'c mut u8 {
    if end == End::Failed { failed } else { in_vain }
}
