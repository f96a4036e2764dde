//! What happens when a ceiling is exceeded: one place turns the decision into a write, an event, a metric and a
//! line of log.

use std::{num::NonZeroU32, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::Value;
use tenure_index::{CeilingIndex, Due, Group, Uid};
use tenure_policy::{
    expiry::{SYSTEM_CRITICAL_PRIORITY, exemption},
    owners::{Action, Climb, OwnerTable, PauseRule},
    pause::{self, Owner},
};
use tenure_types::projection::Pod;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    api::{ApiError, Objects, persist},
    clock::ServerClock,
    cluster::Cluster,
    events::{Events, Happening},
    metrics::{self, Metrics},
};

/// Owners that are handled at the same time. The rate is the limiter's business; this only hides latency.
const IN_FLIGHT: usize = 8;

/// The longest sleep without a look at the clock, which may have been set right in the meantime.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// For how long after a pause its event is written again, should it be missing. Events themselves are kept for
/// an hour: later it would come a second time.
const EVENT_REPAIR: SignedDuration = SignedDuration::from_mins(5);

/// A token bucket for writes.
pub type WriteLimit = DefaultDirectRateLimiter;

/// So many a second on the average, so many at once.
pub fn write_limit(per_second: NonZeroU32, burst: NonZeroU32) -> WriteLimit {
    RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst))
}

/// Handles pods whose ceiling is exceeded.
pub struct Expiry {
    pub cluster: Cluster,
    pub clock: ServerClock,
    pub objects: Objects,
    pub events: Events,
    pub limit: WriteLimit,
    pub table: OwnerTable,
    pub metrics: Metrics,
}

/// How the handling of an expired pod ended.
enum Outcome {
    /// This owner was paused.
    Paused(OwnerReference),
    /// The pod was deleted.
    Deleted,
    /// Nothing was done, and nothing was to be done.
    Settled(&'static str),
}

/// Why nothing could be done yet.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("not allowed to get {}: grant it to the keeper's service account, since nothing below it may be paused in its place", describe(.0))]
    ForbiddenOwner(OwnerReference),
    #[error("the API server took the patch of {} and dropped {field}: its schema has no such field", describe(.owner))]
    Pruned { owner: OwnerReference, field: String },
    #[error("failed to write the event")]
    Event(#[source] ApiError),
}

impl Expiry {
    /// Works until `shutdown`, and then finishes what is in flight.
    pub async fn run(&self, shutdown: &CancellationToken) {
        let mut flight = FuturesUnordered::new();
        while !(shutdown.is_cancelled() && flight.is_empty()) {
            while flight.len() < IN_FLIGHT
                && !shutdown.is_cancelled()
                && let Some(group) = self.cluster.with(|index| index.claim(self.clock.now()))
            {
                flight.push(self.handle(group));
            }
            self.metrics.under_ceiling(self.cluster.with(|index| index.pods_under_ceiling()));
            tokio::select! {
                Some(()) = flight.next() => {}
                () = self.next_deadline(), if flight.len() < IN_FLIGHT => {}
                () = self.cluster.changed() => {}
                () = shutdown.cancelled(), if !shutdown.is_cancelled() => {}
            }
        }
    }

    async fn next_deadline(&self) {
        let until =
            |deadline: Timestamp| deadline.duration_since(self.clock.now()).try_into().unwrap_or_default();
        let next = self.cluster.with(CeilingIndex::next_deadline);
        tokio::time::sleep(next.map_or(LONGEST_SLEEP, until).min(LONGEST_SLEEP)).await;
    }

    async fn handle(&self, group: Group) {
        let queue = &group.first.queue;
        match self.expire(&group).await {
            Ok(Outcome::Paused(owner)) => {
                self.metrics.expired(queue, &owner.kind, metrics::Result::Paused);
                info!(%queue, namespace = %group.first.namespace, owner = describe(&owner), pods = group.pods().count(), "Paused");
            }
            Ok(Outcome::Deleted) => {
                self.metrics.expired(queue, "Pod", metrics::Result::Deleted);
            }
            Ok(Outcome::Settled(why)) => {
                self.metrics.expired(queue, "Pod", metrics::Result::Settled);
                debug!(%queue, namespace = %group.first.namespace, pod = %group.first.name, why, "Left alone");
            }
            Err(failure) => {
                self.metrics.expired(queue, "Pod", metrics::Result::Failed);
                let error = format!("{:#}", anyhow::Error::new(failure));
                error!(%queue, namespace = %group.first.namespace, pod = %group.first.name, error, "Failed to expire: will try again");
            }
        }
        let now = self.clock.now();
        self.cluster.with(|index| index.settle(&group, now));
    }

    async fn expire(&self, group: &Group) -> Result<Outcome, Failure> {
        let namespace = group.first.namespace.as_str();
        let Some(pod) = self.still_expired(&group.first).await? else {
            return Ok(Outcome::Settled("the pod is gone or exempt"));
        };
        match self.climb(namespace, pod.controller()).await? {
            Action::Pause(owner) if self.would_stop_an_exempt_pod(namespace, &owner).await? => {
                self.delete(group).await
            }
            Action::Pause(owner) => self.pause(&group.first, owner).await,
            Action::DeletePod => self.delete(group).await,
            Action::AwaitDeletion(_) => Ok(Outcome::Settled("an owner is being deleted")),
            Action::Forbidden(owner) => Err(Failure::ForbiddenOwner(owner)),
        }
    }

    /// The pod as it is now, if it is still the one that expired.
    async fn still_expired(&self, due: &Due) -> Result<Option<Pod>, ApiError> {
        match self.objects.pod(&due.namespace, &due.name).await {
            Ok(pod) => {
                let same = pod.metadata.uid.as_deref().is_some_and(|uid| Uid::of(uid) == due.uid);
                Ok(Some(pod).filter(|pod| same && exemption(pod, SYSTEM_CRITICAL_PRIORITY).is_none()))
            }
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn climb(&self, namespace: &str, controller: Option<&OwnerReference>) -> Result<Action, ApiError> {
        let mut climb = Climb::from(controller, &self.table);
        while let Some(owner) = climb.next() {
            let answer = self.objects.look_up(namespace, owner).await?;
            climb.answer(answer);
        }
        Ok(climb.action())
    }

    /// Whether a live pod that is exempt by priority has the same owner.
    async fn would_stop_an_exempt_pod(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<bool, ApiError> {
        let mut controllers: Vec<OwnerReference> = Vec::new();
        for pod in self.cluster.with(|index| index.exempt_pods(namespace)) {
            if controllers.iter().all(|known| known.uid != pod.controller.uid) {
                controllers.push(pod.controller);
            }
        }
        for controller in controllers {
            let action = self.climb(namespace, Some(&controller)).await?;
            if matches!(action, Action::Pause(root) if root.uid == owner.uid) {
                warn!(%namespace, owner = describe(owner), "Not paused, for it has a pod that is exempt by priority");
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn pause(&self, due: &Due, owner: OwnerReference) -> Result<Outcome, Failure> {
        let Some(rule) = self.table.rule(&owner) else {
            return Ok(Outcome::Settled("its owner can't be paused"));
        };
        let object = self.objects.get(&due.namespace, &owner).await?;
        if object.metadata.uid.as_deref() != Some(&owner.uid) || object.metadata.deletion_timestamp.is_some()
        {
            return Ok(Outcome::Settled("its owner is going or gone"));
        }
        let object = json(&object);
        let now = self.clock.now();
        if Owner(&object).is_paused(rule) {
            return self.repair_event(due, owner, rule, &object, now).await;
        }
        self.limit.until_ready().await;
        let at = self.clock.now();
        let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        let record = pause::record(Owner(&object), rule, &due.queue, at);
        let patch = pause::patch(Owner(&object), rule, &record);
        let returned = match self.objects.merge(&due.namespace, &owner, &patch).await {
            // it may have been applied all the same
            Err(error) if error.is_open() => {
                let found = persist(async || self.objects.get(&due.namespace, &owner).await).await?;
                if Owner(&json(&found)).record().as_ref() != Some(&record) {
                    return Err(error.into());
                }
                found
            }
            returned => returned?,
        };
        if !pause::took(Owner(&json(&returned)), rule, &record) {
            return Err(Failure::Pruned { owner, field: rule.field.clone() });
        }
        self.metrics.late(at.duration_since(due.deadline).as_secs_f64());
        self.pause_event(due, &owner, rule, at).await?;
        Ok(Outcome::Paused(owner))
    }

    /// A pause and its event are two writes, between which a process can die.
    async fn repair_event(
        &self,
        due: &Due,
        owner: OwnerReference,
        rule: &PauseRule,
        object: &Value,
        now: Timestamp,
    ) -> Result<Outcome, Failure> {
        let record = Owner(object).record();
        if let Some(record) = record.filter(|record| now.duration_since(record.at) < EVENT_REPAIR) {
            self.pause_event(due, &owner, rule, record.at).await?;
        }
        Ok(Outcome::Settled("its owner is paused"))
    }

    async fn pause_event(
        &self,
        due: &Due,
        owner: &OwnerReference,
        rule: &PauseRule,
        at: Timestamp,
    ) -> Result<(), Failure> {
        let happening = Happening {
            object: ObjectReference {
                api_version: Some(owner.api_version.clone()),
                kind: Some(owner.kind.clone()),
                name: Some(owner.name.clone()),
                namespace: Some(due.namespace.clone()),
                uid: Some(owner.uid.clone()),
                ..ObjectReference::default()
            },
            action: "Pausing",
            note: pause::message(rule),
            at,
        };
        self.events.max_duration_exceeded(happening).await.map_err(Failure::Event)
    }

    /// Deletes the pods of a group: there is nothing above them to pause.
    async fn delete(&self, group: &Group) -> Result<Outcome, Failure> {
        for due in group.pods() {
            if let Some(pod) = self.still_expired(due).await? {
                self.delete_pod(due, &pod).await?;
            }
        }
        Ok(Outcome::Deleted)
    }

    async fn delete_pod(&self, due: &Due, pod: &Pod) -> Result<(), Failure> {
        self.limit.until_ready().await;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match self.objects.delete_pod(&due.namespace, &due.name, &uid).await {
            Err(ApiError::NotFound | ApiError::Stale(_)) => return Ok(()),
            result => result?,
        }
        let at = self.clock.now();
        self.metrics.late(at.duration_since(due.deadline).as_secs_f64());
        info!(queue = %due.queue, namespace = %due.namespace, pod = %due.name, "Deleted");
        let happening = Happening {
            object: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(due.name.clone()),
                namespace: Some(due.namespace.clone()),
                uid: Some(uid),
                ..ObjectReference::default()
            },
            action: "Deleting",
            note: pause::DELETED_MESSAGE.into(),
            at,
        };
        self.events.max_duration_exceeded(happening).await.map_err(Failure::Event)
    }
}

fn describe(owner: &OwnerReference) -> String {
    format!("{} {} ({})", owner.kind, owner.name, owner.api_version)
}

fn json(object: &kube::core::DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
