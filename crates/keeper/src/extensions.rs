//! Decides about requests for more time, and follows grants until their runs have ended.

mod open;

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_index::Uid;
use tenure_policy::{
    extension::{self, Decision, RequestedRun},
    pause::OwnerObject,
};
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tenure_types::extension::{Extension, ExtensionState, ExtensionStatus, ExtensionTarget};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    action::reference,
    api::ObjectClient,
    cluster::ClusterState,
    config::Current,
    events::{EventQueue, EventRecord},
    limit::WriteLimit,
    metrics::Metrics,
};

pub use open::{ExtensionStore, OpenExtensions};

/// The name in `status.by` for decisions of the keeper.
pub const KEEPER: &str = "tenure-keeper";

/// The message about a workload that the keeper may not read, and has seen no pod of.
const UNREADABLE: &str =
    "The keeper may not read it: a workload that Tenure pauses gets more time, or a pod without one";

/// Extensions that are handled at the same time.
const AT_ONCE: usize = 8;

/// The time between two looks at unchanged extensions.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The controller of extensions.
pub struct ExtensionController {
    pub cluster: ClusterState,
    pub open: OpenExtensions,
    pub clock: ServerClock,
    pub objects: ObjectClient,
    pub limit: WriteLimit,
    pub config: Current,
    pub events: EventQueue,
    pub metrics: Metrics,
}

/// The workload of an extension, as the API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    /// It may have a run.
    Live,
    /// It is paused, has ended or is being deleted.
    Stopped,
    /// There is no such object, or another one of the same name.
    Missing,
    /// The keeper may not read it, so it isn't known.
    Unreadable,
}

impl ExtensionController {
    /// Works whenever this keeper leads, until `shutdown`; then finishes what is in flight.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || self.work(shutdown).await, || self.metrics.pending_extensions(0)).await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut changes = self.cluster.changes();
        let mut looks = tokio::time::interval(BETWEEN_LOOKS);
        let mut handled = FuturesUnordered::new();
        loop {
            let is_open = !shutdown.is_cancelled();
            while is_open
                && handled.len() < AT_ONCE
                && let Some(extension) = self.open.take_due()
            {
                handled.push(self.handle(extension));
            }
            self.metrics.pending_extensions(self.open.pending());
            if !is_open && handled.is_empty() {
                return;
            }
            tokio::select! {
                Some(()) = handled.next() => {}
                _ = looks.tick() => {}
                () = changes.next(), if is_open => {}
                () = shutdown.cancelled(), if is_open => {}
            }
        }
    }

    async fn handle(&self, extension: Extension) {
        let Err(error) = self.try_to_handle(&extension).await else { return };
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (of(&extension.metadata.namespace), of(&extension.metadata.name));
        let error = with_causes(&error);
        warn!(%namespace, extension = %name, error, "Failed to decide about an extension: will try again");
    }

    async fn try_to_handle(&self, extension: &Extension) -> Result<(), ApiError> {
        if extension.state() == ExtensionState::Denied {
            self.open.close(extension);
            let is_of_late = open::is_of_late(extension, self.clock.now());
            if is_of_late {
                self.tell(extension);
            }
            return Ok(());
        }
        let (decision, message) = self.decide(extension).await?;
        if extension.state() == ExtensionState::Granted && open::is_by_a_person(extension) {
            self.tell_once(extension);
        }
        let now = self.clock.now();
        let status = match decision {
            Decision::Keep => return Ok(()),
            Decision::Await(message) => json!({"state": "Pending", "message": message}),
            Decision::Grant(_) => json!({
                "state": "Granted", "granted": extension.spec.duration, "by": KEEPER, "at": at(now), "message": null,
            }),
            Decision::Deny(why) => json!({"state": "Denied", "by": KEEPER, "at": at(now), "message": why}),
            Decision::End if extension.state() == ExtensionState::Granted => json!({"state": "Used"}),
            Decision::End => json!({"state": "Expired", "by": KEEPER, "at": at(now), "message": message}),
        };
        self.write(extension, &status).await
    }

    /// Decides about an extension; the message is for one that ends.
    async fn decide(&self, extension: &Extension) -> Result<(Decision, String), ApiError> {
        let target = &extension.spec.target;
        let mut run = self.run_of(extension);
        let ended =
            || extension::run_ended(&reference(&owner(target), extension.metadata.namespace.as_deref()));
        let (mut message, is_pending) = (ended(), extension.state() == ExtensionState::Pending);
        if run == RequestedRun::Unknown || self.open.is_unverified(extension) {
            match self.target(extension).await? {
                TargetState::Missing => {
                    run = RequestedRun::Over;
                    message = extension::no_such_target(extension);
                }
                TargetState::Stopped if run == RequestedRun::Unknown => run = RequestedRun::Over,
                TargetState::Stopped | TargetState::Live => self.open.verified(extension),
                TargetState::Unreadable if run == RequestedRun::Unknown && is_pending => {
                    return Ok((Decision::Await(UNREADABLE.into()), message));
                }
                TargetState::Unreadable => {}
            }
        }
        Ok((extension::decide(extension, &run), message))
    }

    fn run_of(&self, extension: &Extension) -> RequestedRun {
        let metadata = &extension.metadata;
        let (namespace, workload) = (metadata.namespace.as_deref(), Uid::of(&extension.spec.target.uid));
        let Some(asked) = metadata.creation_timestamp.as_ref() else { return RequestedRun::Unknown };
        self.cluster.with(|index| index.requested_run(namespace.unwrap_or_default(), workload, asked.0))
    }

    /// Looks at the workload that an extension names: users write its name and its uid.
    async fn target(&self, extension: &Extension) -> Result<TargetState, ApiError> {
        let owner = owner(&extension.spec.target);
        let namespace = extension.metadata.namespace.as_deref().unwrap_or_default();
        let found = match self.objects.get(namespace, &owner).await {
            Err(ApiError::NotFound) => return Ok(TargetState::Missing),
            // a server that has just started forbids everything for a moment
            Err(ApiError::Forbidden(_) | ApiError::Refused(_)) => return Ok(TargetState::Unreadable),
            found => found?,
        };
        if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.namespace.is_none() {
            return Ok(TargetState::Missing);
        }
        let is_going = found.metadata.deletion_timestamp.is_some() || has_ended(&found);
        let object = serde_json::to_value(&found).unwrap_or_default();
        let table = &self.config.get().table;
        let is_paused = table.rules(&owner).any(|rule| OwnerObject(&object).is_paused(rule));
        let is_stopped = is_going || is_paused || OwnerObject(&object).is_finished();
        Ok(if is_stopped { TargetState::Stopped } else { TargetState::Live })
    }

    async fn write(&self, extension: &Extension, status: &Value) -> Result<(), ApiError> {
        let status_now = serde_json::to_value(&extension.status).unwrap_or_default();
        let is_set = |(key, value): (&String, &Value)| status_now.get(key).unwrap_or(&Value::Null) == value;
        if status.as_object().is_some_and(|status| status.iter().all(is_set)) {
            return Ok(());
        }
        self.limit.until_ready().await;
        let written = match self.objects.extension_status(extension, status).await {
            // the watch shows the other version
            Err(ApiError::Stale(_) | ApiError::NotFound | ApiError::NotLeading) => return Ok(()),
            written => written?,
        };
        let (namespace, name) = (&written.metadata.namespace, &written.metadata.name);
        let (namespace, name) =
            (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
        let (state, duration) = (written.state(), written.spec.duration.as_str());
        let status = written.status.as_ref();
        let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
        info!(%namespace, extension = %name, state = state.name(), %duration, message, "Decided about an extension");
        if state != ExtensionState::Pending {
            self.metrics.extension(state);
        }
        // the end of the run moves now, and not once the watch has shown it
        self.cluster.change(|index| index.apply_extension(&written));
        if extension.status.is_some() && state == ExtensionState::Pending {
            return Ok(());
        }
        if extension.status.is_none() && state != ExtensionState::Pending {
            let status =
                Some(ExtensionStatus { state: Some(ExtensionState::Pending), ..ExtensionStatus::default() });
            self.tell(&Extension { status, ..extension.clone() });
        }
        self.tell(&written);
        Ok(())
    }

    /// Writes the event about a decision of a person, unless this keeper has.
    fn tell_once(&self, extension: &Extension) {
        if self.open.take_untold(extension, self.clock.now()) {
            self.tell(extension);
        }
    }

    fn tell(&self, extension: &Extension) {
        let Some((reason, note)) = extension::told(extension) else { return };
        let now = self.clock.now();
        let namespace = extension.metadata.namespace.as_deref();
        let object = reference(&owner(&extension.spec.target), namespace);
        let event =
            EventRecord { object, reason, action: "Extending", note, at: now, cause: None, end: None };
        self.events.extend([event]);
    }
}

/// The time of a decision, in milliseconds.
fn at(now: Timestamp) -> String {
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now).to_string()
}

/// The workload as a reference to an owner.
fn owner(target: &ExtensionTarget) -> OwnerReference {
    let ExtensionTarget { api_version, kind, name, uid } = target.clone();
    OwnerReference { api_version, kind, name, uid, ..OwnerReference::default() }
}

/// True for a pod that has ended.
fn has_ended(object: &DynamicObject) -> bool {
    let phase = object.data.pointer("/status/phase").and_then(Value::as_str);
    let is_pod = object.types.as_ref().is_some_and(|types| types.api_version == "v1" && types.kind == "Pod");
    is_pod && matches!(phase, Some("Succeeded" | "Failed"))
}
