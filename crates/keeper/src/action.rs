//! What is done about an expired pod: its topmost owner is paused, or the pod is deleted.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::core::DynamicObject;
use serde_json::Value;
use tenure_index::{Due, Uid};
use tenure_policy::{
    expiry::exemption,
    owners::{Action, Climb, OwnerTable, PauseRule},
    pause::{self, Owner},
};
use tenure_types::projection::Pod;
use thiserror::Error;
use tracing::warn;

use crate::{
    api::{ApiError, Objects, persist},
    clock::ServerClock,
    cluster::Cluster,
    events::Happening,
};

/// How often an owner is read anew because somebody else has just changed it.
const READS: usize = 5;

/// For how long after a pause its event is written again, should it be missing. Events themselves are kept for
/// an hour: later it would come a second time.
const EVENT_REPAIR: SignedDuration = SignedDuration::from_mins(5);

/// A token bucket for writes.
pub type WriteLimit = DefaultDirectRateLimiter;

/// So many a second on the average, so many at once.
pub fn write_limit(per_second: NonZeroU32, burst: NonZeroU32) -> WriteLimit {
    RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst))
}

/// Does what is to be done about expired pods.
pub struct Actor {
    pub cluster: Cluster,
    pub clock: ServerClock,
    pub objects: Objects,
    pub limit: WriteLimit,
    pub table: OwnerTable,
    pub priority_threshold: i32,
}

/// What was done, and what is to be told of it.
pub struct Done {
    pub deed: Deed,
    pub event: Option<Happening>,
    of_owner: bool,
}

/// What was done.
pub enum Deed {
    /// This owner was paused.
    Paused(OwnerReference),
    /// The pod was deleted.
    Deleted,
    /// Nothing, for this reason.
    Nothing(&'static str),
}

impl Done {
    /// Whether it serves all pods of the same controller, and not this one alone.
    pub const fn serves_group(&self) -> bool {
        self.of_owner
    }

    const fn nothing(why: &'static str, of_owner: bool) -> Self {
        Self { deed: Deed::Nothing(why), event: None, of_owner }
    }
}

/// Why nothing could be done yet.
#[derive(Debug, Error)]
pub enum Failure {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("failed to delete the pod")]
    Delete(#[source] ApiError),
    #[error("not allowed to get {}: grant it to the keeper's service account, since nothing below it may be paused in its place", describe(.0))]
    ForbiddenOwner(OwnerReference),
    #[error("the API server took the patch of {} and dropped {field}: its schema has no such field", describe(.owner))]
    Pruned { owner: OwnerReference, field: String },
}

impl Failure {
    /// Whether it would meet all pods of the same controller, and not this one alone.
    pub const fn is_of_owner(&self) -> bool {
        !matches!(self, Self::Delete(_))
    }
}

impl Actor {
    /// Does what is to be done about an expired pod.
    pub async fn act(&self, due: &Due) -> Result<Done, Failure> {
        let Some(pod) = self.still_expired(due).await? else {
            return Ok(Done::nothing("the pod is gone or exempt", false));
        };
        match self.climb(due, pod.controller()).await? {
            Action::Pause(owner) if self.would_stop_an_exempt_pod(due, &owner).await? => {
                self.delete(due, &pod).await
            }
            Action::Pause(owner) => self.pause(due, owner).await,
            Action::DeletePod => self.delete(due, &pod).await,
            Action::AwaitDeletion(_) => Ok(Done::nothing("an owner is being deleted", true)),
            Action::Forbidden(owner) => Err(Failure::ForbiddenOwner(owner)),
        }
    }

    /// The pod as it is now, if it is still the one that expired.
    async fn still_expired(&self, due: &Due) -> Result<Option<Pod>, ApiError> {
        match self.objects.pod(&due.namespace, &due.name).await {
            Ok(pod) => {
                let same = pod.metadata.uid.as_deref().is_some_and(|uid| Uid::of(uid) == due.uid);
                Ok(Some(pod).filter(|pod| same && exemption(pod, self.priority_threshold).is_none()))
            }
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn climb(&self, due: &Due, controller: Option<&OwnerReference>) -> Result<Action, ApiError> {
        let mut climb = Climb::from(controller, &self.table);
        while let Some(owner) = climb.next() {
            let answer = self.objects.look_up(&due.namespace, owner, due.attempts > 0).await?;
            climb.answer(answer);
        }
        Ok(climb.action())
    }

    /// Whether a live pod that is exempt by priority has the same owner.
    async fn would_stop_an_exempt_pod(&self, due: &Due, owner: &OwnerReference) -> Result<bool, ApiError> {
        for controller in self.cluster.with(|index| index.exempt_controllers(&due.namespace)) {
            let action = self.climb(due, Some(&controller)).await?;
            if matches!(action, Action::Pause(root) if root.uid == owner.uid) {
                let (namespace, owner) = (&due.namespace, describe(owner));
                warn!(%namespace, owner, "Not paused, for it has a pod that is exempt by priority");
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn pause(&self, due: &Due, owner: OwnerReference) -> Result<Done, Failure> {
        let Some(rule) = self.table.rule(&owner) else {
            return Ok(Done::nothing("its owner can't be paused", true));
        };
        // before the read, so that what is read is fresh when it is patched
        self.limit.until_ready().await;
        let mut tries = 1..READS;
        loop {
            match self.try_to_pause(due, &owner, rule).await {
                Err(Failure::Api(ApiError::Stale(_))) if tries.next().is_some() => {}
                Err(Failure::Api(ApiError::NotFound)) => return Ok(Done::nothing("its owner is gone", true)),
                result => return result,
            }
        }
    }

    async fn try_to_pause(
        &self,
        due: &Due,
        owner: &OwnerReference,
        rule: &PauseRule,
    ) -> Result<Done, Failure> {
        let object = self.objects.get(&due.namespace, owner).await?;
        if object.metadata.uid.as_deref() != Some(&owner.uid) || object.metadata.deletion_timestamp.is_some()
        {
            return Ok(Done::nothing("its owner is going or gone", true));
        }
        let object = json(&object);
        let at = self.clock.now();
        if Owner(&object).is_paused(rule) {
            // a pause and its event are two writes, between which a process can die
            let ours = Owner(&object).record().filter(|record| at.duration_since(record.at) < EVENT_REPAIR);
            let event = ours.map(|record| paused_event(due, owner, rule, record.at));
            return Ok(Done { event, ..Done::nothing("its owner is paused", true) });
        }
        let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        let record = pause::record(Owner(&object), rule, &due.queue, at);
        let patch = pause::patch(Owner(&object), rule, &record);
        match self.objects.merge(&due.namespace, owner, &patch).await {
            Ok(returned) if !pause::took(Owner(&json(&returned)), rule, &record) => {
                return Err(Failure::Pruned { owner: owner.clone(), field: rule.field.clone() });
            }
            Ok(_) => {}
            // it may have been applied all the same
            Err(error) if error.is_open() => {
                let found = persist(async || self.objects.get(&due.namespace, owner).await).await?;
                if Owner(&json(&found)).record().as_ref() != Some(&record) {
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        let event = Some(paused_event(due, owner, rule, at));
        Ok(Done { deed: Deed::Paused(owner.clone()), event, of_owner: true })
    }

    /// Deletes the pod: there is nothing above it to pause.
    async fn delete(&self, due: &Due, pod: &Pod) -> Result<Done, Failure> {
        self.limit.until_ready().await;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match self.objects.delete_pod(&due.namespace, &due.name, &uid).await {
            Err(ApiError::NotFound | ApiError::Stale(_)) => {
                return Ok(Done::nothing("the pod is gone or another one", false));
            }
            // it may have been done all the same
            Err(error) if error.is_open() => {
                let rest = persist(async || self.still_expired(due).await).await.map_err(Failure::Delete)?;
                if rest.is_some() {
                    return Err(Failure::Delete(error));
                }
            }
            result => result.map_err(Failure::Delete)?,
        }
        let object = reference(due, "v1", "Pod", &due.name, &uid);
        let note = pause::DELETED_MESSAGE.into();
        let event = Some(Happening { object, action: "Deleting", note, at: self.clock.now() });
        Ok(Done { deed: Deed::Deleted, event, of_owner: false })
    }
}

fn paused_event(due: &Due, owner: &OwnerReference, rule: &PauseRule, at: Timestamp) -> Happening {
    let object = reference(due, &owner.api_version, &owner.kind, &owner.name, &owner.uid);
    Happening { object, action: "Pausing", note: pause::message(rule), at }
}

fn reference(due: &Due, api_version: &str, kind: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some(kind.into()),
        name: Some(name.into()),
        namespace: Some(due.namespace.clone()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}

/// An owner for people: `Deployment test (apps/v1)`.
pub fn describe(owner: &OwnerReference) -> String {
    format!("{} {} ({})", owner.kind, owner.name, owner.api_version)
}

fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
