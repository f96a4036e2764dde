//! The work of a queue and its order, under the lock of [`WorkQueue`](super::WorkQueue). Here are
//! no timers and no calls: each function gets the time.
//!
//! An entry is in exactly one place by its phase: in `due` of its group, in `waits`, or in neither
//! while it is in flight. Only `set` moves entries.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tenure_types::wait::Wait;
use tokio::time::Instant;

use super::{
    limits::{Spread, Work, WorkLimits},
    share::Shares,
};

/// In one of this many turns of a group, the group's oldest retry comes first.
const TURNS_OF_RETRIES: u32 = 4;

/// The end of a call, as its lease reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The lease was dropped: the work is due again at once.
    #[default]
    Dropped,
    /// The work is done.
    Done,
    /// The work is due again after a time.
    Again(Duration),
    /// The work is due again when it is pushed again, or after a time.
    UntilAdded(Duration),
    /// The call has failed: the work is due again after the growing wait.
    Failed(Wait),
    /// The call has failed, and the work isn't tried again.
    GivenUp,
}

/// Work that was taken, with the facts that its lease shows.
#[derive(Debug)]
pub(super) struct TakenWork<W> {
    pub work: Arc<W>,
    /// The line that waits for this call. None: no line does.
    pub line: Option<String>,
    pub failures: u32,
    pub since: Instant,
}

/// A party that takes turns: a namespace, or a line of several namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FairnessGroup {
    Namespace(String),
    Line(String),
}

impl FairnessGroup {
    fn of(work: &impl Work) -> Self {
        work.line().map_or_else(|| Self::Namespace(work.namespace().to_owned()), Self::Line)
    }
}

/// The place of work in its group. Work that wasn't tried comes first, by rank and arrival. Work
/// that was tried follows, by its last try.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WorkPosition<R> {
    First(R, u64),
    Again(u64),
}

/// The due work of a group.
#[derive(Debug)]
struct DueQueue<W: Work> {
    /// The places and keys, in order. Never empty: a group without due work has no entry.
    order: BTreeSet<(WorkPosition<W::Rank>, W::Key)>,
    /// The number of turns that the group has taken since it has due work.
    turns: u32,
}

impl<W: Work> Default for DueQueue<W> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), turns: 0 }
    }
}

/// The phase of work in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Due,
    /// Waits until this time.
    Waits(Instant),
    InFlight,
}

/// Work, and its state in the queue.
#[derive(Debug)]
struct WorkEntry<W: Work> {
    work: Arc<W>,
    group: FairnessGroup,
    place: WorkPosition<W::Rank>,
    phase: Phase,
    /// The failures since the last success or replacement.
    failures: u32,
    /// The time of the first try since then. None: it wasn't tried since.
    since: Option<Instant>,
    flags: WorkFlags,
}

/// Facts that decide about work after its call or its wait.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, each for itself")]
struct WorkFlags {
    /// True for work in flight that isn't tried again.
    is_removed: bool,
    /// True for work in flight whose key was added during the call.
    is_renewed: bool,
    /// True for work that waits until it is pushed again.
    is_awaited: bool,
    /// True for work in flight that other work has replaced during the call.
    is_replaced: bool,
}

/// All work of a queue.
#[derive(Debug)]
pub(super) struct WorkQueueState<W: Work> {
    entries: HashMap<W::Key, WorkEntry<W>>,
    due: HashMap<FairnessGroup, DueQueue<W>>,
    /// The groups with due work. The group that had the last turn is last.
    turns: VecDeque<FairnessGroup>,
    /// The work that waits, by the end of its wait.
    waits: BTreeSet<(Instant, W::Key)>,
    /// The lines with a call in flight that isn't slow. No other call of such a line begins.
    lines: HashSet<String>,
    pub(super) shares: Shares,
    /// The last number given to an arrival or a try.
    count: u64,
    /// The time of the last search for work that may begin. None: there was no search.
    last_search: Option<Instant>,
}

impl<W: Work> Default for WorkQueueState<W> {
    fn default() -> Self {
        let (entries, due, turns, waits, lines, shares) = Default::default();
        Self { entries, due, turns, waits, lines, shares, count: 0, last_search: None }
    }
}

impl<W: Work> WorkQueueState<W> {
    pub(super) fn total(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.total().saturating_sub(self.shares.in_flight())
    }

    pub(super) fn due_in(&self, namespace: &str) -> usize {
        let group = FairnessGroup::Namespace(namespace.to_owned());
        self.due.get(&group).map_or(0, |due| due.order.len())
    }

    pub(super) fn get(&self, key: &W::Key) -> Option<Arc<W>> {
        self.entries.get(key).map(|entry| Arc::clone(&entry.work))
    }

    /// Adds or replaces the work of its key. With `renews`, a call in flight for the key is
    /// followed by another, and work that waits to be added is due.
    pub(super) fn add(&mut self, work: W, now: Instant, renews: bool) {
        let (key, group) = (work.key(), FairnessGroup::of(&work));
        let number = self.number();
        let first = if work.is_retry() {
            WorkPosition::Again(number)
        } else {
            WorkPosition::First(work.rank(), number)
        };
        let work = Arc::new(work);
        let Some(known) = self.entries.get_mut(&key) else {
            let (phase, flags) = (Phase::Waits(now), WorkFlags::default());
            let entry = WorkEntry { work, group, place: first, phase, failures: 0, since: None, flags };
            self.entries.insert(key.clone(), entry);
            self.set(&key, Phase::Due);
            return;
        };
        let replaces = work.replaces(&known.work);
        (known.work, known.flags.is_removed) = (work, false);
        if known.phase == Phase::InFlight {
            known.flags.is_renewed |= renews || replaces;
            known.flags.is_replaced |= replaces;
        } else if replaces {
            (known.failures, known.since) = (0, None);
        }
        let phase = match known.phase {
            Phase::Waits(_) if replaces || (renews && known.flags.is_awaited) => Phase::Due,
            phase => phase,
        };
        let place = match (&known.place, first) {
            (_, first) if replaces => first,
            // known work keeps its arrival
            (WorkPosition::First(_, arrived), WorkPosition::First(rank, _)) => {
                WorkPosition::First(rank, *arrived)
            }
            (again, _) => again.clone(),
        };
        if (known.phase, &known.group, &known.place) == (phase, &group, &place) {
            return;
        }
        self.set(&key, Phase::InFlight);
        if let Some(known) = self.entries.get_mut(&key) {
            (known.group, known.place) = (group, place);
        }
        self.set(&key, phase);
    }

    pub(super) fn replace(&mut self, all: impl IntoIterator<Item = W>, now: Instant) {
        let mut wanted = HashSet::new();
        for work in all {
            wanted.insert(work.key());
            self.add(work, now, false);
        }
        let gone = self.entries.keys().filter(|key| !wanted.contains(key)).cloned();
        for key in gone.collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    pub(super) fn remove(&mut self, key: &W::Key) -> Option<Arc<W>> {
        let entry = self.entries.get_mut(key)?;
        if entry.phase == Phase::InFlight {
            (entry.flags.is_removed, entry.flags.is_renewed) = (true, false);
            return Some(Arc::clone(&entry.work));
        }
        self.set(key, Phase::InFlight);
        self.entries.remove(key).map(|entry| entry.work)
    }

    /// Removes all work, and returns what wasn't in flight.
    pub(super) fn clear(&mut self) -> Vec<Arc<W>> {
        self.shares.reset();
        let all = self.entries.iter().map(|(key, entry)| (key.clone(), entry.phase != Phase::InFlight));
        let all: Vec<_> = all.collect();
        all.into_iter().filter_map(|(key, waits)| self.remove(&key).filter(|_| waits)).collect()
    }

    pub(super) fn reset(&mut self) {
        self.shares.reset();
        for (_, key) in std::mem::take(&mut self.waits) {
            self.set(&key, Phase::Due);
        }
    }

    /// Drops due work of the namespace or line that has most: the first that isn't precious, or
    /// else the last. None: no work is due.
    pub(super) fn drop_one(&mut self) -> Option<Arc<W>> {
        let most = self.due.values().max_by_key(|due| due.order.len())?;
        let is_precious = |key| self.entries.get(key).is_some_and(|entry| entry.work.is_precious());
        let spare = most.order.iter().find(|(_, key)| !is_precious(key));
        let (_, key) = spare.or_else(|| most.order.last())?.clone();
        self.remove(&key)
    }

    /// Takes the next work that may begin: the first in order of the first group, in the order of
    /// turns, that has a slot. None: no group may begin.
    pub(super) fn take(&mut self, limits: &WorkLimits, now: Instant) -> Option<TakenWork<W>> {
        self.last_search = Some(now);
        while let Some((at, key)) = self.waits.first().cloned()
            && at <= now
        {
            self.set(&key, Phase::Due);
        }
        if !self.shares.may_begin(now) {
            return None;
        }
        let mut turns = self.turns.iter().enumerate();
        let (turn, key) = turns.find_map(|(turn, group)| Some((turn, self.next(group, limits, now)?)))?;
        if let Some(group) = self.turns.remove(turn) {
            if let Some(due) = self.due.get_mut(&group) {
                due.turns = due.turns.wrapping_add(1);
            }
            self.turns.push_back(group);
        }
        self.begin(&key, now)
    }

    /// Returns the key of the work of a group that may begin next. In a line, work that no line
    /// waits for is passed over if its namespace has no slot.
    fn next(&self, group: &FairnessGroup, limits: &WorkLimits, now: Instant) -> Option<W::Key> {
        let due = self.due.get(group)?;
        let is_retry = |place: &WorkPosition<W::Rank>| matches!(place, WorkPosition::Again(_));
        let is_turn_of_retries = due.turns % TURNS_OF_RETRIES == TURNS_OF_RETRIES - 1;
        let retries = due.order.iter().rev().take_while(|(place, _)| is_turn_of_retries && is_retry(place));
        let oldest = retries.last();
        let mut in_order = oldest.into_iter().chain(due.order.iter()).map(|(_, key)| key);
        match group {
            FairnessGroup::Namespace(namespace) if !self.shares.has_slot(namespace, limits, now) => None,
            FairnessGroup::Namespace(_) => in_order.next().cloned(),
            FairnessGroup::Line(line) => {
                let is_busy = self.lines.contains(line);
                for key in in_order {
                    let namespace = self.entries.get(key)?.work.namespace();
                    let is_in_line = !self.is_out_of_line(namespace, now);
                    if self.shares.has_slot(namespace, limits, now) && !(is_in_line && is_busy) {
                        return Some(key.clone());
                    }
                    // work further back doesn't begin before this one
                    if is_in_line {
                        return None;
                    }
                }
                None
            }
        }
    }

    /// True for a namespace that is degraded or failing. Its work and its line don't wait for
    /// each other.
    fn is_out_of_line(&self, namespace: &str, now: Instant) -> bool {
        self.shares.is_degraded(namespace, now) || self.shares.failing_since(namespace).is_some()
    }

    /// Moves work into flight, and counts the try.
    fn begin(&mut self, key: &W::Key, now: Instant) -> Option<TakenWork<W>> {
        self.set(key, Phase::InFlight);
        let number = self.number();
        let entry = self.entries.get_mut(key)?;
        entry.place = WorkPosition::Again(number);
        let (work, failures) = (Arc::clone(&entry.work), entry.failures);
        let since = *entry.since.get_or_insert(now);
        let line = work.line().filter(|_| !self.is_out_of_line(work.namespace(), now));
        self.lines.extend(line.clone());
        self.shares.begin(work.namespace(), now);
        Some(TakenWork { work, line, failures, since })
    }

    /// Lets the next call of a line begin.
    pub(super) fn leave(&mut self, line: Option<String>) {
        line.map(|line| self.lines.remove(&line));
    }

    /// Takes work back after a call, counts the result for its namespace, and makes the work due,
    /// lets it wait, or forgets it.
    pub(super) fn give_back(&mut self, work: &W, end: End, limits: &WorkLimits, now: Instant) {
        let (succeeded, retry) = match end {
            End::Dropped => (None, limits.retry),
            End::Done | End::Again(_) | End::UntilAdded(_) => (Some(true), limits.retry),
            End::GivenUp => (Some(false), limits.retry),
            End::Failed(wait) => (Some(false), wait),
        };
        let limits = &WorkLimits { retry, ..*limits };
        self.shares.end(work.namespace(), succeeded, limits, now);
        let key = work.key();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let WorkFlags { is_removed, is_renewed, is_replaced, .. } = entry.flags;
        if is_removed || (matches!(end, End::Done | End::GivenUp) && !is_renewed) {
            self.entries.remove(&key);
            return;
        }
        entry.flags = WorkFlags { is_awaited: matches!(end, End::UntilAdded(_)), ..WorkFlags::default() };
        let wait = match end {
            _ if is_replaced => None,
            End::Again(after) | End::UntilAdded(after) if !is_renewed => Some(after),
            End::Failed(retry) => {
                let wait = retry.jittered(entry.failures);
                entry.failures = entry.failures.saturating_add(1);
                Some(wait).filter(|_| limits.spread == Spread::Work)
            }
            _ => None,
        };
        if succeeded == Some(true) || is_replaced {
            (entry.failures, entry.since) = (0, None);
        }
        let phase = wait.and_then(|wait| now.checked_add(wait)).map_or(Phase::Due, Phase::Waits);
        self.set(&key, phase);
    }

    /// Moves work to a phase, and to its place there. A key that is unknown is left out.
    fn set(&mut self, key: &W::Key, phase: Phase) {
        let Self { entries, due, turns, waits, .. } = self;
        let Some(entry) = entries.get_mut(key) else { return };
        match entry.phase {
            Phase::Waits(at) => drop(waits.remove(&(at, key.clone()))),
            Phase::InFlight => {}
            Phase::Due => {
                if let Some(of_group) = due.get_mut(&entry.group) {
                    of_group.order.remove(&(entry.place.clone(), key.clone()));
                    if of_group.order.is_empty() {
                        due.remove(&entry.group);
                        // the group of the last turn is the last
                        let turn = turns.iter().rposition(|group| *group == entry.group);
                        turn.map(|turn| turns.remove(turn));
                    }
                }
            }
        }
        entry.phase = phase;
        match phase {
            Phase::Waits(at) => drop(waits.insert((at, key.clone()))),
            Phase::InFlight => {}
            Phase::Due => {
                let of_group = due.entry(entry.group.clone()).or_insert_with(|| {
                    turns.push_back(entry.group.clone());
                    DueQueue::default()
                });
                of_group.order.insert((entry.place.clone(), key.clone()));
            }
        }
    }

    /// Returns the next number, by which arrivals and tries are ordered.
    fn number(&mut self) -> u64 {
        self.count = self.count.saturating_add(1);
        self.count
    }

    /// Returns the earliest end of a wait, of work or of its namespace. Waits of namespaces that
    /// ended before the last look don't count: there was no slot then, and the end of a call
    /// notifies. None: only a change can help.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let of_work = self.waits.first().map(|(at, _)| *at);
        let of_shares = if self.turns.is_empty() { None } else { self.shares.waits(self.last_search).min() };
        of_work.into_iter().chain(of_shares).min()
    }
}
