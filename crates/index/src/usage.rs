//! The ledger of what runs have used. It takes in all changes of pods in their order, and counts each run once, when it
//! ends: a run that it knows as going and that has ended now.
//!
//! A [record](UsageLedger::record) of it names the version of the pods up to which it has counted. The pods of that very
//! version and the record make the same ledger again, so that a keeper that was killed loses nothing. Where the API
//! server has forgotten that version, some runs are missing, and none counts twice.

mod live;
mod record;
mod relist;

use jiff::Timestamp;
use tenure_policy::usage::{EndNote, EndedRun, PodRun, SeenAt, UsageResources, UsageTotals, family_label};
use tenure_types::{
    room::RunRequests,
    usage::{ResizedRun, UsageGap, UsageRecord},
};

use crate::{Uid, uid::UidMap};
use live::LiveRun;
pub use live::RunPlace;
use relist::Relist;

/// A pod as it was seen.
#[derive(Debug)]
pub struct SeenRun {
    /// Its uid.
    pub uid: Uid,
    /// Its `resourceVersion`.
    pub version: String,
    /// Its run; none if it isn't bound.
    pub run: Option<PodRun>,
    /// Its requests.
    pub requests: RunRequests,
}

/// The version of the pods up to which all is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    version: String,
    at: Timestamp,
}

/// The sums of the runs that have ended, and the runs that go on.
#[derive(Debug)]
pub struct UsageLedger {
    resources: UsageResources,
    totals: UsageTotals,
    live: UidMap<LiveRun>,
    /// What the record has of resized runs, until the first list after it.
    resized: UidMap<ResizedRun>,
    /// The pods that the keeper is ending.
    ending: UidMap<EndNote>,
    since: Timestamp,
    gaps: u32,
    last_gap: Option<UsageGap>,
    position: Option<Position>,
    relist: Option<Relist>,
    /// Counts the changes that a record would show.
    changes: u64,
}

impl UsageLedger {
    /// Creates an empty ledger. Runs that had ended by its first list don't count.
    pub fn new(resources: UsageResources, now: Timestamp) -> Self {
        Self {
            resources,
            totals: UsageTotals::default(),
            live: UidMap::default(),
            resized: UidMap::default(),
            ending: UidMap::default(),
            since: now,
            gaps: 0,
            last_gap: None,
            position: None,
            relist: None,
            changes: 0,
        }
    }

    /// Creates the ledger of a record. The next list is to be that of the [version](Self::version) of the record.
    pub fn restore(record: UsageRecord, resources: UsageResources) -> Self {
        let UsageRecord { resource_version, at, since, gaps, last_gap, queues, notes, resized } = record;
        Self {
            totals: UsageTotals::of(queues),
            resized: resized.into_iter().map(|(uid, run)| (Uid::of(&uid), run)).collect(),
            ending: record::read(&notes).collect(),
            gaps,
            last_gap,
            position: Some(Position { version: resource_version, at }),
            ..Self::new(resources, since)
        }
    }

    /// The version of the pods up to which all is counted; none before the first list.
    pub fn version(&self) -> Option<&str> {
        self.position.as_ref().map(|position| position.version.as_str())
    }

    /// The time of that version.
    pub fn counted_until(&self) -> Option<Timestamp> {
        self.position.as_ref().map(|position| position.at)
    }

    /// The sums.
    pub const fn totals(&self) -> &UsageTotals {
        &self.totals
    }

    /// The number of times for which some runs may be missing.
    pub const fn gaps(&self) -> u32 {
        self.gaps
    }

    /// The number of changes so far that a record would show, apart from the version alone.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of runs that go on.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Notes that the keeper is ending these pods. Returns the uids to [take that back](Self::spare) by: pods that aren't
    /// known, terminate already or have such a note that counts aren't among them.
    pub fn end(&mut self, pods: impl IntoIterator<Item = Uid>, note: EndNote) -> Vec<Uid> {
        let mut noted = Vec::new();
        for uid in pods {
            let runs_on = self.live.get(&uid).is_some_and(|run| !run.is_terminating());
            if runs_on && !self.ending.get(&uid).is_some_and(|before| before.counts_at(note.at)) {
                self.ending.insert(uid, note);
                noted.push(uid);
            }
        }
        self.changes = self.changes.wrapping_add(u64::from(!noted.is_empty()));
        noted
    }

    /// Takes back that the keeper is ending these pods: it couldn't.
    pub fn spare(&mut self, pods: &[Uid]) {
        for uid in pods {
            self.ending.remove(uid);
        }
        self.changes = self.changes.wrapping_add(1);
    }

    /// Adds what queues have used that don't exist to the empty name, if there is little room for others.
    pub fn make_room(&mut self, exists: impl Fn(&str) -> bool) {
        if self.totals.make_room(exists) {
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// Adds or updates a pod, by a change of it. `place` is asked only if it matters.
    pub fn apply(&mut self, seen: SeenRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>) {
        self.change(&seen, at, place, false);
        self.moved(seen, at);
    }

    /// Takes a pod that is gone, as it was at last.
    pub fn delete(&mut self, seen: SeenRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>) {
        self.change(&seen, at, place, true);
        self.moved(seen, at);
    }

    /// Notes that all changes up to a version were seen.
    pub fn advance(&mut self, version: String, at: Timestamp) {
        self.position = Some(Position { version, at });
    }

    /// All that has stopped by the time of a version is counted, after a gap too.
    fn moved(&mut self, seen: SeenRun, at: SeenAt) {
        // the next keeper must see this change again: its removal comes next, and needs what was known before
        if self.live.get(&seen.uid).is_some_and(LiveRun::is_about_to_go) {
            return;
        }
        let before = self.counted_until().unwrap_or(Timestamp::MIN);
        let stopped = seen.run.and_then(|run| run.stopped).unwrap_or(Timestamp::MIN);
        let at = at.change.max(stopped).max(before).min(at.now);
        self.position = Some(Position { version: seen.version, at });
    }

    fn change(&mut self, seen: &SeenRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>, gone: bool) {
        let Some(run) = &seen.run else {
            // bound pods stay so
            if gone {
                self.live.remove(&seen.uid);
            }
            return;
        };
        if gone || run.finished.is_some() {
            // a pod that isn't known has been counted, or had ended before the first list
            let Some(mut live) = self.live.remove(&seen.uid) else { return };
            live.update(run, place());
            let ended = live.ended(run, self.ending.remove(&seen.uid), at);
            self.add(&live, ended);
        } else {
            self.keep(seen, run, at, place);
        }
    }

    /// Adds or updates a run that goes on.
    fn keep(&mut self, seen: &SeenRun, run: &PodRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>) {
        match self.live.get_mut(&seen.uid) {
            Some(live) if live.knows(run) => {}
            Some(live) => live.update(run, place()),
            None => {
                if let Some(place) = place() {
                    let live = LiveRun::new(run, place, &self.resources, &seen.requests);
                    self.live.insert(seen.uid, live);
                }
            }
        }
        if let Some(live) = self.live.get_mut(&seen.uid)
            && live.request(&self.resources, &seen.requests, at.change.min(at.now))
        {
            self.changes = self.changes.wrapping_add(1);
        }
    }

    fn add(&mut self, live: &LiveRun, EndedRun { end, ran }: EndedRun) {
        for (family, queue) in live.place.queues() {
            for (resource, amount) in live.used(&self.resources, ran) {
                let of = (family_label(family), queue.as_str());
                self.totals.add(of, resource, (end, amount));
            }
        }
        self.changes = self.changes.wrapping_add(1);
    }
}

/// The latest time that the API server has written in a stream: the time of changes that were missed.
#[derive(Clone, Copy, Debug)]
pub struct StreamClock(Timestamp);

impl StreamClock {
    /// Begins at a time.
    pub const fn new(at: Timestamp) -> Self {
        Self(at)
    }

    /// Takes a change, and returns the time that it was made at, as near as it is known.
    pub fn at(&mut self, created: Option<Timestamp>, run: Option<&PodRun>, now: Timestamp) -> Timestamp {
        let asked = run.and_then(|run| run.deletion).map(|deletion| deletion.asked);
        let bound = run.map(|run| run.started);
        let latest = [created, asked, bound].into_iter().flatten().fold(self.0, Timestamp::max);
        self.0 = latest.min(now);
        self.0
    }
}

#[cfg(test)]
mod tests;
