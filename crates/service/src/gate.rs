//! Holds back acts while the keeper's data may be out of date. The loop of a controller
//! ([`WorkLoop`](crate::work::WorkLoop)) begins no call while its gate is closed.
//!
//! An open gate says that the watches have caught up, not that a single object is still as it was
//! shown.

use std::time::Duration;

use crate::{freshness::Freshness, leadership::Leadership, readiness::ProcessReadiness};
use tracing::warn;

/// The time between two requirements: the lead may be lost and taken again in the meantime.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The number of waits of `ASK_AGAIN` without a change after which a warning is logged, once.
const LOGGED_AFTER: u32 = 10;

/// Is open while each watch that a decision depends on has answered since this keeper leads and
/// reaches the API server, and no such watch is too stale. Clones share the watches and the lead.
#[derive(Clone, Debug)]
pub struct FreshnessGate {
    /// The watches of the process. Those that aren't required never close the gate.
    pub freshness: Freshness,
    /// The lead. Without an election, any confirmation since the last failure will do.
    pub lead: Leadership,
    /// The longest time without an answer.
    pub max_staleness: Duration,
}

impl FreshnessGate {
    /// Creates the gate of a process.
    pub fn new(readiness: &ProcessReadiness, lead: &Leadership, max_staleness: Duration) -> Self {
        Self { freshness: readiness.freshness.clone(), lead: lead.clone(), max_staleness }
    }

    /// True if an act may rely on the data of the watches.
    pub fn is_open(&self) -> bool {
        self.closed_by().is_none()
    }

    /// Returns the kind of a watch that closes the gate. None: the gate is open.
    fn closed_by(&self) -> Option<String> {
        self.freshness.unconfirmed(self.lead.unbroken_since(), self.max_staleness)
    }

    /// Returns when the gate is open. Until then, each watch without a confirmation since the lead
    /// began is required to ask the API server again.
    pub async fn opened(&self) {
        let mut rounds = 0u32;
        loop {
            let changed = self.freshness.changed();
            let Some(kind) = self.closed_by() else { return };
            if let Some(since) = self.lead.unbroken_since() {
                self.freshness.require(since);
            }
            if tokio::time::timeout(ASK_AGAIN, changed).await.is_err() {
                rounds = rounds.saturating_add(1);
                if rounds == LOGGED_AFTER {
                    warn!(kind, "Pauses and returns wait for the watch of a kind to answer");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_gate_opens_once_all_watches_have_answered_and_closes_when_one_is_silent() {
        let freshness = Freshness::default();
        let max_staleness = Duration::from_secs(90);
        let gate = FreshnessGate { freshness: freshness.clone(), lead: Leadership::always(), max_staleness };
        assert!(gate.is_open(), "there is nothing to wait for");
        let [pods, queues] = ["pods", "queues"].map(|kind| freshness.watch(kind, true));
        pods.confirm(Instant::now());
        assert_eq!(gate.opened().now_or_never(), None);
        queues.confirm(Instant::now());
        gate.opened().await;
        tokio::time::advance(Duration::from_secs(91)).await;
        pods.heard();
        assert!(!gate.is_open());
        queues.heard();
        assert!(gate.is_open());
        queues.doubt();
        assert!(!gate.is_open());
    }
}
