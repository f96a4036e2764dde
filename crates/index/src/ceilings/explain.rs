//! What explanations ask for beside deadlines.

use tenure_policy::{
    gang::{Shape, progress},
    preemption::{Place, Progress, Workload},
    tree::QueueTree,
};
use tenure_types::{keys, projection};

use super::CeilingIndex;
use crate::members::memberships;

impl CeilingIndex {
    /// The queues of the run.ai family.
    pub const fn tree(&self) -> &QueueTree {
        self.queues.runai.tree()
    }

    /// The workload of a pod as the rules of preemption see it, and the number of the pod's subgroup there. Its start is
    /// as it was when anybody last asked for [all groups](Self::gangs).
    pub fn workload<'p>(&'p self, pod: &'p projection::Pod) -> (Workload<'p>, usize) {
        let gangs = &self.queues.gangs;
        let memberships = memberships(pod, |text| text.into());
        let own = || pod.label(keys::RUNAI_QUEUE_LABEL).filter(|queue| !queue.is_empty());
        let place = Place::find(self.tree(), gangs.queue(&memberships).or_else(own));
        if let Some(group) = gangs.counted(&memberships) {
            let workload = Workload { place, start: group.start(), subgroups: group.count() };
            return (workload, group.number(&memberships));
        }
        let runs = progress(pod) == Progress::Running;
        let start = pod.scheduled_at().map(|at| at.0).filter(|_| runs);
        (Workload { place, start, subgroups: Shape::alone().count(std::iter::once(pod)) }, 0)
    }
}
