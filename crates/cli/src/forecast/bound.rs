//! The time by which there is room at the latest: arithmetic without a cluster.
//!
//! Called by `forecast --for`. Pods are placed first-fit, which may miss a placement: the true time
//! can be earlier, but not later.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;

use crate::snapshot::occupants::{Amounts, Occupant, add};

/// Returns the time by which these pods have room at the latest, if nothing else takes it: now, or
/// the end of a pod. None: not even the ends of all pods make enough room. `nodes` are those on which
/// the pods may run, by name, each with all that it has for pods, free or not. All pods on these nodes
/// must be in `held`.
pub fn room_by(
    nodes: &BTreeMap<String, Amounts>,
    held: &[Occupant],
    mut demands: Vec<&Amounts>,
    now: Timestamp,
) -> Option<Timestamp> {
    let (mut free, mut ends) = (nodes.clone(), Vec::new());
    for pod in held {
        let Some(free) = free.get_mut(&pod.node) else { continue };
        add(free, &pod.requests, -1);
        ends.extend(pod.until.map(|until| (until.max(now), pod)));
    }
    ends.sort_by_key(|(until, _)| *until);
    // the largest demand first
    demands.sort_by_key(|demand| Reverse(demand.values().copied().max()));
    let fits_after = |number: usize| {
        let mut free = free.clone();
        for (_, pod) in ends.iter().take(number) {
            free.get_mut(&pod.node).into_iter().for_each(|free| add(free, &pod.requests, 1));
        }
        fit(free.into_values().collect(), &demands)
    };
    // first-fit may fail with more room: room that is there now is asked for first
    if fits_after(0) {
        return Some(now);
    }
    let numbers: Vec<usize> = (1..=ends.len()).collect();
    let enough = numbers.partition_point(|number| !fits_after(*number));
    ends.get(enough).map(|(until, _)| *until)
}

/// True if all pods fit, each on the first node that has room for it.
fn fit(mut free: Vec<Amounts>, demands: &[&Amounts]) -> bool {
    let (mut before, mut from) = (None, 0);
    demands.iter().all(|demand| {
        // equal pods needn't look again at nodes that were too full for the pod before
        from = if before == Some(demand) { from } else { 0 };
        before = Some(demand);
        let place = free.iter_mut().enumerate().skip(from).find(|(_, free)| has(free, demand));
        let Some((node, free)) = place else { return false };
        from = node;
        add(free, demand, -1);
        true
    })
}

/// True if there is enough of each resource that is asked for.
fn has(free: &Amounts, demand: &Amounts) -> bool {
    demand.iter().all(|(of, amount)| *amount <= 0 || free.get(of).is_some_and(|free| free >= amount))
}
