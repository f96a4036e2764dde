//! The rules that hold under every fault, and the search for violations.
//!
//! The observer says what the API server had, by a connection that no fault reaches. The proxies
//! say what was sent when: a decision is judged by the time at which its write was *sent*, also if
//! the write arrives much later.
//!
//! - **Once**: a run is paused once. A second pause has pods of its own that are older than the
//!   ceiling. Each pause that was seen was made by one write, and each such write that succeeded
//!   was seen.
//! - **Not early**: a write that pauses or deletes is sent after the deadline of the oldest pod of
//!   the run, by the clock of the API server that is furthest behind. A workload comes back no
//!   earlier than its record says, by the same clock. A run that begins with its scheduling begins
//!   by the scheduler's clock, and a beginning in the future counts as the present: then only
//!   clocks that are ahead matter. A run that a change of its queue has made overdue goes on for a
//!   grace, which a keeper that starts later doesn't know.
//! - **Not by what has gone**: a pause by a ceiling that was lengthened, by a queue that was
//!   deleted, or for a label that was taken away, is wrong if the change could be read more than
//!   [`OLDEST_BASIS`] before the write was sent, by a connection that no fault held up.
//! - **Not late**: all that was overdue when the faults were over is handled within [`RECOVERY`].
//!   Where a fault holds up nothing, or the leader alone, all is handled within [`PROMPTLY`] after
//!   its deadline, or after a [`TAKEOVER`].
//! - **By the leader alone**: each write is sent within the renew deadline after the same process
//!   sent its last renewal of the Lease that succeeded, and not after it sent a release.
//! - **Announced once**: each pause, return and deletion has each of its events exactly once.
//! - **Nothing else**: a workload without a ceiling is not written.

mod event_counts;
mod lead;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_types::keys::PAUSED_ANNOTATION;

use super::{
    observer::{OwnerState, PodLife, Seen},
    scene::{Actor, CeilingClock, Fate, GRACE_ON_CHANGE, READY_TIMEOUT},
};
use crate::proxy::{Call, Write};

/// The age of the state that a pause may rest on: a read before the write, the wait for the rate
/// limit, and a try that failed.
pub const OLDEST_BASIS: SignedDuration = SignedDuration::from_secs(5);

/// The time for all that is overdue when all faults are over.
pub const RECOVERY: Duration = Duration::from_mins(1);

/// The time for all that is due while a fault doesn't hold it up. On an idle machine a moment is
/// enough.
pub const PROMPTLY: Duration = Duration::from_secs(30);

/// The time until another keeper leads: a Lease lasts 6 s.
pub const TAKEOVER: Duration = Duration::from_secs(10);

/// The inaccuracy of the proxies' and the observer's times on a busy machine.
const SLACK: SignedDuration = SignedDuration::from_millis(100);

/// The inaccuracy for a write that was sent while its keeper led: a busy machine may be slow to
/// receive the write.
const LEADER_SLACK: Duration = Duration::from_secs(1);

/// The time after which a clock that was set back counts: what is on its way then can't know it.
const CLOCK_KNOWN_AFTER: SignedDuration = SignedDuration::from_secs(2);

/// The facts about a plan that the rules judge.
pub(super) struct Evidence<'p> {
    pub actors: &'p [Actor],
    pub seen: &'p Seen,
    /// All writes of both keepers.
    pub writes: &'p [Write],
    /// The seconds by which API servers' clocks were ahead, on even and on odd connections, each
    /// from a time on.
    pub clocks: &'p [(Timestamp, [i64; 2])],
    /// The time from which the changes of people could be read.
    pub changed: Timestamp,
    /// The time until which faults held up what was due.
    pub held_up_until: Timestamp,
    /// The time for what was due, from then on.
    pub within: Duration,
    /// True if a keeper starts after the changes of people, or clocks change.
    pub forgets_grace: bool,
}

/// The end of a run, or a return.
struct Handled {
    what: String,
    /// The deadline.
    due: Timestamp,
    /// The clock that the deadline counts by.
    clock: CeilingClock,
    /// The time at which the decision was sent.
    sent: Timestamp,
    /// The time at which the effect was seen.
    seen: Timestamp,
}

impl Evidence<'_> {
    /// Returns what the script expects and has not happened yet.
    pub fn outstanding(&self) -> Vec<String> {
        let mut outstanding = Vec::new();
        for actor in self.actors {
            let (name, fate) = (actor.name, actor.fate);
            let expected = match fate {
                Fate::Paused(times) => times,
                Fate::Requeued => 2,
                Fate::Deleted if self.deleted(name).is_none() => {
                    outstanding.push(format!("{name} is not deleted"));
                    continue;
                }
                Fate::Deleted | Fate::Saved | Fate::Untouched => 0,
            };
            let pauses = self.seen.pauses(name).count();
            if pauses < expected {
                outstanding.push(format!("{name} was paused {pauses} times of {expected}"));
            }
        }
        outstanding.extend(self.events(|found, expected| found < expected));
        outstanding
    }

    /// Returns the violations of all rules. Called when nothing more is to come.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = self.outstanding();
        violations.extend(self.events(|found, expected| found > expected));
        let handled = match self.handled() {
            Ok(handled) => handled,
            Err(more) => {
                violations.extend(more);
                Vec::new()
            }
        };
        violations.extend(handled.iter().filter_map(|handled| self.early(handled)));
        for late in handled.iter().filter(|handled| self.recovery_of(handled) > self.within) {
            violations.push(format!("late: {} after {:?}", late.what, self.recovery_of(late)));
        }
        violations.extend(self.paused_again());
        violations.extend(self.by_what_has_gone());
        violations.extend(self.by_others());
        violations.extend(self.untouched());
        violations
    }

    /// Returns the longest time from when an act was due, and could be done, until its effect was
    /// seen.
    pub fn recovery(&self) -> Duration {
        let handled = self.handled().unwrap_or_default();
        handled.iter().map(|handled| self.recovery_of(handled)).max().unwrap_or_default()
    }

    fn recovery_of(&self, handled: &Handled) -> Duration {
        let behind = SignedDuration::from_secs(self.slowest(handled.sent).min(0));
        let due = (handled.due - behind).max(self.held_up_until);
        Duration::try_from(handled.seen.duration_since(due)).unwrap_or_default()
    }

    /// Returns the seconds by which the slowest clock is ahead at a time. A clock that was set back
    /// a moment ago doesn't count yet.
    fn slowest(&self, at: Timestamp) -> i64 {
        let least = |at: Timestamp| {
            let set = self.clocks.iter().rev().find(|(since, _)| *since <= at);
            set.map_or(0, |(_, ahead)| *ahead.iter().min().unwrap_or(&0))
        };
        least(at).max(least(at - CLOCK_KNOWN_AFTER))
    }

    /// Returns the violation of an act that came before its deadline by its clock, with `SLACK`.
    /// None: it was in time.
    fn early(&self, handled: &Handled) -> Option<String> {
        let ahead = match handled.clock {
            CeilingClock::Created => self.slowest(handled.sent),
            CeilingClock::Scheduled => self.slowest(handled.sent).max(0),
            // a keeper that has started since knows no grace, and by a clock that is behind the run
            // is younger than the change
            CeilingClock::Changed if self.forgets_grace => GRACE_ON_CHANGE,
            // a keeper may see one change before the last could be read
            CeilingClock::Changed => self.slowest(handled.sent).saturating_add(2),
        };
        let shown = handled.sent + SignedDuration::from_secs(ahead);
        let early = handled.due.duration_since(shown + SLACK);
        early.is_positive().then(|| format!("early: {} by {early:#}", handled.what))
    }

    /// Returns all ends of runs and returns, or the violations that show that a run was ended
    /// twice.
    fn handled(&self) -> Result<Vec<Handled>, Vec<String>> {
        let (mut handled, mut twice) = (Vec::new(), Vec::new());
        for actor in self.actors {
            if actor.kind == "Pod" {
                handled.extend(self.deleted(actor.name));
                continue;
            }
            let pauses: Vec<&OwnerState> = self.seen.pauses(actor.name).collect();
            let resumptions: Vec<&OwnerState> = self.seen.resumptions(actor.name).collect();
            for (number, pause) in pauses.iter().enumerate() {
                // a creation time has no fraction of a second, but pods of the run before have
                // ended before the return
                let resumed = number.checked_sub(1).and_then(|before| resumptions.get(before));
                let is_of_run = |pod: &&PodLife| {
                    let is_past = resumed.zip(pod.ended).is_some_and(|(resumed, ended)| ended < resumed.at);
                    !is_past && pod.created <= pause.at
                };
                let of_run = self.seen.pods(actor.name).filter(is_of_run);
                let what = format!("pause {} of {}", number + 1, actor.name);
                match of_run.filter_map(|pod| self.deadline(actor, pod)).min() {
                    Some(due) => {
                        let sent = self.sent(actor.name, pause.at, true);
                        handled.push(Handled { what, due, clock: actor.clock, sent, seen: pause.at });
                    }
                    None => twice.push(format!("twice: {what} ends no run")),
                }
            }
            if actor.fate == Fate::Requeued {
                handled.extend(pauses.iter().zip(&resumptions).filter_map(|(pause, resumed)| {
                    let due = pause.requeue.requeue_at?;
                    let sent = self.sent(actor.name, resumed.at, false);
                    let (what, clock) = (format!("return of {}", actor.name), CeilingClock::Created);
                    Some(Handled { what, due, clock, sent, seen: resumed.at })
                }));
            }
        }
        if twice.is_empty() { Ok(handled) } else { Err(twice) }
    }

    /// Returns the owners whose pauses were written more or less often than they were seen. A pause
    /// of a paused owner shows no other state, so the writes are counted.
    fn paused_again(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for name in self.actors.iter().filter(|actor| actor.kind != "Pod").map(|actor| actor.name) {
            let patches =
                || self.writes.iter().filter(|write| is_on(write, "patch", name) && is_pause(write));
            let written = patches().filter(|write| write.is_done()).count();
            let unknown = patches().filter(|write| write.status.is_none()).count();
            let seen = self.seen.pauses(name).count();
            if !(written..=written + unknown).contains(&seen) {
                wrong.push(format!(
                    "twice: {name} was seen paused {seen} times, and {written} patches did it"
                ));
            }
        }
        wrong
    }

    /// Returns the deletion of a pod. None: its end wasn't seen.
    fn deleted(&self, name: &str) -> Option<Handled> {
        let actor = self.actors.iter().find(|actor| actor.name == name)?;
        let pod = self.seen.pods(name).next()?;
        let seen = pod.ended?;
        let delete = self.writes.iter().find(|write| is_on(write, "delete", name) && write.is_done());
        let sent = delete.map_or(seen, |write| write.sent);
        let (due, clock) = (self.deadline(actor, pod)?, actor.clock);
        Some(Handled { what: format!("deletion of {name}"), due, clock, sent, seen })
    }

    /// Returns the time at which the last write before `seen` was sent that paused an owner, or
    /// resumed it. Without a write: `seen`.
    fn sent(&self, name: &str, seen: Timestamp, pauses: bool) -> Timestamp {
        let of_it = self.writes.iter().filter(|write| is_on(write, "patch", name) && write.is_done());
        let before = of_it.filter(|write| is_pause(write) == pauses && write.sent <= seen + SLACK);
        before.map(|write| write.sent).max().unwrap_or(seen)
    }

    /// Returns pauses by a ceiling, a queue or a label that was gone for longer than
    /// `OLDEST_BASIS`.
    fn by_what_has_gone(&self) -> Vec<String> {
        let limit = self.changed + OLDEST_BASIS;
        let of_saved = self.actors.iter().filter(|actor| actor.fate == Fate::Saved);
        let wrong = of_saved.flat_map(|actor| {
            let ends = |write: &&Write| {
                let verb = if actor.kind == "Pod" { "delete" } else { "patch" };
                is_on(write, verb, actor.name)
                    && (actor.kind == "Pod" || is_pause(write))
                    && write.is_done()
                    && write.sent > limit
            };
            self.writes.iter().filter(ends).map(|write| {
                let age = write.sent.duration_since(self.changed);
                format!("by what had gone: {} by {}, {age:#} after the change", write.call, write.by)
            })
        });
        wrong.collect()
    }

    /// Returns writes to workloads that no ceiling is for.
    fn untouched(&self) -> Vec<String> {
        let untouched = self.actors.iter().filter(|actor| actor.fate == Fate::Untouched);
        let touched = untouched.flat_map(|actor| {
            let is_on = |call: &Call| call.resource != "events" && call.name.starts_with(actor.name);
            self.writes.iter().filter(move |write| write.call.is_write() && is_on(&write.call))
        });
        touched.map(|write| format!("no ceiling is for it: {} by {}", write.call, write.by)).collect()
    }

    /// Returns the end of a pod's run by its ceiling, or of its time to get ready. None: the pod
    /// has no beginning yet.
    fn deadline(&self, actor: &Actor, pod: &PodLife) -> Option<Timestamp> {
        let begin = match actor.clock {
            CeilingClock::Created => Some(pod.created),
            CeilingClock::Scheduled => pod.scheduled,
            CeilingClock::Changed => Some(self.changed),
        };
        let seconds = if actor.fate == Fate::Requeued { READY_TIMEOUT } else { actor.ceiling };
        Some(begin? + SignedDuration::from_secs(seconds))
    }
}

/// True for a write of this verb to an object of this name, not to a subresource.
fn is_on(write: &Write, verb: &str, name: &str) -> bool {
    write.call.verb == verb && write.call.name == name && write.call.subresource.is_empty()
}

/// True for a patch that pauses, and writes the record of the pause.
fn is_pause(write: &Write) -> bool {
    let patch: serde_json::Value = serde_json::from_str(&write.body).unwrap_or_default();
    patch["metadata"]["annotations"][PAUSED_ANNOTATION].is_string() && patch["spec"].is_object()
}

#[cfg(test)]
mod tests;
