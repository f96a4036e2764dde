//! What has expired is handed to the [`Actor`], and what it did is turned into an event, a metric and a line of log.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tenure_index::{CeilingIndex, Group};
use tenure_service::log::with_causes;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    action::{Actor, Deed, Done, Failure, describe},
    clock::ServerClock,
    cluster::Cluster,
    events::{Events, Happening},
    metrics::{Metrics, Result},
};

/// Owners that are handled at the same time. The rate is the limiter's business; this only hides latency.
const IN_FLIGHT: usize = 8;

/// The longest sleep without a look at the clock, which may have been set right in the meantime.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// For events that are still to be written at the end.
const FOR_EVENTS: Duration = Duration::from_secs(5);

/// After so many tries, about a minute and a half, a pod that outlives the pause of its owner is worth a warning.
const OUTLIVED: u8 = 5;

/// Handles pods whose ceiling is exceeded.
pub struct Expiry {
    pub cluster: Cluster,
    pub clock: ServerClock,
    pub actor: Actor,
    pub events: Events,
    pub metrics: Metrics,
}

impl Expiry {
    /// Works until `shutdown`, and then finishes what is in flight.
    pub async fn run(&self, shutdown: &CancellationToken) {
        let mut deeds = FuturesUnordered::new();
        // apart from the deeds: trouble with events must not hold up a pause
        let mut events = FuturesUnordered::new();
        loop {
            let open = !shutdown.is_cancelled();
            while open
                && deeds.len() < IN_FLIGHT
                && let Some(group) = self.cluster.with(|index| index.claim(self.clock.now()))
            {
                deeds.push(self.handle(group));
            }
            if !open && deeds.is_empty() {
                break;
            }
            self.metrics.under_ceiling(self.cluster.with(|index| index.pods_under_ceiling()));
            tokio::select! {
                Some(happening) = deeds.next() => events.extend(happening.map(|happening| self.tell(happening))),
                Some(()) = events.next() => {}
                () = self.next_deadline(), if open && deeds.len() < IN_FLIGHT => {}
                () = self.cluster.changed(), if open => {}
                () = shutdown.cancelled(), if open => {}
            }
        }
        let rest = events.len();
        let all = async { while events.next().await.is_some() {} };
        if tokio::time::timeout(FOR_EVENTS, all).await.is_err() {
            warn!(of = rest, "Ended before all events were written");
        }
    }

    async fn next_deadline(&self) {
        let until =
            |deadline: Timestamp| deadline.duration_since(self.clock.now()).try_into().unwrap_or_default();
        let next = self.cluster.with(CeilingIndex::next_deadline);
        tokio::time::sleep(next.map_or(LONGEST_SLEEP, until).min(LONGEST_SLEEP)).await;
    }

    /// Has something done about a group, and takes it back; returns what is to be told of it.
    async fn handle(&self, group: Group) -> Option<Happening> {
        let result = self.actor.act(&group.first).await;
        let now = self.clock.now();
        let serves_group = result.as_ref().map_or_else(Failure::is_of_owner, Done::serves_group);
        self.cluster.with(|index| {
            if serves_group { index.settle(&group, now) } else { index.settle_first(&group, now) }
        });
        match result {
            Ok(done) => {
                self.record(&group, &done.deed, now);
                done.event
            }
            Err(failure) => {
                let (queue, namespace, pod) = (&group.first.queue, &group.first.namespace, &group.first.name);
                self.metrics.expired(queue, "", Result::Failed);
                let error = with_causes(&failure);
                error!(%queue, %namespace, %pod, error, "Failed to expire: will try again");
                None
            }
        }
    }

    fn record(&self, group: &Group, deed: &Deed, now: Timestamp) {
        let first = &group.first;
        let (queue, namespace, pod) = (&first.queue, &first.namespace, &first.name);
        let lateness = now.duration_since(first.deadline).as_secs_f64();
        match deed {
            Deed::Paused(owner) => {
                self.metrics.late(lateness);
                self.metrics.expired(queue, &owner.kind, Result::Paused);
                info!(%queue, %namespace, owner = describe(owner), pods = group.pods().count(), "Paused");
            }
            Deed::Deleted => {
                self.metrics.late(lateness);
                self.metrics.expired(queue, "Pod", Result::Deleted);
                info!(%queue, %namespace, %pod, "Deleted");
            }
            Deed::Nothing(why) => {
                self.metrics.expired(queue, "", Result::Nothing);
                if first.attempts == OUTLIVED {
                    warn!(%queue, %namespace, %pod, why, "Runs on beyond its ceiling, and nothing can be done");
                } else {
                    debug!(%queue, %namespace, %pod, why, "Left alone");
                }
            }
        }
    }

    async fn tell(&self, happening: Happening) {
        let object = happening.object.name.clone().unwrap_or_default();
        let namespace = happening.object.namespace.clone().unwrap_or_default();
        if let Err(error) = self.events.max_duration_exceeded(happening).await {
            error!(%namespace, %object, error = with_causes(&error), "Failed to write the event of a pause or deletion");
        }
    }
}
