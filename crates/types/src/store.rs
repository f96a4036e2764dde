//! Stores of the objects that lists and watches show.
//!
//! The watches of `tenure_service` call [`Store`]; the indexes of the webhook and the keeper
//! implement it.

use std::{collections::HashSet, hash::Hash};

use kube::core::ObjectMeta;

/// The key of an object in a store.
pub trait ObjectKey: Eq + Hash {
    /// Returns the key of an object.
    fn of_object(metadata: &ObjectMeta) -> Self;
}

/// The name of an object.
impl ObjectKey for String {
    fn of_object(metadata: &ObjectMeta) -> Self {
        metadata.name.clone().unwrap_or_default()
    }
}

/// The namespace and the name of an object.
impl ObjectKey for (String, String) {
    fn of_object(metadata: &ObjectMeta) -> Self {
        (metadata.namespace.clone().unwrap_or_default(), String::of_object(metadata))
    }
}

/// A store for the objects of a kind.
pub trait Store<K> {
    /// The key of an object.
    type Key: ObjectKey;

    /// Called when a list of all objects begins: changes may have been missed before.
    fn begin(&mut self) {}

    /// Adds or replaces an object.
    fn apply(&mut self, object: K);

    /// Removes an object.
    fn delete(&mut self, key: &Self::Key);

    /// Removes all objects but these. Called at the end of a list, with the keys of all its
    /// objects.
    fn retain(&mut self, keys: &HashSet<Self::Key>);
}
