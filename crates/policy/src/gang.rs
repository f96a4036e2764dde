//! Pods that start and stop as one: which of them count, how many it takes, and what they show of their start.

use std::collections::HashSet;

use jiff::Timestamp;
use tenure_types::{
    podgroup::PodGroupKind,
    projection::{Pod, PodGroupSpec},
};

/// The subgroup of pods that name none.
const DEFAULT_SUBGROUP: &str = "default";

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It wasn't scheduled yet.
    Waiting,
    /// It was.
    Running,
    /// It has ended, or is terminating: it has nothing to lose.
    Gone,
}

/// Some pods of a workload that have a minimum of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subgroup {
    /// Fewer of them can't run.
    pub min: u32,
    /// How many there are, running or waiting, but for those that have ended or are about to.
    pub live: u32,
    /// How many of those are scheduled.
    pub running: u32,
}

/// How far a pod has come. One whose manifest says no more than its node was scheduled.
pub fn progress(pod: &Pod) -> Progress {
    if pod.metadata.deletion_timestamp.is_some() || pod.is_finished() {
        Progress::Gone
    } else if pod.scheduled_at().is_some() || pod.spec.node_name.is_some() {
        Progress::Running
    } else {
        Progress::Waiting
    }
}

/// How many pods a workload takes, by subgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The kind of its group; none of a pod by itself.
    kind: Option<PodGroupKind>,
    /// Of all pods together.
    minimum: u32,
    /// If it has any.
    subgroups: Box<[(Box<str>, u32)]>,
}

impl Shape {
    /// Of a `PodGroup`: its subgroups, but for those that are only there to hold others; or all of it, if it has none.
    pub fn of(kind: PodGroupKind, spec: &PodGroupSpec) -> Self {
        let parents: HashSet<&str> = spec.sub_groups.iter().filter_map(|of| of.parent.as_deref()).collect();
        let leaves = spec.sub_groups.iter().filter(|of| !parents.contains(of.name.as_str()));
        let subgroups: Box<[_]> =
            leaves.map(|of| (of.name.as_str().into(), of.min_member.unwrap_or(1))).collect();
        let unset = u32::from(subgroups.is_empty());
        Self { kind: Some(kind), minimum: spec.min_member.unwrap_or(unset), subgroups }
    }

    /// Of a pod by itself.
    pub fn alone() -> Self {
        Self { kind: None, minimum: 1, subgroups: Box::default() }
    }

    /// How many pods it takes: of each subgroup, by its number, and of all.
    pub fn minimums(&self) -> impl Iterator<Item = (Option<usize>, u32)> {
        let of_each =
            self.subgroups.iter().enumerate().map(|(number, (_, minimum))| (Some(number), *minimum));
        of_each.chain([(None, self.minimum)])
    }

    /// The number of a pod's subgroup; one that there isn't, if it names none of them.
    pub fn subgroup(&self, pod: &Pod) -> usize {
        self.number(self.kind.and_then(|kind| kind.subgroup(pod)))
    }

    /// The number of the subgroup of a pod that names this one.
    pub fn number(&self, named: Option<&str>) -> usize {
        let named = named.unwrap_or(DEFAULT_SUBGROUP);
        let number = self.subgroups.iter().position(|(name, _)| **name == *named);
        number.unwrap_or(self.subgroups.len())
    }

    /// How many pods it takes, if it has no subgroups.
    pub fn undivided(&self) -> Option<u32> {
        self.subgroups.is_empty().then_some(self.minimum)
    }

    /// What there is of each subgroup. Pods that have ended, or are about to, don't count.
    pub fn count<'p>(&self, pods: impl Iterator<Item = &'p Pod>) -> Vec<Subgroup> {
        let live =
            pods.map(|pod| (self.subgroup(pod), progress(pod))).filter(|(_, of)| *of != Progress::Gone);
        self.tally(live.map(|(number, progress)| (number, progress == Progress::Running)))
    }

    /// The same of pods of which the number of the subgroup is known, and whether they run.
    pub fn tally(&self, live: impl Iterator<Item = (usize, bool)>) -> Vec<Subgroup> {
        let empty = |min: u32| Subgroup { min, live: 0, running: 0 };
        let mut subgroups: Vec<Subgroup> = self.subgroups.iter().map(|(_, min)| empty(*min)).collect();
        if subgroups.is_empty() {
            subgroups.push(empty(self.minimum));
        }
        for (number, runs) in live {
            if number == subgroups.len() {
                // those that no minimum needs
                subgroups.push(empty(0));
            }
            if let Some(subgroup) = subgroups.get_mut(number) {
                subgroup.live = subgroup.live.saturating_add(1);
                subgroup.running = subgroup.running.saturating_add(u32::from(runs));
            }
        }
        subgroups
    }

    /// When pods show that they started: when as many of each subgroup were scheduled as it takes, and as many of all.
    /// None if too few are. Of each pod that is active: the number of its subgroup, and when it was scheduled.
    pub fn shown_start(&self, active: impl Iterator<Item = (usize, Timestamp)>) -> Option<Timestamp> {
        let mut all: Vec<Timestamp> = Vec::new();
        let mut of_each: Vec<Vec<Timestamp>> = vec![Vec::new(); self.subgroups.len()];
        for (subgroup, at) in active {
            all.push(at);
            if let Some(times) = of_each.get_mut(subgroup) {
                times.push(at);
            }
        }
        let first = *all.iter().min()?;
        let minimums = self.subgroups.iter().map(|(_, minimum)| *minimum).chain([self.minimum]);
        // a subgroup that needs no pod doesn't keep the others from having started
        let mut needed =
            of_each.iter_mut().chain([&mut all]).zip(minimums).filter(|(_, minimum)| *minimum > 0);
        needed.try_fold(first, |latest, (times, minimum)| Some(latest.max(last_of(times, minimum)?)))
    }
}

/// When the last of as many was there.
fn last_of(times: &mut [Timestamp], minimum: u32) -> Option<Timestamp> {
    times.sort_unstable();
    times.get(usize::try_from(minimum).ok()?.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn group(spec: &Value) -> Shape {
        Shape::of(PodGroupKind::Runai, &PodGroupKind::Runai.spec(spec))
    }

    /// Of a subgroup, scheduled at a second of the year 2026.
    fn pod(subgroup: &str, second: Option<u32>) -> Pod {
        let at = second.map(|second| format!("2026-01-01T00:00:{second:02}Z"));
        let condition =
            at.map(|at| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at}));
        serde_json::from_value(json!({
            "metadata": {"labels": {"kai.scheduler/subgroup-name": subgroup}},
            "status": {"conditions": condition.into_iter().collect::<Vec<_>>()},
        }))
        .unwrap()
    }

    fn pods(seconds: &[(&str, u32)]) -> Vec<Pod> {
        seconds.iter().map(|(subgroup, second)| pod(subgroup, Some(*second))).collect()
    }

    fn started(shape: &Shape, pods: &[Pod]) -> Option<String> {
        let running = pods.iter().filter(|pod| progress(pod) == Progress::Running);
        let active = running.filter_map(|pod| Some((shape.subgroup(pod), pod.scheduled_at()?.0)));
        shape.shown_start(active).map(|at| at.strftime("%S").to_string())
    }

    fn counts(shape: &Shape, pods: &[Pod]) -> Vec<(u32, u32, u32)> {
        let subgroups = shape.count(pods.iter());
        subgroups.iter().map(|of| (of.min, of.live, of.running)).collect()
    }

    #[test]
    fn it_starts_when_the_last_pod_that_it_takes_is_scheduled() {
        let min = |min| group(&json!({"minMember": min}));
        assert_eq!(started(&min(1), &pods(&[("", 5)])).as_deref(), Some("05"));
        assert_eq!(started(&min(2), &pods(&[("", 9), ("", 5), ("", 7)])).as_deref(), Some("07"));
        assert_eq!(started(&min(2), &pods(&[("", 5)])), None);
        assert_eq!(started(&min(1), &[]), None);
        assert_eq!(started(&min(0), &pods(&[("", 5), ("", 4)])).as_deref(), Some("04"));
    }

    #[test]
    fn every_subgroup_has_to_start() {
        let shape = group(
            &json!({"subGroups": [{"name": "a"}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 0}]}),
        );
        assert_eq!(started(&shape, &pods(&[("a", 5), ("b", 6), ("b", 8)])).as_deref(), Some("08"));
        assert_eq!(started(&shape, &pods(&[("a", 5), ("a", 6), ("b", 8)])), None);
    }

    #[test]
    fn a_subgroup_that_holds_others_has_no_pods_and_one_that_there_is_not_counts_nowhere() {
        let spec = json!({"minMember": 9, "subGroups": [
            {"name": "all", "minMember": 2}, {"name": "lead", "parent": "all"}, {"name": "worker", "parent": "all", "minMember": 3},
        ]});
        let shape = group(&spec);
        let pods = [
            pod("lead", Some(1)),
            pod("worker", Some(1)),
            pod("worker", None),
            pod("other", Some(1)),
            pod("", Some(1)),
        ];
        assert_eq!(counts(&shape, &pods), [(1, 1, 1), (3, 2, 1), (0, 2, 2)]);
        assert_eq!(pods.each_ref().map(|pod| shape.subgroup(pod)), [0, 1, 1, 2, 2]);
    }

    /// Upstream counts them, so that a failed pod makes a gang elastic, and a gang can be left with fewer than its
    /// minimum.
    #[test]
    fn pods_that_have_ended_or_are_terminating_are_neither_members_nor_running() {
        let mut pods = pods(&[("", 1), ("", 2), ("", 3)]);
        pods[1].status.phase = Some("Failed".into());
        pods[2].metadata.deletion_timestamp = Some(
            "2026-01-01T00:00:00Z".parse().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time).unwrap(),
        );
        assert_eq!(counts(&group(&json!({"minMember": 2})), &pods), [(2, 1, 1)]);
        assert_eq!(started(&group(&json!({"minMember": 2})), &pods), None);
    }

    #[test]
    fn where_subgroups_are_not_all_there_is_the_whole_has_a_minimum_too() {
        let spec = json!({"minMember": 3, "roles": [{"name": "lead", "minMember": 1}]});
        let shape = Shape::of(PodGroupKind::Tensorstack, &PodGroupKind::Tensorstack.spec(&spec));
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(shape.shown_start([(0, at(1)), (1, at(2))].into_iter()), None);
        assert_eq!(shape.shown_start([(0, at(1)), (1, at(2)), (1, at(5))].into_iter()), Some(at(5)));
        assert_eq!(shape.shown_start([(1, at(1)), (1, at(2)), (1, at(5))].into_iter()), None);
    }
}
