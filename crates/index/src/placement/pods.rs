//! Reads pods into records. Values that many pods share are kept once: a webhook keeps a record of
//! each pod in the cluster.

use std::{borrow::Cow, collections::HashSet, hash::Hash, sync::Arc};

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::{
    expiry::{Exemption, Family, exemption_by},
    gang::{PodProgress, progress},
    guard::{self, VerdictReason},
    victims::Requests,
};
use tenure_types::{
    projection::Pod,
    room::{PodNeeds, ResourceDemand},
};

use super::budgets::PodLabels;
use crate::{Uid, names::Interner, podgroups::Membership};

/// Values that many pods share.
#[derive(Debug, Default)]
pub struct Interned {
    requests: SharedValues<Requests>,
    labels: SharedValues<PodLabels>,
    pub needs: SharedValues<PodNeeds>,
}

/// Shared values, each of which is kept once. Unused values are dropped from time to time.
#[derive(Debug)]
pub struct SharedValues<T> {
    values: HashSet<Arc<T>>,
    /// The number of values at which unused ones are dropped.
    sweep_at: usize,
}

impl<T> Default for SharedValues<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), sweep_at: 0 }
    }
}

impl<T: Eq + Hash> SharedValues<T> {
    pub fn shared(&mut self, value: T) -> Arc<T> {
        if let Some(shared) = self.values.get(&value) {
            return Arc::clone(shared);
        }
        // drops unused values whenever their number may have doubled
        if self.values.len() >= self.sweep_at {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = self.values.len().saturating_mul(2).max(64);
        }
        let shared = Arc::new(value);
        self.values.insert(Arc::clone(&shared));
        shared
    }
}

/// The record of a pod, with the facts that decisions need. Each verdict reads the first facts, so
/// they are next to each other in memory: a question is about thousands of pods.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PodRecord {
    /// The earliest scheduling that the pod has shown since it is kept. None: the pod waits.
    pub scheduled: Option<Timestamp>,
    /// The groups that the pod names. Gangs know them as well, but a lookup there takes time.
    pub memberships: Option<Arc<[Membership]>>,
    pub class: Option<ArcStr>,
    /// The queue of the run.ai family that the pod names itself.
    pub queue: Option<ArcStr>,
    pub priority: i32,
    pub progress: PodProgress,
    /// True if the pod's place is free once the pod is deleted: neither a kubelet nor a `DaemonSet`
    /// brings it back. A pod that no kubelet has admitted yet frees none: any user may name a node.
    pub frees: bool,
    /// True if the pod needs nothing but room. Other needs are kept apart.
    pub plain: bool,
    /// True if the pod waits rather than preempt others: its `preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    pub requests: Arc<Requests>,
    pub labels: Arc<PodLabels>,
    pub namespace: ArcStr,
    pub name: ArcStr,
    /// The node in `spec.nodeName`. None: the pod isn't bound.
    pub node: Option<ArcStr>,
    /// The node on which the pod's scheduler makes room for it, as long as the pod waits.
    pub nominated: Option<ArcStr>,
    /// The pod's uid as the API server writes it, if that text is odd: answers name it. None: the
    /// uid is a UUID in lower case.
    pub odd_uid: Option<Box<str>>,
    /// The reason why the guard never keeps the pod. None: the guard may keep it.
    pub spared: Option<VerdictReason>,
}

impl PodRecord {
    /// Reads a pod. The caller sets its memberships afterwards, so that members of a group share
    /// them.
    pub fn read(pod: &Pod, room: &ResourceDemand, interner: &mut Interner, pool: &mut Interned) -> Self {
        let Interner { names, kueue_queues, .. } = interner;
        let labels = PodLabels::read(pod.metadata.labels.as_ref(), names);
        let requests = room.requests.iter().map(|(name, amount)| (names.shared(name), *amount));
        let requests = pool.requests.shared(Requests::of_pod(requests));
        let mut shared =
            |name: Option<&str>| name.filter(|name| !name.is_empty()).map(|name| names.shared(name));
        let progress = progress(pod);
        let uid = pod.metadata.uid.as_deref();
        let nominated = pod.status.nominated_node_name.as_deref();
        let in_daemon_set = pod.controller().and_then(exemption_by) == Some(Exemption::DaemonSet);
        Self {
            odd_uid: uid.filter(|uid| Uid::of(uid).is_odd(uid)).map(Into::into),
            namespace: shared(pod.metadata.namespace.as_deref()).unwrap_or_default(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            node: shared(pod.spec.node_name.as_deref()),
            nominated: shared(nominated.filter(|_| progress == PodProgress::Waiting)),
            priority: pod.spec.priority.unwrap_or(0),
            never_preempts: pod.spec.preemption_policy.as_deref() == Some("Never"),
            class: shared(pod.spec.priority_class_name.as_deref()),
            queue: shared(kueue_queues.queue_of(Family::Runai, pod)),
            scheduled: pod.scheduled_at().map(|at| at.0),
            progress,
            requests,
            labels: pool.labels.shared(labels),
            memberships: None,
            plain: room.needs.is_none(),
            frees: !in_daemon_set
                && !pod.is_mirror()
                && (progress != PodProgress::Running || pod.shows_binding()),
            spared: guard::spared(pod),
        }
    }

    /// Returns the same pod with the node and the progress of a fresher manifest.
    pub fn as_shown(&self, shown: &Pod) -> Self {
        Self {
            node: shown.spec.node_name.as_deref().map(Into::into),
            scheduled: shown.scheduled_at().map(|at| at.0),
            progress: progress(shown),
            ..self.clone()
        }
    }

    /// Returns the pod's uid as the API server writes it. `uid` is the record's key.
    pub fn uid(&self, uid: Uid) -> Cow<'_, str> {
        self.odd_uid.as_deref().map_or_else(|| uid.text().into(), Cow::from)
    }

    pub fn memberships(&self) -> &[Membership] {
        self.memberships.as_deref().unwrap_or_default()
    }
}
