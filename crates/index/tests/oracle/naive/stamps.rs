//! Starts that are to be written on their groups.

use super::Naive;
use crate::{
    event::StampEnd,
    world::{GroupKey, Nanos, nanos},
};

/// The progress of a group's stamp.
#[derive(Clone, Debug, Default)]
pub struct Stamp {
    pub written: u8,
    said: Option<Nanos>,
}

/// A start that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamping {
    pub key: GroupKey,
    pub uid: u32,
    pub version: u32,
    pub start: Nanos,
    pub written: u8,
    run: u64,
}

impl Naive {
    /// Returns all that are to be written now, by their groups.
    pub fn stampings(&mut self) -> Vec<Stamping> {
        let keys: Vec<GroupKey> = self.groups.keys().copied().collect();
        keys.into_iter().filter_map(|key| self.stamping(key)).collect()
    }

    fn stamping(&mut self, key: GroupKey) -> Option<Stamping> {
        let now = self.now;
        if let Some(start) = self.gangs.get(&key)?.start {
            self.run_mut(key).set_back(start, now);
            self.observe_group(key);
        }
        // a clock that is behind says nothing of when it was
        if self.gangs.get(&key)?.start.is_some_and(|start| start > now) {
            return None;
        }
        let (uid, version) = self.groups.get(&key).map(|group| (group.uid, group.version))?;
        let (facts, run) = self.run(key)?;
        let start = nanos(facts.to_stamp(crate::world::timestamp(now))?);
        let (written, said) = (run.stamp.written, run.stamp.said);
        (said != Some(start)).then_some(Stamping { key, uid, version, start, written, run: run.ended })
    }

    /// Notes the end of a stamp. `version` is that of the group if it was written.
    pub fn note_stamp(&mut self, of: &Stamping, end: StampEnd, version: u32) {
        let Some(group) = self.groups.get_mut(&of.key).filter(|group| group.uid == of.uid) else { return };
        let Some(run) = self.runs.get_mut(&of.key) else { return };
        match end {
            StampEnd::Written => {
                if group.version == of.version {
                    (group.stamp, group.unreadable) = (Some(of.start / 1_000_000), false);
                    group.version = version;
                }
                if run.ended == of.run {
                    run.stamp.written = run.stamp.written.saturating_add(1);
                } else {
                    run.left = Some(of.start);
                }
            }
            StampEnd::Said => run.stamp.said = Some(of.start),
            StampEnd::Failed => {}
        }
    }
}
