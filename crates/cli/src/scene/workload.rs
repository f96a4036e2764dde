//! The workload of a pod, as a scene shows it.

use jiff::Timestamp;
use tenure_policy::{
    gang::{self, Shape, StartFrom},
    preemption::{Place, Workload},
};
use tenure_types::{
    keys,
    projection::{Pod, RunaiPodGroup},
};

use super::{Key, Scene};
use crate::{connect::DEFAULT, tell::warn};

/// A workload and how it came to be known.
#[derive(Debug)]
pub struct Gang<'s> {
    /// `PodGroup ns/name`, or `pod ns/name`.
    pub name: String,
    pub workload: Workload<'s>,
    /// Where the start time comes from.
    pub start_from: &'static str,
    pub shape: Shape,
}

impl Scene {
    /// What tells a pod's workload from others: the key of its `PodGroup`, or its own.
    pub fn gang_key(&self, pod: &Pod) -> (bool, Key) {
        match self.group_of(pod) {
            Some(group) => (true, super::key(&group.metadata)),
            None => (false, super::key(&pod.metadata)),
        }
    }

    /// A pod may name a `PodGroup` although there is no such.
    pub fn warn_of_missing_group(&self, pod: &Pod) {
        let named = pod.annotation(keys::RUNAI_GROUP_ANNOTATION);
        if let Some(group) = named.filter(|_| self.group_of(pod).is_none()) {
            let (namespace, name) = super::key(&pod.metadata);
            warn(&format!(
                "pod {namespace}/{name}: its PodGroup {group:?} is not there: it counts as a pod by itself"
            ));
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
        let (kind, shape, stamp, pods) = match self.group_of(pod) {
            Some(group) => {
                let stamp = gang::stamp(&group.metadata).and_then(Result::ok);
                ("PodGroup", Shape::of(&group.spec), stamp, self.members(&namespace, &name))
            }
            None => ("pod", Shape::alone(pod), None, vec![pod]),
        };
        let (start, from) = gang::start(stamp, &shape, &pods);
        let subgroups = shape.count(pods.into_iter());
        Gang {
            name: format!("{kind} {namespace}/{name}"),
            workload: Workload { place: self.place(pod), start, subgroups },
            start_from: match from {
                StartFrom::Stamp => keys::LAST_START_ANNOTATION,
                StartFrom::Pods => "PodScheduled of its pods",
                StartFrom::Nothing => "no pod of it runs",
            },
            shape,
        }
    }

    fn members(&self, namespace: &str, group: &str) -> Vec<&Pod> {
        let keys = self.members.get(&(namespace.to_owned(), group.to_owned()));
        keys.into_iter().flatten().filter_map(|key| self.pods.get(key)).collect()
    }
}

/// What is odd about a stamp.
pub fn stamp_warning(group: &RunaiPodGroup, now: Timestamp) -> Option<String> {
    let (namespace, name) = super::key(&group.metadata);
    let annotation = format!("PodGroup {namespace}/{name}: annotation {}", keys::LAST_START_ANNOTATION);
    match gang::stamp(&group.metadata)? {
        Ok(at) if at > now => Some(format!("{annotation}: {at} lies in the future: it counts as now")),
        Ok(_) => None,
        Err(text) => Some(format!(
            "{annotation}: Invalid value: {text:?}: must be a time such as 2026-01-02T03:04:05Z: the pods' own times count"
        )),
    }
}
