//! `scheduling.x-k8s.io`: `PodGroup` of the coscheduling plugin. It names no queue: its pods do.

use serde_json::Value;

use super::{Row, Shown, count, has_phase};
use crate::{keys, projection::PodGroupSpec};

pub const ROW: Row = Row {
    group: "scheduling.x-k8s.io",
    versions: &["v1alpha1"],
    named_by: |pod| pod.label(keys::COSCHEDULING_GROUP_LABEL),
    subgroup: |_| None,
    spec: |spec| PodGroupSpec { min_member: count(&spec["minMember"]), queue: None, sub_groups: Vec::new() },
    shown,
};

/// `scheduleStartTime` is when its scheduling began, and not when it was done.
fn shown(status: &Value) -> Shown {
    if has_phase(status, &["Scheduled", "Running"]) { Shown::Running } else { Shown::Nothing }
}
