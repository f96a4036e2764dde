//! The places of pods: their nodes, nominations and names. `PodIndex` owns the record of each pod
//! that the webhook knows. Invariant: a pod's record is in exactly one place, on its node or among
//! the pods without a node.

use std::collections::{BTreeSet, HashMap};

use arcstr::ArcStr;

use super::pods::PodRecord;
use crate::{Uid, uid::UidMap};

/// The records of pods, by each key that they are looked up by.
#[derive(Debug, Default)]
pub struct PodIndex {
    /// The node of each pod that is on one.
    nodes: UidMap<ArcStr>,
    on: HashMap<ArcStr, NodePods>,
    /// The pods that are on no node.
    homeless: UidMap<Box<PodRecord>>,
    /// The pods that wait for room on a node, by the node to which they are nominated.
    nominated_to: BTreeSet<(ArcStr, Uid)>,
    /// The uids of pods by namespace and name.
    named: HashMap<ArcStr, HashMap<ArcStr, Uid>>,
}

/// Pods on a node, in the order of their uids: next to each other in memory, since a question is
/// about all of them. The uids are apart from the records, since a search reads many uids.
#[derive(Debug, Default)]
pub struct NodePods {
    uids: Vec<Uid>,
    pods: Vec<PodRecord>,
}

/// The most pods of usual nodes: a kubelet allows 110.
const FEW: usize = 128;

impl NodePods {
    /// Finds a pod. Among few pods a linear search takes less time: a processor would mispredict the
    /// steps of a binary search. But any number of pods may name a node that doesn't exist.
    pub fn find(&self, uid: Uid) -> Option<&PodRecord> {
        let place = if self.uids.len() <= FEW {
            self.uids.iter().position(|of| *of == uid)
        } else {
            self.uids.binary_search(&uid).ok()
        };
        self.pods.get(place?)
    }

    pub fn all(&self) -> impl Iterator<Item = (Uid, &PodRecord)> {
        self.uids.iter().copied().zip(&self.pods)
    }

    fn insert(&mut self, uid: Uid, pod: PodRecord) {
        if let Err(place) = self.uids.binary_search(&uid) {
            self.uids.insert(place, uid);
            self.pods.insert(place, pod);
        }
    }

    fn remove(&mut self, uid: Uid) -> Option<PodRecord> {
        let place = self.uids.binary_search(&uid).ok()?;
        self.uids.remove(place);
        Some(self.pods.remove(place))
    }
}

impl PodIndex {
    /// Adds or updates a pod. A scheduled pod keeps the earliest scheduling that it has shown.
    pub fn put(&mut self, uid: Uid, mut pod: PodRecord) {
        // a pod that was created with its node may show its binding later, which renews no floor
        let known = self.remove(uid).and_then(|known| known.scheduled);
        pod.scheduled = pod.scheduled.map(|shown| known.map_or(shown, |known| known.min(shown)));
        if let Some(node) = &pod.nominated {
            self.nominated_to.insert((node.clone(), uid));
        }
        self.named.entry(pod.namespace.clone()).or_default().insert(pod.name.clone(), uid);
        let Some(node) = pod.node.clone() else {
            self.homeless.insert(uid, Box::new(pod));
            return;
        };
        self.nodes.insert(uid, node.clone());
        self.on.entry(node).or_default().insert(uid, pod);
    }

    /// Forgets a pod. Returns its record. None: no such pod is known.
    pub fn remove(&mut self, uid: Uid) -> Option<PodRecord> {
        let pod = self.take(uid)?;
        if let Some(node) = &pod.nominated {
            self.nominated_to.remove(&(node.clone(), uid));
        }
        if let Some(here) = self.named.get_mut(&pod.namespace) {
            // another pod may have its name by now
            if here.get(&pod.name) == Some(&uid) {
                here.remove(&pod.name);
            }
            if here.is_empty() {
                self.named.remove(&pod.namespace);
            }
        }
        Some(pod)
    }

    /// Takes the record of a pod from its node, or from the pods without one.
    fn take(&mut self, uid: Uid) -> Option<PodRecord> {
        let Some(node) = self.nodes.remove(&uid) else { return self.homeless.remove(&uid).map(|pod| *pod) };
        let here = self.on.get_mut(&node)?;
        let pod = here.remove(uid);
        if here.uids.is_empty() {
            self.on.remove(&node);
        }
        pod
    }

    /// Returns the record of a pod, on a node or on none.
    pub fn get(&self, uid: Uid) -> Option<&PodRecord> {
        let Some(node) = self.nodes.get(&uid) else { return self.homeless.get(&uid).map(Box::as_ref) };
        self.on.get(node)?.find(uid)
    }

    /// Returns the pods on a node. None: no pod is known to be there.
    pub fn on(&self, node: &str) -> Option<&NodePods> {
        self.on.get(node)
    }

    /// Returns the pods that are nominated to a node, and wait for room there.
    pub fn nominated_to(&self, node: &str) -> impl Iterator<Item = Uid> {
        let node = ArcStr::from(node);
        self.nominated_to.range((node.clone(), Uid::MIN)..=(node, Uid::MAX)).map(|(_, uid)| *uid)
    }

    /// Returns the uid of the last pod that was put with this name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Uid> {
        self.named.get(namespace)?.get(name).copied()
    }

    pub fn uids(&self) -> impl Iterator<Item = Uid> {
        self.nodes.keys().chain(self.homeless.keys()).copied()
    }

    pub fn pods(&self) -> usize {
        self.nodes.len().saturating_add(self.homeless.len())
    }

    /// The numbers of nodes with pods, of nominated pods, and of namespaces with pods.
    #[cfg(test)]
    pub fn len(&self) -> (usize, usize, usize) {
        (self.on.len(), self.nominated_to.len(), self.named.len())
    }
}
