//! Calls for pods, in rounds. Namespaces take turns, and one whose calls hang holds up no other.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt};
use tenure_index::Uid;
use tokio_util::sync::CancellationToken;

use crate::slots::{FairSlots, TakenSlot};

/// Calls for pods, in rounds.
pub struct Rounds<P> {
    slots: FairSlots,
    /// Returns the uid and the namespace of a pod.
    of: fn(&P) -> (Uid, &str),
    /// The pods that wait for their turn, by namespace. The first namespace has the next turn.
    waiting: VecDeque<(String, VecDeque<P>)>,
    /// The pods for which a call is under way.
    under_way: HashSet<Uid>,
    /// The number of the last call for each pod that was found again since.
    called: HashMap<Uid, u64>,
    calls: u64,
}

impl<P> Rounds<P> {
    /// Rounds of pods of which `of` returns the uid and the namespace.
    pub fn new(of: fn(&P) -> (Uid, &str)) -> Self {
        let (slots, waiting, under_way, called) = Default::default();
        Self { slots, of, waiting, under_way, called, calls: 0 }
    }

    /// Calls for each pod that a round finds, until `shutdown`; then ends the calls that are under way. A round begins after
    /// each `between`, and replaces the pods that still wait. Another one begins when no pod waits and `changed` returns.
    pub async fn run(
        &mut self,
        shutdown: &CancellationToken,
        between: Duration,
        changed: impl AsyncFn(),
        find: impl Fn() -> Vec<P>,
        call: impl AsyncFn(&P, &TakenSlot),
    ) {
        let (slots, of, call) = (self.slots.clone(), self.of, &call);
        let mut rounds = tokio::time::interval(between);
        let mut calls = FuturesUnordered::new();
        loop {
            let open = !shutdown.is_cancelled();
            while open && let Some((pod, slot)) = self.next() {
                calls.push(async move {
                    call(&pod, &slot).await;
                    of(&pod).0
                });
            }
            if !open && calls.is_empty() {
                return;
            }
            tokio::select! {
                Some(uid) = calls.next() => {
                    self.under_way.remove(&uid);
                }
                () = slots.changed(), if open => {}
                _ = rounds.tick(), if open => self.begin(find()),
                () = changed(), if open && self.waiting.is_empty() => self.begin(find()),
                () = shutdown.cancelled(), if open => {}
            }
        }
    }

    /// Begins a round. In a namespace, pods for which there was no call come first, and then the one with the earliest: calls
    /// that fail again and again hold up no other pod.
    fn begin(&mut self, mut found: Vec<P>) {
        let Self { of, waiting, under_way, called, .. } = self;
        let uids: HashSet<Uid> = found.iter().map(|pod| of(pod).0).collect();
        called.retain(|uid, _| uids.contains(uid));
        found.sort_by_key(|pod| called.get(&of(pod).0).copied());
        let mut by_namespace: BTreeMap<String, VecDeque<P>> = BTreeMap::new();
        for pod in found {
            let (uid, namespace) = of(&pod);
            if !under_way.contains(&uid) {
                by_namespace.entry(namespace.to_owned()).or_default().push_back(pod);
            }
        }
        let before = std::mem::take(waiting);
        waiting.extend(before.iter().filter_map(|(namespace, _)| by_namespace.remove_entry(namespace)));
        waiting.extend(by_namespace);
    }

    /// Takes the next pod of the first namespace that has a slot, which then has the last turn.
    fn next(&mut self) -> Option<(P, TakenSlot)> {
        let Self { slots, of, waiting, under_way, called, calls } = self;
        let mut turns = waiting.iter().enumerate();
        let (place, slot) =
            turns.find_map(|(place, (namespace, _))| Some((place, slots.take(namespace)?)))?;
        let (namespace, mut pods) = waiting.remove(place)?;
        let pod = pods.pop_front()?;
        if !pods.is_empty() {
            waiting.push_back((namespace, pods));
        }
        let uid = of(&pod).0;
        *calls = calls.saturating_add(1);
        under_way.insert(uid);
        called.insert(uid, *calls);
        Some((pod, slot))
    }
}

#[cfg(test)]
mod tests;
