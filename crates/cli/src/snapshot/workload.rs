//! The workload of a pod, for explanations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{preemption::Workload, start};
use tenure_types::{keys, podgroup::PodGroupKind, projection::Pod};

use super::{Key, Snapshot};
use crate::tell::warn;

/// A workload and how it came to be known.
#[derive(Debug)]
pub struct Gang<'s> {
    /// `PodGroup ns/name`, or `pod ns/name`.
    pub name: String,
    pub workload: Workload<'s>,
    /// Where the start time comes from.
    pub start_from: &'static str,
}

impl Snapshot {
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

    /// The workload of a pod.
    pub fn gang<'s>(&'s self, pod: &'s Pod) -> Gang<'s> {
        let ((workload, _), gang) = (self.index.workload(pod), self.index.gang(pod));
        let (_, (namespace, name)) = self.gang_key(pod);
        let what = if gang.is_some() { "PodGroup" } else { "pod" };
        Gang {
            name: format!("{what} {namespace}/{name}"),
            start_from: match workload.start {
                _ if workload.pods.running().total() == 0 => "no pod of it runs",
                None if gang.is_some() => "fewer of its pods run than it takes",
                Some(start) if gang.and_then(|gang| gang.stamp) == Some(start) => keys::LAST_START_ANNOTATION,
                _ => "PodScheduled of its pods",
            },
            workload,
        }
    }

    /// Computes the starts of all groups, and looks for stamps that lie in the future.
    pub(super) fn doubt_stamps(&mut self) {
        let Self { index, now, oddities, .. } = self;
        let mut ahead: Vec<_> = index
            .gangs()
            .filter_map(|gang| Some((gang.stamp.filter(|at| at > now)?, gang.namespace, gang.name)))
            .map(|(at, namespace, name)| {
                let annotation = annotation(namespace, name);
                format!(
                    "{annotation}: {at} lies in the future: what its pods show counts, and now where that is nothing"
                )
            })
            .collect();
        ahead.sort_unstable();
        oddities.append(&mut ahead);
    }
}

/// What is wrong with a stamp that isn't a time.
pub fn unreadable_stamp(group: &ObjectMeta) -> Option<String> {
    let text = start::stamp(group)?.err()?;
    let (namespace, name) = super::key(group);
    let annotation = annotation(&namespace, &name);
    Some(format!(
        "{annotation}: Invalid value: {text:?}: must be a time such as 2026-01-02T03:04:05Z: the pods' own times count"
    ))
}

fn annotation(namespace: &str, name: &str) -> String {
    format!("PodGroup {namespace}/{name}: annotation {}", keys::LAST_START_ANNOTATION)
}
