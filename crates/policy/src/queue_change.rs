//! The running workloads that a change of a queue, or its deletion, affects: the texts of warnings
//! to the user.
//!
//! The webhook calls this through [`crate::review`]. The numbers are those of the queues' statuses,
//! so they may lag behind the cluster: a warning never refuses a change.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
};

use jiff::Timestamp;
use serde_json::Value;
use tenure_types::ExtendedDuration;

use crate::{
    expiry::GraceOnChange,
    inheritance::{EffectiveValues, Inheritance},
    notice::NoticePoints,
    queue::RunaiQueue,
    runs::{LowerBound, Runs},
};

/// The running workloads of a queue, as its status reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningWorkloads {
    /// The number of running workloads.
    pub workloads: u64,
    /// Their start times.
    pub runs: Runs,
}

impl RunningWorkloads {
    /// Reads `status.workloads`. Numbers that can't be read count as 0.
    pub fn read(workloads: &Value) -> Self {
        let running = workloads.get("running").and_then(Value::as_u64);
        Self { workloads: running.unwrap_or_default(), runs: Runs::read(workloads) }
    }
}

/// The facts about the cluster when a queue changes.
pub struct QueueChangeFacts<'a, 'q> {
    /// The queues before the change.
    pub queues: &'a Inheritance<'q>,
    /// The running workloads of each queue that has some, by the name of the queue.
    pub running: &'a HashMap<String, RunningWorkloads>,
    /// The notices that a workload gets where its queue sets none.
    pub notice: NoticePoints,
    /// The time for which a workload that gets a notice may run on when a change has made it
    /// overdue.
    pub grace: GraceOnChange,
    /// The time of the change.
    pub now: Timestamp,
}

/// The most names of queues in a warning.
const SHOWN: usize = 5;

impl QueueChangeFacts<'_, '_> {
    /// Returns the warning of a change that ends runs in the queue itself or in queues below it.
    /// None: it ends none.
    ///
    /// `field` is the path of the changed field. `old` is None for a queue that is created.
    pub fn ended(
        &self,
        field: &str,
        name: &str,
        new: &RunaiQueue,
        old: Option<&RunaiQueue>,
    ) -> Option<String> {
        if self.running.is_empty() || old.is_some_and(|old| shortens_nothing(new, old)) {
            return None;
        }
        let floors = self.queues.floors;
        let before = old.map(|old| self.queues.above(old).below(name, old, floors));
        let after = self.queues.above(new).below(name, new, floors);
        let (mut ended, mut queues) = (LowerBound::default(), BTreeSet::new());
        let mut shortest: Option<ExtendedDuration> = None;
        let mut next = vec![(name, before.unwrap_or_default(), after)];
        // queues in a cycle would be visited without end
        let mut seen = BTreeSet::new();
        while let Some((name, before, after)) = next.pop() {
            if !seen.insert(name) {
                continue;
            }
            let of_queue = self.ended_of(name, &before, &after);
            if of_queue.workloads > 0 {
                queues.insert(name);
                shortest = shortest.into_iter().chain(after.longest_run).min();
            }
            ended = ended.and(of_queue);
            for (child, queue) in self.queues.tree.children(name) {
                next.push((child, before.below(child, queue, floors), after.below(child, queue, floors)));
            }
        }
        let shortest = shortest?;
        let notice = after.nearest.notice.unwrap_or(self.notice);
        Some(self.sentence(field, ended, &queues, shortest, !notice.is_empty()))
    }

    /// Returns the number of workloads of one queue that the change ends: those that have run for
    /// longer than the new limit.
    fn ended_of(&self, name: &str, before: &EffectiveValues<'_>, after: &EffectiveValues<'_>) -> LowerBound {
        let Some((after, running)) = after.longest_run.zip(self.running.get(name)) else {
            return LowerBound::default();
        };
        if before.longest_run.is_some_and(|before| before <= after) {
            return LowerBound::default();
        }
        running.runs.longer_than(after.to_signed(), self.now)
    }

    /// Returns the text of the warning. `ceiling` is the shortest new limit of the queues in which
    /// runs end.
    fn sentence(
        &self,
        field: &str,
        LowerBound { workloads, or_more }: LowerBound,
        queues: &BTreeSet<&str>,
        ceiling: ExtendedDuration,
        has_notice: bool,
    ) -> String {
        let least = if or_more { "at least " } else { "" };
        let (noun, have) = if workloads == 1 { ("workload", "has") } else { ("workloads", "have") };
        let when = if has_notice && !self.grace.0.is_zero() {
            format!("within {}, after a notice", self.grace.0)
        } else {
            "at once".into()
        };
        format!(
            "{field}: this ends {least}{workloads} running {noun} of {}, which {have} run for longer than {}: paused {when}, or deleted where nothing can be paused",
            named(queues),
            ceiling
        )
    }

    /// Returns the warnings of the deletion of a queue: about its own workloads, and about the
    /// queues below it, which become top-level queues.
    pub fn deleted(&self, name: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        let running = self.running.get(name).map_or(0, |running| running.workloads);
        if running > 0 {
            let (noun, they) =
                if running == 1 { ("workload names", "it has") } else { ("workloads name", "they have") };
            warnings.push(format!(
                "{running} running {noun} queue {name:?}: without the queue {they} no ceiling, and only the default floors"
            ));
        }
        let children = self.queues.tree.children(name).map(|(child, _)| child);
        let children: BTreeSet<&str> = children.filter(|child| *child != name).collect();
        if children.is_empty() {
            return warnings;
        }
        let below = self.queues.tree.with_all_below(children.iter().copied());
        let workloads = below.into_iter().filter_map(|name| self.running.get(name));
        let workloads = workloads.fold(0, |sum: u64, running| sum.saturating_add(running.workloads));
        let of_path = self.queues.tree.queue(name).and_then(|(name, queue)| {
            self.queues.above(queue).below(name, queue, self.queues.floors).ceiling
        });
        let ceiling = of_path.map_or_else(String::new, |(of, ceiling)| {
            format!(", without the ceiling of {ceiling} of queue {of:?}")
        });
        let mut warning = if children.len() == 1 {
            format!("{} is below queue {name:?}, and becomes a top-level queue{ceiling}", named(&children))
        } else {
            format!("{} are below queue {name:?}, and become top-level queues{ceiling}", named(&children))
        };
        if workloads > 0 {
            // a write to a String never fails
            let noun = if workloads == 1 { "workload" } else { "workloads" };
            let _ = write!(warning, ": this affects {workloads} running {noun}");
        }
        warnings.push(warning);
        warnings
    }
}

/// True if no run of the queue, nor of a queue below it, ends earlier: a longer ceiling lengthens
/// runs, or leaves them.
fn shortens_nothing(new: &RunaiQueue, old: &RunaiQueue) -> bool {
    let others = |queue: &RunaiQueue| (queue.nearest.action, queue.preempt_floor, queue.reclaim_floor);
    let is_as_long = new.ceiling.is_none_or(|new| old.ceiling.is_some_and(|old| old <= new));
    new.parent == old.parent && others(new) == others(old) && is_as_long
}

/// Returns the names in words: `queue "a"`, or `queues "a", "b" and 7 more`.
fn named(queues: &BTreeSet<&str>) -> String {
    let shown: Vec<String> = queues.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    let more = queues.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let noun = if queues.len() == 1 { "queue" } else { "queues" };
    format!("{noun} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests;
