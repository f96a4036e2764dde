//! The work that is due, and its results. The keeper's `ExpiryController` lists the work with
//! `due`, takes a `batch` right before each act, and calls `record_outcome` with the result.

use jiff::Timestamp;

use super::CeilingIndex;
use crate::{ActionOutcome, BatchCoverage, DueBatch, DueKey, DueWork, Task, TaskSet, Uid};

impl CeilingIndex {
    /// Returns the work that is due at `now`, the most urgent first: one entry for the pods that
    /// one act may serve.
    pub fn due(&mut self, tasks: TaskSet, now: Timestamp) -> Vec<DueWork> {
        self.reschedule();
        self.reader.deadlines.due(tasks, now)
    }

    /// Returns the pods of a key whose most urgent task is due at `now`. None: no task is due.
    pub fn batch(&mut self, tasks: TaskSet, key: &DueKey, now: Timestamp) -> Option<DueBatch> {
        self.reschedule();
        self.reader.deadlines.batch(tasks, key, now)
    }

    /// Returns the next instant after `now` at which more work is due. None: no more work is
    /// planned.
    pub fn next_due_after(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.reschedule();
        self.reader.deadlines.next_due_after(now)
    }

    /// Records the result of an act on a batch. The pods that were `served` had this `outcome`; the
    /// others are still due. If an act that ends runs has served only the first pod, each of the
    /// others gets an act of its own.
    pub fn record_outcome(
        &mut self,
        group: &DueBatch,
        served: BatchCoverage,
        outcome: ActionOutcome,
        now: Timestamp,
    ) {
        if group.task == Task::Evict && outcome == ActionOutcome::Paused {
            self.judge(group.first.uid);
        }
        let deadlines = &mut self.reader.deadlines;
        deadlines.record_outcome(&group.first, group.task, outcome, now);
        for pod in &group.rest {
            match served {
                BatchCoverage::All => deadlines.record_outcome(pod, group.task, outcome, now),
                BatchCoverage::First if group.task.ends_run() => deadlines.try_alone(pod.uid),
                BatchCoverage::First | BatchCoverage::Gone => {}
            }
        }
        self.objects.moved.pods.extend(group.pods().map(|pod| pod.uid));
    }

    /// Records that the pods of this pod's root owner outlive its pause: all of them, also those
    /// that are due later or in flight.
    fn judge(&mut self, uid: Uid) {
        // this was recorded for all pods at once
        let Some(pod) = self.reader.deadlines.get(uid).filter(|pod| !pod.outlives()) else { return };
        let Some(root) = self.objects.owners.root(pod.controller) else { return };
        let pods: Vec<Uid> = self.pods_of(&pod.namespace, root).map(|(uid, _)| uid).collect();
        self.reader.deadlines.outlive(&pods);
    }

    /// Forgets which workloads got a notice of their present end: the keeper that sent the notices
    /// doesn't lead any more, and its events may be lost. If it leads again, it checks those
    /// workloads again, as the next keeper would.
    pub fn forget_notices(&mut self) {
        self.reschedule();
        self.objects.moved.pods.extend(self.reader.deadlines.forget_notices());
    }
}

#[cfg(test)]
impl CeilingIndex {
    /// All batches that are due.
    pub fn batches(&mut self, now: Timestamp) -> Vec<DueBatch> {
        let sets = [TaskSet::Ends, TaskSet::Notices].into_iter();
        let due: Vec<_> =
            sets.flat_map(|of| self.due(of, now).into_iter().map(move |work| (of, work))).collect();
        due.iter().filter_map(|(of, work)| self.batch(*of, &work.key, now)).collect()
    }

    /// True if a pod has outlived a pause of its workload, which wasn't ready.
    pub fn outlives(&self, pod: Uid) -> bool {
        self.reader.deadlines.get(pod).is_some_and(crate::deadlines::ManagedPod::outlives)
    }

    /// The batch that is due most.
    pub fn next_batch(&mut self, now: Timestamp) -> Option<DueBatch> {
        self.batches(now).into_iter().next()
    }
}
