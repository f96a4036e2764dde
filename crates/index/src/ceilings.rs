//! Queues and pods together: whose ceiling is reached, and when.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_policy::expiry;
use tenure_types::{projection, runai::v3alpha1, tensorstack::v1beta1};

use crate::{
    Group, Uid,
    pods::{Expiry, Pods},
    queues::{RunaiQueues, TensorstackQueues},
};

/// Everything that a ceiling's expiry depends on.
///
/// Queues can come after their pods, and a change of one moves the deadlines of many: they are computed anew,
/// once, when somebody next asks for a deadline.
#[derive(Debug)]
pub struct CeilingIndex {
    runai: RunaiQueues,
    tensorstack: TensorstackQueues,
    pods: Pods,
    moved: bool,
}

impl CeilingIndex {
    /// Of an empty cluster. Pods of `priority_threshold` or more are exempt.
    pub fn new(priority_threshold: i32) -> Self {
        Self {
            runai: RunaiQueues::default(),
            tensorstack: TensorstackQueues::default(),
            pods: Pods::new(priority_threshold),
            moved: false,
        }
    }

    /// Takes a pod as the API server has it.
    pub fn apply_pod(&mut self, pod: &projection::Pod) {
        if let Some(uid) = self.pods.apply(pod) {
            self.schedule(uid);
        }
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, uid: Uid) {
        self.pods.delete(uid);
    }

    /// Forgets all pods but these.
    pub fn retain_pods(&mut self, uids: &HashSet<Uid>) {
        self.pods.retain(uids);
    }

    /// Takes a queue of the run.ai family as the API server has it.
    pub fn apply_runai(&mut self, name: &str, spec: &v3alpha1::QueueSpec) {
        self.moved |= self.runai.apply(name, spec);
    }

    /// Forgets a queue of the run.ai family.
    pub fn delete_runai(&mut self, name: &str) {
        self.moved |= self.runai.delete(name);
    }

    /// Forgets all queues of the run.ai family but these.
    pub fn retain_runai(&mut self, names: &HashSet<String>) {
        self.moved |= self.runai.retain(names);
    }

    /// Takes a queue of the tensorstack family as the API server has it.
    pub fn apply_tensorstack(&mut self, name: &str, spec: &v1beta1::QueueSpec) {
        self.moved |= self.tensorstack.apply(name, spec);
    }

    /// Forgets a queue of the tensorstack family.
    pub fn delete_tensorstack(&mut self, name: &str) {
        self.moved |= self.tensorstack.delete(name);
    }

    /// Forgets all queues of the tensorstack family but these.
    pub fn retain_tensorstack(&mut self, names: &HashSet<String>) {
        self.moved |= self.tensorstack.retain(names);
    }

    /// The next instant at which there may be something to claim.
    pub fn next_deadline(&mut self) -> Option<Timestamp> {
        self.reschedule();
        self.pods.next_deadline()
    }

    /// Hands out the pod that is most overdue at `now`, with the others of its controller that are overdue too.
    /// They are not handed out again before they are taken back.
    pub fn claim(&mut self, now: Timestamp) -> Option<Group> {
        self.reschedule();
        self.pods.claim(now)
    }

    /// Takes back a group for which something was done. Those that are still there are due again after a while,
    /// which grows from time to time: whatever was done may have failed, or not have helped.
    pub fn settle(&mut self, group: &Group, now: Timestamp) {
        for pod in group.pods() {
            self.pods.settle(pod.uid, now);
            self.schedule(pod.uid);
        }
    }

    /// Takes back a group of which only the first pod was served: the others are due again at once.
    pub fn settle_first(&mut self, group: &Group, now: Timestamp) {
        self.pods.settle(group.first.uid, now);
        for pod in &group.rest {
            self.pods.release(pod.uid);
        }
        for pod in group.pods() {
            self.schedule(pod.uid);
        }
    }

    /// The controllers of the live pods of a namespace that are exempt by priority.
    pub fn exempt_controllers(&self, namespace: &str) -> Vec<OwnerReference> {
        self.pods.exempt_controllers(namespace)
    }

    /// How many pods run under a ceiling, apart from those that are claimed.
    pub fn pods_under_ceiling(&self) -> usize {
        self.pods.scheduled()
    }

    /// How many pods are kept.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    fn schedule(&mut self, uid: Uid) {
        let Self { runai, tensorstack, pods, .. } = self;
        pods.schedule(uid, &mut ceilings(runai, tensorstack));
    }

    fn reschedule(&mut self) {
        if std::mem::take(&mut self.moved) {
            let Self { runai, tensorstack, pods, .. } = self;
            pods.schedule_all(&mut ceilings(runai, tensorstack));
        }
    }
}

/// When a pod expires, given the queues.
fn ceilings<'q>(
    runai: &'q mut RunaiQueues,
    tensorstack: &'q TensorstackQueues,
) -> impl FnMut(&crate::pods::Pod) -> Option<Expiry> + 'q {
    |pod| {
        let of_tensorstack = pod.tensorstack.as_deref().and_then(|queue| tensorstack.ceiling(queue));
        let of_runai = pod.runai.as_deref().and_then(|queue| runai.ceiling(queue));
        let (at, family) = expiry::deadline(pod.clocks(), of_tensorstack, of_runai)?;
        Some(Expiry { at, family })
    }
}

#[cfg(test)]
mod tests;
