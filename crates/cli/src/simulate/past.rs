//! Runs as they were: what a trace, a generator, a Prometheus or a cluster knows about the past.
//!
//! The sources push [`PastRun`]s into a [`Past`]; replays, schedules and reports read it. Runs of
//! one workload stand one behind the other. Queues and users are numbers, which keeps a run small.

use std::{collections::HashMap, num::NonZeroU32};

use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::expiry::Family;

/// A time in whole seconds since 1970, or a number of seconds.
pub type Seconds = i64;

/// The run of a workload, or of one of its pods. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The run came to its own end.
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
    /// Returns the number of seconds for which it ran between two times.
    pub fn seconds_in(&self, since: Seconds, until: Seconds) -> Seconds {
        self.end.min(until).saturating_sub(self.start.max(since)).max(0)
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
#[derive(Clone, Debug, PartialEq)]
pub struct PastQueue {
    pub name: Box<str>,
    pub family: Option<Family>,
}

/// All that is known about the past.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The queues and the users, each at the place of its number.
    pub runs: Vec<PastRun>,
    pub queues: Vec<PastQueue>,
    pub users: Vec<Box<str>>,
    queue_numbers: HashMap<Box<str>, Vec<u32>>,
    user_numbers: HashMap<Box<str>, u32>,
    /// The number of jobs and pods that never ran.
    pub never_started: u64,
    /// Usage before this time doesn't count, because that of other runs isn't known. Zero: all
    /// usage counts.
    pub known_since: Seconds,
    /// The first and the last time of any run. None: there are no runs.
    pub span: Option<(Seconds, Seconds)>,
}

/// The unit of reports. A unit-hour is one unit for an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    #[serde(rename = "GPU-hours")]
    Gpu,
    #[serde(rename = "core-hours")]
    Core,
    #[serde(rename = "job-hours")]
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

impl Past {
    /// Returns the number of a queue, which is added if it is new.
    pub fn queue(&mut self, name: &str, family: Option<Family>) -> u32 {
        let known = self.queue_numbers.get(name).into_iter().flatten().copied();
        let is_it = |number: &u32| self.at(*number).is_some_and(|queue| queue.family == family);
        if let Some(number) = known.into_iter().find(is_it) {
            return number;
        }
        let number = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        self.queues.push(PastQueue { name: name.into(), family });
        self.queue_numbers.entry(name.into()).or_default().push(number);
        number
    }

    /// Returns the number of a user, who is added if new.
    pub fn user(&mut self, name: &str) -> u32 {
        if let Some(number) = self.user_numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
        self.users.push(name.into());
        self.user_numbers.insert(name.into(), number);
        number
    }

    /// Adds a run. A run of several pods is added pod by pod, in a row.
    pub fn push(&mut self, run: PastRun) {
        let times = [run.submit, run.start, run.end];
        let [first, last] = self.span.map_or([Seconds::MAX, Seconds::MIN], |(first, last)| [first, last]);
        self.span = Some((times.into_iter().fold(first, i64::min), times.into_iter().fold(last, i64::max)));
        self.runs.push(run);
    }

    /// Ends runs that still go on at the latest time that is known. To be called once all runs were
    /// added.
    pub fn complete(&mut self) {
        let Some((_, last)) = self.span else { return };
        for run in self.runs.iter_mut().filter(|run| run.fate == Fate::Running) {
            run.end = last;
        }
    }

    /// Returns the queue of a number.
    pub fn at(&self, queue: u32) -> Option<&PastQueue> {
        self.queues.get(usize::try_from(queue).ok()?)
    }

    /// Returns the name of a run's queue. Empty if it has none.
    pub fn queue_name(&self, run: &PastRun) -> &str {
        self.at(run.queue).map_or("", |queue| &queue.name)
    }

    /// Returns the name of a run's user. Empty if it has none.
    pub fn user_name(&self, run: &PastRun) -> &str {
        usize::try_from(run.user).ok().and_then(|number| self.users.get(number)).map_or("", |name| name)
    }

    /// Returns the runs of each workload, as one slice each.
    pub fn workloads(&self) -> impl Iterator<Item = &[PastRun]> {
        self.runs.chunk_by(|_, next| next.is_joined)
    }

    /// Returns the unit of reports: GPUs if any run has some, else CPU cores if any run has some,
    /// else jobs.
    pub fn unit(&self) -> Unit {
        let has = |unit: Unit| self.runs.iter().any(|run| unit.amount(run) > 0.0);
        [Unit::Gpu, Unit::Core].into_iter().find(|unit| has(*unit)).unwrap_or(Unit::Job)
    }
}

/// Returns a time as a timestamp, within the range of timestamps.
pub fn moment(at: Seconds) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(if at < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
