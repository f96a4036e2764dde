//! Builds the controllers, and runs them while this keeper leads.
//!
//! `Args::run` calls `lead` once the watches have listed everything. A dry run has only the
//! controllers in `act`, and the writer of events.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures::{
    future::{FutureExt, LocalBoxFuture},
    stream::{FuturesUnordered, StreamExt},
};
use parking_lot::Mutex;
use tenure_policy::expiry::Scope;
use tenure_service::{
    leadership::Election,
    work::{PROMPT, WorkLimits, WorkQueue},
};
use tenure_types::wait::Wait;
use tokio_util::sync::CancellationToken;

use crate::{
    Args,
    action::Pauser,
    events::EventWriter,
    evidence::EvidenceWriter,
    expiry::ExpiryController,
    extensions::ExtensionController,
    floor_marks::FloorMarks,
    hand_backs::HandBackController,
    handles::Handles,
    history::PausedHistory,
    ledger::{RecordStore, UsageCounter},
    limit::write_limit,
    messages::MessageSender,
    pod_notices::PodNotices,
    returns::Requeuer,
    stamps::Stamps,
    status::{BURST, StatusController, WRITES_PER_SECOND},
    terminations::Terminations,
};

impl Args {
    /// Runs the controllers whenever this keeper leads, until `shutdown`. Holds the Lease until the
    /// calls in flight have ended, and the waiting events are written or given up. Waiting messages
    /// don't delay the release of the Lease.
    pub(super) async fn lead(
        &self,
        scope: Scope,
        handles: &Arc<Handles>,
        election: Election,
        shutdown: &CancellationToken,
    ) {
        let lead = &handles.gate.lead;
        let (acted, done) = (CancellationToken::new(), CancellationToken::new());
        let (events, messages) =
            (EventWriter::new(Arc::clone(handles)), MessageSender(handles.messages.clone()));
        let work = async {
            let write = self.write(scope.exempt_namespaces.clone(), handles, shutdown);
            let act = self.act(scope, handles, shutdown);
            run_all([act.boxed_local(), write.boxed_local()]).await;
            acted.cancel();
        };
        let work = async {
            run_all([work.boxed_local(), events.run(lead, &acted).boxed_local()]).await;
            done.cancel();
        };
        run_all([
            work.boxed_local(),
            messages.run(lead, &acted).boxed_local(),
            election.run(done.clone()).boxed_local(),
        ])
        .await;
    }

    /// Runs the controllers of expiries and of stamps until `shutdown`. A dry run has them, too.
    async fn act(&self, scope: Scope, shared: &Arc<Handles>, shutdown: &CancellationToken) {
        let (lead, handles) = (&shared.gate.lead, || Arc::clone(shared));
        let pauser = Pauser::new(handles(), scope);
        let limits = limits(self.threadiness, shared.writes_per_second);
        let (ends, notices) = (WorkQueue::new(limits), WorkQueue::new(limits));
        let expiry = ExpiryController { handles: handles(), pauser, ends, notices };
        let stamps = Stamps::new(handles());
        run_all([expiry.run(lead, shutdown).boxed_local(), stamps.run(lead, shutdown).boxed_local()]).await;
    }

    /// Runs the controllers that only write, until `shutdown`. Returns at once in a dry run.
    async fn write(
        &self,
        exempt_namespaces: Vec<String>,
        shared: &Arc<Handles>,
        shutdown: &CancellationToken,
    ) {
        if shared.dry_run {
            return;
        }
        let (lead, handles, client) = (&shared.gate.lead, || Arc::clone(shared), shared.client.clone());
        let namespace = self.leader.namespace().unwrap_or_else(|| client.default_namespace().into());
        let store = RecordStore::new(client, namespace, self.usage_config_map.clone());
        let first = self.retry_after.unsigned_abs();
        let evidence = EvidenceWriter {
            handles: handles(),
            limit: shared.limit(),
            retry_full: Wait { first, last: first.saturating_mul(8) },
        };
        let extensions = ExtensionController { handles: handles(), limit: shared.limit() };
        let terminations = Terminations { handles: handles(), limit: shared.limit() };
        let returns = Requeuer { handles: handles(), limit: shared.limit() };
        let hand_backs = HandBackController { handles: handles(), limit: shared.limit() };
        let pod_notices = PodNotices { handles: handles() };
        let floor_marks = FloorMarks { handles: handles(), limit: shared.limit() };
        let history = PausedHistory { handles: handles(), limit: shared.limit(), exempt_namespaces };
        let (version, complaints) = (self.runai_queue_version, Mutex::default());
        let limit = write_limit(WRITES_PER_SECOND, BURST);
        let reporter = StatusController { handles: handles(), version, limit, complaints };
        let usage = UsageCounter { handles: handles(), store };
        run_all([
            evidence.run(lead, shutdown).boxed_local(),
            extensions.run(lead, shutdown).boxed_local(),
            terminations.run(lead, shutdown).boxed_local(),
            returns.run(lead, shutdown).boxed_local(),
            hand_backs.run(lead, shutdown).boxed_local(),
            pod_notices.run(lead, shutdown).boxed_local(),
            floor_marks.run(lead, shutdown).boxed_local(),
            history.run(lead, shutdown).boxed_local(),
            reporter.run(lead, shutdown).boxed_local(),
            usage.run(lead, shutdown).boxed_local(),
        ])
        .await;
    }
}

/// Runs controllers until all have ended. An event polls only the controllers that wait for it;
/// `join!` would poll all of them.
async fn run_all<'c>(controllers: impl IntoIterator<Item = LocalBoxFuture<'c, ()>>) {
    let mut running: FuturesUnordered<_> = controllers.into_iter().collect();
    while running.next().await.is_some() {}
}

/// Returns the limits of the two queues of expiries: ends and notices. One namespace gets at most
/// three quarters of the slots, rounded up, and at least one. A call is slow only after twice the
/// time that `threadiness` writes take by the rate limit, plus `PROMPT`: pauses that begin together
/// wait for that limit together.
fn limits(threadiness: NonZeroU32, writes_per_second: NonZeroU32) -> WorkLimits {
    let waiting = Duration::from_secs(threadiness.get().into()) / writes_per_second.get();
    let at_once = threadiness.get() as usize;
    let per_namespace = at_once.saturating_sub(at_once / 4);
    let prompt = PROMPT.saturating_add(waiting.saturating_mul(2));
    WorkLimits { at_once, per_namespace, prompt, ..WorkLimits::default() }
}
