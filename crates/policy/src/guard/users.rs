//! Who is guarded against, and who never is.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Asked, Operation, Reason};

/// Whose deletions are held up, and whose never are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Guarded {
    /// Users whose deletions of pods are preemptions.
    pub schedulers: BTreeSet<String>,
    /// Users who are never held up.
    pub exempt_users: BTreeSet<String>,
    /// Groups whose members are never held up.
    pub exempt_groups: BTreeSet<String>,
    /// Namespaces whose pods are never kept.
    pub exempt_namespaces: BTreeSet<String>,
}

impl Default for Guarded {
    fn default() -> Self {
        Self {
            schedulers: ["system:kube-scheduler".to_owned()].into(),
            exempt_users: BTreeSet::new(),
            exempt_groups: BTreeSet::new(),
            exempt_namespaces: ["kube-system".to_owned()].into(),
        }
    }
}

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// All controllers at once, where each doesn't have an account of its own.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

const CONTROLLER_PREFIX: &str = "system:serviceaccount:kube-system:";

/// Those of Kubernetes that delete pods or what owns them. Namespaces, nodes and whole workloads could not go if these
/// were held up.
const CONTROLLERS: [&str; 17] = [
    "cloud-node-lifecycle-controller",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "generic-garbage-collector",
    "job-controller",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "replicaset-controller",
    "replication-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
];

impl Guarded {
    /// Why a request passes whatever the pod is.
    pub(super) fn passes(&self, asked: &Asked<'_>) -> Option<Reason> {
        let in_group = |group: &String| asked.groups.contains(group);
        if asked.user.starts_with(NODE_PREFIX) || asked.groups.iter().any(|group| group == NODES) {
            Some(Reason::Kubelet)
        } else if is_controller(asked.user) {
            Some(Reason::Controller)
        } else if self.exempt_users.contains(asked.user) {
            Some(Reason::ExemptUser)
        } else if self.exempt_groups.iter().any(in_group) {
            Some(Reason::ExemptGroup)
        } else if self.exempt_namespaces.contains(asked.namespace) {
            Some(Reason::ExemptNamespace)
        } else if asked.operation == Operation::Delete && !self.schedulers.contains(asked.user) {
            Some(Reason::OtherUser)
        } else {
            None
        }
    }
}

fn is_controller(user: &str) -> bool {
    let account = user.strip_prefix(CONTROLLER_PREFIX);
    user == CONTROLLER_MANAGER || account.is_some_and(|account| CONTROLLERS.contains(&account))
}
