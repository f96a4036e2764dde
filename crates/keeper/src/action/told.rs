//! The events of acts.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{DueBatch, Task};
use tenure_policy::{
    judge::{OwnerDeletion, PodDeletion},
    naming::{PausedObject, of_pod, reference},
    pause::{self, OwnerObject, Reversals, TOLD_REVERSALS},
    reason::EventReason,
};
use tenure_types::{
    journal::{GivenNotice, JournalAct},
    paused::{PausedRecord, RequeueState},
    projection::{Pod, WholeObject},
};

use crate::events::{DELETING, EventCause, EventRecord};

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
    let event = |reason, note| EventRecord {
        cause: EventCause::of(record),
        ..EventRecord::new(&known.object, reason, "Pausing", note, record.at)
    };
    let paused =
        pause::event_reason(record).map(|reason| event(reason, pause::message(record, state, known)));
    let reversed = (record.reversals == TOLD_REVERSALS)
        .then(|| event(EventReason::PauseReversed, pause::reversed(record, known)));
    let in_words = pause::in_words(record, state, known).map(|note| event(EventReason::RunEnded, note));
    // a person's pause draws none
    let is_ours = paused.is_some();
    paused.into_iter().chain(reversed).chain(in_words).filter(|_| is_ours).collect()
}

/// Returns the events of the deletion of a pod. They have the time of the deadline, which is the same for each keeper that
/// tries.
pub fn of_pod_deletion(batch: &DueBatch, pod: &OwnerReference, deletion: &PodDeletion) -> Vec<EventRecord> {
    let PodDeletion { alone, ceiling, undone: _ } = deletion;
    let (due, object) = (&batch.first, reference(pod, Some(&batch.first.namespace)));
    let event = |reason, note| EventRecord {
        cause: Some(EventCause { pod: Some(object.clone()), queue: due.queue.clone() }),
        ..EventRecord::new(&object, reason, DELETING, note, due.deadline)
    };
    if batch.task == Task::Evict {
        let note = pause::deleted_unready(&due.queue, alone);
        return vec![event(EventReason::EvictedDueToPodsReadyTimeout, note)];
    }
    let in_words = pause::deleted_in_words(&due.queue, ceiling.as_ref(), alone);
    let ended = event(EventReason::MaxDurationExceeded, pause::DELETED_MESSAGE.to_owned());
    vec![ended, event(EventReason::RunEnded, in_words)]
}

/// Returns the events of the deletion of an owner in place of a pause.
pub fn of_owner_deletion(
    batch: &DueBatch,
    pod: Option<&Pod>,
    known: &PausedObject,
    OwnerDeletion { owner, ceiling }: &OwnerDeletion,
) -> Vec<EventRecord> {
    let due = &batch.first;
    let event = |reason, note| EventRecord {
        cause: Some(cause(batch, pod)),
        ..EventRecord::new(&known.object, reason, DELETING, note, due.deadline)
    };
    let in_words = pause::owner_deleted_in_words(&due.queue, ceiling.as_ref(), &owner.kind, &owner.name);
    let ended = event(EventReason::MaxDurationExceeded, pause::owner_deleted(&owner.kind));
    vec![ended, event(EventReason::RunEnded, in_words)]
}

/// The event on an owner that isn't paused another time.
pub fn not_paused_again(
    batch: &DueBatch,
    pod: &OwnerReference,
    record: &PausedRecord,
    reversals: &Reversals,
    known: &PausedObject,
) -> EventRecord {
    let (due, note) = (&batch.first, pause::undone(record, reversals, known));
    let pod = Some(reference(pod, Some(&due.namespace)));
    EventRecord {
        cause: Some(EventCause { pod, queue: due.queue.clone() }),
        ..EventRecord::new(&known.object, EventReason::PauseReversed, DELETING, note, due.deadline)
    }
}

/// The event on a `CronJob` that starts no further Job while this one is paused. None: the `CronJob` allows others.
pub fn held_up(
    cron_job: &OwnerReference,
    found: &WholeObject,
    known: &PausedObject,
    at: Timestamp,
) -> Option<EventRecord> {
    let is_same = found.metadata.uid.as_deref() == Some(&cron_job.uid);
    let object = reference(cron_job, found.metadata.namespace.as_deref());
    let note = pause::held_up(&known.object);
    (is_same && pause::forbids_others(OwnerObject(&found.value)))
        .then(|| EventRecord::new(&object, EventReason::HeldUpByPausedJob, "Pausing", note, at))
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
