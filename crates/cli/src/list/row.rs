//! The row of a workload.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use tenure_index::Uid;
use tenure_policy::{
    expiry::{Family, PerFamily},
    naming::group_of,
    pause::{self, Return},
    requeue::Waiting,
    tree::QueueTree,
};
use tenure_types::{
    keys::MAX_DURATION_ANNOTATION,
    paused::{PausedRecord, RequeueState},
};

use crate::{run::Run, snapshot::Snapshot};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum WorkloadState {
    /// No pod of it was scheduled.
    Pending,
    Running,
    /// Its ceiling is exceeded, and it wasn't paused yet.
    Expired,
    /// Tenure has paused it, until it is resumed.
    #[default]
    Paused,
    /// It is paused, and comes back by itself.
    Requeueing,
    /// It was deactivated: it is paused until it is activated.
    Inactive,
    /// No ceiling applies, even if its queue has one.
    Exempt,
    Terminating,
    /// It isn't there any more, or in no queue any more.
    Gone,
}

/// A workload, for people and programs. Times are exact.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub namespace: String,
    /// `deployment/test`, `pytorchjob.kubeflow.org/test`: as kubectl takes it.
    pub workload: String,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// The name of its Workload of Kueue's, if that was paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue_workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The family of the queue: `run.ai` or `t9k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<&'static str>,
    pub state: WorkloadState,
    /// Why it is paused or exempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Timestamp>,
    /// The number of pauses because its pods didn't get ready, since it was last activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_count: Option<u32>,
    /// The time from which the ceiling counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_until: Option<Timestamp>,
    /// Without one, and if its queue isn't hidden, no ceiling applies yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// True if its queue may not be read: then its floor and its ceiling aren't known, nor its end if its object shows none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub queue_is_hidden: bool,
    /// The queue, or the annotation, that the ceiling comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_from: Option<String>,
    pub pods: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_pods: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_pods: Option<usize>,
    /// The GPUs that its pods request, where this was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    /// Its place among others that come back, in queues of this family.
    #[serde(skip)]
    pub waiting: Option<(Family, Waiting)>,
    /// A pod may be in a queue of each family.
    #[serde(skip)]
    pub other_queue: Option<String>,
}

/// The key of a workload: its namespace, and its kind and name.
pub type WorkloadKey = (String, String);

impl Row {
    pub fn key(&self) -> WorkloadKey {
        (self.namespace.clone(), self.workload.clone())
    }

    pub fn is_in(&self, queues: &[String]) -> bool {
        [&self.queue, &self.other_queue].into_iter().flatten().any(|queue| queues.contains(queue))
    }
}

/// An owner that can be paused or a pod by itself, with all that is known of it.
#[derive(Debug, Default)]
pub struct WorkloadSummary {
    namespace: String,
    reference: OwnerReference,
    /// The run of its pods that are in a queue.
    run: Option<Run>,
    ready: usize,
    needed: usize,
    /// The groups and single pods whose needs are counted in `needed`.
    units: HashSet<Uid>,
    /// Its metadata, if it has the record of a pause.
    pub pause: Option<ObjectMeta>,
    /// The name of its Workload of Kueue's, if that has the record.
    pub of_kueue: Option<String>,
    pub terminating: bool,
    /// The GPUs that its pods request, where this is known.
    pub gpus: Option<i64>,
    /// The end of its run that its object shows.
    pub shown_end: Option<Timestamp>,
}

impl WorkloadSummary {
    pub fn new(namespace: &str, reference: OwnerReference) -> Self {
        Self { namespace: namespace.to_owned(), reference, ..Self::default() }
    }

    /// Adds a pod: its run, whether it is ready, and its group (or the pod itself) with the number of pods needed.
    pub fn add(&mut self, run: Run, ready: bool, (unit, needed): (Uid, usize)) {
        self.ready = self.ready.saturating_add(usize::from(ready));
        if self.units.insert(unit) {
            self.needed = self.needed.saturating_add(needed);
        }
        self.run = Some(match self.run.take() {
            Some(others) => others.with(run),
            None => run,
        });
    }

    /// Returns the row; none if the workload neither runs nor is paused.
    pub fn row(self, known: &Snapshot, now: Timestamp) -> Option<Row> {
        let Self { namespace, reference, run, ready, needed, units: _, pause, .. } = self;
        let (trees, floors) = (known.index.trees(), &known.floors);
        let tree = trees[Family::Runai];
        let row = Row {
            namespace,
            workload: name_of(&reference.api_version, &reference.kind, &reference.name),
            api_version: reference.api_version,
            kind: reference.kind,
            name: reference.name,
            pods: run.as_ref().map_or(0, |run| run.pods),
            gpus: self.gpus,
            ..Row::default()
        };
        if let Some(metadata) = pause {
            let record = pause::record_on(&metadata);
            // younger pods show that the pause was reversed
            let is_over = |run: &Run| record.as_ref().is_none_or(|record| run.created_last > record.at);
            if !run.as_ref().is_some_and(is_over) {
                return Some(Row { kueue_workload: self.of_kueue, ..paused(row, &metadata, record) });
            }
        }
        let row = Row { ready_pods: Some(ready), needed_pods: Some(needed), ..row };
        let run = run?.showing(known.shown_end(self.shown_end, now));
        // the end of its last protection: against other queues, the floor depends on their place in the tree
        let floor =
            run.standing.queue(Family::Runai).map(|queue| floors.longest(tree, tree.find(queue)).to_signed());
        let floor_until =
            run.standing.start.zip(floor).and_then(|(start, floor)| start.checked_add(floor).ok());
        let floor_until = floor_until.filter(|until| *until > now);
        Some(running(Row { floor_until, ..row }, &run, self.terminating, trees, now))
    }
}

/// Returns the row of an object with a record, or with one that can't be read.
fn paused(row: Row, metadata: &ObjectMeta, record: Option<PausedRecord>) -> Row {
    let RequeueState { count, priority, .. } = pause::requeue_state_on(metadata);
    let requeue_count = (count > 0).then_some(count);
    let is_inactive = pause::is_inactive(metadata);
    let stays = if is_inactive { WorkloadState::Inactive } else { WorkloadState::Paused };
    let Some(record) = record else {
        return Row { state: stays, requeue_count, reason: Some("UnreadableRecord".into()), ..row };
    };
    let (state, requeue_at) = match Return::of(&record, metadata) {
        Return::Requeue(at) => (WorkloadState::Requeueing, Some(at)),
        Return::Reactivate => (WorkloadState::Requeueing, None),
        Return::Never | Return::Deactivate => (stays, None),
    };
    let family = record.queue_group.as_deref().and_then(Family::of);
    let waiting = Waiting {
        priority: priority.unwrap_or(0),
        created: metadata.creation_timestamp.as_ref().map_or(record.at, |time| time.0),
        paused: record.at,
        name: format!("{}/{}", row.namespace, row.name),
    };
    Row {
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

fn running(row: Row, run: &Run, terminating: bool, trees: PerFamily<&QueueTree>, now: Timestamp) -> Row {
    let family = run.family();
    let other = Family::ALL.into_iter().find(|other| *other != family);
    let ceiling = run.ceiling(trees).filter(|_| run.exemption.is_none());
    Row {
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

fn state(run: &Run, terminating: bool, now: Timestamp) -> WorkloadState {
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

/// Kinds of other groups than Kubernetes' own have namesakes.
pub fn name_of(api_version: &str, kind: &str, name: &str) -> String {
    let kind = kind.to_lowercase();
    match group_of(api_version) {
        "" | "apps" | "batch" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}
