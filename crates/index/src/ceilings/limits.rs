//! The limits of a pod, by its queues, `PodGroup`s and owners. `CeilingIndex` calls this when it
//! plans a pod, and `SeenPod` when it computes a standing. The shortest ceiling counts: a workload's
//! own ceiling shortens its run, and never lengthens it.

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    expiry::{self, Clocks, Family, PerFamily},
    extension::Allowance,
    gang::GangShape,
    notice::NoticePoints,
    pod_group::{group_counts, is_shorter},
    ready::{NotReady, PodsReady},
};
use tenure_types::{ExtendedDuration, runai::v3alpha1::CountFrom};

use super::PodStanding;
use crate::{
    Uid,
    cluster::ClusterObjects,
    deadlines::{BoundRun, Ceiling, ManagedPod, PodDeadlines, ReadyUntil},
    own::{AnnotatedKind, IneffectiveReason, IneffectiveValue},
    owners::NotedCeiling,
    podgroups::{GroupFacts, GroupQueue, GroupWorkload, Membership},
    times::Milliseconds,
};

/// Computes the ceiling of a pod, the time by which its workload must be ready, and the facts to
/// fix while the pod is bound. `notice` and `pods_ready` are the configured rules, for queues that
/// set none. A pod whose own ceiling or queue seems to have no effect is marked for an event.
pub fn deadlines(
    objects: &mut ClusterObjects,
    notice: NoticePoints,
    pods_ready: Option<PodsReady>,
    uid: Uid,
    pod: &ManagedPod,
) -> PodDeadlines {
    let standing = standing(objects, uid, pod);
    if ignored_own(objects, &standing).is_some() || unknown_queue(objects, &standing).is_some() {
        objects.interner.own.doubt(&pod.namespace, uid);
    }
    let ready_until = ready_until(objects, pods_ready, pod, &standing);
    let must_be_ready = pods_ready_rules(objects, pods_ready, &standing).is_some();
    let ceiling = standing.expires.map(|(at, family)| {
        let queue = standing.queue(family).cloned();
        let limits = queue.as_deref().and_then(|queue| objects.limits(family, queue));
        let notice = limits.and_then(|limits| limits.nearest.notice).unwrap_or(notice);
        let since = standing.clocks.since(family);
        Ceiling { at, since, family, queue, notice }
    });
    let lacks_queue = lacks_queue(objects, &standing);
    let of = objects.gangs.shared_memberships(uid).unwrap_or_default();
    let run = bound_run(objects, pod, &of, standing, must_be_ready);
    PodDeadlines { ceiling, ready_until, lacks_queue, run }
}

/// Returns the facts to fix while a pod with this standing and these groups is bound.
pub fn bound_run(
    objects: &mut ClusterObjects,
    pod: &ManagedPod,
    of: &[Membership],
    standing: PodStanding,
    must_be_ready: bool,
) -> BoundRun {
    let is_ignored = ignored_own(objects, &standing).is_some();
    let PodStanding { mut queues, lending, own, start, is_grouped, expires, .. } = standing;
    let start = start.filter(|_| is_grouped);
    // no ceiling of T9k's queues counts from that start
    let counts_start = expires.is_some_and(|(_, family)| family == Family::Runai);
    // a PodGroup may name anything, of any length: a name that no queue has isn't kept, nor written
    // on pods
    for family in Family::ALL {
        queues[family].take_if(|queue| objects.limits(family, queue).is_none());
    }
    let lending = lending.into_iter().filter(|queue| queues[Family::Runai].as_ref() != Some(queue)).collect();
    let own = own.filter(|_| !is_ignored).or_else(|| pod.known_own());
    BoundRun {
        queues,
        lending,
        own,
        own_is_noted: own.is_some_and(|own| is_noted(objects, pod, of, own)),
        must_be_ready,
        group_start: start.filter(|_| counts_start && objects.gangs.knows_start(of)),
        shown_start: start.filter(|_| objects.gangs.shows_start(of)),
    }
}

/// True if the root owner of a pod, or a group of the pod, notes this ceiling.
fn is_noted(objects: &ClusterObjects, pod: &ManagedPod, of: &[Membership], own: SignedDuration) -> bool {
    objects.owners.own_ceiling(pod.controller) == Some(own) || objects.gangs.with_own(of, own).is_some()
}

/// True if a queue of a workload, or a queue on the path to the root, doesn't exist.
fn lacks_queue(objects: &mut ClusterObjects, standing: &PodStanding) -> bool {
    Family::ALL.into_iter().any(|family| {
        let limits = |queue: &ArcStr| objects.limits(family, queue);
        standing.queue(family).map(limits).is_some_and(|limits| limits.is_none_or(|of| of.lacks_parent))
    })
}

/// Returns the workload's own ceiling if it has no effect: all existing queues of the pod have a
/// shorter ceiling. None: there is no own ceiling, or it counts.
pub fn ignored_own(objects: &mut ClusterObjects, standing: &PodStanding) -> Option<SignedDuration> {
    let own = standing.own?;
    let limits = Family::ALL.into_iter().filter_map(|family| objects.limits(family, standing.queue(family)?));
    let ceilings: Vec<_> = limits.map(|limits| limits.ceiling).collect();
    let is_longer =
        |ceiling: &Option<ExtendedDuration>| ceiling.is_some_and(|ceiling| ceiling.to_signed() < own);
    (!ceilings.is_empty() && ceilings.iter().all(is_longer)).then_some(own)
}

/// Returns the queue that a pod names and that doesn't exist. None: the pod names no such queue, or
/// the default queue counts in its place.
fn unknown_queue(objects: &mut ClusterObjects, standing: &PodStanding) -> Option<(Family, ArcStr)> {
    Family::ALL.into_iter().find_map(|family| {
        let queue = standing.queue(family)?;
        objects.limits(family, queue).is_none().then(|| (family, queue.clone()))
    })
}

/// Returns the note about a queue that doesn't exist, for the workload of a pod. None: the pod's
/// queues exist.
pub fn without_queue(objects: &mut ClusterObjects, uid: Uid, pod: &ManagedPod) -> Option<IneffectiveValue> {
    let standing = standing(objects, uid, pod);
    let (family, queue) = unknown_queue(objects, &standing)?;
    let workload = objects.owners.root(pod.controller).unwrap_or(uid);
    let (namespace, name) = (pod.namespace.to_string(), pod.name.to_string());
    let why = IneffectiveReason::UnknownQueue { family, queue: queue.to_string() };
    Some(IneffectiveValue { bearer: AnnotatedKind::Pod, namespace, name, uid: workload, why, failures: 0 })
}

/// Returns the note about an own ceiling that is longer than that of the pod's queue. The note
/// names the object that bears the ceiling: the root owner, a `PodGroup` or the pod. None: the own
/// ceiling counts, or no object bears it any more.
pub fn ineffective(objects: &mut ClusterObjects, uid: Uid, pod: &ManagedPod) -> Option<IneffectiveValue> {
    let standing = standing(objects, uid, pod);
    let own = ignored_own(objects, &standing)?;
    // any user may name an owner of another namespace as the controller of a pod
    let is_here = |of: &NotedCeiling| of.namespace.is_empty() || *of.namespace == *pod.namespace;
    let root = objects.owners.root_with_own(pod.controller);
    let root = root.filter(|(.., noted)| noted.ceiling == own && is_here(noted));
    let (bearer, uid, namespace, name) = if let Some((uid, source, noted)) = root {
        (AnnotatedKind::Owner(source), uid, noted.namespace.to_string(), noted.name.to_string())
    } else if let Some(of) = objects.gangs.with_own(objects.gangs.memberships(uid), own) {
        let GroupWorkload { key, group, .. } = of;
        (
            AnnotatedKind::PodGroup(key.kind),
            Uid::of(&group.uid),
            key.namespace.to_string(),
            key.name.to_string(),
        )
    } else if pod.notes(own) {
        (AnnotatedKind::Pod, uid, pod.namespace.to_string(), pod.name.to_string())
    } else {
        return None;
    };
    let why = IneffectiveReason::Longer { own, ceiling: standing.ceiling(objects.trees())? };
    Some(IneffectiveValue { bearer, namespace, name, uid, why, failures: 0 })
}

/// Returns the time by which the workload of a pod must be ready. A pod that takes no room may
/// wait, unless the time counts from its creation. None: there is no such time.
pub fn ready_until(
    objects: &mut ClusterObjects,
    pods_ready: Option<PodsReady>,
    pod: &ManagedPod,
    standing: &PodStanding,
) -> Option<ReadyUntil> {
    let (family, queue) = standing.first_queue()?;
    let rules = pods_ready_rules(objects, pods_ready, standing)?;
    if rules.count_from == CountFrom::Scheduled {
        pod.started?;
    }
    let alone = || NotReady::of(GangShape::alone(), &[pod.live_pod()], None);
    let lacking = if standing.is_grouped { standing.lacking } else { alone() };
    let (at, cause) = rules.deadline(lacking?)?;
    // pods may name any queue: counters have only queues that exist
    let is_known = objects.limits(family, queue).is_some();
    let queue = if is_known { queue.clone() } else { ArcStr::new() };
    Some(ReadyUntil { at, cause, family, queue })
}

/// Returns the rules for a workload that doesn't get ready. None: the workload may take any time.
fn pods_ready_rules(
    objects: &mut ClusterObjects,
    pods_ready: Option<PodsReady>,
    standing: &PodStanding,
) -> Option<PodsReady> {
    let (family, queue) = standing.first_queue()?;
    let nearest = objects.limits(family, queue).and_then(|limits| limits.nearest.pods_ready);
    PodsReady::applying(nearest, pods_ready)
}

/// The queues that count for a pod in a family.
#[derive(Default)]
struct CountingQueues {
    /// The queue in which schedulers place the pod: the one that its label or group names, or the
    /// default queue in its place. None: neither names one.
    placed: Option<ArcStr>,
    /// The name that the pod gives, if the default queue counts in its place.
    by_default: Option<ArcStr>,
    /// The queue that ends the run: the one that the pod names. A queue that was fixed when the pod
    /// was bound, or that evidence names, counts instead if its ceiling is shorter, or if nothing
    /// else names one.
    ending: Option<ArcStr>,
    /// The queues that allow least beyond the ceiling, of all that the run has had. A queue with a
    /// short ceiling may allow much more time than others.
    lending: Vec<ArcStr>,
    /// The least that these queues allow.
    allowance: Allowance,
}

/// Finds the queues that count for a pod in a family.
fn counting_queues(
    objects: &mut ClusterObjects,
    family: Family,
    pod: &ManagedPod,
    of_group: Option<&GroupQueue<ArcStr>>,
) -> CountingQueues {
    let placed = named_queue(family, pod, of_group, |_, _| false);
    let placed = placed.map(|name| objects.bound(family, name));
    let name = named_queue(family, pod, of_group, |of_group, own| {
        let mut ceiling = |queue: &ArcStr| {
            let queue = objects.bound(family, queue.clone());
            objects.limits(family, &queue).and_then(|limits| limits.ceiling)
        };
        is_shorter(ceiling(of_group), ceiling(own))
    });
    let named = name.clone().map(|name| objects.bound(family, name));
    let by_default = name.filter(|name| named.as_ref() != Some(name));
    let [known, noted] = pod.fixed_queues(family);
    // the queue that was fixed is forgotten once it is gone
    let known = known.filter(|queue| objects.limits(family, queue).is_some());
    let mut ceiling = |queue: &str| objects.limits(family, queue).and_then(|limits| limits.ceiling);
    let ending = known.into_iter().chain(noted).fold(named.clone(), |queue, fixed| match queue {
        Some(queue) if !is_shorter(ceiling(fixed), ceiling(&queue)) => Some(queue),
        _ => Some(fixed.clone()),
    });
    let all =
        ending.iter().chain(&placed).chain(&named).chain(known).chain(noted).chain(pod.lending_queues());
    let allowed = all.filter_map(|queue| Some((objects.limits(family, queue)?.extensions, queue)));
    let allowed: Vec<(Allowance, &ArcStr)> = allowed.collect();
    let allowance = allowed.iter().map(|(allowance, _)| *allowance).reduce(Allowance::least);
    // one queue for each value. If several allow as little, a queue that needn't be remembered comes
    // first, else the first by name: a later call with the remembered queues finds the same ones
    let rank = |queue: &ArcStr| {
        (![&ending, &pod.queues[family]].into_iter().flatten().any(|of| of == queue), queue.clone())
    };
    let least = [
        allowed.iter().min_by_key(|(of, queue)| (of.max_total, rank(queue))),
        allowed.iter().min_by_key(|(of, queue)| (of.auto_approve, rank(queue))),
        allowed.iter().min_by_key(|(of, queue)| (of.max_count.unwrap_or(u32::MAX), rank(queue))),
    ];
    let lending = least.into_iter().flatten().map(|(_, queue)| (*queue).clone()).collect();
    CountingQueues { placed, by_default, ending, lending, allowance: allowance.unwrap_or_default() }
}

/// Returns the queue that a pod names: the queue of its group if the group [counts](group_counts),
/// else that of its label. `late` is asked with both if the group was created too late.
fn named_queue(
    family: Family,
    pod: &ManagedPod,
    of_group: Option<&GroupQueue<ArcStr>>,
    late: impl FnOnce(&ArcStr, &ArcStr) -> bool,
) -> Option<ArcStr> {
    let own = pod.queues[family].as_ref();
    let (Some((name, made)), Some(own)) = (of_group, own) else {
        return of_group.map(|(name, _)| name).or(own).cloned();
    };
    let late = || late(name, own);
    let counts = group_counts(made.map(Milliseconds::get), pod.started.map(Milliseconds::get), late);
    Some(if counts { name.clone() } else { own.clone() })
}

/// Computes the standing of a pod that is kept.
pub fn standing(objects: &mut ClusterObjects, uid: Uid, pod: &ManagedPod) -> PodStanding {
    let of_groups = objects.gangs.of(objects.gangs.memberships(uid));
    let root = objects.owners.own_ceiling(pod.controller);
    standing_below(objects, root, (uid, pod), of_groups)
}

/// Computes the standing of a pod whose root owner notes the ceiling `root`. None: that owner notes
/// none.
pub fn standing_below(
    objects: &mut ClusterObjects,
    root: Option<SignedDuration>,
    (uid, pod): (Uid, &ManagedPod),
    of_groups: GroupFacts,
) -> PodStanding {
    let own = [root, pod.own_ceiling(), of_groups.own].into_iter().flatten().min();
    let GroupFacts { queues: of, own: _, is_grouped, start, lacking } = of_groups;
    let mut counting = PerFamily::new(|family| counting_queues(objects, family, pod, of[family].as_ref()));
    let queues = PerFamily::new(|family| counting[family].ending.take());
    let placed = PerFamily::new(|family| counting[family].placed.take());
    let by_default = PerFamily::new(|family| counting[family].by_default.take());
    let CountingQueues { lending, allowance, .. } = std::mem::take(&mut counting[Family::Runai]);
    // a pod that names no queue of a family has no ceiling there, not even its own
    let limits = PerFamily::new(|family| objects.limits(family, queues[family].as_deref()?));
    let alone = pod.clocks();
    // the run counts from the pod's own scheduling at the latest: a group can't move its end
    // further
    let clocks = Clocks { started: start.into_iter().chain(alone.started).min(), ..alone };
    let began = start.into_iter().chain(pod.began()).min();
    let start = if is_grouped { start } else { pod.scheduled() };
    let granted = extension(objects, (uid, pod), allowance, began);
    let end_with = |own: Option<SignedDuration>| {
        let mut ceilings = PerFamily::new(|family| {
            limits[family]?.ceiling.map(ExtendedDuration::to_signed).into_iter().chain(own).min()
        });
        ceilings[Family::Runai] = ceilings[Family::Runai].map(|ceiling| ceiling.saturating_add(granted));
        expiry::deadline(clocks, ceilings)
    };
    let (expires, expires_by_queue) = (end_with(own), end_with(None));
    let is_extended = matches!(expires, Some((_, Family::Runai)));
    let extension = if is_extended { granted } else { SignedDuration::ZERO };
    PodStanding {
        clocks,
        began,
        start,
        is_grouped,
        queues,
        placed,
        by_default,
        lending,
        allowance,
        own,
        extension,
        expires,
        expires_by_queue,
        lacking,
    }
}

/// Returns the granted time beyond the ceiling of a pod's run, which began at `began`, as far as its
/// queues allow.
fn extension(
    objects: &ClusterObjects,
    (uid, pod): (Uid, &ManagedPod),
    allowance: Allowance,
    began: Option<Timestamp>,
) -> SignedDuration {
    if objects.grants.is_empty() || allowance.is_none() {
        return SignedDuration::ZERO;
    }
    let workload = objects.owners.root(pod.controller).unwrap_or(uid);
    let granted = |began| objects.grants.of(workload, &pod.namespace, began);
    began.map(|began| allowance.total(granted(began))).unwrap_or_default()
}
