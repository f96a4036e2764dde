//! The record of a pod in a queue. `Deadlines` keeps one for each pod, and the standing of a pod is
//! computed from it.
//!
//! A pod may change or lose the objects that end its run. So the queues, the workload's own ceiling
//! and the start that were known while it was bound are fixed in its record. They are also written
//! on the pod as evidence, for the next keeper.

use std::collections::BTreeSet;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::{Clocks, Family, PerFamily, claimed, own_ceiling},
    marks::Marks,
    ready::{Cause, LivePod},
};
use tenure_types::{
    ExtendedDuration, duration::for_people, evidence::Evidence, podgroup::LONGEST_NAME, projection,
};

use super::{
    due::{DueKey, DuePod, Task},
    expiry::{Expiry, ReadyNote, Unready},
    notice::NoticeProgress,
    order::TaskProgress,
};
use crate::{
    Uid,
    names::Interner,
    own::AnnotatedKind,
    owners::Controller,
    shown_ends::shown_end,
    times::{Milliseconds, NEVER, PodReadiness, in_time, milliseconds, milliseconds_up, time},
};

/// A pod in a queue, in a few hundred bytes. Times are in milliseconds since the epoch.
#[derive(Debug)]
pub struct ManagedPod {
    pub name: Box<str>,
    pub namespace: ArcStr,
    /// The queue that the pod names itself in each family. The queue of its `PodGroup` counts, if
    /// there is such a group.
    pub queues: PerFamily<Option<ArcStr>>,
    /// The controller that the pod names. A tenant may name any.
    pub controller: Option<Controller>,
    /// The ceiling that the pod itself notes, as a duration in milliseconds.
    pub own: Option<Milliseconds>,
    /// The facts that were fixed while the pod was bound, and the evidence on the pod. None: other
    /// objects show all that ends its run.
    fixed: Option<Box<FixedRun>>,
    pub created: i64,
    /// The earliest scheduling that the pod has shown since it is kept. None: the pod isn't bound.
    pub started: Option<Milliseconds>,
    pub readiness: PodReadiness,
    /// True if the pod now shows a later scheduling than `started`. A pod that was created with its
    /// node shows its binding later, and its user may delay that.
    pub hides_start: bool,
    /// The evidence that the pod was ready.
    ready_note: ReadyNote,
    /// The family whose ceiling counts, or did.
    pub family: Family,
    pub expiry: Expiry,
    /// The progress of the pod's notice. None: no notice is planned, and none was given.
    pub notice: Option<Box<NoticeProgress>>,
    /// The progress of the pod's eviction. None: the workload is ready, or may take any time.
    pub unready: Option<Box<Unready>>,
    /// True if an act on the pod serves no other pod of its controller.
    pub alone: bool,
    /// The state of the pod's marks for autoscalers.
    pub marks: Marks,
    /// The end of the run that the pod shows. A tenant may have written it.
    pub shown_end: Option<Milliseconds>,
    /// True if the pod names an owner whose pods are never touched. Any user may name one, so the
    /// pod's ceiling holds until that owner is found; but the pod isn't counted as a workload.
    pub claims_exemption: bool,
}

/// The facts that end the run of a bound pod: as they were computed, and as the evidence on the pod
/// shows them.
#[derive(Clone, Debug, Default)]
struct FixedRun {
    known: RunLimits,
    noted: RunLimits,
}

/// The facts that end a run.
#[derive(Clone, Debug, Default, PartialEq)]
struct RunLimits {
    /// The queues that the pod's labels don't name. If the pod hides its start, those of its labels,
    /// too. They count unless another queue ends the run earlier.
    queues: PerFamily<Option<ArcStr>>,
    /// The queues of the run.ai family whose extensions count, where another queue ends the run.
    lending: BTreeSet<ArcStr>,
    /// The least ceiling that the workload has noted itself, as a duration in milliseconds.
    own: Option<Milliseconds>,
    /// An earlier start of the run: that of the pod that controls this one, or did. As evidence, also
    /// one that the pod itself has shown.
    since: Option<Milliseconds>,
    /// The start of the pod's group, rounded up, if that is earlier than the pod's own scheduling.
    group_start: Option<Milliseconds>,
}

/// The facts about the run of a bound pod that don't move its end later from now on.
#[derive(Clone, Debug, Default)]
pub struct BoundRun {
    /// The queues of the pod that exist.
    pub queues: PerFamily<Option<ArcStr>>,
    /// The queues of the run.ai family that allow the least extensions, but for the one that ends the
    /// run.
    pub lending: BTreeSet<ArcStr>,
    /// The least ceiling that the workload notes. None: the workload notes none that ends the run.
    pub own: Option<SignedDuration>,
    /// True if another object notes that ceiling.
    pub own_is_noted: bool,
    /// True if the workload has to be ready. Then it counts whether the pod was.
    pub must_be_ready: bool,
    /// The start of the pod's group, if that ends the run. None: no ceiling counts from it, or it may
    /// be the start of an earlier run.
    pub group_start: Option<Timestamp>,
    /// The start that the pod's group shows to a later keeper, too. None: it shows none.
    pub shown_start: Option<Timestamp>,
}

impl ManagedPod {
    /// Reads a pod. `known` is the earlier record of the pod. None: the pod is in no queue.
    pub fn read(pod: &projection::Pod, interner: &mut Interner, known: Option<&Self>) -> Option<Self> {
        let mut read = Self {
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            namespace: interner.names.shared(pod.metadata.namespace.as_deref().unwrap_or_default()),
            queues: PerFamily::default(),
            controller: None,
            own: None,
            fixed: known.and_then(|known| known.fixed.clone()),
            created: pod.metadata.creation_timestamp.as_ref()?.0.as_millisecond(),
            started: known.and_then(|known| known.started),
            readiness: PodReadiness::of(pod, known.map(|known| known.readiness)),
            hides_start: false,
            ready_note: ReadyNote::None,
            family: Family::Runai,
            expiry: Expiry::default(),
            notice: None,
            unready: None,
            alone: false,
            marks: Marks::of(&pod.metadata),
            shown_end: None,
            claims_exemption: false,
        };
        read.update(pod, interner).then_some(read)
    }

    /// Updates the fields that can change. Returns true if the pod is still in a queue. Facts that
    /// were fixed are kept only while the pod stays bound.
    pub fn update(&mut self, pod: &projection::Pod, interner: &mut Interner) -> bool {
        let Interner { kinds, names, own, kueue_queues } = interner;
        let mut shared = |name: Option<&str>| {
            name.filter(|name| (1..=LONGEST_NAME).contains(&name.len())).map(|name| names.shared(name))
        };
        self.queues = PerFamily::new(|family| shared(kueue_queues.queue_of(family, pod)));
        let shown = pod.scheduled_at().and_then(|time| milliseconds(time.0));
        let stays_bound = self.started.is_some() && shown.is_some();
        self.started = shown.and(Milliseconds::earliest(self.started, shown));
        self.hides_start = self.started != shown;
        self.readiness = PodReadiness::of(pod, Some(self.readiness));
        self.controller = pod.controller().map(|owner| Controller::read(owner, kinds));
        self.claims_exemption = claimed(pod).is_some();
        self.marks = Marks::of(&pod.metadata);
        self.shown_end = shown_end(&pod.metadata);
        let Evidence { queues, extensions, max_duration, since, group_start, was_ready } =
            Evidence::of(&pod.metadata);
        self.ready_note = ReadyNote::of(pod, self.readiness, was_ready);
        self.own = in_milliseconds(own.read(AnnotatedKind::Pod, &pod.metadata));
        let noted = RunLimits {
            queues: PerFamily::new(|family| shared(queues.get(family.row().group).map(String::as_str))),
            // each names the least of one value
            lending: extensions.iter().take(3).filter_map(|name| shared(Some(name))).collect(),
            own: in_milliseconds(
                max_duration.and_then(|text| own_ceiling(&text).counts).map(ExtendedDuration::to_signed),
            ),
            since: since.and_then(milliseconds),
            group_start: group_start.and_then(milliseconds),
        };
        self.fixed.take_if(|_| !stays_bound);
        if noted != RunLimits::default() || self.fixed.is_some() {
            self.fixed.get_or_insert_default().noted = noted;
        }
        let is_in = |family: Family| {
            let named = self.queues[family].as_ref().or_else(|| self.fixed(family));
            named.is_some() || family.row().groups.named_by(pod).is_some()
        };
        Family::ALL.into_iter().any(is_in)
    }

    /// Fixes the present queues of a bound pod, its workload's own ceiling and its group's start.
    /// Returns true if the pod lacks evidence of them, or of its readiness.
    pub fn fix(&mut self, run: BoundRun) -> bool {
        let BoundRun { queues: mut now, lending, own, own_is_noted, must_be_ready, group_start, shown_start } =
            run;
        let Some(started) = self.started else { return false };
        let FixedRun { known, noted } = self.fixed.take().map(|fixed| *fixed).unwrap_or_default();
        // a label alone doesn't count where a group names another queue. To a later keeper, a group
        // that was created after a hidden start doesn't look late
        let queues = PerFamily::new(|family| {
            let counts = self.hides_start || known.queues[family].is_some();
            now[family].take().filter(|of| counts || Some(of) != self.queues[family].as_ref())
        });
        let label = self.queues[Family::Runai].as_ref();
        let lending: BTreeSet<ArcStr> = lending.into_iter().filter(|of| Some(of) != label).collect();
        let own = in_milliseconds(own);
        let lacks_lending = !lending.is_empty() && lending != noted.lending;
        let lacks = |family: Family| queues[family].is_some() && queues[family] != noted.queues[family];
        let lacks_own = own.is_some() && !own_is_noted && own != self.own && own != noted.own;
        let lacks_ready = must_be_ready && self.ready_note == ReadyNote::Lacking;
        let [of_group, shown] = [group_start, shown_start]
            .map(|start| start.and_then(|at| Milliseconds::new(milliseconds_up(at))));
        let earlier = of_group.filter(|at| at.get() < started.get());
        let group_start = Milliseconds::earliest(known.group_start, earlier);
        let lacks_start = group_start.is_some_and(|start| {
            [shown, noted.group_start].into_iter().flatten().all(|other| start.get() < other.get())
        });
        let lacks_run = lacks_own || lacks_ready || lacks_lending || lacks_start;
        let lacks_evidence = lacks_run || Family::ALL.into_iter().any(lacks);
        let known = RunLimits { queues, lending, own, since: known.since, group_start };
        if known != RunLimits::default() || noted != RunLimits::default() {
            self.fixed = Some(Box::new(FixedRun { known, noted }));
        }
        lacks_evidence
    }

    /// Returns the queue of a family that was fixed for a bound pod, and the queue that it has
    /// evidence of. Neither: the pod's label or `PodGroup` names its queue.
    pub fn fixed_queues(&self, family: Family) -> [Option<&ArcStr>; 2] {
        let of = |run: fn(&FixedRun) -> &RunLimits| run(self.fixed.as_deref()?).queues[family].as_ref();
        [of(|fixed| &fixed.known), of(|fixed| &fixed.noted)]
    }

    /// Returns the queues of the run.ai family whose extensions count beside those of the queues that
    /// the pod names or that were fixed: the one that is known, and the one that it has evidence of.
    pub fn lending_queues(&self) -> impl Iterator<Item = &ArcStr> {
        let fixed = self.fixed.as_deref();
        fixed.into_iter().flat_map(|FixedRun { known, noted }| known.lending.iter().chain(&noted.lending))
    }

    /// Returns the queues whose extensions count, as evidence has them: as they were computed, else as
    /// the pod shows them.
    fn lending(&self) -> impl Iterator<Item = &ArcStr> {
        let fixed = self.fixed.as_deref();
        fixed.into_iter().flat_map(
            |FixedRun { known, noted }| {
                if known.lending.is_empty() { &noted.lending } else { &known.lending }
            },
        )
    }

    fn fixed(&self, family: Family) -> Option<&ArcStr> {
        self.fixed_queues(family).into_iter().flatten().next()
    }

    /// Returns the evidence of a bound pod, as it is to be written.
    pub fn evidence(&self) -> Evidence {
        let queue = |family: Family| Some((family.row().group.to_owned(), self.fixed(family)?.to_string()));
        Evidence {
            queues: Family::ALL.into_iter().filter_map(queue).collect(),
            extensions: self.lending().map(ToString::to_string).collect(),
            max_duration: self.fixed_own().map(in_time_span).map(for_people),
            since: in_time(self.since()),
            group_start: in_time(self.group_start()),
            was_ready: self.ready_note != ReadyNote::None,
        }
    }

    /// True if evidence says what ends the run.
    pub fn is_bounded_by_evidence(&self) -> bool {
        let without_readiness = Evidence { was_ready: false, ..self.evidence() };
        self.end().is_some() && without_readiness != Evidence::default()
    }

    /// Allows another try of the tasks that had a final outcome under the last controller.
    pub fn revive(&mut self) {
        self.expiry.step.tries.revive();
        if let Some(unready) = &mut self.unready {
            unready.step.tries.revive();
        }
    }

    /// Returns the pod as a part of its workload. The subgroup is 0, as that of a pod without a
    /// group.
    pub fn live_pod(&self) -> LivePod {
        let created = time(self.created);
        LivePod { subgroup: 0, created, scheduled: self.scheduled(), readiness: self.readiness.get() }
    }

    /// Returns the earliest scheduling that the pod has shown. None: the pod isn't bound.
    pub fn scheduled(&self) -> Option<Timestamp> {
        in_time(self.started)
    }

    /// Returns the start of a bound pod's run if the pod is in no `PodGroup`, without the evidence on
    /// the pod: a tenant may have written that.
    pub fn began(&self) -> Option<Timestamp> {
        let known = self.fixed.as_deref().map(|fixed| &fixed.known);
        let earlier = known.and_then(|known| Milliseconds::earliest(known.since, known.group_start));
        in_time(Milliseconds::earliest(Some(self.started?), earlier))
    }

    /// Returns the clocks that ceilings run by if the pod is in no `PodGroup`. The clocks of a bound
    /// pod begin no later than the run of the pod that controls it, and no later than the pod itself
    /// has shown before. A pod that has joined a group late keeps the group's start, which no ceiling
    /// of T9k's queues counts from.
    pub fn clocks(&self) -> Clocks {
        let (created, started) = (time(self.created), self.scheduled());
        let since = in_time(self.since().filter(|_| started.is_some()));
        let earliest = |own: Timestamp| since.map_or(own, |since| since.min(own));
        let of_group = in_time(self.group_start());
        let started =
            started.map(|own| of_group.map_or(earliest(own), |of_group| earliest(own).min(of_group)));
        Clocks { created: earliest(created), started }
    }

    /// Counts the run of a bound pod from the scheduling of the pod that controls it, if that is
    /// earlier. Returns true if this moves the end.
    pub fn count_from(&mut self, start: Option<Milliseconds>) -> bool {
        let Some(from) = start.filter(|of| self.started.is_some_and(|own| of.get() < own.get())) else {
            return false;
        };
        let known = &mut self.fixed.get_or_insert_default().known.since;
        let earliest = Milliseconds::earliest(*known, Some(from));
        std::mem::replace(known, earliest) != earliest
    }

    /// True if the run counts from an earlier start that the pod doesn't show, and neither its
    /// evidence nor the pod that controls it does. `driver`: the scheduling that this other pod shows.
    pub fn lacks_since(&self, driver: Option<Milliseconds>) -> bool {
        self.known_since().is_some_and(|known| {
            [self.noted_since(), driver].into_iter().flatten().all(|shown| shown.get() > known.get())
        })
    }

    fn known_since(&self) -> Option<Milliseconds> {
        let of_driver = self.fixed.as_deref().and_then(|fixed| fixed.known.since);
        Milliseconds::earliest(of_driver, self.started.filter(|_| self.hides_start))
    }

    fn noted_since(&self) -> Option<Milliseconds> {
        self.fixed.as_deref()?.noted.since
    }

    fn since(&self) -> Option<Milliseconds> {
        Milliseconds::earliest(self.known_since(), self.noted_since())
    }

    fn group_start(&self) -> Option<Milliseconds> {
        let FixedRun { known, noted } = self.fixed.as_deref()?;
        Milliseconds::earliest(known.group_start, noted.group_start)
    }

    /// Returns the end of the run, rounded up to a millisecond. None: no ceiling applies.
    pub fn end(&self) -> Option<Timestamp> {
        (self.expiry.at != NEVER).then(|| time(self.expiry.at))
    }

    /// Returns the pod's own ceiling: the least of the ceilings that the pod notes, that were
    /// fixed, or that evidence names.
    pub fn own_ceiling(&self) -> Option<SignedDuration> {
        self.own.into_iter().chain(self.fixed_own()).map(in_time_span).min()
    }

    /// True if the pod itself notes this ceiling.
    pub fn notes(&self, own: SignedDuration) -> bool {
        self.own.map(in_time_span) == Some(own)
    }

    /// Returns the least ceiling that the workload has noted so far. None: it has noted none that
    /// ended the run.
    pub fn known_own(&self) -> Option<SignedDuration> {
        self.fixed.as_ref()?.known.own.map(in_time_span)
    }

    fn fixed_own(&self) -> Option<Milliseconds> {
        let FixedRun { known, noted } = self.fixed.as_deref()?;
        Milliseconds::earliest(known.own, noted.own)
    }

    /// True if the pod has outlived a pause of its workload, which wasn't ready.
    pub fn outlives(&self) -> bool {
        self.unready.as_ref().is_some_and(|unready| unready.paused)
    }

    /// Returns the time by which the workload must be ready. None: the workload is ready, or may
    /// take any time.
    pub fn ready_by(&self) -> Option<Timestamp> {
        Some(self.unready.as_ref()?.until.as_ref()?.at)
    }

    /// Returns the key of the pods that an act on this pod serves: those of its controller, or the
    /// pod alone.
    pub fn due_key(&self, uid: Uid) -> DueKey {
        let controller = self.controller.filter(|_| !self.alone);
        let (uid, kind) = controller.map_or((uid, None), |of| (of.uid, Some(of.kind)));
        DueKey { namespace: self.namespace.clone(), uid, kind }
    }

    /// True if one act may serve this pod and another pod of the same key.
    pub fn is_sibling(&self, other: &Self) -> bool {
        (self.expiry.at == NEVER) == (other.expiry.at == NEVER) && self.outlives() == other.outlives()
    }

    /// Returns the progress of a task. The default: there has been none.
    pub fn step(&self, task: Task) -> TaskProgress {
        let step = match task {
            Task::Expire => Some(self.expiry.step),
            Task::Evict => self.unready.as_ref().map(|unready| unready.step),
            Task::Announce | Task::Withdraw => self.notice.as_ref().map(|notice| notice.step),
            Task::Note => None,
        };
        step.unwrap_or_default()
    }

    /// Returns the pod as it is handed out at `now`, with a task that is due since an earlier time.
    pub fn due(&self, uid: Uid, task: Task, (since, now): (i64, i64)) -> DuePod {
        let announced_end = self.notice.as_ref().and_then(|notice| notice.announced_end);
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
            announced_end: announced_end.map(|end| time(end.get())),
            cause: until.map_or(Cause::WaitForStart, |until| until.cause),
            attempts: self.step(task).tries.in_vain(),
            outlives: self.outlives(),
        }
    }
}

/// Returns a ceiling in milliseconds. None: there is none, or it is too long for the type.
fn in_milliseconds(own: Option<SignedDuration>) -> Option<Milliseconds> {
    Milliseconds::new(own?.as_millis().try_into().unwrap_or(NEVER))
}

const fn in_time_span(own: Milliseconds) -> SignedDuration {
    SignedDuration::from_millis(own.get())
}
