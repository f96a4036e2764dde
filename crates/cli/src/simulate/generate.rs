//! Made-up runs, to see the command work. They stand for no real cluster.
//!
//! Called by `simulate --generate`. The same seed makes the same jobs.

use jiff::SignedDuration;

use super::past::{Fate, Past, PastRun, Seconds};

/// Jobs with the same distribution.
struct JobClass {
    /// The number of these among a hundred jobs. The shares of a mix add up to 100.
    share: u64,
    queue: &'static str,
    users: u64,
    /// The shortest and the longest run, in seconds. Between them, the logarithm of the length is
    /// uniform: all orders of magnitude are equally common.
    shortest: f64,
    longest: f64,
    gpus: &'static [f32],
    priority: i32,
    /// The number of these jobs among a hundred that are preempted, at a random time of their run.
    preempted: u64,
}

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;

/// Many short tries, longer trainings, batch jobs, and a few that run for days.
#[rustfmt::skip]
const RESEARCH: &[JobClass] = &[
    JobClass { share: 55, queue: "research", users: 14, shortest: MINUTE, longest: 3.0 * HOUR, gpus: &[1.0, 1.0, 2.0], priority: 0, preempted: 6 },
    JobClass { share: 27, queue: "training", users: 9, shortest: HOUR, longest: 60.0 * HOUR, gpus: &[4.0, 8.0, 8.0, 16.0], priority: 50, preempted: 3 },
    JobClass { share: 15, queue: "batch", users: 6, shortest: MINUTE, longest: 20.0 * HOUR, gpus: &[1.0], priority: 0, preempted: 12 },
    JobClass { share: 3, queue: "research", users: 5, shortest: 24.0 * HOUR, longest: 400.0 * HOUR, gpus: &[1.0, 2.0, 8.0], priority: 0, preempted: 0 },
];

/// The number of days that made-up jobs span.
const DAYS: i64 = 30;
/// The first submission: 2026-01-01T00:00:00Z.
const BEGIN: Seconds = 1_767_225_600;
/// The longest wait of a job before its start, in seconds. Waits are uniform below it.
const WAIT: u64 = 5_400;

/// Makes up jobs. The same seed makes the same jobs.
pub fn past(jobs: u32, seed: u64) -> Past {
    let (mut random, mut past) = (Random(seed), Past::default());
    (past.source.kind, past.source.name) = ("made-up jobs,", format!("mix research, seed {seed}"));
    let end_of_all = BEGIN.saturating_add(DAYS * 86_400);
    for number in 0..jobs {
        let mut share = random.below(100).unsigned_abs();
        // the share of a class is its probability in percent
        let class =
            RESEARCH.iter().find(|class| share.checked_sub(class.share).map(|left| share = left).is_none());
        let Some(class) = class else { continue };
        let submit = BEGIN.saturating_add(random.below((DAYS * 86_400).unsigned_abs()));
        let start = submit.saturating_add(random.below(WAIT)).min(end_of_all);
        let is_preempted = random.below(100) < class.preempted.cast_signed();
        let full = class.length(&mut random);
        let ran = if is_preempted { random.below(full.unsigned_abs()) } else { full };
        let end = start.saturating_add(ran);
        let fate = match () {
            () if end > end_of_all => Fate::Running,
            () if is_preempted => Fate::Preempted,
            () => Fate::Ended,
        };
        let place = usize::try_from(random.next() >> 32).unwrap_or(0).checked_rem(class.gpus.len());
        let gpus = place.and_then(|place| class.gpus.get(place)).copied().unwrap_or(1.0);
        let user = past.user(&format!("{}-user-{}", class.queue, random.below(class.users)));
        let queue = past.queue(class.queue, None);
        let (id, end) = (format!("research-{number}").into(), end.min(end_of_all));
        let (cpus, priority) = (gpus * 8.0, class.priority);
        let run =
            PastRun { id, submit, start, end, gpus, cpus, queue, user, priority, fate, ..PastRun::default() };
        past.runs.push(run);
    }
    past.complete();
    past
}

impl JobClass {
    /// Draws the time that a job would run, in seconds. At least 1.
    fn length(&self, random: &mut Random) -> Seconds {
        let seconds = self.shortest * (self.longest / self.shortest).powf(random.fraction());
        SignedDuration::try_from_secs_f64(seconds).map_or(1, |length| length.as_secs().max(1))
    }
}

/// Pseudorandom numbers, by `SplitMix64`. Not for secrets.
struct Random(u64);

impl Random {
    /// Returns the next 64 bits.
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to below a limit. 0 if the limit is 0.
    fn below(&mut self, limit: u64) -> i64 {
        self.next().checked_rem(limit).map_or(0, |number| i64::try_from(number).unwrap_or(0))
    }

    /// Returns a number from 0 to below 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
