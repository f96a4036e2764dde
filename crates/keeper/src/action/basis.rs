//! Compares what an act rests on with what the API server says right before it: a watch may be behind, and a clock may
//! have been set.

use tenure_index::{BatchCoverage, DuePod, Task};
use tenure_service::call::ApiError;
use tenure_types::projection::Pod;

use super::{ActionResult, Done, Pauser};

impl Pauser {
    /// Returns the result in place of a pause or a deletion that isn't due by the clock that the last answer has set, or
    /// must wait for the watches. To be asked right before the write.
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
