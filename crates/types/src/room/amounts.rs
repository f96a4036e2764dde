//! Sums of resources, for `room.rs` and `room/run.rs`.
//!
//! Processors are in thousandths, all else in whole units. Users write the amounts, so every sum
//! saturates.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::amount::Amount;

/// Quantities as they are written, by resource.
pub(super) type ResourceList = BTreeMap<String, Value>;

/// The requests that the kubelet has actuated, and the requests that it has allocated.
pub(super) type AllocatedRequests = [BTreeMap<String, i64>; 2];

/// The way to count requests while a pod is resized.
#[derive(Clone, Copy)]
pub(super) enum ResizeCounting {
    /// The greater of the requested and the held amounts. An infeasible request doesn't count if
    /// the held amount is known.
    Most { is_infeasible: bool },
    /// For resources that can be resized: the held amounts, or nothing if they aren't known. For
    /// all others: the requested amounts.
    Given,
    /// Like `Given`, but the requested amounts count if the held ones aren't known.
    Asked,
}

impl ResizeCounting {
    /// True if this counts the resources that a run has, rather than those that a pod needs.
    pub(super) const fn is_of_runs(self) -> bool {
        matches!(self, Self::Given | Self::Asked)
    }

    /// Counts the requests of a container or a pod. `held` None: the node shows no amounts.
    pub(super) fn count(
        self,
        asked: impl Iterator<Item = (String, i64)>,
        held: Option<AllocatedRequests>,
    ) -> BTreeMap<String, i64> {
        let mut counted: BTreeMap<String, i64> = match (self, &held) {
            (Self::Most { is_infeasible: true }, Some(held)) if !held.iter().all(BTreeMap::is_empty) => {
                BTreeMap::new()
            }
            (Self::Most { .. }, _) | (Self::Asked, None) => asked.collect(),
            (Self::Asked | Self::Given, _) => asked.filter(|(of, _)| !is_resizable(of)).collect(),
        };
        for mut held in held.into_iter().flatten() {
            held.retain(|resource, _| is_resizable(resource) || !self.is_of_runs());
            raise(&mut counted, held);
        }
        counted
    }
}

/// True if a user can change the request of a running pod for this resource.
fn is_resizable(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory")
}

/// Reads the amounts by resource. A value that can't be read is skipped: it was never admitted as a
/// quantity.
pub(super) fn amounts(of: &ResourceList) -> impl Iterator<Item = (String, i64)> {
    of.iter().filter_map(|(resource, written)| {
        let amount = Amount::read(written)?;
        Some((resource.clone(), if resource == "cpu" { amount.thousandths() } else { amount.units() }))
    })
}

/// Adds amounts to a sum.
pub(super) fn add(sum: &mut BTreeMap<String, i64>, more: impl IntoIterator<Item = (String, i64)>) {
    for (resource, amount) in more {
        let sum = sum.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
}

/// Subtracts amounts from a sum. A resource that the sum doesn't have stays absent.
pub(super) fn take_away(from: &mut BTreeMap<String, i64>, part: impl IntoIterator<Item = (String, i64)>) {
    for (resource, amount) in part {
        if let Some(from) = from.get_mut(&resource) {
            *from = from.saturating_sub(amount);
        }
    }
}

/// Raises each amount to `to` at least.
pub(super) fn raise(least: &mut BTreeMap<String, i64>, to: BTreeMap<String, i64>) {
    for (resource, amount) in to {
        let least = least.entry(resource).or_default();
        *least = amount.max(*least);
    }
}
