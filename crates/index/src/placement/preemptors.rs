//! Pods that wait for a node: the preemptors of the scheduler extender. Of a pod in a scheduler's
//! question, only the uid counts: the index has all other facts.

use std::{borrow::Cow, sync::Arc};

use arcstr::ArcStr;
use tenure_policy::{gang::PodProgress, victims::Neighbor};

use super::{PlacementIndex, PodRecord};
use crate::Uid;

/// A pod that waits for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPod<'i> {
    /// The pod's uid, as the API server writes it.
    pub uid: Cow<'i, str>,
    /// The pod's namespace.
    pub namespace: &'i str,
    /// The pod's name.
    pub name: &'i str,
    /// The pod's `spec.priority`; 0 if it has none.
    pub priority: i32,
    /// True if the pod waits rather than preempt others.
    pub never_preempts: bool,
    /// The scheduler that the pod names. Empty: it names none.
    pub scheduler: &'i str,
    /// The name of the workload's queue, which may not exist. None: the pod is in no queue.
    pub queue: Option<&'i str>,
    /// The node on which the pod's scheduler makes room for it. None: on no node yet.
    pub nominated: Option<&'i str>,
}

impl PlacementIndex {
    /// Returns the pod of a uid, if it isn't scheduled yet. None: no such pod is known, or it is
    /// scheduled or terminating.
    pub fn pending_pod(&self, uid: &str) -> Option<PendingPod<'_>> {
        let id = Uid::of(uid);
        let pod = self.reader.places.get(id).filter(|pod| pod.progress == PodProgress::Waiting)?;
        let own = pod.uid(id);
        // another text may have the same hash
        (own == uid).then(|| PendingPod {
            uid: own,
            namespace: &pod.namespace,
            name: &pod.name,
            priority: pod.priority,
            never_preempts: pod.never_preempts,
            scheduler: self.reader.schedulers.get(&id).map(ArcStr::as_str).unwrap_or_default(),
            queue: self.queue(pod),
            nominated: pod.nominated.as_deref(),
        })
    }

    /// Returns a pod as a neighbor of the other pods of a node. None: no such pod is known.
    pub fn neighbor(&self, uid: Uid) -> Option<Neighbor<'_>> {
        self.reader.places.get(uid).map(|pod| self.as_neighbor(uid, pod))
    }

    /// Returns a pod that is known as a neighbor of other pods.
    pub(super) fn as_neighbor<'i>(&'i self, uid: Uid, pod: &'i PodRecord) -> Neighbor<'i> {
        let needs = if pod.plain { None } else { self.reader.needs.get(&uid).map(Arc::as_ref) };
        Neighbor { namespace: &pod.namespace, labels: &*pod.labels, needs }
    }

    /// True if there is a pod with this uid, in any state but ended.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.reader.places.get(Uid::of(uid)).is_some()
    }

    /// Returns the index's own copy of a node's name, if the node exists or has pods.
    pub fn node(&self, name: &str) -> Option<&str> {
        let known = self.reader.nodes.get_key_value(name).map(|(known, _)| known.as_str());
        known.or_else(|| self.reader.places.on(name)?.all().next()?.1.node.as_deref())
    }
}
