//! The pods that explanations are about, and their workloads.
//!
//! Called while a snapshot is filled, and by the explanations. Manifests lack what the API server
//! sets: it is filled in here, by the same rules.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use k8s_openapi::{
    api::scheduling::v1::PriorityClass,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::ResourceExt;
use tenure_index::{GroupWorkload, PartId, PodWorkload};
use tenure_policy::{
    expiry::{self, SYSTEM_CRITICAL_PRIORITY},
    pause,
    preemption::Workload,
    start,
    toleration::{ClassState, Toleration},
};
use tenure_types::{
    keys,
    podgroup::{PodGroup, PodGroupKind},
    projection::Pod,
};

use super::{NamespacedName, Snapshot};
use crate::{cluster::DEFAULT_NAMESPACE, print::warn};

/// The priority classes that every cluster has, with their values.
const BUILT_IN: [(&str, i32); 2] =
    [("system-cluster-critical", SYSTEM_CRITICAL_PRIORITY), ("system-node-critical", 2_000_001_000)];

impl Snapshot {
    /// Adds a priority class. A toleration that can't be read leads to a warning.
    pub(super) fn take_class(&mut self, class: PriorityClass) {
        let name = class.name_any();
        let read = Toleration::read(class.value.unwrap_or(0), class.metadata.annotations.as_ref());
        let shown = |error| format!("PriorityClass {name:?}: {error}: it protects no pod");
        self.oddities.extend(read.err().into_iter().flatten().map(shown));
        self.classes.insert(name, class);
    }

    /// Adds a `PodGroup`. Annotations that can't be read lead to warnings.
    pub(super) fn take_group(&mut self, kind: PodGroupKind, mut group: PodGroup) {
        group.metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
        self.oddities.extend(unreadable_stamp(&group.metadata));
        self.oddities.extend(unreadable_max_duration(&group.metadata));
        self.index.apply_group(kind, &group);
    }

    /// Adds the fields that manifests leave to the API server, and passes the pods to the index. To
    /// be called once all objects were added. Collects warnings.
    pub(super) fn complete(&mut self) {
        let Self { pods, classes, index, now, oddities, .. } = self;
        let default = classes.values().find(|class| class.global_default == Some(true));
        for ((namespace, name), pod) in pods {
            let scheduled = pod.scheduled_at().map(|at| at.0);
            if let Some(at) = scheduled.filter(|at| at > now) {
                oddities.push(format!(
                    "pod {namespace}/{name}: it was scheduled in the future, at {at}: that counts as now"
                ));
            }
            pod.metadata.creation_timestamp.get_or_insert(Time(scheduled.unwrap_or(*now)));
            pod.metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
            if pod.spec.priority.is_none() {
                let class = &mut pod.spec.priority_class_name;
                let class =
                    class.get_or_insert_with(|| default.map(ResourceExt::name_any).unwrap_or_default());
                pod.spec.priority = value_of(classes, class);
            }
            pod.metadata.uid.get_or_insert_with(|| format!("{namespace}/{name}"));
            index.apply_member(pod);
        }
        // start times of groups that lie in the future
        let ahead = index.gangs().filter_map(|GroupWorkload { key, stamp, .. }| {
            let (of, at) = (annotation(&key.namespace, &key.name), stamp.filter(|at| at > now)?);
            Some(format!(
                "{of}: {at} lies in the future: the start that its pods show counts, else the present time"
            ))
        });
        let mut ahead: Vec<String> = ahead.collect();
        ahead.sort_unstable();
        oddities.append(&mut ahead);
    }

    /// Returns a pod that was read. The error names the pod.
    pub fn pod(&self, key: &NamespacedName) -> Result<&Pod> {
        let (namespace, name) = key;
        let missing = || anyhow!("pod {namespace}/{name} is not among the objects that were read");
        self.pods.get(key).ok_or_else(missing)
    }

    /// Returns the pods of a namespace that were read, each with its controller.
    pub fn pods_in(&self, namespace: &str) -> Vec<(NamespacedName, Option<OwnerReference>)> {
        let here = self.pods.iter().filter(|((of, _), _)| of == namespace);
        here.map(|(key, pod)| (key.clone(), pod.controller().cloned())).collect()
    }

    /// Returns the priority class of a pod, if it was read.
    pub fn class(&self, pod: &Pod) -> Option<&PriorityClass> {
        self.classes.get(pod.spec.priority_class_name.as_deref()?)
    }

    /// Returns the toleration of a pod's priority class, or the reason why there is none.
    pub fn class_state(&self, pod: &Pod) -> ClassState {
        let name = pod.spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
        let Some(name) = name else { return ClassState::None };
        let annotations = self.classes.get(name).and_then(|class| class.metadata.annotations.as_ref());
        match value_of(&self.classes, name) {
            Some(value) => ClassState::of(value, annotations),
            None => ClassState::Missing,
        }
    }

    /// Returns the node pool of a pod: that of the flag, or that of its node. None: no pool, so the
    /// defaults for all nodes count.
    pub fn pool(&self, pod: &Pod) -> Option<&str> {
        let of_node = || {
            let node = self.nodes.get(pod.spec.node_name.as_deref()?)?;
            node.labels.as_ref()?.get(&self.floors.node_pool_label_key)
        };
        self.node_pool.as_ref().or_else(of_node).map(String::as_str)
    }
}

/// Returns the value of a class. None: there is no such class.
fn value_of(classes: &HashMap<String, PriorityClass>, name: &str) -> Option<i32> {
    let built_in = || BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    classes.get(name).map(|class| class.value.unwrap_or(0)).or_else(built_in)
}

/// A workload for floors and starts, with its name.
#[derive(Debug)]
pub struct NamedWorkload<'s> {
    /// `PodGroup ns/name`, or `pod ns/name`.
    pub name: String,
    pub workload: Workload<'s>,
    /// The part of it that is counted by itself when the pod goes. None: the workload has no such
    /// part.
    pub part: Option<(PartId, Workload<'s>)>,
    /// The origin of the start time, in words.
    pub start_from: &'static str,
}

impl NamedWorkload<'_> {
    /// True if the workload runs on without the pod.
    pub fn is_elastic(&self) -> bool {
        self.part.as_ref().map_or(&self.workload, |(_, part)| part).is_elastic()
    }
}

impl Snapshot {
    /// Returns the key of a pod's workload: that of its `PodGroup`, or the pod's own.
    pub fn gang_key(&self, pod: &Pod) -> (Option<PodGroupKind>, NamespacedName) {
        let Some(gang) = self.index.gang(pod) else { return (None, super::key(&pod.metadata)) };
        (Some(gang.key.kind), (gang.key.namespace.to_string(), gang.key.name.to_string()))
    }

    /// Warns if a pod names a `PodGroup` that doesn't exist.
    pub fn warn_of_missing_group(&self, pod: &Pod) {
        let named = super::group_names(pod).next().filter(|_| self.index.gang(pod).is_none());
        if let Some((kind, group)) = named {
            let ((namespace, name), api_group) = (super::key(&pod.metadata), kind.group());
            warn(&format!(
                "pod {namespace}/{name}: its PodGroup {group:?} is not there ({api_group}): it counts as a pod by itself"
            ));
        }
    }

    /// Returns the workload of a pod: its `PodGroup`, or the pod by itself.
    pub fn gang<'s>(&'s self, pod: &'s Pod) -> NamedWorkload<'s> {
        let PodWorkload { whole: workload, part, subgroup: _ } = self.index.workload(pod);
        let gang = self.index.gang(pod);
        let (_, (namespace, name)) = self.gang_key(pod);
        let what = if gang.is_some() { "PodGroup" } else { "pod" };
        NamedWorkload {
            name: format!("{what} {namespace}/{name}"),
            start_from: match workload.start {
                _ if workload.pods.running().total() == 0 => "none of its pods runs",
                None if gang.is_some() => "fewer of its pods run than it needs",
                Some(start) if gang.and_then(|gang| gang.stamp) == Some(start) => keys::LAST_START_ANNOTATION,
                _ => "PodScheduled of its pods",
            },
            workload,
            part,
        }
    }
}

/// Returns a warning about a start time that can't be read. None: the group has none, or it can be
/// read.
fn unreadable_stamp(group: &ObjectMeta) -> Option<String> {
    let text = start::stamp(group)?.err()?;
    let (namespace, name) = super::key(group);
    let annotation = annotation(&namespace, &name);
    Some(format!(
        "{annotation}: Invalid value: {text:?}: must be a time such as 2026-01-02T03:04:05Z: the pods' own times count"
    ))
}

/// Returns a warning about a ceiling of the group's own that can't be read.
fn unreadable_max_duration(group: &ObjectMeta) -> Option<String> {
    let text = group.annotations.as_ref()?.get(keys::MAX_DURATION_ANNOTATION)?;
    let (namespace, name) = super::key(group);
    let error = expiry::own_ceiling(text).error?;
    Some(format!("PodGroup {namespace}/{name}: {}", pause::own_invalid(text, &error)))
}

/// Returns the name of a group's annotation for the start, for messages.
fn annotation(namespace: &str, name: &str) -> String {
    format!("PodGroup {namespace}/{name}: annotation {}", keys::LAST_START_ANNOTATION)
}
