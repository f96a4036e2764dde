//! A replay: the runs as they were, judged by other queues.
//!
//! Called by `simulate`, and by `report` for its numbers. No run is scheduled otherwise, so the
//! result is exact: a run that a ceiling cuts makes no room for others here. Ends and floors are
//! computed by `tenure_policy`.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tenure_policy::{
    expiry::{Clocks, Family, deadline},
    preemption::protected_until,
};

use super::{
    past::{Fate, Past, PastRun, Seconds, Unit, hours, moment},
    policy::{Leaves, SimulatedPolicy},
};

/// The bounds of what a report counts.
#[derive(Clone, Copy, Debug)]
pub struct ReportBounds {
    pub unit: Unit,
    /// Usage before this time doesn't count. In seconds since 1970.
    pub since: Seconds,
    /// A run that would have ended within this time after its cut counts as nearly finished.
    pub nearly: SignedDuration,
    /// A run that is preempted sooner than this after its start has lost its usage early.
    pub lost_within: SignedDuration,
}

/// The end that a policy sets to a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetEnd {
    at: Seconds,
    /// True if the workload comes back by itself.
    is_requeued: bool,
    /// The time beyond this end that is granted without approval, in seconds.
    auto_approved: Seconds,
}

/// The numbers of a queue, or of all queues. Amounts are in unit-hours, and waits before the start
/// in seconds.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueNumbers {
    pub queue: String,
    /// The number of users who lose a workload.
    pub users_cut: usize,
    pub jobs: usize,
    /// The usage of the workloads by the baseline.
    pub used: f64,
    /// The number of workloads that the policy ends for good, earlier than the baseline.
    pub cut: usize,
    /// The number of cut workloads that would have ended soon.
    pub nearly_finished: usize,
    /// The number of cut workloads that would have got enough time without approval, had their
    /// users asked.
    pub extendable: usize,
    /// The usage of cut workloads after their cut.
    pub freed: f64,
    /// The number of cut workloads that still run.
    pub running_cut: usize,
    /// The number of times that the end of a time slice interrupts a run.
    pub slices: usize,
    /// The number of workloads that the baseline ends, and the policy ends later or not at all.
    pub spared: usize,
    /// The number of runs that were preempted.
    pub preempted: usize,
    /// The number of preemptions that a floor forbids to every preemptor.
    pub preemptions_avoided: usize,
    /// The number of preemptions that a floor forbids to preemptors of some queues alone.
    pub preemptions_perhaps_avoided: usize,
    /// The usage that preemptions early in a run have lost.
    pub lost_early: f64,
    /// The same usage without the preemptions that floors avoid.
    pub lost_early_with_floors: f64,
    /// The hours for which preemptors wait for the ends of floors, not weighted by units.
    pub preemptors_waited_hours: f64,
    pub wait_p50: Option<i64>,
    pub wait_p95: Option<i64>,
    /// The family of the queue. None: these are the numbers of all queues.
    #[serde(skip)]
    pub family: Option<Family>,
    /// The numbers of the users who lose a workload.
    #[serde(skip)]
    pub users: HashSet<u32>,
    /// The wait of each workload before its start.
    #[serde(skip)]
    waits: Vec<u32>,
    /// The longest time that a nearly finished workload still needs, in seconds.
    #[serde(skip)]
    pub lacking: Seconds,
}

/// A workload that loses much.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Loser {
    pub workload: String,
    pub user: String,
    pub queue: String,
    pub ran_seconds: i64,
    pub cut_after_seconds: i64,
    /// The unit-hours that it loses.
    pub lost: f64,
}

/// The result of a replay.
#[derive(Debug, Serialize)]
pub struct Replayed {
    pub total: QueueNumbers,
    /// The queues that have workloads, those that free most first.
    pub queues: Vec<QueueNumbers>,
    /// The workloads that lose most, the greatest loss first.
    pub losers: Vec<Loser>,
}

/// The largest number of losers that are kept.
const NAMED: usize = 10;

/// Judges the past by the second policy, in comparison with the first one, the baseline.
pub fn replay(past: &Past, policies: [&SimulatedPolicy; 2], counting: ReportBounds) -> Replayed {
    let ([_, policy], judges) = (policies, policies.map(|policy| policy.leaves(past)));
    let named = |name: &str, family| QueueNumbers { queue: name.into(), family, ..QueueNumbers::default() };
    let queues = past.queues.iter().map(|queue| named(&queue.name, Some(policy.family(queue))));
    let mut queues: Vec<_> = queues.collect();
    let (mut total, mut losers) = (named("(all)", None), Vec::new());
    for (head, runs) in past.workloads() {
        let ends = judges.each_ref().map(|judge| judge.end(runs));
        let mut cut = None;
        for numbers in queues.get_mut(head.queue as usize).into_iter().chain([&mut total]) {
            cut = numbers.add(head, runs, ends, counting);
            for run in runs.iter().filter(|run| run.fate == Fate::Preempted) {
                numbers.add_preempted(run, judges.each_ref().map(|judge| judge.forbids(run)), counting);
            }
        }
        losers.extend(cut.map(|(cut, lost)| (lost, cut, head, runs)));
    }
    losers.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    losers.truncate(NAMED);
    let losers = losers.into_iter().map(|(lost, cut, head, runs)| Loser {
        workload: head.id.to_string(),
        user: past.user_name(head).to_owned(),
        queue: past.queue_name(head).to_owned(),
        ran_seconds: last_end(runs).saturating_sub(head.start),
        cut_after_seconds: cut.saturating_sub(head.start),
        lost,
    });
    queues.iter_mut().chain([&mut total]).for_each(QueueNumbers::complete);
    queues.retain(|of| of.jobs > 0);
    queues.sort_by(|one, other| other.freed.total_cmp(&one.freed).then_with(|| one.queue.cmp(&other.queue)));
    Replayed { total, queues, losers: losers.collect() }
}

/// Returns the past as the policy would have had it. Cut runs end at their ceiling. Runs whose
/// preemption a floor forbids go on until the end of that floor. Time slices change nothing here:
/// their workloads come back.
pub fn applied(past: &Past, policy: &SimulatedPolicy) -> Past {
    let judges = policy.leaves(past);
    let mut result = past.clone();
    result.runs.clear();
    for (_, runs) in past.workloads() {
        let held = runs.iter().map(|run| {
            let [until, _] = judges.forbids(run);
            PastRun { end: until.unwrap_or(run.end).max(run.end), ..run.clone() }
        });
        let held: Vec<PastRun> = held.collect();
        let end = judges.end(&held).filter(|end| !end.is_requeued).map_or(Seconds::MAX, |end| end.at);
        let from = result.runs.len();
        // a run that would have started after the cut doesn't start
        for mut run in held.into_iter().filter(|run| run.start < end) {
            if end < run.end {
                (run.end, run.fate) = (end, Fate::Cut);
            }
            run.is_joined = result.runs.len() > from;
            result.runs.push(run);
        }
    }
    result
}

impl Leaves<'_> {
    /// Returns the end that the policy sets to a workload: the first deadline that one of its runs
    /// exceeds. None: no deadline is exceeded.
    fn end(&self, runs: &[PastRun]) -> Option<SetEnd> {
        let ends = runs.iter().filter_map(|run| {
            let leaf = self.of(run.queue)?;
            let clocks = Clocks { created: moment(run.submit), started: Some(moment(run.start)) };
            let (end, family) = deadline(clocks, leaf.ceilings(run.own))?;
            // a run that ends at its deadline doesn't exceed it
            (moment(run.end) > end).then(|| SetEnd {
                at: end.as_second(),
                is_requeued: leaf.slice_delay(family).is_some(),
                auto_approved: leaf.auto_approved(family).as_secs(),
            })
        });
        ends.min_by_key(|end| end.at)
    }

    /// Returns the ends of the floors that forbid the preemption that ended a run: to every
    /// preemptor, and to preemptors of some queues. None: no floor forbids it, or the run wasn't
    /// preempted.
    fn forbids(&self, run: &PastRun) -> [Option<Seconds>; 2] {
        let leaf = self.of(run.queue).filter(|_| run.fate == Fate::Preempted);
        let until = |floor| protected_until(Some(moment(run.start)), &floor, moment(run.end));
        leaf.and_then(|leaf| leaf.floors)
            .map_or([None; 2], |floors| floors.map(|floor| until(floor).map(Timestamp::as_second)))
    }
}

impl QueueNumbers {
    /// Adds a workload, with the ends that baseline and policy set. Returns the time of its cut and
    /// its loss in unit-hours. None: it isn't cut.
    fn add(
        &mut self,
        head: &PastRun,
        runs: &[PastRun],
        [before, after]: [Option<SetEnd>; 2],
        counting: ReportBounds,
    ) -> Option<(Seconds, f64)> {
        self.jobs += 1;
        self.waits.push(u32::try_from(head.start.saturating_sub(head.submit)).unwrap_or(u32::MAX));
        let at = |end: Option<SetEnd>| end.map_or(Seconds::MAX, |end| end.at);
        // a time slice comes back: it doesn't end the workload for good
        let [old, new] = [before, after].map(|end| at(end.filter(|end| !end.is_requeued)));
        self.spared += usize::from(old < new);
        let used = |run: &PastRun, end| run.used(counting.unit, counting.since, end);
        self.used += runs.iter().map(|run| used(run, old)).sum::<f64>();
        let after = after.filter(|end| end.at < at(before) || new < old)?;
        if after.is_requeued {
            let longest = runs.iter().map(|run| run.end.saturating_sub(run.start)).max().unwrap_or(0);
            let slice = after.at.saturating_sub(head.start).max(1);
            self.slices += usize::try_from(longest.saturating_sub(1) / slice).unwrap_or(0).max(1);
            return None;
        }
        let lost: f64 = runs.iter().map(|run| used(run, old) - used(run, new)).sum();
        self.cut += 1;
        self.freed += lost;
        self.users.insert(head.user);
        if runs.iter().any(|run| run.fate == Fate::Running) {
            self.running_cut += 1;
            return Some((new, lost));
        }
        let left = last_end(runs).min(old).saturating_sub(new);
        if left <= counting.nearly.as_secs() {
            self.nearly_finished += 1;
            self.lacking = left.max(self.lacking);
        }
        self.extendable += usize::from(left <= after.auto_approved);
        Some((new, lost))
    }

    /// Adds a run that was preempted, with the ends of the floors of baseline and policy that
    /// forbid it.
    fn add_preempted(&mut self, run: &PastRun, floors: [[Option<Seconds>; 2]; 2], counting: ReportBounds) {
        let [[always_before, sometimes_before], [always, sometimes]] = floors;
        let ran = run.end.saturating_sub(run.start);
        let is_early = ran < counting.lost_within.as_secs();
        let lost = if is_early { hours(ran) * counting.unit.amount(run) } else { 0.0 };
        self.preempted += 1;
        self.lost_early += lost;
        // a preemption that the baseline forbids, too, makes no difference
        if let Some(until) = always.filter(|_| always_before.is_none()) {
            self.preemptions_avoided += 1;
            self.preemptors_waited_hours += hours(until.saturating_sub(run.end));
        } else {
            let is_new = sometimes.is_some() && sometimes_before.is_none();
            self.preemptions_perhaps_avoided += usize::from(is_new);
            self.lost_early_with_floors += lost;
        }
    }

    /// Computes the numbers that need all workloads.
    fn complete(&mut self) {
        self.users_cut = self.users.len();
        [self.wait_p50, self.wait_p95] = [50, 95].map(|percent| percentile(&self.waits, percent));
    }
}

/// Returns the last end of a workload's runs.
fn last_end(runs: &[PastRun]) -> Seconds {
    runs.iter().map(|run| run.end).max().unwrap_or(0)
}

/// Returns the value that `percent` of all values don't exceed. None: there are no values.
pub fn percentile(values: &[u32], percent: usize) -> Option<i64> {
    let mut values = values.to_vec();
    let place = values.len().saturating_mul(percent).div_ceil(100).saturating_sub(1);
    let (_, value, _) = (place < values.len()).then(|| values.select_nth_unstable(place))?;
    Some((*value).into())
}
