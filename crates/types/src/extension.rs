//! `tenure.dev/v1alpha1`: the Extension, by which a user asks for more time for a workload.
//!
//! The command line creates extensions, the webhook names the user, and the keeper or a person
//! decides. The doc comments on types and fields are the descriptions in the CRD, which `crdgen`
//! writes.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{CustomResource, KubeSchema, core::ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    duration::{ExtendedDuration, Written},
    tolerant::TolerantObject,
};

/// The API group of extensions.
pub const GROUP: &str = "tenure.dev";

/// The name in `status.by` for decisions of the keeper.
pub const KEEPER: &str = "tenure-keeper";

/// A request for more time.
#[expect(clippy::duplicated_attributes, reason = "the columns are alike in their types")]
#[derive(Clone, Debug, PartialEq, CustomResource, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "tenure.dev",
    version = "v1alpha1",
    kind = "Extension",
    namespaced,
    status = "ExtensionStatus",
    derive = "PartialEq",
    doc = "An Extension asks for more time than the ceiling of its queue for the current run of a workload of its namespace. The queue says how much is granted without approval, and how much at most.",
    category = "tenure",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.target.kind"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target.name"),
    printcolumn(name = "Duration", type_ = "string", json_path = ".spec.duration"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Granted", type_ = "string", json_path = ".status.granted"),
    printcolumn(name = "Requested-By", type_ = "string", json_path = ".spec.requestedBy"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "By", type_ = "string", json_path = ".status.by", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[x_kube(validation = Rule::new("self == oldSelf").message("can't be changed: create another Extension"))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionSpec {
    /// The workload that gets the time.
    pub target: ExtensionTarget,
    /// The time that is asked for, beyond the end of the current run. A duration such as 90m, 1h30m or 1d. Zero is
    /// refused.
    #[x_kube(validation = ("!self.matches('^[0.nuµμmshdw]+$')", "must be greater than zero"))]
    pub duration: Written<ExtendedDuration>,
    /// The reason, for the person who approves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// The user who asks. Tenure's webhook writes it, and another name is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub requested_by: Option<String>,
}

/// The workload that gets the time: the topmost owner that can be paused, as `kubectl tenure list` names it, or a pod that
/// has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionTarget {
    /// The API version, such as `batch/v1`.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// The kind, such as Job.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The uid: another object of the same name gets nothing.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// The decision about a request. Only the keeper and users with the right to `approve` Extensions write it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionStatus {
    /// The state of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ExtensionState>,
    /// The time that was granted. At most `spec.duration` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Written<ExtendedDuration>>,
    /// The user who decided, or the keeper's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub by: Option<String>,
    /// The time of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub at: Option<Timestamp>,
    /// The reason for the state, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// The condition `Granted`, which the keeper derives from the state, for `kubectl wait`. It stays true once the run that got
    /// the time has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// The type of the condition that says if time was granted.
pub const GRANTED: &str = "Granted";

/// The state of a request. Pending: not decided. Granted: the run of the workload ends later. Denied: it doesn't. Used: the
/// run that got the time has ended. Expired: that run ended before a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ExtensionState {
    /// Not decided.
    #[default]
    Pending,
    /// The run ends later.
    Granted,
    /// The run ends as before.
    Denied,
    /// The run that got the time has ended.
    Used,
    /// The run has ended before a decision.
    Expired,
}

impl ExtensionState {
    /// Returns the name, as in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Granted => "Granted",
            Self::Denied => "Denied",
            Self::Used => "Used",
            Self::Expired => "Expired",
        }
    }
}

impl Extension {
    /// Returns the state. An extension without a status is pending.
    pub fn state(&self) -> ExtensionState {
        self.status.as_ref().and_then(|status| status.state).unwrap_or_default()
    }

    /// Returns the conditions that the status should have: `Granted`, as follows from the state, and those of other types as
    /// they are. Empty before the object has a status.
    pub fn conditions(&self) -> Vec<Condition> {
        let Some(status) = &self.status else { return Vec::new() };
        let is_granted = match self.state() {
            ExtensionState::Pending => "Unknown",
            ExtensionState::Granted | ExtensionState::Used => "True",
            ExtensionState::Denied | ExtensionState::Expired => "False",
        };
        let created = self.metadata.creation_timestamp.as_ref().map(|at| at.0);
        let since = status.at.or(created).unwrap_or(Timestamp::UNIX_EPOCH);
        let granted = Condition {
            type_: GRANTED.into(),
            status: is_granted.into(),
            observed_generation: self.metadata.generation,
            // the API server keeps whole seconds
            last_transition_time: Time(Timestamp::from_second(since.as_second()).unwrap_or(since)),
            reason: self.state().name().into(),
            message: status.message.clone().unwrap_or_default(),
        };
        let others = status.conditions.iter().filter(|other| other.type_ != GRANTED);
        [granted].into_iter().chain(others.cloned()).collect()
    }

    /// True if a person has denied the request, or revoked the grant.
    pub fn is_denied_by_person(&self) -> bool {
        let by = self.status.as_ref().and_then(|status| status.by.as_deref());
        self.state() == ExtensionState::Denied && by != Some(KEEPER)
    }

    /// Returns the time that was granted, which is never more than was asked for. None: the state
    /// isn't Granted, or a duration can't be read.
    pub fn granted(&self) -> Option<ExtendedDuration> {
        let status = self.status.as_ref().filter(|status| status.state == Some(ExtensionState::Granted))?;
        let granted = status.granted.as_ref()?.parse().ok()?;
        Some(self.spec.duration.parse().ok()?.min(granted))
    }
}

impl TolerantObject for Extension {}

/// Returns the extension without the metadata that no decision needs, whose size is the user's
/// choice.
pub fn slim(extension: Extension) -> Extension {
    let whole = extension.metadata;
    let metadata = ObjectMeta {
        name: whole.name,
        namespace: whole.namespace,
        uid: whole.uid,
        resource_version: whole.resource_version,
        generation: whole.generation,
        creation_timestamp: whole.creation_timestamp,
        deletion_timestamp: whole.deletion_timestamp,
        ..ObjectMeta::default()
    };
    Extension { metadata, ..extension }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn extension(status: &Value) -> Extension {
        let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u"});
        let object = json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension", "metadata": {"name": "a"},
            "spec": {"target": target, "duration": "2h"}, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_no_one_has_decided_is_pending() {
        for status in [json!(null), json!({}), json!({"state": "Pending"})] {
            assert_eq!(extension(&status).state(), ExtensionState::Pending);
        }
    }

    #[test]
    fn no_more_is_granted_than_was_asked_for_and_only_while_it_is_granted() {
        let granted =
            |state: &str, granted: &str| extension(&json!({"state": state, "granted": granted})).granted();
        assert_eq!(granted("Granted", "1h"), "1h".parse().ok());
        assert_eq!(granted("Granted", "1000h"), "2h".parse().ok());
        assert_eq!(granted("Granted", "soon"), None);
        for state in ["Pending", "Denied", "Used", "Expired"] {
            assert_eq!(granted(state, "1h"), None, "{state}");
        }
        assert_eq!(extension(&json!({"state": "Granted"})).granted(), None);
    }

    #[test]
    fn a_condition_says_if_time_was_granted_and_since_when() {
        let of = |status: Value| extension(&status).conditions();
        assert_eq!(of(json!(null)), []);
        for (state, expected) in [
            ("Pending", "Unknown"),
            ("Granted", "True"),
            ("Used", "True"),
            ("Denied", "False"),
            ("Expired", "False"),
        ] {
            let status = json!({"state": state, "at": "2026-01-02T03:04:05.678Z", "message": "why"});
            let [condition] = <[Condition; 1]>::try_from(of(status)).unwrap();
            let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
            assert_eq!([&*type_, &status, &reason, &message], ["Granted", expected, state, "why"]);
            assert_eq!(last_transition_time.0.to_string(), "2026-01-02T03:04:05Z");
        }
    }

    #[test]
    fn conditions_of_other_types_stay() {
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"});
        let status = json!({"state": "Granted", "conditions": [condition("Billed", "True"), condition("Granted", "False")]});
        let conditions = extension(&status).conditions();
        let shown: Vec<_> = conditions.iter().map(|of| (&*of.type_, &*of.status)).collect();
        assert_eq!(shown, [("Granted", "True"), ("Billed", "True")]);
    }

    #[test]
    fn of_an_extension_only_what_decisions_need_is_kept() {
        let mut small = extension(&json!({"state": "Pending"}));
        small.metadata = serde_json::from_value(json!({
            "name": "a", "namespace": "team", "uid": "u", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
        }))
        .unwrap();
        let mut large = small.clone();
        let text = || Some([("key".to_owned(), "x".repeat(100_000))].into());
        (large.metadata.annotations, large.metadata.labels) = (text(), text());
        large.metadata.finalizers = Some(vec!["x".repeat(100_000)]);
        assert_eq!(slim(large), small);
    }
}
