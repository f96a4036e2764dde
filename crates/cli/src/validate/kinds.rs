//! The kinds that are reviewed, in the versions that the API server has.
//!
//! Called by `validate` for each object. A misspelt kind or version of a known group is an error
//! here, as it is for the API server: otherwise the object would be skipped.

use tenure_policy::{field::FieldError, review::Reviewable};

use super::schema::{either, suggestion};
use crate::input::Document;

/// The kinds that are reviewed, as a sentence.
pub const REVIEWED: &str = "the kinds that are reviewed are Queue of scheduling.run.ai, Queue of scheduler.tensorstack.dev, and PriorityClass of scheduling.k8s.io";

/// An API group with a kind that is reviewed.
struct ReviewedApiGroup {
    name: &'static str,
    kind: &'static str,
    versions: &'static [&'static str],
    /// Other kinds of the group, which are skipped.
    others: &'static [&'static str],
}

/// The groups, with the versions that the chart or Kubernetes has.
const GROUPS: [ReviewedApiGroup; 3] = [
    ReviewedApiGroup {
        name: "scheduling.run.ai",
        kind: "Queue",
        versions: &["v3alpha1", "v2"],
        others: &["BindRequest", "PodGroup"],
    },
    ReviewedApiGroup {
        name: "scheduler.tensorstack.dev",
        kind: "Queue",
        versions: &["v1beta1"],
        others: &["PodGroup"],
    },
    ReviewedApiGroup {
        name: "scheduling.k8s.io",
        kind: "PriorityClass",
        versions: &["v1"],
        others: &["CompositePodGroup", "PodGroup", "Workload"],
    },
];

/// Returns the review for an object. None: the object isn't reviewed. An error: the API server has
/// no such kind or version.
pub fn reviewable(document: &Document) -> Result<Option<Reviewable>, FieldError> {
    let (group, version, kind) = (document.group(), document.version(), document.kind.as_str());
    let Some(of) = GROUPS.iter().find(|of| of.name == group) else { return Ok(None) };
    if of.others.contains(&kind) {
        return Ok(None);
    }
    if kind != of.kind {
        let known: Vec<&str> = [of.kind].iter().chain(of.others).copied().collect();
        let rule = format!("there is no such kind in group {group}: {}", suggestion(kind, &known));
        return Err(FieldError::invalid("kind", kind, rule));
    }
    if !of.versions.contains(&version) {
        let known: Vec<String> = of.versions.iter().map(|version| format!("{group}/{version}")).collect();
        let rule = format!("must be {} for kind {kind}", either(known.iter().map(String::as_str)));
        return Err(FieldError::invalid("apiVersion", document.api_version.as_str(), rule));
    }
    Ok(Reviewable::of(group, version, kind))
}
