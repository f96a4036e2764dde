//! The pods that explanations are about.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use k8s_openapi::{api::scheduling::v1::PriorityClass, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;
use tenure_policy::{expiry::SYSTEM_CRITICAL_PRIORITY, toleration::ClassState};
use tenure_types::projection::Pod;

use super::{Key, Snapshot};
use crate::connect::DEFAULT;

/// Classes that every cluster has.
const BUILT_IN: [(&str, i32); 2] =
    [("system-cluster-critical", SYSTEM_CRITICAL_PRIORITY), ("system-node-critical", 2_000_001_000)];

impl Snapshot {
    /// Adds what manifests leave to the API server, once everything is known, and looks for what is odd.
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
            pod.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
            if pod.spec.priority.is_none() {
                let class = pod
                    .spec
                    .priority_class_name
                    .get_or_insert_with(|| default.map(ResourceExt::name_any).unwrap_or_default());
                pod.spec.priority = value_of(classes, class);
            }
            pod.metadata.uid.get_or_insert_with(|| format!("{namespace}/{name}"));
            index.apply_member(pod);
        }
        self.doubt_stamps();
    }

    /// A pod that was asked for.
    pub fn pod(&self, key: &Key) -> Result<&Pod> {
        let (namespace, name) = key;
        let missing = || anyhow!("pod {namespace}/{name} is not among the objects that were read");
        self.pods.get(key).ok_or_else(missing)
    }

    /// The class that a pod names, if it is known.
    pub fn class(&self, pod: &Pod) -> Option<&PriorityClass> {
        self.classes.get(pod.spec.priority_class_name.as_deref()?)
    }

    /// What a pod's class says.
    pub fn class_state(&self, pod: &Pod) -> ClassState {
        let Some(name) = pod.spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) else {
            return ClassState::None;
        };
        let annotations = self.classes.get(name).and_then(|class| class.metadata.annotations.as_ref());
        match value_of(&self.classes, name) {
            Some(value) => ClassState::of(value, annotations),
            None => ClassState::Missing,
        }
    }

    /// The pool of the node that a pod is on.
    pub fn pool(&self, pod: &Pod) -> Option<&str> {
        let node = self.nodes.get(pod.spec.node_name.as_deref()?)?;
        node.labels.as_ref()?.get(&self.floors.node_pool_label_key).map(String::as_str)
    }
}

/// The value of a class; none if there is no such class.
fn value_of(classes: &HashMap<String, PriorityClass>, name: &str) -> Option<i32> {
    let built_in = || BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    classes.get(name).map(|class| class.value.unwrap_or(0)).or_else(built_in)
}
