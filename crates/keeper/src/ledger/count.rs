//! Counts what runs have used while this keeper leads, as long as the configuration has `usage`.
//!
//! `Args::write` runs the [`UsageCounter`]. Each session goes on from the record in the
//! `ConfigMap`, and writes the record when it ends.

use std::{sync::Arc, time::Duration};

use tenure_index::{SeenRun, Uid, UsageLedger};
use tenure_policy::{
    config::Config,
    usage::{PodRun, UsageResources},
};
use tenure_service::{config::Current, leadership::Leadership, log::with_causes};
use tenure_types::{projection::Pod, room::PodWithRoom};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{RecordStore, record::RecordError, session::Session};
use crate::handles::Handles;

/// The time until another session begins after one has failed.
const RETRY_RECORD: Duration = Duration::from_secs(5);

/// The controller of usage.
pub struct UsageCounter {
    pub handles: Arc<Handles>,
    /// The record in the `ConfigMap`.
    pub store: RecordStore,
}

impl UsageCounter {
    /// Works whenever this keeper leads, until `shutdown`.
    pub async fn run(&self, lead: &Leadership, shutdown: &CancellationToken) {
        lead.work(shutdown, async || Box::pin(self.work(shutdown)).await, || self.handles.usage.close())
            .await;
    }

    /// Runs one session after the other until `shutdown`. Waits while the configuration has no
    /// `usage`.
    async fn work(&self, shutdown: &CancellationToken) {
        let mut config = self.handles.config.clone();
        while !shutdown.is_cancelled() {
            let resources = config.get().usage.clone();
            let result = if let Some(resources) = &resources {
                self.session(resources, &mut config, shutdown).await
            } else {
                shutdown.run_until_cancelled(reconfigured(None, &mut config)).await;
                Ok(())
            };
            self.handles.usage.close();
            if let Err(failure) = result {
                error!(error = with_causes(&failure), "Can't count usage: will try again");
                shutdown.run_until_cancelled(sleep(RETRY_RECORD)).await;
            }
        }
    }

    /// Counts these resources until the configuration names others or this process ends. Fails if
    /// the record can't be read, or if another writer has changed it.
    async fn session(
        &self,
        resources: &UsageResources,
        config: &mut Current<Config>,
        shutdown: &CancellationToken,
    ) -> Result<(), RecordError> {
        let (record, version) = self.store.read().await?;
        let ledger = match record {
            Some(record) => UsageLedger::restore(record, resources.clone()),
            None => UsageLedger::new(resources.clone(), self.handles.now()),
        };
        let mut session = Session::new(self, version, ledger.changes());
        self.handles.usage.open(ledger);
        tokio::select! {
            failure = session.count() => return failure.map(|never| match never {}),
            () = reconfigured(Some(resources), config) => {}
            () = shutdown.cancelled() => {}
        }
        session.save().await
    }

    /// Splits a pod into the parts that the index and the ledger read, without its claims of
    /// devices. None: the pod has no uid.
    pub(super) fn seen(pod: PodWithRoom) -> Option<(Pod, SeenRun)> {
        let (pod, requests, stopped) = pod.split_run();
        let seen = SeenRun {
            uid: Uid::of(pod.metadata.uid.as_deref()?),
            version: pod.metadata.resource_version.clone().unwrap_or_default(),
            run: PodRun::of(&pod, stopped),
            requests,
            claims: Vec::new(),
        };
        Some((pod, seen))
    }
}

/// Returns when the configuration names other resources, or none.
async fn reconfigured(resources: Option<&UsageResources>, config: &mut Current<Config>) {
    while config.get().usage.as_ref() == resources {
        config.changed().await;
    }
}
