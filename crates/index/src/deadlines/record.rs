//! The record of a pod in a queue.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::{Clocks, Family, claimed},
    ready::{Cause, LivePod},
};
use tenure_types::{keys, podgroup::PodGroupKind, projection};

use super::{
    due::{DueKey, DuePod, Task},
    expiry::{Expiry, Unready},
    notice::Notice,
    order::Step,
};
use crate::{
    Uid,
    names::Interner,
    own::Bearer,
    owners::Controller,
    times::{Milliseconds, NEVER, PodReadiness, milliseconds, milliseconds_up, time},
};

/// A pod in a queue. Times are in milliseconds since the epoch.
#[derive(Debug)]
pub struct ManagedPod {
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
    pub readiness: PodReadiness,
    /// The family whose ceiling counts, or did.
    pub family: Family,
    pub expiry: Expiry,
    pub notice: Option<Box<Notice>>,
    /// None if its workload is ready, or may take as long as it likes.
    pub unready: Option<Box<Unready>>,
    /// Acting on it serves no other pod of its controller.
    pub alone: bool,
    /// It names an owner whose pods are never touched. Any user may name one, so its ceiling holds until that owner is
    /// found; but no workload is counted.
    pub claims_exemption: bool,
}

impl ManagedPod {
    /// None if the pod is in no queue.
    pub fn read(pod: &projection::Pod, interner: &mut Interner) -> Option<Self> {
        let mut read = Self {
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            namespace: interner.names.shared(pod.metadata.namespace.as_deref().unwrap_or_default()),
            tensorstack: None,
            runai: None,
            controller: None,
            own: None,
            created: pod.metadata.creation_timestamp.as_ref()?.0.as_millisecond(),
            started: None,
            readiness: PodReadiness::of(pod, None),
            family: Family::Runai,
            expiry: Expiry::default(),
            notice: None,
            unready: None,
            alone: false,
            claims_exemption: false,
        };
        read.update(pod, interner).then_some(read)
    }

    /// Takes what can change; says whether it is still in a queue.
    pub fn update(&mut self, pod: &projection::Pod, interner: &mut Interner) -> bool {
        let Interner { kinds, names, own, kueue_queues } = interner;
        let mut shared =
            |name: Option<&str>| name.filter(|name| !name.is_empty()).map(|name| names.shared(name));
        self.tensorstack = shared(pod.label(keys::TENSORSTACK_QUEUE_LABEL));
        self.runai = shared(kueue_queues.queue_of(pod));
        self.started = pod.scheduled_at().and_then(|time| milliseconds(time.0));
        self.readiness = PodReadiness::of(pod, Some(self.readiness));
        self.controller = pod.controller().map(|owner| Controller::read(owner, kinds));
        self.claims_exemption = claimed(pod).is_some();
        self.own = own
            .read(Bearer::Pod, &pod.metadata)
            .and_then(|own| Milliseconds::new(own.as_millis().try_into().unwrap_or(NEVER)));
        let families = [PodGroupKind::Tensorstack, PodGroupKind::Runai];
        let is_grouped = families.iter().any(|kind| kind.named_by(pod).is_some());
        self.tensorstack.is_some() || self.runai.is_some() || is_grouped
    }

    /// Allows another try of the tasks that were final under its last controller.
    pub fn revive(&mut self) {
        self.expiry.step.tries.revive();
        if let Some(unready) = &mut self.unready {
            unready.step.tries.revive();
        }
    }

    /// The pod as a part of its workload.
    pub fn live_pod(&self) -> LivePod {
        let Clocks { created, started } = self.clocks();
        LivePod { subgroup: 0, created, scheduled: started, readiness: self.readiness.get() }
    }

    /// The clocks that ceilings run by, if it is a workload by itself.
    pub fn clocks(&self) -> Clocks {
        Clocks { created: time(self.created), started: self.started.map(|started| time(started.get())) }
    }

    /// The end of its run.
    pub fn end(&self) -> Option<Timestamp> {
        (self.expiry.at != NEVER).then(|| time(self.expiry.at))
    }

    /// The pod's own ceiling.
    pub fn own_ceiling(&self) -> Option<SignedDuration> {
        self.own.map(|own| SignedDuration::from_millis(own.get()))
    }

    /// True if it has outlived a pause of its workload, which wasn't ready.
    pub fn outlives(&self) -> bool {
        self.unready.as_ref().is_some_and(|unready| unready.paused)
    }

    /// The pods that an act on this one serves.
    pub fn due_key(&self, uid: Uid) -> DueKey {
        let controller = self.controller.filter(|_| !self.alone);
        let (uid, kind) = controller.map_or((uid, None), |of| (of.uid, Some(of.kind)));
        DueKey { namespace: self.namespace.clone(), uid, kind }
    }

    /// True if one act may serve this pod and another one of the same key.
    pub fn is_sibling(&self, other: &Self) -> bool {
        (self.expiry.at == NEVER) == (other.expiry.at == NEVER) && self.outlives() == other.outlives()
    }

    /// The progress of a task.
    pub fn step(&self, task: Task) -> Step {
        let step = match task {
            Task::Expire => Some(self.expiry.step),
            Task::Evict => self.unready.as_ref().map(|unready| unready.step),
            Task::Announce | Task::Withdraw => self.notice.as_ref().map(|notice| notice.step),
        };
        step.unwrap_or_default()
    }

    /// The pod as it is handed out at `now`, with a task that is due since an earlier time.
    pub fn due(&self, uid: Uid, task: Task, (since, now): (i64, i64)) -> DuePod {
        let told = self.notice.as_ref().and_then(|notice| notice.told);
        let until = self.unready.as_ref().and_then(|unready| unready.until.as_ref());
        let (family, queue, deadline) = match until {
            Some(of) if task == Task::Evict => (of.family, Some(&of.queue), milliseconds_up(of.at)),
            _ => (self.family, self.expiry.queue.as_ref(), self.expiry.at),
        };
        DuePod {
            uid,
            namespace: self.namespace.as_str().into(),
            name: self.name.as_ref().into(),
            family,
            queue: queue.map(ArcStr::as_str).unwrap_or_default().into(),
            deadline: time(deadline),
            since: time(since),
            handed_out: time(now),
            told: told.map(|told| time(told.get())),
            cause: until.map_or(Cause::WaitForStart, |until| until.cause),
            attempts: self.step(task).tries.in_vain(),
            outlives: self.outlives(),
        }
    }
}
