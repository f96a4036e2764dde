//! Pods that start and stop as one, as decisions need them.

use std::collections::HashSet;

use jiff::Timestamp;
use tenure_policy::{
    preemption::{Place, Progress, Subgroup, Workload},
    start,
};
use tenure_types::{
    keys,
    projection::{Pod, RunaiPodGroup},
};

use super::{DEFAULT, Key, Scene};

/// Subgroup of pods that name none.
const DEFAULT_SUBGROUP: &str = "default";

/// A workload and how it came to be known.
#[derive(Debug)]
pub struct Gang<'s> {
    /// `PodGroup ns/name`, or `pod ns/name`.
    pub name: String,
    pub workload: Workload<'s>,
    /// Where the start time comes from.
    pub start_from: &'static str,
    subgroups: Vec<String>,
}

impl Gang<'_> {
    /// The number of a pod's subgroup; that of none if there is no such.
    pub fn subgroup(&self, pod: &Pod) -> usize {
        let name = subgroup_of(pod);
        self.subgroups.iter().position(|known| known == name).unwrap_or(self.subgroups.len())
    }
}

/// How far a pod has come. One whose manifest says no more than that it runs was scheduled.
pub fn progress(pod: &Pod) -> Progress {
    if pod.metadata.deletion_timestamp.is_some() || pod.is_finished() {
        Progress::Gone
    } else if pod.scheduled_at().is_some() || pod.spec.node_name.is_some() {
        Progress::Running
    } else {
        Progress::Waiting
    }
}

/// When a pod was scheduled.
pub fn scheduled_at(pod: &Pod) -> Option<Timestamp> {
    pod.scheduled_at().map(|at| at.0)
}

impl Scene {
    /// What tells a pod's workload from others: the key of its `PodGroup`, or its own.
    pub fn gang_key(&self, pod: &Pod) -> (bool, Key) {
        match self.group_of(pod) {
            Some(group) => (true, super::key(&group.metadata)),
            None => (false, super::key(&pod.metadata)),
        }
    }

    fn group_of(&self, pod: &Pod) -> Option<&RunaiPodGroup> {
        let name = pod.annotation(keys::RUNAI_GROUP_ANNOTATION)?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or(DEFAULT);
        self.groups.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The queue that a pod is in: that of its `PodGroup`, if there is one that names one, else that of its label.
    pub fn queue_of<'s>(&'s self, pod: &'s Pod) -> Option<&'s str> {
        let of_group = self.group_of(pod).and_then(|group| group.spec.queue.as_deref());
        let label = || pod.label(keys::RUNAI_QUEUE_LABEL);
        of_group.filter(|queue| !queue.is_empty()).or_else(label).filter(|queue| !queue.is_empty())
    }

    /// Where a pod is.
    pub fn place<'s>(&'s self, pod: &'s Pod) -> Place<'s> {
        Place::find(&self.tree, self.queue_of(pod))
    }

    /// The workload of a pod.
    pub fn gang<'s>(&'s self, pod: &'s Pod) -> Gang<'s> {
        let (_, (namespace, name)) = self.gang_key(pod);
        let Some(group) = self.group_of(pod) else {
            let running = progress(pod) == Progress::Running;
            let only = Subgroup { min: 1, live: 1, running: u32::from(running) };
            let start = scheduled_at(pod).filter(|_| running);
            return Gang {
                name: format!("pod {namespace}/{name}"),
                workload: Workload { place: self.place(pod), start, subgroups: vec![only] },
                start_from: "its PodScheduled condition",
                subgroups: vec![subgroup_of(pod).to_owned()],
            };
        };
        let (names, minimums): (Vec<String>, Vec<u32>) = minimums(group).into_iter().unzip();
        let members: Vec<(usize, &Pod)> = self
            .members(&namespace, &name)
            .map(|pod| (names.iter().position(|name| name == subgroup_of(pod)).unwrap_or(names.len()), pod))
            .collect();
        let (start, start_from) = start_of(group, &minimums, &members);
        let subgroups =
            minimums.iter().enumerate().map(|(place, min)| count(*min, place, &members)).collect();
        Gang {
            name: format!("PodGroup {namespace}/{name}"),
            workload: Workload { place: self.place(pod), start, subgroups },
            start_from,
            subgroups: names,
        }
    }

    fn members<'s>(&'s self, namespace: &str, group: &str) -> impl Iterator<Item = &'s Pod> {
        let first = (namespace.to_owned(), String::new());
        let here = self.pods.range(first..).take_while(move |((place, _), _)| place == namespace);
        here.map(|(_, pod)| pod)
            .filter(move |pod| pod.annotation(keys::RUNAI_GROUP_ANNOTATION) == Some(group))
    }
}

fn subgroup_of(pod: &Pod) -> &str {
    pod.label(keys::RUNAI_SUBGROUP_LABEL).filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SUBGROUP)
}

/// The subgroups that have pods, by name, and how many it takes.
fn minimums(group: &RunaiPodGroup) -> Vec<(String, u32)> {
    let spec = &group.spec;
    let parents: HashSet<&str> = spec.sub_groups.iter().filter_map(|of| of.parent.as_deref()).collect();
    let leaves = spec.sub_groups.iter().filter(|of| !parents.contains(of.name.as_str()));
    let leaves: Vec<_> = leaves.map(|of| (of.name.clone(), of.min_member.unwrap_or(1))).collect();
    if leaves.is_empty() {
        return vec![(DEFAULT_SUBGROUP.into(), spec.min_member.unwrap_or(1))];
    }
    leaves
}

fn count(min: u32, place: usize, members: &[(usize, &Pod)]) -> Subgroup {
    let mut subgroup = Subgroup { min, live: 0, running: 0 };
    for (_, pod) in members.iter().filter(|(of, _)| *of == place) {
        let progress = progress(pod);
        subgroup.live = subgroup.live.saturating_add(u32::from(progress != Progress::Gone));
        subgroup.running = subgroup.running.saturating_add(u32::from(progress == Progress::Running));
    }
    subgroup
}

/// The stamp counts as long as any pod runs: it outlives the run that it is of.
fn start_of(
    group: &RunaiPodGroup,
    minimums: &[u32],
    members: &[(usize, &Pod)],
) -> (Option<Timestamp>, &'static str) {
    let running: Vec<_> = members.iter().filter(|(_, pod)| progress(pod) == Progress::Running).collect();
    if running.is_empty() {
        return (None, "no pod of it runs");
    }
    if let Some(Ok(stamp)) = stamp(group) {
        return (Some(stamp), keys::LAST_START_ANNOTATION);
    }
    let scheduled: Vec<_> = running.iter().filter_map(|(of, pod)| Some((*of, scheduled_at(pod)?))).collect();
    (start::shown(minimums, &scheduled), "the PodScheduled conditions of its pods")
}

/// Its stamp, if it has one.
fn stamp(group: &RunaiPodGroup) -> Option<Result<Timestamp, &str>> {
    let text = group.metadata.annotations.as_ref()?.get(keys::LAST_START_ANNOTATION)?;
    Some(text.parse().map_err(|_| text.as_str()))
}

/// What is odd about a stamp.
pub fn stamp_warning(group: &RunaiPodGroup, now: Timestamp) -> Option<String> {
    let (namespace, name) = super::key(&group.metadata);
    let annotation = format!("PodGroup {namespace}/{name}: annotation {}", keys::LAST_START_ANNOTATION);
    match stamp(group)? {
        Ok(at) if at > now => Some(format!("{annotation}: {at} lies in the future: it counts as now")),
        Ok(_) => None,
        Err(text) => Some(format!(
            "{annotation}: Invalid value: {text:?}: must be a time such as 2026-01-02T03:04:05Z: the pods' own times count"
        )),
    }
}
