//! Watches that go on after any failure.

use std::{collections::HashSet, fmt::Debug, hash::Hash, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource,
    core::{DeserializeGuard, ObjectMeta},
    runtime::watcher::{self, Error, Event, watcher as watch},
};
use serde::de::DeserializeOwned;
use tracing::{error, info, warn};

use crate::{log::with_causes, readiness::Awaited};

/// The time in seconds after which the API server ends a watch. Then, or five seconds later without an answer, a new
/// one begins: so a connection that died unnoticed is detected.
pub(crate) const TIMEOUT_SECONDS: u32 = 50;

/// The most objects of one page of a list. A page is read as a whole, in two copies. An object may have 1.5 MiB, so this
/// takes 150 MiB at most.
const PAGE_SIZE: u32 = 50;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The number of failures in a row, over some seconds, that count as lasting: a server that has just started forbids
/// everything for a moment.
const FAILURES: u8 = 5;

/// A store for the objects of a watch.
pub trait Store<K> {
    /// The key of an object.
    type Key: Eq + Hash;

    /// Returns the key of an object.
    fn key(metadata: &ObjectMeta) -> Self::Key;

    /// Called when a list of all objects begins: changes may have been missed before it.
    fn begin(&mut self) {}

    /// Adds or replaces an object.
    fn apply(&mut self, object: K);

    /// Removes an object.
    fn delete(&mut self, key: &Self::Key);

    /// Removes all objects but these.
    fn retain(&mut self, keys: &HashSet<Self::Key>);
}

/// Feeds a store with all objects of a kind; never returns. `synced` is done once the store has them all. A kind that
/// the API server doesn't have counts as one without objects, until it has it.
pub async fn follow<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    Follower::new(store, synced).follow_for_ever(&api, &config).await;
}

/// Follows a kind that this program itself converts for the API server. A list that fails for want of a converter
/// doesn't delay readiness: otherwise the program would wait for itself, as it isn't asked to convert until it is
/// ready.
pub async fn follow_converted<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    let mut follower = Follower { converted: true, ..Follower::new(store, synced) };
    follower.follow_for_ever(&api, &config).await;
}

/// Follows a kind as long as the API server has it. A kind that can't be listed doesn't delay readiness.
pub async fn follow_while_served<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    let mut follower = Follower { optional: true, ..Follower::new(store, synced) };
    follower.follow(&api, &config, &mut { FIRST_RETRY }).await;
}

struct Follower<S, Key> {
    store: S,
    synced: Awaited,
    /// True if the program doesn't wait for a kind that can't be listed.
    optional: bool,
    /// True if this program converts the kind.
    converted: bool,
    listed: HashSet<Key>,
    trouble: Trouble,
    failures: u8,
}

/// The problem that was last logged, so that it isn't logged again each second.
#[derive(PartialEq, Eq)]
enum Trouble {
    None,
    Missing,
    Other(String),
}

impl<S, Key: Eq + Hash> Follower<S, Key> {
    fn new(store: S, synced: Awaited) -> Self {
        Self {
            store,
            synced,
            optional: false,
            converted: false,
            listed: HashSet::new(),
            trouble: Trouble::None,
            failures: 0,
        }
    }

    async fn follow_for_ever<K>(&mut self, api: &Api<K>, config: &watcher::Config)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        S: Store<K, Key = Key>,
    {
        let mut wait = FIRST_RETRY;
        loop {
            self.follow(api, config, &mut wait).await;
            tokio::time::sleep(LAST_RETRY).await;
        }
    }

    /// Follows until the API server doesn't have the kind.
    async fn follow<K>(&mut self, api: &Api<K>, config: &watcher::Config, wait: &mut Duration)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        S: Store<K, Key = Key>,
    {
        let config = config.clone().timeout(TIMEOUT_SECONDS).page_size(PAGE_SIZE);
        loop {
            let mut events = watch(api.clone(), config.clone()).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        if self.take(event) {
                            *wait = FIRST_RETRY;
                        }
                    }
                    Err(error) if is_missing(&error) => {
                        self.missing();
                        return;
                    }
                    Err(error) => {
                        self.fail(&error);
                        tokio::time::sleep(*wait).await;
                        *wait = (*wait * 2).min(LAST_RETRY);
                        if is_over(&error) {
                            // the watcher itself would ask for the same version again and again
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Takes an event, and returns true if it shows that the watch works: a list has only begun with its announcement,
    /// and may fail at each page.
    fn take<K: Resource>(&mut self, event: Event<K>) -> bool
    where
        S: Store<K, Key = Key>,
    {
        match event {
            Event::Init => {
                self.listed.clear();
                self.store.begin();
                return false;
            }
            Event::InitApply(object) => {
                self.listed.insert(S::key(object.meta()));
                self.store.apply(object);
                return false;
            }
            Event::InitDone => {
                self.store.retain(&std::mem::take(&mut self.listed));
                self.synced.done();
                self.failures = 0;
            }
            Event::Apply(object) => self.store.apply(object),
            Event::Delete(object) => self.store.delete(&S::key(object.meta())),
        }
        if std::mem::replace(&mut self.trouble, Trouble::None) != Trouble::None {
            info!(kind = self.synced.what(), "Watching again");
        }
        true
    }

    fn missing<K>(&mut self)
    where
        S: Store<K, Key = Key>,
    {
        self.store.retain(&HashSet::new());
        self.synced.done();
        if std::mem::replace(&mut self.trouble, Trouble::Missing) != Trouble::Missing && !self.optional {
            info!(kind = self.synced.what(), "Not installed in the cluster: going on without it until it is");
        }
    }

    fn fail(&mut self, error: &Error) {
        let trouble = Trouble::Other(with_causes(error));
        if self.optional || self.converted && is_unconverted(error) {
            self.failures = self.failures.saturating_add(1);
            if self.failures >= FAILURES {
                self.synced.done();
            }
        }
        if trouble == self.trouble {
            return;
        }
        if let Trouble::Other(error) = &trouble {
            warn!(kind = self.synced.what(), error, "Watch failed: trying again");
        }
        self.trouble = trouble;
    }
}

/// True if the API server doesn't have the kind. Decided by the code alone: for an unknown group, the API server
/// answers in plain text.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// True if conversion failed, for which the API server has no code of its own.
fn is_unconverted(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(kube::Error::Api(status)) if status.message.contains("conversion webhook"))
}

/// True if the watched version is too old, or the kind is gone: a new list decides.
fn is_over(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(kube::Error::Api(status)) if [404, 410].contains(&status.code))
}

/// A store for objects that may not decode, as custom resources may not: such an object is logged and counts as absent.
#[derive(Debug)]
pub struct TolerantStore<S>(pub S);

impl<K: Resource<DynamicType = ()>, S: Store<K>> Store<DeserializeGuard<K>> for TolerantStore<S> {
    type Key = S::Key;

    fn key(metadata: &ObjectMeta) -> S::Key {
        S::key(metadata)
    }

    fn apply(&mut self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => self.0.apply(object),
            Err(invalid) => {
                let name = invalid.metadata.name.as_deref().unwrap_or_default();
                error!(kind = %K::plural(&()), name, error = invalid.error, "Unreadable: counts as absent");
                self.0.delete(&S::key(&invalid.metadata));
            }
        }
    }

    fn delete(&mut self, key: &S::Key) {
        self.0.delete(key);
    }

    fn retain(&mut self, keys: &HashSet<S::Key>) {
        self.0.retain(keys);
    }
}

#[cfg(test)]
mod tests;
