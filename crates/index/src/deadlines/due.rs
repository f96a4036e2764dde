//! The tasks that are due, and their pods, as the index hands them to the keeper's
//! `ExpiryController`.

use arcstr::ArcStr;
use jiff::Timestamp;
pub use tenure_policy::judge::{BatchCoverage, Task};
use tenure_policy::{expiry::Family, judge::DuePods, ready::Cause};

use crate::{Uid, kinds::KindHash};

/// The tasks of one work queue of the keeper. Ends and notices have a queue each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSet {
    /// Tasks that end runs.
    Ends,
    /// Tasks that announce ends, or withdraw an announcement.
    Notices,
}

impl TaskSet {
    /// Returns the tasks, the most urgent first. When a notice is handed out, it may turn out to be
    /// a withdrawal.
    pub const fn by_urgency(self) -> &'static [Task] {
        match self {
            Self::Ends => &[Task::Expire, Task::Evict],
            Self::Notices => &[Task::Announce],
        }
    }
}

/// The pods that an act serves: those of a controller in a namespace, or one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueKey {
    /// The namespace of the pods.
    pub namespace: ArcStr,
    /// The uid of the controller, or of the pod.
    pub uid: Uid,
    /// The kind of the controller. Any user may name one uid with many kinds.
    pub kind: Option<KindHash>,
}

/// Work that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueWork {
    /// The pods.
    pub key: DueKey,
    /// The most urgent task.
    pub task: Task,
    /// True if the pods that are due first were tried before. Always false for evictions and
    /// notices.
    pub is_retry: bool,
    /// The time since which the first pod is due.
    pub since: Timestamp,
}

/// A pod for which a task is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePod {
    /// The pod's uid: another pod may have its name by now.
    pub uid: Uid,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The family whose ceiling counts.
    pub family: Family,
    /// The pod's queue of that family. Empty: none.
    pub queue: String,
    /// The time at which the ceiling is reached, or at which the workload must be ready.
    pub deadline: Timestamp,
    /// The time since which the task is due.
    pub since: Timestamp,
    /// The time at which the pod is handed out: a notice covers all points whose time has come by
    /// then.
    pub handed_out: Timestamp,
    /// The reason why the pod's workload isn't ready; [`Cause::WaitForStart`] if there is no such
    /// reason.
    pub cause: Cause,
    /// The end of the run in the workload's last notice, or for [`Task::Note`] and its withdrawal
    /// the end that the object shows. None: no notice was given.
    pub announced_end: Option<Timestamp>,
    /// The number of times that the task was done while the pod runs on. Failed tries count only
    /// for notices.
    pub attempts: u8,
    /// True if the pod has outlived a pause of its workload, which wasn't ready.
    pub outlives: bool,
}

/// Pods of one controller with the same task: one act on their owner serves all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueBatch {
    /// The task.
    pub task: Task,
    /// The pod that is most overdue.
    pub first: DuePod,
    /// The other pods, the most overdue first.
    pub rest: Vec<DuePod>,
}

impl DueBatch {
    /// All pods of the batch.
    pub fn pods(&self) -> impl Iterator<Item = &DuePod> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns the facts about the pods that a judgement needs.
    pub fn due(&self) -> DuePods {
        let DuePod { family, queue, deadline, handed_out, attempts, announced_end, .. } = self.first.clone();
        let first_deadline = self.pods().map(|pod| pod.deadline).min().unwrap_or(deadline);
        let last_deadline = self.pods().map(|pod| pod.deadline).max().unwrap_or(deadline);
        let announced_ends = self.pods().filter_map(|pod| pod.announced_end).collect();
        DuePods {
            family,
            queue,
            deadline,
            first_deadline,
            last_deadline,
            handed_out,
            first_announced_end: announced_end,
            announced_ends,
            attempts,
        }
    }
}

/// The result of an action, for the pods that the action has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// The action was done. Pods that are still there are due again after a growing wait, but not
    /// after a notice.
    Acted,
    /// The action was done, and the workload is paused. A pod that outlives the pause belongs to a
    /// run that was judged already.
    Paused,
    /// The end of the run has moved since the pods were handed out. The try doesn't count.
    Moved,
    /// The action could not be done. Pods are due again after a wait, which grows with each try.
    Failed,
    /// The action was too early. Pods are due again by the clock.
    TooEarly,
    /// No more action is to be taken on the pods.
    Final,
}
