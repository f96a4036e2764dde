//! The order in which owners come back. Each queue has a line, and waits for no other. In a line namespaces take turns: tenants can
//! write records, too, and those of one namespace hold up no other's.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use arcstr::ArcStr;
use tenure_index::Paused;

use crate::slots::{FairSlots, TakenSlot};

/// Owners that are due to come back, by line and namespace.
#[derive(Debug, Default)]
pub struct ReturnOrder(Turns<ArcStr, Turns<ArcStr, VecDeque<Paused>>>);

impl ReturnOrder {
    /// Adds owners, each after all others of its line and namespace.
    pub fn extend(&mut self, due: Vec<Paused>) {
        for paused in due {
            let of_line = self.0.of(line(&paused));
            of_line.of(paused.namespace.clone()).push_back(paused);
        }
    }

    /// Takes the next owner that may be resumed now, with its slot. In a line one is resumed after the other, but one that is
    /// slow, or whose namespace has no slot, doesn't hold up the next.
    pub fn next(&mut self, slots: &FairSlots) -> Option<(Paused, TakenSlot)> {
        let first = |line: &ArcStr, namespace: &ArcStr, owners: &mut VecDeque<Paused>| {
            let slot = slots.take_in_line(namespace, Some(line))?;
            Some((owners.pop_front()?, slot))
        };
        self.0.take(
            |line, of_line| {
                of_line.take(|namespace, owners| first(line, namespace, owners), VecDeque::is_empty)
            },
            |of_line| of_line.order.is_empty(),
        )
    }
}

/// The line of an owner: that of its queue.
fn line(paused: &Paused) -> ArcStr {
    arcstr::format!("{:?}/{}", paused.rules_of(), paused.queue)
}

/// Values that take turns. None is empty.
#[derive(Debug)]
struct Turns<K, V> {
    /// The keys, that of the last turn last.
    order: VecDeque<K>,
    by_key: HashMap<K, V>,
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Self {
        Self { order: VecDeque::new(), by_key: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Turns<K, V> {
    /// Returns the value of a key, to add to it. A new one is the last.
    fn of(&mut self, key: K) -> &mut V {
        let Self { order, by_key } = self;
        by_key.entry(key).or_insert_with_key(|key| {
            order.push_back(key.clone());
            V::default()
        })
    }

    /// Takes from the first value that has something to take. That one is the last then, if it isn't empty.
    fn take<T>(
        &mut self,
        mut take: impl FnMut(&K, &mut V) -> Option<T>,
        is_empty: impl Fn(&V) -> bool,
    ) -> Option<T> {
        let Self { order, by_key } = self;
        let mut places = order.iter().enumerate();
        let (place, taken) =
            places.find_map(|(place, key)| Some((place, take(key, by_key.get_mut(key)?)?)))?;
        let key = order.remove(place)?;
        if by_key.get(&key).is_some_and(is_empty) {
            by_key.remove(&key);
        } else {
            order.push_back(key);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use serde_json::json;
    use tenure_index::Settings;
    use tenure_types::tensorstack::v1beta1;

    use super::*;
    use crate::cluster::ClusterState;

    /// Owners with records, as tenants can write them.
    struct Records {
        cluster: ClusterState,
        count: u32,
    }

    impl Records {
        fn new() -> Self {
            let cluster = ClusterState::new(Settings::default());
            cluster.with(|index| {
                for queue in ["a", "b", "c"] {
                    index.apply_tensorstack(queue, &v1beta1::QueueSpec::default());
                }
            });
            Self { cluster, count: 0 }
        }

        fn add(&mut self, namespace: &str, queue: &str, priority: i32) {
            self.count += 1;
            let record = json!({
                "at": "2025-12-31T22:00:00Z", "field": "spec.replicas", "previousValue": 1, "value": 0,
                "queue": queue, "queueGroup": "scheduler.tensorstack.dev", "reason": "PodsReadyTimeout",
            });
            let state = json!({"count": 1, "priority": priority, "requeueAt": "2025-12-31T23:00:00Z"});
            let metadata = json!({
                "name": format!("web-{}", self.count), "namespace": namespace, "uid": self.count.to_string(),
                "annotations": {
                    "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
                },
            });
            let metadata = serde_json::from_value(metadata).unwrap();
            self.cluster.with(|index| index.apply_owner(1, &metadata));
        }

        fn claim(&self) -> Vec<Paused> {
            self.cluster.with(|index| index.claim_returns(Timestamp::MAX))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn records_that_a_tenant_forges_in_a_neighbours_queue_hold_up_no_return_of_it() {
        let (mut records, mut order, slots) = (Records::new(), ReturnOrder::default(), FairSlots::default());
        for _ in 0..1_000 {
            records.add("forger", "a", i32::MAX);
        }
        order.extend(records.claim());
        records.add("neighbour", "a", 0);
        order.extend(records.claim());
        let first: Vec<_> = (0..2).map(|_| order.next(&slots).unwrap().0.namespace).collect();
        assert_eq!(first, ["forger", "neighbour"]);
    }

    /// Owners in the order in which they came, with the last turn of each line, and of each namespace in it.
    #[derive(Default)]
    struct Naive {
        waiting: Vec<Paused>,
        lines: BTreeMap<ArcStr, usize>,
        namespaces: BTreeMap<(ArcStr, ArcStr), usize>,
        turns: usize,
    }

    impl Naive {
        fn keys(paused: &Paused) -> (ArcStr, (ArcStr, ArcStr)) {
            (line(paused), (line(paused), paused.namespace.clone()))
        }

        fn extend(&mut self, due: Vec<Paused>) {
            for paused in due {
                let (line, namespace) = Self::keys(&paused);
                self.turns += 1;
                self.lines.entry(line).or_insert(self.turns);
                self.namespaces.entry(namespace).or_insert(self.turns);
                self.waiting.push(paused);
            }
        }

        fn next(&mut self, slots: &FairSlots) -> Option<(Paused, TakenSlot)> {
            let mut places: Vec<usize> = (0..self.waiting.len()).collect();
            places.sort_by_key(|place| {
                let (line, namespace) = Self::keys(&self.waiting[*place]);
                (self.lines[&line], self.namespaces[&namespace], *place)
            });
            let slot = |place: usize| {
                let paused = &self.waiting[place];
                Some((place, slots.take_in_line(&paused.namespace, Some(&line(paused)))?))
            };
            let (place, slot) = places.into_iter().find_map(slot)?;
            let paused = self.waiting.remove(place);
            let (line, namespace) = Self::keys(&paused);
            self.turns += 1;
            self.lines.insert(line.clone(), self.turns);
            self.namespaces.insert(namespace.clone(), self.turns);
            let has = |of: &dyn Fn(&Paused) -> bool| self.waiting.iter().any(of);
            if !has(&|other| Self::keys(other).1 == namespace) {
                self.namespaces.remove(&namespace);
            }
            if !has(&|other| Self::keys(other).0 == line) {
                self.lines.remove(&line);
            }
            Some((paused, slot))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn owners_come_back_in_the_order_of_a_list_that_is_searched_for_the_longest_without_a_turn() {
        for seed in 0..200_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                usize::try_from((state >> 33) % below).unwrap()
            };
            let (mut records, mut order, mut naive) =
                (Records::new(), ReturnOrder::default(), Naive::default());
            let slots = [FairSlots::default(), FairSlots::default()];
            let mut taken: Vec<[TakenSlot; 2]> = Vec::new();
            for _ in 0..100 {
                match random(6) {
                    0 | 1 => {
                        let namespace = ["x", "y", "z"][random(3)];
                        records.add(namespace, ["a", "b", "c", "none"][random(4)], 0);
                        if random(3) == 0 {
                            let due = records.claim();
                            order.extend(due.clone());
                            naive.extend(due);
                        }
                    }
                    2 if !taken.is_empty() => drop(taken.swap_remove(random(taken.len() as u64))),
                    3 if !taken.is_empty() && random(4) == 0 => {
                        taken[random(taken.len() as u64)].iter().for_each(TakenSlot::trouble);
                    }
                    _ => {
                        let (next, expected) = (order.next(&slots[0]), naive.next(&slots[1]));
                        let uid = |next: &Option<(Paused, TakenSlot)>| {
                            next.as_ref().map(|(paused, _)| paused.uid.clone())
                        };
                        assert_eq!(uid(&next), uid(&expected), "seed {seed}");
                        taken.extend(next.zip(expected).map(|((_, slot), (_, other))| [slot, other]));
                    }
                }
            }
        }
    }
}
