//! Pods of elastic workloads that were given away a moment ago, before that is to be seen: a scheduler asks for the next
//! preemptor before the victims of the last one are deleted, and together they could be more than a workload can spare.

use std::collections::{HashMap, HashSet};

use tenure_policy::gang::Progress;

use super::PlacementIndex;
use crate::{Uid, gangs::GangId};

/// The pods that may be about to go.
#[derive(Debug)]
pub struct Pending<'i> {
    index: &'i PlacementIndex,
    parts: HashMap<(GangId, usize), Part>,
}

/// A subgroup that may lose pods.
#[derive(Debug)]
struct Part {
    /// How many run beyond its minimum.
    spare: usize,
    going: HashSet<Uid>,
}

impl PlacementIndex {
    /// Of the victims that were granted to preemptors, those that aren't to be seen going yet. Once it is known to which
    /// node a preemptor is nominated, only those there are; and none, once it was placed.
    pub fn pending<'p>(&self, granted: impl Iterator<Item = (Uid, &'p [Uid])>) -> Pending<'_> {
        let mut parts: HashMap<_, Part> = HashMap::new();
        for (preemptor, victims) in granted {
            let preemptor = self.places.get(preemptor);
            if preemptor.is_some_and(|pod| pod.progress != Progress::Waiting) {
                continue;
            }
            let node = preemptor.and_then(|pod| pod.nominated.as_ref());
            for uid in victims {
                let Some(pod) = self.places.get(*uid) else { continue };
                let may_go = node.is_none_or(|node| pod.node.as_ref() == Some(node));
                let (Some(part), true) = (self.part(*uid), may_go && pod.progress == Progress::Running)
                else {
                    continue;
                };
                let new = || Part { spare: self.spare(*uid, part.1), going: HashSet::new() };
                parts.entry(part).or_insert_with(new).going.insert(*uid);
            }
        }
        Pending { index: self, parts }
    }

    fn part(&self, uid: Uid) -> Option<(GangId, usize)> {
        let memberships = self.places.get(uid)?.memberships();
        let group = self.gangs.counted(memberships)?;
        Some((group.id(), group.number(memberships)))
    }

    /// No bound, unless the workload is elastic: one that isn't goes as a whole, or not at all.
    fn spare(&self, uid: Uid, subgroup: usize) -> usize {
        let group = self.places.get(uid).and_then(|pod| self.gangs.counted(pod.memberships()));
        let all = group.map(|group| group.count()).filter(|all| all.iter().any(|of| of.min < of.live));
        let of = all.and_then(|all| all.get(subgroup).copied());
        of.map_or(usize::MAX, |of| of.running.saturating_sub(of.min) as usize)
    }
}

impl Pending<'_> {
    /// Whether these and those that may be about to go are more than a workload can spare.
    pub fn are_too_many_with(&self, mut victims: impl Iterator<Item = Uid>) -> bool {
        if self.parts.is_empty() {
            return false;
        }
        let mut more: HashMap<_, usize> = HashMap::new();
        victims.any(|uid| {
            let Some((key, part)) = self.index.part(uid).and_then(|key| Some((key, self.parts.get(&key)?)))
            else {
                return false;
            };
            let more = more.entry(key).or_default();
            *more = more.saturating_add(usize::from(!part.going.contains(&uid)));
            part.going.len().saturating_add(*more) > part.spare
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_types::podgroup::PodGroupKind;

    use super::*;

    /// A gang of four, each on a node of its own name, of which so many must run; and a preemptor with this in its spec
    /// and its status.
    fn index(min: u32, preemptor: &Value) -> PlacementIndex {
        let mut index = PlacementIndex::default();
        let group =
            json!({"metadata": {"namespace": "ns", "name": "g", "uid": "g"}, "spec": {"minMember": min}});
        index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
        for name in ["a", "b", "c", "d"] {
            let annotations = json!({"pod-group-name": "g"});
            let at = "2026-01-01T00:00:00Z";
            let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at});
            apply(
                &mut index,
                name,
                &json!({
                    "metadata": {"annotations": annotations}, "spec": {"nodeName": name}, "status": {"conditions": [scheduled]},
                }),
            );
        }
        apply(&mut index, "p", preemptor);
        index.settle();
        index
    }

    fn apply(index: &mut PlacementIndex, name: &str, pod: &Value) {
        let mut pod = pod.clone();
        for (field, value) in [
            ("name", name),
            ("namespace", "ns"),
            ("uid", name),
            ("creationTimestamp", "2026-01-01T00:00:00Z"),
        ] {
            pod["metadata"][field] = json!(value);
        }
        index.apply_pod(serde_json::from_value(pod).unwrap());
    }

    /// Whether this one can't go as well after these were granted to the preemptor.
    fn is_too_much(index: &PlacementIndex, granted: &[&str], victim: &str) -> bool {
        let granted: Vec<Uid> = granted.iter().map(|uid| Uid::of(uid)).collect();
        let pending = index.pending([(Uid::of("p"), granted.as_slice())].into_iter());
        pending.are_too_many_with([Uid::of(victim)].into_iter())
    }

    #[test]
    fn what_was_granted_counts_as_gone() {
        let index = index(2, &json!({}));
        assert!(!is_too_much(&index, &["a"], "b"));
        assert!(is_too_much(&index, &["a", "b"], "c"));
        assert!(!is_too_much(&index, &["a", "b"], "b"), "it goes once");
        assert!(!is_too_much(&index, &["a", "b"], "alone"));
        assert!(!is_too_much(&index, &[], "c"));
    }

    #[test]
    fn of_a_preemptor_that_is_nominated_only_the_victims_on_that_node_count() {
        let index = index(3, &json!({"status": {"nominatedNodeName": "a"}}));
        assert!(is_too_much(&index, &["a", "b"], "b"));
        assert!(!is_too_much(&index, &["c", "b"], "b"));
    }

    #[test]
    fn of_a_preemptor_that_was_placed_nothing_is_pending() {
        let index = index(2, &json!({"spec": {"nodeName": "a"}}));
        assert!(!is_too_much(&index, &["a", "b", "c", "d"], "b"));
    }

    #[test]
    fn a_workload_that_can_spare_nobody_goes_as_a_whole() {
        let index = index(4, &json!({}));
        assert!(!is_too_much(&index, &["a", "b"], "c"));
    }
}
