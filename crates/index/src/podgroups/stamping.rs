//! Starts that are to be written on `PodGroup`s.

use std::collections::HashSet;

use jiff::Timestamp;

use super::{
    Gangs, change,
    gang::Gang,
    group::GroupKey,
    stamps::{Stamped, Stamping, Stamps},
};
use crate::{Uid, names::Names};

impl Gangs {
    /// Computes the starts that may be others by now.
    pub fn compute(&mut self) {
        let Self { by_key, members, changed, moved, stamps, .. } = self;
        for key in std::mem::take(changed) {
            let Some(gang) = by_key.get_mut(&key).filter(|gang| gang.changed) else { continue };
            if gang.compute(key.kind, members) {
                moved.extend(gang.members());
            }
            stamps.judge(&key, &mut gang.stamp);
        }
    }

    /// Pods whose workload has another queue, ceiling or start than when this was last asked.
    pub fn moved(&mut self) -> HashSet<Uid> {
        self.compute();
        std::mem::take(&mut self.moved)
    }

    /// Hands out the next stamp that is to be written.
    pub fn claim_stamp(&mut self, now: Timestamp) -> Option<Stamping> {
        self.compute();
        let Self { by_key, members, moved, stamps, .. } = self;
        while let Some(key) = stamps.next(now) {
            let Some(gang) = by_key.get_mut(&key) else { continue };
            // not only when that is written: it may not be possible
            if gang.start_by(now) && gang.compute(key.kind, members) {
                moved.extend(gang.members());
            }
            let stamping = stamping(gang, &key, stamps, now);
            if stamping.is_some() {
                return stamping;
            }
        }
        None
    }

    /// When there may be a stamp to write again, unless something changes before.
    pub fn next_stamp(&self) -> Option<Timestamp> {
        self.stamps.next_retry()
    }

    /// Takes back a stamp.
    pub fn settle_stamp(&mut self, stamping: &Stamping, stamped: Stamped, now: Timestamp, names: &mut Names) {
        let key = GroupKey::new(stamping.kind, &stamping.namespace, &stamping.name, names);
        let Some(gang) = self.by_key.get_mut(&key) else { return };
        if !gang.stamp.take_back(stamping.claim) {
            return;
        }
        let group = gang.group.as_mut().filter(|group| *group.uid == *stamping.uid);
        let current = group.filter(|group| *group.resource_version == *stamping.resource_version);
        self.stamps.settle(&key, &mut gang.stamp, (stamping, &stamped), current.is_some(), now);
        if let Stamped::Written(version) = stamped {
            if let Some(group) = current {
                // as the watch will say; another version than the one that was stamped came later
                (group.stamp, group.resource_version) = (Some(stamping.start), version.into());
            }
            if gang.ended != stamping.ended {
                gang.left_late(stamping.start);
            }
        }
        change(&mut self.changed, &key, gang);
    }

    /// Forgets what is to be stamped, where that is never asked.
    pub fn discard_stamps(&mut self) {
        self.stamps.clear();
    }

    /// Takes back all stamps: who was to write them is gone.
    pub fn release_stamps(&mut self) {
        for (key, gang) in &mut self.by_key {
            self.stamps.release(key, &mut gang.stamp);
        }
    }
}

/// The start that is to be written on a group; none if there is none, or one is being written.
fn stamping(gang: &mut Gang, key: &GroupKey, stamps: &mut Stamps, now: Timestamp) -> Option<Stamping> {
    let start = gang.run().and_then(|run| run.to_stamp(now));
    let (claim, attempts) = stamps.claim(&mut gang.stamp, start, now)?;
    let group = gang.group.as_ref()?;
    Some(Stamping {
        kind: key.kind,
        namespace: key.namespace.as_str().into(),
        name: key.name.as_str().into(),
        uid: group.uid.as_ref().into(),
        resource_version: group.resource_version.as_ref().into(),
        start: start?,
        attempts,
        ended: gang.ended,
        claim,
    })
}
