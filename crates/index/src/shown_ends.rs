//! The ends of runs that owners show, in annotation `tenure.dev/expires-at`. The watches of owners
//! feed this. The keeper compares these ends with the computed ones, and the plugin reads them for
//! its lists.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_types::keys;

use crate::{
    Uid,
    names::Names,
    times::{Milliseconds, milliseconds},
};

/// Returns the end of its run that an object shows, in milliseconds since the epoch. None: the
/// object shows no end that can be read. A user may have written it.
pub fn shown_end(metadata: &ObjectMeta) -> Option<Milliseconds> {
    let text = metadata.annotations.as_ref()?.get(keys::EXPIRES_AT_ANNOTATION)?;
    milliseconds(text.parse().ok()?)
}

/// The ends that owners show, by uid.
#[derive(Debug, Default)]
pub struct ShownEnds {
    by_owner: HashMap<Uid, OwnerEnd>,
    /// The owners that show another end than at the last call of `take_changed`, with their
    /// namespaces. Empty: cluster-scoped.
    changed: HashSet<(ArcStr, Uid)>,
}

/// The end that an owner shows.
#[derive(Debug)]
struct OwnerEnd {
    end: Milliseconds,
    /// The namespace of the owner.
    namespace: ArcStr,
    /// The watch that has seen the owner.
    source: u16,
}

impl ShownEnds {
    /// Adds or updates the end that an owner shows.
    pub fn apply(&mut self, uid: Uid, source: u16, metadata: &ObjectMeta, names: &mut Names) {
        let shown = shown_end(metadata);
        let namespace = names.shared(metadata.namespace.as_deref().unwrap_or_default());
        let before = match shown {
            Some(end) => {
                let namespace = namespace.clone();
                self.by_owner.insert(uid, OwnerEnd { end, namespace, source })
            }
            None => self.by_owner.remove(&uid),
        };
        if before.map(|before| before.end) != shown {
            self.changed.insert((namespace, uid));
        }
    }

    pub fn delete(&mut self, uid: Uid) {
        self.by_owner.remove(&uid);
    }

    /// Returns the owners with an end that one of the watches has seen.
    pub fn seen_by(&self, source: u16) -> impl Iterator<Item = Uid> {
        self.by_owner.iter().filter(move |(_, shown)| shown.source == source).map(|(uid, _)| *uid)
    }

    pub fn get(&self, owner: Uid) -> Option<Milliseconds> {
        self.by_owner.get(&owner).map(|shown| shown.end)
    }

    /// Returns the end that an owner shows to pods of a namespace. None for an owner of another
    /// namespace: any user may name that owner as the controller of a pod.
    pub fn get_in(&self, namespace: &str, owner: Uid) -> Option<Milliseconds> {
        let is_here = |shown: &&OwnerEnd| shown.namespace.is_empty() || shown.namespace == namespace;
        self.by_owner.get(&owner).filter(is_here).map(|shown| shown.end)
    }

    /// Takes the owners that show another end than at the last call.
    pub fn take_changed(&mut self) -> HashSet<(ArcStr, Uid)> {
        std::mem::take(&mut self.changed)
    }
}
