//! The record of a pause as an explanation shows it: the reason and the time, and the command that
//! resumes the workload.
//!
//! Called by `explain` for the workload and for its Workload of Kueue. The record is an annotation,
//! so a tenant may have written it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde_json::Value;
use tenure_policy::{
    naming::command,
    owner_table::OwnerTable,
    pause::{self, OwnerObject, PausedObject, Return},
};
use tenure_types::{keys::PAUSED_ANNOTATION, paused::ExceededCeiling, projection};

use crate::{
    change::shown,
    print::{moment, printable},
};

/// A pause, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseReport {
    at: Timestamp,
    /// `MaxDurationExceeded`, `PodsReadyTimeout`, `WorkloadInactive` or `Deactivated`.
    reason: String,
    queue: String,
    /// The ceiling that was exceeded, and the queue that sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<ExceededCeiling>,
    /// The name of its Workload of Kueue, if that was paused in place of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    kueue_workload: Option<String>,
    /// The field that pauses, its value by the pause, and the value before.
    field: String,
    value: Value,
    previous_value: Value,
    /// True if the field still has the value that the pause has set.
    in_force: bool,
    /// The time at which the workload comes back by itself. Null: it doesn't.
    comes_back_at: Option<Timestamp>,
    /// The command of this plugin that ends the pause.
    command: String,
    /// A sentence about the end of the pause.
    message: String,
    /// The present value of the field.
    #[serde(skip)]
    now: Value,
}

impl PauseReport {
    /// Reads the record on an object of the kind of `of`. The inner error is a sentence about a record
    /// that Tenure doesn't follow. None: there is no record.
    pub fn read(
        object: &Value,
        of: &OwnerReference,
        known: &PausedObject,
        table: &OwnerTable,
    ) -> Option<Result<Self, String>> {
        let text = object.pointer("/metadata/annotations")?.get(PAUSED_ANNOTATION)?;
        let metadata = projection::metadata(object);
        let record = match pause::followed(&metadata, of, table) {
            Ok(record) => record,
            Err(why) => {
                let text = text.as_str().unwrap_or_default();
                return Some(Err(printable(&format!("annotation {PAUSED_ANNOTATION} {why}: {text}"))));
            }
        };
        let returns = Return::of(&record, &metadata);
        let is_deactivated = pause::is_deactivation(&record) || pause::is_inactive(&metadata);
        let command = command(if is_deactivated { "activate" } else { "resume" }, &known.object);
        let state = OwnerObject(object).requeue_state();
        let message = match returns {
            Return::Reactivate => "It was activated, and comes back at once".to_owned(),
            _ if pause::is_inactive(&metadata) => {
                format!("It is deactivated, and stays paused until you activate it: {command}")
            }
            _ => pause::in_words(&record, &state, known)
                .unwrap_or_else(|| pause::message(&record, &state, known)),
        };
        Some(Ok(Self {
            now: OwnerObject(object).at(&record.field).clone(),
            at: record.at,
            in_force: pause::is_ours(OwnerObject(object), &record),
            queue: record.queue,
            ceiling: record.ceiling,
            kueue_workload: known.workload.clone(),
            reason: record.reason,
            field: record.field,
            value: record.value,
            previous_value: record.previous_value,
            comes_back_at: if let Return::Requeue(at) = returns { Some(at) } else { None },
            command,
            message,
        }))
    }

    /// Returns two sentences: what Tenure has set, and how it ends.
    pub fn sentences(&self) -> Vec<String> {
        let Self { reason, field, value, previous_value, command, .. } = self;
        let of =
            self.kueue_workload.as_ref().map(|name| format!(" of its Workload {name}")).unwrap_or_default();
        let (at, value, before) = (moment(self.at), shown(value), shown(previous_value));
        let set =
            format!("Tenure paused it at {at} ({reason}): {field}{of} was set from {before} to {value}");
        let undone = || {
            let now = shown(&self.now);
            format!(
                "something else has set {field} to {now} since: {command} removes what is left of the pause"
            )
        };
        vec![set, if self.in_force { self.message.clone() } else { undone() }]
    }
}
