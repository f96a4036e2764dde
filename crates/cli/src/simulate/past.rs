//! Runs as they were: what a trace, a generator or a cluster knows of the past.

use std::{collections::HashMap, num::NonZeroU32};

use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::expiry::Family;

/// A time in whole seconds since 1970.
pub type Seconds = i64;

/// The run of a workload, or of one of its pods.
#[derive(Clone, Debug, PartialEq)]
pub struct PastRun {
    pub id: Box<str>,
    pub submit: Seconds,
    pub start: Seconds,
    /// Of a run that goes on: the end of the past.
    pub end: Seconds,
    pub gpus: f32,
    pub cpus: f32,
    /// The number of its queue and of its user.
    pub queue: u32,
    pub user: u32,
    pub priority: i32,
    /// The ceiling that it notes itself, in seconds.
    pub own: Option<NonZeroU32>,
    pub fate: Fate,
    /// True if it belongs to the same workload as the run before it.
    pub is_joined: bool,
}

/// The way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Ended,
    Preempted,
    /// It goes on.
    Running,
    /// A simulated ceiling ended it.
    Cut,
}

impl PastRun {
    /// The time for which it ran between two times.
    pub fn seconds_in(&self, since: Seconds, until: Seconds) -> Seconds {
        self.end.min(until).saturating_sub(self.start.max(since)).max(0)
    }
}

impl Fate {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ENDED",
            Self::Preempted => "PREEMPTED",
            Self::Running => "RUNNING",
            Self::Cut => "CUT",
        }
    }
}

/// A queue that runs name. No family: the one that has a queue of this name.
#[derive(Clone, Debug, PartialEq)]
pub struct PastQueue {
    pub name: Box<str>,
    pub family: Option<Family>,
}

/// All that is known of the past.
#[derive(Clone, Debug, Default)]
pub struct Past {
    pub runs: Vec<PastRun>,
    pub queues: Vec<PastQueue>,
    pub users: Vec<Box<str>>,
    queue_numbers: HashMap<Box<str>, Vec<u32>>,
    user_numbers: HashMap<Box<str>, u32>,
    /// The number of jobs that never ran.
    pub never_started: u64,
    /// Use before this time doesn't count, because that of others isn't known. Zero: all counts.
    pub known_since: Seconds,
    /// The first and the last time that it has.
    pub span: Option<(Seconds, Seconds)>,
}

/// The unit of reports.
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
    pub const fn hours(self) -> &'static str {
        match self {
            Self::Gpu => "GPU-hours",
            Self::Core => "core-hours",
            Self::Job => "job-hours",
        }
    }

    pub fn amount(self, run: &PastRun) -> f64 {
        match self {
            Self::Gpu => run.gpus.into(),
            Self::Core => run.cpus.into(),
            Self::Job => 1.0,
        }
    }
}

impl Past {
    /// The number of a queue, which becomes known.
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

    /// The number of a user, who becomes known.
    pub fn user(&mut self, name: &str) -> u32 {
        if let Some(number) = self.user_numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.users.len()).unwrap_or(u32::MAX);
        self.users.push(name.into());
        self.user_numbers.insert(name.into(), number);
        number
    }

    pub fn push(&mut self, run: PastRun) {
        let times = [run.submit, run.start, run.end];
        let [first, last] = self.span.map_or([Seconds::MAX, Seconds::MIN], |(first, last)| [first, last]);
        self.span = Some((times.into_iter().fold(first, i64::min), times.into_iter().fold(last, i64::max)));
        self.runs.push(run);
    }

    /// Runs that go on last until the latest time that is known.
    pub fn complete(&mut self) {
        let Some((_, last)) = self.span else { return };
        for run in self.runs.iter_mut().filter(|run| run.fate == Fate::Running) {
            run.end = last;
        }
    }

    pub fn at(&self, queue: u32) -> Option<&PastQueue> {
        self.queues.get(usize::try_from(queue).ok()?)
    }

    pub fn queue_name(&self, run: &PastRun) -> &str {
        self.at(run.queue).map_or("", |queue| &queue.name)
    }

    pub fn user_name(&self, run: &PastRun) -> &str {
        usize::try_from(run.user).ok().and_then(|number| self.users.get(number)).map_or("", |name| name)
    }

    /// The runs of each workload.
    pub fn workloads(&self) -> impl Iterator<Item = &[PastRun]> {
        self.runs.chunk_by(|_, next| next.is_joined)
    }

    /// The best unit of which anything is known.
    pub fn unit(&self) -> Unit {
        let has = |unit: Unit| self.runs.iter().any(|run| unit.amount(run) > 0.0);
        [Unit::Gpu, Unit::Core].into_iter().find(|unit| has(*unit)).unwrap_or(Unit::Job)
    }
}

pub fn moment(at: Seconds) -> Timestamp {
    Timestamp::from_second(at).unwrap_or(if at < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
