//! The controllers that run while this keeper leads.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures::future::OptionFuture;
use parking_lot::Mutex;
use tenure_policy::expiry::Scope;
use tenure_service::leadership::{Election, Leadership};
use tokio_util::sync::CancellationToken;

use crate::{
    Args,
    action::Pauser,
    events::EventWriter,
    expiry::ExpiryController,
    extensions::ExtensionController,
    handles::Handles,
    ledger::{RecordStore, UsageCounter},
    limit::write_limit,
    messages::MessageSender,
    orphans::QueueLabels,
    pod_notices::PodNotices,
    returns::Requeuer,
    slots::FairSlots,
    stamps::Stamps,
    status::{BURST, Reporter, WRITES_PER_SECOND, Writer},
    terminations::Terminations,
};

/// The controllers that run while this keeper leads.
pub struct Work {
    pub expiry: ExpiryController,
    pub events: EventWriter,
    pub messages: MessageSender,
    pub stamps: Stamps,
    /// None in a dry run.
    pub labels: Option<QueueLabels>,
    /// None in a dry run.
    pub extensions: Option<ExtensionController>,
    /// None in a dry run.
    pub terminations: Option<Terminations>,
    /// None in a dry run.
    pub returns: Option<Requeuer>,
    /// None in a dry run.
    pub pod_notices: Option<PodNotices>,
    /// None in a dry run.
    pub reporter: Option<Reporter>,
    /// None in a dry run.
    pub usage: Option<UsageCounter>,
}

impl Work {
    /// Builds the controllers, each with limits of its own, so that none holds up another.
    pub fn new(args: &Args, scope: Scope, shared: &Arc<Handles>) -> Self {
        let (acts, version) = (!shared.dry_run, args.runai_queue_version);
        let (handles, limit) = (|| Arc::clone(shared), || shared.limit());
        let (exempt_owners, extensions) = Default::default();
        let client = || shared.client.clone();
        let namespace =
            || args.leader.namespace().unwrap_or_else(|| shared.client.default_namespace().into());
        let store = || RecordStore::new(client(), namespace(), args.usage_config_map.clone());
        let writer = || Writer { client: client(), version, limit: write_limit(WRITES_PER_SECOND, BURST) };
        Self {
            expiry: ExpiryController {
                handles: handles(),
                pauser: Pauser { handles: handles(), limit: limit(), scope, exempt_owners, extensions },
                slots: slots(args.threadiness, shared.writes_per_second),
            },
            events: EventWriter::new(handles()),
            messages: MessageSender(shared.messages.clone()),
            stamps: Stamps::new(handles()),
            labels: acts.then(|| QueueLabels { handles: handles(), limit: limit() }),
            extensions: acts.then(|| ExtensionController {
                handles: handles(),
                open: shared.extensions.clone(),
                limit: limit(),
            }),
            terminations: acts.then(|| Terminations {
                handles: handles(),
                limit: limit(),
                longest: args.max_termination_grace,
            }),
            returns: acts.then(|| Requeuer { handles: handles(), limit: limit() }),
            pod_notices: acts.then(|| PodNotices { handles: handles() }),
            reporter: acts.then(|| Reporter {
                handles: handles(),
                statuses: shared.statuses.clone(),
                writer: writer(),
                complaints: Mutex::default(),
            }),
            usage: acts.then(|| UsageCounter { handles: handles(), store: store() }),
        }
    }

    /// Keeps the lease until all work that was begun is done, but for messages.
    pub async fn lead(&self, lead: &Leadership, election: Election, shutdown: &CancellationToken) {
        let (acted, done) = (CancellationToken::new(), CancellationToken::new());
        let work = async {
            Box::pin(self.act(lead, shutdown)).await;
            acted.cancel();
        };
        let work = async {
            tokio::join!(work, self.events.run(lead, &acted));
            done.cancel();
        };
        tokio::join!(work, self.messages.run(lead, &acted), election.run(done.clone()));
    }

    /// Does all but events and messages, until `shutdown`.
    async fn act(&self, lead: &Leadership, shutdown: &CancellationToken) {
        let Self {
            expiry,
            events: _,
            messages: _,
            stamps,
            labels,
            extensions,
            terminations,
            returns,
            pod_notices,
            reporter,
            usage,
        } = self;
        tokio::join!(
            expiry.run(lead, shutdown),
            stamps.run(lead, shutdown),
            OptionFuture::from(labels.as_ref().map(|part| part.run(lead, shutdown))),
            OptionFuture::from(extensions.as_ref().map(|part| part.run(lead, shutdown))),
            OptionFuture::from(terminations.as_ref().map(|part| part.run(lead, shutdown))),
            OptionFuture::from(returns.as_ref().map(|part| part.run(lead, shutdown))),
            OptionFuture::from(pod_notices.as_ref().map(|part| part.run(lead, shutdown))),
            OptionFuture::from(reporter.as_ref().map(|part| part.run(lead, shutdown))),
            OptionFuture::from(usage.as_ref().map(|part| part.run(lead, shutdown))),
        );
    }
}

/// The slots for pauses. Each namespace leaves a quarter of them to others. Pauses in slots that are taken at the same
/// time wait for the rate limit together.
fn slots(threadiness: NonZeroU32, writes_per_second: NonZeroU32) -> FairSlots {
    let waiting = Duration::from_secs(threadiness.get().into()) / writes_per_second.get();
    let slots = threadiness.get() as usize;
    FairSlots::new(slots, slots.saturating_sub(slots / 4), waiting.saturating_mul(2))
}
