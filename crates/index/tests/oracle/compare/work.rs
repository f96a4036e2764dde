//! Compares the work that is due by index and model, and gives results to both.

use jiff::Timestamp;
use tenure_index::{ActionOutcome, BatchCoverage, PendingStamp, StampForm, Task as IndexTask, TaskSet, Uid};
use tenure_policy::{expiry::Family, ready::Cause};

use super::{Difference, Pair, Result, millis, same};
use crate::{
    event::{End, Scope, StampEnd},
    naive::{DuePod, Task},
    wire,
    world::timestamp,
};

/// The tasks of each set, by urgency.
const SETS: [(TaskSet, &[Task]); 2] =
    [(TaskSet::Ends, &[Task::Expire, Task::Evict]), (TaskSet::Notices, &[Task::Announce])];

impl Pair {
    pub(super) fn compare_work(&mut self) -> Result {
        for (set, tasks) in SETS {
            let due = self.index.due(set, timestamp(self.model.now));
            let urgency = |task| usize::from(task == IndexTask::Evict);
            let order: Vec<_> = due.iter().map(|of| (urgency(of.task), of.is_retry, of.since)).collect();
            same(format_args!("the order of {set:?}"), &order.is_sorted(), &true)?;
            let mut given: Vec<_> = due
                .iter()
                .map(|of| (of.key.namespace.to_string(), of.key.uid, urgency(of.task), of.is_retry, of.since))
                .collect();
            let work = self.model.work(tasks).into_iter();
            let mut expected: Vec<_> = work
                .map(|((namespace, _, uid), (urgency, is_retry, since))| {
                    (wire::namespace(namespace), wire::uid(uid), urgency, is_retry, millis(since))
                })
                .collect();
            given.sort();
            expected.sort();
            same(format_args!("{set:?}"), &given, &expected)?;
        }
        Ok(())
    }

    /// Begins an act on the batch of one of the keys that are due, or on the most urgent if there are fewer.
    pub(super) fn take(&mut self, place: usize) -> Result {
        if self.in_flight[place].is_some() {
            return Ok(());
        }
        let now = timestamp(self.model.now);
        let Some((set, tasks)) = SETS.into_iter().find(|(set, _)| !self.index.due(*set, now).is_empty())
        else {
            return Ok(());
        };
        let due = self.index.due(set, now);
        let key = &due.get(place).unwrap_or(&due[0]).key;
        let group = self.index.batch(set, key, now);
        let first = |uid: &&u32| group.as_ref().is_some_and(|of| of.first.uid == wire::uid(**uid));
        let first = self.model.pods.keys().find(first).copied();
        let batch = first.and_then(|first| self.model.batch(tasks, first));
        let (Some(group), Some(batch)) = (group.as_ref(), batch) else {
            let question = "the first of a batch".to_owned();
            return Err(Difference {
                question,
                index: format!("{group:?}"),
                model: format!("{:?}", self.model.work(tasks)),
            });
        };
        let first = &batch.pods[0].uid;
        let task = match group.task {
            IndexTask::Expire => Task::Expire,
            IndexTask::Evict => Task::Evict,
            IndexTask::Announce => Task::Announce,
            // no notice, and in no order
            IndexTask::Withdraw | IndexTask::Note => Task::Withdraw,
        };
        same("the task of a batch", &task, &batch.task)?;
        let mut rest: Vec<_> = group.rest.iter().collect();
        rest.sort_by_key(|pod| pod.uid);
        let given: Vec<_> = std::iter::once(&group.first).chain(rest).map(|pod| given(task, pod)).collect();
        let expected: Vec<_> = batch.pods.iter().map(|pod| expected(task, pod)).collect();
        same(format!("batch to {task:?}"), &given, &expected)?;
        let name = match task {
            Task::Expire if group.first.attempts > 0 => "expired again",
            Task::Expire => "expired",
            Task::Evict if self.model.pods[first].scheduled().is_none() => "never placed",
            Task::Evict if group.first.cause == Cause::WaitForRecovery => "lost readiness",
            Task::Evict => "never ready",
            Task::Announce if group.first.announced_end == Some(group.first.deadline) => "announced again",
            Task::Announce => "announced",
            Task::Withdraw => "withdrawn",
        };
        self.seen.note(name, 1);
        self.seen.note("acted with others", group.rest.len());
        self.in_flight[place] = Some((group.clone(), batch));
        Ok(())
    }

    pub(super) fn record_outcome(&mut self, place: usize, scope: Scope, end: End) {
        let Some((group, batch)) = self.in_flight[place].take() else { return };
        let served = match scope {
            Scope::All => BatchCoverage::All,
            Scope::First => BatchCoverage::First,
            Scope::Gone => BatchCoverage::Gone,
        };
        let outcome = match (batch.task, end) {
            (_, End::Failed) => ActionOutcome::Failed,
            (Task::Announce | Task::Withdraw, _) | (_, End::Done) => ActionOutcome::Acted,
            (_, End::Paused) => ActionOutcome::Paused,
            (_, End::Final) => ActionOutcome::Final,
        };
        self.index.record_outcome(&group, served, outcome, timestamp(self.model.now));
        self.model.record_outcome(&batch, scope, end);
    }

    pub(super) fn check_stamps(&mut self) -> Result {
        let now = timestamp(self.model.now);
        let Self { index, model, unstamped, .. } = self;
        let name =
            |of: &PendingStamp| (of.group.kind, of.group.namespace.to_string(), of.group.name.to_string());
        // a group that was found stays so until its stamp is right
        unstamped.extend(index.new_stampings(now));
        *unstamped = unstamped.iter().filter_map(|of| index.stamping(of, now)).collect();
        unstamped.sort_by_key(name);
        unstamped.dedup();
        let written =
            |of: &PendingStamp| (name(of), of.uid.clone(), of.resource_version.clone(), of.start, of.written);
        let stampings = model.stampings();
        let expected = stampings.iter().map(|of| {
            let name = (of.key.0, wire::namespace(of.key.1), wire::group_name(of.key.2));
            (name, wire::uid_text(of.uid), of.version.to_string(), timestamp(of.start), of.written)
        });
        same("stampings", &unstamped.iter().map(written).collect::<Vec<_>>(), &expected.collect())?;
        for (of, stamping) in unstamped.iter().zip(&stampings) {
            let proven = model.run(stamping.key).and_then(|(_, run)| run.proven(&model.config));
            let is_early = proven.is_none_or(|proven| of.start < timestamp(proven));
            same(format_args!("{} is stamped before its pods started", of.group.name), &is_early, &false)?;
        }
        self.seen.note("stamped", stampings.len());
        for (of, of_model) in unstamped.iter().zip(stampings) {
            if self.stamps.iter().all(|(begun, _)| name(begun) != name(of)) {
                self.stamps.push((of.clone(), of_model));
            }
        }
        Ok(())
    }

    pub(super) fn end_stamp(&mut self, pick: usize, end: StampEnd) {
        if self.stamps.is_empty() {
            return;
        }
        let (stamping, of_model) = self.stamps.remove(pick % self.stamps.len());
        self.versions += 1;
        match end {
            StampEnd::Written => {
                self.index.note_stamp(&stamping, StampForm::Written(self.versions.to_string()));
            }
            StampEnd::Said => self.index.note_stamp(&stamping, StampForm::Said),
            StampEnd::Failed => {}
        }
        self.model.note_stamp(&of_model, end, self.versions);
    }

    pub(super) fn due_returns(&mut self) -> Result {
        let mut given = self.index.due_returns(timestamp(self.model.now));
        given.sort_by(|one, other| one.turn.cmp(&other.turn));
        let mut expected = self.model.due_returns();
        expected.sort_by(|one, other| one.order.cmp(&other.order));
        let facts = given.iter().map(|of| {
            let back = (of.paused.returns.comes_back(), of.is_due);
            (of.paused.uid.to_string(), back, of.paused.queue.to_string())
        });
        let wanted = expected.iter().map(|of| {
            let queue = of.queue.map(wire::runai_name).unwrap_or_default();
            (wire::uid_text(of.uid), (of.back.comes_back(), of.is_due), queue)
        });
        same("due_returns", &facts.collect::<Vec<_>>(), &wanted.collect())?;
        self.seen.note("returned", given.len());
        self.seen.note("returned early", expected.iter().filter(|of| of.is_early).count());
        self.seen.note("returned with others", given.len().saturating_sub(1));
        Ok(())
    }
}

/// The facts about a pod in a batch that are compared.
type Given =
    (Uid, Option<(Family, String)>, Timestamp, [Timestamp; 2], Option<Cause>, Option<Timestamp>, u8, bool);

fn given(task: Task, of: &tenure_index::DuePod) -> Given {
    // of what was announced and is no more, no queue has to be known
    let queue = (task != Task::Withdraw).then(|| (of.family, of.queue.clone()));
    let cause = (task == Task::Evict).then_some(of.cause);
    (of.uid, queue, of.deadline, [of.since, of.handed_out], cause, of.announced_end, of.attempts, of.outlives)
}

fn expected(task: Task, of: &DuePod) -> Given {
    let name = |queue| match of.family {
        Family::Runai => wire::runai_name(queue),
        Family::Tensorstack => wire::tensorstack_name(queue),
    };
    let queue = (task != Task::Withdraw).then(|| (of.family, of.queue.map(name).unwrap_or_default()));
    let announced_end = of.announced_end.map(millis);
    (
        wire::uid(of.uid),
        queue,
        millis(of.deadline),
        [of.since, of.handed_out].map(millis),
        of.cause,
        announced_end,
        of.attempts,
        of.outlives,
    )
}
