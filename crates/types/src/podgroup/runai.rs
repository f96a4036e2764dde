//! `scheduling.run.ai`: `PodGroup` of KAI-Scheduler. Its subgroups may form a tree.

use serde_json::Value;

use super::row::{KindRow, PodField, ReportedStart, count, has_phase, sub_groups, text};
use crate::{keys, projection::PodGroupSpec};

pub const ROW: KindRow = KindRow {
    group: "scheduling.run.ai",
    versions: &["v2alpha2"],
    named_by: PodField::Annotation(keys::RUNAI_GROUP_ANNOTATION),
    subgroup: Some(PodField::Label(keys::RUNAI_SUBGROUP_LABEL)),
    names_queue: true,
    spec,
    shown,
};

/// Reads the queue and the minimums.
fn spec(spec: &Value) -> PodGroupSpec {
    let sub_groups = sub_groups(&spec["subGroups"]);
    PodGroupSpec {
        queue: text(&spec["queue"]),
        // with subgroups, their minimums alone count
        min_member: count(&spec["minMember"]).filter(|_| sub_groups.is_empty()),
        min_sub_group: count(&spec["minSubGroup"]),
        sub_groups,
    }
}

/// Reads the start. Older versions have a phase, which KAI never wrote; the map of allocated
/// resources is empty at first.
fn shown(status: &Value) -> ReportedStart {
    let allocated = status.pointer("/resourcesStatus/allocated").and_then(Value::as_object);
    let allocated = allocated.is_some_and(|resources| !resources.is_empty());
    if allocated || has_phase(status, &["Running"]) { ReportedStart::Running } else { ReportedStart::Nothing }
}
