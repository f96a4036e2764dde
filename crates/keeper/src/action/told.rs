//! The events of acts.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use tenure_index::{DueBatch, Task, Uid};
use tenure_policy::{
    judge::PodDeletion,
    naming::{PausedObject, of_pod, reference},
    pause::{self, OwnerObject, PausedRun, ResumeCondition},
    reason::EventReason,
};
use tenure_types::{
    journal::{GivenNotice, JournalAct},
    paused::{PausedRecord, RequeueState},
    projection::{Pod, WholeObject},
};

use super::{Pauser, Work};
use crate::{
    events::{DELETING, EventCause, EventRecord},
    handles::Handles,
};

impl Pauser {
    /// Completes the events of a pause.
    pub(super) async fn tell_paused(
        &self,
        work: &Work<'_>,
        record: &PausedRecord,
        known: &PausedObject,
        until: &ResumeCondition,
        events: &mut Vec<EventRecord>,
    ) {
        if !self.handles.dry_run && !matches!(until, ResumeCondition::Requeued(_)) {
            let cron_job = work.found().and_then(|found| pause::cron_job_of(&known.object, &found.metadata));
            if let Some(cron_job) = cron_job {
                events.extend(self.tell_cron_job(work, &cron_job, known, record.at).await);
            }
        }
        self.handles.cluster.outbox.telling(known, record.at);
        for event in &mut *events {
            event.cause = Some(work.cause());
        }
        if self.handles.dry_run {
            of_dry_run(events, Some(work.batch.first.deadline));
        }
    }

    /// Returns the event on the `CronJob` of a Job that was paused.
    async fn tell_cron_job(
        &self,
        work: &Work<'_>,
        cron_job: &OwnerReference,
        known: &PausedObject,
        at: Timestamp,
    ) -> Option<EventRecord> {
        let Handles { cluster, objects, .. } = &*self.handles;
        let (namespace, job) = (&work.batch.first.namespace, known.object.uid.as_deref()?);
        let found = objects.live(namespace, cron_job).await.ok()??;
        let (uid, job) = (Uid::of(&cron_job.uid), Uid::of(job));
        let source = cluster.source_of_jobs()?;
        let beside = cluster.with(|index| index.paused_beside(namespace, uid, job, source));
        of_cron_job((cron_job, &found), known, at, beside, work.case.config.paused_history_limit)
    }
}

/// Returns the events of an act, as the journal of its object has it.
pub fn events_of(act: &JournalAct, known: &PausedObject) -> Vec<EventRecord> {
    match act {
        JournalAct::Paused { record, state } => of_pause(record, state, known),
        JournalAct::Returned { record, state, returned } => {
            let reason = if returned.reactivated { EventReason::Reactivated } else { EventReason::Requeued };
            let note = pause::came_back(record, state.count, known, returned.early);
            vec![EventRecord::new(&known.object, reason, "Resuming", note, returned.at)]
        }
        JournalAct::Noticed(GivenNotice { queue, end, at, then }) => {
            let note = pause::approaching(*end, queue, &known.object, *then);
            let reason = EventReason::MaxDurationApproaching;
            let event = EventRecord::new(&known.object, reason, "Announcing", note, *at);
            vec![EventRecord { end: Some(*end), ..event }]
        }
    }
}

/// Returns the events of a pause. Its record has the queue but not the pod.
fn of_pause(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> Vec<EventRecord> {
    let event = |(reason, note)| EventRecord {
        cause: EventCause::of(record),
        ..EventRecord::new(&known.object, reason, "Pausing", note, record.at)
    };
    pause::told(record, state, known).into_iter().map(event).collect()
}

/// Returns the events of a deletion. They have the time of the deadline, which is the same for each keeper that tries.
pub fn of_deletion<const N: usize>(
    batch: &DueBatch,
    object: &ObjectReference,
    cause: &EventCause,
    told: [(EventReason, String); N],
) -> Vec<EventRecord> {
    let event = |(reason, note)| EventRecord {
        cause: Some(cause.clone()),
        ..EventRecord::new(object, reason, DELETING, note, batch.first.deadline)
    };
    told.map(event).into()
}

/// Returns the events of the deletion of a pod.
pub fn of_pod_deletion(batch: &DueBatch, pod: &Pod, deletion: &PodDeletion) -> Vec<EventRecord> {
    let PodDeletion { alone, ceiling, undone: _ } = deletion;
    let (queue, cause) = (&batch.first.queue, cause(batch, Some(pod)));
    let object = reference(&of_pod(pod), Some(&batch.first.namespace));
    if batch.task == Task::Evict {
        let note = pause::deleted_unready(queue, alone);
        return of_deletion(batch, &object, &cause, [(EventReason::EvictedDueToPodsReadyTimeout, note)]);
    }
    let in_words = pause::deleted_in_words(queue, ceiling.as_ref(), alone);
    let ended = (EventReason::MaxDurationExceeded, pause::DELETED_MESSAGE.to_owned());
    of_deletion(batch, &object, &cause, [ended, (EventReason::RunEnded, in_words)])
}

/// The event on a `CronJob` of which a Job was paused, and of its Jobs `beside` others. None: the `CronJob` will delete the Job itself.
pub fn of_cron_job(
    cron_job: (&OwnerReference, &WholeObject),
    known: &PausedObject,
    at: Timestamp,
    beside: usize,
    most: Option<usize>,
) -> Option<EventRecord> {
    let (cron_job, found) = cron_job;
    let (reason, note) = match PausedRun::of(OwnerObject(&found.value)) {
        PausedRun::HoldsUp => (EventReason::HeldUpByPausedJob, pause::held_up(&known.object)),
        PausedRun::StaysBeside => {
            let paused = beside.saturating_add(1);
            (EventReason::PausedJobKept, pause::job_kept(&known.object, paused, most))
        }
        PausedRun::IsReplaced => return None,
    };
    let object = reference(cron_job, found.metadata.namespace.as_deref());
    Some(EventRecord::new(&object, reason, "Pausing", note, at))
}

/// Returns the cause of an act on a pod, or on its owner.
pub fn cause(batch: &DueBatch, pod: Option<&Pod>) -> EventCause {
    let namespace = Some(batch.first.namespace.as_str());
    let pod = pod.map(|pod| reference(&of_pod(pod), namespace));
    EventCause { pod, queue: batch.first.queue.clone() }
}

/// Leaves the first event, which says what a dry run would do, and when.
pub fn of_dry_run(events: &mut Vec<EventRecord>, at: Option<Timestamp>) {
    events.truncate(1);
    for event in events {
        event.note = pause::dry_run(&event.note);
        event.at = at.unwrap_or(event.at);
    }
}
