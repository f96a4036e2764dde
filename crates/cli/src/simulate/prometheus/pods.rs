//! What kube-state-metrics has said of pods.

use std::collections::HashMap;

use anyhow::Result;
use serde_json::json;
use tenure_policy::{owners::OwnerTable, usage::PodRun};
use tenure_types::{keys::QUEUE_LABELS, projection::Pod};

use super::{
    super::{
        past::{Seconds, moment},
        pods::PastReader,
    },
    server::{Range, Series, Server, whole},
};
use crate::list::view::View;

/// The pods of which a time or more is known, by their uids, and the controllers of Jobs.
#[derive(Default)]
pub struct KnownPods {
    pods: HashMap<String, KnownPod>,
    of_jobs: HashMap<OwnerName, OwnerName>,
}

#[derive(Default)]
struct KnownPod {
    namespace: String,
    name: String,
    created: Seconds,
    scheduled: Option<Seconds>,
    completed: Option<Seconds>,
    /// The time of its last sample.
    last: Seconds,
    gpus: f32,
    cpus: f32,
    controller: Option<OwnerName>,
    priority: i32,
    /// The labels that name queues.
    labels: HashMap<&'static str, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct OwnerName {
    namespace: String,
    kind: String,
    name: String,
}

/// A Job whose pods all ended so long ago has been created again under the same name: a Job waits less before it tries again.
const ANOTHER: Seconds = 10 * 60;

/// The least priority of a class of Kubernetes' own, whose names begin with `system-`.
const SYSTEM: i32 = 2_000_000_000;

/// What a query tells of pods, or of Jobs.
#[derive(Clone, Copy)]
enum Fact {
    Created,
    Scheduled,
    Completed,
    Last,
    Requests,
    Controller,
    Labels,
    OfSystem,
    ControllerOfJob,
}

/// The labels of a pod's metrics. Where Prometheus keeps its own labels, it calls the others exported.
const OF_POD: &str = "uid, namespace, exported_namespace, pod, exported_pod";

impl Fact {
    const ALL: [Self; 9] = [
        Self::Created,
        Self::Scheduled,
        Self::Completed,
        Self::Last,
        Self::Requests,
        Self::Controller,
        Self::Labels,
        Self::OfSystem,
        Self::ControllerOfJob,
    ];

    /// An expression with the latest values of the last `seconds`.
    fn expression(self, seconds: Seconds) -> String {
        let latest = |by: &str, of: &str| format!("max by ({by}) (max_over_time({of}[{seconds}s]))");
        match self {
            Self::Created => latest(OF_POD, "kube_pod_created"),
            Self::Scheduled => latest("uid", "kube_pod_status_scheduled_time"),
            Self::Completed => latest("uid", "kube_pod_completion_time"),
            Self::Last => {
                let last = "timestamp(kube_pod_created)";
                format!("max by (uid) (max_over_time({last}[{seconds}s:1m]) or {last})")
            }
            Self::Requests => {
                let requests = r#"kube_pod_container_resource_requests{resource=~"cpu|nvidia_com_gpu"}"#;
                format!("sum by (uid, resource) ({})", latest("uid, container, resource", requests))
            }
            Self::Controller => {
                latest("uid, owner_kind, owner_name", r#"kube_pod_owner{owner_is_controller="true"}"#)
            }
            Self::Labels => {
                latest(&format!("uid, {}", QUEUE_LABELS.map(metric_label).join(", ")), "kube_pod_labels")
            }
            Self::OfSystem => latest("uid", r#"kube_pod_info{priority_class=~"system-.+"}"#),
            Self::ControllerOfJob => latest(
                "namespace, exported_namespace, job_name, owner_kind, owner_name",
                r#"kube_job_owner{owner_is_controller="true"}"#,
            ),
        }
    }
}

/// The name that kube-state-metrics gives a label of an object.
fn metric_label(label: &str) -> String {
    format!("label_{}", label.replace(|character: char| !character.is_ascii_alphanumeric(), "_"))
}

/// Returns a label as the object has it, or as the series has it if Prometheus has no label of its own by that name.
fn own<'s>(series: &'s Series, label: &str) -> &'s str {
    let metric = &series.metric;
    metric.get(&format!("exported_{label}")).or_else(|| metric.get(label)).map_or("", String::as_str)
}

/// Returns the time that a series has as its value.
fn time(series: &Series) -> Seconds {
    series.number().and_then(whole).unwrap_or_default()
}

impl KnownPods {
    /// Adds what is said in a range.
    pub async fn read(&mut self, server: &Server, Range { since, until }: Range) -> Result<()> {
        for fact in Fact::ALL {
            for series in server.at(&fact.expression(until.saturating_sub(since)), until).await? {
                self.add(fact, &series);
            }
        }
        Ok(())
    }

    fn add(&mut self, fact: Fact, series: &Series) {
        let owner = |namespace: &str| OwnerName {
            namespace: namespace.to_owned(),
            kind: own(series, "owner_kind").to_owned(),
            name: own(series, "owner_name").to_owned(),
        };
        if let Fact::ControllerOfJob = fact {
            let namespace = own(series, "namespace");
            let job = own(series, "job_name").to_owned();
            let job = OwnerName { namespace: namespace.to_owned(), kind: "Job".into(), name: job };
            self.of_jobs.insert(job, owner(namespace));
            return;
        }
        // kube-state-metrics before 2.0 names no uid
        let Some(uid) = series.metric.get("uid") else { return };
        let pod = self.pods.entry(uid.clone()).or_default();
        match fact {
            Fact::Created => {
                own(series, "namespace").clone_into(&mut pod.namespace);
                own(series, "pod").clone_into(&mut pod.name);
                pod.created = time(series);
            }
            Fact::Scheduled => pod.scheduled = Some(time(series)),
            Fact::Completed => pod.completed = Some(time(series)),
            Fact::Last => pod.last = pod.last.max(time(series)),
            Fact::Requests => {
                let value = series.value.1.parse().unwrap_or_default();
                let is_cpu = own(series, "resource") == "cpu";
                *(if is_cpu { &mut pod.cpus } else { &mut pod.gpus }) = value;
            }
            Fact::Controller => pod.controller = Some(owner("")),
            Fact::Labels => {
                for label in QUEUE_LABELS {
                    let value = series.metric.get(&metric_label(label)).filter(|value| !value.is_empty());
                    pod.labels.extend(value.map(|value| (label, value.clone())));
                }
            }
            Fact::OfSystem => pod.priority = SYSTEM,
            Fact::ControllerOfJob => {}
        }
    }

    /// True if a pod's queue is known.
    pub fn has_queues(&self) -> bool {
        self.pods.values().any(|pod| !pod.labels.is_empty())
    }

    /// Hands all pods of a namespace, or of all, to a reader. A pod whose last sample is later than `running_since` still runs.
    pub fn into_past(
        self,
        namespace: Option<&str>,
        running_since: Seconds,
        reader: &mut PastReader,
        view: &mut View,
    ) {
        let Self { pods, of_jobs } = self;
        let wanted = pods.into_iter().filter(|(_, pod)| namespace.is_none_or(|of| of == pod.namespace));
        let owned = wanted.map(|(uid, mut pod)| {
            let controller = pod.controller.take().map(|mut owner| {
                owner.namespace.clone_from(&pod.namespace);
                let above = of_jobs.get(&owner).filter(|above| above.kind != "CronJob");
                above.cloned().unwrap_or(owner)
            });
            (controller, pod.created, uid, pod)
        });
        let mut owned: Vec<_> = owned.collect();
        owned.sort_by(|one, other| (&one.0, one.1, &one.2).cmp(&(&other.0, other.1, &other.2)));
        let (mut before, mut ended, mut times) = (None, Seconds::MIN, 0_u32);
        for (controller, created, uid, pod) in owned {
            let end = pod.completed.or((pod.last < running_since).then_some(pod.last));
            if before != controller || created > ended.saturating_add(ANOTHER) {
                (times, ended) = (times.saturating_add(1), Seconds::MIN);
            }
            ended = ended.max(end.unwrap_or(Seconds::MAX));
            before.clone_from(&controller);
            let Some(object) = object(&uid, &pod, controller.as_ref(), times, &view.snapshot.table) else {
                continue;
            };
            if pod.scheduled.is_none() {
                reader.pending = reader.pending.saturating_add(1);
            } else if let Some(run) = PodRun::of(&object, None) {
                reader.push(&object, run, end.map(moment), [pod.gpus, pod.cpus], view);
            }
        }
    }
}

/// Returns a pod with all that is known of it. The uid of its controller, which isn't, is made of names and `times`.
fn object(
    uid: &str,
    pod: &KnownPod,
    controller: Option<&OwnerName>,
    times: u32,
    table: &OwnerTable,
) -> Option<Pod> {
    let owner = controller.map(|OwnerName { namespace, kind, name }| {
        let known = table.ancestors().find(|(_, of, _)| of == kind).map(|(group, ..)| group);
        let api_version = match known.or((kind == "DaemonSet").then_some("apps")) {
            Some(group) => format!("{group}/v1"),
            None => "v1".to_owned(),
        };
        let uid = format!("{namespace}/{kind}/{name}/{times}");
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
    });
    let is_static = controller.is_some_and(|owner| owner.kind == "Node");
    let annotations = if is_static { json!({"kubernetes.io/config.mirror": ""}) } else { json!({}) };
    let scheduled = pod
        .scheduled
        .map(|at| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": moment(at)}));
    let object = json!({
        "metadata": {
            "name": pod.name, "namespace": pod.namespace, "uid": uid, "labels": pod.labels, "annotations": annotations,
            "creationTimestamp": moment(pod.created), "ownerReferences": Vec::from_iter(owner),
        },
        "spec": {"priority": pod.priority},
        "status": {"conditions": Vec::from_iter(scheduled)},
    });
    serde_json::from_value(object).ok()
}
