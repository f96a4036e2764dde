//! The properties of a kind of `PodGroup`, and ways to read its fields. Each file of a kind has one
//! [`KindRow`], and `podgroup/mod.rs` reads it.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::projection::{Pod, PodGroupSpec, SubGroup};

/// The properties of a kind.
pub struct KindRow {
    /// The API group.
    pub group: &'static str,
    /// The versions that have the fields read here, the preferred one first.
    pub versions: &'static [&'static str],
    /// The field of a pod that names its group.
    pub named_by: PodField,
    /// The field of a pod that names its subgroup. None: the kind has no subgroups.
    pub subgroup: Option<PodField>,
    /// True if `spec.queue` is a queue that Tenure knows.
    pub names_queue: bool,
    /// Reads the queue and the minimums from `spec`.
    pub spec: fn(&Value) -> PodGroupSpec,
    /// Reads the start from `status`.
    pub shown: fn(&Value) -> ReportedStart,
}

/// A field of a pod that names a queue, a group or a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodField {
    /// A label.
    Label(&'static str),
    /// An annotation.
    Annotation(&'static str),
    /// `spec.schedulingGroup.podGroupName`, which the API server never lets change.
    SchedulingGroup,
}

impl PodField {
    /// Returns the value in a pod. None: the value is absent, empty or too long.
    pub(super) fn of(self, pod: &Pod) -> Option<&str> {
        let value = match self {
            Self::Label(key) => pod.label(key),
            Self::Annotation(key) => pod.annotation(key),
            Self::SchedulingGroup => pod.spec.scheduling_group.as_ref()?.pod_group_name.as_deref(),
        };
        value.filter(|name| !name.is_empty() && name.len() <= LONGEST_NAME)
    }
}

/// The longest name of an object in Kubernetes, in bytes. A longer text can't name anything, and
/// would only take memory.
pub const LONGEST_NAME: usize = 253;

/// The start that the status of a `PodGroup` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedStart {
    /// The status shows no start, or that the group doesn't run.
    Nothing,
    /// The group runs, but the status doesn't show since when.
    Running,
    /// The group has run since this time.
    Since(Timestamp),
}

/// Reads a name. None: the value isn't a text, or is too long.
pub fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| text.len() <= LONGEST_NAME).map(str::to_owned)
}

/// Reads a number of pods. None: the value isn't an unsigned number of 32 bits.
pub fn count(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

/// Returns the spec of a group that names no queue and has no subgroups.
pub fn undivided(min_member: Option<u32>) -> PodGroupSpec {
    PodGroupSpec { queue: None, min_member, min_sub_group: None, sub_groups: Vec::new() }
}

/// Reads a list of subgroups. An entry that can't be read is left out.
pub fn sub_groups(list: &Value) -> Vec<SubGroup> {
    let read = |item: &Value| SubGroup::deserialize(item).ok();
    list.as_array().into_iter().flatten().filter_map(read).collect()
}

/// Returns the time since which a condition has been true. None: it isn't true, or the time can't
/// be read.
pub fn condition_since(status: &Value, type_: &str) -> Option<Timestamp> {
    let mut conditions = status.get("conditions")?.as_array()?.iter();
    let is_true = |of: &&Value| {
        of.get("type").and_then(Value::as_str) == Some(type_)
            && of.get("status").and_then(Value::as_str) == Some("True")
    };
    conditions.find(is_true)?.get("lastTransitionTime")?.as_str()?.parse().ok()
}

/// True if the phase is one of these.
pub fn has_phase(status: &Value, phases: &[&str]) -> bool {
    status.get("phase").and_then(Value::as_str).is_some_and(|phase| phases.contains(&phase))
}
