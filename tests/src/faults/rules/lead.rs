//! The rule that the leader alone writes. Reviews of access and the Lease itself are no writes
//! here.

use std::time::Duration;

use jiff::Timestamp;

use super::{Evidence, LEADER_SLACK, SLACK};
use crate::{faults::servers::RENEW_DEADLINE, proxy::Write};

impl Evidence<'_> {
    /// Returns the writes of keepers that didn't lead.
    pub(super) fn by_others(&self) -> Vec<String> {
        let of_leaders = |write: &&Write| {
            write.call.resource != "leases" && !write.call.resource.ends_with("reviews") && write.is_done()
        };
        let others = self.writes.iter().filter(of_leaders).filter(|write| !self.led(write));
        others.map(|write| format!("not the leader: {} by {}", write.call, write.by)).collect()
    }

    /// True if the same process had renewed the Lease a short time before, and not released it
    /// since. A process ends its term before it sends the release, so a release that fails counts
    /// as well.
    fn led(&self, write: &Write) -> bool {
        let (mut renewed, mut released) = (None, None);
        let is_same = |lease: &&Write| {
            lease.call.resource == "leases"
                && (&lease.by, lease.process) == (&write.by, write.process)
                && lease.sent <= write.sent
        };
        for lease in self.writes.iter().filter(is_same) {
            match holder(lease).as_deref() {
                Some("") => released = released.max(Some(lease.sent)),
                Some(holder) if holder == write.by && lease.is_done() => {
                    renewed = renewed.max(Some(lease.sent));
                }
                _ => {}
            }
        }
        let since = |time: Timestamp| Duration::try_from(write.sent.duration_since(time)).unwrap_or_default();
        let has_term = renewed.is_some_and(|renewed| since(renewed) <= RENEW_DEADLINE + LEADER_SLACK);
        let has_released = released >= renewed && released.is_some_and(|at| at + SLACK < write.sent);
        has_term && !has_released
    }
}

/// Returns the identity that a write gives the Lease. Empty: a release. None: the write has no
/// identity.
fn holder(lease: &Write) -> Option<String> {
    let lease: serde_json::Value = serde_json::from_str(&lease.body).ok()?;
    lease.pointer("/spec/holderIdentity").and_then(|holder| holder.as_str()).map(str::to_owned)
}
