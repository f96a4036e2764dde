//! The answer about a pod, in sentences.
//!
//! Called by `explain` and `explain pod` for the form that people read. Facts are those of
//! [`PodExplanation`]; nothing is computed here but times from now.

use jiff::Timestamp;
use tenure_types::keys::EXPIRES_AT_ANNOTATION;

use super::{ExpiryAction, PodExplanation, Protection, QueueRelation, TolerationAnswer};
use crate::{
    access::QueueAccess,
    explain::text::{from_now, paragraph},
    floors::SourcedValue,
    print::{human, moment},
};

/// Returns three paragraphs: what the pod is, its protection, and its end.
pub fn sentences(answer: &PodExplanation, now: Timestamp) -> String {
    let paragraphs = [
        paragraph(&answer.pod, &who(answer, now)),
        paragraph("How long it is protected:", &protected(answer, now)),
        paragraph("When it ends:", &[end(answer, now), answer.without_effect.clone()].concat()),
    ];
    paragraphs.join("\n")
}

/// Returns sentences about the workload, the queues and the start.
fn who(answer: &PodExplanation, now: Timestamp) -> Vec<String> {
    // the group matters for floors and starts; an owner that would be paused is named below
    let is_member = answer.workload.starts_with("PodGroup ");
    let mut sentences = vec![if is_member {
        format!("it is a member of {}, which starts and is protected as one workload", answer.workload)
    } else {
        "it is in no PodGroup, and so is protected by itself".into()
    }];
    sentences.push(match &answer.queue {
        Some(queue) if answer.queue_is_hidden => format!("it names queue {queue:?}, which you may not read"),
        Some(queue) if answer.path.is_empty() => {
            format!("it names queue {queue:?}, which doesn't exist: the default floors apply")
        }
        Some(queue) if answer.path.last() != Some(queue) => {
            format!(
                "it names queue {queue:?}, which doesn't exist: the default queue counts ({})",
                answer.path.join(" > ")
            )
        }
        Some(queue) => format!("it is in queue {queue:?} ({})", answer.path.join(" > ")),
        None => "it is in no queue of group scheduling.run.ai: no floor applies".into(),
    });
    sentences
        .extend(answer.tensorstack_queue.as_ref().map(|queue| format!("it is in queue {queue:?} of T9k")));
    sentences.extend(answer.queue_access.iter().map(QueueAccess::sentence));
    let from = answer.started_at_from;
    sentences.push(match answer.started_at {
        Some(at) if at > now => {
            format!("its workload's start time, {at}, lies in the future and counts as now ({from})")
        }
        Some(at) => format!("its workload started at {at} ({from})"),
        None => format!("its workload has not started ({from})"),
    });
    sentences
}

/// Returns sentences about floors and tolerations.
fn protected(answer: &PodExplanation, now: Timestamp) -> Vec<String> {
    let (near, far): (Vec<_>, Vec<_>) =
        answer.protected.iter().partition(|protection| protection.preemptor != QueueRelation::OtherTree);
    let near = near.into_iter().map(|protection| sentence(protection, &against(protection), now));
    let mut sentences: Vec<String> = near.collect();
    // preemptors of all other trees meet the same floor
    sentences.extend(far.first().map(|first| match far.len() {
        1 => sentence(first, &against(first), now),
        many => sentence(first, &format!("against each of the {many} other top-level queues"), now),
    }));
    if answer.elastic && !answer.protected.is_empty() {
        sentences.push("its workload is elastic: it may lose pods beyond its minimum at any time".into());
    }
    sentences.extend(answer.priority_class_trouble.clone());
    sentences.extend(answer.preemption_toleration.as_ref().map(|toleration| tolerated(toleration, now)));
    if answer.queue_is_hidden {
        sentences.push("its floors aren't known: you may not read queues".into());
    } else if sentences.is_empty() {
        sentences.push("nothing protects it".into());
    }
    sentences
}

/// Returns a sentence about the toleration of the priority class.
fn tolerated(toleration: &TolerationAnswer, now: Timestamp) -> String {
    let TolerationAnswer { priority_class: class, minimum_preemptable_priority: minimum, .. } = toleration;
    match (toleration.toleration_seconds, toleration.until) {
        (0, _) => format!("its PriorityClass {class:?} gives no protection"),
        (..0, _) => format!("against priorities below {minimum}: always (PriorityClass {class:?})"),
        (_, Some(at)) => {
            let until = from_now(at, now);
            format!("against priorities below {minimum}: until {until} (PriorityClass {class:?})")
        }
        (seconds, None) => format!(
            "against priorities below {minimum}: not protected (PriorityClass {class:?} tolerates them for {seconds}s after scheduling)"
        ),
    }
}

/// Returns the preemptors that a protection is against.
fn against(protection: &Protection) -> String {
    let queue = &protection.preemptor_queue;
    match protection.preemptor {
        QueueRelation::Same => format!("against workloads of its own queue {queue:?}"),
        QueueRelation::Below => format!("against workloads elsewhere below queue {queue:?}"),
        QueueRelation::OtherTree => format!("against workloads of queue {queue:?} and below"),
    }
}

/// Returns a sentence about one floor.
fn sentence(protection: &Protection, against: &str, now: Timestamp) -> String {
    let Protection { kind, floor: SourcedValue { value, from }, until, .. } = protection;
    let until = until.map_or("not protected".into(), |at| format!("until {}", from_now(at, now)));
    format!("{against}: {until} ({kind} floor {value}, {from})")
}

/// Returns sentences about the end of the run, its notices, and the keeper's action then.
fn end(answer: &PodExplanation, now: Timestamp) -> Vec<String> {
    if let Some(why) = answer.exempt {
        return vec![format!("never by Tenure: {why}")];
    }
    let ceiling =
        answer.max_duration.as_ref().map(|of| format!("maxDuration is {}, from {}", of.value, of.from));
    let Some(at) = answer.expires_at else {
        return vec![match ceiling {
            _ if answer.end_is_hidden => {
                format!(
                    "its end isn't known: you may not read queues, and no {EXPIRES_AT_ANNOTATION} is noted"
                )
            }
            Some(ceiling) => {
                format!("{ceiling}: counted from the pod's scheduling, and the pod isn't scheduled yet")
            }
            None => "no ceiling applies".into(),
        }];
    };
    let from = answer.ceiling_since_from.unwrap_or_default();
    let since =
        answer.ceiling_since.map(|since| format!(", counted from {since} ({from})")).unwrap_or_default();
    let why = match ceiling {
        _ if answer.end_is_hidden => format!("as its workload shows ({EXPIRES_AT_ANNOTATION})"),
        Some(ceiling) if answer.shows_end => {
            format!(
                "{ceiling}, which was shortened during the run: the grace ends then ({EXPIRES_AT_ANNOTATION})"
            )
        }
        ceiling => ceiling.unwrap_or_default() + &since,
    };
    let mut sentences = vec![format!("it expires at {}: {why}", from_now(at, now))];
    let granted =
        |time| format!("its run was granted {time} beyond that ceiling (kubectl tenure extensions)");
    sentences.extend(answer.extension.as_ref().map(granted));
    let notices = answer.notices_at.iter().map(|at| {
        if *at <= now {
            format!("{} ({} ago)", moment(*at), human(now.duration_since(*at)))
        } else {
            from_now(*at, now)
        }
    });
    let notices: Vec<_> = notices.collect();
    if !notices.is_empty() {
        sentences.push(format!("its workload gets a notice at {}", notices.join(", and at ")));
    }
    if answer.would.as_ref().is_some_and(|would| would.dry_run) {
        sentences.push("the keeper is in dry-run mode: it only reports the following in events".into());
    }
    sentences.extend(answer.would.as_ref().map(then));
    // only the queue says whether it comes back by itself
    sentences.extend(answer.would.as_ref().filter(|_| !answer.end_is_hidden).and_then(back));
    let undone = answer.would.as_ref().filter(|would| would.on_reversal.is_some());
    sentences.extend(undone.map(|ExpiryAction { kind, name, .. }| {
        format!(
            "once three pauses of {kind} {name} were undone, each for a full run, it isn't paused any more: its pods are deleted in its place (onReversal: DeletePods)"
        )
    }));
    sentences
}

/// Returns a sentence about the return of a paused workload, and the command that resumes it. None:
/// nothing is paused.
fn back(would: &ExpiryAction) -> Option<String> {
    let resume = would.resume.as_ref()?;
    Some(match &would.comes_back_after {
        Some(after) => format!("it comes back by itself {after} later, or before that by {resume}"),
        None => format!("it stays paused until {resume}, and then has a full ceiling again"),
    })
}

/// Returns a sentence about the keeper's action at the end.
fn then(would: &ExpiryAction) -> String {
    let (kind, name) = (&would.kind, &would.name);
    match (would.action, &would.field, &would.value) {
        ("pause", Some(field), Some(value)) => {
            let other = would.or_field.as_ref().map(|of| format!(" (or {of}, where its schema has that)"));
            let of = would.kueue_workload_of.as_ref().map(|of| format!(", by which Kueue runs {of},"));
            let (other, of) = (other.unwrap_or_default(), of.unwrap_or_default());
            format!(
                "then {kind} {name}{of} is paused: {field} is set to {value}{other}; the pod alone is deleted if that would stop a pod of system-critical priority"
            )
        }
        ("delete", ..) if kind != "Pod" => format!(
            "then {kind} {name} would be deleted with its pods, and can't be resumed (onExpiry: Delete); the pod alone is deleted if that would stop a pod of system-critical priority"
        ),
        ("delete", ..) => "then it is deleted: nothing above it can be paused".into(),
        ("awaitDeletion", ..) => format!("nothing more is done: {kind} {name} is being deleted"),
        _ => format!("whether {kind} {name} is to be paused can't be told: it may not be read"),
    }
}
