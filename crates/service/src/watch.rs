//! Watches that go on after any failure.

mod follower;

use std::{collections::HashSet, fmt::Debug};

use kube::{Api, Resource, core::ObjectMeta, runtime::watcher};
use serde::de::DeserializeOwned;
pub use tenure_types::store::Store;
use tenure_types::{store::ObjectKey, tolerant::Tolerant};
use tracing::error;

use crate::readiness::Awaited;
use follower::{Follower, Need};

/// The time in seconds after which the API server ends a watch. Then, or five seconds later without an answer, a new
/// one begins: so a connection that died unnoticed is detected.
pub(crate) const TIMEOUT_SECONDS: u32 = 50;

/// Feeds a store with all objects of a kind; never returns. `synced` is done once the store has them all. A kind that
/// the API server doesn't have counts as one without objects, until it has it.
pub async fn follow<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    Follower::new(api, config, store, synced, Need::Required).follow_for_ever().await;
}

/// Follows a kind that this program itself converts for the API server. A list that fails for want of a converter
/// doesn't delay readiness: otherwise the program would wait for itself, as it isn't asked to convert until it is
/// ready.
pub async fn follow_converted<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    Follower::new(api, config, store, synced, Need::Converted).follow_for_ever().await;
}

/// Follows a kind as long as the API server has it. A kind that can't be listed doesn't delay readiness.
pub async fn follow_while_served<K, S>(api: Api<K>, config: watcher::Config, synced: Awaited, store: S)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    S: Store<K>,
{
    Follower::new(api, config, store, synced, Need::Optional).follow().await;
}

/// A store for objects that tenants write. One that can't be decoded is logged, and counts as absent.
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
