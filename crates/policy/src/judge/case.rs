//! The facts of a case. The keeper gathers them: [`CaseFacts`] from the API server, once each, and
//! [`RunState`] from the index, again before each judgement.

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
    owner_table::{Obedience, PausableKinds},
    requeue::Backoff,
};

/// The number of tries to stop an owner, within some five minutes. After that the pod itself is
/// deleted.
pub const TRIES: u8 = 9;

/// A task about the pods of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// End a run that has exceeded its ceiling.
    Expire,
    /// End the run of a workload whose pods weren't ready in time.
    Evict,
    /// Give a workload a notice of the end of its run.
    Announce,
    /// Remove the notice of a workload to which no ceiling applies any more.
    Withdraw,
    /// Write the end of its run on a workload, without an event.
    Note,
}

impl Task {
    /// True for the tasks that end a run. The others only write annotations and events.
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::Expire | Self::Evict)
    }
}

/// The pods of a case, as the index handed them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuePods {
    /// The family whose ceiling counts.
    pub family: Family,
    /// The queue of that family that the pod is in; empty: it is in none.
    pub queue: String,
    /// The time at which the ceiling is reached, or at which the workload must be ready.
    pub deadline: Timestamp,
    /// The earliest deadline of all pods of the batch.
    pub first_deadline: Timestamp,
    /// The latest deadline of all pods of the batch.
    pub last_deadline: Timestamp,
    /// The time at which the batch was handed out.
    pub handed_out: Timestamp,
    /// The end of the run in the last notice to the workload of the first pod. None: it had no
    /// notice.
    pub first_announced_end: Option<Timestamp>,
    /// The ends of the run in the last notices to the workloads of all pods.
    pub announced_ends: Vec<Timestamp>,
    /// The number of times that the task was done although the pod runs on. Compared with
    /// [`TRIES`].
    pub attempts: u8,
}

/// A fact that the judgement lacks. The keeper answers each by requests to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum MissingFact {
    /// The pod, if it has the uid of the batch's first pod and isn't exempt.
    Pod,
    /// Whether the pod still exists, read after its owner was.
    StillThere,
    /// Whether the queue and all queues on its way to the root are as the watches have reported.
    Queues,
    /// The way from the pod up to its topmost owner that can be paused.
    Climb,
    /// The Workload of Kueue that runs this owner. None: the one that runs the pod.
    Workload(Option<OwnerReference>),
    /// Whether a pod below this owner is exempt by priority.
    ExemptPod(OwnerReference),
    /// Whether this owner is paused, is being deleted, or is gone.
    Stopped(OwnerReference),
    /// The current version of this object.
    Object(OwnerReference),
}

/// The way from a pod up through its owners.
#[derive(Clone, Debug, PartialEq)]
pub struct Climbed {
    /// The action at the end of the way.
    pub action: climb::Action,
    /// The owners on the way that can be paused, the topmost last.
    pub pausable: Vec<OwnerReference>,
    /// The topmost owner that could have been paused, had it not ended. None: there is none.
    pub ended: Option<OwnerReference>,
}

/// The answers of the API server so far. None in a field: not asked yet.
#[derive(Clone, Debug, Default)]
pub struct CaseFacts {
    /// The answer to [`MissingFact::Pod`]. An inner None: the pod is gone, replaced or exempt.
    pub pod: Option<Option<Pod>>,
    /// The answer to [`MissingFact::StillThere`].
    pub is_still_there: Option<bool>,
    /// The answer to [`MissingFact::Queues`].
    pub queues_are_as_known: Option<bool>,
    /// The answer to [`MissingFact::Climb`].
    pub climbed: Option<Climbed>,
    /// The answer to [`MissingFact::Workload`]. An inner None: Kueue runs neither the owner nor the
    /// pod by a Workload.
    pub workload: Option<Option<OwnerReference>>,
    /// The answers to [`MissingFact::ExemptPod`], by the uid of the owner.
    pub exempt_pods: HashMap<String, bool>,
    /// The answers to [`MissingFact::Stopped`], by the uid of the owner.
    pub stopped: HashMap<String, bool>,
    /// The answer to [`MissingFact::Object`], and the object that it is about. An inner None: the
    /// object is gone.
    pub object: Option<(OwnerReference, Option<WholeObject>)>,
}

/// The state of a run by the index and the clock, taken again right before each judgement.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, each for itself")]
pub struct RunState {
    /// True if all watches have answered, so that the index is up to date.
    pub is_fresh: bool,
    /// The pod's queue in the family that is due; empty: none in that family. None: the pod is in
    /// no queue of any family.
    pub queue: Option<String>,
    /// The name of the missing queue that its workload names, where the default queue counts in its
    /// place.
    pub absent_queue: Option<String>,
    /// The end of its run, and the family whose ceiling sets it. None: no ceiling applies.
    pub end: Option<(Timestamp, Family)>,
    /// The beginning of its run. None: it isn't known.
    pub since: Option<Timestamp>,
    /// The ceiling that sets the end.
    pub ceiling: Option<ExceededCeiling>,
    /// The end of its run by the ceiling that its owner notes, with the owner as it was read last.
    pub end_below: Option<Timestamp>,
    /// The end of its run by the granted extensions that were listed right before the write.
    pub granted_end: Option<Timestamp>,
    /// The earliest end of all pods below the owner.
    pub first_end: Option<Timestamp>,
    /// True if a queue on its way to the root has been missing only for a moment.
    pub awaits_queue: bool,
    /// True if the pod has outlived a pause of its workload, which wasn't ready in time.
    pub outlives: bool,
    /// The time by which its workload must be ready, as the watches show it. None: the workload is
    /// ready or may take any time, or the pod is gone.
    pub ready_by: Option<Timestamp>,
    /// True if the extensions of its queue allow more time at all.
    pub may_be_extended: bool,
    /// The time that its run may still get by an extension. None: no more.
    pub more: Option<MoreTime>,
    /// The points before the end at which its workload gets notices.
    pub notice: NoticePoints,
    /// The time that workloads of its queue stay paused after a time slice. None: the ceiling
    /// pauses until a resume.
    pub slice_delay: Option<ExtendedDuration>,
    /// The action of its queue when each pause is undone.
    pub on_reversal: OnReversal,
    /// The returns of workloads of its queue that aren't ready in time. None: such workloads aren't
    /// evicted.
    pub backoff: Option<Backoff>,
}

/// A case: a task about the pods of a batch, and the facts known so far.
#[derive(Clone, Debug)]
pub struct Case {
    /// The task.
    pub task: Task,
    /// The pods of the batch.
    pub due: DuePods,
    /// The configuration. A reload doesn't change it within a case.
    pub config: Arc<Config>,
    /// The answers of the API server so far.
    pub answers: CaseFacts,
}

impl CaseFacts {
    /// Drops an owner whose schema lacks the field that pauses, so that the next owner below is
    /// paused instead. The answers about the owner are dropped with it.
    ///
    /// False: nothing was dropped. All versions of its kind have the field, or there is no owner
    /// below.
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
    /// Returns the pod as it was read. None: it is gone or exempt.
    pub(super) fn pod(&self) -> Result<Option<&Pod>, MissingFact> {
        self.answers.pod.as_ref().map(Option::as_ref).ok_or(MissingFact::Pod)
    }

    pub(super) fn is_still_there(&self) -> Result<bool, MissingFact> {
        self.answers.is_still_there.ok_or(MissingFact::StillThere)
    }

    pub(super) fn queues_are_as_known(&self) -> Result<bool, MissingFact> {
        self.answers.queues_are_as_known.ok_or(MissingFact::Queues)
    }

    /// Returns an owner as it was read. None: it is gone.
    pub(super) fn object(&self, owner: &OwnerReference) -> Result<Option<&WholeObject>, MissingFact> {
        let object = self.answers.object.as_ref().filter(|(of, _)| of.uid == owner.uid);
        object.map(|(_, found)| found.as_ref()).ok_or_else(|| MissingFact::Object(owner.clone()))
    }

    /// True once all tries to stop an owner were made.
    pub(super) const fn is_last(&self) -> bool {
        self.task.ends_run() && self.due.attempts >= TRIES
    }

    /// True if the pod is due by its own labels, annotations and times as they are now.
    pub(super) fn is_due(&self, state: &RunState, now: Timestamp) -> bool {
        let Some(queue) = &state.queue else { return false };
        let is_same_queue = *queue == self.due.queue;
        match state.end {
            // a queue that doesn't exist is handed out as an empty name
            _ if self.task == Task::Evict => is_same_queue || self.due.queue.is_empty(),
            Some((end, family)) => is_same_queue && family == self.due.family && end < now,
            None => false,
        }
    }
}
