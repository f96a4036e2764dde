//! `scheduling.k8s.io`: `PodGroup` of Kubernetes itself, since 1.36. A group names no queue: its
//! pods do.

use super::row::{KindRow, PodField, ReportedStart, count, undivided};

pub const ROW: KindRow = KindRow {
    group: "scheduling.k8s.io",
    versions: &["v1", "v1beta1", "v1alpha3", "v1alpha2"],
    named_by: PodField::SchedulingGroup,
    subgroup: None,
    names_queue: false,
    spec: |spec| undivided(spec.pointer("/schedulingPolicy/gang/minCount").and_then(count)),
    // PodGroupInitiallyScheduled shows the first start alone, and stays when all pods have gone
    // since
    shown: |_| ReportedStart::Nothing,
};
