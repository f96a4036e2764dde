//! Resumes workloads that were paused for a time: after a backoff, after the pause between two time slices, and when a
//! person has activated them.

mod attempt;
mod order;

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ApiResource;
use tenure_index::{CeilingIndex, Paused, Uid};
use tenure_policy::{
    naming::describe,
    pause::{self, PausedObject, Return},
};
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tenure_types::paused::{PausedRecord, RequeueState, ReturnRecord};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::{
    action::told_of_pause,
    api::ObjectClient,
    cluster::ClusterState,
    config::Current,
    events::{EventQueue, EventRecord},
    gate::FreshnessGate,
    limit::WriteLimit,
    metrics::Metrics,
    sleep,
    slots::{FairSlots, TakenSlot},
};
use attempt::{Attempt, ReturnReport, is_refusal};
use order::ReturnOrder;

/// Between two looks for owners that are due and still have pods.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The time after which a return is tried again that failed, or that the watches haven't shown yet.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// The second refusal in a row draws an event: a server that has just started refuses everything for a moment.
const TOLD_REFUSAL: u8 = 2;

/// Resumes workloads that were paused for a time.
pub struct Requeuer {
    pub gate: FreshnessGate,
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub objects: ObjectClient,
    pub limit: WriteLimit,
    pub config: Current,
    pub events: EventQueue,
    /// For returns that are under way at the same time.
    pub slots: FairSlots,
    pub metrics: Metrics,
}

impl Requeuer {
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
        let mut order = ReturnOrder::default();
        let mut returns = FuturesUnordered::new();
        loop {
            let open = !shutdown.is_cancelled();
            let is_fresh = self.gate.is_open();
            if open && is_fresh {
                order.extend(self.cluster.with(|index| index.claim_returns(self.clock.now())));
                while let Some((paused, slot)) = order.next(&self.slots) {
                    returns.push(self.bring_back(paused, slot));
                }
            } else if !open && returns.is_empty() {
                return;
            }
            tokio::select! {
                Some(events) = returns.next() => self.events.extend(events),
                () = self.slots.changed(), if open && is_fresh => {}
                () = self.next(), if open && is_fresh => {}
                () = self.gate.opened(), if open && !is_fresh => {}
                () = changes.next(), if open => {}
                () = shutdown.cancelled(), if open => {}
            }
        }
    }

    async fn next(&self) {
        let next = self.cluster.with(|index| index.next_return());
        tokio::join!(sleep::towards(&self.clock, next), tokio::time::sleep(BETWEEN_LOOKS));
    }

    /// Resumes an owner, and returns the events to write.
    async fn bring_back(&self, paused: Paused, slot: TakenSlot) -> Vec<EventRecord> {
        let Some(resource) = self.cluster.kind(paused.source) else {
            self.settle(&paused, &Ok(Attempt::NotNow));
            return Vec::new();
        };
        let owner = owner(resource, &paused);
        let result = self.resume(&paused, &owner, &slot).await;
        self.settle(&paused, &result);
        self.record(&paused, &owner, result)
    }

    fn settle(&self, paused: &Paused, result: &Result<Attempt, ApiError>) {
        let (uid, now) = (Uid::of(&paused.uid), self.clock.now());
        let is_refused = match result {
            Ok(attempt) => matches!(attempt, Attempt::Refused(..)),
            Err(error) => is_refusal(error),
        };
        self.cluster.with(|index| {
            if is_refused {
                index.refuse_return(uid, now);
            } else if matches!(result, Ok(Attempt::NotOurs)) {
                index.leave_foreign(uid, now);
            } else {
                index.settle_return(uid, now.checked_add(RETRY).unwrap_or(Timestamp::MAX));
            }
        });
    }

    fn record(
        &self,
        paused: &Paused,
        owner: &OwnerReference,
        result: Result<Attempt, ApiError>,
    ) -> Vec<EventRecord> {
        let (queue, namespace, name) = (&paused.queue, &paused.namespace, describe(owner));
        // a record may name any queue: tenants can write it
        let exists = self.cluster.with(|index| index.has_queue(queue));
        let counted = (paused.rules_of(), if exists { queue.as_str() } else { "" });
        match result {
            Ok(Attempt::Done(told)) if told.back == Return::Deactivate => {
                info!(%queue, %namespace, owner = name, "Doesn't come back: a person has deactivated it");
                self.events.repair(self.owed(&told));
                Vec::new()
            }
            Ok(Attempt::Done(told)) => {
                let (count, early) = (told.state.count, told.returned.early);
                info!(%queue, %namespace, owner = name, count, early, "Resumed");
                if told.back != Return::Reactivate {
                    self.metrics.returned(counted);
                }
                self.events.repair(self.owed(&told));
                let ReturnReport { known, record, state, returned, .. } = &*told;
                self.cluster.outbox.telling(known, returned.at);
                vec![told_of_return(record, state, known, *returned)]
            }
            Ok(Attempt::Refused(told, error)) => {
                self.metrics.refused_return(counted, &owner.kind);
                let error = with_causes(&error);
                error!(%queue, %namespace, owner = name, error, "May not resume: will try again");
                let is_told = told.back.comes_back() && paused.refusals.saturating_add(1) == TOLD_REFUSAL;
                is_told.then(|| self.refused(&told, &error)).into_iter().collect()
            }
            Ok(Attempt::NotNow) => {
                debug!(%queue, %namespace, owner = name, "Doesn't come back now");
                Vec::new()
            }
            Ok(Attempt::NotOurs) => Vec::new(),
            Err(failure) => {
                if is_refusal(&failure) {
                    self.metrics.refused_return(counted, &owner.kind);
                }
                error!(%queue, %namespace, owner = name, error = with_causes(&failure), "Failed to resume: will try again");
                Vec::new()
            }
        }
    }

    /// Returns the event of the pause if it may not have been written: a return changes or removes the record, so that
    /// this can't be found out later.
    fn owed(&self, ReturnReport { known, record, state, .. }: &ReturnReport) -> Vec<EventRecord> {
        let owed = self.cluster.outbox.take_owed(known, record, self.clock.now());
        if owed { told_of_pause(record, state, known) } else { Vec::new() }
    }

    fn refused(&self, told: &ReturnReport, error: &str) -> EventRecord {
        let note = pause::return_refused(&told.record, error, &told.known);
        EventRecord {
            object: told.known.object.clone(),
            reason: pause::RETURN_REFUSED,
            action: "Resuming",
            note,
            at: self.clock.now(),
            cause: None,
            request: None,
            end: None,
        }
    }
}

/// Returns the event of the return from a pause.
pub fn told_of_return(
    record: &PausedRecord,
    state: &RequeueState,
    known: &PausedObject,
    ReturnRecord { at, early, reactivated }: ReturnRecord,
) -> EventRecord {
    EventRecord {
        object: known.object.clone(),
        reason: if reactivated { pause::REACTIVATED } else { pause::REQUEUED },
        action: "Resuming",
        note: pause::came_back(record, state.count, known, early),
        at,
        cause: None,
        request: None,
        end: None,
    }
}

fn owner(resource: ApiResource, paused: &Paused) -> OwnerReference {
    OwnerReference {
        api_version: resource.api_version,
        kind: resource.kind,
        name: paused.name.to_string(),
        uid: paused.uid.to_string(),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests;
