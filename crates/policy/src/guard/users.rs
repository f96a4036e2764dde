//! The users whose deletions are guarded, and the users that are exempt.
//!
//! [`Guarded`] is the block `guard` of the configuration. The webhook and `crate::guard` look up
//! the user of each request in it. Kubelets and Kubernetes' own controllers are exempt in any
//! configuration.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Operation, RemovalRequest, VerdictReason};

/// The users whose deletions are held up, and the users and namespaces that are exempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Guarded {
    /// The users whose deletions of pods are preemptions, each once.
    pub schedulers: Vec<SchedulerUser>,
    /// Users whose requests are never held up.
    pub exempt_users: BTreeSet<String>,
    /// Groups whose members' requests are never held up.
    pub exempt_groups: BTreeSet<String>,
    /// Namespaces whose pods may always go.
    pub exempt_namespaces: BTreeSet<String>,
}

/// A user whose deletions of pods are preemptions. In the file, a name alone is short for an entry
/// with the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "WrittenScheduler")]
pub struct SchedulerUser {
    /// The user name, as the API server authenticates it.
    pub name: String,
    /// The protection from this user's deletions if nothing shows the preemptor.
    pub unknown_preemptor: UnknownPreemptor,
}

/// An entry of the file: a name alone, or a map.
#[derive(Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum WrittenScheduler {
    Name(String),
    Entry {
        name: String,
        #[serde(default)]
        unknown_preemptor: UnknownPreemptor,
    },
}

impl From<WrittenScheduler> for SchedulerUser {
    fn from(written: WrittenScheduler) -> Self {
        match written {
            WrittenScheduler::Name(name) => Self::named(name),
            WrittenScheduler::Entry { name, unknown_preemptor } => Self { name, unknown_preemptor },
        }
    }
}

impl SchedulerUser {
    /// Creates a scheduler that shows its preemptors, as kube-scheduler does.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), unknown_preemptor: UnknownPreemptor::default() }
    }
}

/// The protection of a pod from a preemptor that neither a permit nor a nomination shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnknownPreemptor {
    /// The longer of both floors: for schedulers that nominate their preemptors, where a nomination
    /// is about to arrive.
    #[default]
    Stricter,
    /// The shorter of both floors: for schedulers that never nominate and keep floors by
    /// themselves. The longer floor would refuse deletions that the shorter one allows.
    ///
    /// A toleration counts if it has an end. A pod that is nominated to the node belongs to another
    /// scheduler, and holds up nothing.
    Weaker,
}

impl Default for Guarded {
    fn default() -> Self {
        Self {
            schedulers: vec![SchedulerUser::named("system:kube-scheduler")],
            exempt_users: BTreeSet::new(),
            exempt_groups: BTreeSet::new(),
            exempt_namespaces: ["kube-system".to_owned()].into(),
        }
    }
}

/// The group of kubelets.
const NODES: &str = "system:nodes";
/// The prefix of the user name of a kubelet.
const NODE_PREFIX: &str = "system:node:";

/// The user of all controllers, in clusters where controllers don't have accounts of their own.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The prefix of the user names of controllers that have service accounts of their own.
const CONTROLLER_PREFIX: &str = "system:serviceaccount:kube-system:";

/// The accounts of the controllers that delete pods or their owners. Namespaces, nodes and
/// workloads could not be deleted without these.
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
    /// Returns the protection from a user's deletions if nothing shows the preemptor. The default
    /// for a user that isn't listed.
    pub fn unknown_preemptor(&self, user: &str) -> UnknownPreemptor {
        self.scheduler(user).map(|scheduler| scheduler.unknown_preemptor).unwrap_or_default()
    }

    fn scheduler(&self, user: &str) -> Option<&SchedulerUser> {
        self.schedulers.iter().find(|scheduler| scheduler.name == user)
    }

    /// Returns the reason why a request is allowed for every pod. None: the pod decides.
    pub(super) fn passes(&self, asked: &RemovalRequest<'_>) -> Option<VerdictReason> {
        let in_group = |group: &String| asked.groups.contains(group);
        if asked.user.starts_with(NODE_PREFIX) || asked.groups.iter().any(|group| group == NODES) {
            Some(VerdictReason::Kubelet)
        } else if is_controller(asked.user) {
            Some(VerdictReason::Controller)
        } else if self.exempt_users.contains(asked.user) {
            Some(VerdictReason::ExemptUser)
        } else if self.exempt_groups.iter().any(in_group) {
            Some(VerdictReason::ExemptGroup)
        } else if self.exempt_namespaces.contains(asked.namespace) {
            Some(VerdictReason::ExemptNamespace)
        } else if asked.operation == Operation::Delete && self.scheduler(asked.user).is_none() {
            Some(VerdictReason::OtherUser)
        } else {
            None
        }
    }
}

/// True for the users of Kubernetes' own controllers.
fn is_controller(user: &str) -> bool {
    let account = user.strip_prefix(CONTROLLER_PREFIX);
    user == CONTROLLER_MANAGER || account.is_some_and(|account| CONTROLLERS.contains(&account))
}
