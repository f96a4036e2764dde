//! The ends of runs that owners show.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_types::keys;

use crate::{
    Uid,
    names::Names,
    times::{Milliseconds, milliseconds},
};

/// Returns the end of its run that an object shows. Its user may have written it.
pub fn shown_end(metadata: &ObjectMeta) -> Option<Milliseconds> {
    let text = metadata.annotations.as_ref()?.get(keys::EXPIRES_AT_ANNOTATION)?;
    milliseconds(text.parse().ok()?)
}

/// The ends that owners show, by uid, each with the watch that has seen the owner.
#[derive(Debug, Default)]
pub struct ShownEnds {
    by_owner: HashMap<Uid, (Milliseconds, u16)>,
    /// The owners that show another end than before, with their namespaces.
    changed: HashSet<(ArcStr, Uid)>,
}

impl ShownEnds {
    /// Takes an owner.
    pub fn apply(&mut self, uid: Uid, source: u16, metadata: &ObjectMeta, names: &mut Names) {
        let shown = shown_end(metadata);
        let before = match shown {
            Some(end) => self.by_owner.insert(uid, (end, source)),
            None => self.by_owner.remove(&uid),
        };
        if before.map(|(end, _)| end) != shown {
            let namespace = names.shared(metadata.namespace.as_deref().unwrap_or_default());
            self.changed.insert((namespace, uid));
        }
    }

    pub fn delete(&mut self, uid: Uid) {
        self.by_owner.remove(&uid);
    }

    /// The owners that one of the watches has seen.
    pub fn seen_by(&self, source: u16) -> impl Iterator<Item = Uid> {
        self.by_owner.iter().filter(move |(_, (_, of))| *of == source).map(|(uid, _)| *uid)
    }

    pub fn get(&self, owner: Uid) -> Option<Milliseconds> {
        self.by_owner.get(&owner).map(|(end, _)| *end)
    }

    pub fn take_changed(&mut self) -> HashSet<(ArcStr, Uid)> {
        std::mem::take(&mut self.changed)
    }
}
