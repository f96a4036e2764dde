//! The answer in sentences.

use std::io::{self, Write};

use jiff::Timestamp;

use super::answer::{Answer, Protection, Relation};
use crate::explain::lines::{moment, paragraph};

/// What people read.
pub fn sentences(answer: &Answer, now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    paragraph(&answer.pod, &who(answer, now), out)?;
    writeln!(out)?;
    paragraph("How long it is protected:", &protected(answer, now), out)?;
    writeln!(out)?;
    paragraph("When it ends:", &end(answer, now), out)?;
    out.flush()
}

fn who(answer: &Answer, now: Timestamp) -> Vec<String> {
    let mut sentences = vec![format!("its workload is {}", answer.workload)];
    sentences.push(match &answer.queue {
        Some(queue) if answer.path.is_empty() => {
            format!("it names queue {queue:?}, which doesn't exist or is in a cycle: defaults apply")
        }
        Some(queue) => format!("it is in queue {queue:?} ({})", answer.path.join(" > ")),
        None => "it is in no queue of group scheduling.run.ai: no floor applies".into(),
    });
    sentences
        .extend(answer.tensorstack_queue.as_ref().map(|queue| format!("it is in queue {queue:?} of T9k")));
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

fn protected(answer: &Answer, now: Timestamp) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    let (near, far): (Vec<_>, Vec<_>) =
        answer.protected.iter().partition(|protection| protection.preemptor != Relation::OtherTree);
    sentences.extend(near.into_iter().map(|protection| sentence(protection, &against(protection), now)));
    // whoever comes from another tree meets the same floor
    match far.as_slice() {
        [] => {}
        [one] => sentences.push(sentence(one, &against(one), now)),
        [first, ..] => {
            let all = format!("against each of the {} other top-level queues", far.len());
            sentences.push(sentence(first, &all, now));
        }
    }
    if let Some(toleration) = &answer.preemption_toleration {
        let (class, minimum) = (&toleration.priority_class, toleration.minimum_preemptable_priority);
        sentences.push(match toleration.toleration_seconds {
            0 => format!("its PriorityClass {class:?} tolerates no preemption once it was scheduled"),
            ..0 => format!("its PriorityClass {class:?} tolerates priorities below {minimum} for ever"),
            seconds => format!(
                "its PriorityClass {class:?} tolerates priorities below {minimum} for {seconds}s after it was scheduled"
            ),
        });
    }
    if sentences.is_empty() {
        sentences.push("nothing protects it".into());
    }
    sentences
}

fn against(protection: &Protection) -> String {
    let queue = protection.preemptor_queue.as_deref().unwrap_or_default();
    match protection.preemptor {
        Relation::Same => format!("against workloads of its own queue {queue:?}"),
        Relation::Below => format!("against workloads elsewhere below queue {queue:?}"),
        Relation::OtherTree => format!("against workloads of queue {queue:?} and below"),
    }
}

fn sentence(protection: &Protection, against: &str, now: Timestamp) -> String {
    let Protection { kind, value, from, until, .. } = protection;
    let until = until.map_or("not protected".into(), |at| format!("until {}", moment(at, now)));
    format!("{against}: {until} ({kind} floor {value}, {from})")
}

fn end(answer: &Answer, now: Timestamp) -> Vec<String> {
    if let Some(why) = answer.exempt {
        return vec![format!("never by Tenure: {why}")];
    }
    let Some(at) = answer.expires_at else {
        return vec!["no ceiling applies, or it has not started".into()];
    };
    let ceiling = answer.max_duration.as_ref();
    let because = ceiling.map(|of| format!(": maxDuration is {}, from {}", of.value, of.from));
    let end = format!("it expires at {}{}", moment(at, now), because.unwrap_or_default());
    let would = &answer.would;
    let (kind, name) = (&would.kind, &would.name);
    let action = match (would.action, &would.field, &would.value) {
        ("pause", Some(field), Some(value)) => {
            format!("then {kind} {name} is paused: {field} is set to {value}")
        }
        ("delete", ..) => "then it is deleted: nothing above it can be paused".into(),
        ("awaitDeletion", ..) => format!("nothing more is done: {kind} {name} is being deleted"),
        _ => format!("whether {kind} {name} is to be paused can't be told: it may not be read"),
    };
    vec![end, action]
}
