//! `scheduling.x-k8s.io`: `PodGroup` of the coscheduling plugin. A group names no queue: its pods
//! do.

use serde_json::Value;

use super::row::{KindRow, PodField, ReportedStart, count, has_phase, undivided};
use crate::keys;

pub const ROW: KindRow = KindRow {
    group: "scheduling.x-k8s.io",
    versions: &["v1alpha1"],
    named_by: PodField::Label(keys::COSCHEDULING_GROUP_LABEL),
    subgroup: None,
    names_queue: false,
    spec: |spec| undivided(count(&spec["minMember"])),
    shown,
};

/// Reads the start, without its time: `scheduleStartTime` is when the scheduling of the group
/// began, and not when it was done.
fn shown(status: &Value) -> ReportedStart {
    if has_phase(status, &["Scheduled", "Running"]) { ReportedStart::Running } else { ReportedStart::Nothing }
}
