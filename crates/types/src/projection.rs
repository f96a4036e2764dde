//! The parts of built-in objects that a decision needs. All other fields are skipped while decoding and never
//! allocated: a whole Pod takes fifty kilobytes in memory, and clusters have 150,000 of them.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::{
    Resource,
    core::{ApiResource, NamespaceResourceScope},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{Written, keys, room::PodWithRoom, runai, tensorstack};

/// A Pod, reduced to the fields that Tenure reads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Pod {
    /// The metadata, without the parts that no decision needs, above all `managedFields`.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    #[serde(default)]
    pub spec: PodSpec,
    /// The fields of `status` that are read.
    #[serde(default)]
    pub status: PodStatus,
}

/// The `spec` of a [`Pod`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// The value of the priority class; absent means 0.
    #[serde(default)]
    pub priority: Option<i32>,
    /// The scheduler that places the pod.
    #[serde(default)]
    pub scheduler_name: Option<String>,
    /// The node that the pod is bound to.
    #[serde(default)]
    pub node_name: Option<String>,
    /// The name of the `PriorityClass`, whose annotations hold the pod's toleration.
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// `Never` if the pod waits rather than preempts others.
    #[serde(default)]
    pub preemption_policy: Option<String>,
    /// The membership in a `PodGroup` of Kubernetes itself.
    #[serde(default)]
    pub scheduling_group: Option<SchedulingGroup>,
}

/// The membership of a [`Pod`] in a `PodGroup` of Kubernetes itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingGroup {
    /// The name of the group, in the pod's namespace.
    #[serde(default)]
    pub pod_group_name: Option<String>,
}

/// The `status` of a [`Pod`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    #[serde(default)]
    pub phase: Option<String>,
    /// All conditions; only `PodScheduled` matters.
    #[serde(default)]
    pub conditions: Vec<PodCondition>,
    /// The node on which the scheduler makes room for the pod.
    #[serde(default)]
    pub nominated_node_name: Option<String>,
}

/// A condition of a [`Pod`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// Such as `PodScheduled`.
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// The reason, in one word.
    #[serde(default)]
    pub reason: Option<String>,
    /// The time at which the status last changed. Any user who may write a pod's status can write a time that can't be
    /// read, which must not make the list of all pods fail.
    #[serde(default, deserialize_with = "readable")]
    pub last_transition_time: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

pub(crate) fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let SlimMeta {
        name,
        namespace,
        uid,
        resource_version,
        creation_timestamp,
        deletion_timestamp,
        deletion_grace_period_seconds,
        labels,
        annotations,
        owner_references,
    } = SlimMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        creation_timestamp,
        deletion_timestamp,
        deletion_grace_period_seconds,
        labels,
        annotations,
        owner_references,
        finalizers: None,
        generate_name: None,
        generation: None,
        managed_fields: None,
        self_link: None,
    })
}

fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let written = Option::<String>::deserialize(deserializer)?;
    Ok(written.and_then(|text| text.parse().ok()).map(Time))
}

impl Pod {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The owner that controls this pod. A pod may have others, and the controller need not come first.
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller(&self.metadata)
    }

    /// True if this is the mirror of a kubelet's static pod.
    pub fn is_mirror(&self) -> bool {
        self.annotation(keys::MIRROR_POD_ANNOTATION).is_some()
    }

    /// True if all containers have ended.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// True if an annotation exempts the pod from all protection, for emergencies.
    pub fn is_unguarded(&self) -> bool {
        self.annotation(keys::UNGUARDED_ANNOTATION) == Some("true")
    }

    /// The time at which the pod was bound to a node; none while it is pending. The writer's clock may be behind, but
    /// no pod is bound before its creation.
    pub fn scheduled_at(&self) -> Option<&Time> {
        let scheduled = |c: &&PodCondition| c.type_ == "PodScheduled" && c.status == "True";
        let at = self.status.conditions.iter().find(scheduled)?.last_transition_time.as_ref()?;
        Some(self.metadata.creation_timestamp.as_ref().map_or(at, |created| at.max(created)))
    }
}

/// The owner reference with `controller: true`, of which the API server allows one at most.
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// A Node, reduced to its labels.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

/// A Namespace, reduced to its deletion timestamp.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Namespace {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

/// A queue of the run.ai family, reduced to the fields that Tenure reads.
///
/// Other programs write the status, the quotas and the fields of other versions, and none of these may make a ceiling
/// unreadable. So of `spec` only the fields that decisions need are filled in.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RunaiQueueObject {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    #[serde(default, deserialize_with = "runai_spec")]
    pub spec: runai::v3alpha1::QueueSpec,
    /// The fields of `status` that Tenure writes.
    #[serde(default, deserialize_with = "observed")]
    pub status: ObservedStatus,
}

/// The present values of the status fields that Tenure writes, as raw JSON: a value that can't be read must still be
/// replaced. Null if absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedStatus {
    /// The names of child queues: a list.
    pub child_queues: Value,
    /// The numbers of workloads: a map.
    pub workloads: Value,
    /// The next expiry: a time.
    pub next_expiry: Value,
}

/// A queue in KAI-Scheduler's version, reduced to the fields that Tenure reads; see [`RunaiQueueObject`]. Its
/// annotations are as much a part of it as its spec: see [`runai::SPEC_ANNOTATIONS`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RunaiQueueV2Object {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    #[serde(default, deserialize_with = "runai_v2_spec")]
    pub spec: runai::v2::QueueSpec,
}

impl RunaiQueueV2Object {
    /// Returns the status in annotation `tenure.dev/status`; the default if it can't be read.
    pub fn observed_status(&self) -> ObservedStatus {
        let annotations = self.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(keys::QUEUE_STATUS_ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// A queue of the tensorstack family, reduced to the fields that Tenure reads; see [`RunaiQueueObject`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TensorstackQueueObject {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    #[serde(default, deserialize_with = "tensorstack_spec")]
    pub spec: tensorstack::v1beta1::QueueSpec,
}

/// The queue and the minimums of a `PodGroup` of any kind: see [`crate::podgroup::PodGroupKind::spec`].
#[derive(Clone, Debug, Default)]
pub struct PodGroupSpec {
    /// The queue of its pods, in the family of its kind.
    pub queue: Option<String>,
    /// The minimum of all pods of the group; absent means 1, or 0 if the group has subgroups.
    pub min_member: Option<u32>,
    /// The minimum of top-level subgroups that must meet their own minimums; absent means all of them.
    pub min_sub_group: Option<u32>,
    /// Its subgroups, if it has any.
    pub sub_groups: Vec<SubGroup>,
}

/// A part of a `PodGroup`, with a minimum of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// The name that pods give it.
    pub name: String,
    /// The minimum of pods that the subgroup takes to run; absent means 1.
    #[serde(default, deserialize_with = "count")]
    pub min_member: Option<u32>,
    /// The minimum of its own subgroups that must meet their minimums; absent means all of them.
    #[serde(default, deserialize_with = "count")]
    pub min_sub_group: Option<u32>,
    /// The parent subgroup. A subgroup that has children has no pods of its own.
    #[serde(default)]
    pub parent: Option<String>,
}

/// An object of any kind that may own pods, reduced to its metadata: owners and annotations.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Owner {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    #[serde(default)]
    parent_queue: Value,
    #[serde(default)]
    preempt_min_runtime: Value,
    #[serde(default)]
    reclaim_min_runtime: Value,
    #[serde(default)]
    max_duration: Value,
    #[serde(default)]
    expiry_notice: Value,
    #[serde(default)]
    max_duration_action: Value,
    #[serde(default)]
    requeue_delay: Value,
    #[serde(default)]
    on_reversal: Value,
    #[serde(default)]
    over_ceiling: Value,
    #[serde(default)]
    wait_for_pods_ready: Value,
    #[serde(default)]
    extensions: Value,
}

fn runai_spec<'de, D: Deserializer<'de>>(deserializer: D) -> Result<runai::v3alpha1::QueueSpec, D::Error> {
    let SlimSpec {
        parent_queue,
        preempt_min_runtime,
        reclaim_min_runtime,
        max_duration,
        expiry_notice,
        max_duration_action,
        requeue_delay,
        on_reversal,
        over_ceiling,
        wait_for_pods_ready,
        extensions,
    } = SlimSpec::deserialize(deserializer)?;
    Ok(runai::v3alpha1::QueueSpec {
        parent_queue: text(parent_queue),
        preempt_min_runtime: text(preempt_min_runtime).map(Written::from),
        reclaim_min_runtime: text(reclaim_min_runtime).map(Written::from),
        max_duration: text(max_duration).map(Written::from),
        expiry_notice: text(expiry_notice).map(Written::from),
        // a value of the wrong shape was never admitted
        max_duration_action: serde_json::from_value(max_duration_action).ok(),
        requeue_delay: text(requeue_delay).map(Written::from),
        on_reversal: serde_json::from_value(on_reversal).ok(),
        over_ceiling: serde_json::from_value(over_ceiling).ok(),
        wait_for_pods_ready: serde_json::from_value(wait_for_pods_ready).unwrap_or_default(),
        extensions: serde_json::from_value(extensions).unwrap_or_default(),
        // no decision needs these
        display_name: None,
        priority: None,
        resources: None,
    })
}

fn runai_v2_spec<'de, D: Deserializer<'de>>(deserializer: D) -> Result<runai::v2::QueueSpec, D::Error> {
    let SlimSpec { parent_queue, preempt_min_runtime, reclaim_min_runtime, .. } =
        SlimSpec::deserialize(deserializer)?;
    Ok(runai::v2::QueueSpec {
        parent_queue: text(parent_queue),
        preempt_min_runtime: text(preempt_min_runtime).map(Written::from),
        reclaim_min_runtime: text(reclaim_min_runtime).map(Written::from),
        // no decision needs these
        display_name: None,
        priority: None,
        resources: None,
    })
}

/// Reads a status. A value that isn't an object counts as empty.
fn observed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObservedStatus, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

fn tensorstack_spec<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<tensorstack::v1beta1::QueueSpec, D::Error> {
    let SlimSpec { max_duration, expiry_notice, .. } = SlimSpec::deserialize(deserializer)?;
    Ok(tensorstack::v1beta1::QueueSpec {
        max_duration: text(max_duration).map(Written::from),
        expiry_notice: text(expiry_notice).map(Written::from),
        // no decision needs these
        priority: None,
        preemptible: None,
        closed: None,
        quota: None,
        resource_shape_profile: None,
        node_selector: None,
        namespace_selector: None,
    })
}

/// Reads a number of pods. Any other value counts as absent.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_u64().and_then(|count| u32::try_from(count).ok()))
}

/// Reads a text. Any other value is kept as JSON text, so that the parser of the field can name the bad value in its
/// error.
fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// Implements `Resource` for a projection: it is the same resource as the type that it is a projection of.
macro_rules! projection_of {
    ($projection:ty, $scope:ty, $group:expr, $version:expr, $kind:expr, $plural:expr) => {
        impl Resource for $projection {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
    ($projection:ty, $whole:ty) => {
        projection_of!(
            $projection,
            <$whole as Resource>::Scope,
            <$whole>::group(&()),
            <$whole>::version(&()),
            <$whole>::kind(&()),
            <$whole>::plural(&())
        );
    };
}

projection_of!(Pod, core::Pod);
projection_of!(PodWithRoom, core::Pod);
projection_of!(Node, core::Node);
projection_of!(Namespace, core::Namespace);
projection_of!(RunaiQueueObject, runai::v3alpha1::Queue);
projection_of!(RunaiQueueV2Object, runai::v2::Queue);
projection_of!(TensorstackQueueObject, tensorstack::v1beta1::Queue);
impl Resource for Owner {
    type DynamicType = ApiResource;
    type Scope = NamespaceResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    /// Asks the API server to leave out everything else.
    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_what_decisions_need_and_drops_the_rest() {
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"kai.scheduler/queue": "q"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "2", "controller": true},
                ],
            },
            "spec": {"priority": 7, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z"},
            ]},
        }))
        .unwrap();
        assert_eq!(pod.metadata.managed_fields, None);
        assert_eq!(pod.label(keys::RUNAI_QUEUE_LABEL), Some("q"));
        assert_eq!(pod.controller().map(|owner| owner.name.as_str()), Some("r"));
        assert_eq!(pod.spec.priority, Some(7));
        assert_eq!(pod.scheduled_at().map(|time| time.0.to_string()), Some("2026-01-02T03:04:06Z".into()));
        assert!(!pod.is_finished() && !pod.is_mirror());
    }

    #[test]
    fn what_others_write_into_a_queue_cannot_make_its_ceiling_unreadable() {
        let queue: RunaiQueueObject = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"maxDuration": "1h", "parentQueue": null, "maxDurationAction": "FromTheFuture", "onReversal": 5, "overCeiling": "Maybe", "priority": "high"},
            "status": {"conditions": [{}]},
        }))
        .unwrap();
        assert_eq!(queue.spec.max_duration, Some("1h".into()));
        assert_eq!(queue.spec.parent_queue, None);
        let queue: TensorstackQueueObject =
            serde_json::from_value(json!({"metadata": {}, "spec": {"maxDuration": 10, "quota": 7}})).unwrap();
        assert_eq!(queue.spec.max_duration, Some("10".into()));
    }

    #[test]
    fn a_status_of_any_shape_is_observed_as_it_stands() {
        let observed = |status: Value| {
            serde_json::from_value::<RunaiQueueObject>(json!({"metadata": {}, "status": status}))
                .unwrap()
                .status
        };
        let status = observed(json!({"childQueues": "a", "workloads": {"running": 1}, "conditions": [{}]}));
        assert_eq!((status.child_queues, status.workloads), (json!("a"), json!({"running": 1})));
        assert_eq!(status.next_expiry, Value::Null);
        for nothing in [json!({}), json!(null), json!("x"), json!([])] {
            assert_eq!(observed(nothing), ObservedStatus::default());
        }
        let of_annotation = |text: &str| {
            let metadata = json!({"annotations": {"tenure.dev/status": text}});
            let queue: RunaiQueueV2Object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            queue.observed_status()
        };
        assert_eq!(of_annotation(r#"{"nextExpiry": "soon"}"#).next_expiry, json!("soon"));
        assert_eq!(of_annotation("soon"), ObservedStatus::default());
    }

    #[test]
    fn a_time_that_cannot_be_read_is_none() {
        let conditions =
            json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}]);
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap();
        assert_eq!(pod.scheduled_at(), None);
    }

    #[test]
    fn no_pod_was_scheduled_before_it_was_created() {
        let at = |scheduled: &str| {
            let condition =
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled});
            let metadata = json!({"creationTimestamp": "2026-01-02T03:04:05Z"});
            let pod = json!({"metadata": metadata, "status": {"conditions": [condition]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            pod.scheduled_at().map(|time| time.0.to_string())
        };
        assert_eq!(at("2026-01-02T03:04:01Z").as_deref(), Some("2026-01-02T03:04:05Z"));
        assert_eq!(at("2026-01-02T03:04:06Z").as_deref(), Some("2026-01-02T03:04:06Z"));
    }

    #[test]
    fn a_pending_pod_has_no_start() {
        let conditions = json!([{"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-01-02T03:04:06Z"}]);
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {}, "status": {"conditions": conditions}})).unwrap();
        assert_eq!(pod.scheduled_at(), None);
    }
}
