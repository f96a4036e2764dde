//! The resumption of one owner, by its present state in the API server.
//!
//! The `Requeuer` calls `resume` for each owner that is due. Tenants can write the record of a
//! pause, so a return only sets fields that the owner table has.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tenure_index::Paused;
use tenure_policy::{
    kueue::known,
    naming::describe,
    pause::{self, OwnerObject, PausedObject, Return, ReturnPatch},
};
use tenure_service::{
    call::ApiError,
    log::{cut, of_callers},
    work::Lease,
};
use tenure_types::{
    journal::{JournalAct, ReturnRecord},
    paused::{PausedRecord, RequeueState},
    projection::WholeObject,
};
use tracing::warn;

use super::{Requeuer, ReturningOwner};
use crate::action::ConflictRetries;

/// The result of a try to resume an owner.
pub enum Attempt {
    /// The owner was resumed, or deactivated.
    Done(Box<ReturnReport>),
    /// The patch was refused, by the API server or a webhook.
    Refused(Box<ReturnReport>, ApiError),
    /// The owner doesn't come back now.
    NotNow,
    /// The owner's record can't be followed.
    NotOurs,
}

/// A return, for the events and the log.
pub struct ReturnReport {
    /// The object that gets the events.
    pub known: PausedObject,
    /// The record of the pause.
    pub record: PausedRecord,
    /// The state of the returns, as it was read.
    pub state: RequeueState,
    /// The way of the return.
    pub back: Return,
    /// The return, as the journal has it.
    pub returned: ReturnRecord,
}

/// True if the patch was refused, or the field that was set doesn't exist any more: an immediate
/// retry would fail, too.
pub const fn is_refusal(error: &ApiError) -> bool {
    error.is_refusal() || matches!(error, ApiError::UnknownField(_))
}

impl Requeuer {
    /// Resumes an owner, if it still is to come back by now. Tries a few times if the owner has
    /// changed since it was read.
    pub(super) async fn resume(
        &self,
        paused: &Paused,
        owner: &OwnerReference,
        lease: &Lease<ReturningOwner>,
    ) -> Result<Attempt, ApiError> {
        let mut conflicts = ConflictRetries::default();
        loop {
            match self.try_to_resume(paused, owner, lease, conflicts.is_retry()).await {
                Err(ApiError::Stale(_)) if conflicts.may_retry() => {
                    conflicts.wait().await;
                    // nothing comes between the next reading and the write
                    self.limit.until_ready().await;
                }
                Err(ApiError::NotFound | ApiError::NotLeading) => return Ok(Attempt::NotNow),
                result => return result,
            }
        }
    }

    /// Reads the owner, decides by its record, waits for the write limit, and writes. With
    /// `has_turn`, the caller has waited.
    async fn try_to_resume(
        &self,
        paused: &Paused,
        owner: &OwnerReference,
        lease: &Lease<ReturningOwner>,
        has_turn: bool,
    ) -> Result<Attempt, ApiError> {
        let namespace = paused.namespace.as_str();
        let found = lease.watch(self.handles.objects.live(namespace, owner)).await?;
        let Some(found) = found else { return Ok(Attempt::NotNow) };
        let Some(record) = pause::record_on(&found.metadata) else { return Ok(Attempt::NotNow) };
        let object = OwnerObject(&found.value);
        let back = Return::of(&record, &found.metadata);
        // a return that was changed since the index saw it counts by its own time
        let is_same = record.at == paused.at && back == paused.returns;
        let (now, at) = (self.handles.now(), if is_same { paused.due() } else { back.at() });
        // an owner that is only checked has pods, even if its time has come by now
        let at = at.filter(|_| lease.work.0.is_due);
        if at.is_none_or(|at| at > now) {
            return match pause::overtaken(object, &record) {
                Some(patch) => self.take_record(namespace, owner, &patch, lease, has_turn).await,
                // the clock was set back, or the return was changed
                None if lease.work.0.is_due => Ok(Attempt::NotNow),
                // the index has seen pods of the second of the pause or younger, but the owner is
                // paused: the record is a tenant's, or these pods go soon
                None => Ok(Attempt::NotOurs),
            };
        }
        let is_early = back.at().is_some_and(|at| at > now);
        // otherwise a user who may write annotations could have the keeper set any field
        let config = self.handles.config.get();
        let Some(rule) = config.table.rule(owner, &record.field) else {
            // users may write such a record again and again, with a text of any length
            if of_callers() {
                let (owner, field) = (describe(owner), cut(&record.field));
                warn!(%namespace, owner, field, "Not resumed: its record names a field that doesn't pause its kind");
            }
            return Ok(Attempt::NotOurs);
        };
        let known = known(owner, &found.metadata);
        let patch = back.patch(object, &record);
        if !has_turn {
            self.limit.until_ready().await;
        }
        // by the clock that the last answer has set, and by watches that have not failed since
        if !self.handles.gate.is_open() || at.is_none_or(|at| at > self.handles.now()) {
            return Ok(Attempt::NotNow);
        }
        let at = self.handles.now();
        let returned = ReturnRecord {
            at: pause::whole_millisecond(at),
            early: is_early,
            reactivated: back == Return::Reactivate,
        };
        let state = object.requeue_state();
        let comes_back = back.comes_back() && matches!(patch, ReturnPatch::Return(_));
        let act = comes_back.then(|| JournalAct::Returned { record: record.clone(), state, returned });
        let change = pause::with_act(patch.get().clone(), &found.metadata, act, at);
        let report = Box::new(ReturnReport { known, record, state, back, returned });
        let resume = rule.command.as_ref().filter(|_| comes_back);
        let resume = resume.map(|command| pause::command(object, &command.resume));
        let write = async {
            // before the patch, since nothing else would send the Command again
            if let Some(command) = &resume {
                self.handles.objects.command(namespace, command).await?;
            }
            self.write(namespace, owner, back, &change).await
        };
        match lease.watch(write).await {
            Err(error) if is_refusal(&error) => Ok(Attempt::Refused(report, error)),
            Err(error) => Err(error),
            // the field was changed since the pause, and only the record is removed
            Ok(()) if matches!(patch, ReturnPatch::Forget(_)) => Ok(Attempt::NotNow),
            Ok(()) => Ok(Attempt::Done(report)),
        }
    }

    /// Removes the record from an owner that runs again although Tenure hasn't resumed it, and
    /// restores the fields that the pause holds.
    async fn take_record(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
        lease: &Lease<ReturningOwner>,
        has_turn: bool,
    ) -> Result<Attempt, ApiError> {
        if !has_turn {
            self.limit.until_ready().await;
        }
        if self.handles.gate.is_open() {
            let is_done = |found: &WholeObject| pause::record_on(&found.metadata).is_none();
            lease.watch(self.handles.objects.write(namespace, owner, patch, is_done)).await?;
        }
        Ok(Attempt::NotNow)
    }

    /// Writes the patch of a return. Without an answer, reads the owner: the write is done if the
    /// record is gone or, for a deactivation, if the record notes the deactivation.
    async fn write(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        back: Return,
        patch: &Value,
    ) -> Result<(), ApiError> {
        let is_done = |found: &WholeObject| {
            let record = pause::record_on(&found.metadata);
            match back {
                Return::Deactivate => record.as_ref().is_some_and(pause::is_deactivation),
                _ => record.is_none(),
            }
        };
        Ok(self.handles.objects.write(namespace, owner, patch, is_done).await.map(drop)?)
    }
}
