//! The claims of devices that runs hold. The ledger counts the devices of a claim once, however many
//! pods share the claim: in the run of its holder that was bound first. When that run ends, the next
//! holder goes on.

use std::collections::BTreeSet;

use crate::{Uid, uid::UidMap};

/// The claims that runs hold.
#[derive(Debug, Default)]
pub struct ClaimHolders(UidMap<HeldClaim>);

/// A claim and the runs that hold it.
#[derive(Debug, Default)]
struct HeldClaim {
    /// The runs that hold the claim, by their starts in milliseconds.
    holders: BTreeSet<(i64, Uid)>,
    /// The run that the devices count in. None: the devices count in no run yet.
    counted_in: Option<Uid>,
}

/// The runs that the devices of a claim counted in before and count in now. None: in no run.
#[derive(Clone, Copy, Debug)]
pub struct ClaimChange {
    pub before: Option<Uid>,
    pub now: Option<Uid>,
}

impl ClaimHolders {
    /// Records that a run with this start in milliseconds holds a claim.
    pub fn hold(&mut self, claim: Uid, started: i64, run: Uid) {
        self.0.entry(claim).or_default().holders.insert((started, run));
    }

    /// Records that a run holds a claim no more.
    pub fn release(&mut self, claim: Uid, started: i64, run: Uid) {
        if let Some(held) = self.0.get_mut(&claim) {
            held.holders.remove(&(started, run));
        }
    }

    /// Has a claim count in its first holder from now on. None: that is so already.
    pub fn count(&mut self, claim: Uid) -> Option<ClaimChange> {
        let held = self.0.get_mut(&claim)?;
        let now = held.holders.first().map(|(_, run)| *run);
        let before = std::mem::replace(&mut held.counted_in, now);
        if now.is_none() {
            self.0.remove(&claim);
        }
        (before != now).then_some(ClaimChange { before, now })
    }
}
