//! Owners of pods and of each other, as far as a ceiling depends on them.
//!
//! `ClusterModel` feeds the records from the watches of owners, and standings climb them from a pod
//! to its root owner. A tenant may name any object as a controller, even in a circle: each climb is
//! bounded by `MAX_DEPTH`.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    iter,
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    Uid,
    kinds::{ClimbKinds, KindHash, KindHasher},
};

/// More ancestors than any real chain has.
const MAX_DEPTH: usize = 16;

/// A controller, as an owner reference names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Controller {
    pub uid: Uid,
    pub kind: KindHash,
}

impl Controller {
    pub fn read(owner: &OwnerReference, kinds: &KindHasher) -> Self {
        Self { uid: Uid::of(&owner.uid), kind: kinds.of(owner) }
    }
}

/// Pairs of a controller and an object. Tenants choose the references: an order can't be flooded as
/// a hash table can, and a controller of very many objects costs no more than others.
#[derive(Debug, Default)]
pub struct ControlledObjects(BTreeSet<(Uid, Uid)>);

impl ControlledObjects {
    /// Moves an object from one controller to another.
    pub fn replace(&mut self, uid: Uid, from: Option<Uid>, to: Option<Uid>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.0.remove(&(from, uid));
        }
        self.0.extend(to.map(|to| (to, uid)));
    }

    /// Returns the objects of a controller.
    pub fn by(&self, controller: Uid) -> impl Iterator<Item = Uid> {
        self.0.range((controller, Uid::MIN)..=(controller, Uid::MAX)).map(|(_, uid)| *uid)
    }
}

/// The record of an owner. An owner with neither a controller nor a ceiling of its own has no
/// record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The controller that the owner names itself.
    pub controller: Option<Controller>,
    pub own: Option<Box<NotedCeiling>>,
    /// The number of the watch that has seen the owner, or `PODS`.
    pub source: u16,
}

/// A ceiling that an owner notes, and the owner's place and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedCeiling {
    pub ceiling: SignedDuration,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// The source of pods that control other pods: no watch of owners has this number.
const PODS: u16 = u16::MAX;

#[derive(Debug, Default)]
pub struct OwnerRecords {
    by_uid: HashMap<Uid, OwnerRecord>,
    by_controller: ControlledObjects,
    /// The number of owners with a ceiling of their own. While it is zero, chains of owners don't matter.
    with_own: usize,
    /// The kinds that can be paused themselves.
    pub pausable: HashSet<KindHash>,
    /// True if workloads have grants. Then chains of owners matter, too.
    pub with_grants: bool,
    /// The kinds that own objects of one kind alone.
    pub climb: ClimbKinds,
    /// The owners whose controller has changed, with all owners that were above them.
    rerooted: HashSet<Uid>,
}

impl OwnerRecords {
    /// Adds or updates an owner. None for `owner`: it is gone. Returns true if the ceiling of a pod
    /// below may have changed.
    pub fn replace(&mut self, uid: Uid, owner: Option<OwnerRecord>) -> bool {
        let after = owner.filter(|owner| owner.controller.is_some() || owner.own.is_some());
        let said = |owner: Option<&OwnerRecord>| {
            owner.map_or((None, None), |owner| (owner.controller, owner.own.as_ref().map(|own| own.ceiling)))
        };
        let (to, own) = said(after.as_ref());
        let from = self.by_uid.get(&uid).and_then(|owner| owner.controller);
        if from != to {
            let above: Vec<Uid> = self.ancestors(from).map(|above| above.uid).collect();
            self.rerooted.extend(above.into_iter().chain([uid]));
        }
        let before = match after {
            Some(owner) => self.by_uid.insert(uid, owner),
            None => self.by_uid.remove(&uid),
        };
        let own_before = said(before.as_ref()).1;
        self.by_controller.replace(uid, from.map(|of| of.uid), to.map(|of| of.uid));
        self.with_own = self.with_own.saturating_sub(usize::from(own_before.is_some()));
        self.with_own = self.with_own.saturating_add(usize::from(own.is_some()));
        own_before != own || (from != to && (self.with_own > 0 || self.with_grants))
    }

    /// Records a pod that controls other pods, with the pod's own controller. Returns true if the
    /// ceiling of a pod below may have changed.
    pub fn drive(&mut self, pod: Uid, controller: Option<Controller>) -> bool {
        self.replace(pod, Some(OwnerRecord { controller, own: None, source: PODS }))
    }

    /// Takes the owners below which pods may have another root owner than before.
    pub fn take_rerooted(&mut self) -> HashSet<Uid> {
        std::mem::take(&mut self.rerooted)
    }

    /// True if a pod is recorded as the controller of other pods, and has a controller itself.
    pub fn drives(&self, pod: Uid) -> bool {
        self.by_uid.get(&pod).is_some_and(|owner| owner.source == PODS)
    }

    /// Returns the owners that one of the watches has seen.
    pub fn seen_by(&self, source: u16) -> impl Iterator<Item = Uid> {
        self.by_uid.iter().filter(move |(_, owner)| owner.source == source).map(|(uid, _)| *uid)
    }

    /// Returns the owners that an owner controls directly.
    fn controlled_by(&self, uid: Uid) -> impl Iterator<Item = Uid> {
        self.by_controller.by(uid)
    }

    /// Returns an owner with all owners that it controls, directly or through others, down to
    /// `MAX_DEPTH` levels.
    pub fn with_descendants(&self, uid: Uid) -> Vec<Uid> {
        let mut known = HashSet::from([uid]);
        let mut all = vec![uid];
        let mut level = 0..1;
        for _ in 0..MAX_DEPTH {
            let next = all.len();
            let below = all.get(level).unwrap_or_default().iter().flat_map(|of| self.controlled_by(*of));
            let below: Vec<Uid> = below.filter(|uid| known.insert(*uid)).collect();
            if below.is_empty() {
                break;
            }
            all.extend(below);
            level = next..all.len();
        }
        all
    }

    /// Returns the own ceiling of the topmost ancestor that can be paused: a Deployment's
    /// annotations are copied to its `ReplicaSet`s. None: it notes none.
    pub fn own_ceiling(&self, controller: Option<Controller>) -> Option<SignedDuration> {
        if self.with_own == 0 {
            return None;
        }
        self.root_with_own(controller).map(|(_, _, own)| own.ceiling)
    }

    /// Returns the topmost ancestor that can be paused, the number of the watch that has seen it,
    /// and its own ceiling. None: it notes no ceiling, or there is no such ancestor.
    pub fn root_with_own(&self, controller: Option<Controller>) -> Option<(Uid, u16, &NotedCeiling)> {
        let root = self.root(controller)?;
        let owner = self.by_uid.get(&root)?;
        Some((root, owner.source, owner.own.as_deref()?))
    }

    /// True if owners of this kind can be paused. The objects that they control have copies of
    /// their annotations.
    pub fn is_pausable(&self, controller: Controller) -> bool {
        self.pausable.contains(&controller.kind)
    }

    /// Returns the ancestors of an object, the nearest first, as far as they are known. At most
    /// `MAX_DEPTH`.
    pub fn ancestors(&self, controller: Option<Controller>) -> impl Iterator<Item = Controller> {
        let above = |of: &Controller| self.by_uid.get(&of.uid).and_then(|owner| owner.controller);
        iter::successors(controller, above).take(MAX_DEPTH)
    }

    /// Returns the topmost ancestor of a pod that can be paused, as far as the ancestors are known.
    /// The climb ends at an owner whose controller doesn't make objects of the kind below it, as
    /// the climb of a pause does: any user may name any owner.
    pub fn root(&self, controller: Option<Controller>) -> Option<Uid> {
        let (mut root, mut below) = (None, None);
        for Controller { uid, kind } in self.ancestors(controller) {
            if !self.climb.may_own(kind, below) {
                break;
            }
            below = self.climb.below(kind);
            root = self.pausable.contains(&kind).then_some(uid).or(root);
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners of two kinds, of which all that isn't passed through can be paused.
    #[derive(Default)]
    struct World {
        kinds: KindHasher,
        owners: OwnerRecords,
    }

    impl World {
        fn new() -> Self {
            let mut world = Self::default();
            world.owners.pausable = HashSet::from([world.controller("set").kind]);
            world
        }

        fn controller(&self, uid: &str) -> Controller {
            let kind = if uid.starts_with("through") { "Passed" } else { "Paused" };
            let (uid, kind) = (uid.into(), kind.into());
            Controller::read(&OwnerReference { uid, kind, ..OwnerReference::default() }, &self.kinds)
        }

        fn apply(&mut self, uid: &str, above: Option<&str>, own: Option<i64>) -> bool {
            let controller = above.map(|uid| self.controller(uid));
            let own = own.map(|seconds| {
                let ceiling = SignedDuration::from_secs(seconds);
                Box::new(NotedCeiling { ceiling, namespace: "ns".into(), name: uid.into() })
            });
            self.owners.replace(Uid::of(uid), Some(OwnerRecord { controller, own, source: 0 }))
        }

        fn own_of(&self, uid: &str) -> Option<i64> {
            self.owners.own_ceiling(Some(self.controller(uid))).map(|own| own.as_secs())
        }
    }

    #[test]
    fn only_the_topmost_owner_that_can_be_paused_counts() {
        let mut world = World::new();
        assert!(world.apply("set", Some("deployment"), Some(1)));
        assert_eq!(world.own_of("set"), None, "the deployment has none");
        assert!(world.apply("deployment", Some("through"), Some(2)));
        assert_eq!(world.own_of("set"), Some(2));
        world.apply("through", Some("service"), Some(3));
        assert_eq!(world.own_of("set"), None);
        world.apply("service", None, Some(4));
        assert_eq!(world.own_of("set"), Some(4));
    }

    #[test]
    fn what_can_be_paused_may_change() {
        let mut world = World::new();
        world.apply("set", Some("through"), Some(1));
        world.apply("through", None, Some(2));
        assert_eq!(world.own_of("set"), Some(1));
        let both = [world.controller("set").kind, world.controller("through").kind];
        world.owners.pausable = HashSet::from(both);
        assert_eq!(world.own_of("set"), Some(2));
        world.owners.pausable = HashSet::new();
        assert_eq!(world.own_of("set"), None);
    }

    #[test]
    fn owners_that_go_round_in_a_circle_end() {
        let mut world = World::new();
        world.apply("a", Some("b"), Some(1));
        world.apply("b", Some("a"), Some(2));
        assert!(world.own_of("a").is_some());
    }

    #[test]
    fn descendants_are_found_through_all_levels_and_circles() {
        let mut world = World::new();
        for (uid, above) in
            [("set", "deployment"), ("other", "deployment"), ("deployment", "through"), ("x", "y")]
        {
            world.apply(uid, Some(above), None);
        }
        let below = |world: &World, uid: &str| {
            let mut below = world.owners.with_descendants(Uid::of(uid));
            below.sort();
            below
        };
        let mut all = ["set", "other", "deployment", "through"].map(Uid::of);
        all.sort();
        assert_eq!(below(&world, "through"), all);
        world.apply("through", Some("set"), None);
        assert_eq!(below(&world, "set"), all);
        world.owners.replace(Uid::of("deployment"), None);
        assert_eq!(world.owners.with_descendants(Uid::of("through")), [Uid::of("through")]);
    }

    #[test]
    fn nothing_moves_while_no_owner_has_a_ceiling_of_its_own() {
        let mut world = World::new();
        assert!(!world.apply("set", Some("deployment"), None));
        assert!(world.apply("deployment", None, Some(2)));
        assert!(!world.apply("deployment", None, Some(2)));
        assert_eq!(world.owners.seen_by(1).next(), None, "of another watch");
        let seen: HashSet<Uid> = world.owners.seen_by(0).collect();
        assert_eq!(seen, ["set", "deployment"].map(Uid::of).into());
        assert!(world.owners.replace(Uid::of("deployment"), None));
        assert_eq!(world.own_of("set"), None);
        assert_eq!(world.owners.by_uid.len(), 1);
    }
}
