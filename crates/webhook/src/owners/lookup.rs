//! Looks up the objects that an answer about an owner depends on and that no watch shows.
//!
//! Each step of an answer has a time limit, and the number of reviews that look up objects at the
//! same time is bounded. Beyond either, objects count as not found, and the answer goes on without
//! them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::future::join_all;
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind},
};
use parking_lot::Mutex;
use tenure_policy::{
    creation::{FamilyQueue, GroupLookup, MOST_LOOKUPS, NamedGroup},
    expiry::Family,
    owner_table::is_subdomain,
    queue::RunaiQueue,
    tree::QueueTree,
};
use tenure_service::log::with_causes;
use tenure_types::{
    podgroup::PodGroup,
    projection::{Owner, TensorstackQueueObject, WholeObject},
    runai::QueueVersion,
};
use tokio::{sync::Semaphore, time::timeout};
use tracing::debug;

use crate::validate::LOOKUP;

/// The number of reviews that look up objects at the same time, to spare the API server. Further
/// reviews find nothing.
const AT_ONCE: usize = 32;

/// The groups that were looked up.
type FoundGroups = HashMap<NamedGroup, GroupLookup>;

/// Looks up `PodGroup`s, queues of T9k, and queues that a watch may not show yet.
#[derive(Clone)]
pub struct Lookups {
    client: Client,
    t9k_system_namespace: String,
    /// The version in which queues of the run.ai family are read.
    version: QueueVersion,
    /// The turns of reviews.
    turns: Arc<Semaphore>,
}

impl Lookups {
    /// Creates the lookups, with all turns free.
    pub fn new(client: Client, t9k_system_namespace: String, version: QueueVersion) -> Self {
        Self { client, t9k_system_namespace, version, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Returns those of the queues that the API server says don't exist: a watch may be behind.
    /// Empty if no turn is free, or if the answers come too late.
    pub async fn absent(&self, queues: BTreeSet<FamilyQueue>) -> BTreeSet<FamilyQueue> {
        let turn = if queues.is_empty() { None } else { self.turns.try_acquire().ok() };
        if turn.is_none() {
            return BTreeSet::new();
        }
        let absent = async |queue: FamilyQueue| self.is_absent(&queue).await.then_some(queue);
        let calls = join_all(queues.into_iter().take(MOST_LOOKUPS).map(absent));
        timeout(LOOKUP, calls).await.unwrap_or_default().into_iter().flatten().collect()
    }

    /// True if the API server answers that the queue doesn't exist. The answer is the same where
    /// the API server has no queues of the family.
    async fn is_absent(&self, (family, name): &FamilyQueue) -> bool {
        let row = family.row();
        let version = match family {
            Family::Runai => self.version.name(),
            Family::Tensorstack => row.versions.first().copied().unwrap_or_default(),
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(row.group, version, "Queue"));
        let queues: Api<Owner> = if row.is_namespaced {
            Api::namespaced_with(self.client.clone(), &self.t9k_system_namespace, &kind)
        } else {
            Api::all_with(self.client.clone(), &kind)
        };
        // a text that isn't a valid name could lead elsewhere in a path
        !is_subdomain(name) || matches!(queues.get_opt(name).await, Ok(None))
    }

    /// Returns the queues of pods that name these groups, and a tree of the queues of T9k among
    /// them with the default queue. `queues` returns the queues for the groups found. If no turn is
    /// free, or time runs out, the result has only the objects found until then.
    pub async fn find(
        &self,
        namespace: &str,
        groups: &BTreeSet<NamedGroup>,
        default: Option<&str>,
        queues: impl Fn(&FoundGroups) -> BTreeSet<FamilyQueue>,
    ) -> (BTreeSet<FamilyQueue>, QueueTree) {
        let found = Mutex::new((queues(&HashMap::new()), QueueTree::default()));
        let needs_t9k = found.lock().0.iter().any(|(family, _)| *family == Family::Tensorstack);
        if groups.is_empty() && !needs_t9k {
            return found.into_inner();
        }
        let Ok(_turn) = self.turns.try_acquire() else { return found.into_inner() };
        let reading = async {
            let found_of = async |group: &NamedGroup| (group.clone(), self.group(namespace, group).await);
            let of = join_all(groups.iter().map(found_of)).await;
            let queues = queues(&of.into_iter().collect());
            found.lock().0.clone_from(&queues);
            let of_t9k = queues.iter().filter(|(family, _)| *family == Family::Tensorstack);
            let mut names: Vec<&str> = of_t9k.map(|(_, name)| &**name).collect();
            let default = default.filter(|_| !names.is_empty());
            names.truncate(MOST_LOOKUPS.saturating_sub(default.iter().len()));
            let read = join_all(names.into_iter().chain(default).map(|name| self.t9k_queue(name))).await;
            let mut tree: QueueTree = read.into_iter().flatten().collect();
            tree.set_default(default);
            found.lock().1 = tree;
        };
        // an object that isn't found by then stays unknown
        let _ = timeout(LOOKUP, reading).await;
        found.into_inner()
    }

    /// Looks up a `PodGroup`. A group whose name isn't valid is absent. After an error, the group
    /// is unknown.
    async fn group(&self, namespace: &str, (kind, name): &NamedGroup) -> GroupLookup {
        // users write the name, which becomes part of a path: a text that isn't a valid name could
        // lead elsewhere
        let version = kind.versions().first().filter(|_| is_subdomain(name) && is_subdomain(namespace));
        let Some(version) = version else { return GroupLookup::Absent };
        let groups: Api<PodGroup> =
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource(version));
        match groups.get_opt(name).await {
            Ok(Some(group)) => GroupLookup::found(*kind, &group),
            Ok(None) => GroupLookup::Absent,
            Err(error) => {
                debug!(namespace, name, error = with_causes(&error), "Can't look up a PodGroup");
                GroupLookup::Unknown
            }
        }
    }

    /// Reads a queue of T9k. None: the queue doesn't exist, or can't be read.
    async fn t9k_queue<'n>(&self, name: &'n str) -> Option<(&'n str, RunaiQueue)> {
        let row = Family::Tensorstack.row();
        let kind = GroupVersionKind::gvk(row.group, row.versions.first()?, "Queue");
        let queues: Api<WholeObject> = Api::namespaced_with(
            self.client.clone(),
            &self.t9k_system_namespace,
            &ApiResource::from_gvk(&kind),
        );
        if !is_subdomain(name) {
            return None;
        }
        match queues.get_opt(name).await {
            Ok(queue) => {
                let queue: TensorstackQueueObject = serde_json::from_value(queue?.value).ok()?;
                Some((name, RunaiQueue::read_t9k(&queue.spec).0))
            }
            Err(error) => {
                debug!(name, error = with_causes(&error), "Can't look up a queue of T9k");
                None
            }
        }
    }
}
