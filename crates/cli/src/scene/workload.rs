//! The workload of a pod, as a scene shows it.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    gang::{Progress, Shape, progress},
    preemption::{Place, Workload},
    start,
};
use tenure_types::{keys, podgroup::PodGroupKind, projection::Pod};

use super::{Key, Scene};
use crate::tell::warn;

const FROM_PODS: &str = "PodScheduled of its pods";

/// A workload and how it came to be known.
#[derive(Debug)]
pub struct Gang<'s> {
    /// `PodGroup ns/name`, or `pod ns/name`.
    pub name: String,
    pub workload: Workload<'s>,
    /// Where the start time comes from.
    pub start_from: &'static str,
}

impl Scene {
    /// What tells a pod's workload from others: its `PodGroup`, or its own key.
    pub fn gang_key(&self, pod: &Pod) -> (Option<PodGroupKind>, Key) {
        match self.index.gang(pod) {
            Some(gang) => (Some(gang.kind), (gang.namespace.to_string(), gang.name.to_string())),
            None => (None, super::key(&pod.metadata)),
        }
    }

    /// A pod may name a `PodGroup` although there is no such.
    pub fn warn_of_missing_group(&self, pod: &Pod) {
        let named = super::group_names(pod).next().filter(|_| self.index.gang(pod).is_none());
        if let Some((kind, group)) = named {
            let ((namespace, name), api_group) = (super::key(&pod.metadata), kind.group());
            warn(&format!(
                "pod {namespace}/{name}: its PodGroup {group:?} is not there ({api_group}): it counts as a pod by itself"
            ));
        }
    }

    /// The queue that a pod is in: that of its `PodGroup`, if there is one that names one, else that of its label.
    pub fn queue_of<'s>(&'s self, pod: &'s Pod) -> Option<&'s str> {
        let group = self.index.gang(pod).filter(|gang| gang.kind == PodGroupKind::Runai);
        let of_group = group.and_then(|group| group.queue).map(|queue| &**queue);
        of_group.or_else(|| pod.label(keys::RUNAI_QUEUE_LABEL)).filter(|queue| !queue.is_empty())
    }

    /// Where a pod is.
    pub fn place<'s>(&'s self, pod: &'s Pod) -> Place<'s> {
        Place::find(&self.tree, self.queue_of(pod))
    }

    /// The workload of a pod.
    pub fn gang<'s>(&'s self, pod: &'s Pod) -> Gang<'s> {
        let place = self.place(pod);
        let Some(gang) = self.index.gang(pod) else { return alone(pod, place) };
        let key = self.gang_key(pod).1;
        let pods = self.members(gang.kind, &key);
        let runs = pods.iter().any(|pod| progress(pod) == Progress::Running);
        Gang {
            name: format!("PodGroup {}/{}", gang.namespace, gang.name),
            start_from: match gang.start {
                _ if !runs => "no pod of it runs",
                None => "fewer of its pods run than it takes",
                Some(_) if gang.start == gang.stamp => keys::LAST_START_ANNOTATION,
                Some(_) => FROM_PODS,
            },
            workload: Workload {
                place,
                start: gang.start,
                shape: gang.shape,
                pods: gang.shape.count(pods.into_iter()),
            },
        }
    }

    fn members(&self, kind: PodGroupKind, group: &Key) -> Vec<&Pod> {
        let keys = self.members.get(&(kind, group.clone()));
        keys.into_iter().flatten().filter_map(|key| self.pods.get(key)).collect()
    }
}

/// A pod that is in no group.
fn alone<'s>(pod: &Pod, place: Place<'s>) -> Gang<'s> {
    let (namespace, name) = super::key(&pod.metadata);
    let runs = progress(pod) == Progress::Running;
    let start = pod.scheduled_at().map(|at| at.0).filter(|_| runs);
    let shape = Shape::alone();
    Gang {
        name: format!("pod {namespace}/{name}"),
        start_from: if runs { FROM_PODS } else { "no pod of it runs" },
        workload: Workload { place, start, shape, pods: shape.count(std::iter::once(pod)) },
    }
}

/// What is odd about a stamp.
pub fn stamp_warning(group: &ObjectMeta, now: Timestamp) -> Option<String> {
    let (namespace, name) = super::key(group);
    let annotation = format!("PodGroup {namespace}/{name}: annotation {}", keys::LAST_START_ANNOTATION);
    match start::stamp(group)? {
        Ok(at) if at > now => Some(format!(
            "{annotation}: {at} lies in the future: what its pods show counts, and now where that is nothing"
        )),
        Ok(_) => None,
        Err(text) => Some(format!(
            "{annotation}: Invalid value: {text:?}: must be a time such as 2026-01-02T03:04:05Z: the pods' own times count"
        )),
    }
}
