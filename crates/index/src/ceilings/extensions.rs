//! Runs for which extensions are requested. `CeilingIndex` describes such a run when the keeper
//! decides about a request, and when a notice says how much more time the run may get.

use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    ceiling::least_extensions,
    expiry::Family,
    extension::{Allowance, GoingRun},
};

use super::PodStanding;
use crate::{Uid, cluster::ClusterObjects};

/// Returns a run that began at `since`, by the standing of one of its pods. Only grants count that
/// were requested since then, and denials since the start that evidence shows, if that is earlier.
/// None: the pod is in no queue that exists.
pub fn going_run(
    objects: &mut ClusterObjects,
    namespace: &str,
    workload: Uid,
    since: Timestamp,
    standing: &PodStanding,
) -> Option<GoingRun> {
    let (family, queue) = standing.ending_queue()?;
    objects.limits(family, queue)?;
    let is_runai = family == Family::Runai;
    // the queues of the least total, of the least without approval, and of the least number
    let Allowance { max_total, max_count, .. } = standing.allowance;
    let is_by_number = max_count == Some(0) && !max_total.is_zero();
    let least = if is_by_number { standing.lending.last() } else { standing.lending.first() };
    let lender = least.filter(|_| is_runai).unwrap_or(queue);
    let limited_by = least_extensions(objects.queues[family].tree(), lender).map(str::to_owned);
    let times: Vec<SignedDuration> = objects.grants.of(workload, namespace, since).collect();
    // the next keeper knows the start of a run by evidence alone, which makes no grant count
    let started = standing.clocks.started.map_or(since, |started| started.min(since));
    Some(GoingRun {
        queue: queue.to_string(),
        limited_by: limited_by.filter(|_| is_runai),
        has_ceiling: standing.expires.is_some(),
        allowance: if is_runai { standing.allowance } else { Allowance::default() },
        count: times.len().try_into().unwrap_or(u32::MAX),
        total: times.into_iter().fold(SignedDuration::ZERO, SignedDuration::saturating_add),
        is_denied: objects.grants.is_denied(workload, namespace, started),
    })
}

/// Joins what two pods of a run may get: the lesser allowance, the greater number and total of
/// grants, and a denial of either.
pub fn joined(one: GoingRun, other: GoingRun) -> GoingRun {
    let (least, more) =
        if one.allowance.max_total <= other.allowance.max_total { (one, other) } else { (other, one) };
    GoingRun {
        has_ceiling: least.has_ceiling || more.has_ceiling,
        allowance: least.allowance.least(more.allowance),
        count: least.count.max(more.count),
        total: least.total.max(more.total),
        is_denied: least.is_denied || more.is_denied,
        ..least
    }
}

#[cfg(test)]
mod tests;
