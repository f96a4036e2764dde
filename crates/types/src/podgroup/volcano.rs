//! `scheduling.volcano.sh`: `PodGroup` of Volcano. Its tasks are the subgroups. Its queue is one of
//! Volcano's own.

use serde_json::Value;

use super::row::{KindRow, PodField, ReportedStart, condition_since, count, has_phase};
use crate::{
    keys,
    projection::{PodGroupSpec, SubGroup},
};

pub const ROW: KindRow = KindRow {
    group: "scheduling.volcano.sh",
    versions: &["v1beta1"],
    named_by: PodField::Annotation(keys::VOLCANO_GROUP_ANNOTATION),
    subgroup: Some(PodField::Annotation(keys::VOLCANO_TASK_ANNOTATION)),
    names_queue: false,
    spec,
    shown,
};

/// Reads the minimums. Volcano checks the minimum of each task only if the sum of these minimums is
/// at most `minMember`. Otherwise `minMember` alone counts.
fn spec(spec: &Value) -> PodGroupSpec {
    let min_member = count(&spec["minMember"]);
    let tasks = spec["minTaskMember"].as_object().into_iter().flatten();
    let tasks: Vec<(&String, u32)> = tasks.filter_map(|(name, min)| Some((name, count(min)?))).collect();
    let together: u64 = tasks.iter().map(|(_, min)| u64::from(*min)).fold(0, u64::saturating_add);
    let counts = together <= min_member.map_or(0, u64::from);
    let task = |(name, min): (&String, u32)| SubGroup {
        name: name.clone(),
        min_member: Some(min),
        min_sub_group: None,
        parent: None,
    };
    PodGroupSpec {
        queue: None,
        min_member,
        min_sub_group: None,
        sub_groups: if counts { tasks.into_iter().map(task).collect() } else { Vec::new() },
    }
}

/// Reads the start. Condition `Scheduled` is also true while the group waits in its queue a second
/// time: the phase says whether the group runs.
fn shown(status: &Value) -> ReportedStart {
    if !has_phase(status, &["Running"]) {
        return ReportedStart::Nothing;
    }
    condition_since(status, "Scheduled").map_or(ReportedStart::Running, ReportedStart::Since)
}
