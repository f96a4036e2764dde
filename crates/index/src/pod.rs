//! What is kept of a pod in a queue.

use std::num::NonZeroI64;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::{Clocks, Family},
    ready::{Cause, Readiness, Standing},
};
use tenure_types::{keys, podgroup::PodGroupKind, projection};

use crate::{Due, Task, Uid, ceilings::Readers, owners::Controller};

/// Times are in milliseconds since the epoch.
#[derive(Debug)]
pub struct Pod {
    pub name: Box<str>,
    pub namespace: ArcStr,
    /// The queue that it names itself in each family. That of its `PodGroup` counts, if there is such a group.
    pub tensorstack: Option<ArcStr>,
    pub runai: Option<ArcStr>,
    pub controller: Option<Controller>,
    /// The pod's own ceiling.
    pub own: Option<Milliseconds>,
    pub created: i64,
    pub started: Option<Milliseconds>,
    /// The family whose ceiling counts.
    pub family: Family,
    /// The queue whose ceiling counts.
    pub queue: Option<ArcStr>,
    pub attempts: u8,
    pub tell_attempts: u8,
    pub claimed: bool,
    /// What is done about it serves no other pod of its controller.
    pub alone: bool,
    /// When the ceiling is reached, rounded up; [`NEVER`] if there is none.
    pub expires: i64,
    /// When there is something to do: that, or after a try some time later. It stands in the order of deadlines
    /// while it is set.
    pub deadline: Option<Milliseconds>,
    /// It is not due again before.
    pub not_before: i64,
    /// When its workload is to be told. It stands in the order of notices while it is set.
    pub notice: Option<Milliseconds>,
    /// It is not told again before.
    pub not_told_before: i64,
    /// The end of its run that it was told.
    pub told: Option<Milliseconds>,
    /// Whether it is ready, and if it was but isn't any more, until when.
    pub ready: bool,
    pub lost: Option<Milliseconds>,
    /// None if its workload is ready, or may take as long as it likes. Most are.
    pub unready: Option<Box<Unready>>,
}

/// A workload that must get ready.
#[derive(Debug)]
pub struct Unready {
    pub until: i64,
    pub cause: Cause,
    /// The queue that says so, of a family.
    pub family: Family,
    pub queue: ArcStr,
    /// When something is to be done about that. It stands in the order of evictions while it is set.
    pub eviction: Option<Milliseconds>,
    pub attempts: u8,
    /// It is not evicted again before.
    pub not_before: i64,
    /// Its workload was paused for it.
    pub paused: bool,
}

/// No time at all.
pub const NEVER: i64 = i64::MAX;

/// Any but [`NEVER`]: so an `Option` of it takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Milliseconds(NonZeroI64);

impl Milliseconds {
    pub fn new(milliseconds: i64) -> Option<Self> {
        NonZeroI64::new(milliseconds ^ NEVER).map(Self)
    }

    pub const fn get(self) -> i64 {
        self.0.get() ^ NEVER
    }
}

impl Pod {
    /// None if the pod is in no queue.
    pub fn read(pod: &projection::Pod, readers: &mut Readers) -> Option<Self> {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let mut read = Self {
            name: text(pod.metadata.name.as_deref()).into(),
            namespace: readers.names.shared(pod.metadata.namespace.as_deref().unwrap_or_default()),
            tensorstack: None,
            runai: None,
            controller: None,
            own: None,
            created: pod.metadata.creation_timestamp.as_ref()?.0.as_millisecond(),
            started: None,
            family: Family::Runai,
            queue: None,
            attempts: 0,
            tell_attempts: 0,
            claimed: false,
            alone: false,
            expires: NEVER,
            deadline: None,
            not_before: i64::MIN,
            notice: None,
            not_told_before: i64::MIN,
            told: None,
            ready: false,
            lost: None,
            unready: None,
        };
        read.update(pod, readers).then_some(read)
    }

    /// Takes what can change; says whether it is still in a queue.
    pub fn update(&mut self, pod: &projection::Pod, readers: &mut Readers) -> bool {
        let Readers { kinds, names, own } = readers;
        let mut shared =
            |name: Option<&str>| name.filter(|name| !name.is_empty()).map(|name| names.shared(name));
        self.tensorstack = shared(pod.label(keys::TENSORSTACK_QUEUE_LABEL));
        self.runai = shared(pod.label(keys::RUNAI_QUEUE_LABEL));
        self.started = pod.scheduled_at().and_then(|time| Milliseconds::new(time.0.as_millisecond()));
        let readiness = Readiness::of(pod);
        self.ready = readiness == Readiness::Ready;
        self.lost = lost(readiness);
        self.controller = pod.controller().map(|owner| Controller::read(owner, kinds));
        self.own = own
            .read(&pod.metadata)
            .and_then(|own| Milliseconds::new(own.as_millis().try_into().unwrap_or(NEVER)));
        let families = [PodGroupKind::Tensorstack, PodGroupKind::Runai];
        let is_grouped = families.iter().any(|kind| kind.named_by(pod).is_some());
        self.tensorstack.is_some() || self.runai.is_some() || is_grouped
    }

    /// As a part of its workload.
    pub fn standing(&self) -> Standing {
        let Clocks { created, started } = self.clocks();
        Standing { subgroup: 0, created, scheduled: started, readiness: readiness(self.ready, self.lost) }
    }

    /// The clocks that ceilings run by, if it is a workload by itself.
    pub fn clocks(&self) -> Clocks {
        Clocks { created: time(self.created), started: self.started.map(|started| time(started.get())) }
    }

    /// The pod's own ceiling.
    pub fn own_ceiling(&self) -> Option<SignedDuration> {
        self.own.map(|own| SignedDuration::from_millis(own.get()))
    }

    /// Whether it has outlived a pause of its workload, which wasn't ready.
    pub fn outlives(&self) -> bool {
        self.unready.as_ref().is_some_and(|unready| unready.paused)
    }

    /// As it is handed out.
    pub fn due(&self, uid: Uid, task: Task, since: i64) -> Due {
        let attempts = if task == Task::Expire { self.attempts } else { self.tell_attempts };
        let (family, queue, deadline, attempts) = match &self.unready {
            Some(of) if task == Task::Evict => (of.family, Some(&of.queue), of.until, of.attempts),
            _ => (self.family, self.queue.as_ref(), self.expires, attempts),
        };
        Due {
            uid,
            namespace: self.namespace.as_str().into(),
            name: self.name.as_ref().into(),
            family,
            queue: queue.map(ArcStr::as_str).unwrap_or_default().into(),
            deadline: time(deadline),
            since: time(since),
            told: self.told.map(|told| time(told.get())),
            cause: self.unready.as_ref().map_or(Cause::WaitForStart, |unready| unready.cause),
            attempts,
            outlives: self.outlives(),
        }
    }
}

/// When a pod that was ready ceased to be.
pub fn lost(readiness: Readiness) -> Option<Milliseconds> {
    match readiness {
        Readiness::Lost(at) => Milliseconds::new(at.as_millisecond()),
        Readiness::Ready | Readiness::NotYet => None,
    }
}

/// How far a pod is of which this is kept.
pub fn readiness(ready: bool, lost: Option<Milliseconds>) -> Readiness {
    match lost {
        _ if ready => Readiness::Ready,
        None => Readiness::NotYet,
        Some(at) => Readiness::Lost(time(at.get())),
    }
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}
