//! The sums of the resources that runs have used, by family, queue, resource and end.
//!
//! The index adds each ended run, and the keeper stores the sums in a `ConfigMap`. Their size is
//! bounded: tenants may name any number of queues.

use std::collections::BTreeMap;

use tenure_types::usage_record::{QueueUsage, UsageEnd, UsedByEnd};

/// The most bytes of the sums as JSON: a `ConfigMap` may have a mebibyte, and the record has more
/// than sums.
const MOST_BYTES: usize = 750_000;

/// The number of bytes above which the sums of queues that don't exist are merged.
const CROWDED_BYTES: usize = MOST_BYTES / 4 * 3;

/// The most bytes of a number with its end, without the names of queue and resource.
const NUMBER: usize = 64;

/// The most bytes of the entry of a queue or of a resource, without its name.
const NAMED: usize = 48;

/// The sums, in millionths of a unit for one second. If there is no room for a further queue, its
/// runs count under the empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// The sums by family and queue, and then by resource and end.
    queues: BTreeMap<(String, String), BTreeMap<String, UsedByEnd>>,
    /// An upper bound of the sums' size as JSON.
    bytes: usize,
}

impl UsageTotals {
    /// Reads the sums of a record.
    pub fn of(queues: Vec<QueueUsage>) -> Self {
        let mut totals = Self::default();
        for QueueUsage { family, queue, used } in queues {
            for (resource, by_end) in used {
                for (end, amount) in by_end {
                    totals.insert((&family, &queue), &resource, end, amount);
                }
            }
        }
        totals
    }

    /// Returns the sums as a record has them.
    pub fn record(&self) -> Vec<QueueUsage> {
        let queues = self.queues.iter();
        let record = queues.map(|((family, queue), used)| QueueUsage {
            family: family.clone(),
            queue: queue.clone(),
            used: used.clone(),
        });
        record.collect()
    }

    /// Adds the use of a resource by a run with this end.
    pub fn add(&mut self, (family, queue): (&str, &str), resource: &str, (end, amount): (UsageEnd, u128)) {
        let of = if self.has_room(family, queue, resource, end) { queue } else { "" };
        self.insert((family, of), resource, end, amount);
    }

    /// Moves the sums of queues that don't exist to the empty name, if room is short. Returns true
    /// if any were moved.
    pub fn make_room(&mut self, exists: impl Fn(&str) -> bool) -> bool {
        let is_gone = |queue: &str| !queue.is_empty() && !exists(queue);
        if self.bytes <= CROWDED_BYTES || !self.queues.keys().any(|(_, queue)| is_gone(queue)) {
            return false;
        }
        let mut queues = self.record();
        for of in queues.iter_mut().filter(|of| is_gone(&of.queue)) {
            of.queue.clear();
        }
        *self = Self::of(queues);
        true
    }

    /// Returns the queues, by family and name, with their sums by resource.
    pub fn iter(&self) -> impl Iterator<Item = ((&str, &str), &BTreeMap<String, UsedByEnd>)> {
        self.queues.iter().map(|((family, queue), used)| ((family.as_str(), queue.as_str()), used))
    }

    /// True if a number already exists, or its entries still fit.
    fn has_room(&self, family: &str, queue: &str, resource: &str, end: UsageEnd) -> bool {
        let known = self.queues.get(&(family.to_owned(), queue.to_owned()));
        let is_known = known.and_then(|used| used.get(resource)).is_some_and(|of| of.contains_key(&end));
        let names = NAMED.saturating_mul(2).saturating_add(queue.len()).saturating_add(resource.len());
        is_known || self.bytes.saturating_add(names).saturating_add(NUMBER) <= MOST_BYTES
    }

    fn insert(&mut self, (family, queue): (&str, &str), resource: &str, end: UsageEnd, amount: u128) {
        let mut more = 0usize;
        let mut named = |name: &str| more = more.saturating_add(NAMED).saturating_add(name.len());
        let used = self.queues.entry((family.to_owned(), queue.to_owned())).or_insert_with(|| {
            named(queue);
            BTreeMap::new()
        });
        let by_end = used.entry(resource.to_owned()).or_insert_with(|| {
            named(resource);
            UsedByEnd::new()
        });
        let sum = by_end.entry(end).or_insert_with(|| {
            more = more.saturating_add(NUMBER);
            0
        });
        *sum = sum.saturating_add(amount);
        self.bytes = self.bytes.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(totals: &UsageTotals, queue: &str, end: UsageEnd) -> Option<u128> {
        let (_, used) = totals.iter().find(|((_, of), _)| *of == queue)?;
        used.get("cpu")?.get(&end).copied()
    }

    #[test]
    fn uses_add_up_by_queue_resource_and_end() {
        let mut totals = UsageTotals::default();
        for end in [UsageEnd::Cut, UsageEnd::Cut, UsageEnd::Failed] {
            totals.add(("run.ai", "a"), "cpu", (end, 1_800_000_000));
        }
        assert_eq!(sum(&totals, "a", UsageEnd::Cut), Some(3_600_000_000));
        assert_eq!(sum(&totals, "a", UsageEnd::Failed), Some(1_800_000_000));
        assert_eq!(sum(&totals, "a", UsageEnd::Deleted), None);
        assert_eq!(UsageTotals::of(totals.record()), totals);
    }

    #[test]
    fn amounts_beyond_all_bounds_do_no_harm() {
        let mut totals = UsageTotals::default();
        totals.add(("run.ai", "a"), "cpu", (UsageEnd::Cut, u128::MAX));
        totals.add(("run.ai", "a"), "cpu", (UsageEnd::Cut, u128::MAX));
        assert_eq!(sum(&totals, "a", UsageEnd::Cut), Some(u128::MAX));
    }

    #[test]
    fn the_record_of_very_many_queues_stays_within_a_config_map_and_loses_no_use() {
        let mut totals = UsageTotals::default();
        let (runs, one) = (20_000_u128, u128::MAX / 1_000_000);
        for number in 0..runs {
            let queue = format!("{number:0>253}");
            totals.add(("run.ai", &queue), "cpu", (UsageEnd::Cut, one));
        }
        let text = serde_json::to_string(&totals.record()).unwrap();
        assert!(text.len() < 750_000, "{}", text.len());
        let counted = totals.iter().map(|(_, used)| used["cpu"][&UsageEnd::Cut]);
        assert_eq!(counted.fold(0, u128::saturating_add), one * runs);
    }

    #[test]
    fn queues_that_do_not_exist_leave_their_room_to_others_and_no_use_is_lost() {
        let mut totals = UsageTotals::default();
        let add = |totals: &mut UsageTotals, queue: &str| {
            totals.add(("run.ai", queue), "cpu", (UsageEnd::Cut, 1));
        };
        add(&mut totals, "a");
        assert!(!totals.make_room(|_| false), "there is room");
        let mut before = 1;
        for round in 0..20 {
            for number in 0..1_000 {
                add(&mut totals, &format!("throw-away-{round}-{number}"));
            }
            totals.make_room(|queue| queue == "a");
            before += 1_000;
        }
        add(&mut totals, "a");
        add(&mut totals, "new");
        assert_eq!(
            [sum(&totals, "a", UsageEnd::Cut), sum(&totals, "new", UsageEnd::Cut)],
            [Some(2), Some(1)]
        );
        let counted: u128 = totals.iter().map(|(_, used)| used["cpu"][&UsageEnd::Cut]).sum();
        assert_eq!(counted, before + 2);
        assert_eq!(UsageTotals::of(totals.record()), totals, "its size is known");
        assert!(!totals.make_room(|_| true));
    }
}
