//! An observer of a plan with a connection of its own, which no fault reaches. The rules judge by
//! the observed states, and the script waits for them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment, batch::v1::Job, coordination::v1::Lease, core::v1::Pod, events::v1::Event,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::{NamespaceResourceScope, ObjectMeta},
    runtime::{watcher, watcher::Event as Change},
};
use serde::de::DeserializeOwned;
use tenure_policy::pause;
use tenure_types::{
    keys,
    paused::{PausedRecord, RequeueState},
};
use tokio::{sync::watch, task::JoinSet};

use super::Diary;

/// A state of an owner, and when it was first seen.
#[derive(Clone, Debug)]
pub(super) struct OwnerState {
    /// The time by the clock of this machine.
    pub at: Timestamp,
    pub is_paused: bool,
    /// The record of the pause on the owner. None: there is no readable record.
    pub record: Option<PausedRecord>,
    pub requeue: RequeueState,
}

/// A pod and its end.
#[derive(Clone, Debug)]
pub(super) struct PodLife {
    /// The name of the workload, from label `app`.
    pub app: String,
    pub name: String,
    pub created: Timestamp,
    /// The time of its scheduling. None: it has no node yet.
    pub scheduled: Option<Timestamp>,
    /// The time at which its deletion or disappearance was first seen. None: it is still there.
    pub ended: Option<Timestamp>,
}

/// All states that were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The states of each owner by name, in order. Two in a row differ in pause, record or requeue
    /// state.
    pub(super) owners: BTreeMap<String, Vec<OwnerState>>,
    /// The pods by uid, also those that are gone.
    pub(super) pods: HashMap<String, PodLife>,
    /// The keeper's events by uid: the reason, the name of the object that the event is about, and
    /// the message.
    pub(super) events: HashMap<String, (String, String, String)>,
}

impl Seen {
    /// Returns the states in which an owner was first seen paused, one per pause.
    pub fn pauses(&self, owner: &str) -> impl Iterator<Item = &OwnerState> {
        self.changes(owner, true)
    }

    /// Returns the states in which an owner was first seen resumed after a pause.
    pub fn resumptions(&self, owner: &str) -> impl Iterator<Item = &OwnerState> {
        self.changes(owner, false)
    }

    /// Returns the states after a change to paused, or from it.
    fn changes(&self, owner: &str, to_paused: bool) -> impl Iterator<Item = &OwnerState> {
        let states = self.owners.get(owner).map(Vec::as_slice).unwrap_or_default();
        let pairs = states.iter().zip(states.iter().skip(1));
        pairs
            .filter(move |(before, after)| {
                before.is_paused != after.is_paused && after.is_paused == to_paused
            })
            .map(|(_, after)| after)
    }

    /// Returns the pods of a workload, also those that are gone.
    pub fn pods(&self, app: &str) -> impl Iterator<Item = &PodLife> {
        self.pods.values().filter(move |pod| pod.app == app)
    }

    /// Returns the number of events about an object for a reason.
    pub fn events(&self, object: &str, reason: &str) -> usize {
        self.events.values().filter(|(of, name, _)| of == reason && name == object).count()
    }

    /// Returns the message of an event about an object for a reason. None: there was no event.
    pub fn message(&self, object: &str, reason: &str) -> Option<&str> {
        self.events
            .values()
            .find(|(of, name, _)| of == reason && name == object)
            .map(|(_, _, message)| message.as_str())
    }
}

/// Follows a namespace until it is dropped.
pub(super) struct Observer {
    client: Client,
    namespace: String,
    seen: Arc<Mutex<Seen>>,
    /// Counts the events of all watches.
    changes: watch::Sender<u64>,
    _followers: JoinSet<()>,
}

impl Observer {
    /// Begins to follow Deployments, Jobs, pods and events of a namespace.
    pub fn start(client: Client, namespace: &str, diary: &Diary) -> Self {
        let (seen, changes) = (Arc::<Mutex<Seen>>::default(), watch::Sender::default());
        let mut followers = JoinSet::new();
        let taker = Taker { seen: Arc::clone(&seen), changes: changes.clone(), diary: diary.clone() };
        let of = |taker: &Taker| (client.clone(), namespace.to_owned(), taker.clone());
        followers.spawn(follow::<Deployment>(of(&taker), |taker, change| {
            if let Some(deployment) = applied(change) {
                taker.owner(&deployment.metadata, deployment.spec.replicas == Some(0));
            }
        }));
        followers.spawn(follow::<Job>(of(&taker), |taker, change| {
            if let Some(job) = applied(change) {
                let is_suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
                taker.owner(&job.metadata, is_suspended);
            }
        }));
        followers.spawn(follow::<Pod>(of(&taker), |taker, change| match change {
            Change::Apply(pod) | Change::InitApply(pod) => taker.pod(&pod, false),
            Change::Delete(pod) => taker.pod(&pod, true),
            Change::Init | Change::InitDone => {}
        }));
        followers.spawn(follow::<Event>(of(&taker), |taker, change| {
            if let Some(event) = applied(change) {
                taker.event(&event);
            }
        }));
        Self { client, namespace: namespace.into(), seen, changes, _followers: followers }
    }

    /// Returns a copy of all states seen until now.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the seen states meet a condition.
    pub async fn until(&self, is_so: impl Fn(&Seen) -> bool) {
        let mut changes = self.changes.subscribe();
        // an error would mean that this observer is gone
        let _ = changes.wait_for(|_| is_so(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))).await;
    }

    /// Returns the identity of the keeper that has the Lease. None: no keeper has it.
    pub async fn leader(&self) -> Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let lease = leases.get_opt("tenure-keeper").await?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        Ok(holder.filter(|holder| !holder.is_empty()))
    }
}

/// Returns the object of a change that isn't a deletion.
fn applied<K>(change: Change<K>) -> Option<K> {
    match change {
        Change::Apply(object) | Change::InitApply(object) => Some(object),
        Change::Delete(_) | Change::Init | Change::InitDone => None,
    }
}

/// Follows the objects of a kind. Never returns.
async fn follow<K>((client, namespace, taker): (Client, String, Taker), take: fn(&Taker, Change<K>))
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + 'static,
{
    let objects: Api<K> = Api::namespaced(client, &namespace);
    let taking = async |change| {
        take(&taker, change);
        taker.changes.send_modify(|changes| *changes += 1);
        Ok(())
    };
    // an error ends the stream alone
    while watcher(objects.clone(), watcher::Config::default()).try_for_each(taking).await.is_err() {}
}

/// Takes in the objects that the watches show.
#[derive(Clone)]
struct Taker {
    seen: Arc<Mutex<Seen>>,
    changes: watch::Sender<u64>,
    diary: Diary,
}

impl Taker {
    /// Takes in an owner, unless its state is the last one known.
    fn owner(&self, metadata: &ObjectMeta, is_paused: bool) {
        let name = metadata.name.clone().unwrap_or_default();
        let record = pause::record_on(metadata);
        let requeue = pause::requeue_state_on(metadata);
        let state = OwnerState { at: Timestamp::now(), is_paused, record, requeue };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let states = seen.owners.entry(name.clone()).or_default();
        let is_new = states.last().is_none_or(|last| {
            (last.is_paused, &last.record, last.requeue) != (is_paused, &state.record, requeue)
        });
        if is_new {
            let reason = state.record.as_ref().map(|record| (&record.reason, record.at));
            let end = metadata.annotations.as_ref().and_then(|all| all.get(keys::EXPIRES_AT_ANNOTATION));
            self.diary
                .note(format!("seen: {name}: paused {is_paused}, {reason:?}, {requeue:?}, ends {end:?}"));
            states.push(state);
        }
    }

    /// Takes in a pod. The first end that is seen stays.
    fn pod(&self, pod: &Pod, is_gone: bool) {
        let Some(uid) = pod.uid() else { return };
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut scheduled =
            conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "True");
        let scheduled = scheduled.next().and_then(|condition| condition.last_transition_time.as_ref());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let life = seen.pods.entry(uid).or_insert_with(|| {
            self.diary.note(format!("seen: pod {}", pod.name_any()));
            PodLife {
                app: pod.labels().get("app").cloned().unwrap_or_default(),
                name: pod.name_any(),
                created: pod.creation_timestamp().map(|time| time.0).unwrap_or_default(),
                scheduled: None,
                ended: None,
            }
        });
        life.scheduled = life.scheduled.or(scheduled.map(|time| time.0));
        let ends = is_gone || pod.meta().deletion_timestamp.is_some();
        if ends && life.ended.is_none() {
            life.ended = Some(Timestamp::now());
            self.diary.note(format!("seen: pod {} ends", life.name));
        }
    }

    /// Takes in an event of a keeper.
    fn event(&self, event: &Event) {
        let Some(uid) = event.uid() else { return };
        if event.reporting_controller.as_deref() != Some("tenure.dev/keeper") {
            return;
        }
        let reason = event.reason.clone().unwrap_or_default();
        let name = event.regarding.as_ref().and_then(|object| object.name.clone()).unwrap_or_default();
        let message = event.note.clone().unwrap_or_default();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.events.insert(uid, (reason.clone(), name.clone(), message)).is_none() {
            self.diary.note(format!("seen: event {reason} of {name}"));
        }
    }
}
