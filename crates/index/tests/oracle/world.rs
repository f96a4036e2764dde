//! The objects of a small cluster, as plain numbers. Times are milliseconds after [`EPOCH`], durations microseconds.

use jiff::Timestamp;
use tenure_types::podgroup::PodGroupKind;

use crate::{object, object::List};

/// Seconds since 1970 at which all histories begin.
pub const EPOCH: i64 = 1_800_000_000;

/// Nanoseconds after [`EPOCH`].
pub type Nanos = i64;

/// A grace period in seconds that overflows.
pub const ENDLESS: i64 = 36_028_797_018_960_368;

pub const MILLI: i64 = 1_000_000;
pub const SECOND: i64 = 1_000_000_000;

pub fn timestamp(nanos: Nanos) -> Timestamp {
    let (seconds, rest) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
    Timestamp::new(EPOCH + seconds, rest as i32).unwrap()
}

/// The opposite of [`timestamp`].
pub fn nanos(at: Timestamp) -> Nanos {
    (at.as_nanosecond() - i128::from(EPOCH) * i128::from(SECOND)) as Nanos
}

/// A duration in the grammar of `v3alpha1` and `v2`.
pub fn go(micros: i64) -> String {
    format!("{micros}us")
}

/// A duration in the grammar of `v1beta1`, and of people.
pub fn units(micros: i64, space: &str) -> String {
    let millis = micros / 1_000;
    match millis % 1_000 {
        0 => format!("{}s", millis / 1_000),
        rest => format!("{}s{space}{rest}ms", millis / 1_000),
    }
}

/// The kind of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    Deployment,
    ReplicaSet,
    Job,
    /// Stands between pods and kinds that can be paused.
    Service,
    /// Can be paused if the configuration has a row for it.
    Thing,
    DaemonSet,
    Pod,
}

/// A controller, by its uid.
pub type Controller = Option<(OwnerKind, u32)>;

/// The evidence on a pod: its queues, its own ceiling, the scheduling of the pod that controls it, and whether it was ready.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvidenceObj {
    pub runai: Option<u8>,
    pub tensorstack: Option<u8>,
    /// A bit for each queue.
    pub lending: u16,
    pub own: Option<i64>,
    pub since: Option<Nanos>,
    /// The start of the group that the pod joined late.
    pub group_start: Option<Nanos>,
    pub was_ready: bool,
}

object! {
    /// A pod.
    PodObj {
        uid: u32 = 1,
        namespace: u8 = 0,
        name: u8 = 0,
        created: i64 = 0,
        terminating: bool = false,
        /// Its grace period in seconds.
        grace: i64 = 0,
        finished: bool = false,
        /// Since when condition `PodScheduled` is true.
        scheduled: Option<i64> = None,
        /// `spec.nodeName` is set.
        bound: bool = false,
        /// Condition `Ready`.
        ready: Option<(bool, i64)> = None,
        /// Since when condition `Initialized` is true.
        initialized: Option<i64> = None,
        tensorstack: Option<u8> = None,
        runai: Option<u8> = None,
        /// The group of each kind that it names, in the order of `PodGroupKind::ALL`.
        groups: [Option<u8>; 5] = [None; 5],
        subgroup: Option<u8> = None,
        controller: Controller = None,
        own: Option<i64> = None,
        evidence: EvidenceObj = EvidenceObj::default(),
        critical: bool = false,
        mirror: bool = false,
    }
}

object! {
    /// A `PodGroup`.
    GroupObj {
        kind: PodGroupKind = PodGroupKind::Runai,
        namespace: u8 = 0,
        name: u8 = 0,
        uid: u32 = 1,
        version: u32 = 1,
        stamp: Option<i64> = None,
        /// A stamp that is no time.
        unreadable: bool = false,
        /// Names the stamp that was last written, if any was.
        echo: bool = false,
        queue: Option<u8> = None,
        created: Option<i64> = None,
        own: Option<i64> = None,
        min: Option<u32> = None,
        /// Subgroups, roles or tasks: the minimum, if it has one, and the parent.
        subgroups: List<(u8, Option<u32>, Option<u8>)> = List(Vec::new()),
        /// The number of subgroups without a parent that must have their minimums, if not all: of KAI-Scheduler's alone.
        parts: Option<u32> = None,
    }
}

/// The record of a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordObj {
    pub at: i64,
    pub queue: u8,
    /// True if the queue is of the tensorstack family. None: the record names no family.
    pub tensorstack: Option<bool>,
    pub deactivated: bool,
    /// For pods that weren't ready in time.
    pub unready: bool,
    pub whose: Whose,
    /// The pause holds another field.
    pub holds: bool,
}

/// The object whose pause a record is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whose {
    /// The object that bears it.
    Bearer,
    /// Another object, from which it was copied.
    Other,
    /// As versions wrote it that noted no uid.
    Unsaid,
}

object! {
    /// An object that may own pods.
    OwnerObj {
        kind: OwnerKind = OwnerKind::Deployment,
        uid: u32 = 1,
        namespace: u8 = 0,
        created: i64 = 0,
        controller: Controller = None,
        own: Option<i64> = None,
        record: Option<RecordObj> = None,
        returns: Option<i64> = None,
        priority: Option<i32> = None,
        inactive: bool = false,
    }
}

/// `waitForPodsReady`: timeout, recovery timeout, whether returns are ordered by creation, whether the timeout counts from
/// creation, whether some come back before their time, and whether there is a timeout at all.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "none follows from another")]
pub struct Wait {
    pub timeout: Option<i64>,
    pub recovery: Option<i64>,
    pub by_creation: bool,
    pub from_creation: bool,
    pub on_capacity: bool,
    pub off: bool,
}

/// The points before the end of a run at which a notice is given; zero where there is no further one.
pub type Points = [i64; 3];

/// Points, as a queue or the configuration has them.
pub fn points(points: Points, written: impl Fn(i64) -> String) -> String {
    let given: Vec<_> = points.into_iter().filter(|point| *point > 0).map(written).collect();
    if given.is_empty() { "0".to_owned() } else { given.join(", ") }
}

object! {
    /// A queue of the run.ai family.
    RunaiObj {
        /// Written in KAI-Scheduler's version.
        v2: bool = false,
        parent: Option<u8> = None,
        ceiling: Option<i64> = None,
        notice: Option<Points> = None,
        requeue: Option<bool> = None,
        delay: Option<i64> = None,
        wait: Option<Wait> = None,
        preempt: Option<i64> = None,
        reclaim: Option<i64> = None,
        /// The longest total of extensions without approval, the longest in all, and the greatest number.
        extensions: Option<(i64, i64, Option<u32>)> = None,
    }
}

object! {
    /// A request for more time for a workload.
    ExtensionObj {
        uid: u32 = 1,
        namespace: u8 = 0,
        workload: u32 = 1,
        asked: i64 = 0,
        duration: i64 = 3_600_000_000,
        granted: Option<i64> = None,
        /// Whoever has denied the request, or has revoked the grant.
        denied: Option<Denier> = None,
    }
}

/// Who denies a request for more time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Denier {
    Person,
    Keeper,
}

impl ExtensionObj {
    /// The granted time: no more than was asked for.
    pub fn grant(&self) -> Option<i64> {
        self.granted.filter(|_| self.denied.is_none()).map(|granted| granted.min(self.duration))
    }
}

object! {
    /// A queue of the tensorstack family.
    TensorstackObj {
        ceiling: Option<i64> = None,
        notice: Option<Points> = None,
    }
}

object! {
    /// The configuration.
    ConfigObj {
        notice: Points = [0; 3],
        grace: i64 = 0,
        wait: Option<Wait> = None,
        preempt: i64 = 0,
        reclaim: i64 = 0,
        things: bool = false,
        /// The longest time that workloads may take to form.
        formation: i64 = 20_000_000,
        /// The queues that count for names that no queue has: of the run.ai family, and of the other.
        defaults: (Option<u8>, Option<u8>) = (None, None),
    }
}

/// Kind, namespace and name of a `PodGroup`.
pub type GroupKey = (PodGroupKind, u8, u8);

impl GroupObj {
    pub const fn key(&self) -> GroupKey {
        (self.kind, self.namespace, self.name)
    }
}

impl PodObj {
    /// Neither finished nor terminating.
    pub const fn is_live(&self) -> bool {
        !self.terminating && !self.finished
    }

    /// True if it has finished and didn't fail: one pod of three fails.
    pub fn has_succeeded(&self) -> bool {
        self.finished && !self.uid.is_multiple_of(3)
    }

    /// Scheduled, and live.
    pub const fn is_active(&self) -> bool {
        self.is_live() && (self.bound || self.scheduled.is_some())
    }

    /// Live, and on no node yet.
    pub const fn waits(&self) -> bool {
        self.is_live() && !self.is_active()
    }

    /// When it was bound: not before it was created, and then if it has a node and doesn't show when.
    pub fn scheduled(&self) -> Option<Nanos> {
        let at = self.scheduled.or_else(|| self.bound.then_some(self.created))?;
        Some(at.max(self.created) * MILLI)
    }

    /// The node that it is on once it is bound.
    pub fn node(&self) -> u8 {
        (self.uid % 2) as u8
    }

    pub fn priority(&self) -> i32 {
        if self.critical { 2_000_000_000 } else { i32::from(self.name) * 10 }
    }

    /// Thousandths of a processor that it requests.
    pub fn cpu(&self) -> i64 {
        i64::from(self.uid / 2 % 3 + 1) * 1_000
    }

    /// The groups that it names, in the order in which they count.
    pub fn keys(&self) -> impl Iterator<Item = GroupKey> {
        let named = PodGroupKind::ALL.into_iter().zip(self.groups);
        let namespace = self.namespace;
        named.filter_map(move |(kind, name)| Some((kind, namespace, name?)))
    }

    /// Names a group while it is live.
    pub fn is_member(&self, key: GroupKey) -> bool {
        self.is_live() && self.keys().any(|named| named == key)
    }
}
