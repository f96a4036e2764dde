//! The events of acts: of pauses, returns, notices and deletions.
//!
//! The `Pauser`, the controller of returns and the outbox build events here. The events of an act
//! in a journal follow from the journal alone, so any keeper builds the same events.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use tenure_index::{DueBatch, Task};
use tenure_policy::{
    judge::PodDeletion,
    naming::{PausedObject, of_pod, reference},
    pause::{self, OwnerObject, PausedRun},
    reason::EventReason,
};
use tenure_types::{
    journal::JournalAct,
    paused::{PausedRecord, RequeueState},
    projection::{Pod, WholeObject},
};

use crate::events::{DELETING, EventCause, EventRecord};

/// Returns the events of an act, as the journal of its object has it. `known` is the object that
/// gets the events.
pub fn events_of(act: &JournalAct, known: &PausedObject) -> Vec<EventRecord> {
    match act {
        JournalAct::Paused { record, state } => of_pause(record, state, known),
        JournalAct::Returned { record, state, returned } => {
            let reason = if returned.reactivated { EventReason::Reactivated } else { EventReason::Requeued };
            let note = pause::came_back(record, state.count, known, returned.early);
            vec![EventRecord::new(&known.object, reason, "Resuming", note, returned.at)]
        }
        JournalAct::Noticed(notice) => {
            let note = pause::approaching(notice, &known.object);
            let reason = EventReason::MaxDurationApproaching;
            let event = EventRecord::new(&known.object, reason, "Announcing", note, notice.at);
            vec![EventRecord { end: Some(notice.end), ..event }]
        }
    }
}

/// Returns the events of a pause. The record of a pause names the queue as its cause, but no pod.
fn of_pause(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> Vec<EventRecord> {
    let event = |(reason, note)| EventRecord {
        cause: EventCause::of(record),
        ..EventRecord::new(&known.object, reason, "Pausing", note, record.at)
    };
    pause::events(record, state, known).into_iter().map(event).collect()
}

/// Returns the events of a deletion. Their time is the deadline, which is the same for each keeper
/// that tries.
pub fn of_deletion<const N: usize>(
    batch: &DueBatch,
    object: &ObjectReference,
    cause: &EventCause,
    notes: [(EventReason, String); N],
) -> Vec<EventRecord> {
    let event = |(reason, note)| EventRecord {
        cause: Some(cause.clone()),
        ..EventRecord::new(object, reason, DELETING, note, batch.first.deadline)
    };
    notes.map(event).into()
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

/// Returns the event on a `CronJob` of which a Job was paused. `beside` is the number of its other
/// paused Jobs, and `most` the number that are kept. None: the `CronJob` will delete the Job
/// itself.
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

/// Keeps only the first event. Its note then says what the keeper would do without the dry run, and
/// when. `at` None: its time stays.
pub fn of_dry_run(events: &mut Vec<EventRecord>, at: Option<Timestamp>) {
    events.truncate(1);
    for event in events {
        event.note = pause::dry_run(&event.note);
        event.at = at.unwrap_or(event.at);
    }
}
