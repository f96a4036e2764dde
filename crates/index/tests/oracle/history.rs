//! Random histories of a small cluster.

mod lists;
mod pods;
mod queues;
mod workloads;

use std::collections::HashSet;

use tenure_types::podgroup::PodGroupKind;

use crate::{
    event::{Ask, End, EndShown, Event, Scope, StampEnd},
    world::{ExtensionObj, GroupObj, OwnerKind, OwnerObj, PodObj, RunaiObj, TensorstackObj},
};

/// Numbers that follow from a seed (`SplitMix64`).
pub struct Random(pub u64);

impl Random {
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn small(&mut self, bound: u64) -> u8 {
        self.below(bound) as u8
    }

    const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn maybe<T>(&mut self, percent: u64, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(percent).then(|| make(self))
    }
}

/// The events that a history may have. Each history has only some kinds, so that each kind is seen without the others.
struct Habits {
    weights: [u64; 15],
    namespaces: u64,
    most_pods: usize,
    kinds: Vec<PodGroupKind>,
    grouped: u64,
    /// The percentage of pods that join the groups of another.
    joiners: u64,
    floors: bool,
    /// The percentage of watch events that are lost.
    losses: u64,
    /// Lists of pods take a while in which other things happen, and may break off.
    slow_lists: bool,
    /// How often the watch of a kind besides pods is broken off, in percent.
    gaps: u64,
}

/// A kind of objects besides pods. Each has a watch of its own.
#[derive(Clone, Copy, PartialEq)]
enum Watched {
    Groups(PodGroupKind),
    Owners(OwnerKind),
    Extensions,
    Runai,
    Tensorstack,
}

/// A list of pods under way.
struct Listing {
    /// The pods that it is still to show.
    left: Vec<PodObj>,
    /// Those that it has shown.
    shown: Vec<u32>,
    /// The changes since it began.
    later: Vec<Event>,
    /// It shows the changes, too, before it ends.
    is_streamed: bool,
}

/// The true state of the cluster, which the watches may not have shown.
struct History {
    random: Random,
    /// Decides what only some histories have. Apart, so that all others stay as they are.
    apart: Random,
    habits: Habits,
    uids: HashSet<u32>,
    now: i64,
    pods: Vec<PodObj>,
    groups: Vec<GroupObj>,
    owners: Vec<OwnerObj>,
    extensions: Vec<ExtensionObj>,
    runai: Vec<(u8, RunaiObj)>,
    tensorstack: Vec<(u8, TensorstackObj)>,
    /// The kinds besides pods whose watch is broken off.
    gaps: Vec<Watched>,
    /// The watch of pods is broken off.
    is_deaf: bool,
    /// The list of pods under way, while the watch is broken off.
    listing: Option<Listing>,
    events: Vec<Event>,
    version: u32,
}

/// A history of `length` events.
pub fn history(seed: u64, length: usize) -> Vec<Event> {
    let (mut random, mut apart) = (Random(seed), Random(!seed));
    let habits = Habits::of(&mut random, &mut apart);
    let mut history = History {
        random,
        apart,
        habits,
        uids: HashSet::new(),
        now: 0,
        pods: Vec::new(),
        groups: Vec::new(),
        owners: Vec::new(),
        extensions: Vec::new(),
        runai: Vec::new(),
        tensorstack: Vec::new(),
        gaps: Vec::new(),
        is_deaf: false,
        listing: None,
        events: Vec::new(),
        version: 1,
    };
    history.configure();
    for _ in 0..4 {
        history.queue();
    }
    while history.events.len() < length {
        history.happen();
    }
    history.events.truncate(length);
    history.events
}

impl Habits {
    fn of(random: &mut Random, apart: &mut Random) -> Self {
        let mut weights = [30, 26, 10, 5, 8, 6, 6, 2, 14, 12, 6, 6, 8, 8, 10];
        for weight in &mut weights[3..] {
            *weight = if random.percent(25) { 0 } else { *weight };
        }
        let count = 1 + random.below(3) as usize;
        let all = [
            PodGroupKind::Runai,
            PodGroupKind::Runai,
            PodGroupKind::Tensorstack,
            PodGroupKind::Tensorstack,
            PodGroupKind::Volcano,
            PodGroupKind::Volcano,
            PodGroupKind::Coscheduling,
            PodGroupKind::Native,
        ];
        Self {
            weights,
            namespaces: 1 + random.below(3) % 2,
            most_pods: 2 + random.below(9) as usize,
            kinds: (0..count).map(|_| random.of(&all)).collect(),
            grouped: random.of(&[0, 40, 90]),
            joiners: random.of(&[0, 0, 40]),
            floors: random.percent(50),
            losses: random.of(&[0, 0, 10, 40]),
            slow_lists: apart.percent(60),
            gaps: apart.of(&[0, 0, 3, 8]),
        }
    }
}

/// In microseconds: short, so that all meet.
const SPANS: [i64; 7] = [1_000_000, 2_000_000, 3_000_000, 5_000_000, 1_500_000, 10_000_000, 1_500_500];
const MILLIS: [i64; 12] = [1, 499, 500, 501, 999, 1_000, 1_001, 2_000, 3_000, 5_000, 11_000, 61_000];

impl History {
    fn happen(&mut self) {
        let total: u64 = self.habits.weights.iter().sum();
        let mut at = self.random.below(total);
        let choice = self.habits.weights.iter().position(|weight| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        match choice.unwrap_or(0) {
            0 => self.pass(),
            1 => self.change_pod(),
            2 => self.create_pod(),
            3 => self.delete_pod(),
            4 => self.group(),
            5 => self.owner(),
            6 => self.queue(),
            7 => self.configure(),
            8 => self.take(),
            9 => self.record_outcome(),
            10 => self.stamps(),
            11 => self.events.push(Event::Returns),
            12 => self.ask(),
            13 => self.extension(),
            _ => self.ends(),
        }
        if self.listing.is_some() {
            self.go_on_listing();
        } else if self.is_deaf && self.random.percent(15) {
            self.list_pods();
        }
        if !self.is_deaf && self.random.percent(self.habits.losses / 8) {
            self.is_deaf = true;
        }
        self.lose_watches();
    }

    fn pass(&mut self) {
        let millis = self.random.of(&MILLIS);
        self.now += millis;
        self.events.push(Event::Pass(millis));
    }

    /// In whole seconds, as the API server writes times, but for some.
    fn time(&mut self) -> i64 {
        let now = if self.random.percent(10) { self.now + self.random.of(&MILLIS) } else { self.now };
        let now = if self.random.percent(10) { now - self.random.of(&MILLIS) } else { now };
        if self.random.percent(80) { now - now.rem_euclid(1_000) } else { now }
    }

    /// One that no object of this history has had.
    fn uid(&mut self) -> u32 {
        loop {
            let uid = (self.random.next() >> 40) as u32;
            if self.uids.insert(uid) {
                return uid;
            }
        }
    }

    fn take(&mut self) {
        let place = self.random.small(4);
        self.events.push(Event::Take(place));
    }

    fn record_outcome(&mut self) {
        if self.random.percent(8) {
            return self.events.push(Event::LoseLead);
        }
        let random = &mut self.random;
        let scope = random.of(&[Scope::All, Scope::All, Scope::All, Scope::First, Scope::Gone]);
        let end = random.of(&[
            End::Done,
            End::Done,
            End::Done,
            End::Paused,
            End::Paused,
            End::Paused,
            End::Failed,
            End::Failed,
            End::Final,
        ]);
        let place = random.small(4);
        self.events.push(Event::RecordOutcome(place, scope, end));
    }

    fn stamps(&mut self) {
        let event = if self.random.percent(50) {
            Event::CheckStamps
        } else {
            let end = [StampEnd::Written, StampEnd::Written, StampEnd::Said, StampEnd::Failed];
            Event::EndStamp(self.random.small(4), self.random.of(&end))
        };
        self.events.push(event);
    }

    fn ends(&mut self) {
        let (pick, at) = (self.random.small(8), self.time());
        let random = &mut self.random;
        self.events.push(match random.below(8) {
            0..=3 => Event::CheckEnds,
            4..=6 => {
                let results = [EndShown::Written, EndShown::Written, EndShown::Unseen, EndShown::Failed];
                Event::ShowEnd(pick, random.of(&results))
            }
            _ => Event::WriteEnd(pick, random.maybe(70, |random| at + random.of(&MILLIS))),
        });
    }

    fn ask(&mut self) {
        let Self { random, apart, .. } = self;
        let ask = Ask {
            queue: random.maybe(80, |random| random.of(&[0, 1, 2, 3, 9])),
            priority: random.of(&[5, 15, 25, 25, 2_000_000_000]),
            node: random.small(2),
            victims: random.of(&[1, 2, 3, 4, 7, 255]),
            pending: apart.maybe(50, |apart| apart.small(8)),
            other: apart.maybe(40, |apart| apart.of(&[1, 2, 3, 4, 7, 255])),
        };
        self.events.push(Event::Ask(ask));
    }
}
