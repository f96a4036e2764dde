//! Acts on pods that have expired or will expire: on their topmost owner, or on the pod itself.

mod announce;
mod basis;
mod conflicts;
mod delete;
mod exempt;
mod extended;
mod failure;
mod own;
mod pause;
mod target;
mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde_json::Value;
use tenure_index::{BatchCoverage, DueBatch, DuePod, Task, Uid};
use tenure_policy::{
    expiry::{Scope, exemption},
    naming::{of_pod, reference},
    pause::{Alone, ResumeCondition},
    ready::Readiness,
};
use tenure_service::{call::ApiError, clock::ServerClock};
use tenure_types::{
    podgroup::PodGroupKind,
    projection::{Pod, WholeObject},
};

pub use conflicts::Conflicts;
pub use exempt::ExemptOwners;
pub use extended::ListedExtensions;
pub use failure::{Failure, LATE_AFTER};
pub use pause::told_of_pause;

use crate::{
    api::ObjectClient,
    cluster::ClusterState,
    config::Current,
    events::{EventCause, EventQueue, EventRecord},
    gate::FreshnessGate,
    ledger::UsageBook,
    limit::WriteLimit,
    pod_notices::ToldWorkloads,
    queues::QueueReader,
};

/// After so many tries, some five minutes, the pod itself is deleted: its owners are held in deletion, can't be read or
/// paused, are set back, or don't stop it.
const TRIES: u8 = 9;

/// After so many tries, an owner of a kind that can't be paused ends the chain if it can't be read: any user may name one in
/// an API that is broken.
const READING_TRIES: u8 = 3;

/// The most pods exempt by priority that are looked at before an owner is paused. Any tenant may make more.
const EXEMPT_PODS: usize = 64;

/// Pauses owners, deletes pods, and announces the end of runs.
pub struct Pauser {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub objects: ObjectClient,
    pub queues: QueueReader,
    pub gate: FreshnessGate,
    pub limit: WriteLimit,
    pub config: Current,
    pub scope: Scope,
    /// Events that are written before an act.
    pub events: EventQueue,
    /// True to decide everything, and to write only events.
    pub dry_run: bool,
    /// The ledger of usage, which is told which pods are ended.
    pub usage: UsageBook,
    /// For announcements, apart from the limit of pauses: they must not wait for each other.
    pub announcements: Arc<WriteLimit>,
    /// The workloads whose pods are to show the end of their run.
    pub told: ToldWorkloads,
    /// The owners of pods that are exempt by priority.
    pub exempt_owners: Mutex<ExemptOwners>,
    /// The extensions of namespaces, as they were a moment ago.
    pub extensions: Mutex<ListedExtensions>,
}

/// The result of an action, with the events to write about it.
pub struct Done {
    pub result: ActionResult,
    pub events: Vec<EventRecord>,
    pub served: BatchCoverage,
}

/// The action that was taken.
pub enum ActionResult {
    /// This owner was paused, and so often its earlier pauses were reversed.
    Paused { owner: OwnerReference, reversals: u32, until: ResumeCondition },
    /// The pod was deleted.
    Deleted,
    /// This owner was deleted, in place of a pause.
    OwnerDeleted(OwnerReference),
    /// The end of the run was announced on the workload, or withdrawn.
    Announced { owner: OwnerReference, end: Timestamp },
    /// Nothing, ever: its controller exempts it.
    Exempt,
    /// Nothing: its run was granted more time.
    Extended,
    /// Nothing: its owner is paused.
    PausedBefore,
    /// Nothing yet: the API server's clock was set back.
    TooEarly,
    /// Nothing yet: its basis may be out of date, for this reason.
    PutOff(&'static str),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

impl Done {
    const fn nothing(why: &'static str, served: BatchCoverage) -> Self {
        Self::without_events(ActionResult::Nothing(why), served)
    }

    const fn extended() -> Self {
        Self::without_events(ActionResult::Extended, BatchCoverage::All)
    }

    const fn without_events(result: ActionResult, served: BatchCoverage) -> Self {
        Self { result, events: Vec::new(), served }
    }
}

/// The object to act on.
enum Target {
    /// The last of these owners; if that doesn't stop the pod, the one before.
    Owners(Vec<OwnerReference>),
    /// The pod itself.
    Pod(Alone),
    Nothing(&'static str),
    /// Nothing, as long as its controller is the same.
    Exempt,
}

impl Pauser {
    /// Acts on a group.
    pub async fn act(&self, group: &DueBatch) -> Result<Done, Failure> {
        let due = &group.first;
        if group.task == Task::Announce && due.deadline <= self.clock.now() {
            return Ok(Done::nothing("its run has ended", BatchCoverage::All));
        }
        let Some(pod) = self.still_there(due).await? else {
            return Ok(Done::nothing("the pod is gone or exempt", BatchCoverage::Gone));
        };
        if group.task == Task::Evict && is_ready_by_itself(&pod) {
            return Ok(Done::nothing("the pod is ready by now", BatchCoverage::First));
        }
        if let Some(done) = self.held_back(group.task, due) {
            return Ok(done);
        }
        if let Some(done) = self.outdated(group.task, due, &pod).await? {
            return Ok(done);
        }
        // a change in between must not part the climb from the pause
        let config = self.config.get();
        match (group.task, self.target(group.task, due, &pod, &config).await?) {
            (_, Target::Nothing(why)) => Ok(Done::nothing(why, BatchCoverage::All)),
            (_, Target::Exempt) => Ok(Done::without_events(ActionResult::Exempt, BatchCoverage::First)),
            (task @ (Task::Expire | Task::Evict), Target::Owners(owners)) => {
                self.pause(task, due, owners, &pod, &config).await
            }
            (task @ (Task::Expire | Task::Evict), Target::Pod(alone)) => {
                self.delete(task, due, &pod, &alone).await
            }
            (Task::Announce | Task::Withdraw, Target::Owners(mut owners)) => {
                let owner = owners.pop().unwrap_or_else(|| of_pod(&pod));
                Ok(self.announce(group, &owner, BatchCoverage::All, &config).await?)
            }
            (Task::Announce | Task::Withdraw, Target::Pod(_)) => {
                let alone = DueBatch { rest: Vec::new(), ..group.clone() };
                Ok(self.announce(&alone, &of_pod(&pod), BatchCoverage::First, &config).await?)
            }
        }
    }

    /// The pod as it is now, if it is still the one that is meant.
    async fn still_there(&self, due: &DuePod) -> Result<Option<Pod>, ApiError> {
        match self.objects.pod(&due.namespace, &due.name).await {
            Ok(pod) => {
                let same = pod.metadata.uid.as_deref().is_some_and(|uid| Uid::of(uid) == due.uid);
                Ok(Some(pod).filter(|pod| same && exemption(pod, &self.scope).is_none()))
            }
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// True if all tries have been made.
fn is_last(task: Task, due: &DuePod) -> bool {
    matches!(task, Task::Expire | Task::Evict) && due.attempts >= TRIES
}

/// True if a pod is ready and a workload by itself: other workloads need more than one ready pod.
fn is_ready_by_itself(pod: &Pod) -> bool {
    let is_grouped = PodGroupKind::ALL.into_iter().any(|kind| kind.named_by(pod).is_some());
    !is_grouped && Readiness::of(pod) == Readiness::Ready
}

fn json(object: &WholeObject) -> Value {
    object.value.clone()
}

/// Returns the cause of an act on a pod, or on its owner.
fn cause(due: &DuePod, pod: &Pod) -> EventCause {
    let pod = reference(&of_pod(pod), Some(&due.namespace));
    EventCause { pod: Some(pod), queue: due.queue.clone() }
}

#[cfg(test)]
mod tests;
