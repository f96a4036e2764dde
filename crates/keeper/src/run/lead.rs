//! Runs the controllers while this keeper leads.

use futures::future::OptionFuture;
use tenure_service::leadership::{Election, Leadership};
use tokio_util::sync::CancellationToken;

use crate::{
    events::EventWriter, expiry::ExpiryController, extensions::ExtensionController, ledger::UsageCounter,
    messages::MessageSender, orphans::QueueLabels, pod_notices::PodNotices, returns::Requeuer,
    stamps::Stamps, status::Reporter, terminations::Terminations,
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
