//! The work of the leader.

use tenure_service::leadership::{Election, Leadership};
use tokio_util::sync::CancellationToken;

use crate::{
    events::EventWriter, expiry::ExpiryController, extensions::ExtensionController, ledger::UsageCounter,
    messages::MessageSender, orphans::QueueLabels, pod_notices::PodNotices, returns::Requeuer,
    stamps::Stamps, status::Reporter, terminations::Terminations,
};

/// The work of the leader.
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
        let Self {
            expiry,
            events,
            messages,
            stamps,
            labels,
            extensions,
            terminations,
            returns,
            pod_notices,
            reporter,
            usage,
        } = self;
        let (acted, done) = (CancellationToken::new(), CancellationToken::new());
        let report = async {
            if let Some(reporter) = reporter {
                reporter.run(lead, shutdown).await;
            }
        };
        let label = async {
            if let Some(labels) = labels {
                labels.run(lead, shutdown).await;
            }
        };
        let extend = async {
            if let Some(extensions) = extensions {
                extensions.run(lead, shutdown).await;
            }
        };
        let end = async {
            if let Some(terminations) = terminations {
                terminations.run(lead, shutdown).await;
            }
        };
        let show = async {
            if let Some(pod_notices) = pod_notices {
                pod_notices.run(lead, shutdown).await;
            }
        };
        let bring_back = async {
            if let Some(returns) = returns {
                returns.run(lead, shutdown).await;
            }
        };
        let count = async {
            if let Some(usage) = usage {
                usage.run(lead, shutdown).await;
            }
        };
        let work = async {
            let (expire, stamp) = (expiry.run(lead, shutdown), stamps.run(lead, shutdown));
            tokio::join!(expire, stamp, label, extend, end, bring_back, show, report, count);
            acted.cancel();
        };
        let work = async {
            tokio::join!(work, events.run(lead, &acted));
            done.cancel();
        };
        tokio::join!(work, messages.run(lead, &acted), election.run(done.clone()));
    }
}
