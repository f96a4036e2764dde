//! The configuration of the index, and of the keeper when the file changes.

use tenure_index::{CeilingOptions, RetryAfter};
use tenure_policy::{
    config::Config,
    expiry::{PerFamily, Scope},
};
use tracing::warn;

use crate::{cluster::ClusterState, handles::Handles};

/// Creates the state of a cluster without objects, by the configuration and the flags at the start.
pub fn cluster_state(config: &Config, scope: Scope, retry_after: RetryAfter) -> ClusterState {
    let cluster = ClusterState::new(settings(config));
    cluster.with(|index| {
        index.set_flags(scope, retry_after);
        index.set_kueue_queues(config.kueue_queues.clone());
    });
    cluster
}

/// Returns the settings of an index for a configuration.
fn settings(config: &Config) -> CeilingOptions {
    CeilingOptions {
        table: config.table.clone(),
        notice: config.notice,
        grace_on_change: config.grace_on_change,
        pods_ready: config.pods_ready,
        floors: config.floors.clone(),
        longest_formation: config.longest_formation,
        default_queues: config.default_queues.clone(),
        configured_queues: PerFamily::new(|family| config.queues(family)),
    }
}

/// Replaces the configuration in all parts of the keeper. A run that the new configuration makes
/// overdue gets a grace, as after a change of its queue. A change of `kueue.queues` takes effect at
/// the next start, and is logged.
pub fn configure(handles: &Handles, config: Config) {
    if handles.config.get().kueue_queues != config.kueue_queues {
        warn!("kueue.queues has changed: restart the keeper to apply the change");
    }
    let settings = settings(&config);
    // replaced before the index: a controller that acts on the index's answer must see the same
    // owner table, or a later one
    handles.config.set(config);
    let now = handles.now();
    handles.cluster.change(|index| index.change_queues(now, |index| index.configure(settings)));
}

#[cfg(test)]
mod tests {
    use tenure_service::clock::ServerClock;

    use super::*;
    use crate::testing::{Server, handles};

    #[tokio::test]
    async fn everybody_goes_by_the_new_configuration() {
        let handles = handles(Server::default().client(), ServerClock::default(), Config::default());
        let (mut config, mut changes) = (handles.config.clone(), handles.cluster.changes());
        configure(&handles, Config::parse("expiryNotice: 1m").unwrap());
        config.changed().await;
        changes.next().await;
        assert_eq!(config.get().notice.to_string(), "1m");
    }
}
