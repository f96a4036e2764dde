//! Watches that go on after any failure. The keeper and the webhook follow the cluster by the
//! functions here, each kind with a [`Store`] of its own.
//!
//! A failure removes nothing from a store. Only a deletion that the API server shows, a list that
//! is complete, or the end of the kind removes objects.

mod follower;

use std::{collections::HashSet, fmt::Debug};

use kube::{Api, Resource, core::ObjectMeta, runtime::watcher::Config};
use serde::de::DeserializeOwned;
pub use tenure_types::store::Store;
use tenure_types::{store::ObjectKey, tolerant::Tolerant};
use tracing::error;

use crate::readiness::AwaitedCondition;
use follower::{Follower, Need};

/// The time in seconds after which the API server ends a watch. Then, or five seconds later without
/// an answer, a new watch begins, so a connection that died unnoticed is detected.
pub(crate) const TIMEOUT_SECONDS: u32 = 50;

/// Objects that can be watched.
pub trait WatchedObject: Resource + Clone + DeserializeOwned + Debug + Send + 'static {}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> WatchedObject for K {}

/// Feeds a store with all objects of a kind. Never returns. `synced` is done once the store has
/// them all. A kind that the API server lacks counts as a kind without objects, until the API
/// server has it.
pub async fn follow<K: WatchedObject, S: Store<K>>(
    api: Api<K>,
    config: Config,
    synced: AwaitedCondition,
    store: S,
) {
    Follower::new(api, config, store, synced, Need::Required).follow_for_ever().await;
}

/// Follows a kind, like [`follow`], that this program itself converts for the API server. A list
/// that keeps failing for want of a converter doesn't delay readiness: the API server doesn't ask
/// the program to convert until it is ready, so the program would wait for itself.
pub async fn follow_converted<K: WatchedObject, S: Store<K>>(
    api: Api<K>,
    synced: AwaitedCondition,
    store: S,
) {
    Follower::new(api, Config::default(), store, synced, Need::Converted).follow_for_ever().await;
}

/// Follows a kind until the API server lacks it, and empties the store then. A kind whose lists
/// keep failing doesn't delay readiness.
pub async fn follow_while_served<K: WatchedObject, S: Store<K>>(
    api: Api<K>,
    synced: AwaitedCondition,
    store: S,
) {
    Follower::new(api, Config::default(), store, synced, Need::Optional).follow().await;
}

/// A store for objects that tenants write. An object that can't be decoded is logged, and counts as
/// absent.
#[derive(Debug)]
pub struct TolerantStore<S>(pub S);

impl<K: Resource<DynamicType = ()>, S: Store<K>> Store<Tolerant<K>> for TolerantStore<S> {
    type Key = S::Key;

    fn apply(&mut self, object: Tolerant<K>) {
        match object.0 {
            Ok(object) => self.0.apply(object),
            Err(invalid) => {
                let ObjectMeta { namespace, name, .. } = &invalid.metadata;
                let (namespace, name) = (namespace.as_deref(), name.as_deref().unwrap_or_default());
                error!(kind = %K::plural(&()), namespace, name, error = invalid.error, "Unreadable: counts as absent");
                self.0.delete(&S::Key::of_object(&invalid.metadata));
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
