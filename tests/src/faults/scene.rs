//! The script of a plan: queues with short ceilings and workloads in them, and what people do while
//! the fault lasts.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{UNREADY, eventually};

use super::{
    Diary,
    draw::Draw,
    observer::{Observer, PodLife, Seen},
    servers::PLAN_LABEL,
};
use crate::{
    DEADLINE, World, fixtures,
    workloads::{Namespace, bare_pod, distinct, in_queue, in_runai_queue, queue, runai_queue, workload},
};

/// The seconds from a change of people until the workloads that it saves would have been paused.
const AFTER_CHANGE: i64 = 10;

/// The seconds that unready pods get.
pub(super) const READY_TIMEOUT: i64 = 4;
/// The seconds until the Job of unready pods comes back.
pub(super) const BACKOFF: i64 = 3;

/// The seconds of notice before the end of a run.
const NOTICE: i64 = 4;

/// The seconds for which a run goes on that a change of its queue has made overdue.
pub(super) const GRACE_ON_CHANGE: i64 = 16;

/// The fate that the script has in store for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Paused this number of times: the workload exceeds its ceiling, and a person resumes it in
    /// between.
    Paused(usize),
    /// Not ready in time: the workload comes back once, and is deactivated.
    Requeued,
    /// Deleted: the pod has no owner.
    Deleted,
    /// Saved from its ceiling by a person.
    Saved,
    /// Left alone: no ceiling applies.
    Untouched,
}

/// A workload of the script. Its pods have its name in label `app`.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub name: &'static str,
    pub kind: &'static str,
    pub fate: Fate,
    /// The seconds from the beginning of a run to its end. Zero: no ceiling applies.
    pub ceiling: i64,
    /// The beginning from which the ceiling counts.
    pub clock: CeilingClock,
    /// True if its queue gives notice.
    pub is_notified: bool,
}

/// The beginning of a pod's run for its ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CeilingClock {
    /// The pod's creation, in the tensorstack family.
    Created,
    /// The pod's scheduling or later, in the run.ai family.
    Scheduled,
    /// The change of its queue by a person, which makes the run overdue.
    Changed,
}

/// The script in a namespace of its own.
pub(super) struct Scene {
    pub namespace: Namespace,
    pub actors: Vec<Actor>,
    /// The time at which the workloads were created. Until then: the creation of the scene.
    pub begun: Timestamp,
    /// The time from the beginning to the changes of people.
    change_after: Duration,
    diary: Diary,
}

impl Scene {
    /// Creates the namespace, and draws the ceilings and times. `fault_at` is the time at which the
    /// first fault begins: the changes of people come soon after.
    pub async fn new(
        world: &World,
        name: &str,
        draw: &mut Draw,
        fault_at: Duration,
        diary: &Diary,
    ) -> Result<Self> {
        world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(world.cluster.client()?, name);
        eventually("the default service account", DEADLINE, async || Ok(accounts.get_opt("default").await?))
            .await?;
        let ceiling = i64::try_from(4 + draw.below(7))?;
        let change_after = fault_at + draw.between(700, 1_500);
        let saved = i64::try_from(change_after.as_secs())? + AFTER_CHANGE;
        let actor =
            |name, kind, fate, ceiling, clock| Actor { name, kind, fate, ceiling, clock, is_notified: false };
        let (created, scheduled) = (CeilingClock::Created, CeilingClock::Scheduled);
        let actors = vec![
            actor("plain", "Deployment", Fate::Paused(2), ceiling, created),
            actor("batch", "Job", Fate::Paused(1), ceiling, created),
            Actor { is_notified: true, ..actor("told", "Deployment", Fate::Paused(1), ceiling + 3, created) },
            Actor {
                is_notified: true,
                ..actor("shortened", "Deployment", Fate::Paused(1), GRACE_ON_CHANGE, CeilingClock::Changed)
            },
            actor("alone", "Pod", Fate::Deleted, ceiling, created),
            actor("gang-0", "Pod", Fate::Deleted, ceiling, scheduled),
            actor("gang-1", "Pod", Fate::Deleted, ceiling, scheduled),
            actor("unready", "Job", Fate::Requeued, READY_TIMEOUT, scheduled),
            actor("lengthened", "Deployment", Fate::Saved, saved, created),
            actor("unqueued", "Deployment", Fate::Saved, saved, created),
            actor("relabelled", "Pod", Fate::Saved, saved, created),
            actor("bystander", "Deployment", Fate::Untouched, 0, created),
        ];
        let namespace = Namespace::of(world, name);
        Ok(Self { namespace, actors, begun: Timestamp::now(), change_after, diary: diary.clone() })
    }

    /// Returns the workload of a name.
    pub fn actor(&self, name: &str) -> Option<&Actor> {
        self.actors.iter().find(|actor| actor.name == name)
    }

    /// Creates the queues. Queues of the tensorstack family have the names of their workloads.
    pub async fn create_queues(&self) {
        for actor in
            self.actors.iter().filter(|actor| actor.clock != CeilingClock::Scheduled && actor.ceiling > 0)
        {
            let is_shortened = actor.clock == CeilingClock::Changed;
            let mut queue = self.queue(actor.name, if is_shortened { 3_600 } else { actor.ceiling });
            if actor.is_notified {
                queue["spec"]["expiryNotice"] = json!(format!("{NOTICE}s"));
            }
            self.namespace.create(&queue).await;
        }
        let gang = self.actor("gang-0").map_or(0, |actor| actor.ceiling);
        self.namespace
            .create(&self.labelled(runai_queue(&self.runai("gang"), "", &format!("{gang}s"))))
            .await;
        let mut unready = self.labelled(runai_queue(&self.runai("unready"), "", "1h"));
        let strategy = json!({"backoffBaseSeconds": BACKOFF, "backoffFactor": "1", "backoffLimitCount": 1});
        unready["spec"]["waitForPodsReady"] =
            json!({"timeout": format!("{READY_TIMEOUT}s"), "requeuingStrategy": strategy});
        self.namespace.create(&unready).await;
    }

    /// Returns a queue of the tensorstack family in the plan's namespace.
    fn queue(&self, name: &str, seconds: i64) -> Value {
        let mut queue = queue(name, &format!("{seconds}s"));
        queue["metadata"]["namespace"] = json!(self.namespace.name());
        queue
    }

    /// Returns the name of a cluster-scoped queue of this plan.
    fn runai(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace.name())
    }

    /// Marks a cluster-scoped queue as one of this plan.
    fn labelled(&self, mut queue: Value) -> Value {
        queue["metadata"]["labels"] = json!({PLAN_LABEL: self.namespace.name()});
        queue
    }

    /// Creates the workloads, and begins the time of the plan.
    pub async fn create_workloads(&mut self) {
        let group = json!({"minMember": 2, "queue": self.runai("gang")});
        let namespace = self.namespace.name();
        let group = fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", namespace, "gang", &group);
        self.namespace.create(&group).await;
        for actor in &self.actors {
            self.namespace.create(&self.workload(actor)).await;
        }
        self.begun = Timestamp::now();
        self.diary.note("the workloads are created");
    }

    fn workload(&self, actor: &Actor) -> Value {
        let namespace = self.namespace.name();
        let labels = match actor.name {
            "bystander" => json!({}),
            "gang-0" | "gang-1" => in_runai_queue(&self.runai("gang")),
            "unready" => {
                let mut labels = in_runai_queue(&self.runai("unready"));
                labels[UNREADY] = json!("true");
                labels
            }
            name => in_queue(name),
        };
        let mut object = match actor.kind {
            "Pod" => bare_pod(namespace, actor.name, &labels, &Value::Null),
            kind => workload(kind, namespace, actor.name, &labels, &Value::Null),
        };
        if actor.name.starts_with("gang") {
            object["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
        }
        if actor.kind == "Deployment" {
            object["spec"]["replicas"] = json!(1);
        }
        distinct(object, actor.name)
    }

    /// Acts as people do: lengthens a ceiling, deletes a queue, takes a pod out of its queue,
    /// shortens another ceiling. Returns the time at which all of these changes could be read.
    pub async fn change(&self) -> Result<Timestamp> {
        self.until(self.change_after).await;
        let name = self.namespace.name();
        let found = |object: Value| serde_json::from_value::<DynamicObject>(object).context("an object");
        let lengthened = found(self.queue("lengthened", 0))?;
        self.namespace.patch(&lengthened, &json!({"spec": {"maxDuration": "1h"}})).await;
        self.namespace.delete(&found(self.queue("unqueued", 0))?).await;
        let pod = found(bare_pod(name, "relabelled", &json!({}), &Value::Null))?;
        let labels = json!({"scheduler.tensorstack.dev/queue": null});
        self.namespace.patch(&pod, &json!({"metadata": {"labels": labels}})).await;
        // at last: a loaded machine takes seconds for all of these, and a grace begins with this
        // change
        let shortened = found(self.queue("shortened", 0))?;
        self.namespace.patch(&shortened, &json!({"spec": {"maxDuration": "1s"}})).await;
        let changed = Timestamp::now();
        self.diary.note(
            "a ceiling is shortened, another lengthened, a queue deleted, and a pod taken out of its queue",
        );
        Ok(changed)
    }

    /// Resumes a workload whenever it has stopped, as long as it is to be paused again.
    pub async fn resume(&self, observer: &Observer) -> Result<()> {
        for actor in &self.actors {
            let Fate::Paused(times) = actor.fate else { continue };
            for pause in 1..times {
                let has_stopped = |seen: &Seen| {
                    let runs = |pod: &PodLife| pod.ended.is_none();
                    seen.pauses(actor.name).count() >= pause && !seen.pods(actor.name).any(runs)
                };
                observer.until(has_stopped).await;
                let owner = workload(actor.kind, self.namespace.name(), actor.name, &json!({}), &Value::Null);
                let owner = serde_json::from_value(owner)?;
                self.diary.note(format!("a person resumes {}", actor.name));
                self.namespace.patch(&owner, &json!({"spec": {"replicas": 1}})).await;
            }
        }
        Ok(())
    }

    /// Waits until this time after the beginning.
    pub async fn until(&self, after: Duration) {
        let passed = Timestamp::now().duration_since(self.begun);
        let left = SignedDuration::try_from(after).unwrap_or_default() - passed;
        if let Ok(left) = Duration::try_from(left) {
            tokio::time::sleep(left).await;
        }
    }

    /// Deletes the namespace and the queues, and doesn't wait.
    pub async fn clean_up(&self) -> Result<()> {
        for queue in ["gang", "unready"] {
            let queue = runai_queue(&self.runai(queue), "", "1d");
            self.namespace.delete(&serde_json::from_value(queue)?).await;
        }
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace.name()}});
        self.namespace.delete(&serde_json::from_value(namespace)?).await;
        Ok(())
    }
}
