//! The configuration while the keeper runs.
//!
//! `run` creates [`Current`], which all controllers read, and [`Configure`], which replaces the
//! configuration when the file changes. A decision must use one value of `Current::get` throughout.

use std::sync::Arc;

use jiff::Timestamp;
use tenure_index::{CeilingOptions, RetryAfter};
use tenure_policy::{
    config::Config,
    expiry::{PerFamily, Scope},
};
use tokio::sync::watch;
use tracing::warn;

use crate::cluster::ClusterState;

/// The configuration that is in force. Clones share the configuration, and each clone waits for
/// changes separately.
#[derive(Clone, Debug)]
pub struct Current(watch::Receiver<Arc<Config>>);

impl Current {
    /// Returns the configuration as it is now. Read it once for each decision, because two calls
    /// may return different configurations.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits until the configuration has changed since the last call on this clone.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // the sender is gone, so no change will come
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the settings of an index for a configuration. `scope` and `retry_after` come from flags:
/// the index takes them at its creation alone.
pub fn settings(config: &Config, scope: Scope, retry_after: RetryAfter) -> CeilingOptions {
    CeilingOptions {
        scope,
        table: config.table.clone(),
        notice: config.notice,
        grace_on_change: config.grace_on_change,
        pods_ready: config.pods_ready,
        floors: config.floors.clone(),
        longest_formation: config.longest_formation,
        kueue_queues: config.kueue.queues.clone(),
        retry_after,
        default_queues: config.default_queues.clone(),
        configured_queues: PerFamily::new(|family| config.queues(family)),
    }
}

/// Replaces the configuration in all parts of the keeper.
#[derive(Debug)]
pub struct Configure {
    cluster: ClusterState,
    current: watch::Sender<Arc<Config>>,
}

impl Configure {
    /// Starts with the configuration that the index of `cluster` has already.
    pub fn new(config: Config, cluster: ClusterState) -> (Self, Current) {
        let (sender, receiver) = watch::channel(Arc::new(config));
        (Self { cluster, current: sender }, Current(receiver))
    }

    /// Replaces the configuration at `now`. A run that the new configuration makes overdue gets a
    /// grace, as after a change of its queue. A change of `kueue.queues` takes effect at the next
    /// start, and is logged.
    pub fn apply(&self, config: Config, now: Timestamp) {
        // replaced before the index: a controller that acts on the index's answer must see the same
        // owner table, or a later one
        let config = Arc::new(config);
        if self.current.borrow().kueue.queues != config.kueue.queues {
            warn!("kueue.queues has changed: that counts when the keeper is started again");
        }
        self.current.send_replace(Arc::clone(&config));
        let settings = settings(&config, Scope::default(), RetryAfter::default());
        self.cluster.change(|index| index.change_queues(now, |index| index.configure(settings)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_goes_by_the_new_configuration() {
        let cluster = ClusterState::new(CeilingOptions::default());
        let (configure, mut current) = Configure::new(Config::default(), cluster.clone());
        let mut changes = cluster.changes();
        configure.apply(Config::parse("expiryNotice: 1m").unwrap(), Timestamp::UNIX_EPOCH);
        current.changed().await;
        changes.next().await;
        assert_eq!(current.get().notice.to_string(), "1m");
    }
}
