//! Hands out pods that are due, and takes them back.

use jiff::Timestamp;

use super::CeilingIndex;
use crate::{BatchCoverage, DueBatch, Outcome, Task, Uid, deadlines::ManagedPod};

impl CeilingIndex {
    /// Hands out the pod that is most overdue at `now`, with the others of its controller that are overdue too.
    /// They are not handed out again before they are taken back. Expired pods come first.
    pub fn claim(&mut self, now: Timestamp) -> Option<DueBatch> {
        self.claim_where(now, |_| true)
    }

    /// The same for the pods of namespaces that `may` be acted in. It is asked in the order in which pods are due, until it
    /// returns true.
    pub fn claim_where(&mut self, now: Timestamp, may: impl FnMut(&str) -> bool) -> Option<DueBatch> {
        self.reschedule();
        self.reader.deadlines.claim(now, may)
    }

    /// The next instant at which there may be more to claim than at `now`.
    pub fn next_due_after(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.reschedule();
        self.reader.deadlines.next_due_after(now)
    }

    /// Takes back a group. The pods that were `served` had this `outcome`, and the others are due again at once. Pods that were
    /// handed out again since, or whose records were replaced, stay as they are.
    pub fn settle(&mut self, group: &DueBatch, served: BatchCoverage, outcome: Outcome, now: Timestamp) {
        if group.task == Task::Evict && outcome == Outcome::Paused {
            self.judge(group.first.uid);
        }
        let deadlines = &mut self.reader.deadlines;
        deadlines.settle(&group.first, group.task, outcome, now);
        for pod in &group.rest {
            if served == BatchCoverage::All {
                deadlines.settle(pod, group.task, outcome, now);
            } else {
                deadlines.release(pod, served == BatchCoverage::First);
            }
        }
        self.objects.moved.pods.extend(group.pods().map(|pod| pod.uid));
    }

    /// Notes that all pods of a root owner outlive the pause that this pod's run has led to: their run has ended with
    /// it, even if they are due later, or are handed out now.
    fn judge(&mut self, uid: Uid) {
        // the note was made for all pods at once
        let Some(pod) = self.reader.deadlines.get(uid).filter(|pod| !pod.outlives()) else { return };
        let Some(root) = self.objects.owners.root(pod.controller) else { return };
        let pods: Vec<Uid> = self.pods_of(&pod.namespace, root).map(|(uid, _)| uid).collect();
        self.reader.deadlines.outlive(&pods);
    }

    /// True if a pod has outlived a pause of its workload, which wasn't ready.
    pub fn outlives(&self, pod: Uid) -> bool {
        self.reader.deadlines.get(pod).is_some_and(ManagedPod::outlives)
    }

    /// Takes back everything that was handed out, and forgets which workloads were told of their end: the keeper that was
    /// to act on it doesn't lead any more, and its events may be lost. If it leads again, it looks at those workloads, as
    /// the next keeper would.
    pub fn release_all(&mut self) {
        self.reschedule();
        self.objects.moved.pods.extend(self.reader.deadlines.release_all());
    }
}
