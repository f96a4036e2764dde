//! The owners that can be paused, and how.

mod kinds;
mod shape;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::Value;
use tenure_types::runai::v3alpha1::OnReversal;

use crate::{field::FieldError, kueue, naming::group_of};

pub use kinds::{EndedWhen, KINDS, PausableKinds, PausingValue};
pub use shape::{KeyPath, OwnerShape, is_cron_job};

/// The way to pause one kind: a field and the value that pauses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseRule {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// Kind within the group.
    pub kind: String,
    /// Path of the field with dots: `spec.replicas`.
    #[serde(rename = "path")]
    pub field: String,
    /// The value that pauses.
    pub value: Value,
    /// True if Kueue obeys this field: it doesn't start an object of the kind again, and gives its quota back.
    #[serde(default)]
    pub decides_activation: bool,
    /// The action when each pause is undone; none: the queue decides.
    pub on_reversal: Option<OnReversal>,
    /// The action at the ceiling.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

/// The action on an owner at the ceiling of its workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum OnExpiry {
    /// The owner is paused.
    #[default]
    Pause,
    /// The owner is deleted with its pods, and can't be resumed.
    Delete,
}

impl PauseRule {
    /// Checks a rule of the configuration. Errors use the configuration's names of the fields.
    pub fn check(&self) -> Result<(), FieldError> {
        let Self { group, kind, field, value, decides_activation: _, on_reversal: _, on_expiry } = self;
        if !group.is_empty() && !is_subdomain(group) {
            let detail = "must be an API group such as batch.example.com; empty for the core group";
            return Err(FieldError::invalid("group", group.as_str(), detail));
        }
        if !kind.starts_with(|c: char| c.is_ascii_uppercase())
            || !kind.chars().all(|c| c.is_ascii_alphanumeric())
        {
            return Err(FieldError::invalid("kind", kind.as_str(), "must be a kind such as Rollout"));
        }
        if kind == "DaemonSet" || (group.is_empty() && matches!(kind.as_str(), "Pod" | "Node")) {
            let detail = "must not be DaemonSet, Pod or Node: pods of these are exempt, or end by themselves";
            return Err(FieldError::invalid("kind", kind.as_str(), detail));
        }
        let is_key = |key: &str| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        if !field.starts_with("spec.") || !field.split('.').all(is_key) {
            let detail = "must be a path within spec, with dots, such as spec.suspend";
            return Err(FieldError::invalid("path", field.as_str(), detail));
        }
        if !(value.is_boolean() || value.is_number() || value.is_string()) {
            return Err(FieldError::invalid("value", value.clone(), "must be a boolean, a number or a text"));
        }
        if *on_expiry == OnExpiry::Delete && self.is_for(kueue::GROUP, kueue::WORKLOAD) {
            let detail = "must be Pause for a Workload of Kueue, which makes another one for the same job";
            return Err(FieldError::invalid("onExpiry", "Delete", detail));
        }
        Ok(())
    }
}

/// True for a DNS subdomain, as API groups, the prefixes of label keys and the names of most objects are.
pub fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(inner) && label.ends_with(inner) && label.chars().all(|c| inner(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The kinds that Tenure knows how to pause: [`KINDS`] and an admin's. Matched by group and kind, never by kind alone: a
/// `Job` of `batch.volcano.sh` is another thing. A kind may have several rules: the first one counts whose field the
/// served schema has.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerTable(Vec<PauseRule>);

/// Kinds without a switch that stand between pods and kinds of the table: an `MLService` owns the first of these.
const BETWEEN: [(&str, &str); 3] = [
    ("serving.knative.dev", "Service"),
    ("serving.knative.dev", "Configuration"),
    ("serving.knative.dev", "Revision"),
];

impl Default for OwnerTable {
    fn default() -> Self {
        let rules = KINDS.iter().flat_map(|PausableKinds { group, kinds, pauses, .. }| {
            let ways =
                move |kind: &'static str| pauses.iter().map(move |(field, value)| (kind, field, value));
            kinds.iter().copied().flat_map(ways).map(move |(kind, field, value)| PauseRule {
                group: (*group).into(),
                kind: kind.into(),
                field: (*field).into(),
                value: value.json(),
                // Kueue holds back the pods of these, and never sets their number
                decides_activation: *value == PausingValue::Zero,
                on_reversal: None,
                on_expiry: OnExpiry::Pause,
            })
        });
        Self(rules.collect())
    }
}

impl OwnerTable {
    /// The built-in table with an admin's rules. A kind that has one of these has no others.
    #[must_use]
    pub fn with(mut self, rules: Vec<PauseRule>) -> Self {
        self.0.retain(|built_in| !rules.iter().any(|rule| rule.is_for(&built_in.group, &built_in.kind)));
        self.0.extend(rules);
        self
    }

    /// The table without Kueue's Workloads.
    #[must_use]
    pub fn without_workloads(mut self) -> Self {
        self.0.retain(|rule| !rule.is_for(kueue::GROUP, kueue::WORKLOAD));
        self
    }

    /// True if Kueue's Workloads are paused.
    pub fn has_workloads(&self) -> bool {
        self.knows_kind(kueue::GROUP, kueue::WORKLOAD)
    }

    /// The rules for an owner, for any version of its API group, in the order in which they are to be tried.
    pub fn rules(&self, owner: &OwnerReference) -> impl Iterator<Item = &PauseRule> {
        self.0.iter().filter(|rule| rule.is_for(group_of(&owner.api_version), &owner.kind))
    }

    /// Returns the action when each pause of an owner is undone, from the first of its rules that sets one.
    pub fn on_reversal(&self, owner: &OwnerReference) -> Option<OnReversal> {
        self.rules(owner).find_map(|rule| rule.on_reversal)
    }

    /// True if an owner is deleted at its ceiling: if one of its rules says so.
    pub fn deletes(&self, owner: &OwnerReference) -> bool {
        self.rules(owner).any(|rule| rule.on_expiry == OnExpiry::Delete)
    }

    /// True if there is a rule for an owner.
    pub fn knows(&self, owner: &OwnerReference) -> bool {
        self.knows_kind(group_of(&owner.api_version), &owner.kind)
    }

    /// True if there is a rule for a kind.
    pub fn knows_kind(&self, group: &str, kind: &str) -> bool {
        self.0.iter().any(|rule| rule.is_for(group, kind))
    }

    /// Returns group and kind of each object that may be above a pod, and whether it can be paused itself.
    pub fn ancestors(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let first = |place: usize, rule: &PauseRule| {
            self.0.iter().position(|other| other.is_for(&rule.group, &rule.kind)) == Some(place)
        };
        let kinds = self.0.iter().enumerate().filter(move |(place, rule)| first(*place, rule));
        let kinds = kinds.map(|(_, rule)| (rule.group.as_str(), rule.kind.as_str(), true));
        kinds.chain(BETWEEN.into_iter().map(|(group, kind)| (group, kind, false)))
    }
}

impl PauseRule {
    fn is_for(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group == group
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    fn rule(group: &str, kind: &str, field: &str, value: Value) -> PauseRule {
        let (group, kind, field) = (group.into(), kind.into(), field.into());
        let (on_reversal, on_expiry) = (None, OnExpiry::Pause);
        PauseRule { group, kind, field, value, decides_activation: false, on_reversal, on_expiry }
    }

    fn owner(api_version: &str, kind: &str) -> OwnerReference {
        OwnerReference { api_version: api_version.into(), kind: kind.into(), ..OwnerReference::default() }
    }

    fn pauses(table: &OwnerTable, api_version: &str, kind: &str) -> Vec<String> {
        table.rules(&owner(api_version, kind)).map(|rule| format!("{}={}", rule.field, rule.value)).collect()
    }

    #[test]
    fn only_an_owner_whose_own_rule_says_so_is_deleted() {
        let job =
            PauseRule { on_expiry: OnExpiry::Delete, ..rule("batch", "Job", "spec.suspend", json!(true)) };
        assert_eq!(job.check(), Ok(()));
        let table = OwnerTable::default().with(vec![job]);
        assert!(table.deletes(&owner("batch/v1", "Job")));
        for (api_version, kind) in [("batch.volcano.sh/v1alpha1", "Job"), ("apps/v1", "Deployment")] {
            assert!(!table.deletes(&owner(api_version, kind)), "{api_version} {kind}");
        }
        assert!(!OwnerTable::default().deletes(&owner("batch/v1", "Job")));
    }

    #[test]
    fn a_workload_of_kueue_is_never_deleted() {
        let workload = |on_expiry| PauseRule {
            on_expiry,
            ..rule(kueue::GROUP, kueue::WORKLOAD, "spec.active", json!(false))
        };
        assert_eq!(workload(OnExpiry::Pause).check(), Ok(()));
        assert!(workload(OnExpiry::Delete).check().is_err_and(|error| error.field == "onExpiry"));
    }

    #[test]
    fn every_kind_is_paused_by_its_own_field() {
        let table = OwnerTable::default();
        for (api_version, kind, expected) in [
            ("apps/v1", "Deployment", vec!["spec.replicas=0"]),
            ("batch/v1", "Job", vec!["spec.suspend=true"]),
            ("batch.tensorstack.dev/v1beta1", "MPIJob", vec!["spec.runMode.pause.enabled=true"]),
            ("kubeflow.org/v1", "MPIJob", vec!["spec.runPolicy.suspend=true"]),
            ("tensorstack.dev/v1beta1", "MLService", vec!["spec.runMode=\"paused\""]),
            ("tensorstack.dev/v1beta1", "Notebook", vec!["spec.runMode=\"paused\"", "spec.suspend=true"]),
            ("kueue.x-k8s.io/v1beta1", "Workload", vec!["spec.active=false"]),
            ("kubeflow.org/v1", "Notebook", vec![]),
            ("batch.volcano.sh/v1alpha1", "Job", vec![]),
            ("v1", "Pod", vec![]),
        ] {
            assert_eq!(pauses(&table, api_version, kind), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn t9ks_tensorboard_is_known_in_both_spellings() {
        let table = OwnerTable::default();
        for kind in ["Tensorboard", "TensorBoard"] {
            let expected = ["spec.runMode=\"paused\"", "spec.suspend=true"];
            assert_eq!(pauses(&table, "tensorstack.dev/v1beta1", kind), expected, "{kind}");
        }
        assert!(!table.knows(&owner("tensorboard.kubeflow.org/v1alpha1", "Tensorboard")));
    }

    #[test]
    fn the_version_of_the_group_does_not_matter() {
        assert!(OwnerTable::default().knows(&owner("apps/v1beta2", "Deployment")));
    }

    #[test]
    fn built_in_rules_pass_the_check_for_those_of_admins() {
        for rule in OwnerTable::default().0 {
            assert_eq!(rule.check(), Ok(()), "{rule:?}");
        }
    }

    #[test]
    fn a_rule_names_a_group_a_kind_a_path_within_spec_and_a_plain_value() {
        let good = || rule("argoproj.io", "Rollout2", "spec.a-b.c_d.E1", json!(0));
        for value in [json!(true), json!(0), json!("paused")] {
            assert_eq!(PauseRule { value, ..good() }.check(), Ok(()));
        }
        let core = PauseRule { group: String::new(), kind: "ReplicationController".into(), ..good() };
        assert_eq!(core.check(), Ok(()), "the core group has no name");
        let bad = |field: &str, rule: PauseRule| {
            let error = rule.check().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|text| text.starts_with(field)), "{rule:?}: {error:?}");
        };
        for group in ["Argoproj.io", "argoproj..io", "-a", "a-", "a_b"] {
            bad("group: ", PauseRule { group: group.into(), ..good() });
        }
        for kind in ["", "rollout", "1Rollout", "Roll-out", "DaemonSet"] {
            bad("kind: ", PauseRule { kind: kind.into(), ..good() });
        }
        for kind in ["Pod", "Node"] {
            assert_eq!(PauseRule { kind: kind.into(), ..good() }.check(), Ok(()), "a namesake");
            bad("kind: ", PauseRule { group: String::new(), kind: kind.into(), ..good() });
        }
        for field in ["", "spec", "spec.", "spec..a", "status.a", "a.spec.b", "spec.a b", "spec.a[0]"] {
            bad("path: ", PauseRule { field: field.into(), ..good() });
        }
        for value in [Value::Null, json!([0]), json!({"a": 0})] {
            bad("value: ", PauseRule { value, ..good() });
        }
    }

    #[test]
    fn a_subdomain_has_at_most_253_characters() {
        let of = |length: usize| "a".repeat(length);
        assert!(is_subdomain(&of(253)) && !is_subdomain(&of(254)));
    }

    #[test]
    fn a_rule_of_an_admin_replaces_the_built_in_ones_of_its_kind() {
        let rules = vec![
            rule("argoproj.io", "Rollout", "spec.replicas", json!(0)),
            rule("batch", "Job", "spec.parallelism", json!(0)),
        ];
        let table = OwnerTable::default().with(rules);
        assert_eq!(pauses(&table, "argoproj.io/v1alpha1", "Rollout"), ["spec.replicas=0"]);
        assert_eq!(pauses(&table, "batch/v1", "Job"), ["spec.parallelism=0"]);
        assert_eq!(pauses(&table, "apps/v1", "Deployment"), ["spec.replicas=0"]);
    }

    #[test]
    fn a_bad_rule_is_named_by_its_field() {
        for (bad, field) in [
            (rule("not a group", "Rollout", "spec.replicas", json!(0)), "group"),
            (rule("", "Pod", "spec.suspend", json!(true)), "kind"),
            (rule("apps.kruise.io", "DaemonSet", "spec.suspend", json!(true)), "kind"),
            (rule("argoproj.io", "rollouts", "spec.replicas", json!(0)), "kind"),
            (rule("argoproj.io", "Rollout", "replicas", json!(0)), "path"),
            (rule("argoproj.io", "Rollout", "metadata.name", json!(0)), "path"),
            (rule("argoproj.io", "Rollout", "spec..replicas", json!(0)), "path"),
            (rule("argoproj.io", "Rollout", "spec.replicas", json!(null)), "value"),
            (rule("argoproj.io", "Rollout", "spec.replicas", json!({"a": 0})), "value"),
        ] {
            assert_eq!(bad.check().unwrap_err().field, field, "{bad:?}");
        }
    }

    #[test]
    fn each_ancestor_is_named_once() {
        let table = OwnerTable::default();
        let kinds: Vec<_> = table.ancestors().collect();
        assert_eq!(kinds.len(), kinds.iter().collect::<HashSet<_>>().len());
        assert!(kinds.contains(&("serving.knative.dev", "Revision", false)));
        assert!(kinds.contains(&("tensorstack.dev", "Notebook", true)));
    }
}
