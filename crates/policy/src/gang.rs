//! Pods that start and stop as one: which of them count, how many it takes, and when they started.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_types::{
    keys,
    projection::{Pod, PodGroupSpec},
};

use crate::preemption::{Progress, Subgroup};

/// The subgroup of pods that name none.
const DEFAULT_SUBGROUP: &str = "default";

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
    numbers: HashMap<String, usize>,
    minimums: Vec<u32>,
}

impl Shape {
    /// Of a `PodGroup`: its subgroups, but for those that are only there to hold others; or all of it, if it has none.
    pub fn of(spec: &PodGroupSpec) -> Self {
        let parents: HashSet<&str> = spec.sub_groups.iter().filter_map(|of| of.parent.as_deref()).collect();
        let leaves = spec.sub_groups.iter().filter(|of| !parents.contains(of.name.as_str()));
        let mut shape = Self { numbers: HashMap::new(), minimums: Vec::new() };
        for (number, subgroup) in leaves.enumerate() {
            shape.numbers.insert(subgroup.name.clone(), number);
            shape.minimums.push(subgroup.min_member.unwrap_or(1));
        }
        if shape.minimums.is_empty() {
            Self::single(DEFAULT_SUBGROUP, spec.min_member.unwrap_or(1))
        } else {
            shape
        }
    }

    /// Of a pod by itself.
    pub fn alone(pod: &Pod) -> Self {
        Self::single(subgroup_of(pod), 1)
    }

    fn single(name: &str, minimum: u32) -> Self {
        Self { numbers: HashMap::from([(name.to_owned(), 0)]), minimums: vec![minimum] }
    }

    /// The number of a pod's subgroup; one that there isn't, if it names none of them.
    pub fn subgroup(&self, pod: &Pod) -> usize {
        self.numbers.get(subgroup_of(pod)).copied().unwrap_or(self.minimums.len())
    }

    /// What there is of each subgroup. Pods that have ended, or are about to, don't count.
    pub fn count<'p>(&self, pods: impl Iterator<Item = &'p Pod>) -> Vec<Subgroup> {
        let empty = |min: &u32| Subgroup { min: *min, live: 0, running: 0 };
        let mut subgroups: Vec<Subgroup> = self.minimums.iter().map(empty).collect();
        for pod in pods {
            let (progress, number) = (progress(pod), self.subgroup(pod));
            if number == subgroups.len() {
                // those that no minimum needs
                subgroups.push(empty(&0));
            }
            if let Some(subgroup) = subgroups.get_mut(number) {
                subgroup.live = subgroup.live.saturating_add(u32::from(progress != Progress::Gone));
                subgroup.running = subgroup.running.saturating_add(u32::from(progress == Progress::Running));
            }
        }
        subgroups
    }

    /// When pods show that they started: when as many of each subgroup were scheduled as it takes. None if too few are.
    pub fn shown_start<'p>(&self, pods: impl Iterator<Item = &'p Pod>) -> Option<Timestamp> {
        let mut scheduled: Vec<Vec<Timestamp>> = vec![Vec::new(); self.minimums.len()];
        let mut first: Option<Timestamp> = None;
        for pod in pods.filter(|pod| progress(pod) == Progress::Running) {
            let Some(at) = pod.scheduled_at().map(|at| at.0) else { continue };
            first = first.into_iter().chain([at]).min();
            if let Some(times) = scheduled.get_mut(self.subgroup(pod)) {
                times.push(at);
            }
        }
        let last_of = |(minimum, times): (&u32, &mut Vec<Timestamp>)| {
            times.sort_unstable();
            // a subgroup that needs no pod doesn't keep the others from having started
            let last = usize::try_from(*minimum).ok()?.checked_sub(1)?;
            Some(times.get(last).copied())
        };
        let mut starts = self.minimums.iter().zip(&mut scheduled).filter_map(last_of);
        starts.try_fold(first?, |latest, at| Some(latest.max(at?)))
    }
}

fn subgroup_of(pod: &Pod) -> &str {
    pod.label(keys::RUNAI_SUBGROUP_LABEL).filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SUBGROUP)
}

/// When a `PodGroup` is stamped to have started; an error is what can't be read.
pub fn stamp(metadata: &ObjectMeta) -> Option<Result<Timestamp, &str>> {
    let text = metadata.annotations.as_ref()?.get(keys::LAST_START_ANNOTATION)?;
    Some(text.parse().ok().filter(|_| is_rfc3339(text)).ok_or(text.as_str()))
}

/// Others that write stamps read no other form, though there are more.
fn is_rfc3339(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00") else { return false };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) if fraction.starts_with('0') => fraction.trim_start_matches('0'),
        Some(_) => return false,
        None => rest,
    };
    matches!(zone, "Z" | "+00:00" | "-00:00")
}

/// Where a start time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// The stamp of its `PodGroup`.
    Stamp,
    /// What its pods show.
    Pods,
    /// None of its pods runs.
    Nothing,
}

/// When a workload started, and how that is known. A stamp counts as long as any pod runs: it outlives the run that it
/// is of.
pub fn start(stamp: Option<Timestamp>, shape: &Shape, pods: &[&Pod]) -> (Option<Timestamp>, StartFrom) {
    if !pods.iter().any(|pod| progress(pod) == Progress::Running) {
        return (None, StartFrom::Nothing);
    }
    match stamp {
        Some(stamp) => (Some(stamp), StartFrom::Stamp),
        None => (shape.shown_start(pods.iter().copied()), StartFrom::Pods),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn group(spec: Value) -> Shape {
        Shape::of(&serde_json::from_value(spec).unwrap())
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
        shape.shown_start(pods.iter()).map(|at| at.strftime("%S").to_string())
    }

    fn counts(shape: &Shape, pods: &[Pod]) -> Vec<(u32, u32, u32)> {
        let subgroups = shape.count(pods.iter());
        subgroups.iter().map(|of| (of.min, of.live, of.running)).collect()
    }

    #[test]
    fn it_starts_when_the_last_pod_that_it_takes_is_scheduled() {
        let min = |min| group(json!({"minMember": min}));
        assert_eq!(started(&min(1), &pods(&[("", 5)])).as_deref(), Some("05"));
        assert_eq!(started(&min(2), &pods(&[("", 9), ("", 5), ("", 7)])).as_deref(), Some("07"));
        assert_eq!(started(&min(2), &pods(&[("", 5)])), None);
        assert_eq!(started(&min(1), &[]), None);
        assert_eq!(started(&min(0), &pods(&[("", 5), ("", 4)])).as_deref(), Some("04"));
    }

    #[test]
    fn every_subgroup_has_to_start() {
        let shape = group(
            json!({"subGroups": [{"name": "a"}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 0}]}),
        );
        assert_eq!(started(&shape, &pods(&[("a", 5), ("b", 6), ("b", 8)])).as_deref(), Some("08"));
        assert_eq!(started(&shape, &pods(&[("a", 5), ("a", 6), ("b", 8)])), None);
    }

    #[test]
    fn a_subgroup_that_holds_others_has_no_pods_and_one_that_there_is_not_counts_nowhere() {
        let spec = json!({"minMember": 9, "subGroups": [
            {"name": "all", "minMember": 2}, {"name": "lead", "parent": "all"}, {"name": "worker", "parent": "all", "minMember": 3},
        ]});
        let shape = group(spec);
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
        assert_eq!(counts(&group(json!({"minMember": 2})), &pods), [(2, 1, 1)]);
        assert_eq!(started(&group(json!({"minMember": 2})), &pods), None);
    }

    #[test]
    fn a_stamp_counts_while_any_pod_runs() {
        let (shape, stamped) = (group(json!({})), "2026-01-01T00:00:09Z".parse().unwrap());
        let (running, waiting) = (pod("", Some(5)), pod("", None));
        assert_eq!(start(Some(stamped), &shape, &[&running, &waiting]), (Some(stamped), StartFrom::Stamp));
        assert_eq!(start(Some(stamped), &shape, &[&waiting]), (None, StartFrom::Nothing));
        assert_eq!(start(None, &shape, &[&running]).1, StartFrom::Pods);
        let metadata = |text: &str| {
            serde_json::from_value(json!({"annotations": {"kai.scheduler/last-start-timestamp": text}}))
                .unwrap()
        };
        assert_eq!(stamp(&metadata("2026-01-01T00:00:09Z")), Some(Ok(stamped)));
        for bad in [
            "soon",
            "20260101T000009Z",
            "2026-01-01T00:00Z",
            "2026-01-01 00:00:09Z",
            "2026-01-01T00:00:09,5Z",
            "2026-01-01T00:00:09+00:00[UTC]",
        ] {
            assert_eq!(stamp(&metadata(bad)), Some(Err(bad)));
        }
        for good in ["2026-01-01T00:00:09.000Z", "2026-01-01T01:00:09+01:00"] {
            assert_eq!(stamp(&metadata(good)), Some(Ok(stamped)));
        }
        assert_eq!(stamp(&ObjectMeta::default()), None);
    }
}
