//! Decides about requests for more time, and follows grants until their runs have ended.
//!
//! `Args::write` runs the [`ExtensionController`] while this keeper leads. The controller writes
//! the status of Extensions, and events. The index moves the end of a run by the grants.

mod open;
mod target;

use std::{sync::Arc, time::Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tenure_index::Uid;
use tenure_policy::{
    expiry::Family,
    extension::{self, ExtensionDecision, RequestedRun},
    naming::reference,
    owner_table::is_subdomain,
    pause::{EVENT_REPAIR, whole_millisecond},
};
use tenure_service::{
    call::ApiError,
    leadership::Leadership,
    work::{Lease, Work, WorkLoop},
};
use tenure_types::extension::{Extension, ExtensionState, ExtensionTarget, KEEPER};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{api::refer, events::EventRecord, handles::Handles, limit::WriteLimit};

pub use open::{ExtensionStore, OpenExtensions};

use open::{MOST_PENDING, OpenExtension};
use target::TargetState;

/// The message about a workload that the keeper may not read, and of which it has seen no pod.
const UNREADABLE: &str = "The keeper may not read this workload: only a workload that Tenure pauses, or a pod without an owner, gets more time";

/// The message about a workload of which no pod is in a queue.
const NO_POD: &str = "Waits until one of its pods runs in a queue: until then no ceiling ends its run";

/// The most characters of `status.message` that the definition of the kind allows.
const LONGEST_MESSAGE: usize = 1024;

/// The controller of Extensions.
pub struct ExtensionController {
    pub handles: Arc<Handles>,
    /// The limit of status writes.
    pub limit: WriteLimit,
}

impl ExtensionController {
    /// Works whenever this keeper leads, until `shutdown`; then finishes what is in flight.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let lost = || self.handles.extensions.queue.reset();
        lead.work(shutdown, async || self.work(shutdown).await, lost).await;
    }

    /// Handles open extensions until `shutdown`.
    async fn work(&self, shutdown: &CancellationToken) {
        let (queue, gate) = (&self.handles.extensions.queue, Some(&self.handles.gate));
        let run = WorkLoop { queue, gate, end: shutdown, drains: false };
        run.work(|| {}, std::future::pending::<()>, async |lease| self.handle(lease).await).await;
    }

    /// Handles one extension, and returns it to the queue for a later check. A failure is tried
    /// again.
    async fn handle(&self, lease: Lease<OpenExtension>) {
        // all controllers run in one task: the others have their turn after each extension
        tokio::task::yield_now().await;
        let (extension, begun) = (&lease.work.0, Instant::now());
        let run = self.run_of(extension);
        let cost = begun.elapsed();
        let result = lease.watch(self.try_to_handle(extension, run)).await;
        let failure = result.err().and_then(|error| lease.failure(&error));
        let Some(error) = failure else { return self.handles.extensions.give_back(lease, cost) };
        let (namespace, name) = (lease.work.namespace(), extension.name_any());
        warn!(%namespace, extension = %name, error, "Failed to decide about an extension: will try again");
        lease.failed();
    }

    /// Brings one extension up to date: adds the event that may be missing, decides, and writes the
    /// decision or the conditions that are missing.
    async fn try_to_handle(&self, extension: &Extension, run: RequestedRun) -> Result<(), ApiError> {
        self.record_owed(extension);
        let state = extension.state();
        if matches!(state, ExtensionState::Denied | ExtensionState::Expired) {
            self.show_conditions(extension).await?;
            self.handles.extensions.close(extension);
            return Ok(());
        }
        let (decision, message) = self.decide(extension, &run).await?;
        let is_final = !matches!(decision, ExtensionDecision::Keep | ExtensionDecision::Await(_));
        if is_final && !self.is_up_to_date(extension, &run).await? {
            return Ok(());
        }
        let now = self.handles.now();
        let deny = |why| json!({"state": "Denied", "by": KEEPER, "at": at(now), "message": why});
        let status = match decision {
            ExtensionDecision::Keep => return self.show_conditions(extension).await,
            ExtensionDecision::Await(_)
                if extension.status.is_none() && self.handles.extensions.has_too_many(extension) =>
            {
                deny(format!(
                    "{MOST_PENDING} other requests for this workload wait for approval, the most that may: delete one, or ask again when one is decided"
                ))
            }
            ExtensionDecision::Await(message) => json!({"state": "Pending", "message": message}),
            ExtensionDecision::Grant(_) => return self.grant(extension).await,
            ExtensionDecision::Deny(why) => deny(why),
            ExtensionDecision::End if state == ExtensionState::Granted => {
                let mut used = extension.clone();
                used.status.get_or_insert_default().state = Some(ExtensionState::Used);
                // nothing would show later that this event is missing
                self.handles.events.record_first(Vec::new(), self.event(&used).into_iter().collect()).await;
                json!({"state": "Used"})
            }
            ExtensionDecision::End => {
                json!({"state": "Expired", "by": KEEPER, "at": at(now), "message": message})
            }
        };
        self.write(extension, &status).await
    }

    /// Grants an extension. The extensions of a workload take turns, since each is judged by the time
    /// that was granted before.
    async fn grant(&self, extension: &Extension) -> Result<(), ApiError> {
        let Some(_turn) = self.handles.extensions.take_turn(extension) else { return Ok(()) };
        let (granted, at) = (&extension.spec.duration, at(self.handles.now()));
        let status = json!({"state": "Granted", "granted": granted, "by": KEEPER, "at": at, "message": null});
        self.write(extension, &status).await
    }

    /// True if the API server has the queues that allow time to a run as they are known, the watches
    /// are fresh, and the run still is as it was judged.
    async fn is_up_to_date(&self, extension: &Extension, run: &RequestedRun) -> Result<bool, ApiError> {
        if let RequestedRun::Going(run) = run {
            for queue in [Some(&run.queue), run.limited_by.as_ref()].into_iter().flatten() {
                if !self.handles.queues.are_as_known(Family::Runai, queue).await? {
                    return Ok(false);
                }
            }
        }
        Ok(self.handles.gate.is_open() && self.run_of(extension) == *run)
    }

    /// Decides about an extension. The returned text is the message for an extension that ends.
    /// Reads the workload before a grant, and if the index knows no run of it, or hasn't read it.
    async fn decide(
        &self,
        extension: &Extension,
        run: &RequestedRun,
    ) -> Result<(ExtensionDecision, String), ApiError> {
        let mut run = run.clone();
        let owner = owner(&extension.spec.target);
        let target = reference(&owner, extension.metadata.namespace.as_deref());
        let mut message = extension::run_ended(&target);
        let is_pending = extension.state() == ExtensionState::Pending;
        let is_pod = owner.api_version == "v1" && owner.kind == "Pod";
        if is_pending && !is_pod && !self.handles.config.get().table.knows(&owner) {
            return Ok((ExtensionDecision::Deny(extension::not_paused(&owner.kind)), message));
        }
        // a person's denial goes with its Extension, and that with the workload, whose pods may run on
        let is_grant = matches!(extension::decide(extension, &run), ExtensionDecision::Grant(_));
        if is_grant || run == RequestedRun::Unknown || self.handles.extensions.is_unverified(extension) {
            match self.target(extension).await? {
                TargetState::Missing => {
                    run = RequestedRun::Over;
                    message = extension::no_such_target(extension);
                }
                TargetState::Stopped if is_grant || run == RequestedRun::Unknown => run = RequestedRun::Over,
                TargetState::Live if run == RequestedRun::Unknown && is_pending => {
                    self.handles.extensions.verified(extension);
                    return Ok((ExtensionDecision::Await(NO_POD.into()), message));
                }
                TargetState::Stopped | TargetState::Live => self.handles.extensions.verified(extension),
                TargetState::Unreadable if is_grant || (run == RequestedRun::Unknown && is_pending) => {
                    return Ok((ExtensionDecision::Await(UNREADABLE.into()), message));
                }
                TargetState::Unreadable => {}
            }
        }
        Ok((extension::decide(extension, &run), message))
    }

    /// Returns the run that an extension is for: one that had begun when the extension was created.
    fn run_of(&self, extension: &Extension) -> RequestedRun {
        let (metadata, workload) = (&extension.metadata, Uid::of(&extension.spec.target.uid));
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let Some(asked) = metadata.creation_timestamp.as_ref() else { return RequestedRun::Unknown };
        self.handles.cluster.with(|index| index.requested_run(namespace, workload, asked.0))
    }

    /// Writes the conditions of a decision that a person has written.
    async fn show_conditions(&self, extension: &Extension) -> Result<(), ApiError> {
        if extension.status.is_some() {
            self.patch(extension, &json!({})).await?;
        }
        Ok(())
    }

    /// Writes fields of the status, and the conditions that follow from them. Cuts a message that is
    /// too long, since users write parts of it. Returns the extension as written. None: the status
    /// has the fields already, or the write came too late, and the watch will show another version.
    async fn patch(&self, extension: &Extension, fields: &Value) -> Result<Option<Extension>, ApiError> {
        let mut fields = fields.clone();
        if let Some(Value::String(message)) = fields.get_mut("message") {
            *message = message.chars().take(LONGEST_MESSAGE).collect();
        }
        let mut status = serde_json::to_value(&extension.status).unwrap_or_default();
        let before = status.clone();
        json_patch::merge(&mut status, &fields);
        let after = Extension { status: serde_json::from_value(status.clone()).ok(), ..extension.clone() };
        if let Some(status) = status.as_object_mut() {
            status.insert("conditions".into(), json!(after.conditions()));
        }
        if status == before {
            return Ok(None);
        }
        json_patch::merge(&mut fields, &json!({"conditions": status.get("conditions")}));
        self.limit.until_ready().await;
        match self.handles.objects.extension_status(extension, &fields).await {
            Err(error) if error.is_overtaken() => Ok(None),
            written => Ok(Some(written?)),
        }
    }

    /// Writes a decision, logs and counts it, applies it to the index, and adds its events.
    async fn write(&self, extension: &Extension, status: &Value) -> Result<(), ApiError> {
        let Some(written) = self.patch(extension, status).await? else { return Ok(()) };
        let (namespace, name) = (written.namespace().unwrap_or_default(), written.name_any());
        let (state, duration) = (written.state(), written.spec.duration.as_str());
        let status = written.status.as_ref();
        let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
        info!(%namespace, extension = %name, state = state.name(), %duration, message, "Decided about an extension");
        if state != ExtensionState::Pending {
            self.handles.metrics.extensions.inc([state.name()]);
        }
        // the end of the run moves now, and not once the watch has shown the decision. What the watch
        // has shown since, perhaps a deletion, is newer than this answer
        self.handles.cluster.change(|index| {
            if self.handles.extensions.is_latest(extension) {
                index.apply_extension(&written);
            }
        });
        if extension.status.is_some() && state == ExtensionState::Pending {
            return Ok(());
        }
        if extension.status.is_none() && state != ExtensionState::Pending {
            let mut pending = extension.clone();
            pending.status.get_or_insert_default().state = Some(ExtensionState::Pending);
            self.record(&pending);
        }
        if state != ExtensionState::Used {
            self.record(&written);
        }
        Ok(())
    }

    /// Adds the event about the step that the status shows, if the step is less than five minutes
    /// old: its event may be missing.
    fn record_owed(&self, extension: &Extension) {
        if let Some(at) = step_at(extension)
            && extension.status.is_some()
            && self.handles.now().duration_since(at) <= EVENT_REPAIR
        {
            self.record(extension);
        }
    }

    /// Adds the event about the step that an extension shows, unless this keeper has added it
    /// before.
    fn record(&self, extension: &Extension) {
        let is_unrecorded =
            |event: &EventRecord| self.handles.cluster.outbox.is_unrecorded(event, self.handles.now());
        self.handles.events.extend(self.event(extension).filter(is_unrecorded));
    }

    /// Returns the event about the step that an extension shows. The event is on the workload, or on
    /// the extension if no workload can have that name and uid: the API server would refuse the
    /// event, whose name is made of these. None: there is no event for this step.
    fn event(&self, extension: &Extension) -> Option<EventRecord> {
        let (reason, note) = extension::event(extension)?;
        let (target, request) = (&extension.spec.target, extension.object_ref(&()));
        let object = if is_subdomain(&target.name) && is_subdomain(&target.uid) {
            reference(&owner(target), extension.metadata.namespace.as_deref())
        } else {
            request.clone()
        };
        let at = step_at(extension).unwrap_or_else(|| self.handles.now());
        let request = Some(request);
        Some(EventRecord { request, ..EventRecord::new(&object, reason, "Extending", note, at) })
    }
}

/// Returns the time of the step that an extension shows: of the request, or of the decision. None:
/// the extension doesn't show the time.
fn step_at(extension: &Extension) -> Option<Timestamp> {
    match extension.state() {
        ExtensionState::Pending => extension.metadata.creation_timestamp.as_ref().map(|at| at.0),
        ExtensionState::Granted | ExtensionState::Denied | ExtensionState::Expired => {
            extension.status.as_ref().and_then(|status| status.at)
        }
        // the status keeps the time of the grant
        ExtensionState::Used => None,
    }
}

/// Returns the time of a decision as text, in whole milliseconds.
fn at(now: Timestamp) -> String {
    whole_millisecond(now).to_string()
}

/// Returns the workload as a reference to an owner.
fn owner(target: &ExtensionTarget) -> OwnerReference {
    let ExtensionTarget { api_version, kind, name, uid } = target;
    refer(api_version, kind, name, uid)
}

#[cfg(test)]
mod tests;
