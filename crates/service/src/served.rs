//! Follows kinds that a cluster may lack: most clusters have few of them, and some are added later.
//! The keeper follows the kinds of owners like this, and both servers those of `PodGroup`s of other
//! systems.
//!
//! A set of kinds implements [`Kinds`], and [`follow_served`] asks every 30 seconds which of them
//! the API server has. A kind is followed at most once at a time, in a task of its own.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    hash::Hash,
    panic::resume_unwind,
    time::Duration,
};

use futures::future::BoxFuture;
use kube::{
    Client,
    core::ApiResource,
    discovery::{self, ApiGroup},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    call::{ApiError, call},
    log::with_causes,
    readiness::{AwaitedCondition, ProcessReadiness},
};

/// The interval of the checks, and so the longest time for which a new kind stays unseen.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// The wait after a check that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The API groups that the API server has, by name.
pub type ServedApiGroups = HashMap<String, ApiGroup>;

/// A set of kinds that are followed as long as the cluster has them.
pub trait Kinds {
    /// Identifies a kind of this set.
    type Key: Copy + Debug + Eq + Hash + Send + 'static;

    /// The name of these kinds, for log lines.
    const WHAT: &str;

    /// The consequence while they can't be listed, for log lines.
    const MEANWHILE: &str;

    /// The number of failed checks in a row after which readiness no longer waits for these kinds.
    const PATIENCE: u32;

    /// Returns the names of the API groups of these kinds.
    fn groups(&self) -> BTreeSet<String>;

    /// Returns the kinds that the cluster has, each in the version to follow.
    fn served(&self, served: &ServedApiGroups) -> Vec<(Self::Key, ApiResource)>;

    /// True if a kind must still be followed. By default each is.
    fn have(&self, _: Self::Key) -> bool {
        true
    }

    /// Returns when the set of kinds has changed. By default never.
    fn changed(&mut self) -> impl Future<Output = ()> {
        std::future::pending()
    }

    /// Follows a kind until the API server lacks it, or until the `end`. Returns its key.
    fn follow(
        &self,
        key: Self::Key,
        resource: ApiResource,
        readiness: &ProcessReadiness,
        end: CancellationToken,
    ) -> BoxFuture<'static, Self::Key>;
}

/// Follows all kinds that the cluster has. Never returns. `listed` is done after the first check
/// that succeeded, or after [`Kinds::PATIENCE`] failures. Kinds found until then delay readiness
/// until their objects are known; kinds found later don't.
pub async fn follow_served<K: Kinds>(
    client: Client,
    mut kinds: K,
    mut readiness: ProcessReadiness,
    listed: AwaitedCondition,
) {
    let mut followed: HashMap<K::Key, CancellationToken> = HashMap::new();
    let mut follows: JoinSet<K::Key> = JoinSet::new();
    let (mut logged_failure, mut failures) = (None, 0u32);
    let mut next = Box::pin(list_served(&client, kinds.groups(), Duration::ZERO));
    loop {
        let (served, failed) = tokio::select! {
            listed = &mut next => listed,
            Some(ended) = follows.join_next() => {
                // no task is aborted: an error is a panic, which goes on here
                followed.remove(&ended.unwrap_or_else(|error| resume_unwind(error.into_panic())));
                continue;
            }
            () = kinds.changed() => {
                followed.iter().filter(|(key, _)| !kinds.have(**key)).for_each(|(_, end)| end.cancel());
                next.set(list_served(&client, kinds.groups(), Duration::ZERO));
                continue;
            }
        };
        failures = if failed.is_some() { failures.saturating_add(1) } else { 0 };
        let enough = failed.is_none() || failures >= K::PATIENCE;
        for (key, resource) in kinds.served(&served) {
            followed.entry(key).or_insert_with(|| {
                debug!(kind = resource.kind, api_version = resource.api_version, "Following {}", K::WHAT);
                let end = CancellationToken::new();
                follows.spawn(kinds.follow(key, resource, &readiness, end.clone()));
                end
            });
        }
        if enough {
            // kinds that are added later don't delay readiness
            readiness = readiness.without_waiting();
            listed.done();
        }
        let after = if failed.is_some() { AFTER_FAILURE } else { POLL_INTERVAL };
        if let Some(error) = failed.as_ref().filter(|_| logged_failure != failed) {
            let (what, meanwhile) = (K::WHAT, K::MEANWHILE);
            warn!(error, "Failed to ask which kinds of {what} the cluster has: until then, {meanwhile}");
        }
        logged_failure = failed;
        next.set(list_served(&client, kinds.groups(), after));
    }
}

/// Returns, after a wait, the wanted API groups that the API server has, and the error if it didn't
/// answer for all of them.
async fn list_served(
    client: &Client,
    groups: BTreeSet<String>,
    after: Duration,
) -> (ServedApiGroups, Option<String>) {
    tokio::time::sleep(after).await;
    let (mut served, mut failed) = (HashMap::new(), None);
    let all = match call(client.list_api_groups()).await {
        Ok(all) => all,
        Err(error) => return (served, Some(with_causes(&error))),
    };
    let there = all.groups.iter().map(|group| group.name.as_str());
    for group in there.filter(|group| groups.contains(*group)) {
        match call(discovery::group(client, group)).await {
            Ok(found) => _ = served.insert(group.to_owned(), found),
            // the kind has just been removed
            Err(ApiError::NotFound) => {}
            Err(error) => failed = Some(format!("{group}: {}", with_causes(&error))),
        }
    }
    (served, failed)
}
