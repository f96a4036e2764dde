//! A state of the protocol: an API server, its network, two keepers, an owner with its pods, and a user.
//!
//! Time is in ticks. `now` is the API server's time; a keeper's own clock is ahead of it by its `drift`.

/// Of two keepers, the first or the second.
pub type Id = usize;

/// The whole state. All of it is plain data, since a checker keeps millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u8,
    pub lease: Option<LeaseObject>,
    /// The resource version that the lease gets next.
    pub next_version: u8,
    pub owner: Owner,
    pub pod: Option<Pod>,
    /// The number of pods so far.
    pub pods: u8,
    pub keepers: [Keeper; 2],
    pub lease_writes: Messages<LeaseWrite>,
    pub owner_writes: Messages<OwnerWrite>,
    pub faults: Faults,
    /// A return has been applied: an owner without a record may be a new one as well.
    pub has_returned: bool,
    /// The first rule that was broken.
    pub broken: Option<Rule>,
}

/// A rule of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// At most one pause per owner uid and run.
    PausedTwice,
    /// Nothing is paused early.
    PausedEarly,
    /// Nothing is resumed early.
    ResumedEarly,
    /// A pause that a user made stays.
    UndidUser,
    /// Nothing of another uid is written.
    HitAnother,
    /// No write by a keeper that is not the leader.
    WroteWithoutLease,
}

/// The faults and the acts of a user that may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    pub crashes: u8,
    /// Answers that get lost, before or after the write is applied.
    pub losses: u8,
    pub acts: u8,
}

/// The lease in the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseObject {
    pub holder: u8,
    pub version: u8,
    /// `renewTime`: the writer's wall clock, in 256ths of a tick.
    pub renewed: u16,
}

/// The owner in the API server: a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    pub uid: u8,
    pub version: u8,
    pub suspended: bool,
    pub record: Option<Record>,
    pub requeue_at: Option<u8>,
    /// A user has set the field since the record was written.
    pub set_by_user: bool,
}

/// The record of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    pub at: u8,
    pub reversals: u8,
}

/// The pod of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pod {
    pub number: u8,
    /// The uid of its owner.
    pub owner: u8,
    pub started: u8,
}

/// A keeper's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keeper {
    pub runs: bool,
    pub drift: u8,
    /// The lease as it was last seen, and since when, by its own clock.
    pub seen: Option<(LeaseObject, u8)>,
    /// The time since which the lease is known to be missing.
    pub missing: Option<u8>,
    /// The end of its term, by its own clock.
    pub until: Option<u8>,
    pub campaign: Campaign,
    /// It has campaigned in this tick.
    pub campaigned: bool,
    pub pausing: Work,
    pub resuming: Work,
}

/// A candidate's open call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Campaign {
    Idle,
    /// An answer to a read is on its way.
    Reading(Option<LeaseObject>),
    /// A write was sent at this time of its own clock.
    Writing(LeaseWrite, u8),
    /// The answer to that write is on its way: the lease, or a conflict.
    Written(Option<LeaseObject>, u8),
}

/// A piece of work on the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    Idle,
    /// The pod was read.
    HasPod(Pod),
    /// Pod and owner were read.
    HasOwner(Pod, Owner),
    /// All was read that an act rests on.
    Decided(OwnerWrite),
    Sent(OwnerWrite),
    /// The answer is on its way: applied, or a conflict.
    Answered(OwnerWrite, bool),
}

/// A write of the lease, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseWrite {
    pub by: u8,
    /// The resource version that it is based on; none to create the lease.
    pub base: Option<u8>,
    pub renewed: u16,
}

/// A patch of the owner, on its way. The patch itself follows from the owner as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerWrite {
    pub by: u8,
    pub based_on: Owner,
    pub kind: WriteKind,
}

/// The content of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WriteKind {
    /// A pause at this time, for this pod.
    Pause {
        at: u8,
        pod: Pod,
    },
    Return,
}

/// Messages on their way, which arrive in any order, at any time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Messages<M>([Option<M>; 3]);

impl<M: Copy + Ord> Messages<M> {
    pub const NONE: Self = Self([None; 3]);

    /// True if there is room for one more: bounds the number of states.
    pub fn has_room(&self) -> bool {
        self.0.iter().any(Option::is_none)
    }

    pub fn iter(&self) -> impl Iterator<Item = M> + '_ {
        self.0.iter().flatten().copied()
    }

    /// Adds a message. The order of messages makes no state of its own.
    pub fn add(&mut self, message: M) {
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(message);
        }
        self.0.sort_unstable();
    }

    pub fn remove(&mut self, message: M) {
        if let Some(slot) = self.0.iter_mut().find(|slot| **slot == Some(message)) {
            *slot = None;
        }
        self.0.sort_unstable();
    }
}

impl Keeper {
    /// A process that has just started.
    pub const fn new(drift: u8) -> Self {
        Self {
            runs: true,
            drift,
            seen: None,
            missing: None,
            until: None,
            campaign: Campaign::Idle,
            campaigned: false,
            pausing: Work::Idle,
            resuming: Work::Idle,
        }
    }

    /// Drops the work that was begun while it led.
    pub const fn end_term(&mut self) {
        self.until = None;
        self.pausing = Work::Idle;
        self.resuming = Work::Idle;
    }
}

impl State {
    /// The time by a keeper's own clock.
    pub const fn clock_of(&self, id: Id) -> u8 {
        self.now + self.keepers[id].drift
    }

    /// True if a keeper believes that it leads.
    pub fn leads(&self, id: Id) -> bool {
        let keeper = &self.keepers[id];
        keeper.runs && keeper.until.is_some_and(|until| self.clock_of(id) < until)
    }
}
