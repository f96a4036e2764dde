//! Owners that Tenure has paused: their queue, and the time at which they come back by themselves,
//! if they do.
//!
//! The watches of owners and of Kueue's Workloads feed the records. The keeper asks for owners that
//! are due, for metrics, and for Jobs that stay paused. Tenants can write the annotations that this
//! reads, so a record is only a reason to look: the keeper reads an owner again before it resumes
//! it.

mod owner;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
};

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    expiry::Family,
    pause::{self, Return},
};
use tenure_types::podgroup::LONGEST_NAME;

use crate::{
    Uid,
    counted::CountedWorkload,
    kinds::KindHash,
    names::Names,
    owners::{Controller, OwnerRecords},
};

use owner::EarlyReturn;
pub use owner::{DueReturn, Paused, ReturnRank};

/// The number of further owners that one call of `running_again` checks. Each call also checks the
/// owners that the last call found.
const TURN: usize = 500;

/// Owners that bear the record of a pause, by uid.
#[derive(Debug, Default)]
pub struct PausedOwners {
    by_uid: BTreeMap<Uid, Paused>,
    /// The owners that were last seen to run again.
    again: BTreeSet<Uid>,
    /// The last owner that was checked. None: the next check begins with the first owner.
    last_checked: Option<Uid>,
    /// Kueue's Workloads with a record, each after the root owner of its pods.
    workloads: BTreeSet<(Uid, Uid)>,
    /// The order in which the owners are due to come back.
    order: BTreeSet<(Timestamp, Uid)>,
    /// The owners whose next try to get ready has a time, by the queue of their record.
    requeued: BTreeSet<(Family, ArcStr, Uid)>,
    /// The time of the last call of `due`.
    asked: Timestamp,
}

impl PausedOwners {
    /// Adds or updates an owner, with its controller and the root owner of its pods. An owner
    /// without a record of its own is forgotten. A call to come back earlier is kept, as long as
    /// the pause is the same.
    pub fn apply(
        &mut self,
        uid: Uid,
        source: u16,
        metadata: &ObjectMeta,
        (controller, root): (Option<Controller>, Uid),
        names: &mut Names,
    ) {
        let Some(record) = pause::record_on(metadata) else {
            self.delete(uid);
            return;
        };
        let state = pause::requeue_state_on(metadata);
        let text = |text: Option<&str>| text.unwrap_or_default().into();
        // any user can write a record: a longer text names no queue, and would only take memory
        let queue = Some(record.queue.as_str()).filter(|queue| queue.len() <= LONGEST_NAME);
        // an owner that is being deleted doesn't come back, and keeps those below it from coming back
        let goes = metadata.deletion_timestamp.is_some();
        let returns = if goes { Return::Never } else { Return::of(&record, metadata) };
        let known = self.by_uid.get(&uid);
        let same = known.filter(|known| known.at == record.at && known.returns == returns);
        let paused = Paused {
            queue: names.shared(queue.unwrap_or_default()),
            family: record.queue_group.as_deref().and_then(Family::of),
            was_unready: pause::is_for_readiness(&record),
            returns,
            stays: !goes && pause::stays(&record, metadata),
            count: state.count,
            priority: state.priority.unwrap_or(0),
            at: record.at,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            name: text(metadata.name.as_deref()),
            namespace: names.shared(metadata.namespace.as_deref().unwrap_or_default()),
            controller,
            says_whose: record.uid.is_some(),
            root,
            source,
            uid: text(metadata.uid.as_deref()),
            early: same.and_then(|same| same.early.clone()),
        };
        self.delete(uid);
        self.workloads.extend((root != uid).then_some((root, uid)));
        self.order.extend(paused.due().map(|at| (at, uid)));
        self.requeued.extend(paused.requeued_in().map(|(family, queue)| (family, queue, uid)));
        self.by_uid.insert(uid, paused);
    }

    pub fn has(&self, uid: Uid) -> bool {
        self.by_uid.contains_key(&uid)
    }

    pub fn delete(&mut self, uid: Uid) {
        let Some(paused) = self.by_uid.remove(&uid) else { return };
        self.again.remove(&uid);
        if paused.root != uid {
            self.workloads.remove(&(paused.root, uid));
        }
        if let Some(at) = paused.due() {
            self.order.remove(&(at, uid));
        }
        if let Some((family, queue)) = paused.requeued_in() {
            self.requeued.remove(&(family, queue, uid));
        }
    }

    /// Returns the owners that one of the watches has seen.
    pub fn seen_by(&self, source: u16) -> impl Iterator<Item = Uid> {
        self.by_uid.iter().filter(move |(_, paused)| paused.source == source).map(|(uid, _)| *uid)
    }

    /// Returns the owners that were paused themselves, and with no paused owner above. An owner
    /// that was paused below another comes back after that one.
    pub fn topmost(&self, owners: &OwnerRecords) -> impl Iterator<Item = &Paused> {
        self.by_uid.values().filter(move |paused| self.is_topmost(paused, owners))
    }

    fn is_topmost(&self, paused: &Paused, owners: &OwnerRecords) -> bool {
        let above = || owners.ancestors(paused.controller);
        let is_own = pause::is_own(paused.says_whose, || above().any(|above| owners.is_pausable(above)));
        is_own && !above().any(|above| self.has(above.uid))
    }

    /// Returns the owners that stay paused until a person resumes them and whose controller is of
    /// this kind, with the uid of that controller.
    pub fn staying_below(&self, kind: KindHash) -> impl Iterator<Item = (Uid, &Paused)> {
        let staying = self.by_uid.values().filter(|paused| paused.stays);
        staying.filter_map(move |paused| {
            Some((paused.controller.filter(|controller| controller.kind == kind)?.uid, paused))
        })
    }

    /// Returns the topmost owners that run again. Few owners do, so each call checks only a part of
    /// the others.
    pub fn running_again(
        &mut self,
        owners: &OwnerRecords,
        runs_again: impl Fn(&Paused) -> bool,
    ) -> impl Iterator<Item = &Paused> {
        let after = self.last_checked.map_or(Unbounded, Excluded);
        let turn: Vec<Uid> = self.by_uid.range((after, Unbounded)).map(|(uid, _)| *uid).take(TURN).collect();
        self.last_checked = turn.last().copied().filter(|_| turn.len() == TURN);
        let mut again = std::mem::take(&mut self.again);
        again.extend(turn);
        let runs = |paused: &Paused| self.is_topmost(paused, owners) && runs_again(paused);
        again.retain(|uid| self.by_uid.get(uid).is_some_and(runs));
        self.again = again;
        self.again.iter().filter_map(|uid| self.by_uid.get(uid))
    }

    /// Returns the next time after `after` at which a topmost owner is due to come back, or is held up
    /// by its pods no longer.
    pub fn next_return(
        &self,
        owners: &OwnerRecords,
        after: Timestamp,
        is_held: impl Fn(&Paused) -> bool,
    ) -> Option<Timestamp> {
        let topmost = |uid| self.by_uid.get(uid).filter(|paused| self.is_topmost(paused, owners));
        let mut later = self.order.range((Excluded((after, Uid::MAX)), Unbounded));
        let later = later.find(|(_, uid)| topmost(uid).is_some()).map(|(at, _)| *at);
        let reached = self.order.range(..=(after, Uid::MAX)).filter_map(|(_, uid)| topmost(uid));
        let held = reached.filter(|paused| is_held(paused));
        held.map(Paused::held_until).filter(|at| *at > after).chain(later).min()
    }

    /// True if no owner is known to be paused, which is cheap to ask.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// True if a root owner, or a Workload of Kueue's for it in the namespace of its pods, is paused
    /// because its pods didn't get ready.
    pub fn is_unready(&self, namespace: &str, root: Uid) -> bool {
        let workloads = self.workloads.range((root, Uid::MIN)..=(root, Uid::MAX)).map(|(_, uid)| *uid);
        let mut paused = workloads.chain([root]).filter_map(|uid| Some((uid, self.by_uid.get(&uid)?)));
        // a Workload of another namespace may name any owner
        paused.any(|(uid, paused)| paused.was_unready && (uid == root || paused.namespace == namespace))
    }

    /// Returns the owners of a queue that wait for their next try to get ready.
    pub fn waiting<'p>(
        &'p self,
        owners: &'p OwnerRecords,
        (family, queue): (Family, &'p ArcStr),
    ) -> impl Iterator<Item = (Uid, &'p Paused)> {
        let [first, last] = [Uid::MIN, Uid::MAX].map(|uid| (family, queue.clone(), uid));
        let of_queue = self.requeued.range(first..=last).map(|(.., uid)| *uid);
        let of_queue = of_queue.filter_map(move |uid| Some((uid, self.by_uid.get(&uid)?)));
        // any user can write records: to climb the owners of each would take long
        of_queue.filter(move |(_, paused)| paused.waits(self.asked) && self.is_topmost(paused, owners))
    }

    /// Lets an owner come back at `at`, before its own time, since the workload `left` has left.
    pub fn call(&mut self, uid: Uid, at: Timestamp, left: CountedWorkload) {
        self.change(uid, |paused| paused.early = Some(Box::new(EarlyReturn { at, left })));
    }

    /// Returns the owners that are due at `now`, and that `may` come back. An owner that was called
    /// back early waits for its own time after all if the workload that had left `is_back`.
    pub fn due(
        &mut self,
        owners: &OwnerRecords,
        now: Timestamp,
        may: impl Fn(&Paused) -> bool,
        is_back: impl Fn(&CountedWorkload) -> bool,
    ) -> Vec<Paused> {
        self.asked = now;
        let reached = self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, uid)| *uid);
        let (mut due, mut in_vain) = (Vec::new(), Vec::new());
        for uid in reached {
            let paused = self.by_uid.get(&uid).filter(|paused| self.is_topmost(paused, owners));
            let Some(paused) = paused else { continue };
            let is_early = paused.returns.at().is_some_and(|at| at > now);
            if is_early && paused.early.as_ref().is_some_and(|early| is_back(&early.left)) {
                in_vain.push(uid);
            } else if may(paused) {
                due.push(paused.clone());
            }
        }
        for uid in in_vain {
            self.change(uid, |paused| paused.early = None);
        }
        due
    }

    /// Changes an owner, and its place in the order.
    fn change(&mut self, uid: Uid, change: impl FnOnce(&mut Paused)) {
        let Some(paused) = self.by_uid.get_mut(&uid) else { return };
        let before = paused.due();
        change(paused);
        let after = paused.due();
        before.map(|at| self.order.remove(&(at, uid)));
        self.order.extend(after.map(|at| (at, uid)));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::{Value, json};
    use tenure_policy::owner_table::OwnerTable;

    use super::*;
    use crate::kinds::KindHasher;

    #[derive(Default)]
    struct World {
        names: Names,
        kinds: KindHasher,
        owners: OwnerRecords,
        paused: PausedOwners,
    }

    impl World {
        fn new() -> Self {
            let mut world = Self::default();
            world.owners.pausable = world.kinds.pausable(&OwnerTable::default());
            world
        }

        fn apply(&mut self, uid: &str, annotations: &Value, controller: Option<(&str, &str)>) {
            let owner = controller.map(|(kind, uid)| {
                let (api_version, kind, uid) = ("apps/v1".into(), kind.into(), uid.into());
                OwnerReference { api_version, kind, uid, controller: Some(true), ..OwnerReference::default() }
            });
            let metadata =
                json!({"uid": uid, "annotations": annotations, "ownerReferences": owner.as_slice()});
            let metadata = serde_json::from_value(metadata).unwrap();
            let controller = owner.map(|owner| Controller::read(&owner, &self.kinds));
            let uid = Uid::of(uid);
            self.paused.apply(uid, 7, &metadata, (controller, uid), &mut self.names);
        }

        fn retain(&mut self, source: u16, kept: &[&str]) {
            let kept: Vec<Uid> = kept.iter().map(|uid| Uid::of(uid)).collect();
            let gone: Vec<Uid> = self.paused.seen_by(source).filter(|uid| !kept.contains(uid)).collect();
            for uid in gone {
                self.paused.delete(uid);
            }
        }

        /// The queue and family of each, and true if it comes back.
        fn roots(&self) -> Vec<(String, Option<Family>, bool)> {
            let roots = self.paused.topmost(&self.owners);
            let mut roots: Vec<_> = roots
                .map(|paused| (paused.queue.to_string(), paused.family, paused.returns.at().is_some()))
                .collect();
            roots.sort_by(|one, other| one.0.cmp(&other.0));
            roots
        }
    }

    fn record_of(uid: &str, queue: &str) -> String {
        let mut record: Value = serde_json::from_str(&record(queue, None)).unwrap();
        record["uid"] = json!(uid);
        record.to_string()
    }

    /// As versions wrote it that noted no uid.
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
    fn an_owner_that_is_being_deleted_never_comes_back() {
        let mut world = World::new();
        let requeue = r#"{"count": 1, "requeueAt": "2026-01-02T03:14:05Z"}"#;
        let annotations =
            json!({"tenure.dev/paused": record("a", None), "tenure.dev/requeue-state": requeue});
        let deleted =
            |at: Option<&str>| json!({"uid": "1", "annotations": annotations, "deletionTimestamp": at});
        let mut returns = |at: Option<&str>| {
            let metadata = serde_json::from_value(deleted(at)).unwrap();
            world.paused.apply(Uid::of("1"), 7, &metadata, (None, Uid::of("1")), &mut world.names);
            world.roots()
        };
        assert_eq!(returns(None), [("a".to_owned(), None, true)]);
        assert_eq!(returns(Some("2026-01-02T03:05:00Z")), [("a".to_owned(), None, false)]);
    }

    #[test]
    fn a_record_of_an_earlier_version_further_down_counts_as_a_copy() {
        let mut world = World::new();
        let noted = json!({"tenure.dev/paused": record("a", None)});
        world.apply("set", &noted, Some(("Deployment", "deployment")));
        assert_eq!(world.roots().len(), 0);
        world.apply("controlled by what can't be paused", &noted, Some(("Thing", "thing")));
        assert_eq!(world.roots().len(), 1);
    }

    #[test]
    fn a_copy_of_a_record_does_not_count() {
        let mut world = World::new();
        let noted = json!({"tenure.dev/paused": record_of("deployment", "a")});
        world.apply("set", &noted, Some(("Deployment", "deployment")));
        world.apply("thing", &noted, Some(("Thing", "above")));
        assert_eq!(world.roots(), []);
        world.apply("made again from a backup", &noted, None);
        assert_eq!(world.roots().len(), 1);
    }

    #[test]
    fn what_was_paused_below_another_counts_once_that_has_come_back() {
        let mut world = World::new();
        let noted = |uid: &str, queue: &str| json!({"tenure.dev/paused": record_of(uid, queue)});
        let queues = |world: &World| world.roots().into_iter().map(|(of, ..)| of).collect::<Vec<_>>();
        world.apply("above", &noted("above", "a"), None);
        world.apply("below", &noted("below", "b"), Some(("RayJob", "above")));
        assert_eq!(queues(&world), ["a"]);
        world.apply("above", &json!({}), None);
        assert_eq!(queues(&world), ["b"]);
    }

    #[test]
    fn an_owner_waits_in_the_queue_of_its_record_until_its_own_time() {
        let mut world = World::new();
        let noted = |reason: &str, queue: &str| {
            let mut record: Value = serde_json::from_str(&record(queue, None)).unwrap();
            record["reason"] = json!(reason);
            let requeue = r#"{"count": 1, "requeueAt": "2026-01-02T03:14:05Z"}"#;
            json!({"tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": requeue})
        };
        let waiting = |world: &World, queue: &str| {
            let queue = ArcStr::from(queue);
            world
                .paused
                .waiting(&world.owners, (Family::Runai, &queue))
                .map(|(uid, _)| uid)
                .collect::<Vec<_>>()
        };
        let uid = Uid::of("unready");
        world.apply("unready", &noted("PodsReadyTimeout", "a"), None);
        world.apply("overdue", &noted("MaxDurationExceeded", "a"), None);
        assert_eq!((waiting(&world, "a"), waiting(&world, "b")), (vec![uid], vec![]));
        world.apply("unready", &noted("PodsReadyTimeout", "b"), None);
        assert_eq!((waiting(&world, "a"), waiting(&world, "b")), (vec![], vec![uid]));
        world.paused.asked = "2026-01-02T03:14:05Z".parse().unwrap();
        assert_eq!(waiting(&world, "b"), []);
        world.apply("unready", &json!({}), None);
        assert!(world.paused.requeued.is_empty());
    }

    #[test]
    fn no_second_workload_hides_that_an_owner_is_not_ready() {
        let mut paused = PausedOwners::default();
        let mut names = Names::default();
        let mut apply = |paused: &mut PausedOwners, (namespace, uid): (&str, &str), reason: &str| {
            let mut record: Value = serde_json::from_str(&record("a", None)).unwrap();
            record["reason"] = json!(reason);
            let annotations = json!({"tenure.dev/paused": record.to_string()});
            let metadata = serde_json::from_value(
                json!({"namespace": namespace, "uid": uid, "annotations": annotations}),
            )
            .unwrap();
            paused.apply(Uid::of(uid), 7, &metadata, (None, Uid::of("job")), &mut names);
        };
        let (overdue, unready) = ("MaxDurationExceeded", "PodsReadyTimeout");
        apply(&mut paused, ("ns", "forged"), overdue);
        apply(&mut paused, ("elsewhere", "forged there"), unready);
        assert!(!paused.is_unready("ns", Uid::of("job")));
        apply(&mut paused, ("ns", "workload"), unready);
        assert!(paused.is_unready("ns", Uid::of("job")));
        apply(&mut paused, ("ns", "forged later"), overdue);
        assert!(paused.is_unready("ns", Uid::of("job")), "of two Workloads either counts");
        paused.delete(Uid::of("forged later"));
        assert!(paused.is_unready("ns", Uid::of("job")), "the other is still there");
        paused.delete(Uid::of("workload"));
        assert!(!paused.is_unready("ns", Uid::of("job")));
        apply(&mut paused, ("ns", "job"), unready);
        assert!(paused.is_unready("ns", Uid::of("job")), "by its own record, beside the forged Workload's");
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
        world.retain(1, &[]);
        assert_eq!(world.roots().len(), 2, "of another watch");
        world.retain(7, &["kept"]);
        assert_eq!(world.roots().len(), 1);
        world.retain(7, &[]);
        assert_eq!(world.roots(), []);
    }
}
