//! The pods of the past, and the workloads that they belong to.
//!
//! Called by `simulate` for the pods of a cluster and of Prometheus. Pods that the keeper never
//! touches are left out and counted. A namespace stands for the user of its pods.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU32,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_index::SeenPod;
use tenure_policy::{
    expiry::{Scope, claimed, standing_exemption},
    naming::of_pod,
    usage::{DEFAULT_RESOURCE, PodRun},
};
use tenure_types::{
    projection::Pod,
    room::{PodWithRoom, RunRequests},
};

use super::{
    past::{Fate, Past, PastRun},
    policy::OF_NAMESPACE,
    source::{Skipped, SourceReport},
};
use crate::{
    input::Document,
    list::{row::name_of, view::ListView},
    snapshot::{ClaimName, ClaimedDevices},
};

/// A pod that is or was on a node.
struct RunPod {
    namespace: String,
    /// The uid of the workload that the pod belongs to, and kind and name.
    workload: (String, String),
    submit: Timestamp,
    /// The end of the run. None: it still goes on.
    end: Option<Timestamp>,
    run: PodRun,
    gpus: f32,
    cpus: f32,
    priority: i32,
    /// The pod's clocks and queues in the index.
    seen: Option<SeenPod>,
}

/// Reads pods, and joins the pods of one workload.
#[derive(Default)]
pub struct PastReader {
    /// The controllers of Jobs, by the uids of the Jobs. None: no controller, or a `CronJob`.
    owners: HashMap<String, Option<OwnerReference>>,
    pods: Vec<RunPod>,
    /// The uids of Jobs that have at least one pod.
    jobs_with_pods: HashSet<String>,
    /// The number of runs of pods that are never touched, and the number of pods that wait for a
    /// node.
    exempt: u64,
    pending: u64,
    /// The devices that pods have by claims, and the shared claims that are counted.
    devices: ClaimedDevices,
    shared: HashSet<ClaimName>,
    has_claims: bool,
}

impl PastReader {
    /// Returns a reader that knows the owners of these Jobs: pods of a JobSet's Jobs are then one
    /// workload.
    pub fn new(jobs: &[Document], devices: ClaimedDevices) -> Self {
        let owner = |job: &Document| {
            let metadata = job.value.get("metadata")?;
            let owners = metadata.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
            let controller = owners.filter(|owner| owner["controller"] == true).find_map(|owner| {
                let owner: OwnerReference = serde_json::from_value(owner.clone()).ok()?;
                // each Job of a CronJob is a workload of its own
                (owner.kind != "CronJob").then_some(owner)
            });
            Some((metadata.get("uid")?.as_str()?.to_owned(), controller))
        };
        Self { owners: jobs.iter().filter_map(owner).collect(), devices, ..Self::default() }
    }

    /// Adds a pod of a cluster, to the past and to the view.
    pub fn add(&mut self, pod: PodWithRoom, view: &mut ListView) {
        self.has_claims |= !pod.claims().is_empty();
        let devices = self.devices.amount(&pod, DEFAULT_RESOURCE, &mut self.shared);
        let (pod, requests, stopped) = pod.split_run();
        view.pods(std::slice::from_ref(&pod));
        if let Some(job) = pod.controller().filter(|owner| owner.kind == "Job") {
            self.jobs_with_pods.insert(job.uid.clone());
        }
        let Some(run) = PodRun::of(&pod, stopped) else {
            return self.add_pending(&pod);
        };
        let end = run.stopped.or_else(|| run.deletion.map(|of| of.until));
        self.push(&pod, run, end, amounts(&requests, devices, 1), view);
    }

    /// Counts a pod that is on no node, unless it has ended or is never touched.
    pub fn add_pending(&mut self, pod: &Pod) {
        let is_pending = !pod.is_finished() && !is_exempt(pod);
        self.pending = self.pending.saturating_add(u64::from(is_pending));
    }

    /// Adds a run of a pod with these numbers of GPUs and cores, unless such pods are never
    /// touched.
    pub fn push(
        &mut self,
        pod: &Pod,
        run: PodRun,
        end: Option<Timestamp>,
        [gpus, cpus]: [f32; 2],
        view: &mut ListView,
    ) {
        if is_exempt(pod) {
            self.exempt = self.exempt.saturating_add(1);
            return;
        }
        let seen = SeenPod::read(pod, &mut view.snapshot.index);
        let owner = pod.controller().cloned().unwrap_or_else(|| of_pod(pod));
        let owner = self.owners.get(&owner.uid).cloned().flatten().unwrap_or(owner);
        let created = pod.metadata.creation_timestamp.as_ref().map_or(run.started, |time| time.0);
        self.pods.push(RunPod {
            namespace: pod.namespace().unwrap_or_default(),
            workload: (owner.uid.clone(), name_of(&owner.api_version, &owner.kind, &owner.name)),
            submit: created.min(run.started),
            end,
            run,
            gpus,
            cpus,
            priority: pod.spec.priority.unwrap_or(0),
            seen,
        });
    }

    /// Adds Jobs whose pods are gone, by the times in their status.
    pub fn add_jobs_without_pods(&mut self, jobs: &[Document], view: &mut ListView) {
        for job in jobs {
            let uid = job.value.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            if self.jobs_with_pods.contains(uid) {
                continue;
            }
            let Some((pod, end, times)) = pod_of(job, uid) else { continue };
            let devices = self.devices.amount(&pod, DEFAULT_RESOURCE, &mut self.shared);
            let (pod, requests, _) = pod.split_run();
            let Some(run) = PodRun::of(&pod, None) else { continue };
            self.push(&pod, run, Some(end), amounts(&requests, devices, times), view);
        }
    }

    /// Returns the reason why devices that pods claim don't count. None: they count, or no pod has
    /// claims.
    pub fn uncounted_devices(&self) -> Option<String> {
        self.devices.warning.clone().filter(|_| self.has_claims)
    }

    /// Returns the past, and the report about its source. Runs that go on end now.
    pub fn finish(
        mut self,
        kind: &'static str,
        name: String,
        view: &mut ListView,
        now: Timestamp,
    ) -> (Past, SourceReport) {
        let mut past = Past::default();
        past.never_started = self.pending;
        self.pods.sort_by(|one, other| {
            (&one.workload.0, one.run.started).cmp(&(&other.workload.0, other.run.started))
        });
        let (mut before, mut number) = (String::new(), 0usize);
        for pod in self.pods {
            number = if pod.workload.0 == before { number.saturating_add(1) } else { 0 };
            before.clone_from(&pod.workload.0);
            pod.into_past(&mut past, view, now, number);
        }
        let mut source = SourceReport::new(kind, name, &past);
        (source.is_present, source.by_namespace) = (true, true);
        if self.exempt > 0 {
            source
                .skipped
                .push(Skipped { number: self.exempt, reason: "pods that are never touched".into() });
        }
        (past, source)
    }
}

/// True if the keeper never touches such a pod.
fn is_exempt(pod: &Pod) -> bool {
    standing_exemption(pod, &Scope::default()).is_some() || claimed(pod).is_some()
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
fn pod_of(job: &Document, uid: &str) -> Option<(PodWithRoom, Timestamp, i64)> {
    let at = |path: &str| job.value.pointer(path);
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let start = at("/status/startTime")?;
    let conditions = at("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let mut ended = conditions
        .filter(|of| of["status"] == "True" && (of["type"] == "Complete" || of["type"] == "Failed"));
    let end = at("/status/completionTime")
        .and_then(time)
        .or_else(|| time(ended.next()?.get("lastTransitionTime")?))?;
    let number = |path| at(path).and_then(Value::as_i64);
    let times =
        number("/spec/parallelism").unwrap_or(1).min(number("/spec/completions").unwrap_or(i64::MAX)).max(1);
    let template = at("/spec/template")?;
    let owner = json!({"apiVersion": job.api_version, "kind": job.kind, "name": job.name()?, "uid": uid, "controller": true});
    let of_template =
        |key: &str| template.pointer(&format!("/metadata/{key}")).cloned().unwrap_or(Value::Null);
    let pod = json!({
        "metadata": {
            "name": job.name()?, "namespace": job.namespace()?, "uid": format!("{uid}/template"),
            "creationTimestamp": at("/metadata/creationTimestamp")?,
            "labels": of_template("labels"), "annotations": of_template("annotations"), "ownerReferences": [owner],
        },
        "spec": template.get("spec")?,
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": start}]},
    });
    Some((serde_json::from_value(pod).ok()?, end, times))
}

impl RunPod {
    /// Adds the run to the past. The queue is that whose ceiling ends it; for pods in no queue
    /// their namespace stands for it. `number` counts the earlier runs of the workload.
    fn into_past(self, past: &mut Past, view: &mut ListView, now: Timestamp, number: usize) {
        let Self { namespace, workload: (_, id), submit, end, run, gpus, cpus, priority, seen } = self;
        let standing = seen.and_then(|seen| seen.standing(&mut view.snapshot.index));
        let named = standing.as_ref().and_then(|of| of.ending_queue());
        let queue = match named {
            Some((family, queue)) => past.queue(queue, Some(family)),
            None => past.queue(&format!("{OF_NAMESPACE}{namespace}"), None),
        };
        let own = standing.as_ref().and_then(|of| of.own).and_then(|own| u32::try_from(own.as_secs()).ok());
        let start = standing.and_then(|of| of.clocks.started).unwrap_or(run.started);
        let fate = match (end, run.preempted) {
            (None, _) => Fate::Running,
            (_, true) => Fate::Preempted,
            _ => Fate::Ended,
        };
        let user = past.user(&namespace);
        past.push(PastRun {
            // a trace has one run of a name at a time
            id: if number == 0 { id.into() } else { format!("{id}#{number}").into() },
            submit: submit.as_second(),
            start: start.as_second(),
            end: end.unwrap_or(now).max(start).as_second(),
            gpus,
            cpus,
            queue,
            user,
            priority,
            own: own.and_then(NonZeroU32::new),
            fate,
            is_joined: number > 0,
        });
    }
}
