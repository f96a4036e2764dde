//! Pods that terminate, and the bound on the time that this takes: a pod chooses its grace period
//! itself, and could run on past its ceiling. The keeper's `Terminations` asks for the pods whose
//! grace period must be shortened, and its `EvidenceWriter` for those without evidence.

use jiff::{SignedDuration, Timestamp};
use tenure_policy::deletion::DeletionTimes;
use tenure_types::{evidence::Evidence, projection};

use super::{MissingEvidence, ObjectFacts, SeenPod};
use crate::{
    Uid,
    cluster::ClusterObjects,
    deadlines::{Deadlines, ManagedPod},
    uid::UidMap,
};

/// The least grace period that lets a kubelet end a pod in order.
const LEAST_GRACE: SignedDuration = SignedDuration::from_secs(1);

/// The pods that terminate and are in a queue, by uid.
#[derive(Debug, Default)]
pub struct Terminating(pub UidMap<Termination>);

/// A terminating pod, with the times of its deletion.
#[derive(Debug)]
pub struct Termination {
    pod: SeenPod,
    times: DeletionTimes,
}

/// The times of a pod past its ceiling that terminates for longer than is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlong {
    /// The rest of the pod's grace period, in whole seconds.
    pub left: SignedDuration,
    /// The rest that is allowed, in whole seconds: at least one, and less than `left`.
    pub allowed: SignedDuration,
}

impl Terminating {
    /// Adds, updates or removes the record of a pod's termination. Only a terminating pod that is
    /// in a queue, isn't exempt and hasn't ended has a record. `running` is the record of the pod
    /// while it ran: the pod's queue may be known from there alone, since its `PodGroup` may be
    /// deleted with the pod or before.
    pub fn apply(
        &mut self,
        objects: &mut ClusterObjects,
        (uid, pod): (Uid, &projection::Pod),
        running: Option<&ManagedPod>,
        is_exempt: bool,
    ) {
        let known = self.0.remove(&uid);
        let Some(times) = DeletionTimes::of(&pod.metadata) else { return };
        let is_over = pod.is_finished() || is_exempt;
        let known = known.as_ref().map(|known| &known.pod.pod).or(running);
        let seen = Some(pod).filter(|_| !is_over).and_then(|pod| SeenPod::read_by(pod, objects, known));
        let Some(pod) = seen else { return };
        self.0.insert(uid, Termination { pod, times });
    }

    /// Returns the record of a terminating pod.
    pub fn pod(&self, uid: Uid) -> Option<&ManagedPod> {
        Some(&self.0.get(&uid)?.pod.pod)
    }

    /// Returns a pod if it will terminate for longer than `longest`, counted from the later of two
    /// times: the end of its run, and the request for its deletion. None: it won't, or its run
    /// hasn't reached a ceiling.
    pub fn overlong(
        &self,
        objects: &mut ClusterObjects,
        uid: Uid,
        now: Timestamp,
        longest: SignedDuration,
    ) -> Option<ObjectFacts<Overlong>> {
        let of = self.0.get(&uid)?;
        let expired = of.expired_by(objects, now)?;
        let whole = |left: SignedDuration| SignedDuration::from_secs(left.as_secs());
        let until = of.times.asked.max(expired).checked_add(longest).ok()?;
        let left = whole(of.times.until.duration_since(now));
        let allowed = whole(until.duration_since(now)).max(LEAST_GRACE);
        let is_overlong = of.times.until > until && now < of.times.until && allowed < left;
        is_overlong.then(|| ObjectFacts::of_pod(uid, &of.pod.pod, Overlong { left, allowed }))
    }

    /// Returns the pods whose grace period is longer than `longest`, and that lack evidence of what
    /// ends their run. Fixes that first, as of a running pod: perhaps no keeper saw the pod run, and
    /// its `PodGroup`, or the pod that controls it, may go at any time.
    pub fn unnoted(
        &mut self,
        objects: &mut ClusterObjects,
        deadlines: &Deadlines,
        longest: SignedDuration,
    ) -> Vec<ObjectFacts<MissingEvidence>> {
        let unnoted = self.0.iter_mut().filter_map(|(uid, Termination { pod: seen, times })| {
            if times.until.duration_since(times.asked) <= longest {
                return None;
            }
            let standing = seen.standing_by(objects, None)?;
            let bounds_run = standing.expires.is_some();
            seen.pod.count_from(deadlines.driver(&seen.pod).and_then(|driver| driver.started));
            if !seen.fix(objects, standing) {
                return None;
            }
            // no readiness counts any more
            let evidence = Evidence { was_ready: false, ..seen.pod.evidence() };
            let facts = MissingEvidence { evidence, bounds_run, may_not_wait: true };
            Some(ObjectFacts::of_pod(*uid, &seen.pod, facts))
        });
        unnoted.collect()
    }

    /// Returns the number of pods past their ceiling whose grace period is over.
    pub fn past_end(&self, objects: &mut ClusterObjects, now: Timestamp) -> usize {
        self.0.values().filter(|of| of.times.until < now && of.expired_by(objects, now).is_some()).count()
    }
}

impl Termination {
    /// Returns the end of the run by the pod's ceiling. None: the end isn't past, or no ceiling
    /// applies.
    fn expired_by(&self, objects: &mut ClusterObjects, now: Timestamp) -> Option<Timestamp> {
        let (end, _) = self.pod.standing_by(objects, None)?.expires?;
        (end < now).then_some(end)
    }
}
