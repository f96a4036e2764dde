//! Compares what an act rests on with what the API server says right before it: a watch may be behind, and a clock may
//! have been set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_service::call::ApiError;
use tenure_types::projection::Pod;

use super::{ActionResult, Done, Pauser};

impl Pauser {
    /// Returns the result in place of a pause or a deletion that isn't due any more by what the watches have shown since it was
    /// compared, or is [held back](Self::held_back). To be asked right before the write.
    pub(super) fn called_off(&self, task: Task, due: &DuePod, pod: &Pod) -> Option<Done> {
        let is_due = || task != Task::Expire || self.is_due_as_it_is(task, due, pod);
        let changed = || put_off("what it rests on has just changed", BatchCoverage::First);
        self.held_back(task, due).or_else(|| (!is_due()).then(changed))
    }

    /// Returns the result in place of a pause or a deletion that isn't due by the clock that the last answer has set, or
    /// must wait for the watches.
    pub(super) fn held_back(&self, task: Task, due: &DuePod) -> Option<Done> {
        if !matches!(task, Task::Expire | Task::Evict) {
            return None;
        }
        if due.deadline >= self.clock.now() {
            return Some(Done::without_events(ActionResult::TooEarly, BatchCoverage::All));
        }
        (!self.gate.is_open()).then(|| put_off("not all watches have answered", BatchCoverage::All))
    }

    /// Returns the result in place of a pause or a deletion that rests on an older pod or queue than the API server has.
    /// The watches will show it, too.
    pub(super) async fn outdated(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
    ) -> Result<Option<Done>, ApiError> {
        if !matches!(task, Task::Expire | Task::Evict) {
            return Ok(None);
        }
        if !self.is_due_as_it_is(task, due, pod) {
            return Ok(Some(put_off("the pod has changed since it was judged", BatchCoverage::First)));
        }
        let is_known = self.queues.are_as_known(due.family, &due.queue).await?;
        if !is_known {
            return Ok(Some(put_off("its queue has changed since it was judged", BatchCoverage::All)));
        }
        let awaits = self.cluster.with(|index| index.awaits_queue(pod, self.clock.now()));
        Ok(awaits
            .then(|| put_off("a queue on its way to the root is missing for a moment", BatchCoverage::All)))
    }

    /// Returns the result in place of the end of a run that goes on by the ceiling that its owner notes, as it was just read.
    /// The ceiling of its queue stays, so that no change of the owner puts the end off for longer.
    pub(super) fn outdated_by(&self, task: Task, pod: &Pod, owner: &ObjectMeta) -> Option<Done> {
        if task != Task::Expire {
            return None;
        }
        let standing = self.cluster.with(|index| index.standing_below(pod, owner));
        let is_due = standing.and_then(|of| of.expires).is_some_and(|(at, _)| at < self.clock.now());
        (!is_due).then(|| put_off("its owner's ceiling has changed since it was judged", BatchCoverage::All))
    }

    /// True if a pod is due by its own labels, annotations and times as they are now.
    fn is_due_as_it_is(&self, task: Task, due: &DuePod, pod: &Pod) -> bool {
        let Some(standing) = self.cluster.with(|index| index.standing(pod)) else { return false };
        let is_same_queue = standing.queue(due.family).map_or("", |queue| queue.as_str()) == due.queue;
        match (task, standing.expires) {
            (Task::Expire, Some((at, family))) => {
                is_same_queue && family == due.family && at < self.clock.now()
            }
            (Task::Expire, None) => false,
            // no queue is noted for one that doesn't exist
            (Task::Evict, _) => is_same_queue || due.queue.is_empty(),
            (Task::Announce | Task::Withdraw, _) => true,
        }
    }
}

const fn put_off(why: &'static str, served: BatchCoverage) -> Done {
    Done::without_events(ActionResult::PutOff(why), served)
}
