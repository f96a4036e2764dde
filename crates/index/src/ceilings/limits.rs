//! What applies to a pod, by its queues, `PodGroup`s and owners.

use arcstr::ArcStr;
use jiff::SignedDuration;
use tenure_policy::{
    expiry::{self, Clocks, Family},
    gang::Shape,
    limits::Limits,
    ready::{Lacking, PodsReady},
};

use super::Standing;
use crate::{
    Uid,
    cluster::Objects,
    deadlines::{Ceiling, Pod, PodDeadlines, ReadyUntil},
    podgroups::OfGroups,
};

/// What applies to a pod in each of its queues.
pub struct LimitsOf {
    tensorstack: Option<Limits>,
    runai: Option<Limits>,
}

/// What applies where a queue doesn't say: how long before the end workloads are told, and when those make room that
/// don't get ready.
type Defaults = (SignedDuration, Option<PodsReady>);

/// When something is to be done about a pod.
pub fn deadlines(objects: &mut Objects, (notice, pods_ready): Defaults, uid: Uid, pod: &Pod) -> PodDeadlines {
    let of_groups = objects.gangs.of(objects.gangs.memberships(uid));
    let lacking = of_groups.lacking;
    let (standing, limits) = standing(objects, pod, of_groups);
    let ready_until = ready_until(pods_ready, pod, lacking, &standing, &limits);
    let Some((at, family)) = standing.expires else { return PodDeadlines { ceiling: None, ready_until } };
    let (queue, limits) = match family {
        Family::Tensorstack => (standing.tensorstack, limits.tensorstack),
        Family::Runai => (standing.runai, limits.runai),
    };
    let notice = limits.and_then(|limits| limits.notice).unwrap_or(notice);
    PodDeadlines { ceiling: Some(Ceiling { at, family, queue, notice }), ready_until }
}

/// Until when the workload of a pod must be ready. One that takes no room may wait.
fn ready_until(
    pods_ready: Option<PodsReady>,
    pod: &Pod,
    lacking: Option<Lacking>,
    standing: &Standing,
    limits: &LimitsOf,
) -> Option<ReadyUntil> {
    let (family, queue) = match (&standing.runai, &standing.tensorstack) {
        (Some(queue), _) => (Family::Runai, queue),
        (None, Some(queue)) => (Family::Tensorstack, queue),
        (None, None) => return None,
    };
    let own = limits.runai.and_then(|limits| limits.pods_ready);
    let pods_ready = own.or(pods_ready)?;
    pod.started?;
    let lacking =
        if standing.is_grouped { lacking } else { Lacking::of(Shape::alone(), &[pod.standing()], None) };
    let (at, cause) = pods_ready.deadline(lacking?)?;
    let is_known = match family {
        Family::Tensorstack => limits.tensorstack.is_some(),
        Family::Runai => limits.runai.is_some(),
    };
    // pods may name any queue: what is counted by queue has no other queues than there are
    let queue = if is_known { queue.clone() } else { ArcStr::new() };
    Some(ReadyUntil { at, cause, family, queue })
}

/// How a pod stands, and what applies in its queues.
pub fn standing(objects: &mut Objects, pod: &Pod, of_groups: OfGroups) -> (Standing, LimitsOf) {
    let root = objects.owners.own_ceiling(pod.controller);
    let own = [root, pod.own_ceiling(), of_groups.own].into_iter().flatten().min();
    // a group's queue counts, if there is such a group
    let tensorstack = of_groups.tensorstack.or_else(|| pod.tensorstack.clone());
    let runai = of_groups.runai.or_else(|| pod.runai.clone());
    let limits = LimitsOf {
        tensorstack: tensorstack.as_deref().and_then(|queue| objects.tensorstack.limits(queue)),
        runai: runai.as_deref().and_then(|queue| objects.runai.limits(queue)),
    };
    // a pod that names no queue of a family has no ceiling there, not even its own
    let ceiling =
        |limits: &Option<Limits>| limits.and_then(|limits| limits.ceiling.into_iter().chain(own).min());
    let OfGroups { is_grouped, start, .. } = of_groups;
    let alone = pod.clocks();
    // a workload may never have as many pods as it takes: those that it has run all the same
    let clocks = Clocks { started: start.or(alone.started), ..alone };
    let start = if is_grouped { start } else { alone.started };
    let expires = expiry::deadline(clocks, ceiling(&limits.tensorstack), ceiling(&limits.runai));
    (Standing { clocks, start, is_grouped, tensorstack, runai, own, expires }, limits)
}
