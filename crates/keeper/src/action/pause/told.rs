//! The events of a pause.

use jiff::Timestamp;
use serde_json::Value;
use tenure_index::DuePod;
use tenure_policy::{
    naming::reference,
    pause::{self, AtEnd, OwnerObject, PausedObject, Reversals, TOLD_REVERSALS},
};
use tenure_types::{
    paused::{GivenNotice, PausedRecord, RequeueState},
    projection::{self, Pod},
};

use super::super::{Pauser, cause, json};
use crate::{
    events::{DELETING, EventCause, EventRecord},
    recent::OwedEvents,
    returns::told_of_return,
};

/// Returns the events of a pause, from its record, which has the queue but not the pod.
pub fn told_of_pause(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> Vec<EventRecord> {
    let event = |reason, note| EventRecord {
        object: known.object.clone(),
        reason,
        action: "Pausing",
        note,
        at: record.at,
        cause: EventCause::of(record),
        request: None,
        end: None,
    };
    let paused =
        pause::event_reason(record).map(|reason| event(reason, pause::message(record, state, known)));
    let reversed = (record.reversals == TOLD_REVERSALS)
        .then(|| event(pause::PAUSE_REVERSED, pause::reversed(record, known)));
    let in_words = pause::in_words(record, state, known).map(|note| event(pause::RUN_ENDED, note));
    let noticed = record.noticed.map(|GivenNotice { end, at }| EventRecord {
        reason: pause::MAX_DURATION_APPROACHING,
        action: "Announcing",
        at,
        end: Some(end),
        ..event("", pause::approaching(end, &record.queue, &known.object, AtEnd::of(record, state)))
    });
    paused.into_iter().chain(reversed).chain(in_words).chain(noticed).collect()
}

/// The event on an owner that isn't paused another time.
pub(super) fn not_paused_again(
    (due, pod): (&DuePod, &Pod),
    record: &PausedRecord,
    reversals: &Reversals,
    known: &PausedObject,
) -> EventRecord {
    EventRecord {
        object: known.object.clone(),
        reason: pause::PAUSE_REVERSED,
        action: DELETING,
        note: pause::undone(record, reversals, known),
        at: due.deadline,
        cause: Some(cause(due, pod)),
        request: None,
        end: None,
    }
}

impl Pauser {
    /// The event on a `CronJob` that starts no further Job while this one is paused; none if it isn't one of such a `CronJob`, or
    /// if that can't be read.
    pub(super) async fn held_up(
        &self,
        due: &DuePod,
        job: &Value,
        known: &PausedObject,
        at: Timestamp,
    ) -> Option<EventRecord> {
        let metadata = projection::metadata(job);
        let cron_job = pause::cron_job_of(&known.object, &metadata)?;
        let found = self.objects.get(&due.namespace, &cron_job).await.ok()?;
        let is_same = found.metadata.uid.as_deref() == Some(&cron_job.uid);
        (is_same && pause::forbids_others(OwnerObject(&json(&found)))).then(|| EventRecord {
            object: reference(&cron_job, Some(&due.namespace)),
            reason: pause::CRON_JOB_HELD_UP,
            action: "Pausing",
            note: pause::held_up(&known.object),
            at,
            cause: None,
            request: None,
            end: None,
        })
    }

    /// Returns the events of recent pauses and returns that may not have been written.
    pub fn owed(&self) -> Vec<EventRecord> {
        if self.dry_run {
            return Vec::new();
        }
        let of = |owed: &OwedEvents| match owed {
            OwedEvents::OfPause(recent) => {
                told_of_pause(&recent.pause.record, &recent.pause.state, &recent.known)
            }
            OwedEvents::OfReturn(recent, returned) => {
                vec![told_of_return(&recent.pause.record, &recent.pause.state, &recent.known, *returned)]
            }
        };
        self.cluster.outbox.owed(self.clock.now()).iter().flat_map(of).collect()
    }
}
