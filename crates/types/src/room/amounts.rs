//! Sums of resources.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::amount::Amount;

pub(super) type Amounts = BTreeMap<String, Value>;

/// The greater of the requested and the held amounts, which differ while a pod is resized. An infeasible request
/// doesn't count if the held amount is known.
pub(super) fn most(
    asked: impl Iterator<Item = (String, i64)>,
    held: [BTreeMap<String, i64>; 2],
    is_infeasible: bool,
) -> BTreeMap<String, i64> {
    let counts = !is_infeasible || held.iter().all(BTreeMap::is_empty);
    let mut most = if counts { asked.collect() } else { BTreeMap::new() };
    for of in held {
        raise(&mut most, of);
    }
    most
}

/// Reads the amounts by resource. A value that can't be read is skipped: it was never admitted as a quantity.
pub(super) fn amounts(of: &Amounts) -> impl Iterator<Item = (String, i64)> {
    of.iter().filter_map(|(resource, written)| {
        let amount = Amount::read(written)?;
        Some((resource.clone(), if resource == "cpu" { amount.thousandths() } else { amount.units() }))
    })
}

pub(super) fn add(sum: &mut BTreeMap<String, i64>, more: impl IntoIterator<Item = (String, i64)>) {
    for (resource, amount) in more {
        let sum = sum.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
}

pub(super) fn take_away(from: &mut BTreeMap<String, i64>, part: impl IntoIterator<Item = (String, i64)>) {
    for (resource, amount) in part {
        if let Some(from) = from.get_mut(&resource) {
            *from = from.saturating_sub(amount);
        }
    }
}

pub(super) fn raise(least: &mut BTreeMap<String, i64>, to: BTreeMap<String, i64>) {
    for (resource, amount) in to {
        let least = least.entry(resource).or_default();
        *least = amount.max(*least);
    }
}
