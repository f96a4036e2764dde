//! The facts of a case.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_types::{
    ExtendedDuration,
    journal::MoreTime,
    paused::ExceededCeiling,
    projection::{Pod, WholeObject},
    runai::v3alpha1::OnReversal,
};

use crate::{
    climb,
    config::Config,
    expiry::Family,
    notice::NoticePoints,
    owners::{Obedience, PausableKinds},
    requeue::Backoff,
};

/// The number of tries to stop an owner, in some five minutes, after which the pod itself is deleted.
pub const TRIES: u8 = 9;

/// A task about a group of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// Its ceiling was exceeded.
    Expire,
    /// Its workload wasn't ready in time.
    Evict,
    /// Its workload is to get a notice of the end of its run.
    Announce,
    /// Its workload has a notice, and no ceiling applies any more.
    Withdraw,
    /// Its workload is to show the end of its run, which nothing is told of.
    Note,
}

impl Task {
    /// True for a task that ends a run.
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::Expire | Self::Evict)
    }
}

/// The pods of a case, as they were handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The family whose ceiling counts.
    pub family: Family,
    /// The queue of that family that the pod is in; empty for none.
    pub queue: String,
    /// The time at which the ceiling is reached, or at which the workload must be ready.
    pub deadline: Timestamp,
    /// The first of the deadlines of all pods.
    pub first_deadline: Timestamp,
    /// The time at which they were handed out.
    pub handed_out: Timestamp,
    /// The end of the run in the last notice to the workload of the first.
    pub first_told: Option<Timestamp>,
    /// The ends of the run in the last notices to the workloads of all.
    pub told: Vec<Timestamp>,
    /// The number of times that the task was done while the pod runs on.
    pub attempts: u8,
}

/// A fact that the judgement asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// The pod, if it is still the one that is meant, and not exempt.
    Pod,
    /// Whether the pod is still there, after its owner was read.
    StillThere,
    /// Whether the queue and all on its way to the root are as the watches have shown them.
    Queues,
    /// The way from the pod up to its topmost owner that can be paused.
    Climb,
    /// Kueue's Workload for this owner. None: for the pod.
    Workload(Option<OwnerReference>),
    /// Whether a pod below this owner is exempt by priority.
    ExemptPod(OwnerReference),
    /// Whether this owner is paused, being deleted or gone.
    Stopped(OwnerReference),
    /// This object, as it is now.
    Object(OwnerReference),
}

/// The way up from a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Climbed {
    /// The action at its end.
    pub action: climb::Action,
    /// The owners on it that can be paused, the topmost last.
    pub pausable: Vec<OwnerReference>,
    /// The topmost owner that could be paused, had it not ended.
    pub ended: Option<OwnerReference>,
}

/// The answers of the API server so far.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The answer to [`Question::Pod`].
    pub pod: Option<Option<Pod>>,
    /// The answer to [`Question::StillThere`].
    pub is_still_there: Option<bool>,
    /// The answer to [`Question::Queues`].
    pub queues_are_as_known: Option<bool>,
    /// The answer to [`Question::Climb`].
    pub climbed: Option<Climbed>,
    /// The answer to [`Question::Workload`].
    pub workload: Option<Option<OwnerReference>>,
    /// The answers to [`Question::ExemptPod`], by the uid of the owner.
    pub exempt_pods: HashMap<String, bool>,
    /// The answers to [`Question::Stopped`], by the uid of the owner.
    pub stopped: HashMap<String, bool>,
    /// The answer to [`Question::Object`]. None in it: the object is gone.
    pub object: Option<(OwnerReference, Option<WholeObject>)>,
}

/// The state of a run by the index and the clock. It is taken again right before a write.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, each for itself")]
pub struct RunState {
    /// True if all watches have answered.
    pub is_fresh: bool,
    /// The queue that the pod is in, of the family that is due; empty for none. None: the pod is in no queue of any family.
    pub queue: Option<String>,
    /// The queue that its workload names, where no queue has that name and the default queue counts.
    pub absent_queue: Option<String>,
    /// The end of its run, and the family whose ceiling sets it.
    pub end: Option<(Timestamp, Family)>,
    /// The beginning of its run.
    pub since: Option<Timestamp>,
    /// The ceiling that sets the end.
    pub ceiling: Option<ExceededCeiling>,
    /// The end of its run by the ceiling that its owner notes, as it was read.
    pub end_below: Option<Timestamp>,
    /// The end of its run by the extensions that were listed.
    pub granted_end: Option<Timestamp>,
    /// The first end of all pods of the owner.
    pub first_end: Option<Timestamp>,
    /// True if a queue on its way to the root has been missing for a moment only.
    pub awaits_queue: bool,
    /// True if it has outlived a pause of its workload, which wasn't ready.
    pub outlives: bool,
    /// True if its run may get more time.
    pub may_be_extended: bool,
    /// The time that its run may still get. None: no more.
    pub more: Option<MoreTime>,
    /// The notices before the end of a run of its queue.
    pub notice: NoticePoints,
    /// The time that workloads of its queue wait after their time slice.
    pub slice_delay: Option<ExtendedDuration>,
    /// The reaction of its queue to undone pauses.
    pub on_reversal: OnReversal,
    /// The returns of its queue's workloads that don't get ready.
    pub backoff: Option<Backoff>,
}

/// A case: a task about pods, and the facts that are known of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The task.
    pub task: Task,
    /// The pods.
    pub due: Due,
    /// The configuration, the same for the whole case.
    pub config: Arc<Config>,
    /// The answers of the API server.
    pub answers: Answers,
}

impl Answers {
    /// Takes an owner from the way up whose schema has no field that pauses, so that the next owner below is paused. False:
    /// its kind has had the field in all versions, or there is no owner below.
    pub fn leave_out(&mut self, owner: &OwnerReference) -> bool {
        let is_newer = PausableKinds::obedience(owner) == Obedience::Newer;
        let Some(climbed) = self.climbed.as_mut().filter(|_| is_newer) else { return false };
        if climbed.pausable.pop_if(|of| of.uid == owner.uid).is_none() {
            return false;
        }
        let Some(below) = climbed.pausable.last() else { return false };
        climbed.action = climb::Action::Pause(below.clone());
        (self.object, self.is_still_there, self.workload) = (None, None, None);
        true
    }
}

impl Case {
    pub(super) fn pod(&self) -> Result<Option<&Pod>, Question> {
        self.answers.pod.as_ref().map(Option::as_ref).ok_or(Question::Pod)
    }

    pub(super) fn is_still_there(&self) -> Result<bool, Question> {
        self.answers.is_still_there.ok_or(Question::StillThere)
    }

    pub(super) fn queues_are_as_known(&self) -> Result<bool, Question> {
        self.answers.queues_are_as_known.ok_or(Question::Queues)
    }

    pub(super) fn object(&self, owner: &OwnerReference) -> Result<Option<&WholeObject>, Question> {
        let object = self.answers.object.as_ref().filter(|(of, _)| of.uid == owner.uid);
        object.map(|(_, found)| found.as_ref()).ok_or_else(|| Question::Object(owner.clone()))
    }

    /// True once all tries have been made.
    pub(super) const fn is_last(&self) -> bool {
        self.task.ends_run() && self.due.attempts >= TRIES
    }

    /// True if the pod is due by its own labels, annotations and times as they are now.
    pub(super) fn is_due(&self, state: &RunState, now: Timestamp) -> bool {
        let Some(queue) = &state.queue else { return false };
        let is_same_queue = *queue == self.due.queue;
        match state.end {
            // no queue is noted for one that doesn't exist
            _ if self.task == Task::Evict => is_same_queue || self.due.queue.is_empty(),
            Some((end, family)) => is_same_queue && family == self.due.family && end < now,
            None => false,
        }
    }
}
