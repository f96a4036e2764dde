//! Pods as kube-state-metrics reports them.
//!
//! Called by `prometheus` for each range of time. Each fact is one query. Later ranges complete and
//! correct what earlier ranges have said about a pod.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use serde_json::json;
use tenure_policy::{owner_table::OwnerTable, usage::PodRun};
use tenure_types::{keys::QUEUE_LABELS, projection::Pod};

use super::{
    super::{
        past::{Seconds, moment},
        pods::PastReader,
    },
    LOOKBACK,
    server::{PrometheusServer, Series, whole},
};

/// The pods by their uids, and the Jobs by their names.
#[derive(Default)]
pub struct KnownPods {
    pods: HashMap<String, KnownPod>,
    controllers_of_jobs: HashMap<OwnerName, OwnerName>,
    /// The times at which Jobs of a name were created: a name may be used again.
    creations_of_jobs: HashMap<OwnerName, BTreeSet<Seconds>>,
}

/// The facts about a pod, as far as they are known.
#[derive(Default)]
struct KnownPod {
    namespace: String,
    name: String,
    created: Option<Seconds>,
    scheduled: Option<Seconds>,
    /// The first time at which its phase was Failed or Succeeded.
    final_at: Option<Seconds>,
    /// The latest end of a container, which may have been restarted.
    completed: Option<Seconds>,
    /// The time of its last sample.
    last: Option<Seconds>,
    gpus: f32,
    cpus: f32,
    controller: Option<OwnerName>,
    priority: i32,
    /// The labels that name queues, with their values.
    labels: HashMap<&'static str, String>,
}

/// The name of an owner, whose uid kube-state-metrics doesn't report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct OwnerName {
    namespace: String,
    kind: String,
    name: String,
}

/// If all pods of an owner ended longer than this before the next pod was created, the owner has
/// been created again. In seconds. A Job waits for up to ten minutes before it tries again.
const ANOTHER: Seconds = 15 * 60;

/// The lowest priority of Kubernetes' own classes, `system-…`.
const SYSTEM: i32 = 2_000_000_000;

/// The labels of a pod's metrics. Where Prometheus keeps labels of its own, it renames those of the
/// metric: `exported_…`.
const OF_POD: &str = "uid, namespace, exported_namespace, pod, exported_pod";
/// The labels of a Job's metrics.
const OF_JOB: &str = "namespace, exported_namespace, job_name";

/// Selects the owner that is a controller.
const CONTROLLERS: &str = r#"owner_is_controller="true""#;

/// Returns the name that kube-state-metrics gives to a label of an object.
fn metric_label(label: &str) -> String {
    format!("label_{}", label.replace(|character: char| !character.is_ascii_alphanumeric(), "_"))
}

/// Returns a label as the metric has it: `exported_…` if Prometheus has a label of its own by that
/// name.
fn own<'s>(series: &'s Series, label: &str) -> &'s str {
    let metric = &series.metric;
    metric.get(&format!("exported_{label}")).or_else(|| metric.get(label)).map_or("", String::as_str)
}

/// Returns the time that is the value of a series.
fn time(series: &Series) -> Option<Seconds> {
    series.number().and_then(whole)
}

/// Notes what a series says of a pod.
type NotedFact = fn(&mut KnownPod, &Series);

impl OwnerName {
    /// Reads the name of an owner from a label, with the kind in another label; or the name of a
    /// Job.
    fn read(series: &Series, label: &str) -> Self {
        let kind = if label == "job_name" { "Job" } else { own(series, "owner_kind") };
        let [namespace, name] = ["namespace", label].map(|label| own(series, label).to_owned());
        Self { namespace, kind: kind.to_owned(), name }
    }
}

impl KnownPods {
    /// Asks for all facts in a range, and adds them.
    pub async fn read(&mut self, server: &PrometheusServer, [since, until]: [Seconds; 2]) -> Result<()> {
        let seconds = until.saturating_sub(since);
        let latest = |by: &str, metric: &str, labels: &str| {
            format!("max by ({by}) (max_over_time({}[{seconds}s]))", server.select(metric, labels))
        };
        let final_phase = server.select("kube_pod_status_phase", r#"phase=~"Failed|Succeeded""#);
        let last = format!("timestamp({})", server.select("kube_pod_created", ""));
        let (requests, of_each) =
            ("kube_pod_container_resource_requests", r#"resource=~"cpu|nvidia_com_gpu""#);
        let of_each = latest("uid, container, exported_container, resource", requests, of_each);
        let of_labels = format!("uid, {}", QUEUE_LABELS.map(metric_label).join(", "));
        let facts: [(String, NotedFact); 9] = [
            (latest(OF_POD, "kube_pod_created", ""), |pod, series| {
                [pod.namespace, pod.name] = ["namespace", "pod"].map(|label| own(series, label).to_owned());
                pod.created = time(series);
            }),
            (latest("uid", "kube_pod_status_scheduled_time", ""), |pod, of| pod.scheduled = time(of)),
            (latest("uid", "kube_pod_completion_time", ""), |pod, of| pod.completed = time(of)),
            (
                format!("min by (uid) (min_over_time(timestamp({final_phase} == 1)[{seconds}s:1m]))"),
                |pod, of| pod.final_at = pod.final_at.or(time(of)),
            ),
            (format!("max by (uid) (max_over_time({last}[{seconds}s:1m]) or {last})"), |pod, of| {
                pod.last = time(of);
            }),
            (format!("sum by (uid, resource) ({of_each})"), |pod, series| {
                let amount = if own(series, "resource") == "cpu" { &mut pod.cpus } else { &mut pod.gpus };
                *amount = series.value.1.parse().unwrap_or_default();
            }),
            (latest("uid, owner_kind, owner_name", "kube_pod_owner", CONTROLLERS), |pod, series| {
                pod.controller = Some(OwnerName::read(series, "owner_name"));
            }),
            (latest(&of_labels, "kube_pod_labels", ""), |pod, series| {
                let values = QUEUE_LABELS.map(|label| (label, own(series, &metric_label(label)).to_owned()));
                pod.labels.extend(values.into_iter().filter(|(_, value)| !value.is_empty()));
            }),
            (latest("uid", "kube_pod_info", r#"priority_class=~"system-.+""#), |pod, _| {
                pod.priority = SYSTEM;
            }),
        ];
        for (expression, note) in facts {
            for series in server.at(&expression, until).await? {
                note(self.pods.entry(own(&series, "uid").to_owned()).or_default(), &series);
            }
        }
        let by = format!("{OF_JOB}, owner_kind, owner_name");
        for series in server.at(&latest(&by, "kube_job_owner", CONTROLLERS), until).await? {
            let [job, owner] = ["job_name", "owner_name"].map(|label| OwnerName::read(&series, label));
            self.controllers_of_jobs.insert(job, owner);
        }
        for series in server.at(&latest(OF_JOB, "kube_job_created", ""), until).await? {
            let job = OwnerName::read(&series, "job_name");
            self.creations_of_jobs.entry(job).or_default().extend(time(&series));
        }
        // kube-state-metrics before 2.0 reports no uid
        self.pods.remove("");
        Ok(())
    }

    /// True if at least one pod was created and scheduled at known times.
    pub fn has_runs(&self) -> bool {
        self.pods.values().any(|pod| pod.created.is_some() && pod.scheduled.is_some())
    }

    /// True if the queue of at least one pod is known.
    pub fn has_queues(&self) -> bool {
        self.pods.values().any(|pod| !pod.labels.is_empty())
    }

    /// Passes all pods of a namespace, or of all namespaces, to a reader. A pod with a sample
    /// shortly before the end of the range still runs. A pod that had ended before its begin
    /// doesn't count.
    pub fn into_past(self, namespace: Option<&str>, [since, until]: [Seconds; 2], reader: &mut PastReader) {
        let Self { pods, controllers_of_jobs, creations_of_jobs } = self;
        let wanted = pods.into_iter().filter(|(_, pod)| namespace.is_none_or(|of| of == pod.namespace));
        let owned = wanted.filter_map(|(uid, mut pod)| {
            let created = pod.created?;
            let controller =
                pod.controller.take().map(|owner| OwnerName { namespace: pod.namespace.clone(), ..owner });
            let controller = controller.map(|owner| match controllers_of_jobs.get(&owner) {
                // each Job of a CronJob is a workload of its own
                Some(above) if above.kind != "CronJob" => (above.clone(), 0),
                _ => {
                    let times = creations_of_jobs.get(&owner).map_or(0, |of| of.range(..=created).count());
                    (owner, times)
                }
            });
            Some((controller, created, uid, pod))
        });
        let mut owned: Vec<_> = owned.collect();
        owned.sort_by(|one, other| (&one.0, one.1, &one.2).cmp(&(&other.0, other.1, &other.2)));
        let (mut before, mut ended, mut number) = (None, Seconds::MIN, 0_u32);
        for (controller, created, uid, pod) in owned {
            let end = pod.end(since, until);
            if end.is_some_and(|end| end < since) {
                continue;
            }
            if before != controller || created > ended.saturating_add(ANOTHER) {
                (number, ended) = (number.saturating_add(1), Seconds::MIN);
            }
            ended = ended.max(end.unwrap_or(Seconds::MAX));
            let above = controller.as_ref().map(|(owner, _)| owner);
            if let Some(object) = pod.object(&uid, above, number, &reader.view.snapshot.table) {
                reader.push(&object, PodRun::of(&object, None), end.map(moment), [pod.gpus, pod.cpus]);
            }
            before = controller;
        }
    }
}

impl KnownPod {
    /// Returns the end of the run, as far as it is known in a range. None: it still goes on.
    fn end(&self, since: Seconds, until: Seconds) -> Option<Seconds> {
        let last = self.last.into_iter().chain(self.scheduled).chain(self.created).max().unwrap_or_default();
        let Some(at) = self.final_at else {
            return (last < until.saturating_sub(LOOKBACK)).then_some(last);
        };
        // a pod whose phase was final from the first minute on had ended at some time before
        let ended = if at <= since.saturating_add(60) { since.saturating_sub(1) } else { at };
        Some(self.completed.map_or(ended, |completed| completed.min(at)))
    }

    /// Returns the pod with all facts. The uid of its controller isn't known: it is made of names and
    /// a number.
    fn object(&self, uid: &str, owner: Option<&OwnerName>, number: u32, table: &OwnerTable) -> Option<Pod> {
        let is_static = owner.is_some_and(|owner| owner.kind == "Node");
        let owner = owner.map(|OwnerName { namespace, kind, name }| {
            let known = table.ancestors().find(|(_, of, _)| of == kind).map(|(group, ..)| group);
            let api_version = match known.or((kind == "DaemonSet").then_some("apps")) {
                Some(group) => format!("{group}/v1"),
                None => "v1".to_owned(),
            };
            let uid = format!("{namespace}/{kind}/{name}/{number}");
            json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
        });
        let annotations = if is_static { json!({"kubernetes.io/config.mirror": ""}) } else { json!({}) };
        let condition =
            |at| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(at)});
        let object = json!({
            "metadata": {
                "name": self.name, "namespace": self.namespace, "uid": uid, "labels": self.labels, "annotations": annotations,
                "creationTimestamp": self.created.map(moment), "ownerReferences": Vec::from_iter(owner),
            },
            "spec": {"priority": self.priority},
            "status": {"conditions": Vec::from_iter(self.scheduled.map(condition))},
        });
        serde_json::from_value(object).ok()
    }
}
