//! Where pods are to be found.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;

use super::Placed;
use crate::{Uid, uid::UidMap};

/// Pods by all that they are asked for by.
#[derive(Debug, Default)]
pub struct Places {
    /// The node of each pod that is on one.
    nodes: UidMap<ArcStr>,
    /// Those on each node, by uid. They are next to each other, since a question is about all pods of a node: to
    /// gather them from anywhere in memory took most of the time of an answer.
    on: HashMap<ArcStr, Vec<Resident>>,
    /// Those that are on none.
    homeless: UidMap<Box<Placed>>,
    /// Those that wait for room on a node.
    nominated_to: HashMap<ArcStr, HashSet<Uid>>,
    /// By namespace and name.
    named: HashMap<ArcStr, HashMap<ArcStr, Uid>>,
}

/// A pod that is on a node.
#[derive(Debug)]
pub struct Resident {
    pub uid: Uid,
    pub pod: Placed,
}

impl Places {
    /// Takes a pod, or what has become of it.
    pub fn put(&mut self, uid: Uid, pod: Placed) {
        if let Some(known) = self.get_mut(uid).filter(|known| known.is_where(&pod)) {
            *known = pod;
            return;
        }
        self.remove(uid);
        if let Some(node) = &pod.nominated {
            self.nominated_to.entry(node.clone()).or_default().insert(uid);
        }
        self.named.entry(pod.namespace.clone()).or_default().insert(pod.name.clone(), uid);
        let Some(node) = pod.node.clone() else {
            self.homeless.insert(uid, Box::new(pod));
            return;
        };
        self.nodes.insert(uid, node.clone());
        let here = self.on.entry(node).or_default();
        if let Err(place) = find(here, uid) {
            here.insert(place, Resident { uid, pod });
        }
    }

    /// Forgets a pod.
    pub fn remove(&mut self, uid: Uid) {
        let Some(pod) = self.take(uid) else { return };
        if let Some(node) = &pod.nominated
            && let Some(waiting) = self.nominated_to.get_mut(node)
        {
            waiting.remove(&uid);
            if waiting.is_empty() {
                self.nominated_to.remove(node);
            }
        }
        let Some(here) = self.named.get_mut(&pod.namespace) else { return };
        // another pod may have its name by now
        if here.get(&pod.name) == Some(&uid) {
            here.remove(&pod.name);
        }
        if here.is_empty() {
            self.named.remove(&pod.namespace);
        }
    }

    fn take(&mut self, uid: Uid) -> Option<Placed> {
        let Some(node) = self.nodes.remove(&uid) else { return self.homeless.remove(&uid).map(|pod| *pod) };
        let here = self.on.get_mut(&node)?;
        let pod = find(here, uid).ok().map(|place| here.remove(place).pod);
        if here.is_empty() {
            self.on.remove(&node);
        }
        pod
    }

    fn get_mut(&mut self, uid: Uid) -> Option<&mut Placed> {
        let Some(node) = self.nodes.get(&uid) else { return self.homeless.get_mut(&uid).map(Box::as_mut) };
        let here = self.on.get_mut(node)?;
        let place = find(here, uid).ok()?;
        Some(&mut here.get_mut(place)?.pod)
    }

    /// A pod, wherever it is.
    pub fn get(&self, uid: Uid) -> Option<&Placed> {
        let Some(node) = self.nodes.get(&uid) else { return self.homeless.get(&uid).map(Box::as_ref) };
        let here = self.on(node);
        Some(&here.get(find(here, uid).ok()?)?.pod)
    }

    /// Pods on a node, in the order of their uids.
    pub fn on(&self, node: &str) -> &[Resident] {
        self.on.get(node).map_or(&[], Vec::as_slice)
    }

    /// Pods that wait for room on a node.
    pub fn nominated_to(&self, node: &str) -> impl Iterator<Item = Uid> {
        self.nominated_to.get(node).into_iter().flatten().copied()
    }

    /// The pod of a name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Uid> {
        self.named.get(namespace)?.get(name).copied()
    }

    /// All pods.
    pub fn uids(&self) -> impl Iterator<Item = Uid> {
        self.nodes.keys().chain(self.homeless.keys()).copied()
    }

    /// How many pods there are.
    pub fn pods(&self) -> usize {
        self.nodes.len().saturating_add(self.homeless.len())
    }

    /// On how many nodes there are pods, to how many some are nominated, and in how many namespaces there are any.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize, usize) {
        (self.on.len(), self.nominated_to.len(), self.named.len())
    }
}

/// Where a pod is among those of its node, or where it would be.
pub fn find(here: &[Resident], uid: Uid) -> Result<usize, usize> {
    here.binary_search_by_key(&uid, |resident| resident.uid)
}
