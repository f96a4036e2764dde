//! Watches that go on whatever happens.

use std::{collections::HashSet, fmt::Debug, hash::Hash, time::Duration};

use futures::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::watcher::{self, Error, Event, watcher as watch},
};
use serde::de::DeserializeOwned;
use tracing::{error, info, warn};

use crate::{log::with_causes, readiness::Awaited};

/// For how long the API server keeps one watch. When it is over, or five seconds later without a word, a new one
/// begins: so a connection that died unnoticed is found out.
pub(crate) const TIMEOUT_SECONDS: u32 = 50;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// What takes the objects of a watch.
pub trait Store<K> {
    /// What tells objects apart.
    type Key: Eq + Hash;

    /// The key of an object.
    fn key(object: &K) -> Self::Key;

    /// The object is there, as it is now.
    fn apply(&mut self, object: K);

    /// The object is gone.
    fn delete(&mut self, key: &Self::Key);

    /// Nothing is there but these.
    fn retain(&mut self, keys: &HashSet<Self::Key>);
}

/// Feeds a store with all objects of a kind, for ever. `synced` is done once the store has them all. A kind that
/// the API server doesn't have counts as one without objects, until it has it.
pub async fn follow<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    let mut follower = Follower { store, synced, listed: HashSet::new(), trouble: Trouble::None };
    let config = config.timeout(TIMEOUT_SECONDS);
    let mut retry = FIRST_RETRY;
    loop {
        let mut events = watch(api.clone(), config.clone()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if follower.take(event) {
                        retry = FIRST_RETRY;
                    }
                }
                Err(error) => {
                    follower.fail::<K>(&error);
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(LAST_RETRY);
                    if is_expired(&error) {
                        // the watcher itself would ask for the same version again, for ever
                        break;
                    }
                }
            }
        }
    }
}

struct Follower<S, Key> {
    store: S,
    synced: Awaited,
    listed: HashSet<Key>,
    trouble: Trouble,
}

/// What was last said in the log, so that it isn't said again each second.
#[derive(PartialEq, Eq)]
enum Trouble {
    None,
    Missing,
    Other(String),
}

impl<S, Key: Eq + Hash> Follower<S, Key> {
    /// Takes an event, and says whether it shows that the watch works: a list has only begun with its announcement,
    /// and may fail at each page.
    fn take<K: Resource<DynamicType = ()>>(&mut self, event: Event<K>) -> bool
    where
        S: Store<K, Key = Key>,
    {
        match event {
            Event::Init => {
                self.listed.clear();
                return false;
            }
            Event::InitApply(object) => {
                self.listed.insert(S::key(&object));
                self.store.apply(object);
                return false;
            }
            Event::InitDone => {
                self.store.retain(&std::mem::take(&mut self.listed));
                self.synced.done();
            }
            Event::Apply(object) => self.store.apply(object),
            Event::Delete(object) => self.store.delete(&S::key(&object)),
        }
        if std::mem::replace(&mut self.trouble, Trouble::None) != Trouble::None {
            info!(kind = %plural::<K>(), "Watching again");
        }
        true
    }

    fn fail<K: Resource<DynamicType = ()>>(&mut self, error: &Error)
    where
        S: Store<K, Key = Key>,
    {
        let trouble = if is_missing(error) { Trouble::Missing } else { Trouble::Other(with_causes(error)) };
        if trouble == self.trouble {
            return;
        }
        match &trouble {
            Trouble::Missing => {
                self.store.retain(&HashSet::new());
                self.synced.done();
                warn!(kind = %plural::<K>(), "Not installed in the cluster: waiting for it");
            }
            Trouble::Other(error) => warn!(kind = %plural::<K>(), error, "Watch failed: trying again"),
            Trouble::None => {}
        }
        self.trouble = trouble;
    }
}

/// By the code alone: for a group that it doesn't know, the API server answers in plain text.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

fn is_expired(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

fn plural<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

/// A store for objects that may not decode, as those of a custom resource may not: an object that doesn't is
/// told in the log and counts as absent.
#[derive(Debug)]
pub struct Guarded<S>(pub S);

impl<K: Resource<DynamicType = ()>, S: Store<K, Key = String>> Store<DeserializeGuard<K>> for Guarded<S> {
    type Key = String;

    fn key(object: &DeserializeGuard<K>) -> String {
        object.name_any()
    }

    fn apply(&mut self, object: DeserializeGuard<K>) {
        match object.0 {
            Ok(object) => self.0.apply(object),
            Err(invalid) => {
                let name = invalid.metadata.name.unwrap_or_default();
                error!(kind = %plural::<K>(), name, error = invalid.error, "Unreadable: counts as absent");
                self.0.delete(&name);
            }
        }
    }

    fn delete(&mut self, key: &String) {
        self.0.delete(key);
    }

    fn retain(&mut self, keys: &HashSet<String>) {
        self.0.retain(keys);
    }
}
