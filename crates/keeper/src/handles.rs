//! The handles that the controllers of the leader share.

use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tenure_service::clock::ServerClock;

use crate::{
    api::ObjectClient,
    cluster::ClusterState,
    config::Current,
    events::EventQueue,
    extensions::OpenExtensions,
    gate::FreshnessGate,
    ledger::UsageBook,
    limit::{WriteLimit, write_limit},
    messages::Messages,
    metrics::Metrics,
    pod_notices::ToldWorkloads,
    queues::QueueReader,
    status::Statuses,
};

pub struct Handles {
    pub client: Client,
    pub objects: ObjectClient,
    pub queues: QueueReader,
    pub gate: FreshnessGate,
    pub cluster: ClusterState,
    pub statuses: Statuses,
    pub extensions: OpenExtensions,
    pub clock: ServerClock,
    pub config: Current,
    pub metrics: Metrics,
    pub events: EventQueue,
    pub messages: Messages,
    pub usage: UsageBook,
    /// The workloads whose pods are to show the end of their run.
    pub told: ToldWorkloads,
    /// The limit of announcements on owners and pods: they and pauses must not wait for each other.
    pub announcements: WriteLimit,
    /// The longest time that a pod may terminate after its ceiling.
    pub longest_termination: SignedDuration,
    /// The most writes a second.
    pub writes_per_second: NonZeroU32,
    /// The most writes at once.
    pub burst: NonZeroU32,
    /// True to decide everything, and to write only events.
    pub dry_run: bool,
}

impl Handles {
    /// Returns the time by the API server's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns a limit for one controller, so that none holds up another.
    pub fn limit(&self) -> WriteLimit {
        write_limit(self.writes_per_second, self.burst)
    }
}
