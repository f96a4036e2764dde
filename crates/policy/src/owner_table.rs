//! The owners that can be paused, and how: the table of built-in kinds with the rules of the
//! configuration.
//!
//! The keeper, the index, the webhook and the plugin share one [`OwnerTable`] per configuration. A
//! kind is matched by group and kind, in any version of the group.

mod kinds;
mod shape;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::Value;
use tenure_types::runai::v3alpha1::OnReversal;

use crate::{field::FieldError, kueue, naming::group_of};

pub use kinds::{EndedWhen, KINDS, Obedience, PausableKinds, PausingValue};
pub use shape::{KeyPath, OwnerShape, is_cron_job};

/// The way to pause one kind: a field, and the value that pauses. Built in, or a rule of the
/// configuration's `owners`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseRule {
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The kind within the group.
    pub kind: String,
    /// The path of the field or the annotation, with dots: `spec.replicas`.
    #[serde(rename = "path")]
    pub field: String,
    /// The value that pauses: a boolean, a number or a text. [`TIME`] stands for the time of the
    /// pause.
    pub value: Value,
    /// The Command that pauses. None: the pause writes the value. Otherwise a controller writes it,
    /// and the path is a field of the status.
    pub command: Option<PauseCommand>,
    /// True if Kueue obeys this field: Kueue doesn't restart a paused object of the kind, and
    /// releases its quota.
    #[serde(default)]
    pub decides_activation: bool,
    /// The action when each pause is undone. None: the queue decides.
    pub on_reversal: Option<OnReversal>,
    /// The action on the owner at its ceiling.
    #[serde(default)]
    pub on_expiry: OnExpiry,
}

/// The actions of a `Command` of Volcano that pause and resume an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PauseCommand {
    /// The action that pauses: `AbortJob`.
    pub pause: String,
    /// The action that resumes: `ResumeJob`.
    pub resume: String,
}

/// True for the path of a field in the status: a controller writes it, and a pause doesn't.
pub fn is_shown(path: &str) -> bool {
    path.starts_with("status.")
}

/// The value of a rule that stands for the time of the pause. Any text in the field then pauses.
pub const TIME: &str = "$(time)";

/// The beginning of the path of an annotation. The rest of the path is one key, which may have
/// dots.
const ANNOTATIONS: &str = "metadata.annotations.";

/// Returns the keys of a path such as `spec.replicas`. The key of an annotation is one of them,
/// whole.
pub fn keys_of(path: &str) -> impl Iterator<Item = &str> {
    path.splitn(if path.starts_with(ANNOTATIONS) { 3 } else { usize::MAX }, '.')
}

/// The action on an owner at the ceiling of its workload, as `onExpiry` of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum OnExpiry {
    /// The owner is paused.
    #[default]
    Pause,
    /// The owner is deleted with its pods. A resume is impossible.
    Delete,
}

impl PauseRule {
    /// Checks a rule of the configuration. An error names the configuration's field, its value, and
    /// what would be right.
    pub fn check(&self) -> Result<(), FieldError> {
        let Self { group, kind, field, value, command, decides_activation: _, on_reversal: _, on_expiry } =
            self;
        if !group.is_empty() && !is_subdomain(group) {
            let detail = "must be an API group such as batch.example.com; empty for the core group";
            return Err(FieldError::invalid("group", group.as_str(), detail));
        }
        if !is_camel_case(kind) {
            return Err(FieldError::invalid("kind", kind.as_str(), "must be a kind such as Rollout"));
        }
        if kind == "DaemonSet" || (group.is_empty() && matches!(kind.as_str(), "Pod" | "Node")) {
            let detail = "must not be DaemonSet, Pod or Node: pods of a DaemonSet and static pods are never touched, and a pod is deleted, not paused";
            return Err(FieldError::invalid("kind", kind.as_str(), detail));
        }
        match command {
            Some(command) => command.check(field)?,
            None => check_path(field)?,
        }
        if !(value.is_boolean() || value.is_number() || value.is_string()) {
            return Err(FieldError::invalid(
                "value",
                value.clone(),
                "must be a boolean, a number or a string",
            ));
        }
        if field.starts_with(ANNOTATIONS) && !value.is_string() {
            return Err(FieldError::invalid("value", value.clone(), "must be a string, as annotations are"));
        }
        if *on_expiry == OnExpiry::Delete && self.is_for(kueue::GROUP, kueue::WORKLOAD) {
            let detail = "must be Pause for a Workload of Kueue, which makes another one for the same job";
            return Err(FieldError::invalid("onExpiry", "Delete", detail));
        }
        Ok(())
    }
}

impl PauseCommand {
    /// Checks a rule with a Command: its path must be one of the status, and its actions must be
    /// possible values of one.
    fn check(&self, path: &str) -> Result<(), FieldError> {
        if !is_shown(path) || !path.split('.').all(is_key) {
            let detail =
                "must be a path within status, which shows that the command was obeyed: status.state.phase";
            return Err(FieldError::invalid("path", path, detail));
        }
        for (field, action) in [("command.pause", &self.pause), ("command.resume", &self.resume)] {
            if action.len() > 63 || !is_camel_case(action) {
                return Err(FieldError::invalid(
                    field,
                    action.as_str(),
                    "must be an action such as AbortJob",
                ));
            }
        }
        Ok(())
    }
}

fn is_camel_case(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

/// True for a key of a path: not empty, of ASCII letters, digits, `-` and `_`.
fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// The prefix of Tenure's own annotations, which no rule may set.
const OWN_PREFIX: &str = "tenure.dev";

/// Checks the path that a pause writes: a field of the spec, or an annotation that isn't Tenure's.
fn check_path(path: &str) -> Result<(), FieldError> {
    let is_name = |name: &str| name.split('.').all(is_key);
    let is_valid = match path.strip_prefix(ANNOTATIONS) {
        Some(key) => {
            let (prefix, name) = key.split_once('/').unwrap_or(("example.com", key));
            is_subdomain(prefix) && prefix != OWN_PREFIX && is_name(name)
        }
        None => path.starts_with("spec.") && path.split('.').all(is_key),
    };
    let detail = "must be a path within spec, with dots, such as spec.suspend, or metadata.annotations. and the key of an annotation";
    if is_valid { Ok(()) } else { Err(FieldError::invalid("path", path, detail)) }
}

/// True for a DNS subdomain (RFC 1123) of at most 253 characters: the form of API groups, of the
/// prefixes of label keys, and of the names of most objects.
pub fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(inner) && label.ends_with(inner) && label.chars().all(|c| inner(c) || c == '-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The kinds that Tenure can pause: [`KINDS`] and those of the configuration. Matched by group and
/// kind, never by kind alone: a `Job` of `batch.volcano.sh` is another thing than a `Job` of
/// `batch`.
///
/// A kind may have several rules. The keeper tries them in order, and the first whose field the
/// served schema has counts.
///
/// ```
/// use tenure_policy::owner_table::OwnerTable;
///
/// let table = OwnerTable::default();
/// assert!(table.knows_kind("batch", "Job"));
/// assert!(!table.knows_kind("example.com", "Job"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerTable(Vec<PauseRule>);

/// Kinds that can't be paused and stand between pods and kinds of the table: an `MLService` owns
/// the first of these.
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
                command: value.command(),
                // Kueue holds back the pods of these kinds, and never sets their number of replicas
                decides_activation: *value == PausingValue::Zero,
                on_reversal: None,
                on_expiry: OnExpiry::Pause,
            })
        });
        Self(rules.collect())
    }
}

impl OwnerTable {
    /// Returns the table with the rules of the configuration. A kind that has such a rule loses its
    /// built-in rules.
    #[must_use]
    pub fn with(mut self, rules: Vec<PauseRule>) -> Self {
        self.0.retain(|built_in| !rules.iter().any(|rule| rule.is_for(&built_in.group, &built_in.kind)));
        self.0.extend(rules);
        self
    }

    /// Returns the table without Kueue's Workloads: then jobs are paused by their own fields.
    #[must_use]
    pub fn without_workloads(mut self) -> Self {
        self.0.retain(|rule| !rule.is_for(kueue::GROUP, kueue::WORKLOAD));
        self
    }

    /// True if jobs that Kueue runs are paused by their Workloads.
    pub fn has_workloads(&self) -> bool {
        self.knows_kind(kueue::GROUP, kueue::WORKLOAD)
    }

    /// Returns the rules for an owner, in any version of its API group, in the order in which the
    /// keeper tries them.
    pub fn rules(&self, owner: &OwnerReference) -> impl Iterator<Item = &PauseRule> {
        self.0.iter().filter(|rule| rule.is_for(group_of(&owner.api_version), &owner.kind))
    }

    /// Returns the rule for an owner that sets a field, given by the path in the record of a pause.
    /// None: no rule sets it.
    pub fn rule(&self, owner: &OwnerReference, field: &str) -> Option<&PauseRule> {
        self.rules(owner).find(|rule| rule.field == field)
    }

    /// Returns the action when each pause of an owner is undone, from the first of its rules that
    /// sets one. None: the queue decides.
    pub fn on_reversal(&self, owner: &OwnerReference) -> Option<OnReversal> {
        self.rules(owner).find_map(|rule| rule.on_reversal)
    }

    /// True if an owner is deleted at its ceiling, because a rule for it has `onExpiry: Delete`.
    pub fn deletes(&self, owner: &OwnerReference) -> bool {
        self.rules(owner).any(|rule| rule.on_expiry == OnExpiry::Delete)
    }

    /// True if an owner can be paused: there is a rule for its kind.
    pub fn knows(&self, owner: &OwnerReference) -> bool {
        self.knows_kind(group_of(&owner.api_version), &owner.kind)
    }

    /// True if there is a rule for this group and kind.
    pub fn knows_kind(&self, group: &str, kind: &str) -> bool {
        self.0.iter().any(|rule| rule.is_for(group, kind))
    }

    /// Returns group and kind of each kind of object that may be above a pod, once each, and true
    /// if that kind can be paused itself.
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
    /// Returns the value that a pause at this time writes.
    pub fn value_at(&self, time: Timestamp) -> Value {
        if self.value == TIME { format!("{time:.0}").into() } else { self.value.clone() }
    }

    /// True if a value of the field pauses the object, no matter who has written it.
    pub fn pauses_with(&self, value: &Value) -> bool {
        *value == self.value || (self.value == TIME && value.is_string())
    }

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
        PauseRule {
            group,
            kind,
            field,
            value,
            command: None,
            decides_activation: false,
            on_reversal,
            on_expiry,
        }
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
            (
                "kubeflow.org/v1beta1",
                "Notebook",
                vec!["metadata.annotations.kubeflow-resource-stopped=\"$(time)\""],
            ),
            ("batch.volcano.sh/v1alpha1", "Job", vec!["status.state.phase=\"Aborted\""]),
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
    fn an_annotation_is_one_key_with_dots_or_without() {
        let keys = |path| keys_of(path).collect::<Vec<_>>();
        assert_eq!(keys("spec.runMode.pause.enabled"), ["spec", "runMode", "pause", "enabled"]);
        assert_eq!(keys("metadata.annotations.a.io/b.c"), ["metadata", "annotations", "a.io/b.c"]);
    }

    #[test]
    fn a_time_is_that_of_the_pause_and_any_time_pauses() {
        let stopped = "metadata.annotations.kubeflow-resource-stopped";
        let time = rule("kubeflow.org", "Notebook", stopped, json!(TIME));
        let at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        assert_eq!(time.value_at(at), "2026-01-02T03:04:05Z");
        assert!(time.pauses_with(&json!("2020-01-01T00:00:00Z")) && !time.pauses_with(&Value::Null));
        let stop = rule("serving.kserve.io", "InferenceService", stopped, json!("true"));
        assert_eq!(stop.value_at(at), "true");
        assert!(stop.pauses_with(&json!("true")) && !stop.pauses_with(&json!("false")));
    }

    #[test]
    fn a_rule_may_set_any_annotation_that_is_not_tenures_to_a_text() {
        let of = |key: &str, value| {
            rule("serving.kserve.io", "InferenceService", &format!("metadata.annotations.{key}"), value)
        };
        for key in ["kubeflow-resource-stopped", "serving.kserve.io/stop", "a.b/c.d_E"] {
            assert_eq!(of(key, json!("true")).check(), Ok(()), "{key}");
            assert_eq!(of(key, json!(TIME)).check(), Ok(()), "{key}");
        }
        for key in ["", "/", "a/", "/b", "a/b/c", "a b", "A.io/b", "tenure.dev/paused", "tenure.dev/x"] {
            assert!(of(key, json!("true")).check().is_err_and(|error| error.field == "path"), "{key}");
        }
        for value in [json!(true), json!(0)] {
            assert!(of("stop", value).check().is_err_and(|error| error.field == "value"));
        }
    }

    #[test]
    fn a_command_is_named_by_two_actions_and_shown_by_the_status() {
        let of = |field: &str, pause: &str, resume: &str| PauseRule {
            command: Some(PauseCommand { pause: pause.into(), resume: resume.into() }),
            ..rule("batch.example.com", "Job", field, json!("Aborted"))
        };
        assert_eq!(of("status.state.phase", "AbortJob", "ResumeJob").check(), Ok(()));
        for (field, pause, resume, expected) in [
            ("spec.suspend", "AbortJob", "ResumeJob", "path"),
            ("status.", "AbortJob", "ResumeJob", "path"),
            ("status.phase", "abort", "ResumeJob", "command.pause"),
            ("status.phase", "AbortJob", "Resume Job", "command.resume"),
        ] {
            assert_eq!(of(field, pause, resume).check().unwrap_err().field, expected);
        }
        let without = rule("batch.example.com", "Job", "status.phase", json!("Aborted"));
        assert_eq!(without.check().unwrap_err().field, "path", "no pause writes a status");
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
