//! A replay: the runs as they were, judged by other queues.
//!
//! Called by `simulate`, and by `report` for its numbers. No run is scheduled otherwise, so the
//! result is exact: a run that a ceiling cuts makes no room for others here. Ends and floors are
//! computed by `tenure_policy`.

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tenure_policy::{
    expiry::{Clocks, deadline},
    preemption::protected_until,
};

use super::{
    past::{Fate, Past, PastRun, Seconds, Unit, moment},
    policy::{LeafLimits, SimulatedPolicy},
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

/// The numbers of a queue, or of all queues. Amounts are in unit-hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    pub jobs: u64,
    /// The usage of the workloads by the baseline.
    pub used: f64,
    /// The number of workloads that the policy ends for good, earlier than the baseline.
    pub cut: u64,
    /// The number of cut workloads that would have ended soon.
    pub nearly_finished: u64,
    /// The number of cut workloads that would have got enough time without approval, had their
    /// users asked.
    pub extendable: u64,
    /// The usage of cut workloads after their cut.
    pub freed: f64,
    /// The number of cut workloads that still run.
    pub running_cut: u64,
    /// The number of times that the end of a time slice interrupts a run.
    pub slices: u64,
    /// The number of workloads that the baseline ends, and the policy ends later or not at all.
    pub spared: u64,
    /// The number of runs that were preempted.
    pub preempted: u64,
    /// The number of preemptions that a floor forbids to every preemptor.
    pub preemptions_avoided: u64,
    /// The number of preemptions that a floor forbids to preemptors of some queues alone.
    pub preemptions_perhaps_avoided: u64,
    /// The usage that preemptions early in a run have lost.
    pub lost_early: f64,
    /// The same usage without the preemptions that floors avoid.
    pub lost_early_with_floors: f64,
    /// The hours for which preemptors wait for the ends of floors, not weighted by units.
    pub preemptors_waited_hours: f64,
}

/// The numbers of a queue, or of all queues, with the values that they are computed from.
#[derive(Clone, Debug, Default)]
pub struct ReplayTally {
    pub numbers: Numbers,
    /// The numbers of the users who lose a workload.
    pub users: HashSet<u32>,
    /// The wait of each workload before its start, in seconds.
    pub waits: Vec<u32>,
    /// The longest time that a nearly finished workload still needs, in seconds.
    pub lacking: Seconds,
}

/// A workload that is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loser {
    /// The place of its first run in [`Past::runs`].
    pub run: usize,
    /// The time of the cut.
    pub cut: Seconds,
    /// The unit-hours that the workload loses.
    pub lost: f64,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// The numbers of each queue, at the place of its number.
    pub queues: Vec<ReplayTally>,
    pub total: ReplayTally,
    /// The workloads that lose most, the greatest loss first.
    pub losers: Vec<Loser>,
}

/// The largest number of losers that are kept.
const NAMED: usize = 10;

/// Judges the past by a policy, in comparison with a baseline.
pub fn replay(
    past: &Past,
    baseline: &SimulatedPolicy,
    policy: &SimulatedPolicy,
    counting: ReportBounds,
) -> Replayed {
    let (before, after) = (ReplayedPolicy::new(past, baseline), ReplayedPolicy::new(past, policy));
    let mut replayed =
        Replayed { queues: vec![ReplayTally::default(); past.queues.len()], ..Replayed::default() };
    let mut first = 0_usize;
    for runs in past.workloads() {
        let [head, ..] = runs else { continue };
        let Some(tally) = usize::try_from(head.queue).ok().and_then(|place| replayed.queues.get_mut(place))
        else {
            continue;
        };
        let ends = [before.end(runs), after.end(runs)];
        if let Some((cut, lost)) = tally.add(runs, ends, counting) {
            replayed.losers.push(Loser { run: first, cut, lost });
        }
        for run in runs.iter().filter(|run| run.fate == Fate::Preempted) {
            tally.preempted(run, &before, &after, counting);
        }
        first = first.saturating_add(runs.len());
    }
    replayed.losers.sort_by(|one, other| other.lost.total_cmp(&one.lost).then(one.run.cmp(&other.run)));
    replayed.losers.truncate(NAMED);
    replayed.total = replayed.queues.iter().fold(ReplayTally::default(), ReplayTally::with);
    replayed
}

/// Returns the past as the policy would have had it. Cut runs end at their ceiling. Runs whose
/// preemption a floor forbids go on until the end of that floor. Time slices change nothing here:
/// their workloads come back.
pub fn applied(past: &Past, policy: &SimulatedPolicy) -> Past {
    let judges = ReplayedPolicy::new(past, policy);
    let mut result = past.clone();
    result.runs.clear();
    for runs in past.workloads() {
        let held = runs.iter().map(|run| {
            let [until, _] = judges.forbids(run);
            PastRun { end: until.unwrap_or(run.end).max(run.end), ..run.clone() }
        });
        let held: Vec<PastRun> = held.collect();
        let end = judges.end(&held).filter(|end| !end.is_requeued).map(|end| end.at);
        let mut is_joined = false;
        // a run that would have started after the cut doesn't start
        for mut run in held.into_iter().filter(|run| end.is_none_or(|end| run.start < end)) {
            if let Some(end) = end.filter(|end| *end < run.end) {
                (run.end, run.fate) = (end, Fate::Cut);
            }
            run.is_joined = std::mem::replace(&mut is_joined, true);
            result.runs.push(run);
        }
    }
    result
}

/// A policy, resolved for each queue of the past.
struct ReplayedPolicy<'t> {
    leaves: Vec<LeafLimits<'t>>,
}

impl<'t> ReplayedPolicy<'t> {
    fn new(past: &'t Past, policy: &'t SimulatedPolicy) -> Self {
        Self { leaves: policy.leaves(past) }
    }

    fn leaf(&self, run: &PastRun) -> Option<&LeafLimits<'t>> {
        self.leaves.get(usize::try_from(run.queue).ok()?)
    }

    /// Returns the end that the policy sets to a workload: the first deadline that one of its runs
    /// exceeds. None: no deadline is exceeded.
    fn end(&self, runs: &[PastRun]) -> Option<SetEnd> {
        let ends = runs.iter().filter_map(|run| {
            let leaf = self.leaf(run)?;
            let own = run.own.map(|own| SignedDuration::from_secs(own.get().into()));
            let clocks = Clocks { created: moment(run.submit), started: Some(moment(run.start)) };
            let (end, family) = deadline(clocks, leaf.ceilings(own))?;
            // a run that ends at its deadline doesn't exceed it
            let is_exceeded = moment(run.end) > end;
            is_exceeded.then(|| SetEnd {
                at: end.as_second(),
                is_requeued: leaf.is_requeued(family),
                auto_approved: leaf.auto_approved(family).as_secs(),
            })
        });
        ends.min_by_key(|end| end.at)
    }

    /// Returns the ends of the floors that forbid the preemption that ended a run: to every
    /// preemptor, and to preemptors of some queues. None: no floor forbids it, or the run wasn't
    /// preempted.
    fn forbids(&self, run: &PastRun) -> [Option<Seconds>; 2] {
        let leaf = self.leaf(run).filter(|_| run.fate == Fate::Preempted);
        let until = |floor| protected_until(Some(moment(run.start)), &floor, moment(run.end));
        leaf.and_then(|leaf| leaf.floors)
            .map_or([None; 2], |floors| floors.map(|floor| until(floor).map(Timestamp::as_second)))
    }
}

impl ReplayTally {
    /// Adds a workload, with the ends that baseline and policy set. Returns the time of its cut and
    /// its loss in unit-hours. None: it isn't cut.
    fn add(
        &mut self,
        runs: &[PastRun],
        [before, after]: [Option<SetEnd>; 2],
        counting: ReportBounds,
    ) -> Option<(Seconds, f64)> {
        let [head, ..] = runs else { return None };
        let Self { numbers, users, waits, lacking } = self;
        numbers.jobs += 1;
        waits.push(u32::try_from(head.start.saturating_sub(head.submit)).unwrap_or(u32::MAX));
        let [old, new] = [before, after].map(|end| end.map_or(Seconds::MAX, |end| end.at));
        numbers.spared += u64::from(old < new);
        let used =
            |run: &PastRun, end| hours(run.seconds_in(counting.since, end)) * counting.unit.amount(run);
        numbers.used += runs.iter().map(|run| used(run, old)).sum::<f64>();
        let after = after.filter(|_| new < old)?;
        if after.is_requeued {
            let longest = runs.iter().map(|run| run.end.saturating_sub(run.start)).max().unwrap_or(0);
            let slice = after.at.saturating_sub(head.start).max(1);
            numbers.slices += u64::try_from(longest.saturating_sub(1) / slice).unwrap_or(0).max(1);
            return None;
        }
        let lost = runs.iter().map(|run| used(run, old) - used(run, new)).sum();
        numbers.cut += 1;
        numbers.freed += lost;
        users.insert(head.user);
        if runs.iter().any(|run| run.fate == Fate::Running) {
            numbers.running_cut += 1;
            return Some((new, lost));
        }
        let until = runs.iter().map(|run| run.end).max().unwrap_or(head.end);
        let left = until.min(old).saturating_sub(new);
        if left <= counting.nearly.as_secs() {
            numbers.nearly_finished += 1;
            *lacking = left.max(*lacking);
        }
        numbers.extendable += u64::from(left <= after.auto_approved);
        Some((new, lost))
    }

    /// Adds a run that was preempted.
    fn preempted(
        &mut self,
        run: &PastRun,
        before: &ReplayedPolicy<'_>,
        after: &ReplayedPolicy<'_>,
        counting: ReportBounds,
    ) {
        let numbers = &mut self.numbers;
        let ran = run.end.saturating_sub(run.start);
        let is_early = ran < counting.lost_within.as_secs();
        let lost = if is_early { hours(ran) * counting.unit.amount(run) } else { 0.0 };
        numbers.preempted += 1;
        numbers.lost_early += lost;
        let [always_before, sometimes_before] = before.forbids(run);
        let [always, sometimes] = after.forbids(run);
        // a preemption that the baseline forbids, too, makes no difference
        if let Some(until) = always.filter(|_| always_before.is_none()) {
            numbers.preemptions_avoided += 1;
            numbers.preemptors_waited_hours += hours(until.saturating_sub(run.end));
        } else {
            let is_new = sometimes.is_some() && sometimes_before.is_none();
            numbers.preemptions_perhaps_avoided += u64::from(is_new);
            numbers.lost_early_with_floors += lost;
        }
    }

    /// Returns the sum of two tallies.
    fn with(mut self, other: &Self) -> Self {
        let Self { numbers, users, waits, lacking } = other;
        self.numbers = self.numbers.plus(*numbers);
        self.users.extend(users);
        self.waits.extend(waits);
        self.lacking = self.lacking.max(*lacking);
        self
    }
}

/// Returns the value that `percent` of all values don't exceed. None: there are no values.
pub fn percentile(values: &[u32], percent: usize) -> Option<u32> {
    let mut values = values.to_vec();
    let place = values.len().saturating_mul(percent).div_ceil(100).saturating_sub(1);
    let (_, value, _) = (place < values.len()).then(|| values.select_nth_unstable(place))?;
    Some(*value)
}

impl Numbers {
    /// Returns the sum of all numbers.
    fn plus(self, other: Self) -> Self {
        Self {
            jobs: self.jobs + other.jobs,
            used: self.used + other.used,
            cut: self.cut + other.cut,
            nearly_finished: self.nearly_finished + other.nearly_finished,
            extendable: self.extendable + other.extendable,
            freed: self.freed + other.freed,
            running_cut: self.running_cut + other.running_cut,
            slices: self.slices + other.slices,
            spared: self.spared + other.spared,
            preempted: self.preempted + other.preempted,
            preemptions_avoided: self.preemptions_avoided + other.preemptions_avoided,
            preemptions_perhaps_avoided: self.preemptions_perhaps_avoided + other.preemptions_perhaps_avoided,
            lost_early: self.lost_early + other.lost_early,
            lost_early_with_floors: self.lost_early_with_floors + other.lost_early_with_floors,
            preemptors_waited_hours: self.preemptors_waited_hours + other.preemptors_waited_hours,
        }
    }
}

/// Returns seconds as hours.
#[allow(clippy::cast_precision_loss, reason = "no run lasts that long")]
pub fn hours(seconds: Seconds) -> f64 {
    seconds as f64 / 3600.0
}
