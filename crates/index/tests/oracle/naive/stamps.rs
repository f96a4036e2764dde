//! Starts that are to be written on their groups.

use super::Naive;
use crate::{
    event::StampEnd,
    world::{GroupKey, Nanos, SECOND, nanos},
};

/// The progress of a group's stamp.
#[derive(Clone, Debug, Default)]
pub struct Stamp {
    claim: Option<u64>,
    /// It may be written at once when there is another version.
    stale: bool,
    attempts: u8,
    written: u8,
    not_before: Nanos,
    said: Option<Nanos>,
}

/// A start that was handed out to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct StampClaim {
    pub key: GroupKey,
    pub uid: u32,
    pub version: u32,
    pub start: Nanos,
    pub attempts: u8,
    id: u64,
    ended: u64,
    run: u64,
}

fn wait(attempts: u8) -> Nanos {
    (5 << attempts.min(8)).min(300) * SECOND
}

impl Stamp {
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.written) >= 3 {
            self.not_before = Nanos::MIN;
        }
    }

    pub(super) fn renew(&mut self) {
        if std::mem::take(&mut self.stale) {
            self.not_before = Nanos::MIN;
        }
    }
}

impl Naive {
    /// Hands out all that may be written now, by their groups.
    pub fn claim_stamps(&mut self) -> Vec<StampClaim> {
        let keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        keys.into_iter().filter_map(|key| self.claim_stamp(key)).collect()
    }

    fn claim_stamp(&mut self, key: GroupKey) -> Option<StampClaim> {
        let (now, id) = (self.now, self.next_id());
        if let Some(start) = self.gangs.get(&key)?.start {
            self.run_mut(key).set_back(start, now);
            self.observe_group(key);
        }
        // a clock that is behind says nothing of when it was
        if self.gangs.get(&key)?.start.is_some_and(|start| start > now) {
            return None;
        }
        let (uid, version) = self.groups.get(&key).map(|group| (group.uid, group.version))?;
        let start = nanos(self.run(key)?.0.to_stamp(crate::world::timestamp(now))?);
        let run = self.run_mut(key);
        let stamp = &mut run.stamp;
        if stamp.claim.is_some() || stamp.not_before > now || stamp.said == Some(start) {
            return None;
        }
        (stamp.claim, stamp.stale) = (Some(id), false);
        let attempts = stamp.attempts;
        Some(StampClaim { key, uid, version, start, attempts, id, ended: run.ended, run: run.id })
    }

    /// Takes a stamp back. `version` is that of the group if it was written.
    pub fn settle_stamp(&mut self, claim: &StampClaim, end: StampEnd, version: u32) {
        let now = self.now;
        let Some(run) = self.runs.get_mut(&claim.key).filter(|run| run.stamp.claim == Some(claim.id)) else {
            return;
        };
        let group = self.groups.get_mut(&claim.key);
        let same = group.filter(|group| group.uid == claim.uid && group.version == claim.version);
        let stamp = &mut run.stamp;
        stamp.claim = None;
        match end {
            StampEnd::Written => {
                if let Some(group) = same {
                    (group.stamp, group.unreadable) = (Some(claim.start / 1_000_000), false);
                    group.version = version;
                }
                if run.ended != claim.ended {
                    run.left = Some(claim.start);
                }
                stamp.attempts = 0;
                stamp.written = stamp.written.saturating_add(1);
                if stamp.written >= 3 {
                    stamp.not_before = now + wait(stamp.written - 3);
                }
            }
            StampEnd::Said => stamp.said = Some(claim.start),
            StampEnd::Stale if same.is_some() => (stamp.stale, stamp.not_before) = (true, now + wait(0)),
            StampEnd::Stale => {}
            StampEnd::Failed => {
                stamp.not_before = now + wait(stamp.attempts);
                stamp.attempts = stamp.attempts.saturating_add(1);
            }
        }
    }

    pub fn release_stamps(&mut self) {
        self.runs.values_mut().for_each(|run| run.stamp.claim = None);
    }
}
