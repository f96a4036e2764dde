//! A Pod, reduced to the fields that Tenure reads. The webhook, the keeper and the command line
//! hold pods in this form, and [`crate::room`] reads more of them where the room on nodes matters.

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

use super::{controller, slim};
use crate::keys;

/// A Pod, reduced to the fields that Tenure reads.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Resource)]
#[resource(inherit = core::Pod)]
#[serde(default)]
pub struct Pod {
    /// The metadata, without the parts that no decision needs, above all `managedFields`.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    pub spec: PodSpec,
    /// The fields of `status` that are read.
    pub status: PodStatus,
}

/// The `spec` of a [`Pod`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The value of the priority class; absent means 0.
    pub priority: Option<i32>,
    /// The scheduler that places the pod.
    pub scheduler_name: Option<String>,
    /// The node that the pod is bound to.
    pub node_name: Option<String>,
    /// The name of the `PriorityClass`, whose annotations hold the pod's toleration.
    pub priority_class_name: Option<String>,
    /// `Never` if the pod waits rather than preempts others.
    pub preemption_policy: Option<String>,
    /// The grace period in seconds of a deletion that names none.
    pub termination_grace_period_seconds: Option<i64>,
    /// The membership in a `PodGroup` of Kubernetes itself.
    pub scheduling_group: Option<SchedulingGroup>,
}

/// The membership of a [`Pod`] in a `PodGroup` of Kubernetes itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingGroup {
    /// The name of the group, in the pod's namespace.
    pub pod_group_name: Option<String>,
}

/// The `status` of a [`Pod`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// The phase: Pending, Running, Succeeded, Failed or Unknown.
    pub phase: Option<String>,
    /// All conditions, such as `PodScheduled` and `DisruptionTarget`.
    #[serde(default)]
    pub conditions: Vec<PodCondition>,
    /// The node on which the scheduler makes room for the pod.
    pub nominated_node_name: Option<String>,
    /// The time at which the agent of the pod's node took the pod on.
    #[serde(default, deserialize_with = "readable")]
    pub start_time: Option<Time>,
}

/// A condition of a [`Pod`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// The type, such as `PodScheduled`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The status: True, False or Unknown.
    pub status: String,
    /// The reason, in one word.
    pub reason: Option<String>,
    /// The time at which the status last changed. Any user who may write a pod's status can write a
    /// time that can't be read, which must not make the list of all pods fail.
    #[serde(default, deserialize_with = "readable")]
    pub last_transition_time: Option<Time>,
}

/// Reads a time. None: the time is absent, or can't be read.
pub(crate) fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let written = Option::<String>::deserialize(deserializer)?;
    Ok(written.and_then(|text| text.parse().ok()).map(Time))
}

impl Pod {
    /// Returns the value of a label. None: the pod doesn't have the label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the value of an annotation. None: the pod doesn't have the annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the owner that controls this pod. A pod may have other owners, and the controller
    /// need not come first. None: no owner controls the pod.
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller(&self.metadata)
    }

    /// True if this is the mirror of a kubelet's static pod.
    pub fn is_mirror(&self) -> bool {
        self.annotation(keys::MIRROR_POD_ANNOTATION).is_some()
    }

    /// True if all containers have ended, and none will be restarted.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// True if an annotation exempts the pod from all protection, for emergencies.
    pub fn is_unguarded(&self) -> bool {
        self.annotation(keys::UNGUARDED_ANNOTATION) == Some("true")
    }

    /// Returns the time of the pod's binding, but never one before its creation, as a slow clock
    /// may write. None: the pod is pending.
    ///
    /// A pod with a node that doesn't show its binding was created with that node: a `Binding`
    /// writes both at once. Such a pod is bound since its creation. Its kubelet notes a later time,
    /// or none if the pod is too large for any change of its status. Some virtual kubelets remove the
    /// time of the binding, but write when they took the pod on.
    pub fn scheduled_at(&self) -> Option<&Time> {
        let created = self.metadata.creation_timestamp.as_ref();
        let shown = self.binding().and_then(|of| of.last_transition_time.as_ref());
        let taken_on = || self.spec.node_name.as_ref().and(self.status.start_time.as_ref().or(created));
        let at = shown.or_else(taken_on)?;
        Some(created.map_or(at, |created| at.max(created)))
    }

    /// True if a condition shows that the pod is bound: its scheduler or its kubelet has noted that.
    pub fn shows_binding(&self) -> bool {
        self.binding().is_some()
    }

    fn binding(&self) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|of| of.type_ == "PodScheduled" && of.status == "True")
    }
}
