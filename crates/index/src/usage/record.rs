//! The record of a ledger. It is bounded, as a `ConfigMap` is.

use std::collections::BTreeMap;

use tenure_types::usage::{ResizedRun, UsageRecord};

use super::{Position, UsageLedger};
use crate::Uid;

/// The most bytes of resized runs that go on.
const MOST_RESIZED: usize = 100_000;

/// The most bytes of a resource of a resized run, beside its name, and of its uid.
const RESIZED: usize = 160;
const UID: usize = 48;

impl UsageLedger {
    /// Returns the record, once there was a list.
    pub fn record(&self) -> Option<UsageRecord> {
        let Position { version, at } = self.position.clone()?;
        Some(UsageRecord {
            resource_version: version,
            at,
            since: self.since,
            gaps: self.gaps,
            last_gap: self.last_gap,
            queues: self.totals.record(),
            ending: self.ending.iter().map(|(uid, end)| (uid.text(), *end)).collect(),
            resized: self.resized_runs(),
        })
    }

    /// The resized runs that go on. The first ones are kept if there are too many: further ones can't push them out.
    fn resized_runs(&self) -> BTreeMap<String, ResizedRun> {
        let live = self.live.iter().filter_map(|(uid, run)| Some((*uid, run.resized()?)));
        let mut runs: Vec<(Uid, &ResizedRun)> =
            live.chain(self.resized.iter().map(|(uid, run)| (*uid, run))).collect();
        runs.sort_by_key(|(uid, run)| (run.values().map(|of| of.since).min(), *uid));
        let mut bytes = 0_usize;
        let kept = runs.into_iter().take_while(|(_, run)| {
            let names = run.keys().map(|resource| resource.len().saturating_add(RESIZED));
            bytes = names.fold(bytes.saturating_add(UID), usize::saturating_add);
            bytes <= MOST_RESIZED
        });
        kept.map(|(uid, run)| (uid.text(), run.clone())).collect()
    }
}
