//! The workload of a pod, as users count workloads. A pod that claims an exemption counts in none.
//!
//! The index asks four questions about the pods that a pod belongs to. Each has an answer of its own,
//! in one place:
//!
//! - Which pods count as one workload, while they run and when they leave a queue? Those of the root
//!   owner, which a pause stops and a return starts again; else those of the `PodGroup`; else the pod:
//!   [`CountedWorkload::of`].
//! - Which pods start as one, for clocks and floors? Those of the `PodGroup`, of any owner; else the
//!   pod: [`Gangs::workload`](crate::podgroups::Gangs::workload).
//! - Which pods does one act serve? Those of the controller that the pods name, since the owners
//!   above it are only known for certain once they are read; else the pod:
//!   [`DueKey`](crate::DueKey).
//! - To which pods is time granted? Those of the root owner; else the pod: [`OwnerRecords::root`].

use arcstr::ArcStr;

use crate::{Uid, deadlines::ManagedPod, owners::OwnerRecords, podgroups::GroupKey};

/// A workload as users count it. A `PodGroup` splits or joins no owners: any user may make one for
/// each pod of a Job, or one for several Jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CountedWorkload {
    /// A root owner, in a namespace.
    Owner(ArcStr, Uid),
    /// The pods of a `PodGroup` that have no root owner.
    Group(GroupKey),
    /// A pod by itself.
    Pod(Uid),
}

impl CountedWorkload {
    /// Returns the workload of a pod. `group` is the `PodGroup` that counts for the pod. None: no
    /// group that the pod names exists.
    pub fn of(owners: &OwnerRecords, group: Option<&GroupKey>, uid: Uid, pod: &ManagedPod) -> Self {
        match (owners.root(pod.controller), group) {
            (Some(root), _) => Self::Owner(pod.namespace.clone(), root),
            (None, Some(group)) => Self::Group(group.clone()),
            (None, None) => Self::Pod(uid),
        }
    }
}
