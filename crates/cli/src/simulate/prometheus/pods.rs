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
    server::{PrometheusServer, Series, TimeRange, Window, whole},
};
use crate::list::view::ListView;

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

/// A query, and the function that takes its series.
type SeriesQuery = (fn(&Window) -> String, fn(&mut KnownPods, &Series));

const FACTS: [SeriesQuery; 11] = [
    (
        |window| window.latest(OF_POD, "kube_pod_created", ""),
        |known, series| {
            let Some(pod) = known.pod(series) else { return };
            own(series, "namespace").clone_into(&mut pod.namespace);
            own(series, "pod").clone_into(&mut pod.name);
            pod.created = time(series);
        },
    ),
    (
        |window| window.latest("uid", "kube_pod_status_scheduled_time", ""),
        |known, series| known.set(series, |pod| pod.scheduled = time(series)),
    ),
    (
        |window| window.latest("uid", "kube_pod_completion_time", ""),
        |known, series| known.set(series, |pod| pod.completed = time(series)),
    ),
    (
        |window| {
            let phase = window.select("kube_pod_status_phase", r#"phase=~"Failed|Succeeded""#);
            format!("min by (uid) (min_over_time(timestamp({phase} == 1)[{}s:1m]))", window.seconds)
        },
        |known, series| known.set(series, |pod| pod.final_at = pod.final_at.or(time(series))),
    ),
    (
        |window| {
            let last = format!("timestamp({})", window.select("kube_pod_created", ""));
            format!("max by (uid) (max_over_time({last}[{}s:1m]) or {last})", window.seconds)
        },
        |known, series| known.set(series, |pod| pod.last = time(series)),
    ),
    (
        |window| {
            let by = "uid, container, exported_container, resource";
            let requests = r#"resource=~"cpu|nvidia_com_gpu""#;
            let latest = window.latest(by, "kube_pod_container_resource_requests", requests);
            format!("sum by (uid, resource) ({latest})")
        },
        |known, series| {
            let is_cpu = own(series, "resource") == "cpu";
            known.set(series, |pod| {
                *(if is_cpu { &mut pod.cpus } else { &mut pod.gpus }) =
                    series.value.1.parse().unwrap_or_default();
            });
        },
    ),
    (
        |window| window.latest("uid, owner_kind, owner_name", "kube_pod_owner", CONTROLLERS),
        |known, series| known.set(series, |pod| pod.controller = Some(OwnerName::read(series, "owner_name"))),
    ),
    (
        |window| {
            let labels = QUEUE_LABELS.map(metric_label).join(", ");
            window.latest(&format!("uid, {labels}"), "kube_pod_labels", "")
        },
        |known, series| {
            known.set(series, |pod| {
                for label in QUEUE_LABELS {
                    let value = series.metric.get(&metric_label(label)).filter(|value| !value.is_empty());
                    pod.labels.extend(value.map(|value| (label, value.clone())));
                }
            });
        },
    ),
    (
        |window| window.latest("uid", "kube_pod_info", r#"priority_class=~"system-.+""#),
        |known, series| known.set(series, |pod| pod.priority = SYSTEM),
    ),
    (
        |window| window.latest(&format!("{OF_JOB}, owner_kind, owner_name"), "kube_job_owner", CONTROLLERS),
        |known, series| {
            let owner = OwnerName::read(series, "owner_name");
            known.controllers_of_jobs.insert(OwnerName::read(series, "job_name"), owner);
        },
    ),
    (
        |window| window.latest(OF_JOB, "kube_job_created", ""),
        |known, series| {
            let job = OwnerName::read(series, "job_name");
            known.creations_of_jobs.entry(job).or_default().extend(time(series));
        },
    ),
];

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
    pub async fn read(
        &mut self,
        server: &PrometheusServer,
        TimeRange { since, until }: TimeRange,
    ) -> Result<()> {
        let window = server.window(until.saturating_sub(since));
        for (expression, add) in FACTS {
            for series in server.at(&expression(&window), until).await? {
                add(self, &series);
            }
        }
        Ok(())
    }

    /// Returns the pod of a series, which is added if it is new. None: kube-state-metrics before
    /// 2.0 reports no uid.
    fn pod(&mut self, series: &Series) -> Option<&mut KnownPod> {
        series.metric.get("uid").map(|uid| self.pods.entry(uid.clone()).or_default())
    }

    /// Changes the pod of a series.
    fn set(&mut self, series: &Series, set: impl FnOnce(&mut KnownPod)) {
        if let Some(pod) = self.pod(series) {
            set(pod);
        }
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
    pub fn into_past(
        self,
        namespace: Option<&str>,
        TimeRange { since, until }: TimeRange,
        reader: &mut PastReader,
        view: &mut ListView,
    ) {
        let Self { pods, controllers_of_jobs, creations_of_jobs } = self;
        let wanted = pods.into_iter().filter(|(_, pod)| namespace.is_none_or(|of| of == pod.namespace));
        let owned = wanted.filter_map(|(uid, mut pod)| {
            let created = pod.created?;
            let controller =
                pod.controller.take().map(|owner| OwnerName { namespace: pod.namespace.clone(), ..owner });
            let times = controller.as_ref().and_then(|job| creations_of_jobs.get(job));
            let times = times.map_or(0, |of_job| of_job.range(..=created).count());
            let controller = controller.map(|owner| match controllers_of_jobs.get(&owner) {
                // each Job of a CronJob is a workload of its own
                Some(above) if above.kind != "CronJob" => (above.clone(), 0),
                _ => (owner, times),
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
            if let Some(object) = object(&uid, &pod, created, above, number, &view.snapshot.table) {
                match PodRun::of(&object, None) {
                    Some(run) => reader.push(&object, run, end.map(moment), [pod.gpus, pod.cpus], view),
                    None => reader.add_pending(&object),
                }
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
}

/// Returns a pod with all facts. The uid of its controller isn't known: it is made of names and a
/// number.
fn object(
    uid: &str,
    pod: &KnownPod,
    created: Seconds,
    controller: Option<&OwnerName>,
    number: u32,
    table: &OwnerTable,
) -> Option<Pod> {
    let owner = controller.map(|OwnerName { namespace, kind, name }| {
        let known = table.ancestors().find(|(_, of, _)| of == kind).map(|(group, ..)| group);
        let api_version = match known.or((kind == "DaemonSet").then_some("apps")) {
            Some(group) => format!("{group}/v1"),
            None => "v1".to_owned(),
        };
        let uid = format!("{namespace}/{kind}/{name}/{number}");
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
    });
    let is_static = controller.is_some_and(|owner| owner.kind == "Node");
    let annotations = if is_static { json!({"kubernetes.io/config.mirror": ""}) } else { json!({}) };
    let condition = |at| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(at)});
    let object = json!({
        "metadata": {
            "name": pod.name, "namespace": pod.namespace, "uid": uid, "labels": pod.labels, "annotations": annotations,
            "creationTimestamp": moment(created), "ownerReferences": Vec::from_iter(owner),
        },
        "spec": {"priority": pod.priority},
        "status": {"conditions": Vec::from_iter(pod.scheduled.map(condition))},
    });
    serde_json::from_value(object).ok()
}
