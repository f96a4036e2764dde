//! The metrics of the keeper.
//!
//! Controllers count in [`Metrics`], and [`MetricsSources`] computes the rest when the metrics are read. The
//! page `docs/metrics.md` lists all of them. Counters of a queue go with the queue.

mod counters;
mod results;
mod state;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize},
};

use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tenure_policy::queue_status::WorkloadCounts;
use tenure_service::metrics::{registered, seconds};

pub use counters::Counters;
pub use results::{EventResult, ExpiryResult, MessageResult, StampResult, StatusResult, label};
pub use state::MetricsSources;

/// The time before the end of a run from which on its pod counts as expiring soon.
const SOON: SignedDuration = SignedDuration::from_hours(1);

/// The labels of a queue.
const QUEUE: [&str; 2] = ["family", "queue"];
/// The labels of an object in a queue.
const OBJECT: [&str; 3] = ["family", "queue", "kind"];

/// The metrics that the keeper counts, each with the help that [`Metrics::register`] gives it.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Counters that go with their queue.
    pub queues: QueueCounters,
    /// Stamps on `PodGroup`s, by API group and [`StampResult`].
    pub stamps: Counters<2>,
    /// Writes of statuses, by [`StatusResult`].
    pub statuses: Counters<1>,
    /// Seconds from the scheduling of a pod until it was ready.
    pub ready: Histogram,
    /// Seconds from the deadline of a pod until the pause or the deletion.
    pub lateness: Histogram,
    /// Pods past their ceiling whose grace period was shortened.
    pub shortened: Counter<u64, AtomicU64>,
    /// Events, by [`EventResult`].
    pub events: Counters<1>,
    /// States that the keeper has given Extensions, by state.
    pub extensions: Counters<1>,
    /// Messages, by receiver and [`MessageResult`].
    pub messages: Counters<2>,
    /// Messages that wait to be sent, by receiver.
    waiting_messages: Family<[(&'static str, String); 1], Gauge>,
    /// The notices that were begun and are not yet done.
    pub in_flight: Arc<AtomicUsize>,
    /// The workloads of each queue, as they were last counted. Empty: another keeper leads.
    pub workloads: Arc<Mutex<Vec<(String, WorkloadCounts)>>>,
}

/// Counters by queue, which go with their queue.
#[derive(Clone, Debug)]
pub struct QueueCounters {
    /// Acts on expired pods, by family, queue, kind and [`ExpiryResult`].
    pub expirations: Counters<4>,
    /// Pauses and deletions that were refused, by family, queue and kind.
    pub refused_pauses: Counters<3>,
    /// Pauses after a reversal, by family, queue and kind.
    pub reversed_pauses: Counters<3>,
    /// Workloads that made room because they weren't ready, by family, queue and cause.
    pub evictions: Counters<3>,
    /// Workloads that came back too often, by family and queue.
    pub deactivations: Counters<2>,
    /// Workloads that came back by themselves, by family and queue.
    pub returns: Counters<2>,
    /// Returns that were refused, by family, queue and kind.
    pub refused_returns: Counters<3>,
}

impl Metrics {
    /// Registers all counters, histograms and gauges, with their help.
    pub fn register(registry: &mut Registry) -> Self {
        let queues = QueueCounters::register(registry);
        let help = "Start times that were to be written on PodGroups, by their API group and result";
        let stamps = Counters::register(registry, "stamps", help, ["group", "result"]);
        let help = "Statuses that were to be written on queues, by result";
        let statuses = Counters::register(registry, "queue_status_writes", help, ["result"]);
        // from zero on, so that Prometheus sees the first write as an increase
        for result in StatusResult::ALL {
            statuses.add([&label(result)], 0);
        }
        let help = "Time from the scheduling of a pod until it was ready";
        let bounds = [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
        let ready = seconds(registry, "pod_time_to_ready", help, bounds);
        let help = "Time from the deadline of a pod, or the change of its queue that made it overdue, until it was paused or deleted";
        let bounds = [0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0];
        let lateness = seconds(registry, "lateness", help, bounds);
        let help = "Pods past their ceiling whose grace period was longer than allowed, and was shortened";
        let shortened = registered(registry, "shortened_terminations", help, Counter::default());
        let help = "Events by result: all but Written are lost";
        let events = Counters::register(registry, "events", help, ["result"]);
        let help =
            "States that the keeper has given Extensions, by state: Granted is what it grants by itself";
        let extensions = Counters::register(registry, "extensions", help, ["state"]);
        let help = "Messages by receiver and result: all but Sent are lost";
        let messages = Counters::register(registry, "messages", help, ["receiver", "result"]);
        let help = "Messages that wait to be sent, by receiver";
        let waiting_messages = registered(registry, "waiting_messages", help, Family::default());
        let (in_flight, workloads) = Default::default();
        Self {
            queues,
            stamps,
            statuses,
            ready,
            lateness,
            shortened,
            events,
            extensions,
            messages,
            waiting_messages,
            in_flight,
            workloads,
        }
    }

    /// Shows the counters of a receiver from zero on. The configuration bounds the names of
    /// receivers.
    pub fn receiver(&self, receiver: &str) {
        for result in MessageResult::ALL {
            self.messages.add([receiver, &label(result)], 0);
        }
        self.waiting_messages(receiver, 0);
    }

    /// Removes the gauge of a receiver that is gone. Its counters stay.
    pub fn forget_receiver(&self, receiver: &str) {
        self.waiting_messages.remove(&[("receiver", receiver.into())]);
    }

    /// Sets the number of messages that wait for a receiver.
    pub fn waiting_messages(&self, receiver: &str, count: usize) {
        let gauge = self.waiting_messages.get_or_create_owned(&[("receiver", receiver.into())]);
        gauge.set(count.try_into().unwrap_or(i64::MAX));
    }
}

impl QueueCounters {
    fn register(registry: &mut Registry) -> Self {
        let help = "Expired pods by queue, kind of the paused or deleted object, and result; a pod that runs on counts at each try";
        let labels = ["family", "queue", "kind", "result"];
        let expirations = Counters::register(registry, "expirations", help, labels);
        let help =
            "Pauses and deletions that the API server or an admission webhook refused, by queue and kind";
        let refused_pauses = Counters::register(registry, "refused_pauses", help, OBJECT);
        let help = "Pauses of workloads whose earlier pause was undone, by queue and kind";
        let reversed_pauses = Counters::register(registry, "reversed_pauses", help, OBJECT);
        let help = "Workloads evicted because their pods weren't ready in time, by queue and cause";
        let labels = ["family", "queue", "cause"];
        let evictions = Counters::register(registry, "pods_ready_evictions", help, labels);
        let help = "Workloads that were deactivated because they came back too often, by queue";
        let deactivations = Counters::register(registry, "deactivations", help, QUEUE);
        let help = "Paused workloads that came back by themselves, by queue";
        let returns = Counters::register(registry, "returns", help, QUEUE);
        let help = "Returns that the API server or an admission webhook refused, by queue and kind";
        let refused_returns = Counters::register(registry, "refused_returns", help, OBJECT);
        Self {
            expirations,
            refused_pauses,
            reversed_pauses,
            evictions,
            deactivations,
            returns,
            refused_returns,
        }
    }

    /// Forgets the counters of queues that don't exist.
    fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.expirations.retain(&exists);
        self.refused_pauses.retain(&exists);
        self.reversed_pauses.retain(&exists);
        self.evictions.retain(&exists);
        self.deactivations.retain(&exists);
        self.returns.retain(&exists);
        self.refused_returns.retain(&exists);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeSet, HashSet},
        sync::atomic::Ordering::Relaxed,
    };

    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};
    use tenure_index::{CeilingOptions, RetryAfter, UsageLedger};
    use tenure_policy::{
        config::Config,
        expiry::{Family, Scope},
        queue_status::QueueReport,
        usage::UsageResources,
    };
    use tenure_service::{clock::ServerClock, config::Current, freshness::Freshness, leadership::Leadership};
    use tenure_types::{extension::ExtensionState, tensorstack::v1beta1};

    use super::{
        EventResult, ExpiryResult, MessageResult, Metrics, MetricsSources, Registry, StampResult,
        StatusResult, WorkloadCounts, label,
    };
    use crate::{
        cluster::ClusterState, config::cluster_state, events::EventQueue, extensions::OpenExtensions,
        ledger::UsageBook, messages::Messages,
    };

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
        let (family, queue) = (Family::Runai.row().name, "demo");
        let paused = label(ExpiryResult::Paused);
        metrics.queues.expirations.inc([family, queue, "Deployment", &paused]);
        metrics.queues.expirations.inc([family, queue, "Deployment", &paused]);
        metrics.queues.expirations.inc([family, queue, "Pod", &label(ExpiryResult::Deleted)]);
        metrics.queues.refused_pauses.inc([family, queue, "Job"]);
        metrics.queues.reversed_pauses.inc([family, queue, "Deployment"]);
        metrics.stamps.inc(["scheduling.run.ai", &label(StampResult::Stamped)]);
        metrics.statuses.inc([&label(StatusResult::Written)]);
        metrics.queues.evictions.inc([family, queue, "WaitForStart"]);
        metrics.queues.deactivations.inc([family, queue]);
        metrics.queues.returns.inc([Family::Tensorstack.row().name, queue]);
        metrics.queues.refused_returns.inc([family, queue, "Job"]);
        metrics.ready.observe(2.5);
        metrics.lateness.observe(0.25);
        metrics.lateness.observe(0.5);
        metrics.shortened.inc();
        metrics.events.inc([&label(EventResult::Written)]);
        metrics.extensions.inc([ExtensionState::Granted.name()]);
        metrics.receiver("ops");
        metrics.messages.add(["ops", &label(MessageResult::Dropped)], 3);
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

    fn register(registry: &mut Registry, cluster: &ClusterState, metrics: &Metrics, usage: UsageBook) {
        let (cluster, metrics, lead) = (cluster.clone(), metrics.clone(), Leadership::always());
        let clock = ServerClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let messages = Messages::new(Current::default(), clock.clone(), metrics.clone());
        let events = EventQueue::new(metrics.clone(), cluster.outbox.clone(), messages);
        let extensions = OpenExtensions::default();
        let state = MetricsSources { cluster, clock, lead, metrics, usage, events, extensions };
        registry.register_collector(Box::new(state));
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

    #[test]
    fn gauges_show_the_cluster_as_it_is() {
        let cluster = ClusterState::new(CeilingOptions::default());
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut Registry::default());
        register(&mut registry, &cluster, &metrics, UsageBook::default());
        let nothing = expected([
            "configured_queues_missing 0.0",
            "leader 1.0",
            "paused_owners 0.0",
            "pending_extensions 0.0",
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
                index.apply_queue(queue, &spec);
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
        metrics.in_flight.store(4, Relaxed);
        let all = expected([
            "configured_queues_missing 0.0",
            "leader 1.0",
            "next_expiry_timestamp_seconds 1767222000.0",
            "paused_owners 1.0",
            "pending_extensions 0.0",
            "pending_writes 5.0",
            "pods_expiring_soon 3.0",
            "pods_under_ceiling 4.0",
            "terminating_past_end 1.0",
            "waiting_to_return 1.0",
        ]);
        assert_eq!(series(&registry), all);
    }

    #[test]
    fn a_queue_that_the_configuration_names_is_missing_from_the_first_list_until_it_exists() {
        let config = Config::parse("tenancy: {defaultQueue: {tensorstack: shared}}").unwrap();
        let cluster = cluster_state(&config, Scope::default(), RetryAfter::default());
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut Registry::default());
        register(&mut registry, &cluster, &metrics, UsageBook::default());
        let is_missing =
            || series(&registry).contains(&"tenure_keeper_configured_queues_missing 1.0".to_owned());
        assert!(!is_missing(), "queues aren't listed yet");
        cluster.with(|index| index.retain_queues(Family::Tensorstack, &HashSet::new()));
        assert!(is_missing());
        cluster.with(|index| index.apply_queue("shared", &v1beta1::QueueSpec::default()));
        assert!(!is_missing());
        cluster.with(|index| index.delete_queue(Family::Tensorstack, "shared"));
        assert!(is_missing());
    }

    fn report(running: u32) -> QueueReport {
        let workloads = WorkloadCounts { running, protected: 1, paused: 2, requeueing: 3 };
        QueueReport { workloads, ..QueueReport::default() }
    }

    #[test]
    fn workloads_are_those_of_the_last_count_while_this_keeper_leads() {
        let cluster = ClusterState::new(CeilingOptions::default());
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut Registry::default());
        register(&mut registry, &cluster, &metrics, UsageBook::default());
        let workloads = || {
            let all = series(&registry).into_iter();
            all.filter(|series| series.contains("workloads{")).collect::<Vec<_>>()
        };
        for running in [1, 4] {
            *metrics.workloads.lock() = vec![("demo".into(), report(running).workloads)];
            let expected = expected([
                r#"workloads{family="run.ai",queue="demo",state="paused"} 2"#,
                r#"workloads{family="run.ai",queue="demo",state="protected"} 1"#,
                r#"workloads{family="run.ai",queue="demo",state="requeueing"} 3"#,
                &format!(r#"workloads{{family="run.ai",queue="demo",state="running"}} {running}"#),
            ]);
            assert_eq!(workloads(), expected);
        }
        metrics.workloads.lock().clear();
        assert_eq!(workloads(), [""; 0]);
    }

    #[test]
    fn the_page_of_metrics_has_each_of_them_and_no_other() {
        let mut registry = Registry::with_prefix("tenure_keeper");
        let metrics = Metrics::register(&mut registry);
        count_each(&metrics);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        // a metric without a series isn't shown
        let registered = format!("{registry:?}").matches("Descriptor {").count();
        assert_eq!(text.matches("# TYPE ").count(), registered);

        let cluster = ClusterState::new(CeilingOptions::default());
        cluster.with(|index| {
            let queue = v1beta1::QueueSpec { max_duration: Some("1h".into()), ..Default::default() };
            index.apply_queue("demo", &queue);
            index.apply_pod(&pod("young", "2025-12-31T23:30:00Z", &json!({})));
        });
        let mut registry = Registry::with_prefix("tenure_keeper");
        *metrics.workloads.lock() = vec![("demo".into(), report(1).workloads)];
        let book = UsageBook::default();
        let time = "2026-01-01T00:00:00Z";
        let used = json!({"family": "t9k", "queue": "demo", "used": {"cpu": {"cut": 1}}});
        let record = json!({"resourceVersion": "1", "at": time, "since": time, "queues": [used]});
        let record = serde_json::from_value(record).unwrap();
        book.open(UsageLedger::restore(record, UsageResources::default()));
        register(&mut registry, &cluster, &metrics, book);
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
