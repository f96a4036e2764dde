//! Builds the controllers of the leader from their shared handles.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use jiff::SignedDuration;
use kube::Client;
use parking_lot::Mutex;
use tenure_policy::expiry::Scope;
use tenure_service::clock::ServerClock;
use tenure_types::runai::QueueVersion;

use super::lead::Work;
use crate::{
    action::Pauser,
    api::ObjectClient,
    cluster::ClusterState,
    config::Current,
    events::{EventQueue, EventWriter, Events, LeftEvents},
    expiry::ExpiryController,
    extensions::{ExtensionController, OpenExtensions},
    gate::FreshnessGate,
    ledger::{RecordStore, UsageBook, UsageCounter},
    limit::{WriteLimit, write_limit},
    messages::{MessageSender, Messages},
    metrics::Metrics,
    orphans::QueueLabels,
    pod_notices::{PodNotices, ToldWorkloads},
    queues::QueueReader,
    returns::Requeuer,
    slots::FairSlots,
    stamps::Stamps,
    status::{BURST, Reporter, Statuses, WRITES_PER_SECOND, Writer},
    terminations::Terminations,
};

/// The most events of one pause: the limit of events is so many times that of pauses.
const EVENTS_PER_WRITE: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// The handles that the controllers of the leader share.
pub struct Handles {
    pub client: Client,
    pub gate: FreshnessGate,
    pub cluster: ClusterState,
    pub statuses: Statuses,
    pub extensions: OpenExtensions,
    pub clock: ServerClock,
    pub config: Current,
    pub metrics: Metrics,
    /// The most writes a second, and at once.
    pub writes: (NonZeroU32, NonZeroU32),
    pub longest_termination: SignedDuration,
    pub dry_run: bool,
    pub usage: UsageBook,
    /// The namespace and the name of the `ConfigMap` that has the record of usage.
    pub usage_record: (String, String),
}

impl Handles {
    /// Builds the work of the leader, each part of it with limits of its own, so that none holds up another.
    pub fn work(
        self,
        scope: Scope,
        queues: QueueReader,
        version: QueueVersion,
        threadiness: NonZeroU32,
    ) -> Work {
        let messages = Messages::new(self.config.clone(), self.clock.clone(), self.metrics.clone());
        let events = EventQueue::new(self.metrics.clone(), self.cluster.outbox.clone());
        let events = events.with_messages(messages.clone());
        let acts = !self.dry_run;
        let (announcements, told) = (Arc::new(self.limit()), ToldWorkloads::default());
        Work {
            stamps: self.stamps(),
            labels: acts.then(|| self.labels()),
            extensions: acts.then(|| self.extensions(&events, queues.clone())),
            terminations: acts.then(|| self.terminations()),
            returns: acts.then(|| self.returns(&events)),
            pod_notices: acts.then(|| self.pod_notices(&announcements, &told)),
            reporter: acts.then(|| self.reporter(version)),
            usage: acts.then(|| self.usage_counter()),
            events: self.event_writer(&events),
            messages: MessageSender(messages),
            expiry: ExpiryController {
                cluster: self.cluster.clone(),
                clock: self.clock.clone(),
                pauser: self.pauser(scope, queues, events, (announcements, told)),
                gate: self.gate.clone(),
                metrics: self.metrics.clone(),
                slots: self.slots(threadiness),
            },
        }
    }

    /// The slots for pauses. Each namespace leaves a quarter of them to others. Pauses in slots that are taken at the same
    /// time wait for the rate limit together.
    fn slots(&self, threadiness: NonZeroU32) -> FairSlots {
        let waiting = Duration::from_secs(threadiness.get().into()) / self.writes.0.get();
        let slots = threadiness.get() as usize;
        FairSlots::new(slots, slots.saturating_sub(slots / 4), waiting.saturating_mul(2))
    }

    fn objects(&self) -> ObjectClient {
        ObjectClient::new(self.client.clone())
    }

    fn limit(&self) -> WriteLimit {
        write_limit(self.writes.0, self.writes.1)
    }

    fn stamps(&self) -> Stamps {
        let (cluster, clock) = (self.cluster.clone(), self.clock.clone());
        Stamps::new(cluster, clock, self.objects(), self.limit(), self.metrics.clone(), self.dry_run)
    }

    fn reporter(&self, version: QueueVersion) -> Reporter {
        let writer =
            Writer { client: self.client.clone(), version, limit: write_limit(WRITES_PER_SECOND, BURST) };
        Reporter {
            cluster: self.cluster.clone(),
            statuses: self.statuses.clone(),
            clock: self.clock.clone(),
            config: self.config.clone(),
            writer,
            metrics: self.metrics.clone(),
            complaints: Mutex::default(),
        }
    }

    fn pauser(
        &self,
        scope: Scope,
        queues: QueueReader,
        events: EventQueue,
        (announcements, told): (Arc<WriteLimit>, ToldWorkloads),
    ) -> Pauser {
        Pauser {
            cluster: self.cluster.clone(),
            clock: self.clock.clone(),
            objects: self.objects(),
            queues,
            gate: self.gate.clone(),
            limit: self.limit(),
            config: self.config.clone(),
            scope,
            events,
            dry_run: self.dry_run,
            usage: self.usage.clone(),
            announcements,
            told,
            exempt_owners: Mutex::default(),
            extensions: Mutex::default(),
        }
    }

    fn pod_notices(&self, announcements: &Arc<WriteLimit>, told: &ToldWorkloads) -> PodNotices {
        PodNotices {
            gate: self.gate.clone(),
            cluster: self.cluster.clone(),
            clock: self.clock.clone(),
            objects: self.objects(),
            limit: Arc::clone(announcements),
            config: self.config.clone(),
            told: told.clone(),
        }
    }

    fn returns(&self, events: &EventQueue) -> Requeuer {
        Requeuer {
            gate: self.gate.clone(),
            cluster: self.cluster.clone(),
            clock: self.clock.clone(),
            objects: self.objects(),
            limit: self.limit(),
            config: self.config.clone(),
            events: events.clone(),
            metrics: self.metrics.clone(),
        }
    }

    fn event_writer(&self, events: &EventQueue) -> EventWriter {
        let (rate, burst) = self.writes;
        EventWriter {
            events: Events::new(self.client.clone()),
            queue: events.clone(),
            limit: write_limit(rate.saturating_mul(EVENTS_PER_WRITE), burst.saturating_mul(EVENTS_PER_WRITE)),
            clock: self.clock.clone(),
            outbox: self.cluster.outbox.clone(),
            left: LeftEvents::new(self.objects()),
        }
    }

    fn terminations(&self) -> Terminations {
        Terminations {
            gate: self.gate.clone(),
            cluster: self.cluster.clone(),
            clock: self.clock.clone(),
            objects: self.objects(),
            limit: self.limit(),
            metrics: self.metrics.clone(),
            longest: self.longest_termination,
        }
    }

    fn labels(&self) -> QueueLabels {
        QueueLabels {
            gate: self.gate.clone(),
            cluster: self.cluster.clone(),
            objects: self.objects(),
            limit: self.limit(),
        }
    }

    fn usage_counter(&self) -> UsageCounter {
        let (namespace, name) = self.usage_record.clone();
        UsageCounter {
            client: self.client.clone(),
            cluster: self.cluster.clone(),
            clock: self.clock.clone(),
            config: self.config.clone(),
            book: self.usage.clone(),
            store: RecordStore::new(self.client.clone(), namespace, name),
        }
    }

    fn extensions(&self, events: &EventQueue, queues: QueueReader) -> ExtensionController {
        ExtensionController {
            gate: self.gate.clone(),
            queues,
            cluster: self.cluster.clone(),
            open: self.extensions.clone(),
            clock: self.clock.clone(),
            objects: self.objects(),
            limit: self.limit(),
            config: self.config.clone(),
            events: events.clone(),
            metrics: self.metrics.clone(),
        }
    }
}
