mod by_queue;
mod labels;
mod messages;
mod state;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tenure_policy::{
    expiry::Family as QueueFamily,
    queue_status::{QueueReport, Workloads},
};
use tenure_service::metrics::{registered, seconds};
use tenure_types::extension::ExtensionState;

use by_queue::{ByQueue, QueueLabel};
use messages::MessageCounters;

use labels::{
    EventLabels, EvictionLabels, ExpirationLabels, ExtensionLabels, PauseLabels, QueueLabels, StampLabels,
    StatusLabels,
};
pub use labels::{EventResult, ExpiryResult, StampResult, StatusResult};
pub use messages::MessageResult;
pub use state::State;

/// The time before its end in which a pod counts as expiring soon.
const SOON: SignedDuration = SignedDuration::from_hours(1);

/// The metrics that the keeper counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    queues: QueueCounters,
    stamps: Family<StampLabels, Counter<u64, AtomicU64>>,
    statuses: Family<StatusLabels, Counter<u64, AtomicU64>>,
    ready: Histogram,
    lateness: Histogram,
    shortened: Counter<u64, AtomicU64>,
    events: Family<EventLabels, Counter<u64, AtomicU64>>,
    extensions: Family<ExtensionLabels, Counter<u64, AtomicU64>>,
    pending_extensions: Gauge,
    messages: MessageCounters,
    in_flight: Arc<AtomicUsize>,
    waiting_events: Arc<AtomicUsize>,
    workloads: Arc<Mutex<Vec<(String, Workloads)>>>,
}

/// Counters by queue, which go with their queue.
#[derive(Clone, Debug)]
struct QueueCounters {
    expirations: ByQueue<ExpirationLabels>,
    refused: ByQueue<PauseLabels>,
    reversed: ByQueue<PauseLabels>,
    evictions: ByQueue<EvictionLabels>,
    deactivations: ByQueue<QueueLabels>,
    returns: ByQueue<QueueLabels>,
    refused_returns: ByQueue<PauseLabels>,
}

/// A queue, by its family and its name.
pub type OfQueue<'q> = (QueueFamily, &'q str);

const fn family((family, _): OfQueue<'_>) -> &'static str {
    match family {
        QueueFamily::Runai => "run.ai",
        QueueFamily::Tensorstack => "t9k",
    }
}

/// Implements [`QueueLabel`] for labels with a field `queue`.
macro_rules! with_queue {
    ($($labels:ty),*) => {
        $(impl QueueLabel for $labels {
            fn queue(&self) -> &str {
                &self.queue
            }
        })*
    };
}

with_queue!(ExpirationLabels, PauseLabels, EvictionLabels, QueueLabels);

impl QueueCounters {
    fn register(registry: &mut Registry) -> Self {
        Self {
            expirations: ByQueue::register(
                registry,
                "expirations",
                "What was done about expired pods, by queue, kind of what was paused or deleted, and result; a pod that runs on counts at each try",
            ),
            refused: ByQueue::register(
                registry,
                "refused_pauses",
                "Pauses and deletions that the API server or an admission webhook refused, by queue and kind",
            ),
            reversed: ByQueue::register(
                registry,
                "reversed_pauses",
                "Pauses of what was paused before and has been set back, by queue and kind",
            ),
            evictions: ByQueue::register(
                registry,
                "pods_ready_evictions",
                "Workloads that made room because their pods were not ready in time, by queue and by whether they had been before",
            ),
            deactivations: ByQueue::register(
                registry,
                "deactivations",
                "Workloads that were deactivated because they came back too often, by queue",
            ),
            returns: ByQueue::register(
                registry,
                "returns",
                "Paused workloads that came back by themselves, by queue",
            ),
            refused_returns: ByQueue::register(
                registry,
                "refused_returns",
                "Returns that the API server or an admission webhook refused, by queue and kind",
            ),
        }
    }

    /// Forgets the counters of queues that don't exist.
    fn retain(&self, exists: impl Fn(&str) -> bool) {
        let Self { expirations, refused, reversed, evictions, deactivations, returns, refused_returns } =
            self;
        expirations.retain(&exists);
        refused.retain(&exists);
        reversed.retain(&exists);
        evictions.retain(&exists);
        deactivations.retain(&exists);
        returns.retain(&exists);
        refused_returns.retain(&exists);
    }
}

impl Metrics {
    /// Makes the keeper's metrics part of a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let statuses = "Statuses that were to be written on queues, by result";
        let metrics = Self {
            queues: QueueCounters::register(registry),
            stamps: registered(
                registry,
                "stamps",
                "Start times that were to be written on PodGroups, by their API group and result",
                Family::default(),
            ),
            statuses: registered(registry, "queue_status_writes", statuses, Family::default()),
            ready: seconds(
                registry,
                "pod_time_to_ready",
                "Time from the scheduling of a pod until it was ready",
                [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0],
            ),
            lateness: seconds(
                registry,
                "lateness",
                "Time from the deadline of a pod, or the change of its queue that made it overdue, until it was paused or deleted",
                [0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0],
            ),
            shortened: registered(
                registry,
                "shortened_terminations",
                "Pods past their ceiling whose grace period was longer than allowed, and was shortened",
                Counter::default(),
            ),
            events: registered(
                registry,
                "events",
                "Events that were to be written, by result: what isn't Written is lost",
                Family::default(),
            ),
            extensions: registered(
                registry,
                "extensions",
                "States that the keeper has given Extensions, by state: Granted is what it grants by itself",
                Family::default(),
            ),
            pending_extensions: registered(
                registry,
                "pending_extensions",
                "Extensions that wait for a decision, as the leader sees them",
                Gauge::default(),
            ),
            messages: MessageCounters::register(registry),
            in_flight: Arc::default(),
            waiting_events: Arc::default(),
            workloads: Arc::default(),
        };
        // from zero on, so that Prometheus sees the first as well
        for result in StatusResult::ALL {
            drop(metrics.statuses.get_or_create(&StatusLabels { result }));
        }
        metrics
    }

    pub fn expired(&self, of: OfQueue<'_>, kind: &str, result: ExpiryResult) {
        let labels = ExpirationLabels { family: family(of), queue: of.1.into(), kind: kind.into(), result };
        self.queues.expirations.inc(labels);
    }

    pub fn refused(&self, of: OfQueue<'_>, kind: &str) {
        self.queues.refused.inc(PauseLabels { family: family(of), queue: of.1.into(), kind: kind.into() });
    }

    pub fn reversed(&self, of: OfQueue<'_>, kind: &str) {
        self.queues.reversed.inc(PauseLabels { family: family(of), queue: of.1.into(), kind: kind.into() });
    }

    /// Counts an extension that got a state.
    pub fn extension(&self, state: ExtensionState) {
        self.extensions.get_or_create(&ExtensionLabels { state: state.name() }).inc();
    }

    /// Sets the number of extensions that wait for a decision.
    pub fn pending_extensions(&self, number: usize) {
        self.pending_extensions.set(number.try_into().unwrap_or(i64::MAX));
    }

    /// Counts a stamp, by the API group of its `PodGroup`.
    pub fn stamped(&self, group: &'static str, result: StampResult) {
        self.stamps.get_or_create(&StampLabels { group, result }).inc();
    }

    /// Counts the status of a queue.
    pub fn status_written(&self, result: StatusResult) {
        self.statuses.get_or_create(&StatusLabels { result }).inc();
    }

    /// A workload made room, for this cause.
    pub fn evicted(&self, of: OfQueue<'_>, cause: &'static str) {
        self.queues.evictions.inc(EvictionLabels { family: family(of), queue: of.1.into(), cause });
    }

    /// A workload won't come back by itself.
    pub fn deactivated(&self, of: OfQueue<'_>) {
        self.queues.deactivations.inc(QueueLabels { family: family(of), queue: of.1.into() });
    }

    /// A workload came back.
    pub fn returned(&self, of: OfQueue<'_>) {
        self.queues.returns.inc(QueueLabels { family: family(of), queue: of.1.into() });
    }

    /// A workload may not come back.
    pub fn refused_return(&self, of: OfQueue<'_>, kind: &str) {
        self.queues.refused_returns.inc(PauseLabels {
            family: family(of),
            queue: of.1.into(),
            kind: kind.into(),
        });
    }

    /// Takes the counts of the workloads of each queue.
    pub fn count_workloads(&self, reports: &[(String, QueueReport)]) {
        let counts = reports.iter().map(|(queue, report)| (queue.clone(), report.workloads));
        *self.workloads.lock() = counts.collect();
    }

    /// Forgets the counts of workloads, which are those of the keeper that leads.
    pub fn forget_workloads(&self) {
        self.workloads.lock().clear();
    }

    /// A pod got ready, so long after it was scheduled.
    pub fn ready(&self, seconds: f64) {
        self.ready.observe(seconds);
    }

    /// The grace period of a pod was shortened.
    pub fn shortened(&self) {
        self.shortened.inc();
    }

    /// An event was written, or won't be.
    pub fn event(&self, result: EventResult) {
        self.events.get_or_create(&EventLabels { result }).inc();
    }

    /// Messages are counted for a receiver, from zero on.
    pub fn receiver(&self, receiver: &str) {
        self.messages.receiver(receiver);
    }

    /// A receiver is gone.
    pub fn forget_receiver(&self, receiver: &str) {
        self.messages.forget_receiver(receiver);
    }

    /// Messages were sent, or won't be.
    pub fn message(&self, receiver: &str, result: MessageResult, count: usize) {
        self.messages.count(receiver, result, count);
    }

    /// So many messages wait for a receiver.
    pub fn waiting_messages(&self, receiver: &str, count: usize) {
        self.messages.waiting(receiver, count);
    }

    pub fn late(&self, seconds: f64) {
        self.lateness.observe(seconds);
    }

    /// Notices that were begun and are not yet done.
    pub fn in_flight(&self, notices: usize) {
        self.in_flight.store(notices, Relaxed);
    }

    /// Events that wait to be written.
    pub fn waiting_events(&self, events: usize) {
        self.waiting_events.store(events, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::{Request, Response, header::DATE};
    use kube::{Client, client::Body};
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};
    use tenure_index::{Settings, UsageLedger};
    use tenure_policy::{runs::Runs, usage::UsageResources};
    use tenure_service::{
        clock::ServerClock, freshness::Freshness, leadership::Leadership, readiness::ProcessReadiness,
    };
    use tenure_types::tensorstack::v1beta1;

    use super::*;
    use crate::cluster::ClusterState;
    use crate::ledger::{UsageBook, UsageMetrics};

    /// All series but for the buckets of histograms.
    fn series(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        let mut series: Vec<_> = series.map(str::to_owned).collect();
        series.sort();
        series
    }

    fn expected<const N: usize>(series: [&str; N]) -> [String; N] {
        series.map(|series| format!("tenure_keeper_{series}"))
    }

    /// Counts at least once in each metric.
    fn count_each(metrics: &Metrics) {
        let demo = (QueueFamily::Runai, "demo");
        metrics.expired(demo, "Deployment", ExpiryResult::Paused);
        metrics.expired(demo, "Deployment", ExpiryResult::Paused);
        metrics.expired(demo, "Pod", ExpiryResult::Deleted);
        metrics.refused(demo, "Job");
        metrics.reversed(demo, "Deployment");
        metrics.stamped("scheduling.run.ai", StampResult::Stamped);
        metrics.status_written(StatusResult::Written);
        metrics.evicted(demo, "WaitForStart");
        metrics.deactivated(demo);
        metrics.returned((QueueFamily::Tensorstack, "demo"));
        metrics.refused_return(demo, "Job");
        metrics.ready(2.5);
        metrics.late(0.25);
        metrics.late(0.5);
        metrics.shortened();
        metrics.event(EventResult::Written);
        metrics.extension(ExtensionState::Granted);
        metrics.pending_extensions(2);
        metrics.receiver("ops");
        metrics.message("ops", MessageResult::Dropped, 3);
        metrics.waiting_messages("ops", 4);
    }

    #[test]
    fn each_metric_has_its_name_its_labels_and_its_value() {
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut registry);
        count_each(&metrics);
        let expected = expected([
            r#"deactivations_total{family="run.ai",queue="demo"} 1"#,
            r#"events_total{result="Written"} 1"#,
            r#"expirations_total{family="run.ai",queue="demo",kind="Deployment",result="Paused"} 2"#,
            r#"expirations_total{family="run.ai",queue="demo",kind="Pod",result="Deleted"} 1"#,
            r#"extensions_total{state="Granted"} 1"#,
            "lateness_seconds_count 2",
            "lateness_seconds_sum 0.75",
            r#"messages_total{receiver="ops",result="Dropped"} 3"#,
            r#"messages_total{receiver="ops",result="Failed"} 0"#,
            r#"messages_total{receiver="ops",result="Refused"} 0"#,
            r#"messages_total{receiver="ops",result="Sent"} 0"#,
            "pending_extensions 2",
            "pod_time_to_ready_seconds_count 1",
            "pod_time_to_ready_seconds_sum 2.5",
            r#"pods_ready_evictions_total{family="run.ai",queue="demo",cause="WaitForStart"} 1"#,
            r#"queue_status_writes_total{result="ChildrenLeft"} 0"#,
            r#"queue_status_writes_total{result="Failed"} 0"#,
            r#"queue_status_writes_total{result="Gone"} 0"#,
            r#"queue_status_writes_total{result="Written"} 1"#,
            r#"refused_pauses_total{family="run.ai",queue="demo",kind="Job"} 1"#,
            r#"refused_returns_total{family="run.ai",queue="demo",kind="Job"} 1"#,
            r#"returns_total{family="t9k",queue="demo"} 1"#,
            r#"reversed_pauses_total{family="run.ai",queue="demo",kind="Deployment"} 1"#,
            "shortened_terminations_total 1",
            r#"stamps_total{group="scheduling.run.ai",result="Stamped"} 1"#,
            r#"waiting_messages{receiver="ops"} 4"#,
        ]);
        assert_eq!(series(&registry), expected);
    }

    /// A clock that stands at the beginning of the year 2026.
    async fn clock() -> ServerClock {
        let service = tower::service_fn(async |_: Request<Body>| {
            Response::builder().header(DATE, "Thu, 01 Jan 2026 00:00:00 GMT").body(Body::empty())
        });
        let (clock, readiness) = (ServerClock::default(), ProcessReadiness::default());
        let measured = readiness.awaiting("the time");
        tokio::spawn(clock.clone().measure(Client::new(service, "default"), measured));
        readiness.ready().await;
        clock
    }

    /// A pod of a queue with a ceiling of an hour.
    fn pod(uid: &str, created: &str, more: &Value) -> tenure_types::projection::Pod {
        let mut pod = json!({"metadata": {
            "name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": created,
            "labels": {"scheduler.tensorstack.dev/queue": "demo"},
        }});
        json_patch::merge(&mut pod, more);
        serde_json::from_value(pod).unwrap()
    }

    /// A paused owner, with the record and the state that the keeper notes.
    fn paused(requeue_at: &str) -> Value {
        let record = json!({
            "at": "2025-12-31T23:00:00Z", "field": "spec.suspend", "previousValue": false, "value": true,
            "queue": "demo", "queueGroup": "scheduler.tensorstack.dev", "reason": "PodsReadyTimeout",
        });
        let state = json!({"count": 1, "priority": 0, "requeueAt": requeue_at});
        json!({"name": "job", "namespace": "ns", "uid": "job", "annotations": {
            "tenure.dev/paused": record.to_string(), "tenure.dev/requeue-state": state.to_string(),
        }})
    }

    #[tokio::test(start_paused = true)]
    async fn gauges_show_the_cluster_as_it_is() {
        let cluster = ClusterState::new(Settings::default());
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut Registry::default());
        State::register(&mut registry, cluster.clone(), clock().await, Leadership::always(), &metrics);
        let nothing = expected([
            "leader 1.0",
            "paused_owners 0.0",
            "pending_writes 0.0",
            "pods_expiring_soon 0.0",
            "pods_under_ceiling 0.0",
            "terminating_past_end 0.0",
            "waiting_to_return 0.0",
        ]);
        assert_eq!(series(&registry), nothing);

        cluster.with(|index| {
            for (queue, ceiling) in [("demo", "1h"), ("long", "3h")] {
                let spec = v1beta1::QueueSpec { max_duration: Some(ceiling.into()), ..Default::default() };
                index.apply_tensorstack(queue, &spec);
            }
            let in_long = json!({"metadata": {"labels": {"scheduler.tensorstack.dev/queue": "long"}}});
            let terminating = json!({"metadata": {
                "deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30,
            }});
            for pod in [
                pod("young", "2025-12-31T23:30:00Z", &json!({})),
                pod("younger", "2025-12-31T23:45:00Z", &json!({})),
                pod("later", "2025-12-31T23:45:00Z", &in_long),
                pod("overdue", "2025-12-31T22:00:00Z", &json!({})),
                pod("terminating", "2025-12-31T22:00:00Z", &terminating),
            ] {
                index.apply_pod(&pod);
            }
            index.apply_owner(1, &serde_json::from_value(paused("2026-01-01T00:10:00Z")).unwrap());
            let mut staying = paused("");
            (staying["name"], staying["uid"]) = (json!("staying"), json!("staying"));
            json_patch::merge(&mut staying, &json!({"annotations": {"tenure.dev/requeue-state": null}}));
            index.apply_owner(1, &serde_json::from_value(staying).unwrap());
        });
        metrics.in_flight(4);
        let all = expected([
            "leader 1.0",
            "next_expiry_timestamp_seconds 1767222000.0",
            "paused_owners 1.0",
            "pending_writes 5.0",
            "pods_expiring_soon 3.0",
            "pods_under_ceiling 4.0",
            "terminating_past_end 1.0",
            "waiting_to_return 1.0",
        ]);
        assert_eq!(series(&registry), all);
    }

    fn report(running: u32) -> QueueReport {
        let workloads = Workloads { running, protected: 1, paused: 2, requeueing: 3 };
        QueueReport { children: Vec::new(), workloads, runs: Runs::default(), next_expiry: None }
    }

    #[tokio::test(start_paused = true)]
    async fn workloads_are_those_of_the_last_count_while_this_keeper_leads() {
        let cluster = ClusterState::new(Settings::default());
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut Registry::default());
        State::register(&mut registry, cluster, clock().await, Leadership::always(), &metrics);
        let workloads = || {
            let all = series(&registry).into_iter();
            all.filter(|series| series.contains("workloads{")).collect::<Vec<_>>()
        };
        for running in [1, 4] {
            metrics.count_workloads(&[("demo".into(), report(running))]);
            let expected = expected([
                r#"workloads{family="run.ai",queue="demo",state="paused"} 2"#,
                r#"workloads{family="run.ai",queue="demo",state="protected"} 1"#,
                r#"workloads{family="run.ai",queue="demo",state="requeueing"} 3"#,
                &format!(r#"workloads{{family="run.ai",queue="demo",state="running"}} {running}"#),
            ]);
            assert_eq!(workloads(), expected);
        }
        metrics.forget_workloads();
        assert_eq!(workloads(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_page_of_metrics_has_each_of_them_and_no_other() {
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut registry);
        count_each(&metrics);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        // a metric without a series isn't shown
        let registered = format!("{registry:?}").matches("Descriptor {").count();
        assert_eq!(text.matches("# TYPE ").count(), registered);

        let cluster = ClusterState::new(Settings::default());
        cluster.with(|index| {
            let queue = v1beta1::QueueSpec { max_duration: Some("1h".into()), ..Default::default() };
            index.apply_tensorstack("demo", &queue);
            index.apply_pod(&pod("young", "2025-12-31T23:30:00Z", &json!({})));
        });
        let mut registry = Registry::with_prefix("tenure_keeper");
        metrics.count_workloads(&[("demo".into(), report(1))]);
        let known = cluster.clone();
        State::register(&mut registry, cluster, clock().await, Leadership::always(), &metrics);
        let book = UsageBook::default();
        let time = "2026-01-01T00:00:00Z";
        let used = json!({"family": "t9k", "queue": "demo", "used": {"cpu": {"cut": 1}}});
        let record = json!({"resourceVersion": "1", "at": time, "since": time, "queues": [used]});
        let record = serde_json::from_value(record).unwrap();
        book.open(UsageLedger::restore(record, UsageResources::default()));
        UsageMetrics::register(&mut registry, book, known);
        let freshness = Freshness::default();
        let _pods = freshness.watch("pods", true);
        registry.register_collector(Box::new(freshness));
        encode(&mut text, &registry).unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let names =
            types.map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.into() });
        let page = include_str!("../../../docs/metrics.md");
        let listed = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let own = |name: &&str| name.starts_with("tenure_keeper_") && !name.contains("_config_");
        let listed: BTreeSet<_> = listed.filter(own).map(str::to_owned).collect();
        assert_eq!(names.collect::<BTreeSet<_>>(), listed);
    }
}
