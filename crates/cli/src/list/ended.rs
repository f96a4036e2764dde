//! Pauses and deletions of the last hour, read from the keeper's events: after the deletion of a
//! pod without an owner, nothing else is left.
//!
//! Called by `list --ended`, and by commands that don't find an object. `reportingComponent` says
//! whose an event is: a tenant that may write events can forge it.

use anyhow::{Error, anyhow};
use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tenure_policy::{pause::RunEnd, reason::EventReason};
use tenure_types::{keys::EVENT_QUEUE_ANNOTATION, projection::Event};

use super::row::name_of;
use crate::{
    cluster::{ClusterReader, explain, objects},
    print::{Column, ListRow, cell, human, moment, printable},
};

/// The field selector of the keeper's events.
pub const BY_KEEPER: &str = "reportingComponent=tenure.dev/keeper";

/// The age up to which events count. API servers keep events for an hour by default.
const OF_LATE: SignedDuration = SignedDuration::from_hours(1);

/// The end of a run, for people and programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedRow {
    pub namespace: String,
    /// Kind and name as kubectl takes them: `deployment/test`.
    pub workload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The ceiling that was reached, as in `2h30m`. None: it was another end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<String>,
    pub at: Timestamp,
    /// `Paused` or `Deleted`.
    pub action: &'static str,
    pub reason: String,
    pub message: String,
}

impl EndedRow {
    /// Reads an event. None: the event isn't about the end of a run, or is of a dry run.
    fn read(event: Event) -> Option<Self> {
        let Event { metadata, involved_object: of, event_time, reason, message, action } = event;
        let (reason, message) = (reason?, message.unwrap_or_default());
        let of_event = EventReason::named(&reason)?;
        let is_end = [
            EventReason::RunEnded,
            EventReason::EvidenceRefused,
            EventReason::EvictedDueToPodsReadyTimeout,
            EventReason::DeactivatedDueToRequeuingLimitExceeded,
        ];
        let action = match action.as_deref() {
            Some("Pausing") => "Paused",
            Some("Deleting") => "Deleted",
            _ => return None,
        };
        if !is_end.contains(&of_event) || RunEnd::is_dry_run(&message) {
            return None;
        }
        let run = RunEnd::read(&message).filter(|_| of_event == EventReason::RunEnded);
        let noted = metadata.annotations.and_then(|mut all| all.remove(EVENT_QUEUE_ANNOTATION));
        let [api_version, kind, name] = [of.api_version, of.kind, of.name].map(Option::unwrap_or_default);
        Some(Self {
            namespace: of.namespace.or(metadata.namespace).unwrap_or_default(),
            workload: name_of(&api_version, &kind, &name),
            queue: noted.or_else(|| run.map(|run| run.queue.to_owned())).filter(|queue| !queue.is_empty()),
            ceiling: run.and_then(|run| run.ceiling).map(str::to_owned),
            at: event_time?,
            action,
            reason,
            message,
        })
    }
}

/// Returns the runs that have ended in the last hour in a namespace, or in all namespaces, the
/// latest last.
pub async fn ended(cluster: &ClusterReader, namespace: Option<&str>) -> kube::Result<Vec<EndedRow>> {
    let events: Vec<Event> = objects(cluster.api(namespace), Some(BY_KEEPER)).try_concat().await?;
    let now = cluster.clock.now();
    let mut ended: Vec<EndedRow> = events.into_iter().filter_map(EndedRow::read).collect();
    ended.retain(|of| now.duration_since(of.at) <= OF_LATE);
    ended.sort_by(|one, other| (one.at, &one.workload).cmp(&(other.at, &other.workload)));
    Ok(ended)
}

/// Returns an error about an object. If the object no longer exists, the error adds Tenure's last
/// action on it.
pub async fn missing(cluster: &ClusterReader, namespace: &str, workload: &str, error: kube::Error) -> Error {
    let is_gone = matches!(&error, kube::Error::Api(status) if status.code == 404);
    let error = explain(error);
    if !is_gone {
        return error;
    }
    // without the right to read events, the error says nothing more
    let ended = ended(cluster, Some(namespace)).await.unwrap_or_default();
    match ended.into_iter().rfind(|of| of.workload == workload) {
        Some(of) => anyhow!("{error}\n{} at {}: {}", of.action, moment(of.at), printable(&of.message)),
        None => error,
    }
}

impl ListRow for EndedRow {
    const NAMESPACE: Column<Self> = ("NAMESPACE", |of, _| of.namespace.clone());
    const NARROW: &'static [Column<Self>] = &[
        ("WORKLOAD", |of, _| of.workload.clone()),
        ("QUEUE", |of, _| cell(of.queue.as_deref())),
        ("CEILING", |of, _| cell(of.ceiling.as_deref())),
        ("ENDED AT", |of, _| moment(of.at)),
        ("AGO", |of, now| cell(now.map(|now| human(now.duration_since(of.at))))),
        ("ACTION", |of, _| of.action.to_owned()),
        ("REASON", |of, _| of.reason.clone()),
    ];
    const WIDE: &'static [Column<Self>] = &[("MESSAGE", |of, _| of.message.clone())];

    fn name(&self) -> String {
        self.workload.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::print::{Format, Printer};

    fn read(reason: &str, action: &str, message: &str, annotations: &Value) -> Option<EndedRow> {
        let event = json!({
            "metadata": {"name": "e", "namespace": "team", "annotations": annotations},
            "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "namespace": "team"},
            "reason": reason, "action": action, "message": message, "eventTime": "2026-01-01T00:00:00.000000Z",
        });
        EndedRow::read(serde_json::from_value(event).unwrap())
    }

    const WORDS: &str = "Its run in Queue research has reached the ceiling of 2h 30m, set by Queue company above it. It stays paused until you resume it";

    #[test]
    fn the_end_of_a_run_is_read_from_its_event() {
        let ended = read("RunEnded", "Pausing", WORDS, &Value::Null).unwrap();
        assert_eq!((ended.workload.as_str(), ended.action), ("job/train", "Paused"));
        assert_eq!((ended.queue.as_deref(), ended.ceiling.as_deref()), (Some("research"), Some("2h 30m")));
        let annotated = json!({"tenure.dev/queue": "other"});
        let unready =
            read("EvictedDueToPodsReadyTimeout", "Deleting", "Deleted because", &annotated).unwrap();
        assert_eq!(
            (unready.action, unready.queue.as_deref(), unready.ceiling),
            ("Deleted", Some("other"), None)
        );
    }

    #[test]
    fn other_events_and_those_of_a_dry_run_are_no_end() {
        for (reason, action, message) in [
            ("MaxDurationExceeded", "Pausing", "Set spec.suspend to true because"),
            ("MaxDurationApproaching", "Announcing", "Its run in Queue research ends"),
            ("Requeued", "Resuming", "Set spec.suspend back"),
            ("EvictedDueToPodsReadyTimeout", "Pausing", "Dry run, nothing was done: Set"),
        ] {
            assert_eq!(read(reason, action, message, &Value::Null), None, "{reason}");
        }
    }

    #[test]
    fn ends_are_a_table_with_the_message_where_there_is_room() {
        let ended = [read("RunEnded", "Pausing", WORDS, &Value::Null).unwrap()];
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let shown = |ended: &[EndedRow], format, (namespaces, headers)| {
            Printer::new(format, namespaces, headers).all(ended, now).unwrap()
        };
        assert_eq!(
            shown(&ended, None, (true, true)),
            "NAMESPACE   WORKLOAD    QUEUE      CEILING   ENDED AT               AGO   ACTION   REASON\nteam        job/train   research   2h 30m    2026-01-01T00:00:00Z   10m   Paused   RunEnded\n"
        );
        assert!(shown(&ended, Some(Format::Wide), (false, true)).ends_with("until you resume it\n"));
        assert_eq!(shown(&ended, Some(Format::Name), (false, true)), "job/train\n");
        assert!(shown(&ended, None, (true, false)).starts_with("team "));
        assert_eq!(shown(&[], None, (true, true)), "");
        assert_eq!(shown(&[], Some(Format::Json), (true, true)), "[]\n");
    }
}
