//! The pods of the past, and the workloads that they belong to.
//!
//! Called by `simulate` for the pods of a cluster and of Prometheus. Pods that the keeper never
//! touches are left out and counted. A namespace stands for the user of its pods.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    num::NonZeroU32,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{Job, JobCondition},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tenure_index::SeenPod;
use tenure_policy::{
    expiry::{Scope, claimed, standing_exemption},
    naming::of_pod,
    usage::{DEFAULT_RESOURCE, PodRun},
};
use tenure_types::{
    projection::{Pod, controller},
    room::{PodWithRoom, RunRequests},
};

use super::{
    past::{Fate, Past, PastRun, Seconds},
    policy::OF_NAMESPACE,
    source::Skipped,
};
use crate::{
    list::{row::name_of, view::ListView},
    snapshot::{ClaimedDevices, NamespacedName},
};

/// The uid of an owner, and the namespace of the objects that name it: any user may name an owner of
/// another namespace.
type OwnerKey = (String, String);

/// Reads pods, and joins the pods of one workload.
#[derive(Default)]
pub struct PastReader {
    past: Past,
    /// The controllers of Jobs that aren't `CronJob`s, by Job.
    owners: HashMap<OwnerKey, OwnerReference>,
    /// The runs whose queues aren't known yet, by the workloads that the pods belong to, each with the
    /// pod's clocks and queues in the index. The user of a run is the namespace.
    pods: BTreeMap<OwnerKey, Vec<(PastRun, Option<SeenPod>)>>,
    /// The Jobs that have at least one pod.
    jobs_with_pods: HashSet<OwnerKey>,
    /// The number of runs of pods that are never touched.
    exempt: usize,
    /// The devices that pods have by claims, and the shared claims that are counted.
    devices: ClaimedDevices,
    shared: HashSet<NamespacedName>,
    has_claims: bool,
    /// The queues, the groups and the owners that pods depend on.
    pub view: ListView,
}

impl PastReader {
    /// Returns a reader that knows the owners of these Jobs: pods of a JobSet's Jobs are then one
    /// workload.
    pub fn new(view: ListView, jobs: &[Job], devices: ClaimedDevices) -> Self {
        let owners = jobs.iter().filter_map(|Job { metadata, .. }| {
            // each Job of a CronJob is a workload of its own
            let owner = controller(metadata).filter(|owner| owner.kind != "CronJob")?;
            Some((key(metadata)?, owner.clone()))
        });
        Self { owners: owners.collect(), devices, view, ..Self::default() }
    }

    /// Adds a pod of a cluster, to the past and to the view.
    pub fn add(&mut self, pod: PodWithRoom) {
        self.has_claims |= !pod.claims().is_empty();
        let devices = self.devices.amount(&pod, DEFAULT_RESOURCE, &mut self.shared);
        let (pod, requests, stopped) = pod.split_run();
        self.view.pod(&pod, None);
        if let Some(job) = pod.controller().filter(|owner| owner.kind == "Job") {
            self.jobs_with_pods.insert((job.uid.clone(), pod.namespace().unwrap_or_default()));
        }
        let run = PodRun::of(&pod, stopped);
        let end = run.and_then(|run| run.stopped.or_else(|| Some(run.deletion?.until)));
        self.push(&pod, run, end, amounts(&requests, devices, 1));
    }

    /// Adds a run of a pod with these numbers of GPUs and cores, unless such pods are never
    /// touched. A run of None: the pod is on no node, and is counted unless it has ended.
    pub fn push(&mut self, pod: &Pod, run: Option<PodRun>, end: Option<Timestamp>, [gpus, cpus]: [f32; 2]) {
        let is_exempt = standing_exemption(pod, &Scope::default()).is_some() || claimed(pod).is_some();
        let Some(PodRun { started, preempted, .. }) = run.filter(|_| !is_exempt) else {
            self.exempt += usize::from(is_exempt && run.is_some());
            let is_waiting = !is_exempt && run.is_none() && !pod.is_finished();
            self.past.source.never_started += usize::from(is_waiting);
            return;
        };
        let namespace = pod.namespace().unwrap_or_default();
        let owner = pod.controller().cloned().unwrap_or_else(|| of_pod(pod));
        let above = self.owners.get(&(owner.uid.clone(), namespace.clone()));
        let owner = above.cloned().unwrap_or(owner);
        let created = pod.metadata.creation_timestamp.as_ref().map_or(started, |time| time.0);
        let run = PastRun {
            id: name_of(&owner.api_version, &owner.kind, &owner.name).into(),
            submit: created.min(started).as_second(),
            start: started.as_second(),
            end: end.map_or(Seconds::MAX, Timestamp::as_second),
            gpus,
            cpus,
            user: self.past.user(&namespace),
            priority: pod.spec.priority.unwrap_or(0),
            fate: match end {
                None => Fate::Running,
                Some(_) if preempted => Fate::Preempted,
                Some(_) => Fate::Ended,
            },
            ..PastRun::default()
        };
        let seen = SeenPod::read(pod, &mut self.view.snapshot.index);
        self.pods.entry((owner.uid, namespace)).or_default().push((run, seen));
    }

    /// Adds Jobs whose pods are gone, by the times in their status.
    pub fn add_jobs_without_pods(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            if key(&job.metadata).is_some_and(|job| self.jobs_with_pods.contains(&job)) {
                continue;
            }
            let Some((pod, end, times)) = pod_of(job) else { continue };
            let devices = self.devices.amount(&pod, DEFAULT_RESOURCE, &mut self.shared);
            let (pod, requests, _) = pod.split_run();
            self.push(&pod, PodRun::of(&pod, None), Some(end), amounts(&requests, devices, times));
        }
    }

    /// Returns the past, and the view. Runs that go on end now, and so do those of pods whose grace
    /// period ends later. The queue of a run is that whose ceiling ends it; for pods in no queue
    /// their namespace stands for it.
    pub fn finish(self, kind: &'static str, name: String, now: Timestamp) -> (Past, ListView) {
        let Self { mut past, pods, exempt, devices, has_claims, mut view, .. } = self;
        for mut runs in pods.into_values() {
            runs.sort_by_key(|(run, _)| run.start);
            for (number, (mut run, seen)) in runs.into_iter().enumerate() {
                let standing = seen.and_then(|seen| seen.standing(&mut view.snapshot.index));
                run.queue = match standing.as_ref().and_then(|of| of.ending_queue()) {
                    Some((family, queue)) => past.queue(queue, Some(family)),
                    None => past.queue(&format!("{OF_NAMESPACE}{}", past.user_name(&run)), None),
                };
                let own = standing.as_ref().and_then(|of| u32::try_from(of.own?.as_secs()).ok());
                run.own = own.and_then(NonZeroU32::new);
                run.start = standing.and_then(|of| of.clocks.started).map_or(run.start, Timestamp::as_second);
                run.end = run.end.min(now.as_second()).max(run.start);
                if number > 0 {
                    // a trace has one run of a name at a time
                    (run.id, run.is_joined) = (format!("{}#{number}", run.id).into(), true);
                }
                past.runs.push(run);
            }
        }
        past.complete();
        let source = &mut past.source;
        (source.kind, source.name, source.is_real, source.is_of_pods) = (kind, name, true, true);
        let reason = "pods that are never touched";
        source.skipped.extend((exempt > 0).then_some(Skipped { number: exempt, reason }));
        source.missing.extend(devices.warning.filter(|_| has_claims));
        (past, view)
    }
}

/// Returns the key of an owner by its own metadata. None: the owner has no uid.
fn key(metadata: &ObjectMeta) -> Option<OwnerKey> {
    Some((metadata.uid.clone()?, metadata.namespace.clone().unwrap_or_default()))
}

/// Returns the numbers of GPUs and of cores of `times` pods, which have `devices` by claims each.
#[allow(clippy::cast_precision_loss, reason = "seven digits are enough")]
fn amounts(requests: &RunRequests, devices: i64, times: i64) -> [f32; 2] {
    let amount = |resource: &str| requests.first().get(resource).copied().unwrap_or(0);
    let gpus = amount(DEFAULT_RESOURCE).saturating_add(devices);
    [gpus.saturating_mul(times) as f32, amount("cpu").saturating_mul(times) as f32 / 1000.0]
}

/// Returns a pod by the template of a Job that has ended, the end of the Job, and the number of its
/// pods at once. None: the Job hasn't started or ended, or can't be read.
fn pod_of(job: Job) -> Option<(PodWithRoom, Timestamp, i64)> {
    let owner = job.controller_owner_ref(&())?;
    let Job { metadata, spec: Some(spec), status: Some(status) } = job else { return None };
    let is_end = |of: &JobCondition| of.status == "True" && matches!(&*of.type_, "Complete" | "Failed");
    let ended = status.conditions.into_iter().flatten().find(is_end).and_then(|of| of.last_transition_time);
    let times = spec.parallelism.unwrap_or(1).min(spec.completions.unwrap_or(i32::MAX)).max(1);
    let of_template = spec.template.metadata.unwrap_or_default();
    let pod = json!({
        "metadata": {
            "name": metadata.name, "namespace": metadata.namespace, "uid": format!("{}/template", owner.uid),
            "creationTimestamp": metadata.creation_timestamp,
            "labels": of_template.labels, "annotations": of_template.annotations, "ownerReferences": [owner],
        },
        "spec": spec.template.spec,
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": status.start_time?}]},
    });
    Some((serde_json::from_value(pod).ok()?, status.completion_time.or(ended)?.0, times.into()))
}
