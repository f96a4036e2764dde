//! Failures of a leader while pauses are pending: the next leader, the pauses that are lost, and
//! those that are done twice.
//!
//! Two keepers are on etcd and an API server alone, with the lease's default durations. The writers
//! and times of all writes are from the API server's own audit log.

mod batch;
mod journal;
mod pair;
mod table;
mod way;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use batch::{Batch, OWNERS, Operator};
use journal::Journal;
use pair::Pair;

pub use journal::Late;
pub use table::print;

use crate::{DEADLINE, scale::random};

/// The writes per second of a keeper: few, so that pauses are pending for several seconds.
const PER_SECOND: u32 = 5;
/// The burst of writes: large enough that several are on the way when the first is done.
const BURST: u32 = 10;

/// The time for which a leader is stopped.
const STOPPED: Duration = Duration::from_secs(30);

/// The latency of the connection that will be cut, so that pauses are on the way.
const LATENCY: Duration = Duration::from_millis(300);

/// The longest time from the first pause to a failure.
const LATEST_FAILURE: Duration = Duration::from_secs(1);

/// The way in which a leader fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderFailure {
    /// SIGKILL. The keeper is started again when another leads.
    Kill,
    /// SIGSTOP, for 30 seconds.
    Stop,
    /// A cut from the API server, until another keeper leads.
    Cut,
    /// SIGTERM: the control.
    End,
}

impl LeaderFailure {
    /// Returns the longest time until another keeper must lead. For the control, which releases the
    /// Lease, it is shorter than a lease.
    pub const fn limit(self) -> Duration {
        match self {
            Self::Kill | Self::Stop | Self::Cut => Duration::from_secs(20),
            Self::End => Duration::from_secs(10),
        }
    }

    /// Returns the deviations from the expected result of a failure.
    fn complaints(self, takeover: Duration, late: Late) -> Vec<String> {
        let mut complaints = Vec::new();
        if takeover > self.limit() {
            complaints.push(format!("another leads only after {takeover:?}"));
        }
        // no lease can prevent that what is on the way arrives when the way is mended
        if late.through > 0 && self != Self::Cut {
            complaints.push(format!("{} writes of who no longer led came through", late.through));
        }
        complaints
    }
}

/// The result of one failure.
#[derive(Debug)]
pub struct Round {
    /// The way in which the leader failed.
    pub failure: LeaderFailure,
    /// The number of owners that were overdue at the failure.
    pub pending: usize,
    /// The time from the failure until the other keeper leads.
    pub takeover: Duration,
    /// The time from the failure to the next leader's first pause.
    pub first_pause: Duration,
    /// Writes of the struck keeper after another had taken the lease.
    pub late: Late,
    /// Deviations from the expected result. There should be none.
    pub complaints: Vec<String>,
}

/// Strikes the leader again and again, each time with pauses pending, on a cluster of its own.
/// `name` is for the cluster, and `seed` decides the times of the failures.
///
/// # Errors
/// If no keeper leads in time, or not all owners are paused in the end. Other deviations are in the
/// rounds.
pub async fn play(name: &str, failures: &[LeaderFailure], seed: u64) -> Result<Vec<Round>> {
    let latency = if failures.contains(&LeaderFailure::Cut) { LATENCY } else { Duration::ZERO };
    let mut arena = Box::pin(Arena::new(name, latency)).await?;
    let mut rounds = Vec::new();
    for (number, failure) in (0..).zip(failures) {
        let delay = delay(seed, number);
        let round = Box::pin(arena.round(&format!("{name}-{number}"), *failure, delay)).await;
        let round = round.with_context(|| format!("{name}, round {number}: {failure:?} after {delay:?}"))?;
        println!("{name} {number}: {failure:?}, {}", table::in_brief(&round));
        rounds.push(round);
    }
    Ok(rounds)
}

/// Returns the time from the first pause to the failure. In every second round it is zero: then more
/// pauses are on the way.
fn delay(seed: u64, number: u64) -> Duration {
    if number.is_multiple_of(2) {
        Duration::ZERO
    } else {
        LATEST_FAILURE * percent(random(seed, number)) / 100
    }
}

/// Returns a number below 100.
fn percent(random: u64) -> u32 {
    u32::try_from(random % 100).unwrap_or_default()
}

/// The cluster of all rounds.
struct Arena {
    operator: Operator,
    journal: Journal,
    pair: Pair,
}

impl Arena {
    async fn new(name: &str, latency: Duration) -> Result<Self> {
        let flags = [format!("--writes-per-second={PER_SECOND}"), format!("--burst={BURST}")];
        let flags = flags.each_ref().map(String::as_str);
        let pair = Box::pin(Pair::start(name, &flags, latency)).await?;
        let operator = Operator::start(pair.world().cluster.client()?);
        Ok(Self { operator, journal: Journal::of(&pair.world().cluster), pair })
    }

    /// Plays a round with owners of its own, from their creation until all are paused.
    async fn round(&mut self, name: &str, failure: LeaderFailure, delay: Duration) -> Result<Round> {
        let batch = Batch::create(self.pair.world(), name).await?;
        let leader = self.pair.leader().await?;
        batch.exceed_ceiling(self.pair.world()).await;
        self.operator.await_pauses(name, 1).await?;
        sleep(delay).await;

        let pending = OWNERS.saturating_sub(self.operator.paused(name));
        ensure!(pending > 2 * BURST as usize, "only {pending} are pending");
        let (began, struck) = (Instant::now(), Timestamp::now());
        self.pair.inject(failure, leader).await?;
        let next = Pair::other(leader);
        let takeover = self.pair.await_leader(next).await? - began;
        let recovery = self.pair.recover(failure, leader, began + STOPPED);
        let ((), ()) = tokio::try_join!(recovery, self.operator.await_pauses(name, OWNERS))?;

        let mut complaints = batch.complaints().await?;
        complaints.extend(self.pair.complaints(next).await?);
        // after the events, so that the log has all writes
        self.journal.read_on()?;
        let first_pause = self.journal.first_patch(name, struck, |by| self.pair.is(next, by));
        let first_pause = first_pause.context("the next leader has paused nothing")?;
        complaints.extend(self.journal.twice_patched(name));
        let late = self.journal.late(name);
        complaints.extend(failure.complaints(takeover, late));
        Ok(Round { failure, pending, takeover, first_pause, late, complaints })
    }
}

/// Waits for `wait`, for at most [`DEADLINE`]. `what` is for the error.
async fn in_time<T>(what: &str, wait: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(DEADLINE, wait).await.with_context(|| format!("waited {DEADLINE:?} in vain for {what}"))?
}
