//! What is said of a workload.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use tenure_policy::{
    expiry::{Exemption, Family},
    floor::Floors,
    owners::group_of,
    requeue::Waiting,
    tree::QueueTree,
};

use super::pause::Pause;
use crate::run::Run;

/// How a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// No pod of it was scheduled.
    Pending,
    Running,
    /// Its ceiling is exceeded, and it wasn't paused yet.
    Expired,
    /// Tenure has paused it, until somebody resumes it.
    Paused,
    /// It is paused, and comes back by itself.
    Requeueing,
    /// It was deactivated: it is paused until somebody activates it.
    Inactive,
    /// No ceiling applies, whatever its queue says.
    Exempt,
    /// It is being deleted.
    Terminating,
    /// It isn't there any more, or in no queue any more.
    Gone,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Expired => "Expired",
            Self::Paused => "Paused",
            Self::Requeueing => "Requeueing",
            Self::Inactive => "Inactive",
            Self::Exempt => "Exempt",
            Self::Terminating => "Terminating",
            Self::Gone => "Gone",
        }
    }
}

/// The family of a queue, as people and programs are told of it.
const fn name_of_family(family: Family) -> &'static str {
    match family {
        Family::Tensorstack => "tensorstack",
        Family::Runai => "run.ai",
    }
}

/// A workload, as people and programs are told of it. Times are exact.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub namespace: String,
    /// `deployment/test`, `pytorchjob.kubeflow.org/test`: as kubectl takes it.
    pub workload: String,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The family of the queue: `run.ai` or `tensorstack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<&'static str>,
    pub state: State,
    /// Why it is paused or exempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// When it comes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Timestamp>,
    /// How often it was paused because its pods didn't get ready, since it was last activated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_count: Option<u32>,
    /// Since when the ceiling counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The queue, or the annotation, that the ceiling comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_from: Option<String>,
    pub pods: usize,
    /// How many of its pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_pods: Option<usize>,
    /// How many of them it takes to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_pods: Option<usize>,
    /// Its place among others that come back, in queues of this family.
    #[serde(skip)]
    pub waiting: Option<(Family, Waiting)>,
    /// A pod may be in a queue of each family.
    #[serde(skip)]
    pub other_queue: Option<String>,
}

/// What tells workloads apart.
pub type Key = (String, String);

impl Row {
    pub fn key(&self) -> Key {
        (self.namespace.clone(), self.workload.clone())
    }

    /// Whether it is in any of these queues.
    pub fn is_in(&self, queues: &[String]) -> bool {
        [&self.queue, &self.other_queue].into_iter().flatten().any(|queue| queues.contains(queue))
    }
}

/// An owner that can be paused or a pod by itself, with all that is known of it.
#[derive(Debug)]
pub struct Workload {
    namespace: String,
    reference: OwnerReference,
    /// Of its pods that are in a queue.
    run: Option<Run>,
    ready: usize,
    needed: usize,
    /// The groups whose minimum is part of what is needed.
    groups: BTreeSet<usize>,
    pub pause: Option<Pause>,
    pub terminating: bool,
}

impl Workload {
    pub fn new(namespace: &str, reference: OwnerReference) -> Self {
        Self {
            namespace: namespace.to_owned(),
            reference,
            run: None,
            ready: 0,
            needed: 0,
            groups: BTreeSet::new(),
            pause: None,
            terminating: false,
        }
    }

    /// Takes one more pod: its run, whether it is ready, and its group, if it is in one, with how many it takes.
    pub fn add(&mut self, run: Run, ready: bool, group: Option<(usize, usize)>) {
        self.ready = self.ready.saturating_add(usize::from(ready));
        let needed = match group {
            Some((number, needed)) => needed.saturating_mul(usize::from(self.groups.insert(number))),
            None => 1,
        };
        self.needed = self.needed.saturating_add(needed);
        self.run = Some(match self.run.take() {
            Some(others) => others.with(run),
            None => run,
        });
    }

    /// None if there is nothing to say.
    pub fn row(self, tree: &QueueTree, floors: &Floors, now: Timestamp) -> Option<Row> {
        let Self { namespace, reference, run, ready, needed, groups: _, pause, terminating } = self;
        let row = Row {
            namespace,
            workload: name_of(&reference),
            api_version: reference.api_version,
            kind: reference.kind,
            name: reference.name,
            queue: None,
            family: None,
            state: State::Paused,
            reason: None,
            paused_at: None,
            requeue_at: None,
            requeue_count: None,
            started_at: None,
            floor_until: None,
            expires_at: None,
            ceiling_from: None,
            pods: run.as_ref().map_or(0, |run| run.pods),
            ready_pods: None,
            needed_pods: None,
            waiting: None,
            other_queue: None,
        };
        if let Some(pause) = pause.filter(|pause| pause.is_of(run.as_ref())) {
            return Some(paused(row, pause));
        }
        let row = Row { ready_pods: Some(ready), needed_pods: Some(needed), ..row };
        let run = run?;
        let floor_until = floor(&run, tree, floors).filter(|until| *until > now);
        Some(running(Row { floor_until, ..row }, &run, terminating, tree, now))
    }
}

fn paused(row: Row, pause: Pause) -> Row {
    let waiting = pause.waiting(format!("{}/{}", row.namespace, row.name));
    let (state, requeue_at, count) = (pause.workload(), pause.requeue_at(), pause.state.count);
    let row = Row { state, requeue_at, requeue_count: (count > 0).then_some(count), waiting, ..row };
    match pause.record {
        Some(record) => Row {
            family: record.queue_group.as_deref().and_then(Family::of).map(name_of_family),
            queue: Some(record.queue).filter(|queue| !queue.is_empty()),
            reason: Some(record.reason),
            paused_at: Some(record.at),
            ..row
        },
        None => Row { reason: Some("UnreadableRecord".into()), ..row },
    }
}

fn running(row: Row, run: &Run, terminating: bool, tree: &QueueTree, now: Timestamp) -> Row {
    let other = match run.family {
        Family::Tensorstack => &run.runai,
        Family::Runai => &run.tensorstack,
    };
    let text = |name: &Arc<str>| name.as_ref().to_owned();
    let ceiling = run.ceiling(tree);
    Row {
        queue: run.queue().map(text),
        other_queue: other.as_ref().map(text),
        family: Some(name_of_family(run.family)),
        state: state(run, terminating, now),
        reason: run.exemption.map(|why| reason(why).to_owned()),
        started_at: run.since(),
        expires_at: run.expires,
        ceiling_from: ceiling.filter(|_| run.exemption.is_none()).map(|(_, from)| from.to_string()),
        ..row
    }
}

fn state(run: &Run, terminating: bool, now: Timestamp) -> State {
    if terminating {
        State::Terminating
    } else if run.exemption.is_some() {
        State::Exempt
    } else if run.expires.is_some_and(|at| at < now) {
        State::Expired
    } else if run.started.is_none() {
        State::Pending
    } else {
        State::Running
    }
}

const fn reason(why: Exemption) -> &'static str {
    match why {
        Exemption::Priority => "Priority",
        Exemption::DaemonSet => "DaemonSet",
        Exemption::Mirror => "StaticPod",
        Exemption::Terminating => "Terminating",
        Exemption::Finished => "Finished",
        Exemption::Scheduler => "Scheduler",
    }
}

/// When it is safe from nobody any more: how long it is safe from workloads of other queues depends on where they are.
fn floor(run: &Run, tree: &QueueTree, floors: &Floors) -> Option<Timestamp> {
    let floor = floors.longest(tree, tree.find(run.runai.as_deref()?));
    run.start?.checked_add(floor.to_signed()).ok()
}

/// Kinds of other groups than Kubernetes' own have namesakes.
fn name_of(reference: &OwnerReference) -> String {
    let (kind, name) = (reference.kind.to_lowercase(), &reference.name);
    match group_of(&reference.api_version) {
        "" | "apps" | "batch" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}
