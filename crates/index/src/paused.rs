//! Owners that Tenure has paused: in which queue, and whether they come back by themselves.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{expiry::Family, pause};

use crate::{
    Uid,
    names::Names,
    owners::{Controller, Owners},
};

/// An owner that was paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The queue whose ceiling was exceeded.
    pub queue: ArcStr,
    /// The family of that queue. None if the record doesn't say.
    pub family: Option<Family>,
    /// It will be resumed by itself.
    pub requeueing: bool,
    /// Empty if it is of the whole cluster.
    namespace: ArcStr,
    controller: Option<Controller>,
    /// Which of the watches has seen it.
    source: u16,
}

/// Owners that bear the record of a pause, by uid.
#[derive(Debug, Default)]
pub struct PausedOwners(HashMap<Uid, Paused>);

impl PausedOwners {
    /// Takes an owner as the API server has it.
    pub fn apply(
        &mut self,
        uid: Uid,
        source: u16,
        metadata: &ObjectMeta,
        controller: Option<Controller>,
        names: &mut Names,
    ) {
        let Some(record) = pause::record_on(metadata) else {
            self.0.remove(&uid);
            return;
        };
        let paused = Paused {
            queue: names.shared(&record.queue),
            family: record.queue_group.as_deref().and_then(Family::of),
            requeueing: pause::requeue_state_on(metadata).is_some(),
            namespace: names.shared(metadata.namespace.as_deref().unwrap_or_default()),
            controller,
            source,
        };
        self.0.insert(uid, paused);
    }

    pub fn delete(&mut self, uid: Uid) {
        self.0.remove(&uid);
    }

    /// Forgets all that one of the watches has seen but these.
    pub fn retain(&mut self, source: u16, uids: &HashSet<Uid>) {
        self.0.retain(|uid, paused| paused.source != source || uids.contains(uid));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where they are; empty for those of the whole cluster.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|paused| paused.namespace.as_str())
    }

    /// Those that were paused themselves: annotations of a Deployment are copied to its `ReplicaSet`s.
    pub fn roots(&self, owners: &Owners) -> impl Iterator<Item = (Uid, &Paused)> {
        let is_root = |paused: &Paused| owners.root(paused.controller).is_none();
        self.0.iter().filter(move |(_, paused)| is_root(paused)).map(|(uid, paused)| (*uid, paused))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::{Value, json};
    use tenure_policy::owners::OwnerTable;

    use super::*;
    use crate::kinds::Kinds;

    #[derive(Default)]
    struct World {
        names: Names,
        kinds: Kinds,
        owners: Owners,
        paused: PausedOwners,
    }

    impl World {
        fn new() -> Self {
            let mut world = Self::default();
            world.owners.set_pausable(world.kinds.pausable(&OwnerTable::default()));
            world
        }

        fn apply(&mut self, uid: &str, annotations: &Value, controller: Option<(&str, &str)>) {
            let metadata = serde_json::from_value(json!({"uid": uid, "annotations": annotations})).unwrap();
            let controller = controller.map(|(kind, uid)| {
                let (api_version, kind, uid) = ("apps/v1".into(), kind.into(), uid.into());
                let owner = OwnerReference { api_version, kind, uid, ..OwnerReference::default() };
                Controller::read(&owner, &self.kinds)
            });
            self.paused.apply(Uid::of(uid), 7, &metadata, controller, &mut self.names);
        }

        /// Queue, family and whether it comes back, of each.
        fn roots(&self) -> Vec<(String, Option<Family>, bool)> {
            let roots = self.paused.roots(&self.owners);
            let mut roots: Vec<_> = roots
                .map(|(_, paused)| (paused.queue.to_string(), paused.family, paused.requeueing))
                .collect();
            roots.sort_by(|one, other| one.0.cmp(&other.0));
            roots
        }
    }

    fn record(queue: &str, group: Option<&str>) -> String {
        let record = json!({
            "reason": "MaxDurationExceeded", "at": "2026-01-02T03:04:05Z", "queue": queue, "queueGroup": group,
            "field": "spec.replicas", "value": 0, "previousValue": 2,
        });
        record.to_string()
    }

    #[test]
    fn a_record_says_in_which_queue_an_owner_was_paused() {
        let mut world = World::new();
        let requeue = r#"{"count": 1, "requeueAt": "2026-01-02T03:14:05Z"}"#;
        let noted = |group: Option<&str>, queue: &str| json!({"tenure.dev/paused": record(queue, group)});
        world.apply("1", &noted(Some("scheduling.run.ai"), "a"), None);
        world.apply("2", &noted(Some("scheduler.tensorstack.dev"), "b"), None);
        world.apply("3", &noted(Some("example.com"), "c"), None);
        let mut coming_back = noted(None, "d");
        coming_back["tenure.dev/requeue-state"] = json!(requeue);
        world.apply("4", &coming_back, None);
        world.apply("5", &json!({"tenure.dev/paused": "yes"}), None);
        world.apply("6", &json!({"tenure.dev/requeue-state": requeue}), None);
        let expected = [
            ("a", Some(Family::Runai), false),
            ("b", Some(Family::Tensorstack), false),
            ("c", None, false),
            ("d", None, true),
        ];
        assert_eq!(world.roots(), expected.map(|(queue, family, back)| (queue.to_owned(), family, back)));
    }

    #[test]
    fn a_copy_of_a_record_further_down_does_not_count() {
        let mut world = World::new();
        let noted = json!({"tenure.dev/paused": record("a", None)});
        world.apply("deployment", &noted, None);
        world.apply("set", &noted, Some(("Deployment", "deployment")));
        assert_eq!(world.roots().len(), 1);
        world.apply("controlled by what can't be paused", &noted, Some(("Thing", "thing")));
        assert_eq!(world.roots().len(), 2);
    }

    #[test]
    fn who_was_resumed_or_is_gone_is_forgotten() {
        let mut world = World::new();
        let noted = json!({"tenure.dev/paused": record("a", None)});
        for uid in ["resumed", "deleted", "unlisted", "kept"] {
            world.apply(uid, &noted, None);
        }
        world.apply("resumed", &json!({}), None);
        world.paused.delete(Uid::of("deleted"));
        world.paused.retain(1, &HashSet::new());
        assert_eq!(world.roots().len(), 2, "of another watch");
        world.paused.retain(7, &HashSet::from([Uid::of("kept")]));
        assert_eq!(world.roots().len(), 1);
        world.paused.retain(7, &HashSet::new());
        assert!(world.paused.is_empty());
    }
}
