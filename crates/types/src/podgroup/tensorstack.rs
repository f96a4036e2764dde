//! `scheduler.tensorstack.dev`: `PodGroup` of T9k. Its roles are the subgroups.

use serde_json::Value;

use super::row::{KindRow, PodField, ReportedStart, condition_since, count, sub_groups, text};
use crate::{keys, projection::PodGroupSpec};

pub const ROW: KindRow = KindRow {
    group: "scheduler.tensorstack.dev",
    versions: &["v1beta1"],
    named_by: PodField::Label(keys::TENSORSTACK_GROUP_LABEL),
    subgroup: Some(PodField::Label(keys::TENSORSTACK_ROLE_LABEL)),
    names_queue: true,
    spec,
    shown,
};

/// Reads the queue and the minimums.
fn spec(spec: &Value) -> PodGroupSpec {
    PodGroupSpec {
        queue: text(&spec["queue"]),
        min_member: count(&spec["minMember"]),
        min_sub_group: None,
        sub_groups: sub_groups(&spec["roles"]),
    }
}

/// Reads the start: the time since which condition `GroupScheduled` has been true.
fn shown(status: &Value) -> ReportedStart {
    condition_since(status, "GroupScheduled").map_or(ReportedStart::Nothing, ReportedStart::Since)
}
