//! A schedule: the runs of the past placed again, in one pool with priorities, gangs, preemption
//! and returns.
//!
//! Called by `simulate --schedule`. The result is an estimate: real schedulers know nodes, quotas
//! and fairness, and users do something else when they wait for longer. Time passes from event to
//! event: arrivals, ends, and the ends of floors. Where room is freed every few seconds, chance
//! decides which of equal workloads gets it, as with kube-scheduler.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    num::NonZeroU32,
};

use serde::Serialize;
use tenure_policy::{
    expiry::{Clocks, Family, deadline},
    preemption::{Preemptor, Rules, Victim, Workload},
    toleration::PreemptorClaim,
};

use super::{
    past::{Past, PastRun, Seconds, Unit, hours, moment},
    policy::{Leaves, SimulatedPolicy},
    replay::percentile,
};

/// The largest number of waiting workloads that are considered after each event, and of running
/// workloads that are considered for a preemption.
const LOOKED_AT: usize = 128;

/// The longest time for which kube-scheduler doesn't try a pod again that found no room: its default
/// `podMaxBackoffSeconds`. Room that is freed meanwhile goes to the first pod that is tried again,
/// and not to the one that has waited for longest.
const BACKOFF: Seconds = 10;

/// The numbers of a schedule. Waits are in seconds. `lost` is the usage of preempted runs, in
/// unit-hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleReport {
    pub wait_p50: Option<i64>,
    pub wait_p95: Option<i64>,
    pub cut: usize,
    pub preempted: usize,
    pub slices: usize,
    pub lost: f64,
}

/// A workload. Its amount is in thousandths of a unit, and its times are in seconds.
#[derive(Default)]
struct Job {
    submit: Seconds,
    /// The time for which it still has to run.
    left: Seconds,
    units: u64,
    priority: i32,
    queue: u32,
    /// The least ceiling that one of its runs notes itself, in seconds.
    own: Option<NonZeroU32>,
    start: Seconds,
    has_started: bool,
    /// The end of its run, if it runs.
    end: Seconds,
    /// The family whose ceiling ends its run. None: no ceiling applies.
    ends_by: Option<Family>,
}

/// The pool: the workloads that wait and run, and the events to come.
struct SimulatedPool<'t> {
    policy: &'t SimulatedPolicy,
    leaves: Leaves<'t>,
    jobs: Vec<Job>,
    /// The thousandths of units that no workload has.
    free: u64,
    /// The last time at which a run ended.
    freed: Seconds,
    /// The waiting workloads: the highest priority first, then the longest wait.
    waiting: BTreeSet<(Reverse<i32>, Seconds, usize)>,
    /// The running workloads: the lowest priority first, then the latest start.
    running: BTreeSet<(i32, Reverse<Seconds>, usize)>,
    /// The ends of runs: the time, and the number of the workload.
    ends: BTreeSet<(Seconds, usize)>,
    /// Arrivals and returns. None: an attempt to place workloads, because a floor ends.
    arrivals: BTreeSet<(Seconds, Option<usize>)>,
    waits: Vec<u32>,
    report: ScheduleReport,
}

/// Schedules all workloads of the past by a policy. `capacity` is in units. None: the most that ran
/// at once. A pool is never smaller than the largest workload.
pub fn schedule(past: &Past, policy: &SimulatedPolicy, unit: Unit, capacity: Option<f64>) -> ScheduleReport {
    let jobs: Vec<Job> = past.workloads().map(|(head, runs)| Job::of(head, runs, unit)).collect();
    let largest = jobs.iter().map(|job| job.units).max().unwrap_or(0);
    let arrivals = jobs.iter().enumerate().map(|(number, job)| (job.submit, Some(number))).collect();
    let mut pool = SimulatedPool {
        policy,
        leaves: policy.leaves(past),
        jobs,
        free: capacity.map_or_else(|| peak(past, unit), thousandths).max(largest),
        freed: Seconds::MIN,
        waiting: BTreeSet::new(),
        running: BTreeSet::new(),
        ends: BTreeSet::new(),
        arrivals,
        waits: Vec::new(),
        report: ScheduleReport::default(),
    };
    while let Some(now) = pool.next() {
        // waiting workloads are placed before those that arrive in the same second
        let freed = pool.freed;
        if pool.end_all(now) {
            pool.place(now, now.saturating_sub(freed) < BACKOFF);
        }
        pool.admit_all(now);
        pool.place(now, false);
    }
    let [wait_p50, wait_p95] = [50, 95].map(|percent| percentile(&pool.waits, percent));
    ScheduleReport { wait_p50, wait_p95, lost: pool.report.lost / 1000.0, ..pool.report }
}

/// Returns the most thousandths of units that ran at once.
pub fn peak(past: &Past, unit: Unit) -> u64 {
    let units = |run: &PastRun| i64::try_from(thousandths(unit.amount(run))).unwrap_or(i64::MAX);
    let mut changes: Vec<(Seconds, i64)> =
        past.runs.iter().flat_map(|run| [(run.start, units(run)), (run.end, -units(run))]).collect();
    changes.sort_unstable();
    let sums = changes.into_iter().scan(0_i64, |sum, (_, change)| {
        *sum = sum.saturating_add(change);
        Some(*sum)
    });
    sums.max().unwrap_or(0).unsigned_abs()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it isn't negative and saturates")]
fn thousandths(amount: f64) -> u64 {
    (amount * 1000.0).round() as u64
}

impl Job {
    /// Returns a workload by its runs, which are placed all together.
    fn of(head: &PastRun, runs: &[PastRun], unit: Unit) -> Self {
        Self {
            submit: head.submit,
            left: runs.iter().map(|run| run.end.saturating_sub(run.start)).max().unwrap_or(0),
            units: runs.iter().map(|run| thousandths(unit.amount(run))).fold(0, u64::saturating_add),
            priority: head.priority,
            queue: head.queue,
            own: runs.iter().filter_map(|run| run.own).min(),
            ..Self::default()
        }
    }
}

impl SimulatedPool<'_> {
    /// Returns the time of the next event. None: nothing more happens.
    fn next(&self) -> Option<Seconds> {
        let end = self.ends.first().map(|(at, _)| *at);
        self.arrivals.first().map(|(at, _)| *at).into_iter().chain(end).min()
    }

    /// Ends all runs that end by now. True if there was one.
    fn end_all(&mut self, now: Seconds) -> bool {
        let ended: Vec<usize> = self.ends.range(..=(now, usize::MAX)).map(|(_, number)| *number).collect();
        for number in &ended {
            self.end(*number, now);
            self.freed = now;
        }
        !ended.is_empty()
    }

    /// Adds all workloads that arrive by now.
    fn admit_all(&mut self, now: Seconds) {
        while let Some((at, number)) = self.arrivals.first().copied()
            && at <= now
        {
            self.arrivals.pop_first();
            if let Some((number, job)) = number.and_then(|number| Some((number, self.jobs.get(number)?))) {
                self.waiting.insert((Reverse(job.priority), now, number));
            }
        }
    }

    /// Frees the room of a workload. Returns the time for which it ran.
    fn stop(&mut self, number: usize, now: Seconds) -> Seconds {
        let Some(job) = self.jobs.get_mut(number) else { return 0 };
        self.ends.remove(&(job.end, number));
        self.running.remove(&(job.priority, Reverse(job.start), number));
        self.free = self.free.saturating_add(job.units);
        now.saturating_sub(job.start)
    }

    /// Ends a run. A workload that still has to run was cut, or comes back after the delay of its
    /// queue's time slices.
    fn end(&mut self, number: usize, now: Seconds) {
        let ran = self.stop(number, now);
        let Some(job) = self.jobs.get_mut(number) else { return };
        job.left = job.left.saturating_sub(ran);
        if job.left <= 0 {
            return;
        }
        match self.leaves.of(job.queue).and_then(|leaf| leaf.slice_delay(job.ends_by?)) {
            // a slice of less than a second would never come to an end
            Some(delay) if ran > 0 => {
                self.report.slices += 1;
                self.arrivals.insert((now.saturating_add(delay.to_signed().as_secs()), Some(number)));
            }
            _ => self.report.cut += 1,
        }
    }

    /// Starts workloads in the order of priorities, as far as there is room, and those of equal
    /// priority in the order of their waits, or by chance. A workload that doesn't fit may preempt
    /// others, until one has found no room.
    fn place(&mut self, now: Seconds, by_chance: bool) {
        let mut first: Vec<_> = self.waiting.iter().take(LOOKED_AT).copied().collect();
        if by_chance {
            first.sort_by_key(|(priority, _, number)| (*priority, chance(*number, now)));
        }
        let mut may_preempt = true;
        for place in first {
            let (.., number) = place;
            let Some(units) = self.jobs.get(number).map(|job| job.units) else { continue };
            if units > self.free && may_preempt {
                self.preempt(number, now);
                may_preempt = units <= self.free;
            }
            if units <= self.free {
                self.waiting.remove(&place);
                self.start(number, now);
            }
        }
    }

    /// Starts a workload, and schedules its end: by itself or by its ceiling.
    fn start(&mut self, number: usize, now: Seconds) {
        let Some(job) = self.jobs.get_mut(number) else { return };
        let clocks = Clocks { created: moment(job.submit), started: Some(moment(now)) };
        let ceilings = self.leaves.of(job.queue).map(|leaf| leaf.ceilings(job.own)).unwrap_or_default();
        let (ceiling, ends_by) = deadline(clocks, ceilings).unzip();
        let end = now.saturating_add(job.left);
        job.end = ceiling.map_or(end, |ceiling| ceiling.as_second().max(now).min(end));
        if !job.has_started {
            self.waits.push(u32::try_from(now.saturating_sub(job.submit)).unwrap_or(u32::MAX));
        }
        (job.start, job.has_started, job.ends_by) = (now, true, ends_by);
        self.free = self.free.saturating_sub(job.units);
        self.running.insert((job.priority, Reverse(now), number));
        self.ends.insert((job.end, number));
    }

    /// Ends runs of lower priorities that no floor protects, if they make enough room. They come
    /// back at once, and start over.
    fn preempt(&mut self, number: usize, now: Seconds) {
        let Some(job) = self.jobs.get(number) else { return };
        let place = |job: &Job| self.leaves.of(job.queue).map(|leaf| leaf.place).unwrap_or_default();
        let claim = PreemptorClaim { priority: job.priority, never_preempts: false };
        let preemptor = Preemptor { place: place(job), claim };
        let tree = &self.policy.trees[Family::Runai];
        let rules = Rules { floors: &self.policy.floors, tree, now: moment(now) };
        let (mut victims, mut room, mut floor) = (Vec::new(), self.free, None);
        let lower = self.running.iter().take_while(|(priority, ..)| *priority < job.priority);
        for (_, Reverse(start), number) in lower.take(LOOKED_AT) {
            if room >= job.units {
                break;
            }
            let Some(other) = self.jobs.get(*number) else { continue };
            let workload = Workload::alone(place(other), Some(moment(*start)));
            let ruling = rules.alone(&preemptor, &Victim::alone(&workload));
            if ruling.rule.is_some() {
                floor = floor.into_iter().chain(ruling.until).min();
                continue;
            }
            room = room.saturating_add(other.units);
            victims.push((*number, other.units));
        }
        if room < job.units {
            // kube-scheduler asks again when a floor ends
            self.arrivals.extend(floor.map(|until| (until.as_second().max(now + 1), None)));
            return;
        }
        for (victim, units) in victims {
            #[allow(clippy::cast_precision_loss, reason = "an estimate")]
            let lost = units as f64 * hours(self.stop(victim, now));
            self.report.preempted += 1;
            self.report.lost += lost;
            self.arrivals.insert((now, Some(victim)));
        }
    }
}

/// Returns a number that looks random, and is the same for the same workload and time.
fn chance(number: usize, now: Seconds) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((number, now))
}
