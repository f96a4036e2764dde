//! The claims of devices that runs hold. The ledger counts the devices of a claim once, however many
//! pods share the claim: in the run of its holder that was bound first. When that run ends, the next
//! holder goes on.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{UsageLedger, live::LiveRun};
use crate::Uid;

/// A claim and the runs that hold it.
#[derive(Debug, Default)]
pub struct HeldClaim {
    /// The runs that hold the claim, by their starts in milliseconds.
    holders: BTreeSet<(i64, Uid)>,
    /// The run that the devices count in. None: the devices count in no run yet.
    counted_in: Option<Uid>,
}

impl UsageLedger {
    /// Records that a live run holds its claims. [`Self::count_claims`] comes next.
    pub(super) fn hold(&mut self, uid: Uid) {
        let Some(run) = self.live.get(&uid) else { return };
        for claim in run.claims() {
            self.claims.entry(claim).or_default().holders.insert((run.started(), uid));
        }
    }

    /// Records that an ended run holds its claims no more. The next holders count them from `end`
    /// on.
    pub(super) fn release(&mut self, uid: Uid, run: &LiveRun, end: Timestamp) {
        for claim in run.claims() {
            if let Some(held) = self.claims.get_mut(&claim) {
                held.holders.remove(&(run.started(), uid));
            }
        }
        self.count(run.claims(), end);
    }

    /// Counts each claim that a live run holds in the run of the claim's first holder.
    pub(super) fn count_claims(&mut self, uid: Uid, at: Timestamp) {
        let claims: Vec<Uid> = self.live.get(&uid).iter().flat_map(|run| run.claims()).collect();
        self.count(claims.into_iter(), at);
    }

    /// Counts each of these claims in the run of its first holder: from `at` on if it has counted in
    /// another run, otherwise since the holder's start.
    fn count(&mut self, claims: impl Iterator<Item = Uid>, at: Timestamp) {
        for claim in claims {
            let Some(held) = self.claims.get_mut(&claim) else { continue };
            let first = held.holders.first().map(|(_, uid)| *uid);
            if held.counted_in == first {
                continue;
            }
            let before = std::mem::replace(&mut held.counted_in, first);
            if first.is_none() {
                self.claims.remove(&claim);
            }
            if let Some(run) = before.and_then(|uid| self.live.get_mut(&uid)) {
                run.count_claim(claim, false, Some(at), &self.resources);
            }
            if let Some(run) = first.and_then(|uid| self.live.get_mut(&uid)) {
                run.count_claim(claim, true, before.map(|_| at), &self.resources);
            }
            self.changes = self.changes.wrapping_add(1);
        }
    }
}
