//! Many owners with a pod each, all in one queue, and their pauses.
//!
//! The owners are T9k jobs, whose controller is not in the cluster: [`Controller`] does the little
//! of its work that matters here.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{watcher, watcher::Config},
};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tokio::task::JoinHandle;

use super::{Progress, each};
use crate::{
    World, audit,
    fixtures::{self, definitions, install},
    workloads::{Namespace, bare_pod, controller, in_queue, owned, queue},
};

/// The namespace of all owners and pods.
const NAMESPACE: &str = "crowd";
/// The queue of all pods.
const QUEUE: &str = "crowd";
const API_VERSION: &str = "batch.tensorstack.dev/v1beta1";
const KIND: &str = "GenericJob";

/// Owners in one queue, whose ceiling is far away at first.
pub struct Crowd<'a> {
    world: &'a World,
    queue: DynamicObject,
    count: usize,
}

impl<'a> Crowd<'a> {
    /// Creates the queue, the owners and their pods, as fast as the API server takes them.
    pub async fn new(world: &'a World, count: usize) -> Result<Self> {
        Self::paced(world, count, Duration::ZERO).await
    }

    /// Creates the queue, the owners and their pods, with this time between two of them at least.
    pub async fn paced(world: &'a World, count: usize, between: Duration) -> Result<Self> {
        install(world, definitions("batch.tensorstack.dev")).await;
        super::namespace(world, NAMESPACE).await;
        let queue = Namespace::of(world, "t9k-system").create(&queue(QUEUE, "30d")).await;
        let client = world.cluster.client()?;
        let begun = tokio::time::Instant::now();
        let create = async |number: usize| {
            let before = between.saturating_mul(u32::try_from(number)?);
            tokio::time::sleep_until(begun + before).await;
            create(&client, number).await
        };
        each(count, "owners with a pod each created", create).await?;
        Ok(Self { world, queue, count })
    }

    /// Returns the number of owners.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the queue, as the API server had it when it was created.
    pub const fn queue(&self) -> &DynamicObject {
        &self.queue
    }

    /// Sets the queue's ceiling, and returns the time at which that was done. With a short ceiling
    /// all pods have exceeded it by then.
    pub async fn set_ceiling(&self, max_duration: &str) -> Instant {
        let patch = json!({"spec": {"maxDuration": max_duration}});
        Namespace::of(self.world, "t9k-system").patch(&self.queue, &patch).await;
        Instant::now()
    }

    /// Returns the creation times of the pods, by their names, which are those of their owners.
    pub async fn created(&self) -> Result<HashMap<String, Timestamp>> {
        let pods = pods(&self.world.cluster.client()?).list(&ListParams::default()).await?.items;
        let created =
            pods.into_iter().filter_map(|pod| Some((pod.name_any(), pod.metadata.creation_timestamp?.0)));
        Ok(created.collect())
    }

    /// Starts the stand-in for the controller of the owners.
    pub fn controller(&self) -> Result<Controller> {
        Ok(Controller::start(self.world.cluster.client()?))
    }

    /// Waits until at least `count` owners are paused.
    pub async fn await_pauses(
        &self,
        controller: &Controller,
        count: usize,
        deadline: Duration,
    ) -> Result<()> {
        let progress = Progress::new("owners paused", self.count);
        let enough = async || {
            let paused = controller.paused();
            progress.reached(paused);
            ensure!(paused >= count, "{paused} of {count} are paused");
            Ok(Some(()))
        };
        eventually("owners to be paused", deadline, enough).await
    }

    /// Fails unless each owner was paused exactly once. The API server counts in
    /// `metadata.generation` how often a spec was changed, and the audit log has the patches.
    pub async fn assert_each_paused_once(&self) -> Result<()> {
        let owners = owners(&self.world.cluster.client()?).list(&ListParams::default()).await?.items;
        ensure!(owners.len() == self.count, "{} owners of {} are there", owners.len(), self.count);
        let wrong: Vec<String> = owners.iter().filter_map(complaint).collect();
        ensure!(wrong.is_empty(), "{} owners are wrong, such as {:?}", wrong.len(), wrong.first());
        let patched = audit::of_keeper(&self.world.cluster, "patch", "genericjobs", NAMESPACE);
        none_twice(patched, "patched")?;
        Ok(())
    }

    /// Returns the number of owners that have a `MaxDurationExceeded` event. Fails if an owner has
    /// two.
    pub async fn owners_with_event(&self) -> Result<usize> {
        let events: Api<Event> = Api::namespaced(self.world.cluster.client()?, NAMESPACE);
        let of_pauses = ListParams::default().fields("reason=MaxDurationExceeded");
        let events = events.list(&of_pauses).await?.items;
        none_twice(events.into_iter().filter_map(|event| event.regarding?.name), "told of its pause")
    }
}

/// Returns the number of names. Fails if a name appears twice.
fn none_twice(names: impl IntoIterator<Item = String>, what: &str) -> Result<usize> {
    let mut seen = HashSet::new();
    for name in names {
        ensure!(!seen.contains(&name), "{name} was {what} twice");
        seen.insert(name);
    }
    Ok(seen.len())
}

/// Creates an owner and its pod.
async fn create(client: &Client, number: usize) -> Result<()> {
    let name = format!("owner-{number:05}");
    let spec = json!({"replicaSpecs": [{"type": "worker", "replicas": 1}]});
    let owner = fixtures::object(API_VERSION, KIND, NAMESPACE, &name, &spec);
    let how = PostParams::default();
    let owner = owners(client).create(&how, &serde_json::from_value(owner)?).await?;
    // a scheduler of this name is absent, and this family counts from a pod's creation
    let spec = json!({"schedulerName": "absent"});
    let pod = bare_pod(NAMESPACE, &name, &in_queue(QUEUE), &spec);
    let pod = serde_json::from_value(owned(pod, &[controller(&owner)]))?;
    pods(client).create(&how, &pod).await?;
    Ok(())
}

fn owners(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("batch.tensorstack.dev", "v1beta1", KIND);
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn is_paused(owner: &DynamicObject) -> bool {
    owner.data.pointer("/spec/runMode/pause/enabled") == Some(&Value::Bool(true))
}

/// Returns the deviation of an owner that should have been paused once. None: it was.
fn complaint(owner: &DynamicObject) -> Option<String> {
    let (name, generation) = (owner.name_any(), owner.metadata.generation.unwrap_or_default());
    if !is_paused(owner) {
        return Some(format!("{name} isn't paused"));
    }
    if !owner.annotations().contains_key("tenure.dev/paused") {
        return Some(format!("{name} has no record of its pause"));
    }
    (generation != 2).then(|| format!("{name} has generation {generation}, and not 2"))
}

/// Deletes the pod of each owner that is paused, as the owners' own controller would, and notes the
/// time at which it saw the pause. Its drop ends the work.
pub struct Controller {
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    task: JoinHandle<()>,
}

impl Controller {
    fn start(client: Client) -> Self {
        let seen = Arc::default();
        let task = tokio::spawn(control(client, Arc::clone(&seen)));
        Self { seen, task }
    }

    /// Returns the number of owners that were seen paused.
    pub fn paused(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the times at which the owners were seen paused, by their names.
    pub fn seen(&self) -> HashMap<String, Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the times at which the pauses were seen, in their order.
    pub fn pauses(&self) -> Vec<Instant> {
        let mut pauses: Vec<Instant> = self.seen().into_values().collect();
        pauses.sort_unstable();
        pauses
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Follows the owners. Never returns.
async fn control(client: Client, seen: Arc<Mutex<HashMap<String, Instant>>>) {
    let (pods, now) = (pods(&client), DeleteParams::default().grace_period(0));
    let take = async |event: watcher::Event<DynamicObject>| {
        if let watcher::Event::Apply(owner) | watcher::Event::InitApply(owner) = event
            && is_paused(&owner)
        {
            let name = owner.name_any();
            seen.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(name.clone())
                .or_insert_with(Instant::now);
            // the pod may be gone already
            let _ = pods.delete(&name, &now).await;
        }
        Ok(())
    };
    // an error ends the stream alone
    while watcher(owners(&client), Config::default()).try_for_each_concurrent(16, take).await.is_err() {}
}
