//! The past of a cluster: what its API server still has of Jobs, JobSets and pods.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU32,
};

use anyhow::Result;
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_index::Seen;
use tenure_policy::{
    config::Config,
    expiry::{Family, Scope, claimed, standing_exemption},
    naming::of_pod,
    usage::{DEFAULT_RESOURCE, PodRun},
};
use tenure_types::{
    projection::Pod,
    room::PodWithRoom,
    usage::{USAGE_CONFIG_MAP, USAGE_KEY, UsageRecord},
};

use super::{
    past::{Fate, Past, PastRun, Seconds, Unit},
    policy::{OF_NAMESPACE, SimulatedPolicy},
    source::{Skipped, SourceReport},
};
use crate::{
    cluster::{ClusterReader, ConnectArgs, cannot_list, explain, is_forbidden, objects},
    input::Document,
    list::{
        gather::Gatherer,
        row::{WorkloadState, name_of},
        view::View,
    },
};

/// The cluster as it is now.
pub struct ClusterPast {
    /// Its queues.
    pub queues: SimulatedPolicy,
    view: View,
    now: Timestamp,
}

/// A pod that is or was on a node.
struct RunPod {
    namespace: String,
    /// The workload that it belongs to, and the name of that.
    workload: (String, String),
    submit: Timestamp,
    end: Option<Timestamp>,
    run: PodRun,
    gpus: f32,
    cpus: f32,
    priority: i32,
    seen: Option<Seen>,
}

const DELETED: &str =
    "runs whose pods and Jobs were deleted: --trace takes the records of an accounting system";

/// Reads the past of a cluster: of all namespaces or, where the user may not list their pods, of one.
pub async fn read(
    connect: ConnectArgs,
    t9k: &str,
    config: &Config,
) -> Result<(ClusterPast, Past, SourceReport, Vec<String>)> {
    let named = connect.named_namespace().map(str::to_owned);
    let cluster = connect.connect().await?;
    let is_named = named.is_some();
    let namespace = cluster.namespace_of_pods(named).await?;
    let mut missing = vec![DELETED.to_owned()];
    if let Some(own) = namespace.as_ref().filter(|_| !is_named) {
        missing.push(format!("all namespaces but {own}: you may not list the pods of all"));
    }
    let name = namespace.as_ref().map_or_else(|| "all namespaces".to_owned(), |of| format!("namespace {of}"));
    let mut gatherer = Gatherer::new(cluster, namespace.clone(), t9k.to_owned(), config.clone());
    let mut view = gatherer.without_pods().await?;
    let queues = SimulatedPolicy::of(&view.snapshot, config);
    let jobs = jobs(&gatherer.cluster, namespace.as_deref(), &mut missing).await?;
    let mut pods = PastReader::new(&jobs);
    let mut pages = objects::<PodWithRoom>(gatherer.cluster.api(namespace.as_deref()), None);
    while let Some(page) = pages.try_next().await.map_err(explain)? {
        for pod in page {
            pods.add(pod, &mut view);
        }
    }
    pods.add_jobs_without_pods(&jobs, &mut view);
    view.complete();
    gatherer.complete(&mut view).await;
    let now = gatherer.now();
    let (mut past, exempt) = (Past::default(), pods.exempt);
    past.never_started = pods.pending;
    pods.into_past(&mut past, &mut view, now);
    let mut source = SourceReport::new("cluster,", name, &past);
    (source.is_present, source.by_namespace) = (true, true);
    source.share_seen = share_seen(&gatherer.cluster, &past).await;
    if exempt > 0 {
        source.skipped.push(Skipped { number: exempt, reason: "pods that are never touched".into() });
    }
    Ok((ClusterPast { queues, view, now }, past, source, missing))
}

/// Lists Jobs. Without the right to do so, pods count for their own Jobs, and JobSets aren't known.
async fn jobs(
    cluster: &ClusterReader,
    namespace: Option<&str>,
    missing: &mut Vec<String>,
) -> Result<Vec<Document>> {
    let Some(kind) = cluster.kinds.find("batch", "Job") else { return Ok(Vec::new()) };
    match cluster.documents(kind, namespace).try_concat().await {
        Ok(jobs) => Ok(jobs),
        Err(error) if is_forbidden(&error) => {
            missing.push(
                "Jobs without pods, and which Jobs are of one JobSet: you may not list jobs.batch".into(),
            );
            Ok(Vec::new())
        }
        Err(error) => Err(cannot_list(kind, error)),
    }
}

struct PastReader {
    /// The controllers of Jobs, by the uids of the Jobs.
    owners: HashMap<String, Option<OwnerReference>>,
    pods: Vec<RunPod>,
    jobs_with_pods: HashSet<String>,
    exempt: u64,
    pending: u64,
}

impl PastReader {
    fn new(jobs: &[Document]) -> Self {
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
        Self {
            owners: jobs.iter().filter_map(owner).collect(),
            pods: Vec::new(),
            jobs_with_pods: HashSet::new(),
            exempt: 0,
            pending: 0,
        }
    }

    fn add(&mut self, pod: PodWithRoom, view: &mut View) {
        let (pod, requests, stopped) = pod.split_run();
        view.pods(std::slice::from_ref(&pod));
        if let Some(job) = pod.controller().filter(|owner| owner.kind == "Job") {
            self.jobs_with_pods.insert(job.uid.clone());
        }
        if standing_exemption(&pod, &Scope::default()).is_some() || claimed(&pod).is_some() {
            self.exempt = self.exempt.saturating_add(1);
            return;
        }
        let Some(run) = PodRun::of(&pod, stopped) else {
            self.pending = self.pending.saturating_add(u64::from(!pod.is_finished()));
            return;
        };
        let end = run.stopped.or_else(|| run.deletion.map(|of| of.until));
        let amount = |resource: &str| requests.first().get(resource).copied().unwrap_or(0);
        self.push(&pod, run, end, [amount(DEFAULT_RESOURCE), amount("cpu")], view);
    }

    #[allow(clippy::cast_precision_loss, reason = "seven digits are enough")]
    fn push(
        &mut self,
        pod: &Pod,
        run: PodRun,
        end: Option<Timestamp>,
        [gpus, millicores]: [i64; 2],
        view: &mut View,
    ) {
        let seen = Seen::read(pod, &mut view.snapshot.index);
        let owner = pod.controller().cloned().unwrap_or_else(|| of_pod(pod));
        let owner = self.owners.get(&owner.uid).cloned().flatten().unwrap_or(owner);
        let created = pod.metadata.creation_timestamp.as_ref().map_or(run.started, |time| time.0);
        self.pods.push(RunPod {
            namespace: pod.namespace().unwrap_or_default(),
            workload: (owner.uid.clone(), name_of(&owner.api_version, &owner.kind, &owner.name)),
            submit: created.min(run.started),
            end,
            run,
            gpus: gpus as f32,
            cpus: millicores as f32 / 1000.0,
            priority: pod.spec.priority.unwrap_or(0),
            seen,
        });
    }

    /// Adds Jobs whose pods are gone, with the times in their status.
    fn add_jobs_without_pods(&mut self, jobs: &[Document], view: &mut View) {
        for job in jobs {
            let uid = job.value.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            if self.jobs_with_pods.contains(uid) {
                continue;
            }
            let Some((pod, end, times)) = pod_of(job, uid) else { continue };
            let (pod, requests, _) = pod.split_run();
            let Some(run) = PodRun::of(&pod, None) else { continue };
            let amount =
                |resource: &str| requests.first().get(resource).copied().unwrap_or(0).saturating_mul(times);
            self.push(&pod, run, Some(end), [amount(DEFAULT_RESOURCE), amount("cpu")], view);
        }
    }

    fn into_past(mut self, past: &mut Past, view: &mut View, now: Timestamp) {
        self.pods.sort_by(|one, other| {
            (&one.workload.0, one.run.started).cmp(&(&other.workload.0, other.run.started))
        });
        let mut before = String::new();
        for pod in self.pods {
            let is_joined = pod.workload.0 == before;
            before.clone_from(&pod.workload.0);
            pod.into_past(past, view, now, is_joined);
        }
    }
}

/// Returns a pod by the template of a Job that has ended, when it ended, and how many such pods it had at once.
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
    fn into_past(self, past: &mut Past, view: &mut View, now: Timestamp, is_joined: bool) {
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
            id: id.into(),
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
            is_joined,
        });
    }
}

/// Returns the share of the GPU-hours of ended runs that the past has, by the keeper's record of use. None: there is no record.
async fn share_seen(cluster: &ClusterReader, past: &Past) -> Option<f64> {
    let maps = cluster.api::<ConfigMap>(Some("tenure-system"));
    let map = maps.get_opt(USAGE_CONFIG_MAP).await.ok()??;
    let record: UsageRecord = serde_json::from_str(map.data?.get(USAGE_KEY)?).ok()?;
    let since = record.since.as_second();
    let used = record.queues.iter().flat_map(|queue| &queue.used).filter(|(of, _)| *of == DEFAULT_RESOURCE);
    let used: u128 = used.flat_map(|(_, by_end)| by_end.values()).fold(0, |sum, of| sum.saturating_add(*of));
    let ended = past.runs.iter().filter(|run| run.fate != Fate::Running && run.end >= since);
    let seconds = |run: &PastRun| seconds(run.end.saturating_sub(run.start)) * Unit::Gpu.amount(run);
    let seen: f64 = ended.map(seconds).sum();
    #[allow(clippy::cast_precision_loss, reason = "a share to a tenth of a percent")]
    let used = used as f64 / 1e6;
    (used > 0.0).then(|| (seen / used).min(1.0))
}

#[allow(clippy::cast_precision_loss, reason = "no run lasts that long")]
fn seconds(of: Seconds) -> f64 {
    of as f64
}

impl ClusterPast {
    /// The number of workloads that the keeper would pause or delete right now, by its own arithmetic.
    pub fn events_now(self, policy: &SimulatedPolicy) -> usize {
        let Self { queues: _, mut view, now } = self;
        let index = &mut view.snapshot.index;
        for family in Family::ALL {
            let tree = &policy.trees[family];
            let names: HashSet<String> = tree.queues().map(|(name, _)| name.to_owned()).collect();
            index.retain_queues(family, &names);
            tree.queues().for_each(|(name, queue)| index.put_queue(family, name, queue.clone()));
        }
        view.rows(now).iter().filter(|row| row.state == WorkloadState::Expired).count()
    }
}
