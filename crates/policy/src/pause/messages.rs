//! The messages about pauses, deletions and returns: the notes of events, and the text beside a
//! record.
//!
//! The keeper emits them, and the plugin prints some. A message names the object, the cause, and
//! the command that helps. The plugin reads some of them again: see [`RunEnd`].

mod cron_job;
mod run_end;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;
use tenure_types::{
    duration::for_people,
    journal::{AtEnd, GivenNotice, MoreTime},
    keys,
    paused::{ExceededCeiling, FieldManager, HeldField, PausedRecord, RequeueState},
};

use super::{
    DEACTIVATED, MAX_DURATION_EXCEEDED, PODS_READY_TIMEOUT, Reversals, WORKLOAD_INACTIVE, reversal::described,
};
use crate::{
    expiry::Family,
    field::FieldError,
    naming::{PausedObject, command},
    owner_table::is_shown,
    reason::EventReason,
};

pub use cron_job::{held_up, job_deleted, job_kept};
pub use run_end::RunEnd;
use run_end::{DRY_RUN, ENDED_BY, ENDED_IN};

/// The number of reversals of one owner's pauses at which an event reports them. A single reversal
/// may be the act of a person.
const REPORTED_REVERSALS: u32 = 2;

/// Returns the note of the event on a paused owner: the field, its value, and the cause.
pub fn message(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> String {
    let PausedRecord { reason, value, queue, .. } = record;
    let (field, value) = (known.field(record), plain(value));
    let because = match reason.as_str() {
        PODS_READY_TIMEOUT => format!("too few of its pods were {}{}", in_time(queue), returns(state)),
        WORKLOAD_INACTIVE => format!(
            "too few of its pods were {}, and it has come back as often as backoffLimitCount allows ({}): it stays paused until {}",
            in_time(queue),
            state.count,
            command("activate", &known.object)
        ),
        _ => "its pod's lifetime exceeded maxDuration defined in Queue".to_owned(),
    };
    format!("{} {field} to {value} because {because}", set(record))
}

/// Returns the verb of a pause: Tenure sets a field itself, or has a controller set it.
fn set(record: &PausedRecord) -> &'static str {
    if is_shown(&record.field) { "Sent a Command to set" } else { "Set" }
}

/// Returns "ready in time" with the source of the rule. The block may be that of a queue further up
/// or, without a queue, that of the configuration.
fn in_time(queue: &str) -> String {
    let which = if queue.is_empty() {
        "of the configuration".into()
    } else {
        format!("that applies in Queue {queue}")
    };
    format!("ready in time by the waitForPodsReady {which}")
}

/// Returns the number and the time of the next return; empty if there is none.
fn returns(RequeueState { count, requeue_at, .. }: &RequeueState) -> String {
    requeue_at.map_or_else(String::new, |at| format!(": return {count} is at {at:.0}"))
}

/// Returns the reasons and notes of the events of a pause. None are emitted for a pause by a user.
pub fn events(
    record: &PausedRecord,
    state: &RequeueState,
    known: &PausedObject,
) -> Vec<(EventReason, String)> {
    let Some(reason) = event_reason(record) else { return Vec::new() };
    let reversed = (record.reversals == REPORTED_REVERSALS)
        .then(|| (EventReason::PauseReversed, reversed(record, known)));
    let in_words = in_words(record, state, known).map(|note| (EventReason::RunEnded, note));
    [Some((reason, message(record, state, known))), reversed, in_words].into_iter().flatten().collect()
}

/// Returns the reason of the event on a paused owner. None: a user has deactivated the owner, and
/// needs no event.
fn event_reason(record: &PausedRecord) -> Option<EventReason> {
    match record.reason.as_str() {
        MAX_DURATION_EXCEEDED => Some(EventReason::MaxDurationExceeded),
        PODS_READY_TIMEOUT => Some(EventReason::EvictedDueToPodsReadyTimeout),
        WORKLOAD_INACTIVE => Some(EventReason::DeactivatedDueToRequeuingLimitExceeded),
        _ => None,
    }
}

/// Returns the note of the event on an owner that comes back.
///
/// `count` is the number of times that its pods weren't ready in time. `is_early`: another workload
/// has left room.
pub fn came_back(record: &PausedRecord, count: u32, known: &PausedObject, is_early: bool) -> String {
    let early = || format!(", early because another workload of Queue {} has left", record.queue);
    let because = match record.reason.as_str() {
        PODS_READY_TIMEOUT => {
            let early = if is_early { early() } else { String::new() };
            format!("return {count} after too few of its pods were ready in time{early}")
        }
        WORKLOAD_INACTIVE | DEACTIVATED => "it was activated".to_owned(),
        _ => "its next time slice begins".to_owned(),
    };
    format!("{} {} back to {}: {because}", set(record), known.field(record), before(record))
}

/// Returns the note of the event on an owner whose return the API server refuses. The error, which
/// may be long, comes last.
pub fn return_refused(record: &PausedRecord, error: &str, known: &PausedObject) -> String {
    format!(
        "Could not set {} back to {}. The keeper tries again: allow its service account this change, or run {}. {error}",
        known.field(record),
        before(record),
        command("resume", &known.object)
    )
}

fn before(record: &PausedRecord) -> String {
    if record.previous_value.is_null() { "unset".to_owned() } else { plain(&record.previous_value) }
}

/// Returns a value as a text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The note of the event on a pod that was deleted because it has no room for evidence.
pub const DELETED_FULL: &str = "Deleted because the pod is too large for annotation tenure.dev/evidence, which bounds its run. Create it again with a smaller spec, or with fewer labels and annotations";

/// The note of the event on a pod that was deleted for its ceiling.
pub const DELETED_MESSAGE: &str = "Deleted because its lifetime exceeded maxDuration defined in Queue";

/// The reason why the pod itself is deleted and no owner is paused. Each text names an owner, as
/// [`describe`](crate::naming::describe) does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodDeletionCause {
    /// No owner can be paused.
    NoOwner,
    /// This owner has another pod, which is exempt by priority.
    Spared(String),
    /// The pod runs on after all tries to pause this owner.
    Outlives(String),
    /// This owner has ended.
    Finished(String),
    /// Each pause of this owner was undone.
    Undone(String),
}

impl PodDeletionCause {
    /// Returns the reason as the second half of a sentence about the pod.
    fn why(&self) -> String {
        match self {
            Self::NoOwner => "it has no owner that could be paused and come back".to_owned(),
            Self::Spared(owner) => {
                format!("{owner} is not paused, because it has a pod that is exempt by priority")
            }
            Self::Outlives(owner) => format!("it runs on after all tries to pause {owner}"),
            Self::Finished(owner) => format!("{owner} has ended"),
            Self::Undone(owner) => format!("{owner} was resumed by another writer after each pause"),
        }
    }
}

/// Returns the note of the event on a pod that was deleted because its workload wasn't ready.
pub fn deleted_unready(queue: &str, alone: &PodDeletionCause) -> String {
    let why = alone.why();
    format!("Deleted because its workload was not {}, and {why}", in_time(queue))
}

/// Returns the note of an event in a dry run, which only reports.
pub fn dry_run(message: &str) -> String {
    format!("{DRY_RUN}{message}")
}

/// Returns the note of the event on an owner whose pauses were undone again.
fn reversed(record: &PausedRecord, known: &PausedObject) -> String {
    format!(
        "{} was set back {} times after it was set to {}{}: if a controller does so (an autoscaler, Argo CD, Flux), have it ignore {0}",
        known.field(record),
        record.reversals,
        plain(&record.value),
        by(record.reversed_by.as_ref())
    )
}

/// Returns the note of the event on an owner that isn't paused again: its pods are deleted. The
/// record is of its last pause.
pub fn undone(record: &PausedRecord, reversals: &Reversals, known: &PausedObject) -> String {
    format!(
        "{} was set back {} times after it was set to {}, each time for a full run{}: not paused again, its pods are deleted when they exceed maxDuration (onReversal: DeletePods). To have it paused again: {}",
        known.field(record),
        reversals.full,
        plain(&record.value),
        by(reversals.by.as_ref()),
        command("resume", &known.object)
    )
}

fn by(manager: Option<&FieldManager>) -> String {
    manager.map_or_else(String::new, |manager| format!(", last by {}", described(manager)))
}

/// Returns the note of the event on a workload whose run will end: the time left, the end, the
/// action at the end, and how to get more time.
pub fn approaching(notice: &GivenNotice, object: &ObjectReference) -> String {
    let GivenNotice { queue, end, at, then, more } = notice;
    let left = end.duration_since(*at).as_secs();
    let left = for_people(SignedDuration::from_secs(left.max(0)));
    let more = more.map_or_else(String::new, |more| ask(more, object));
    let then = match *then {
        AtEnd::Paused => format!("it is paused until {}", command("resume", object)),
        AtEnd::Requeued(delay) => {
            format!("it is paused, and comes back by itself after {delay}")
        }
        AtEnd::Deleted => "it is deleted: it has no owner that could be paused".to_owned(),
        AtEnd::OwnerDeleted => "it is deleted with its pods, and can't be resumed".to_owned(),
    };
    let end = clock(*end, *at);
    format!(
        "Its run in Queue {queue} ends in {left}, at {end}: save what is needed to go on. Then {then}{more}"
    )
}

/// Returns the time of day of an end in UTC, for a reader at the time `now`: with the date if it
/// is on another day, and to the second if it is less than 10 minutes away.
fn clock(end: Timestamp, now: Timestamp) -> String {
    const NEAR: SignedDuration = SignedDuration::from_mins(10);
    let of_day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    let day = Some(of_day(end)).filter(|day| *day != of_day(now)).map(|day| day + " ").unwrap_or_default();
    let time = end.strftime(if end.duration_since(now) < NEAR { "%H:%M:%S" } else { "%H:%M" });
    format!("{day}{time} UTC")
}

/// Returns the sentence about more time, with the command that asks for it.
fn ask(MoreTime { at_once, in_all }: MoreTime, object: &ObjectReference) -> String {
    let (bounds, time) = if !at_once.is_positive() {
        (format!("up to {} with approval", for_people(in_all)), in_all)
    } else if at_once < in_all {
        (
            format!("up to {} at once, up to {} with approval", for_people(at_once), for_people(in_all)),
            at_once,
        )
    } else {
        (format!("up to {} at once", for_people(in_all)), in_all)
    };
    format!(". For more time, ask before that: {} {} ({bounds})", command("extend", object), for_people(time))
}

/// Returns the note, in plain words, of the event that a ceiling has paused a workload. None: the
/// pause has another reason.
pub fn in_words(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> Option<String> {
    let resume = command("resume", &known.object);
    let then = match state.requeue_at {
        Some(at) => format!("It is paused, and comes back by itself at {at:.0}. To resume it now: {resume}"),
        None => format!("It stays paused until you resume it, with a full ceiling again: {resume}"),
    };
    let late = if record.unannounced { NO_NOTICE } else { "" };
    let held = held(record);
    let ended = || format!("{}. {then}{late}{held}", ended(&record.queue, record.ceiling.as_ref()));
    (record.reason == MAX_DURATION_EXCEEDED).then(ended)
}

/// Returns the text beside a record, for people who look at the object: the time and the reason of
/// the pause, and the command that ends it. `kubectl describe` cuts a text after 140 letters.
pub fn noted(record: &PausedRecord, state: &RequeueState, known: &PausedObject) -> String {
    let PausedRecord { reason, at, queue, ceiling, .. } = record;
    let when = state.requeue_at.map_or_else(|| format!("at {at:.0}"), |back| format!("{at:.0} to {back:.0}"));
    let to = |verb| format!("To {verb}: {}", command(verb, &known.object));
    match reason.as_str() {
        PODS_READY_TIMEOUT => {
            format!("Paused {when}: too few of its pods were ready in time. {}", to("requeue"))
        }
        WORKLOAD_INACTIVE => {
            format!("Deactivated at {at:.0}: its pods failed to get ready too often. {}", to("activate"))
        }
        DEACTIVATED => format!("Deactivated at {at:.0} by a person. {}", to("activate")),
        _ => {
            let of = ceiling.as_ref().map_or(Some(queue), |of| of.queue.as_ref());
            let set_by = of.map_or_else(|| "its own".into(), |of| format!("Queue {of}'s"));
            let long = ceiling.as_ref().map(|of| format!(" of {}", of.max_duration)).unwrap_or_default();
            format!("Paused {when} by {set_by} ceiling{long}. {}", to("resume"))
        }
    }
}

/// Returns the sentence about fields that are held during the pause.
fn held(record: &PausedRecord) -> String {
    let of = |HeldField { field, value, previous_value }: &HeldField| {
        format!(
            ". So that nothing is lost, {field} is {value} in place of {previous_value} until it runs again"
        )
    };
    record.held.iter().map(of).collect()
}

/// Returns the note, in plain words, of the event that a pod was deleted for its ceiling.
pub fn deleted_in_words(queue: &str, ceiling: Option<&ExceededCeiling>, alone: &PodDeletionCause) -> String {
    let why = alone.why();
    format!("{}. The pod was deleted, because {why}. To run it again, create it again", ended(queue, ceiling))
}

/// Returns the note of the event on an owner of this kind that was deleted instead of paused.
pub fn owner_deleted(kind: &str) -> String {
    format!("{DELETED_MESSAGE}, and the configuration of Tenure has onExpiry: Delete for {kind}")
}

/// Returns the note, in plain words, of the event that an owner was deleted for its ceiling.
pub fn owner_deleted_in_words(
    queue: &str,
    ceiling: Option<&ExceededCeiling>,
    kind: &str,
    name: &str,
) -> String {
    format!(
        "{}. {kind} {name} was deleted with its pods, because the configuration of Tenure says so of this kind (onExpiry: Delete). It doesn't come back: to run it again, create it again",
        ended(queue, ceiling)
    )
}

const NO_NOTICE: &str = ". It got no notice beforehand, since the keeper could not write one in time";

/// Returns the first sentence about a run that has ended, without its full stop. [`RunEnd::read`]
/// reads it again: change both together.
fn ended(queue: &str, ceiling: Option<&ExceededCeiling>) -> String {
    let which = ceiling.map(|ExceededCeiling { max_duration, queue: of, extended }| {
        let by = match of.as_deref() {
            None => format!("set by its own annotation {}", keys::MAX_DURATION_ANNOTATION),
            Some(of) if of == queue => "set by that queue".to_owned(),
            Some(above) => format!("set by Queue {above} above it"),
        };
        let extended = extended.as_ref().map(|time| format!(", and the end of the {time} granted beyond it"));
        format!(" of {max_duration}, {by}{}", extended.unwrap_or_default())
    });
    format!("{ENDED_IN}{queue}{ENDED_BY}{}", which.unwrap_or_default())
}

/// Returns the note about a workload's own ceiling that can't be read, with the error.
pub fn own_invalid(value: &str, error: &str) -> String {
    let field = format!("metadata.annotations[{}]", keys::MAX_DURATION_ANNOTATION);
    FieldError::invalid(field, value, error).to_string()
}

/// Returns the note about a workload that names a queue which doesn't exist.
pub fn unknown_queue(family: Family, queue: &str) -> String {
    let label = family.row().queue_label;
    format!(
        "Queue {queue:?}, which its pods name, doesn't exist: no ceiling ends its run. Correct label {label} of its pod template, or spec.queue of its PodGroup, or have the queue created"
    )
}

/// Returns the note about an owner that has the label of a queue itself, while its pods have none.
pub fn unused_label(key: &str) -> String {
    format!(
        "metadata.labels[{key}]: its pods have no queue, so no ceiling ends its run: write the label to the metadata of its pod template"
    )
}

/// Returns the note about a workload's own ceiling that is longer than that of its queue.
pub fn own_ignored(own: SignedDuration, ceiling: &ExceededCeiling) -> String {
    let ExceededCeiling { max_duration, queue, extended: _ } = ceiling;
    let queue = queue.as_deref().unwrap_or_default();
    format!(
        "Annotation {} of {} has no effect: Queue {queue} ends a run after {max_duration}, and a workload can only shorten that",
        keys::MAX_DURATION_ANNOTATION,
        for_people(own)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(reason: &str, field: &str, value: Value, previous_value: Value) -> PausedRecord {
        let at = Timestamp::UNIX_EPOCH;
        let mut record = json!({"reason": reason, "at": at, "queue": "research", "field": field});
        (record["value"], record["previousValue"]) = (value, previous_value);
        serde_json::from_value(record).unwrap()
    }

    fn job() -> PausedObject {
        let text = |text: &str| Some(text.to_owned());
        let object = ObjectReference {
            api_version: text("batch/v1"),
            kind: text("Job"),
            name: text("train"),
            namespace: text("team"),
            ..ObjectReference::default()
        };
        PausedObject { object, workload: None }
    }

    #[test]
    fn of_a_job_that_kueue_runs_the_event_says_that_its_workload_was_paused() {
        let job = PausedObject { workload: Some("job-train-1f".into()), ..job() };
        let record = record(MAX_DURATION_EXCEEDED, "spec.active", json!(false), Value::Null);
        let note = message(&record, &RequeueState::default(), &job);
        assert!(note.starts_with("Set spec.active of its Workload job-train-1f to false because"), "{note}");
        let back = came_back(&record, 0, &job, false);
        assert!(back.starts_with("Set spec.active of its Workload job-train-1f back to unset: "), "{back}");
        let refused = return_refused(&record, "no", &job);
        assert!(refused.contains("kubectl tenure resume job.batch/train -n team"), "{refused}");
    }

    #[test]
    fn a_ceiling_is_named_in_the_words_of_its_text_in_any_state() {
        let state = RequeueState { count: 1, requeue_at: Some(Timestamp::UNIX_EPOCH), priority: None };
        let of = |field: &str, value| {
            message(&record(MAX_DURATION_EXCEEDED, field, value, json!(2)), &state, &job())
        };
        let rest = "because its pod's lifetime exceeded maxDuration defined in Queue";
        assert_eq!(of("spec.replicas", json!(0)), format!("Set spec.replicas to 0 {rest}"));
        assert_eq!(of("spec.suspend", json!(true)), format!("Set spec.suspend to true {rest}"));
        assert_eq!(of("spec.runMode", json!("paused")), format!("Set spec.runMode to paused {rest}"));
    }

    #[test]
    fn the_event_of_an_eviction_names_the_queue_and_when_it_comes_back_or_what_helps() {
        let at = "2026-01-02T03:09:05.678901Z".parse().ok();
        let of = |reason: &str, count, requeue_at, owner: &PausedObject| {
            let state = RequeueState { count, requeue_at, priority: None };
            message(&record(reason, "spec.suspend", json!(true), json!(false)), &state, owner)
        };
        let because = "Set spec.suspend to true because too few of its pods were ready in time by the waitForPodsReady that applies in Queue research";
        for (requeue_at, rest) in [(at, ": return 2 is at 2026-01-02T03:09:05Z"), (None, "")] {
            assert_eq!(of(PODS_READY_TIMEOUT, 2, requeue_at, &job()), format!("{because}{rest}"));
        }
        let rest = ", and it has come back as often as backoffLimitCount allows (10): it stays paused until kubectl tenure activate job.batch/train -n team";
        assert_eq!(of(WORKLOAD_INACTIVE, 10, None, &job()), format!("{because}{rest}"));
        let mut nowhere = record(PODS_READY_TIMEOUT, "spec.suspend", json!(true), json!(false));
        nowhere.queue.clear();
        let note = message(&nowhere, &RequeueState::default(), &job());
        assert!(note.ends_with("ready in time by the waitForPodsReady of the configuration"), "{note}");
        let object = ObjectReference { api_version: Some("v1".into()), namespace: None, ..job().object };
        let core = PausedObject { object, workload: None };
        let note = of(WORKLOAD_INACTIVE, 0, None, &core);
        assert!(note.ends_with("(0): it stays paused until kubectl tenure activate job/train"), "{note}");
    }

    #[test]
    fn a_pause_by_the_keeper_has_an_event_and_one_by_a_person_has_none() {
        for (reason, expected) in [
            (MAX_DURATION_EXCEEDED, Some("MaxDurationExceeded")),
            (PODS_READY_TIMEOUT, Some("EvictedDueToPodsReadyTimeout")),
            (WORKLOAD_INACTIVE, Some("DeactivatedDueToRequeuingLimitExceeded")),
            (DEACTIVATED, None),
        ] {
            let of_event = event_reason(&record(reason, "spec.replicas", json!(0), json!(2)));
            assert_eq!(of_event.map(EventReason::name), expected);
        }
    }

    #[test]
    fn a_notice_says_when_and_in_which_queue_the_run_ends() {
        let (end, at) = (time("2026-01-02T17:02:16Z"), time("2026-01-02T16:32:16Z"));
        let notice = |then| GivenNotice { queue: "research".into(), end, at, then, more: None };
        let of = |then| approaching(&notice(then), &job().object);
        let ends = "Its run in Queue research ends in 30m, at 17:02 UTC: save what is needed to go on. Then";
        for (then, expected) in [
            (AtEnd::Paused, "it is paused until kubectl tenure resume job.batch/train -n team"),
            (AtEnd::Requeued("600s".parse().unwrap()), "it is paused, and comes back by itself after 600s"),
            (AtEnd::Deleted, "it is deleted: it has no owner that could be paused"),
        ] {
            assert_eq!(of(then), format!("{ends} {expected}"));
        }
        assert_eq!(dry_run("x"), "Dry run, nothing was done: x");
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_record_in_words_says_all_that_matters_in_what_kubectl_describe_shows() {
        let noted = |reason: &str, ceiling, requeue_at: Option<&str>| {
            let requeue_at = requeue_at.map(time);
            let record = PausedRecord {
                ceiling,
                at: time("2026-01-02T03:04:05.678Z"),
                ..record(reason, "spec.suspend", json!(true), json!(false))
            };
            noted(&record, &RequeueState { requeue_at, ..RequeueState::default() }, &job())
        };
        let of = |queue: Option<&str>| {
            let queue = queue.map(str::to_owned);
            Some(ExceededCeiling { max_duration: "2h30m".into(), queue, extended: None })
        };
        let resume = "To resume: kubectl tenure resume job.batch/train -n team";
        let paused = "Paused at 2026-01-02T03:04:05Z";
        let above = noted(MAX_DURATION_EXCEEDED, of(Some("company")), None);
        assert_eq!(above, format!("{paused} by Queue company's ceiling of 2h30m. {resume}"));
        let own = noted(MAX_DURATION_EXCEEDED, of(None), Some("2026-01-02T04:00:00Z"));
        let slice = "Paused 2026-01-02T03:04:05Z to 2026-01-02T04:00:00Z";
        assert_eq!(own, format!("{slice} by its own ceiling of 2h30m. {resume}"));
        let unknown = noted(MAX_DURATION_EXCEEDED, None, None);
        assert_eq!(unknown, format!("{paused} by Queue research's ceiling. {resume}"));
        for said in [above, own, unknown, noted(PODS_READY_TIMEOUT, None, None)] {
            assert!(said.len() <= 140, "{said}");
        }
    }

    #[test]
    fn an_end_is_given_by_the_clock_with_what_a_reader_needs() {
        let of = |end, now| clock(time(end), time(now));
        assert_eq!(of("2026-01-02T17:02:16Z", "2026-01-02T17:01:16Z"), "17:02:16 UTC");
        assert_eq!(of("2026-01-03T00:02:16Z", "2026-01-02T23:02:16Z"), "2026-01-03 00:02 UTC");
    }

    #[test]
    fn a_notice_names_how_to_ask_for_more_time_only_where_a_run_may_get_some() {
        let of = |at_once: i64, in_all: i64| {
            let [at_once, in_all] = [at_once, in_all].map(SignedDuration::from_mins);
            ask(MoreTime { at_once, in_all }, &job().object)
        };
        let asked = ". For more time, ask before that: kubectl tenure extend job.batch/train -n team";
        assert_eq!(of(1, 90), format!("{asked} 1m (up to 1m at once, up to 1h30m with approval)"));
        assert_eq!(of(0, 90), format!("{asked} 1h30m (up to 1h30m with approval)"));
        assert_eq!(of(10, 10), format!("{asked} 10m (up to 10m at once)"));
    }

    #[test]
    fn a_pauses_event_says_in_plain_words_its_ceiling_what_happens_and_what_helps() {
        let ceiling = |queue: Option<&str>| {
            Some(ExceededCeiling {
                max_duration: "2h30m".into(),
                queue: queue.map(str::to_owned),
                extended: None,
            })
        };
        let of = |reason: &str, ceiling, requeue_at| {
            let record =
                PausedRecord { ceiling, ..record(reason, "spec.suspend", json!(true), json!(false)) };
            in_words(&record, &RequeueState { requeue_at, ..RequeueState::default() }, &job())
        };
        let reached = "Its run in Queue research has reached the ceiling";
        let stays = "It stays paused until you resume it, with a full ceiling again: kubectl tenure resume job.batch/train -n team";
        let comes_back = "It is paused, and comes back by itself at 2026-01-02T03:04:05Z. To resume it now: kubectl tenure resume job.batch/train -n team";
        let at = "2026-01-02T03:04:05.678Z".parse().ok();
        for (ceiling, requeue_at, expected) in [
            (ceiling(Some("research")), None, format!("{reached} of 2h30m, set by that queue. {stays}")),
            (
                ceiling(Some("lab")),
                at,
                format!("{reached} of 2h30m, set by Queue lab above it. {comes_back}"),
            ),
            (
                ceiling(None),
                None,
                format!("{reached} of 2h30m, set by its own annotation tenure.dev/max-duration. {stays}"),
            ),
            (None, None, format!("{reached}. {stays}")),
        ] {
            assert_eq!(of(MAX_DURATION_EXCEEDED, ceiling, requeue_at), Some(expected));
        }
        for reason in [PODS_READY_TIMEOUT, WORKLOAD_INACTIVE, DEACTIVATED] {
            assert_eq!(of(reason, None, None), None, "{reason}");
        }
    }

    #[test]
    fn a_deleted_pods_event_says_in_plain_words_why() {
        let queue = Some("research".into());
        let ceiling = ExceededCeiling { max_duration: "10s".into(), queue, extended: None };
        let expected = "Its run in Queue research has reached the ceiling of 10s, set by that queue. The pod was deleted, because it has no owner that could be paused and come back. To run it again, create it again";
        assert_eq!(deleted_in_words("research", Some(&ceiling), &PodDeletionCause::NoOwner), expected);
    }

    #[test]
    fn a_pause_that_is_set_back_again_and_again_is_recorded_with_what_helps() {
        let record = PausedRecord {
            reversals: 2,
            ..record(MAX_DURATION_EXCEEDED, "spec.runMode", json!("paused"), json!("run"))
        };
        let expected = |by: &str| {
            format!(
                "spec.runMode was set back 2 times after it was set to paused{by}: if a controller does so (an autoscaler, Argo CD, Flux), have it ignore spec.runMode"
            )
        };
        assert_eq!(reversed(&record, &PausedObject::default()), expected(""));
        let record = PausedRecord { reversed_by: Some(argocd()), ..record };
        let by = ", last by field manager \"argocd-controller\" (Apply at 2026-01-02T03:04:05Z)";
        assert_eq!(reversed(&record, &PausedObject::default()), expected(by));
    }

    fn argocd() -> FieldManager {
        let time = "2026-01-02T03:04:05Z".parse().ok();
        FieldManager {
            manager: "argocd-controller".into(),
            operation: "Apply".into(),
            subresource: None,
            time,
        }
    }

    #[test]
    fn the_event_of_an_owner_that_is_not_paused_again_says_who_set_it_back_and_what_helps() {
        let record = record(MAX_DURATION_EXCEEDED, "spec.suspend", json!(true), json!(false));
        let reversals = Reversals { count: 5, full: 3, by: Some(argocd()) };
        let expected = "spec.suspend was set back 3 times after it was set to true, each time for a full run, last by field manager \"argocd-controller\" (Apply at 2026-01-02T03:04:05Z): not paused again, its pods are deleted when they exceed maxDuration (onReversal: DeletePods). To have it paused again: kubectl tenure resume job.batch/train -n team";
        assert_eq!(undone(&record, &reversals, &job()), expected);
    }

    #[test]
    fn the_event_of_a_return_says_why() {
        let known = PausedObject::default();
        let of = |reason: &str, before| {
            came_back(&record(reason, "spec.replicas", json!(0), before), 3, &known, false)
        };
        for (reason, before, expected) in [
            (PODS_READY_TIMEOUT, json!(2), "2: return 3 after too few of its pods were ready in time"),
            (MAX_DURATION_EXCEEDED, Value::Null, "unset: its next time slice begins"),
            (WORKLOAD_INACTIVE, json!(2), "2: it was activated"),
            (DEACTIVATED, json!(2), "2: it was activated"),
        ] {
            assert_eq!(of(reason, before), format!("Set spec.replicas back to {expected}"));
        }
        let early =
            came_back(&record(PODS_READY_TIMEOUT, "spec.replicas", json!(0), json!(2)), 3, &known, true);
        assert!(
            early.ends_with("in time, early because another workload of Queue research has left"),
            "{early}"
        );
    }

    #[test]
    fn the_event_of_a_refused_return_says_why_and_what_helps() {
        let record = record(PODS_READY_TIMEOUT, "spec.suspend", json!(true), json!(false));
        let expected = "Could not set spec.suspend back to false. The keeper tries again: allow its service account this change, or run kubectl tenure resume job.batch/train -n team. refused: no quota";
        assert_eq!(return_refused(&record, "refused: no quota", &job()), expected);
    }

    #[test]
    fn a_deleted_pods_event_says_why_nothing_comes_back() {
        let owner = || "Job train (batch/v1)".to_owned();
        for (alone, expected) in [
            (PodDeletionCause::NoOwner, "it has no owner that could be paused and come back"),
            (
                PodDeletionCause::Spared(owner()),
                "Job train (batch/v1) is not paused, because it has a pod that is exempt by priority",
            ),
            (PodDeletionCause::Outlives(owner()), "it runs on after all tries to pause Job train (batch/v1)"),
            (PodDeletionCause::Finished(owner()), "Job train (batch/v1) has ended"),
            (
                PodDeletionCause::Undone(owner()),
                "Job train (batch/v1) was resumed by another writer after each pause",
            ),
        ] {
            let because = "Deleted because its workload was not ready in time by the waitForPodsReady that applies in Queue research";
            assert_eq!(deleted_unready("research", &alone), format!("{because}, and {expected}"));
        }
    }

    #[test]
    fn the_message_about_the_end_of_a_run_can_be_read_again() {
        for (ceiling, expected) in [
            (None, None),
            (Some(("2h30m", None)), Some("2h30m")),
            (Some(("1h", Some("research"))), Some("1h")),
            (Some(("1h", Some("above"))), Some("1h")),
        ] {
            let ceiling = ceiling.map(|(text, queue): (&str, Option<&str>)| ExceededCeiling {
                max_duration: text.into(),
                queue: queue.map(str::to_owned),
                extended: None,
            });
            let record = PausedRecord {
                ceiling: ceiling.clone(),
                ..record(MAX_DURATION_EXCEEDED, "spec.suspend", json!(true), json!(false))
            };
            let expected = Some(RunEnd { queue: "research", ceiling: expected });
            let paused = in_words(&record, &RequeueState::default(), &job()).unwrap();
            assert_eq!(RunEnd::read(&paused), expected, "{paused}");
            let deleted = deleted_in_words("research", ceiling.as_ref(), &PodDeletionCause::NoOwner);
            assert_eq!(RunEnd::read(&deleted), expected, "{deleted}");
            let deleted = owner_deleted_in_words("research", ceiling.as_ref(), "Job", "train");
            assert_eq!(RunEnd::read(&deleted), expected, "{deleted}");
            assert!(RunEnd::is_dry_run(&dry_run(&paused)) && !RunEnd::is_dry_run(&paused));
        }
        assert_eq!(RunEnd::read("Set spec.suspend to true"), None);
    }

    #[test]
    fn of_an_own_ceiling_without_effect_the_event_says_what_would_be_right() {
        let queue = Some("research".into());
        let ceiling = ExceededCeiling { max_duration: "2h".into(), queue, extended: None };
        assert_eq!(
            own_ignored(SignedDuration::from_hours(5), &ceiling),
            "Annotation tenure.dev/max-duration of 5h has no effect: Queue research ends a run after 2h, and a workload can only shorten that"
        );
        let invalid = own_invalid("soon", "must be a duration");
        assert_eq!(
            invalid,
            "metadata.annotations[tenure.dev/max-duration]: Invalid value: \"soon\": must be a duration"
        );
    }
}
