//! `scheduling.k8s.io`: `PodGroup` of Kubernetes itself, since 1.36. It names no queue: its pods do.

use super::{Row, Shown, count};
use crate::projection::PodGroupSpec;

pub const ROW: Row = Row {
    group: "scheduling.k8s.io",
    versions: &["v1", "v1beta1", "v1alpha3", "v1alpha2"],
    named_by: |pod| pod.spec.scheduling_group.as_ref()?.pod_group_name.as_deref(),
    subgroup: |_| None,
    spec: |spec| PodGroupSpec {
        min_member: spec.pointer("/schedulingPolicy/gang/minCount").and_then(count),
        queue: None,
        sub_groups: Vec::new(),
    },
    // PodGroupInitiallyScheduled tells of the first start alone, also when all pods have gone since
    shown: |_| Shown::Nothing,
};
