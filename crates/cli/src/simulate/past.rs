//! Runs as they were: what a trace, a generator, a Prometheus or a cluster knows about the past.
//!
//! The sources push [`PastRun`]s into a [`Past`]; replays, schedules and reports read it. Runs of
//! one workload stand one behind the other. Queues and users are numbers, which keeps a run small.

use std::{collections::BTreeMap, num::NonZeroU32};

use jiff::Timestamp;
use tenure_policy::expiry::Family;

use super::source::SourceReport;

/// A time in whole seconds since 1970, or a number of seconds.
pub type Seconds = i64;

/// The run of a workload, or of one of its pods. Times are in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastRun {
    pub id: Box<str>,
    pub submit: Seconds,
    pub start: Seconds,
    /// For a run that still goes on: the end of the past.
    pub end: Seconds,
    /// The numbers of GPUs and of CPU cores.
    pub gpus: f32,
    pub cpus: f32,
    /// The number of its queue in [`Past::queues`], and of its user in [`Past::users`].
    pub queue: u32,
    pub user: u32,
    pub priority: i32,
    /// The ceiling that the workload itself notes, in seconds. None: no ceiling of its own.
    pub own: Option<NonZeroU32>,
    pub fate: Fate,
    /// True if the run belongs to the same workload as the run before it.
    pub is_joined: bool,
}

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// The run came to its own end.
    #[default]
    Ended,
    /// Another workload took its place.
    Preempted,
    /// The run still goes on at the end of the past.
    Running,
    /// A ceiling ended the run in a simulation. A trace that `simulate` has written may have such
    /// runs.
    Cut,
}

impl PastRun {
    /// Returns the unit-hours that the run used between two times.
    pub fn used(&self, unit: Unit, since: Seconds, until: Seconds) -> f64 {
        hours(self.end.min(until).saturating_sub(self.start.max(since)).max(0)) * unit.amount(self)
    }
}

impl Fate {
    /// Returns the state in a trace.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ENDED",
            Self::Preempted => "PREEMPTED",
            Self::Running => "RUNNING",
            Self::Cut => "CUT",
        }
    }
}

/// A queue that runs name. Family None: any family that has a queue of this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PastQueue {
    pub name: Box<str>,
    pub family: Option<Family>,
}

/// All that is known about the past.
#[derive(Clone, Debug, Default)]
pub struct Past {
    pub runs: Vec<PastRun>,
    /// The queues and the users, each at the place of its number.
    pub queues: Vec<PastQueue>,
    pub users: Vec<Box<str>>,
    queue_numbers: BTreeMap<PastQueue, u32>,
    user_numbers: BTreeMap<Box<str>, u32>,
    pub source: SourceReport,
    /// The number of lines about steps, which are parts of jobs.
    pub steps: usize,
    /// Usage before this time doesn't count, because that of other runs isn't known. Zero: all
    /// usage counts.
    pub known_since: Seconds,
}

/// The unit of reports. A unit-hour is one unit for an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Gpu,
    Core,
    Job,
}

impl Unit {
    /// Returns the name of unit-hours.
    pub const fn hours(self) -> &'static str {
        match self {
            Self::Gpu => "GPU-hours",
            Self::Core => "core-hours",
            Self::Job => "job-hours",
        }
    }

    /// Returns the number of units of a run.
    pub fn amount(self, run: &PastRun) -> f64 {
        match self {
            Self::Gpu => run.gpus.into(),
            Self::Core => run.cpus.into(),
            Self::Job => 1.0,
        }
    }
}

/// Returns the number of a name, which is added if it is new.
fn number<N: Clone + Ord>(name: N, all: &mut Vec<N>, numbers: &mut BTreeMap<N, u32>) -> u32 {
    let next = u32::try_from(all.len()).unwrap_or(u32::MAX);
    *numbers.entry(name).or_insert_with_key(|name| {
        all.push(name.clone());
        next
    })
}

impl Past {
    /// Returns the number of a queue, which is added if it is new.
    pub fn queue(&mut self, name: &str, family: Option<Family>) -> u32 {
        number(PastQueue { name: name.into(), family }, &mut self.queues, &mut self.queue_numbers)
    }

    /// Returns the number of a user, who is added if new.
    pub fn user(&mut self, name: &str) -> u32 {
        number(name.into(), &mut self.users, &mut self.user_numbers)
    }

    /// Ends runs that still go on at the latest time that is known, and notes the first and the last
    /// time of any run. To be called once all runs were added.
    pub fn complete(&mut self) {
        let first = self.runs.iter().map(|run| run.submit.min(run.start)).min();
        let Some((first, last)) = first.zip(self.runs.iter().map(|run| run.end).max()) else { return };
        self.runs.iter_mut().filter(|run| run.fate == Fate::Running).for_each(|run| run.end = last);
        (self.source.since, self.source.until) = (Some(moment(first)), Some(moment(last)));
    }

    /// Returns the name of a run's queue. Empty if it has none.
    pub fn queue_name(&self, run: &PastRun) -> &str {
        self.queues.get(run.queue as usize).map_or("", |queue| &queue.name)
    }

    /// Returns the name of a run's user. Empty if it has none.
    pub fn user_name(&self, run: &PastRun) -> &str {
        self.users.get(run.user as usize).map_or("", |name| name)
    }

    /// Returns the first run and all runs of each workload.
    pub fn workloads(&self) -> impl Iterator<Item = (&PastRun, &[PastRun])> {
        let workloads = self.runs.chunk_by(|_, next| next.is_joined);
        workloads.filter_map(|runs| Some((runs.first()?, runs)))
    }

    /// Returns the unit of reports: GPUs if any run has some, else CPU cores if any run has some,
    /// else jobs.
    pub fn unit(&self) -> Unit {
        let has = |unit: &Unit| self.runs.iter().any(|run| unit.amount(run) > 0.0);
        [Unit::Gpu, Unit::Core].into_iter().find(has).unwrap_or(Unit::Job)
    }
}

/// Returns seconds as hours.
#[allow(clippy::cast_precision_loss, reason = "no run lasts that long")]
pub fn hours(seconds: Seconds) -> f64 {
    seconds as f64 / 3600.0
}

/// Returns a time as a timestamp, within the range of timestamps.
pub fn moment(at: Seconds) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(if at < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
