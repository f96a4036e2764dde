//! The handles that the controllers of the leader share.
//!
//! `Args::run` builds one [`Handles`], and every controller holds it in an `Arc`.

use std::num::NonZeroU32;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tenure_policy::config::Config;
use tenure_service::{clock::ServerClock, config::Current};
use tenure_types::projection::Pod;

use crate::{
    api::ObjectClient,
    cluster::ClusterState,
    events::EventQueue,
    extensions::OpenExtensions,
    gate::FreshnessGate,
    ledger::UsageBook,
    limit::{WriteLimit, write_limit},
    messages::Messages,
    metrics::Metrics,
    pod_notices::NotifiedWorkloads,
    queues::QueueReader,
    status::Statuses,
};

/// The state of the keeper, and its ways to read and write the cluster.
pub struct Handles {
    /// The client of the API server, which writes only while this keeper leads.
    pub client: Client,
    /// Reads and writes objects of any kind.
    pub objects: ObjectClient,
    /// Compares queues with their watches right before an act.
    pub queues: QueueReader,
    /// Open while the watches are fresh enough to act on their data.
    pub gate: FreshnessGate,
    /// The index of the cluster, and the acts whose events may be missing.
    pub cluster: ClusterState,
    /// The statuses of queues, as the watch shows them.
    pub statuses: Statuses,
    /// The Extensions that may need a decision, an event or an end.
    pub extensions: OpenExtensions,
    /// The API server's clock.
    pub clock: ServerClock,
    /// The configuration in force.
    pub config: Current<Config>,
    /// The metrics that the keeper counts.
    pub metrics: Metrics,
    /// The events that wait to be written.
    pub events: EventQueue,
    /// The messages that wait to be sent.
    pub messages: Messages,
    /// The ledger of what runs have used.
    pub usage: UsageBook,
    /// The workloads whose pods are to show the end of their run.
    pub notified_workloads: NotifiedWorkloads,
    /// The write limit of notices on owners and pods: notices and pauses must not wait for each
    /// other.
    pub announcements: WriteLimit,
    /// The longest time that a pod may terminate after its ceiling.
    pub longest_termination: SignedDuration,
    /// The average rate of each write limit, in writes a second.
    pub writes_per_second: NonZeroU32,
    /// The burst of each write limit, in writes.
    pub burst: NonZeroU32,
    /// True to decide everything, and to write only events.
    pub dry_run: bool,
}

impl Handles {
    /// Returns the time by the API server's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the longest grace period, in seconds, if the pod's own is longer. None: the pod's
    /// own applies.
    pub fn shortened_grace(&self, pod: &Pod) -> Option<u32> {
        let longest = self.longest_termination.as_secs();
        let own = pod.spec.termination_grace_period_seconds?;
        u32::try_from(longest).ok().filter(|_| own > longest)
    }

    /// Creates a write limit for one controller, so that no controller delays another.
    pub fn limit(&self) -> WriteLimit {
        write_limit(self.writes_per_second, self.burst)
    }
}
