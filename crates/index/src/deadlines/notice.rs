//! Notices to the workloads of pods, of the end of their runs. `Deadlines` plans the next notice of
//! each pod whenever the end of its run is computed. A notice that was given is corrected when the
//! end moves.

use std::time::Duration;

use jiff::Timestamp;
use tenure_types::wait::Wait;

use super::{
    due::{ActionOutcome, DuePod, Task},
    expiry::Ceiling,
    order::{Lane, OrderSlot, TaskProgress, Tries},
};
use crate::times::{Milliseconds, NEVER, milliseconds, milliseconds_up};

/// The waits after failed tries to give a notice.
const RETRY: Wait = Wait { first: Duration::from_secs(10), last: Duration::from_mins(10) };

/// The progress of a pod's notice. Most pods have none. Times are in milliseconds since the epoch.
#[derive(Debug, Default)]
pub struct NoticeProgress {
    /// The time at which the next notice is to be given. None: no notice is due.
    at: Option<Milliseconds>,
    /// The end of the run in the workload's last notice. None: no notice was given, or it was
    /// withdrawn.
    pub announced_end: Option<Milliseconds>,
    /// The time of the last notice, which covers all points that had passed by then.
    given: Option<Milliseconds>,
    pub step: TaskProgress,
}

impl NoticeProgress {
    /// Plans the next notice: at the next point before the end or, if the end has changed since the
    /// last notice, at once. `known` is the progress so far. None: no notice is planned, and none
    /// was given.
    pub fn plan(known: Option<Box<Self>>, created: i64, ceiling: Option<&Ceiling>) -> Option<Box<Self>> {
        let announced = known.as_ref().and_then(|known| known.announced_end).map(Milliseconds::get);
        let at = match (announced, ceiling) {
            (None, None) => None,
            (None, Some(Ceiling { at, notice, .. })) => notice.next(*at, None),
            (Some(announced), Some(Ceiling { at, notice, .. })) if announced == milliseconds_up(*at) => {
                notice.next(*at, known.as_ref().and_then(|known| known.given).map(Milliseconds::get))
            }
            (Some(announced), _) => {
                let expires = ceiling.map_or(NEVER, |ceiling| milliseconds_up(ceiling.at));
                (announced != expires).then_some(announced.min(expires).min(created))
            }
        };
        let at = at.and_then(Milliseconds::new);
        let mut notice = if at.is_some() { known.unwrap_or_default() } else { known? };
        notice.at = at;
        Some(notice)
    }

    /// Forgets the last notice if it gave this end. Returns true if it did. A notice of another end
    /// is still to be corrected.
    pub fn forget(&mut self, end: i64) -> bool {
        let was_announced = self.announced_end.is_some_and(|announced| announced.get() == end);
        if was_announced {
            (self.announced_end, self.given) = (None, None);
        }
        was_announced
    }

    /// True if no notice is planned, none was given, and none was tried.
    pub fn is_idle(&self) -> bool {
        self.at.is_none() && self.announced_end.is_none() && self.step.tries == Tries::default()
    }

    /// Returns the place of the next try to give the notice. First and repeated tries share the
    /// lane.
    pub fn next(&self) -> OrderSlot {
        self.at.map_or(OrderSlot::NONE, |at| {
            OrderSlot::new(Lane::First, at.get().max(self.step.tries.not_before()))
        })
    }

    /// Records the result of a notice or of a withdrawal. Only a failure is followed by another try
    /// after a wait.
    pub fn record_outcome(&mut self, due: &DuePod, task: Task, outcome: ActionOutcome, now: Timestamp) {
        match outcome {
            ActionOutcome::Acted => {
                let announced = Some(due).filter(|_| task == Task::Announce);
                self.announced_end = announced.and_then(|due| milliseconds(due.deadline));
                self.given = announced.and_then(|due| milliseconds(due.handed_out));
                self.step.tries.forget();
            }
            ActionOutcome::Failed => self.step.tries.count_done(now, RETRY),
            ActionOutcome::Paused | ActionOutcome::TooEarly | ActionOutcome::Moved | ActionOutcome::Final => {
            }
        }
    }
}
