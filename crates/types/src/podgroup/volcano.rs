//! `scheduling.volcano.sh`: `PodGroup` of Volcano. Its queue is one of Volcano's own.

use serde_json::Value;

use super::{Row, Shown, condition_since, count, has_phase};
use crate::{
    keys,
    projection::{PodGroupSpec, SubGroup},
};

pub const ROW: Row = Row {
    group: "scheduling.volcano.sh",
    versions: &["v1beta1"],
    named_by: |pod| pod.annotation(keys::VOLCANO_GROUP_ANNOTATION),
    subgroup: |pod| pod.annotation(keys::VOLCANO_TASK_ANNOTATION),
    spec,
    shown,
};

fn spec(spec: &Value) -> PodGroupSpec {
    let task = |(name, min): (&String, &Value)| SubGroup {
        name: name.clone(),
        min_member: count(min),
        parent: None,
    };
    PodGroupSpec {
        min_member: count(&spec["minMember"]),
        sub_groups: spec["minTaskMember"].as_object().into_iter().flatten().map(task).collect(),
        queue: None,
    }
}

/// The condition is also true while it waits in its queue a second time: the phase says whether it runs.
fn shown(status: &Value) -> Shown {
    if !has_phase(status, &["Running"]) {
        return Shown::Nothing;
    }
    condition_since(status, "Scheduled").map_or(Shown::Running, Shown::Since)
}
