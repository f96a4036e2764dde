//! Brings back what was paused to come back: after a backoff, after the pause between two time slices, and when somebody
//! has activated it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use tenure_index::{CeilingIndex, Paused, Uid};
use tenure_policy::pause::{self, Owner, Return};
use tenure_service::{
    call::{ApiError, persist},
    clock::ServerClock,
    leadership::Leadership,
    log::with_causes,
};
use tenure_types::paused::PausedRecord;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    action::{READS, WriteLimit, describe, reference, told_of_pause},
    api::Objects,
    cluster::Cluster,
    config::Current,
    events::{Events, Happening},
    metrics::Metrics,
};

/// The longest sleep without a look at the clock, which may have been set right in the meantime.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Between two looks for owners that are due and still have pods.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// After that, one that could not be brought back, or of whose return the watches have not told yet, is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// After that, one is looked at again that is not ours to bring back, for somebody may have put that right.
const RETRY_REFUSED: SignedDuration = SignedDuration::from_mins(5);

/// Brings back what was paused to come back.
pub struct Returns {
    pub cluster: Cluster,
    pub clock: ServerClock,
    pub objects: Objects,
    pub limit: WriteLimit,
    pub config: Current,
    pub events: Events,
    pub metrics: Metrics,
}

/// What became of a try.
enum Attempt {
    Resumed(Box<Told>),
    /// It doesn't come back now.
    NotNow,
    /// Its record can't be followed.
    Refused,
}

/// What is to be told of a return.
struct Told {
    record: PausedRecord,
    count: u32,
    back: Return,
}

impl Returns {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(
            shutdown,
            async || self.work(shutdown).await,
            || self.cluster.with(CeilingIndex::release_returns),
        )
        .await;
    }

    async fn work(&self, shutdown: &CancellationToken) {
        let mut changes = self.cluster.changes();
        loop {
            let due = self.cluster.with(|index| index.claim_returns(self.clock.now()));
            // one after the other: this is the order in which they come back
            for paused in due {
                if shutdown.is_cancelled() {
                    return;
                }
                self.bring_back(paused).await;
            }
            tokio::select! {
                () = self.next() => {}
                () = changes.next() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    async fn next(&self) {
        let until = |due: Timestamp| due.duration_since(self.clock.now()).try_into().unwrap_or_default();
        let next = self.cluster.with(|index| index.next_return());
        let sleep = next.map_or(LONGEST_SLEEP, until).clamp(BETWEEN_LOOKS, LONGEST_SLEEP);
        tokio::time::sleep(sleep).await;
    }

    async fn bring_back(&self, paused: Paused) {
        let again = match self.cluster.kind(paused.source) {
            Some(resource) => self.bring_back_of(resource, &paused).await,
            None => RETRY,
        };
        let again = self.clock.now().checked_add(again).unwrap_or(Timestamp::MAX);
        self.cluster.with(|index| index.settle_return(Uid::of(&paused.uid), again));
    }

    /// Returns after what time it may be tried again.
    async fn bring_back_of(&self, resource: ApiResource, paused: &Paused) -> SignedDuration {
        let owner = OwnerReference {
            api_version: resource.api_version,
            kind: resource.kind,
            name: paused.name.to_string(),
            uid: paused.uid.to_string(),
            ..OwnerReference::default()
        };
        let (queue, namespace) = (&paused.queue, &paused.namespace);
        let name = describe(&owner);
        match self.resume(namespace, &owner).await {
            Ok(Attempt::Resumed(told)) => {
                info!(%queue, %namespace, owner = name, count = told.count, "Resumed");
                self.metrics.returned(queue);
                self.tell(namespace, &owner, &told).await;
            }
            Ok(Attempt::NotNow) => debug!(%queue, %namespace, owner = name, "Doesn't come back now"),
            Ok(Attempt::Refused) => return RETRY_REFUSED,
            Err(failure) => {
                error!(%queue, %namespace, owner = name, error = with_causes(&failure), "Failed to resume: will try again");
            }
        }
        RETRY
    }

    /// Resumes an owner, if it still is to come back by now.
    async fn resume(&self, namespace: &str, owner: &OwnerReference) -> Result<Attempt, ApiError> {
        let mut tries = 1..READS;
        loop {
            match self.try_to_resume(namespace, owner).await {
                Err(ApiError::Stale(_)) if tries.next().is_some() => {}
                Err(ApiError::NotFound) => return Ok(Attempt::NotNow),
                result => return result,
            }
        }
    }

    async fn try_to_resume(&self, namespace: &str, owner: &OwnerReference) -> Result<Attempt, ApiError> {
        let found = self.objects.get(namespace, owner).await?;
        if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.deletion_timestamp.is_some() {
            return Ok(Attempt::NotNow);
        }
        let Some(record) = pause::record_on(&found.metadata) else { return Ok(Attempt::NotNow) };
        let back = Return::of(&record, &found.metadata);
        if back.at().is_none_or(|at| at > self.clock.now()) {
            return Ok(Attempt::NotNow);
        }
        // whoever may write annotations could else have the keeper set any field for them
        let config = self.config.get();
        if !config.table.rules(owner).any(|rule| rule.field == record.field) {
            let (owner, field) = (describe(owner), &record.field);
            warn!(%namespace, owner, field, "Not resumed: its record names a field that isn't paused by");
            return Ok(Attempt::Refused);
        }
        let object = serde_json::to_value(&found).unwrap_or_default();
        let (object, count) = (Owner(&object), Owner(&object).requeue_state().count);
        // who has activated it wants it to run, whoever has paused it
        let set_since = back != Return::Reactivate && pause::was_set_since(object, &record);
        let ours = pause::is_ours(object, &record) && !set_since;
        self.limit.until_ready().await;
        let patch = if ours { pause::resume(object, &record) } else { pause::forget(object, &record) };
        self.write(namespace, owner, &patch).await?;
        // else somebody has set the field since, and only the record goes
        Ok(if ours { Attempt::Resumed(Box::new(Told { record, count, back })) } else { Attempt::NotNow })
    }

    async fn write(&self, namespace: &str, owner: &OwnerReference, patch: &Value) -> Result<(), ApiError> {
        match self.objects.merge(namespace, owner, patch).await {
            // it may have been applied all the same
            Err(error) if error.is_open() => {
                let found: DynamicObject = persist(async || self.objects.get(namespace, owner).await).await?;
                if pause::record_on(&found.metadata).is_some() { Err(error) } else { Ok(()) }
            }
            result => result.map(drop),
        }
    }

    async fn tell(&self, namespace: &str, owner: &OwnerReference, told: &Told) {
        let Told { record, count, back } = told;
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let object = reference(owner, namespace);
        // with the record goes what else would say that its pause may not have been told
        let owed = self.cluster.recent.take_owed(owner, record, self.clock.now());
        let mut happenings = if owed { told_of_pause(record, &object) } else { Vec::new() };
        happenings.push(Happening {
            object,
            reason: if *back == Return::Reactivate { pause::REACTIVATED } else { pause::REQUEUED },
            action: "Resuming",
            note: pause::came_back(record, *count),
            at: self.clock.now(),
        });
        for happening in happenings {
            if let Err(error) = self.events.tell(&happening, self.clock.now()).await {
                let (owner, reason) = (describe(owner), happening.reason);
                error!(owner, reason, error = with_causes(&error), "Failed to write an event");
            }
        }
    }
}
