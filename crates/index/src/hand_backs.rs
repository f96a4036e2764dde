//! Owners whose fields Tenure has set back and not yet handed back to their field managers. The
//! watches of owners feed this, and the keeper's hand-back task asks for all of them.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::pause;

use crate::{ObjectFacts, Uid};

/// The hand-back that an owner is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedHandBack {
    /// The owner's uid, as the API server writes it.
    pub uid: Box<str>,
    /// The number of the watch that has seen the owner.
    pub source: u16,
}

/// Owners that bear a note of fields to be handed back, by uid.
#[derive(Debug, Default)]
pub struct HandBacks(HashMap<Uid, ObjectFacts<OwedHandBack>>);

impl HandBacks {
    /// Adds an owner, or removes an owner that bears no note of its own, since controllers copy
    /// annotations to other objects, or that is being deleted.
    pub fn apply(&mut self, uid: Uid, source: u16, metadata: &ObjectMeta) {
        if metadata.deletion_timestamp.is_some() || !pause::is_owed(metadata) {
            self.delete(uid);
            return;
        }
        let text = |text: Option<&str>| text.unwrap_or_default().into();
        let (as_written, name) = (text(metadata.uid.as_deref()), text(metadata.name.as_deref()));
        let namespace = metadata.namespace.as_deref().unwrap_or_default().into();
        let facts = OwedHandBack { uid: as_written, source };
        self.0.insert(uid, ObjectFacts { uid, namespace, name, facts });
    }

    pub fn has(&self, uid: Uid) -> bool {
        self.0.contains_key(&uid)
    }

    pub fn delete(&mut self, uid: Uid) {
        self.0.remove(&uid);
    }

    /// Returns the owners that one of the watches has seen.
    pub fn seen_by(&self, source: u16) -> impl Iterator<Item = Uid> {
        self.0.iter().filter(move |(_, owed)| owed.facts.source == source).map(|(uid, _)| *uid)
    }

    pub fn all(&self) -> impl Iterator<Item = &ObjectFacts<OwedHandBack>> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;
    use crate::CeilingIndex;

    fn bearing(uid: &str, of: Option<&str>) -> ObjectMeta {
        let note = of.map(|uid| json!({"uid": uid, "fields": {"spec.replicas": []}}).to_string());
        let metadata = json!({
            "name": uid, "namespace": "ns", "uid": uid, "annotations": {"tenure.dev/hand-back": note.as_deref()},
        });
        let mut metadata: ObjectMeta = serde_json::from_value(metadata).unwrap_or_default();
        if note.is_none() {
            metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        }
        metadata
    }

    fn owed(index: &CeilingIndex) -> Vec<String> {
        let mut uids: Vec<String> =
            index.hand_backs().into_iter().map(|owed| owed.facts.uid.into()).collect();
        uids.sort();
        uids
    }

    #[test]
    fn an_owner_is_owed_a_hand_back_while_it_bears_a_note_of_its_own() {
        let mut index = CeilingIndex::default();
        index.apply_owner(1, &bearing("d", Some("d")));
        index.apply_owner(2, &bearing("its ReplicaSet", Some("d")));
        assert!(index.apply_workload(3, &bearing("w", Some("w"))), "readers are to look");
        assert!(!index.apply_workload(3, &bearing("other", None)));
        assert_eq!(owed(&index), ["d", "w"]);
        assert!(index.apply_workload(3, &bearing("w", None)), "it was owed one");
        index.apply_owner(1, &bearing("d", None));
        assert_eq!(owed(&index), [""; 0]);
    }

    #[test]
    fn owners_that_are_gone_are_owed_nothing() {
        let mut index = CeilingIndex::default();
        for uid in ["deleted", "unlisted", "kept"] {
            index.apply_workload(3, &bearing(uid, Some(uid)));
        }
        index.delete_owner(Uid::of("deleted"));
        index.retain_owners(3, &HashSet::from([Uid::of("kept")]));
        assert_eq!(owed(&index), ["kept"]);
    }
}
