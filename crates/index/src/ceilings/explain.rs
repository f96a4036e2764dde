//! What explanations ask for beside deadlines.

use tenure_policy::{
    gang::{Progress, Shape, progress},
    preemption::{Place, Workload},
    tree::QueueTree,
};
use tenure_types::{keys, projection};

use super::CeilingIndex;
use crate::podgroups::memberships;

impl CeilingIndex {
    /// The queues of the run.ai family.
    pub const fn tree(&self) -> &QueueTree {
        self.objects.runai.tree()
    }

    /// The workload of a pod as the rules of preemption see it, and the number of the pod's subgroup there. Its start is
    /// as it was when [all groups](Self::gangs) were last asked for.
    pub fn workload<'p>(&'p self, pod: &'p projection::Pod) -> (Workload<'p>, usize) {
        let gangs = &self.objects.gangs;
        let memberships = memberships(pod, |text| text.into());
        let own = || pod.label(keys::RUNAI_QUEUE_LABEL).filter(|queue| !queue.is_empty());
        let place = Place::find(self.tree(), gangs.queue(&memberships).or_else(own));
        if let Some(group) = gangs.counted(&memberships) {
            let (start, shape, pods) = (group.start(), group.shape(), group.count());
            return (Workload { place, start, shape, pods }, group.number(&memberships));
        }
        let runs = progress(pod) == Progress::Running;
        let start = pod.scheduled_at().map(|at| at.0).filter(|_| runs);
        let shape = Shape::alone();
        (Workload { place, start, shape, pods: shape.count(std::iter::once(pod)) }, 0)
    }
}
