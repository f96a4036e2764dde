//! The row of a workload, for people and programs.
//!
//! A row is made by `view` from pods and records. Its JSON names are read by users' programs and by
//! the page of `ui`: renaming a field breaks them.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use tenure_index::Uid;
use tenure_policy::{
    expiry::{Family, PerFamily},
    naming::group_of,
    pause::{self, Return, UnfollowedRecord},
    requeue::WaitingWorkload,
    tree::QueueTree,
};
use tenure_types::{
    keys::MAX_DURATION_ANNOTATION,
    paused::{PausedRecord, RequeueState},
};

use crate::{run::WorkloadRun, snapshot::Snapshot};

/// The state of a workload. The names are those of the column STATE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum WorkloadState {
    /// None of its pods was scheduled.
    Pending,
    Running,
    /// The end of its run has passed, and it hasn't been paused yet.
    Expired,
    /// Tenure has paused the workload until a user resumes it.
    #[default]
    Paused,
    /// The workload is paused, and comes back by itself.
    Requeueing,
    /// The workload was deactivated: it is paused until a user activates it.
    Inactive,
    /// No ceiling applies, even if the queue has one.
    Exempt,
    /// The owner to be paused is being deleted.
    Terminating,
    /// The workload no longer exists, or is no longer in a queue.
    Gone,
}

/// A workload, for people and programs. Times aren't rounded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    pub namespace: String,
    /// Kind and name as kubectl takes them: `deployment/test`, `pytorchjob.kubeflow.org/test`.
    pub workload: String,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// The name of its Workload of Kueue, if that was paused in place of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue_workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The family of the queue: `run.ai` or `t9k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<&'static str>,
    pub state: WorkloadState,
    /// The reason of the pause or of the exemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Timestamp>,
    /// The number of pauses because pods didn't get ready, since the workload was last activated.
    /// None: no such pause, or the workload isn't paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_count: Option<u32>,
    /// The time from which the ceiling counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_until: Option<Timestamp>,
    /// The end of the run. None: no ceiling applies yet, or the end isn't known because the queue
    /// is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// True if the user may not read the queue. Floor and ceiling aren't known then; the end is
    /// known only if the workload's object shows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub queue_is_hidden: bool,
    /// The queue that sets the ceiling, or the annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_from: Option<String>,
    pub pods: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_pods: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_pods: Option<usize>,
    /// The number of GPUs that its pods request. None: none, or the pods' requests weren't read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    /// The place of a paused workload among those that come back to queues of this family. None: it
    /// doesn't come back.
    #[serde(skip)]
    pub waiting: Option<(Family, WaitingWorkload)>,
    /// The queue of the other family. A pod may be in a queue of each.
    #[serde(skip)]
    pub other_queue: Option<String>,
}

/// The key of a workload: the namespace, and kind and name as in `WorkloadRow::workload`.
pub type WorkloadKey = (String, String);

impl WorkloadRow {
    /// Returns the key by which a watch compares rows.
    pub fn key(&self) -> WorkloadKey {
        (self.namespace.clone(), self.workload.clone())
    }

    /// True if the workload is in one of these queues.
    pub fn is_in(&self, queues: &[String]) -> bool {
        [&self.queue, &self.other_queue].into_iter().flatten().any(|queue| queues.contains(queue))
    }
}

/// The record on an object, and the object's metadata.
#[derive(Debug)]
pub struct ListedPause {
    pub metadata: ObjectMeta,
    pub record: Result<PausedRecord, UnfollowedRecord>,
}

/// An owner that can be paused, or a pod without one, with all that is known about it.
#[derive(Debug, Default)]
pub struct WorkloadSummary {
    namespace: String,
    reference: OwnerReference,
    /// The run of its pods that are in a queue. None: it has no such pod.
    run: Option<WorkloadRun>,
    /// The number of ready pods.
    ready: usize,
    /// The number of pods that its groups and single pods need.
    needed: usize,
    /// The groups and single pods that `needed` counts already.
    units: HashSet<Uid>,
    /// The record of its pause. None: there is no record.
    pub pause: Option<ListedPause>,
    /// The name of its Workload of Kueue, if that has the record.
    pub of_kueue: Option<String>,
    /// True if the owner is being deleted.
    pub terminating: bool,
    /// The number of GPUs that its pods request. None: the requests weren't read.
    pub gpus: Option<i64>,
    /// The end of the run that its object shows.
    pub shown_end: Option<Timestamp>,
}

impl WorkloadSummary {
    /// Returns a workload without pods.
    pub fn new(namespace: &str, reference: OwnerReference) -> Self {
        Self { namespace: namespace.to_owned(), reference, ..Self::default() }
    }

    /// Adds a pod: its run, true if it is ready, and its group (or the pod itself) with the number
    /// of pods that the group needs.
    pub fn add(&mut self, run: WorkloadRun, ready: bool, (unit, needed): (Uid, usize)) {
        self.ready = self.ready.saturating_add(usize::from(ready));
        if self.units.insert(unit) {
            self.needed = self.needed.saturating_add(needed);
        }
        self.run = Some(match self.run.take() {
            Some(others) => others.with(run),
            None => run,
        });
    }

    /// Returns the row. None: the workload neither runs nor is paused.
    pub fn row(self, known: &Snapshot, now: Timestamp) -> Option<WorkloadRow> {
        let Self { namespace, reference, run, ready, needed, units: _, pause, .. } = self;
        let (trees, floors) = (known.index.trees(), &known.floors);
        let tree = trees[Family::Runai];
        let row = WorkloadRow {
            namespace,
            workload: name_of(&reference.api_version, &reference.kind, &reference.name),
            api_version: reference.api_version,
            kind: reference.kind,
            name: reference.name,
            pods: run.as_ref().map_or(0, |run| run.pods),
            gpus: self.gpus,
            ..WorkloadRow::default()
        };
        if let Some(ListedPause { metadata, record }) = pause {
            // younger pods show that the pause was undone
            let holds = |run: &WorkloadRun| record.as_ref().is_ok_and(|record| run.created_last <= record.at);
            if run.as_ref().is_none_or(holds) {
                return Some(WorkloadRow { kueue_workload: self.of_kueue, ..paused(row, &metadata, record) });
            }
        }
        let row = WorkloadRow { ready_pods: Some(ready), needed_pods: Some(needed), ..row };
        let run = run?.showing(known.shown_end(self.shown_end, now));
        // the end of the last protection: against other queues, the floor depends on the place of
        // both in the tree
        let floor =
            run.standing.queue(Family::Runai).map(|queue| floors.longest(tree, tree.find(queue)).to_signed());
        let floor_until =
            run.standing.start.zip(floor).and_then(|(start, floor)| start.checked_add(floor).ok());
        let floor_until = floor_until.filter(|until| *until > now);
        Some(running(WorkloadRow { floor_until, ..row }, &run, self.terminating, trees, now))
    }
}

/// Returns the row of an object that has the record of a pause. By a record that Tenure doesn't
/// follow, nothing comes back.
fn paused(
    row: WorkloadRow,
    metadata: &ObjectMeta,
    record: Result<PausedRecord, UnfollowedRecord>,
) -> WorkloadRow {
    let RequeueState { count, priority, .. } = pause::requeue_state_on(metadata);
    let requeue_count = (count > 0).then_some(count);
    let is_inactive = pause::is_inactive(metadata);
    let stays = if is_inactive { WorkloadState::Inactive } else { WorkloadState::Paused };
    let (returns, record) = match record {
        Ok(record) => (Return::of(&record, metadata), record),
        Err(UnfollowedRecord::Field(record)) => {
            (Return::Never, PausedRecord { reason: "UnknownField".into(), ..*record })
        }
        Err(UnfollowedRecord::Unreadable | UnfollowedRecord::Copied) => {
            let reason = Some("UnreadableRecord".into());
            return WorkloadRow { state: stays, requeue_count, reason, ..row };
        }
    };
    let (state, requeue_at) = match returns {
        Return::Requeue(at) => (WorkloadState::Requeueing, Some(at)),
        Return::Reactivate => (WorkloadState::Requeueing, None),
        Return::Never | Return::Deactivate => (stays, None),
    };
    let family = record.queue_group.as_deref().and_then(Family::of);
    let waiting = WaitingWorkload {
        priority: priority.unwrap_or(0),
        created: metadata.creation_timestamp.as_ref().map_or(record.at, |time| time.0),
        paused: record.at,
        name: format!("{}/{}", row.namespace, row.name),
    };
    WorkloadRow {
        state,
        requeue_at,
        requeue_count,
        waiting: (state == WorkloadState::Requeueing).then_some((family.unwrap_or(Family::Runai), waiting)),
        family: family.map(|family| family.row().name),
        queue: Some(record.queue).filter(|queue| !queue.is_empty()),
        reason: Some(record.reason),
        paused_at: Some(record.at),
        ..row
    }
}

/// Returns the row of a workload that has pods in a queue.
fn running(
    row: WorkloadRow,
    run: &WorkloadRun,
    terminating: bool,
    trees: PerFamily<&QueueTree>,
    now: Timestamp,
) -> WorkloadRow {
    let family = run.family();
    let other = Family::ALL.into_iter().find(|other| *other != family);
    let ceiling = run.ceiling(trees).filter(|_| run.exemption.is_none());
    WorkloadRow {
        queue: run.standing.queue(family).map(ToString::to_string),
        other_queue: other.and_then(|other| run.standing.queue(other)).map(ToString::to_string),
        family: Some(family.row().name),
        state: state(run, terminating, now),
        reason: run.exemption.map(|why| format!("{why:?}")),
        started_at: run.since(),
        expires_at: run.expires(),
        queue_is_hidden: run.queues_are_hidden,
        ceiling_from: ceiling.map(|(_, queue)| queue.unwrap_or(MAX_DURATION_ANNOTATION).to_owned()),
        ..row
    }
}

/// Returns the state of a workload that has pods in a queue.
fn state(run: &WorkloadRun, terminating: bool, now: Timestamp) -> WorkloadState {
    if terminating {
        WorkloadState::Terminating
    } else if run.exemption.is_some() {
        WorkloadState::Exempt
    } else if run.expires().is_some_and(|at| at < now) {
        WorkloadState::Expired
    } else if run.standing.clocks.started.is_none() {
        WorkloadState::Pending
    } else {
        WorkloadState::Running
    }
}

/// Returns kind and name as kubectl takes them. The group is named for kinds outside core, apps and
/// batch, which may have namesakes.
pub fn name_of(api_version: &str, kind: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    match group_of(api_version) {
        "" | "apps" | "batch" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}
