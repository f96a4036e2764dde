//! The ledger of what runs have used. It receives all changes of pods in their order, and counts
//! each run once, when the run ends: a run that the ledger has known as going, and that has ended
//! now.
//!
//! The keeper's `UsageBook` holds the ledger while this keeper leads. A
//! [record](UsageLedger::record) of the ledger names the version of the pods up to which it has
//! counted. The pods of that very version and the record make the same ledger again, so that a
//! keeper that was killed loses nothing. Where the API server has forgotten that version, some runs
//! are missing, and none counts twice.

mod claims;
mod live;
mod record;
mod relist;

use jiff::Timestamp;
use tenure_policy::usage::{EndNote, EndedRun, PodRun, SeenAt, UsageResources, UsageTotals};
use tenure_types::{
    room::RunRequests,
    usage_record::{ResizedRun, UsageGap, UsageRecord},
};

use crate::{Uid, uid::UidMap};
use claims::{ClaimChange, ClaimHolders};
use live::LiveRun;
pub use live::{RunPlace, SeenClaim};
use relist::Relist;

/// A pod as a list or a watch event shows it.
#[derive(Debug)]
pub struct SeenRun {
    /// The pod's uid.
    pub uid: Uid,
    /// The pod's `resourceVersion`.
    pub version: String,
    /// The pod's run. None: the pod isn't bound.
    pub run: Option<PodRun>,
    /// The pod's requests.
    pub requests: RunRequests,
    /// The pod's claims of devices. Only those of a run that the ledger [lacks](UsageLedger::lacks)
    /// matter: a claim of a run never changes.
    pub claims: Vec<SeenClaim>,
}

/// The version of the pods up to which all is counted, with its time by the API server's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UsagePosition {
    version: String,
    at: Timestamp,
}

/// The sums of the runs that have ended, and the runs that go on.
#[derive(Debug)]
pub struct UsageLedger {
    resources: UsageResources,
    totals: UsageTotals,
    live: UidMap<LiveRun>,
    /// The claims of devices that the runs hold.
    claims: ClaimHolders,
    /// The resized runs of the record, until the first list after it.
    resized: UidMap<ResizedRun>,
    /// The pods that the keeper is ending.
    ending: UidMap<EndNote>,
    /// The time since which runs are counted.
    since: Timestamp,
    /// The number of times for which some runs may be missing.
    gaps: u32,
    last_gap: Option<UsageGap>,
    /// None: there was no list yet.
    position: Option<UsagePosition>,
    /// The list that is being read. None: there is none.
    relist: Option<Relist>,
    /// The number of changes that a record would show.
    changes: u64,
}

impl UsageLedger {
    /// Creates an empty ledger at `now`. Runs that had ended by its first list don't count.
    pub fn new(resources: UsageResources, now: Timestamp) -> Self {
        Self {
            resources,
            totals: UsageTotals::default(),
            live: UidMap::default(),
            claims: ClaimHolders::default(),
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

    /// Creates the ledger of a record. The next list is to be that of the record's
    /// [version](Self::version).
    pub fn restore(record: UsageRecord, resources: UsageResources) -> Self {
        let UsageRecord { resource_version, at, since, gaps, last_gap, queues, notes, resized } = record;
        Self {
            totals: UsageTotals::of(queues),
            resized: resized.into_iter().map(|(uid, run)| (Uid::of(&uid), run)).collect(),
            ending: record::read(&notes).collect(),
            gaps,
            last_gap,
            position: Some(UsagePosition { version: resource_version, at }),
            ..Self::new(resources, since)
        }
    }

    /// Returns the version of the pods up to which all is counted. None: there was no list yet.
    pub fn version(&self) -> Option<&str> {
        self.position.as_ref().map(|position| position.version.as_str())
    }

    /// Returns the time of the version up to which all is counted. None: there was no list yet.
    pub fn counted_until(&self) -> Option<Timestamp> {
        self.position.as_ref().map(|position| position.at)
    }

    /// Returns the sums of the runs that have ended.
    pub const fn totals(&self) -> &UsageTotals {
        &self.totals
    }

    /// Returns the number of times for which some runs may be missing.
    pub const fn gaps(&self) -> u32 {
        self.gaps
    }

    /// Returns the number of changes so far that a record would show, apart from changes of the
    /// version alone.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of runs that go on.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// True if no run of this pod goes on, as far as the ledger knows: its next change needs the
    /// pod's claims.
    pub fn lacks(&self, uid: Uid) -> bool {
        !self.live.contains_key(&uid)
    }

    /// Records that the keeper is ending these pods. Returns the uids to [take that
    /// back](Self::spare) by: pods that aren't known, terminate already or have such a note that
    /// counts aren't among them.
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

    /// Takes back the notes about these pods: the keeper couldn't end them.
    pub fn spare(&mut self, pods: &[Uid]) {
        for uid in pods {
            self.ending.remove(uid);
        }
        self.changes = self.changes.wrapping_add(1);
    }

    /// Adds the sums of queues that don't exist to those of the empty name, if there is little room
    /// for others.
    pub fn make_room(&mut self, exists: impl Fn(&str) -> bool) {
        if self.totals.make_room(exists) {
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// Adds or updates a pod, by a change that the watch shows. `place` is asked only if the place
    /// may matter.
    pub fn apply(&mut self, seen: SeenRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>) {
        self.change(&seen, at, place, false);
        self.moved(seen, at);
    }

    /// Removes a pod that is gone, and counts its run. `seen` is the pod's last state.
    pub fn delete(&mut self, seen: SeenRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>) {
        self.change(&seen, at, place, true);
        self.moved(seen, at);
    }

    /// Records that all changes up to a version were seen, as a bookmark of the watch says.
    pub fn advance(&mut self, version: String, at: Timestamp) {
        self.position = Some(UsagePosition { version, at });
    }

    /// Moves the position to the version of a change. The time of that version is at least that at
    /// which the pod's run stopped, and at most the present: all runs that have stopped by the time
    /// of a version are counted, after a gap too.
    fn moved(&mut self, seen: SeenRun, at: SeenAt) {
        // the next keeper must see this change again: its removal comes next, and needs what was known before
        if self.live.get(&seen.uid).is_some_and(LiveRun::is_about_to_go) {
            return;
        }
        let before = self.counted_until().unwrap_or(Timestamp::MIN);
        let stopped = seen.run.and_then(|run| run.stopped).unwrap_or(Timestamp::MIN);
        let at = at.change.max(stopped).max(before).min(at.now);
        self.position = Some(UsagePosition { version: seen.version, at });
    }

    /// Keeps a run that goes on, or counts a run that has ended. `gone`: the pod was removed.
    fn change(&mut self, seen: &SeenRun, at: SeenAt, place: impl FnOnce() -> Option<RunPlace>, gone: bool) {
        let Some(run) = &seen.run else {
            // a bound pod stays bound
            if gone {
                self.live.remove(&seen.uid);
            }
            return;
        };
        if gone || run.finished.is_some() {
            // a run that isn't known has been counted, or had ended before the first list
            let Some(mut live) = self.live.remove(&seen.uid) else { return };
            live.update(run, place());
            let ended = live.ended(run, self.ending.remove(&seen.uid), at);
            self.add(&live, ended);
            self.release(seen.uid, &live, live.end_of(ended));
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
                    let live = LiveRun::new(run, place, &self.resources, (&seen.requests, &seen.claims));
                    self.live.insert(seen.uid, live);
                    self.hold(seen.uid);
                    self.count_claims(seen.uid, at.change.min(at.now));
                }
            }
        }
        if let Some(live) = self.live.get_mut(&seen.uid)
            && live.request(&self.resources, &seen.requests, at.change.min(at.now))
        {
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// Records that a live run holds its claims. [`Self::count_claims`] comes next.
    fn hold(&mut self, uid: Uid) {
        let Some(run) = self.live.get(&uid) else { return };
        for claim in run.claims() {
            self.claims.hold(claim, run.started(), uid);
        }
    }

    /// Records that an ended run holds its claims no more. The next holders count them from `end`
    /// on.
    fn release(&mut self, uid: Uid, run: &LiveRun, end: Timestamp) {
        for claim in run.claims() {
            self.claims.release(claim, run.started(), uid);
            self.count_claim(claim, end);
        }
    }

    /// Counts each claim that a live run holds in the run of the claim's first holder.
    fn count_claims(&mut self, uid: Uid, at: Timestamp) {
        let claims: Vec<Uid> = self.live.get(&uid).iter().flat_map(|run| run.claims()).collect();
        for claim in claims {
            self.count_claim(claim, at);
        }
    }

    /// Counts a claim in the run of its first holder: from `at` on if it has counted in another run,
    /// otherwise since the holder's start.
    fn count_claim(&mut self, claim: Uid, at: Timestamp) {
        let Some(ClaimChange { before, now }) = self.claims.count(claim) else { return };
        if let Some(run) = before.and_then(|uid| self.live.get_mut(&uid)) {
            run.count_claim(claim, false, Some(at), &self.resources);
        }
        if let Some(run) = now.and_then(|uid| self.live.get_mut(&uid)) {
            run.count_claim(claim, true, before.map(|_| at), &self.resources);
        }
        self.changes = self.changes.wrapping_add(1);
    }

    /// Adds an ended run to the sums of its queues, one for each family.
    fn add(&mut self, live: &LiveRun, EndedRun { end, ran }: EndedRun) {
        for (family, queue) in live.place.queues() {
            for (resource, amount) in live.used(&self.resources, ran) {
                let of = (family.row().name, queue.as_str());
                self.totals.add(of, resource, (end, amount));
            }
        }
        self.changes = self.changes.wrapping_add(1);
    }
}

/// The latest time that the API server has written in a stream of changes: the time of changes that
/// were missed, and that are replayed.
#[derive(Clone, Copy, Debug)]
pub struct StreamClock(Timestamp);

impl StreamClock {
    /// Begins at a time.
    pub const fn new(at: Timestamp) -> Self {
        Self(at)
    }

    /// Takes a change, and returns its time as precisely as it is known: never later than `now`.
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
