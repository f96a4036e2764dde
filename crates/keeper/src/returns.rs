//! Resumes workloads that were paused for a time: after a backoff, after the pause between two time slices, and when a
//! person has activated them.

mod attempt;

use std::time::Duration;

use futures::{StreamExt, channel::mpsc};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ApiResource;
use tenure_index::{CeilingIndex, Paused, Uid};
use tenure_policy::pause::{self, Return};
use tenure_service::{call::ApiError, clock::ServerClock, leadership::Leadership, log::with_causes};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    action::{describe, told_of_pause},
    api::ObjectClient,
    cluster::ClusterState,
    config::Current,
    events::{EventRecord, Events, FOR_EVENTS, IN_FLIGHT},
    limit::WriteLimit,
    metrics::Metrics,
    sleep,
};
use attempt::{Attempt, ReturnReport, is_refusal};

/// Between two looks for owners that are due and still have pods.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The time after which a return is tried again that failed, or that the watches haven't shown yet.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// The time after which an owner that Tenure may not resume is looked at again: its record may have been corrected.
const RETRY_NOT_OURS: SignedDuration = SignedDuration::from_mins(5);

/// The second refusal in a row draws an event: a server that has just started refuses everything for a moment.
const TOLD_REFUSAL: u8 = 2;

/// Resumes workloads that were paused for a time.
pub struct Requeuer {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub objects: ObjectClient,
    pub limit: WriteLimit,
    pub config: Current,
    pub events: Events,
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
        // apart from the returns: trouble with events must not hold them up
        let (tell, untold) = mpsc::unbounded();
        let telling = untold.for_each_concurrent(IN_FLIGHT, |happening| self.tell(happening));
        let work = async {
            self.bring_back_all(tell, shutdown).await;
            tokio::time::sleep(FOR_EVENTS).await;
        };
        tokio::select! {
            () = telling => {}
            () = work => warn!("Ended before all events were written"),
        }
    }

    async fn bring_back_all(&self, tell: mpsc::UnboundedSender<EventRecord>, shutdown: &CancellationToken) {
        let mut changes = self.cluster.changes();
        loop {
            let due = self.cluster.with(|index| index.claim_returns(self.clock.now()));
            // one after the other: this is the order in which they come back
            for paused in due {
                if shutdown.is_cancelled() {
                    return;
                }
                for happening in self.bring_back(&paused).await {
                    // the other end outlives this one
                    let _ = tell.unbounded_send(happening);
                }
            }
            tokio::select! {
                () = self.next() => {}
                () = changes.next() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    async fn next(&self) {
        let next = self.cluster.with(|index| index.next_return());
        tokio::join!(sleep::towards(&self.clock, next), tokio::time::sleep(BETWEEN_LOOKS));
    }

    /// Resumes an owner, and returns the events to write.
    async fn bring_back(&self, paused: &Paused) -> Vec<EventRecord> {
        let Some(resource) = self.cluster.kind(paused.source) else {
            self.settle(paused, &Ok(Attempt::NotNow));
            return Vec::new();
        };
        let owner = owner(resource, paused);
        let result = self.resume(paused, &owner).await;
        self.settle(paused, &result);
        self.record(paused, &owner, result)
    }

    fn settle(&self, paused: &Paused, result: &Result<Attempt, ApiError>) {
        let (uid, now) = (Uid::of(&paused.uid), self.clock.now());
        let is_refused = match result {
            Ok(attempt) => matches!(attempt, Attempt::Refused(..)),
            Err(error) => is_refusal(error),
        };
        let again = if matches!(result, Ok(Attempt::NotOurs)) { RETRY_NOT_OURS } else { RETRY };
        self.cluster.with(|index| {
            if is_refused {
                index.refuse_return(uid, now);
            } else {
                index.settle_return(uid, now.checked_add(again).unwrap_or(Timestamp::MAX));
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
                self.owed(&told)
            }
            Ok(Attempt::Done(told)) => {
                let (count, early) = (told.state.count, told.is_early);
                info!(%queue, %namespace, owner = name, count, early, "Resumed");
                if told.back != Return::Reactivate {
                    self.metrics.returned(counted);
                }
                let mut happenings = self.owed(&told);
                happenings.push(self.came_back(&told));
                happenings
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

    fn came_back(&self, told: &ReturnReport) -> EventRecord {
        let reason = if told.back == Return::Reactivate { pause::REACTIVATED } else { pause::REQUEUED };
        let note = pause::came_back(&told.record, told.state.count, &told.known, told.is_early);
        let object = told.known.object.clone();
        EventRecord { object, reason, action: "Resuming", note, at: self.clock.now(), cause: None }
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
        }
    }

    async fn tell(&self, happening: EventRecord) {
        if let Err(error) = self.events.tell(&happening, self.clock.now()).await {
            let EventRecord { object, reason, .. } = happening;
            let (object, namespace) = (object.name.unwrap_or_default(), object.namespace.unwrap_or_default());
            error!(%namespace, %object, reason, error = with_causes(&error), "Failed to write an event");
        }
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
