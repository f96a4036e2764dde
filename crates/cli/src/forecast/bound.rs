//! The time by which there is room at the latest: arithmetic without a cluster.
//!
//! Called by `forecast --for`. Pods are placed first-fit, which may miss a placement: the true time
//! can be earlier, but not later.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use jiff::Timestamp;

/// Amounts by resource, as the scheduler counts them: CPUs in thousandths, all else in whole units.
pub type Amounts = BTreeMap<String, i64>;

/// The room that a pod holds on its node.
#[derive(Clone, Debug)]
pub struct HeldRoom {
    pub node: String,
    pub requests: Amounts,
    /// The time by which the pod has ended at the latest. None: no ceiling ends it.
    pub until: Option<Timestamp>,
}

/// A node on which the pods of a workload may run.
#[derive(Clone, Debug)]
pub struct NodeRoom {
    pub name: String,
    /// All that the node has for pods, free or not.
    pub allocatable: Amounts,
}

/// Returns the time by which these pods have room at the latest, if nothing else takes it: now, or
/// the end of a pod. None: not even the ends of all pods make enough room. All pods on the nodes
/// must be in `held`.
pub fn room_by<'h>(
    nodes: &[NodeRoom],
    held: impl IntoIterator<Item = &'h HeldRoom>,
    demands: &[Amounts],
    now: Timestamp,
) -> Option<Timestamp> {
    let mut free: Vec<Amounts> = nodes.iter().map(|node| node.allocatable.clone()).collect();
    let places: HashMap<&str, usize> = nodes.iter().map(|node| node.name.as_str()).zip(0..).collect();
    let mut ends = Vec::new();
    for pod in held {
        let Some(place) = places.get(pod.node.as_str()).copied() else { continue };
        free.get_mut(place).into_iter().for_each(|free| take(free, &pod.requests));
        ends.extend(pod.until.map(|until| (until.max(now), place, &pod.requests)));
    }
    ends.sort_by_key(|(until, ..)| *until);
    let mut sorted: Vec<&Amounts> = demands.iter().collect();
    // the largest demand first
    sorted.sort_by_key(|demand| Reverse(demand.values().copied().max()));
    let fits_after = |number: usize| {
        let mut free = free.clone();
        for (_, place, requests) in ends.iter().take(number) {
            free.get_mut(*place).into_iter().for_each(|free| give(free, requests));
        }
        fit(free, &sorted)
    };
    if fits_after(0) {
        return Some(now);
    }
    let (mut too_few, mut enough) = (0, ends.len());
    if !fits_after(enough) {
        return None;
    }
    while enough.saturating_sub(too_few) > 1 {
        let between = too_few.midpoint(enough);
        if fits_after(between) { enough = between } else { too_few = between }
    }
    ends.get(enough.checked_sub(1)?).map(|(until, ..)| *until)
}

/// True if all pods fit, each on the first node that has room for it.
fn fit(mut free: Vec<Amounts>, demands: &[&Amounts]) -> bool {
    // equal pods needn't look again at nodes that were too full for the pod before
    let (mut before, mut from) = (None, 0_usize);
    demands.iter().all(|demand| {
        if before != Some(*demand) {
            (before, from) = (Some(*demand), 0);
        }
        let place = free.iter().skip(from).position(|free| has(free, demand));
        let Some(node) = place.map(|place| place.saturating_add(from)) else { return false };
        from = node;
        if let Some(free) = free.get_mut(node) {
            take(free, demand);
        }
        true
    })
}

/// True if there is enough of each resource that is asked for.
fn has(free: &Amounts, demand: &Amounts) -> bool {
    demand
        .iter()
        .all(|(resource, amount)| *amount <= 0 || free.get(resource).copied().unwrap_or(0) >= *amount)
}

/// Subtracts amounts. The result may be negative.
fn take(free: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        let free = free.entry(resource.clone()).or_default();
        *free = free.saturating_sub(*amount);
    }
}

/// Adds amounts.
pub fn give(sum: &mut Amounts, amounts: &Amounts) {
    for (resource, amount) in amounts {
        let sum = sum.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}
