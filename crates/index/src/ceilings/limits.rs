//! The limits of a pod, by its queues, `PodGroup`s and owners.

use arcstr::ArcStr;
use jiff::SignedDuration;
use tenure_policy::{
    expiry::{self, Clocks, Family, PerFamily},
    gang::Shape,
    notice::NoticePoints,
    pod_group::{group_counts, is_shorter},
    ready::{NotReady, PodsReady},
};
use tenure_types::{ExtendedDuration, runai::v3alpha1::CountFrom};

use super::Standing;
use crate::{
    Uid,
    cluster::Objects,
    deadlines::{BoundRun, Ceiling, ManagedPod, PodDeadlines, ReadyUntil},
    own::{Bearer, Ineffective, NoEffect},
    podgroups::{GroupQueue, GroupWorkload, OfGroups},
    times::Milliseconds,
};

/// When something is to be done about a pod. `notice` and `pods_ready` are the rules where queues don't say.
pub fn deadlines(
    objects: &mut Objects,
    notice: NoticePoints,
    pods_ready: Option<PodsReady>,
    uid: Uid,
    pod: &ManagedPod,
) -> PodDeadlines {
    let standing = standing(objects, uid, pod);
    let is_ignored = ignored_own(objects, &standing).is_some();
    if is_ignored || unknown_queue(objects, &standing).is_some() {
        objects.interner.own.doubt(uid);
    }
    let ready_until = ready_until(objects, pods_ready, pod, &standing);
    let must_be_ready = rules(objects, pods_ready, &standing).is_some();
    let ceiling = standing.expires.map(|(at, family)| {
        let queue = standing.queue(family).cloned();
        let limits = queue.as_deref().and_then(|queue| objects.limits(family, queue));
        let notice = limits.and_then(|limits| limits.nearest.notice).unwrap_or(notice);
        let since = standing.clocks.since(family);
        Ceiling { at, since, family, queue, notice }
    });
    let lacks_queue = lacks_queue(objects, &standing);
    let Standing { mut queues, own, .. } = standing;
    // a PodGroup may name anything, of any length: what no queue has for a name isn't kept, nor written on pods
    for family in Family::ALL {
        queues[family].take_if(|queue| objects.limits(family, queue).is_none());
    }
    let own = own.filter(|_| !is_ignored).or_else(|| pod.known_own());
    let own_is_noted = own.is_some_and(|own| {
        objects.owners.own_ceiling(pod.controller) == Some(own)
            || objects.gangs.with_own(objects.gangs.memberships(uid), own).is_some()
    });
    let run = BoundRun { queues, own, own_is_noted, must_be_ready };
    PodDeadlines { ceiling, ready_until, lacks_queue, run }
}

/// True if a queue of a workload, or one on its way to the root, isn't there.
fn lacks_queue(objects: &mut Objects, standing: &Standing) -> bool {
    Family::ALL.into_iter().any(|family| {
        let limits = |queue: &ArcStr| objects.limits(family, queue);
        standing.queue(family).map(limits).is_some_and(|limits| limits.is_none_or(|of| of.lacks_parent))
    })
}

/// The workload's own ceiling, if it is longer than that of the queue, of two queues the longer: it shortens nothing.
pub fn ignored_own(objects: &mut Objects, standing: &Standing) -> Option<SignedDuration> {
    let own = standing.own?;
    let limits = Family::ALL.into_iter().filter_map(|family| objects.limits(family, standing.queue(family)?));
    let ceilings: Vec<_> = limits.map(|limits| limits.ceiling).collect();
    let is_longer =
        |ceiling: &Option<ExtendedDuration>| ceiling.is_some_and(|ceiling| ceiling.to_signed() < own);
    (!ceilings.is_empty() && ceilings.iter().all(is_longer)).then_some(own)
}

/// The queue that a pod names and that doesn't exist. None: it names none, or the default queue counts in its place.
fn unknown_queue(objects: &mut Objects, standing: &Standing) -> Option<(Family, ArcStr)> {
    Family::ALL.into_iter().find_map(|family| {
        let queue = standing.queue(family)?;
        objects.limits(family, queue).is_none().then(|| (family, queue.clone()))
    })
}

/// The note of a queue that doesn't exist, for the workload of a pod.
pub fn without_queue(objects: &mut Objects, uid: Uid, pod: &ManagedPod) -> Option<Ineffective> {
    let standing = standing(objects, uid, pod);
    let (family, queue) = unknown_queue(objects, &standing)?;
    let workload = objects.owners.root(pod.controller).unwrap_or(uid);
    let (namespace, name) = (pod.namespace.to_string(), pod.name.to_string());
    let why = NoEffect::UnknownQueue { family, queue: queue.to_string() };
    Some(Ineffective { bearer: Bearer::Pod, namespace, name, uid: workload, why })
}

/// The note of an own ceiling that is longer than that of the pod's queue.
pub fn ineffective(objects: &mut Objects, uid: Uid, pod: &ManagedPod) -> Option<Ineffective> {
    let standing = standing(objects, uid, pod);
    let own = ignored_own(objects, &standing)?;
    let root = objects.owners.root_with_own(pod.controller).filter(|(.., noted)| noted.ceiling == own);
    let (bearer, uid, namespace, name) = if let Some((uid, source, noted)) = root {
        (Bearer::Owner(source), uid, noted.namespace.to_string(), noted.name.to_string())
    } else if let Some(of) = objects.gangs.with_own(objects.gangs.memberships(uid), own) {
        let GroupWorkload { key, group, .. } = of;
        (Bearer::PodGroup(key.kind), Uid::of(&group.uid), key.namespace.to_string(), key.name.to_string())
    } else if pod.notes(own) {
        (Bearer::Pod, uid, pod.namespace.to_string(), pod.name.to_string())
    } else {
        return None;
    };
    let why = NoEffect::Longer { own, ceiling: standing.ceiling(objects.trees())? };
    Some(Ineffective { bearer, namespace, name, uid, why })
}

/// Until when the workload of a pod must be ready. One that takes no room may wait, unless its creation counts.
pub fn ready_until(
    objects: &mut Objects,
    pods_ready: Option<PodsReady>,
    pod: &ManagedPod,
    standing: &Standing,
) -> Option<ReadyUntil> {
    let (family, queue) = standing.first_queue()?;
    let rules = rules(objects, pods_ready, standing)?;
    if rules.count_from == CountFrom::Scheduled {
        pod.started?;
    }
    let alone = || NotReady::of(Shape::alone(), &[pod.live_pod()], None);
    let lacking = if standing.is_grouped { standing.lacking } else { alone() };
    let (at, cause) = rules.deadline(lacking?)?;
    // pods may name any queue: counters have only queues that exist
    let is_known = objects.limits(family, queue).is_some();
    let queue = if is_known { queue.clone() } else { ArcStr::new() };
    Some(ReadyUntil { at, cause, family, queue })
}

/// The rules for a workload that doesn't get ready.
fn rules(objects: &mut Objects, pods_ready: Option<PodsReady>, standing: &Standing) -> Option<PodsReady> {
    let (family, queue) = standing.first_queue()?;
    let nearest = objects.limits(family, queue).and_then(|limits| limits.nearest.pods_ready);
    PodsReady::applying(nearest, pods_ready)
}

/// The queue of a pod: that which its label or its group names, unless one that was fixed when the pod was bound, or that it has
/// evidence of, ends its run earlier. With the name that no queue has, if the default queue counts in its place.
fn queue(
    objects: &mut Objects,
    family: Family,
    pod: &ManagedPod,
    of_group: Option<GroupQueue<ArcStr>>,
) -> (Option<ArcStr>, Option<ArcStr>) {
    let name = named_queue(objects, family, pod, of_group);
    let named = name.clone().map(|name| objects.bound(family, name));
    let by_default = name.filter(|name| named.as_ref() != Some(name));
    let [known, noted] = pod.fixed_queues(family);
    // the queue that was fixed is forgotten once it is gone
    let known = known.filter(|queue| objects.limits(family, queue).is_some());
    let mut ceiling = |queue: &str| objects.limits(family, queue).and_then(|limits| limits.ceiling);
    let queue = known.into_iter().chain(noted).fold(named, |queue, fixed| match queue {
        Some(queue) if !is_shorter(ceiling(fixed), ceiling(&queue)) => Some(queue),
        _ => Some(fixed.clone()),
    });
    (queue, by_default)
}

/// The queue that a pod names: that of its group, if there is such a group and it [counts](group_counts).
fn named_queue(
    objects: &mut Objects,
    family: Family,
    pod: &ManagedPod,
    of_group: Option<GroupQueue<ArcStr>>,
) -> Option<ArcStr> {
    let own = pod.queues[family].as_ref();
    let (Some((name, made)), Some(own)) = (&of_group, own) else {
        return of_group.map(|(name, _)| name).or_else(|| own.cloned());
    };
    let mut ceiling = |queue: &ArcStr| {
        let queue = objects.bound(family, queue.clone());
        objects.limits(family, &queue).and_then(|limits| limits.ceiling)
    };
    let late = || is_shorter(ceiling(name), ceiling(own));
    let counts = group_counts(made.map(Milliseconds::get), pod.started.map(Milliseconds::get), late);
    Some(if counts { name.clone() } else { own.clone() })
}

/// Computes the standing of a pod that is kept.
pub fn standing(objects: &mut Objects, uid: Uid, pod: &ManagedPod) -> Standing {
    let of_groups = objects.gangs.of(objects.gangs.memberships(uid));
    let root = objects.owners.own_ceiling(pod.controller);
    standing_below(objects, root, (uid, pod), of_groups)
}

/// Computes the standing of a pod whose root owner notes this ceiling.
pub fn standing_below(
    objects: &mut Objects,
    root: Option<SignedDuration>,
    (uid, pod): (Uid, &ManagedPod),
    of_groups: OfGroups,
) -> Standing {
    let own = [root, pod.own_ceiling(), of_groups.own].into_iter().flatten().min();
    let OfGroups { queues: mut of, own: _, is_grouped, start, lacking } = of_groups;
    let mut by_default = PerFamily::default();
    let queues = PerFamily::new(|family| {
        let (queue, name) = queue(objects, family, pod, of[family].take());
        by_default[family] = name;
        queue
    });
    // a pod that names no queue of a family has no ceiling there, not even its own
    let mut ceilings = PerFamily::new(|family| {
        let of_queue =
            objects.limits(family, queues[family].as_deref()?)?.ceiling.map(ExtendedDuration::to_signed);
        of_queue.into_iter().chain(own).min()
    });
    let alone = pod.clocks();
    // no group moves the end of a pod past its own scheduling and the ceiling
    let clocks = Clocks { started: start.into_iter().chain(alone.started).min(), ..alone };
    let start = if is_grouped { start } else { pod.scheduled() };
    let granted = extension(objects, (uid, pod), queues[Family::Runai].as_deref(), clocks);
    ceilings[Family::Runai] = ceilings[Family::Runai].map(|ceiling| ceiling.saturating_add(granted));
    let expires = expiry::deadline(clocks, ceilings);
    let is_extended = matches!(expires, Some((_, Family::Runai)));
    let extension = if is_extended { granted } else { SignedDuration::ZERO };
    Standing { clocks, start, is_grouped, queues, by_default, own, extension, expires, lacking }
}

/// Returns the granted time beyond the ceiling of a pod's run, as far as its queues allow.
fn extension(
    objects: &mut Objects,
    (uid, pod): (Uid, &ManagedPod),
    queue: Option<&str>,
    clocks: Clocks,
) -> SignedDuration {
    if objects.grants.is_empty() {
        return SignedDuration::ZERO;
    }
    let workload = objects.owners.root_by_kind(pod.controller).unwrap_or(uid);
    let allowance = queue.and_then(|queue| objects.limits(Family::Runai, queue)).map(|of| of.extensions);
    let granted = |since| objects.grants.of(workload, &pod.namespace, since);
    let total = clocks.started.zip(allowance).map(|(since, of)| of.total(granted(since)));
    total.unwrap_or_default()
}
