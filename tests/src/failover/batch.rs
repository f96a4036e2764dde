//! The owners of one round, and a stand-in for their controller.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use anyhow::Result;
use futures::stream::{StreamExt, TryStreamExt, iter};
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{watcher, watcher::Config},
};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tokio::{sync::watch, task::JoinSet};

use super::in_time;
use crate::{
    DEADLINE, World, fixtures, scale,
    workloads::{Namespace, bare_pod, controller, in_queue, owned, queue},
};

/// The number of owners of a round.
pub(super) const OWNERS: usize = 60;

/// The owners that are created at a time.
const CONCURRENCY: usize = 8;
const API_VERSION: &str = "batch.tensorstack.dev/v1beta1";
const KIND: &str = "GenericJob";

/// Returns the kind of the owners, whose definition is installed without a controller.
fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("batch.tensorstack.dev", "v1beta1", KIND))
}

/// Owners with a pod each, in a namespace and a queue of their own, whose ceiling is far away at
/// first.
pub(super) struct Batch {
    client: Client,
    name: String,
    queue: DynamicObject,
}

impl Batch {
    /// Creates the owners, and a namespace and a queue of this name.
    pub async fn create(world: &World, name: &str) -> Result<Self> {
        scale::namespace(world, name).await;
        let queue = Namespace::of(world, "t9k-system").create(&queue(name, "30d")).await;
        let batch = Self { client: world.cluster.client()?, name: name.into(), queue };
        let create = async |number| batch.create_one(number).await;
        iter(0..OWNERS).map(create).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        Ok(batch)
    }

    async fn create_one(&self, number: usize) -> Result<()> {
        let (name, how) = (format!("owner-{number:02}"), PostParams::default());
        let spec = json!({"replicaSpecs": [{"type": "worker", "replicas": 1}]});
        let owner = fixtures::object(API_VERSION, KIND, &self.name, &name, &spec);
        let owner = self.owners().create(&how, &serde_json::from_value(owner)?).await?;
        // a scheduler of this name is absent, and this family counts from a pod's creation
        let pod = bare_pod(&self.name, &name, &in_queue(&self.name), &json!({"schedulerName": "absent"}));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.name);
        pods.create(&how, &serde_json::from_value(owned(pod, &[controller(&owner)]))?).await?;
        Ok(())
    }

    fn owners(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.name, &kind())
    }

    /// Shortens the ceiling, so that all owners are overdue in the same second.
    pub async fn exceed_ceiling(&self, world: &World) {
        let patch = json!({"spec": {"maxDuration": "1s"}});
        Namespace::of(world, "t9k-system").patch(&self.queue, &patch).await;
    }

    /// Returns the deviations from the expected result, now that all owners are paused.
    pub async fn complaints(&self) -> Result<Vec<String>> {
        let recorded = async || Ok((self.event_counts().await?.len() == OWNERS).then_some(()));
        let all_recorded = eventually("an event for each owner", DEADLINE, recorded).await;
        let mut complaints: Vec<String> =
            all_recorded.err().map(|error| format!("{error:#}")).into_iter().collect();
        let counts = self.event_counts().await?;
        for owner in self.owners().list(&ListParams::default()).await?.items {
            let events = counts.get(&owner.name_any()).copied().unwrap_or_default();
            complaints.extend(complaint(&owner, events));
        }
        Ok(complaints)
    }

    /// Counts the events of a pause by owner.
    async fn event_counts(&self) -> Result<BTreeMap<String, usize>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.name);
        let of_pauses = ListParams::default().fields("reason=MaxDurationExceeded");
        let mut counts = BTreeMap::new();
        for event in events.list(&of_pauses).await?.items {
            *counts.entry(event.regarding.and_then(|owner| owner.name).unwrap_or_default()).or_default() += 1;
        }
        Ok(counts)
    }
}

/// Returns the deviation of an owner that should have been paused once. None: it was, with a record
/// and one event.
fn complaint(owner: &DynamicObject, events: usize) -> Option<String> {
    let generation = owner.metadata.generation.unwrap_or_default();
    let has_record = owner.annotations().contains_key("tenure.dev/paused");
    let is_right = is_paused(owner) && has_record && generation == 2 && events == 1;
    (!is_right).then(|| {
        let (name, paused) = (owner.name_any(), is_paused(owner));
        format!("{name}: paused {paused}, record {has_record}, generation {generation}, {events} events")
    })
}

fn is_paused(owner: &DynamicObject) -> bool {
    owner.data.pointer("/spec/runMode/pause/enabled") == Some(&Value::Bool(true))
}

/// Names of owners by namespace.
type Names = HashMap<String, HashSet<String>>;

/// Deletes the pod of each owner that is paused, as the owners' own controller would. From then on
/// only the owner shows that there was something to do. Its drop ends the work.
pub(super) struct Operator {
    /// The owners that were seen paused.
    paused: Arc<watch::Sender<Names>>,
    _work: JoinSet<()>,
}

impl Operator {
    /// Begins to follow the owners of all namespaces.
    pub fn start(client: Client) -> Self {
        let paused = Arc::new(watch::Sender::new(Names::new()));
        let mut work = JoinSet::new();
        work.spawn(operate(client, Arc::clone(&paused)));
        Self { paused, _work: work }
    }

    /// Returns the number of owners of a namespace that were seen paused.
    pub fn paused(&self, namespace: &str) -> usize {
        count(&self.paused.borrow(), namespace)
    }

    /// Waits until this number of owners of a namespace were seen paused.
    pub async fn await_pauses(&self, namespace: &str, at_least: usize) -> Result<()> {
        let mut paused = self.paused.subscribe();
        in_time(&format!("{at_least} pauses in {namespace}"), async {
            paused.wait_for(|paused| count(paused, namespace) >= at_least).await?;
            Ok(())
        })
        .await
    }
}

fn count(paused: &Names, namespace: &str) -> usize {
    paused.get(namespace).map_or(0, HashSet::len)
}

/// Follows the owners. Never returns.
async fn operate(client: Client, paused: Arc<watch::Sender<Names>>) {
    let take = async |event| {
        if let watcher::Event::Apply(owner) | watcher::Event::InitApply(owner) = event
            && is_paused(&owner)
        {
            let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
            let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            paused.send_modify(|paused| {
                paused.entry(namespace).or_default().insert(name.clone());
            });
            // the pod may be gone already
            let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
        }
        Ok(())
    };
    let owners = Api::<DynamicObject>::all_with(client.clone(), &kind());
    // an error ends the stream alone
    while watcher(owners.clone(), Config::default()).try_for_each_concurrent(16, take).await.is_err() {}
}
