//! The parts of built-in objects that a decision needs, as lists and watches decode them.
//!
//! All other fields are skipped while decoding and never allocated: a whole Pod takes fifty
//! kilobytes in memory, and clusters have 150,000 of them. A field that other writers may fill with
//! anything never makes an object unreadable.

mod budget;
mod event;
mod json_text;
mod pod;
mod resource;
mod slim;
mod whole;

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{Written, keys, runai, tensorstack, tolerant::TolerantObject};
pub use budget::{BudgetSpec, BudgetStatus, PodDisruptionBudget};
pub use event::Event;
pub use json_text::JsonText;
pub(crate) use pod::readable;
pub use pod::{Pod, PodCondition, PodSpec, PodStatus, SchedulingGroup};
pub(crate) use slim::slim;
pub use slim::{controller, metadata};
pub use whole::WholeObject;

/// A Node, reduced to its labels.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = core::Node)]
pub struct Node {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

/// A Namespace, reduced to its deletion timestamp.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = core::Namespace)]
pub struct Namespace {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

/// A queue of the run.ai family, reduced to the fields that Tenure reads.
///
/// Other programs write the status, the quotas and the fields of other versions, and none of these
/// may make a ceiling unreadable. So of `spec` only the fields that decisions need are filled in.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = runai::v3alpha1::Queue)]
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

impl TolerantObject for RunaiQueueObject {}

/// The status fields that Tenure writes, as raw JSON: what can't be read must still be replaced.
/// Null if absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedStatus {
    /// The names of child queues: a list.
    pub child_queues: JsonText,
    /// The numbers of workloads: a map.
    pub workloads: JsonText,
    /// The next expiry: a time.
    pub next_expiry: JsonText,
    /// The condition `Ready`.
    #[serde(rename = "conditions", deserialize_with = "ready")]
    pub ready: JsonText,
}

/// The type of the condition of a queue that says if its place in the tree is sound.
pub const READY: &str = "Ready";

/// A queue in KAI-Scheduler's version, reduced to the fields that Tenure reads; see
/// [`RunaiQueueObject`]. Its annotations are as much a part of the queue as its spec: see
/// [`runai::SPEC_ANNOTATIONS`].
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = runai::v2::Queue)]
pub struct RunaiQueueV2Object {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    #[serde(default, deserialize_with = "runai_v2_spec")]
    pub spec: runai::v2::QueueSpec,
}

impl TolerantObject for RunaiQueueV2Object {}

/// A queue, in any version.
pub trait ObservedQueue: Resource {
    /// Returns the status fields that Tenure writes.
    fn observed_status(&self) -> ObservedStatus;
}

impl ObservedQueue for RunaiQueueObject {
    fn observed_status(&self) -> ObservedStatus {
        self.status.clone()
    }
}

/// The status is in annotation `tenure.dev/status`. The default, if the annotation can't be read.
impl ObservedQueue for RunaiQueueV2Object {
    fn observed_status(&self) -> ObservedStatus {
        let annotations = self.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(keys::QUEUE_STATUS_ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// A queue of the tensorstack family, reduced to the fields that Tenure reads; see
/// [`RunaiQueueObject`].
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = tensorstack::v1beta1::Queue)]
pub struct TensorstackQueueObject {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The fields of `spec` that are read.
    #[serde(default, deserialize_with = "tensorstack_spec")]
    pub spec: tensorstack::v1beta1::QueueSpec,
}

impl TolerantObject for TensorstackQueueObject {}

/// Tenure writes no status of T9k's queues.
impl ObservedQueue for TensorstackQueueObject {
    fn observed_status(&self) -> ObservedStatus {
        ObservedStatus::default()
    }
}

/// The queue and the minimums of a `PodGroup` of any kind: see
/// [`crate::podgroup::PodGroupKind::spec`].
#[derive(Clone, Debug, Default)]
pub struct PodGroupSpec {
    /// The queue of its pods, in the family of its kind.
    pub queue: Option<String>,
    /// The minimum of all pods of the group; absent means 1, or 0 if the group has subgroups.
    pub min_member: Option<u32>,
    /// The minimum of top-level subgroups that must meet their own minimums; absent means all of
    /// them.
    pub min_sub_group: Option<u32>,
    /// The subgroups. Empty: the minimums of the group are all.
    pub sub_groups: Vec<SubGroup>,
}

/// A part of a `PodGroup`, with a minimum of its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// The name by which pods name the subgroup.
    pub name: String,
    /// The minimum of pods that the subgroup takes to run; absent means 1.
    #[serde(default, deserialize_with = "count")]
    pub min_member: Option<u32>,
    /// The minimum of its own subgroups that must meet their minimums; absent means all of them.
    #[serde(default, deserialize_with = "count")]
    pub min_sub_group: Option<u32>,
    /// The parent subgroup. A subgroup that has children has no pods of its own.
    pub parent: Option<String>,
}

/// An object of any kind that may own pods, reduced to its metadata: owners and annotations.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Owner {
    /// The metadata, without the parts that no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
}

/// The fields of the `spec` of any queue, as raw JSON.
#[derive(Deserialize)]
struct RawSpec(BTreeMap<String, Value>);

impl RawSpec {
    /// Takes the text of a field. None: the field is absent or null.
    fn text(&mut self, field: &str) -> Option<String> {
        text(self.0.remove(field)?)
    }

    /// Takes the duration of a field, as it is written.
    fn written<D>(&mut self, field: &str) -> Option<Written<D>> {
        self.text(field).map(Written::from)
    }

    /// Takes the fields that both versions have.
    fn v2(&mut self) -> runai::v2::QueueSpec {
        runai::v2::QueueSpec {
            parent_queue: self.text("parentQueue"),
            preempt_min_runtime: self.written("preemptMinRuntime"),
            reclaim_min_runtime: self.written("reclaimMinRuntime"),
            // no decision needs these
            display_name: None,
            priority: None,
            resources: None,
        }
    }
}

/// The fields are in the spec, not in annotations.
impl runai::OwnFields for RawSpec {
    fn read<T: runai::OwnField>(&mut self, field: &'static str, _: &'static str) -> Option<T> {
        T::from_json(self.0.remove(field)?)
    }
}

/// Reads a v3alpha1 spec. A field that can't be read hides no other.
fn runai_spec<'de, D: Deserializer<'de>>(deserializer: D) -> Result<runai::v3alpha1::QueueSpec, D::Error> {
    let mut spec = RawSpec::deserialize(deserializer)?;
    Ok(runai::v3alpha1::QueueSpec::complete(&spec.v2(), &mut spec))
}

/// Reads a v2 spec. A field that can't be read hides no other.
fn runai_v2_spec<'de, D: Deserializer<'de>>(deserializer: D) -> Result<runai::v2::QueueSpec, D::Error> {
    Ok(RawSpec::deserialize(deserializer)?.v2())
}

/// Reads a status. A value that isn't an object counts as empty.
fn observed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObservedStatus, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// Reads a list of conditions, and keeps the one of type `Ready`. Null: the list has none.
fn ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JsonText, D::Error> {
    let mut conditions = Value::deserialize(deserializer)?;
    let all = conditions.as_array_mut().into_iter().flatten();
    let ready = all.map(Value::take).find(|of| of.get("type").and_then(Value::as_str) == Some(READY));
    Ok(ready.unwrap_or_default().into())
}

/// Reads a spec of T9k. A field that can't be read hides no other.
fn tensorstack_spec<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<tensorstack::v1beta1::QueueSpec, D::Error> {
    let mut spec = RawSpec::deserialize(deserializer)?;
    Ok(tensorstack::v1beta1::QueueSpec {
        max_duration: spec.written("maxDuration"),
        expiry_notice: spec.written("expiryNotice"),
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

/// Reads a text. Null counts as absent. Any other value is kept as JSON text, so that an error of
/// the field can name the value.
pub(crate) fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
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
        assert_eq!(status.child_queues, json!("a").into());
        assert_eq!(status.workloads, json!({"running": 1}).into());
        assert!(status.next_expiry.is_null() && status.ready.is_null());
        let ready = json!({"type": "Ready", "status": "x"});
        assert_eq!(observed(json!({"conditions": [{"type": "Orphan"}, ready]})).ready, ready.into());
        for nothing in [json!({}), json!(null), json!("x"), json!([])] {
            assert_eq!(observed(nothing), ObservedStatus::default());
        }
        let of_annotation = |text: &str| {
            let metadata = json!({"annotations": {"tenure.dev/status": text}});
            let queue: RunaiQueueV2Object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            queue.observed_status()
        };
        assert_eq!(of_annotation(r#"{"nextExpiry": "soon"}"#).next_expiry, json!("soon").into());
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
    fn a_pod_that_was_created_with_its_node_is_bound_since_its_creation() {
        let at = |node: Value, conditions: Value| {
            let pod = json!({
                "metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"},
                "spec": {"nodeName": node}, "status": {"conditions": conditions},
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            (pod.scheduled_at().map(|time| time.0.to_string()), pod.shows_binding())
        };
        let (created, later) = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z");
        let scheduled = |status: &str, at: &str| json!([{"type": "PodScheduled", "status": status, "lastTransitionTime": at}]);
        assert_eq!(at(json!("n"), json!([])), (Some(created.into()), false));
        assert_eq!(at(json!("n"), scheduled("False", later)), (Some(created.into()), false));
        assert_eq!(at(json!("n"), scheduled("True", "soon")), (Some(created.into()), true));
        assert_eq!(at(json!("n"), scheduled("True", later)), (Some(later.into()), true));
        assert_eq!(at(json!(null), json!([])), (None, false), "it is pending");
    }

    #[test]
    fn a_pod_whose_node_does_not_keep_the_time_of_its_binding_counts_since_the_node_took_it_on() {
        let at = |node: &Value, taken_on: &str, shown: &Value| {
            let pod = json!({
                "metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"nodeName": node},
                "status": {
                    "startTime": taken_on,
                    "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": shown}],
                },
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            pod.scheduled_at().map(|time| time.0.to_string())
        };
        let (created, hours_later, second) =
            ("2026-01-02T03:04:05Z", "2026-01-02T06:04:05Z", "2026-01-02T06:04:06Z");
        let none = Value::Null;
        assert_eq!(at(&json!("n"), hours_later, &none).as_deref(), Some(hours_later));
        assert_eq!(at(&json!("n"), hours_later, &json!(second)).as_deref(), Some(second));
        assert_eq!(at(&json!("n"), "2026-01-02T03:04:04Z", &none).as_deref(), Some(created));
        assert_eq!(at(&json!("n"), "soon", &none).as_deref(), Some(created));
        assert_eq!(at(&none, hours_later, &none), None);
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
