//! The campaign of one candidate: reads and writes the Lease by the steps of [`LeaseView`], and
//! keeps the [`Leadership`] of the process up to date. Its client isn't a client of the leader,
//! since the election must write without the lead.

use std::time::Duration;

use k8s_openapi::{
    api::{coordination::v1::Lease, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::{
    select,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Leadership, Timing, random,
    view::{ElectionStep, LeaseView},
};
use crate::log::with_causes;

/// The timeout of one call, and of a release. A longer one would leave no time for another try.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of an event's reporting instance that the API server takes.
const LONGEST_INSTANCE: usize = 128;

/// Runs the election, and keeps its [`Leadership`] up to date. None: there is no candidate, and no
/// election takes place.
#[derive(Debug)]
pub struct Election(Option<(ElectionCandidate, LeadershipReporter)>);

impl Election {
    /// Creates an election without a candidate, for a process that needs none.
    pub fn none() -> Self {
        Self(None)
    }

    /// Creates the election for a Lease, given by namespace and name, and the leadership that it
    /// keeps. `events`: where each new leader is recorded. None: nowhere.
    pub(super) fn new(
        client: Client,
        (namespace, name): (&str, String),
        identity: String,
        timing: Timing,
        events: Option<Api<Event>>,
    ) -> (Leadership, Self) {
        let leadership = Leadership::not_yet();
        let leases: Api<Lease> = Api::namespaced(client, namespace);
        let (lease, timeout) = (format!("{namespace}/{name}"), TIMEOUT.min(timing.renew_deadline / 2));
        let reporter = LeadershipReporter {
            leases: leases.clone(),
            events,
            name: name.clone(),
            lease: lease.clone(),
            identity: identity.clone(),
            timeout,
            leadership: leadership.clone(),
        };
        let candidate = ElectionCandidate {
            leases,
            lease,
            view: LeaseView::new(name.clone(), identity.clone(), timing.lease_duration),
            name,
            identity,
            timing,
            timeout,
            leadership: leadership.clone(),
            claimed: false,
            leader: None,
            logged_failure: None,
        };
        (leadership, Self(Some((candidate, reporter))))
    }

    /// Campaigns until `stop`. Then a leader releases the lease, and `run` returns within five
    /// seconds.
    ///
    /// The leader's work should have ended before `stop`: another process may lead as soon as the
    /// lease is released.
    pub async fn run(self, stop: CancellationToken) {
        let Some((candidate, reporter)) = self.0 else { return stop.cancelled().await };
        let (leadership, patience) = (candidate.leadership.clone(), candidate.timeout);
        let identity = candidate.identity.clone();
        let too_long = async {
            stop.cancelled().await;
            sleep(patience).await;
        };
        select! {
            () = candidate.campaign(&stop) => {}
            () = reporter.run() => {}
            () = too_long => warn!(identity, "No answer in time: the lease may not be released"),
        }
        leadership.end();
    }
}

/// Reports changes of the leadership, also while the campaign waits for an answer.
#[derive(Debug)]
struct LeadershipReporter {
    leases: Api<Lease>,
    events: Option<Api<Event>>,
    name: String,
    lease: String,
    identity: String,
    timeout: Duration,
    leadership: Leadership,
}

impl LeadershipReporter {
    async fn run(self) {
        let Self { leadership, identity, lease, .. } = &self;
        loop {
            leadership.acquired().await;
            info!(identity, lease, "Leading");
            // people alone read it
            let recorded = timeout(self.timeout, self.record()).await;
            if let Ok(Err(error)) = recorded {
                debug!(identity, lease, error = with_causes(&error), "No event of the new leader");
            }
            leadership.lost().await;
            if leadership.ran_out() {
                warn!(identity, "No longer leading: could not renew the lease in time");
            }
        }
    }

    /// Records an event on the Lease, with the reason and the words of client-go.
    async fn record(&self) -> kube::Result<()> {
        let Self { leases, events, name, identity, .. } = self;
        let Some(events) = events else { return Ok(()) };
        let lease = leases.get(name).await?;
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{name}-")),
                namespace: lease.namespace(),
                ..ObjectMeta::default()
            },
            action: Some("Leading".into()),
            event_time: Some(MicroTime(Timestamp::now())),
            note: Some(format!("{identity} became leader")),
            reason: Some("LeaderElection".into()),
            regarding: Some(lease.object_ref(&())),
            reporting_controller: Some("tenure.dev/election".into()),
            reporting_instance: Some(identity.chars().take(LONGEST_INSTANCE).collect()),
            type_: Some("Normal".into()),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await.map(drop)
    }
}

/// This process as a candidate for one Lease.
#[derive(Debug)]
struct ElectionCandidate {
    leases: Api<Lease>,
    name: String,
    /// Namespace and name of the lease, for people.
    lease: String,
    identity: String,
    timing: Timing,
    /// The timeout of one call: at most half of the renew deadline.
    timeout: Duration,
    leadership: Leadership,
    view: LeaseView,
    /// True if the lease may have this identity, even if no answer said so.
    claimed: bool,
    /// The leader that was last logged, so that each leader is logged once.
    leader: Option<String>,
    /// The error that was last logged. None: the last attempt succeeded.
    logged_failure: Option<String>,
}

/// The cause of a failed call.
struct LeaseFailure {
    /// True if the lease isn't the one that the call was based on: another candidate was faster, or
    /// the lease was deleted.
    outdated: bool,
    reason: String,
}

impl ElectionCandidate {
    /// Makes an attempt every retry period until `stop`, and resigns.
    async fn campaign(mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let wait = match self.attempt().await {
                Ok(wait) => {
                    if self.logged_failure.take().is_some() {
                        info!(identity = self.identity, "The lease is within reach again");
                    }
                    wait
                }
                Err(failure) => {
                    self.warn_once(failure);
                    jittered(self.timing.retry_period, random())
                }
            };
            select! {
                () = sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
        self.resign().await;
    }

    /// Takes, keeps, or leaves the lease. Returns the time until the next attempt. A leader writes
    /// without reading first.
    async fn attempt(&mut self) -> Result<Duration, LeaseFailure> {
        if !self.view.is_ours() {
            self.read().await?;
        }
        match self.act().await {
            Err(failure) if failure.outdated => {
                self.read().await?;
                self.act().await
            }
            result => result,
        }
    }

    /// Takes the next step by what is known of the lease. Returns the time until the next attempt.
    async fn act(&mut self) -> Result<Duration, LeaseFailure> {
        let now = Instant::now();
        let retry = jittered(self.timing.retry_period, random());
        match self.view.step(now, Timestamp::now()) {
            ElectionStep::Claim(lease) => {
                self.claimed = true;
                let written = self.write(&lease).await?;
                self.view.observe(Some(written), Instant::now());
                self.leader = None;
                // the write was sent after `now`, so the term ends early rather than late
                let has_failed = self.logged_failure.is_some();
                self.leadership.renew(now, now + self.timing.renew_deadline, has_failed);
                Ok(retry)
            }
            ElectionStep::StandBy { leader, until } => {
                self.claimed = false;
                if self.leader.as_ref() != Some(&leader) {
                    info!(identity = self.identity, lease = self.lease, leader, "Standing by");
                    self.leader = Some(leader);
                }
                Ok(retry.min(until.saturating_duration_since(now)))
            }
        }
    }

    /// Ends the leadership, and releases the lease if it may have this identity. The identity in
    /// the lease is unknown if an answer is missing.
    async fn resign(mut self) {
        let led = self.leadership.end();
        while self.claimed {
            match self.release().await {
                Ok(()) => self.claimed = false,
                Err(failure) if failure.outdated => {}
                Err(failure) => {
                    self.warn_once(failure);
                    return;
                }
            }
        }
        if led {
            info!(identity = self.identity, "No longer leading: released the lease");
        }
    }

    /// Releases the lease if it has this identity now.
    async fn release(&mut self) -> Result<(), LeaseFailure> {
        self.read().await?;
        match self.view.release(Timestamp::now()) {
            Some(lease) => self.write(&lease).await.map(drop),
            None => Ok(()),
        }
    }

    /// Reads the lease. Ends the leadership at once if the lease has another identity.
    async fn read(&mut self) -> Result<(), LeaseFailure> {
        let lease = self.call(self.leases.get_opt(&self.name)).await?;
        self.view.observe(lease, Instant::now());
        if self.view.is_not_ours() && self.leadership.end() {
            warn!(identity = self.identity, "No longer leading: another process holds the lease");
        }
        Ok(())
    }

    /// Creates or replaces the lease. The API server refuses the write unless the lease is still
    /// the one that it is based on.
    async fn write(&self, lease: &Lease) -> Result<Lease, LeaseFailure> {
        let how = PostParams::default();
        match lease.metadata.resource_version {
            None => self.call(self.leases.create(&how, lease)).await,
            Some(_) => self.call(self.leases.replace(&self.name, &how, lease)).await,
        }
    }

    /// Returns the result of a call within the timeout.
    async fn call<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseFailure> {
        let late =
            || LeaseFailure { outdated: false, reason: format!("no answer within {:?}", self.timeout) };
        timeout(self.timeout, call).await.map_err(|_| late())?.map_err(LeaseFailure::from)
    }

    /// Logs a failure, unless it is the one that was last logged. No failure is final: an API
    /// server that has just started answers even 403.
    fn warn_once(&mut self, failure: LeaseFailure) {
        let LeaseFailure { reason, .. } = failure;
        if self.logged_failure.as_ref() != Some(&reason) {
            let (lease, identity) = (&self.lease, &self.identity);
            warn!(lease, identity, error = reason, "The lease is out of reach: trying again");
            self.logged_failure = Some(reason);
        }
    }
}

impl From<kube::Error> for LeaseFailure {
    fn from(error: kube::Error) -> Self {
        let outdated = matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409));
        Self { outdated, reason: with_causes(&error) }
    }
}

/// Returns 80 to 100 % of a period, by a random number, so that candidates don't act at the same
/// time.
fn jittered(period: Duration, random: u64) -> Duration {
    let part = u32::try_from(random % 21).unwrap_or_default();
    period * (100 - part) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_never_longer_and_little_shorter_than_said() {
        let period = Duration::from_secs(10);
        let jittered: Vec<Duration> = (0..1000).map(|random| jittered(period, random)).collect();
        assert_eq!(jittered.iter().max(), Some(&period));
        assert_eq!(jittered.iter().min(), Some(&Duration::from_secs(8)));
    }
}
