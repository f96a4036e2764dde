//! The webhook's metrics, which `run.rs` registers once with prefix `tenure_webhook`. Each part
//! counts its own answers. Durations are in seconds. Labels have few values, except for the names
//! of queues, whose series are dropped with the queue.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use tenure_service::metrics::{registered, seconds};

/// The number of candidate nodes in an answer to a scheduler, by result.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeCounts {
    /// Nodes that remain with the offered victims.
    pub kept: u64,
    /// Nodes that remain with other victims.
    pub instead: u64,
    /// Nodes that were dropped because a victim is protected.
    pub protected: u64,
    /// Nodes that were dropped because a victim isn't known.
    pub unknown: u64,
}

/// The labels of a counter: their names and values.
type MetricLabels<const N: usize> = [(&'static str, &'static str); N];

/// The webhook's metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<MetricLabels<2>, Counter>,
    mutations: Family<MetricLabels<3>, Counter>,
    guard_verdicts: Family<MetricLabels<2>, Counter>,
    owner_answers: Family<MetricLabels<1>, Counter>,
    rejected_requests: Family<[(&'static str, u16); 1], Counter>,
    seconds: Histogram,
    conversions: Family<MetricLabels<2>, Counter>,
    converted_objects: Family<MetricLabels<2>, Counter>,
    conversion_seconds: Histogram,
    preemptions: PreemptionMetrics,
}

/// The metrics of the answers to schedulers.
#[derive(Clone, Debug)]
struct PreemptionMetrics {
    nodes: Family<MetricLabels<1>, Counter>,
    seconds: Histogram,
    wake_ups: Counter,
    waiting: Gauge,
    kept: Family<KeptLabels, Counter<f64, AtomicU64>>,
}

/// The labels of kept resources: family, queue and resource.
type KeptLabels = [(&'static str, String); 3];

/// Returns the labels of kept resources. Only queues of the run.ai family have floors.
fn kept_labels(queue: &str, resource: &str) -> KeptLabels {
    [("family", "run.ai".to_owned()), ("queue", queue.to_owned()), ("resource", resource.to_owned())]
}

/// The result of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewResult {
    /// Admitted without warnings.
    Admitted,
    /// Admitted with warnings.
    Warned,
    /// Refused.
    Refused,
}

impl ReviewResult {
    /// Returns the value of the label.
    const fn name(self) -> &'static str {
        match self {
            Self::Admitted => "Admitted",
            Self::Warned => "Warned",
            Self::Refused => "Refused",
        }
    }
}

/// The statuses of answers to requests that can't be served. Their counters begin at zero.
const REJECTIONS: [u16; 7] = [400, 403, 404, 408, 413, 415, 503];

/// The versions that queues are converted to.
const VERSIONS: [&str; 2] = ["v3alpha1", "v2"];

/// Registers a metric that begins empty.
fn default<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registered(registry, name, help, M::default())
}

impl PreemptionMetrics {
    /// Registers the metrics, with counters of nodes that begin at zero.
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            nodes: default(
                registry,
                "preemption_nodes",
                "Candidate nodes of preemptions by result: kept, substituted, protected or unknown",
            ),
            seconds: seconds(
                registry,
                "preemption_duration",
                "Time from a scheduler's question to its answer",
                [0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0],
            ),
            wake_ups: default(
                registry,
                "wake_ups",
                "Wake-ups of preemptors at the end of a floor in their way",
            ),
            waiting: default(registry, "waiting_preemptors", "Preemptors that wait for the end of a floor"),
            kept: default(
                registry,
                "kept_resource_seconds",
                "Resource-seconds that preemptors waited for because of floors",
            ),
        };
        metrics.count(&NodeCounts::default());
        metrics
    }

    /// Counts the nodes of an answer.
    fn count(&self, counts: &NodeCounts) {
        let NodeCounts { kept, instead, protected, unknown } = *counts;
        let results =
            [("Kept", kept), ("Substituted", instead), ("Protected", protected), ("Unknown", unknown)];
        for (result, nodes) in results {
            self.nodes.get_or_create(&[("result", result)]).inc_by(nodes);
        }
    }
}

impl Metrics {
    /// Registers the metrics. Counters with known labels begin at zero, so that Prometheus sees the
    /// first event as well.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reviews: default(registry, "reviews", "Admission reviews by API group and verdict"),
            mutations: default(
                registry,
                "mutations",
                "Mutating admission reviews by API group, kind and result",
            ),
            guard_verdicts: default(
                registry,
                "guard_verdicts",
                "Deletions and evictions of pods that were reviewed, by operation and the reason of the verdict",
            ),
            owner_answers: default(
                registry,
                "owner_answers",
                "Owners that asked for a time to run when they were created or changed, by verdict",
            ),
            rejected_requests: default(
                registry,
                "rejected_requests",
                "Requests that were no admission review, by HTTP status",
            ),
            seconds: seconds(
                registry,
                "review_duration",
                "Time from a request's body to its answer",
                [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0],
            ),
            conversions: default(
                registry,
                "conversions",
                "Conversion reviews by the version asked for and result",
            ),
            converted_objects: default(
                registry,
                "converted_objects",
                "Objects in conversion reviews by the version asked for and the review's result",
            ),
            conversion_seconds: seconds(
                registry,
                "conversion_duration",
                "Time from a conversion review's body to its answer",
                [0.000_05, 0.000_25, 0.001, 0.005, 0.025, 0.1, 0.4, 1.0, 5.0],
            ),
            preemptions: PreemptionMetrics::register(registry),
        };
        for code in REJECTIONS {
            drop(metrics.rejected_requests.get_or_create(&[("code", code)]));
        }
        for version in VERSIONS {
            metrics.count_conversion(version, true, 0, 0);
            metrics.count_conversion(version, false, 0, 0);
        }
        metrics
    }

    /// Counts reviews and their objects. `all` is true if all objects were converted, false if none
    /// was.
    fn count_conversion(&self, version: &'static str, all: bool, reviews: u64, objects: u64) {
        let labels = [("version", version), ("result", if all { "Converted" } else { "Failed" })];
        self.conversions.get_or_create(&labels).inc_by(reviews);
        self.converted_objects.get_or_create(&labels).inc_by(objects);
    }

    /// Counts a review of `/validate`.
    pub(crate) fn reviewed(&self, group: &'static str, verdict: ReviewResult, seconds: f64) {
        self.reviews.get_or_create(&[("group", group), ("verdict", verdict.name())]).inc();
        self.seconds.observe(seconds);
    }

    /// Counts a review of `/mutate`, by group, kind and result.
    pub(crate) fn mutated(&self, [group, kind, result]: [&'static str; 3], seconds: f64) {
        self.mutations.get_or_create(&[("group", group), ("kind", kind), ("result", result)]).inc();
        self.seconds.observe(seconds);
    }

    /// Counts a conversion review: `all` of its objects were converted, or none.
    pub(crate) fn converted(&self, version: &'static str, all: bool, objects: usize, seconds: f64) {
        self.count_conversion(version, all, 1, objects as u64);
        self.conversion_seconds.observe(seconds);
    }

    /// Counts an answer to a scheduler.
    pub(crate) fn preemption_answered(&self, counts: &NodeCounts, seconds: f64) {
        self.preemptions.count(counts);
        self.preemptions.seconds.observe(seconds);
    }

    /// Counts a review of `/guard`.
    pub(crate) fn guarded(&self, operation: &'static str, reason: &'static str, seconds: f64) {
        self.guard_verdicts.get_or_create(&[("operation", operation), ("reason", reason)]).inc();
        self.seconds.observe(seconds);
    }

    /// Counts a review of `/owners`.
    pub(crate) fn owner_answered(&self, verdict: ReviewResult, seconds: f64) {
        self.owner_answers.get_or_create(&[("verdict", verdict.name())]).inc();
        self.seconds.observe(seconds);
    }

    /// Sets the number of pods that wait to be woken.
    pub(crate) fn waiting(&self, pods: usize) {
        self.preemptions.waiting.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    /// Counts the resource-seconds of a queue's pods that floors kept from preemptors.
    pub(crate) fn kept_by_floor(&self, queue: &str, resource: &str, seconds: f64) {
        self.preemptions.kept.get_or_create(&kept_labels(queue, resource)).inc_by(seconds);
    }

    /// Drops the series of a queue that is gone, for one resource.
    pub(crate) fn forget_kept(&self, queue: &str, resource: &str) {
        self.preemptions.kept.remove(&kept_labels(queue, resource));
    }

    /// Counts a wake-up.
    pub(crate) fn woken(&self) {
        self.preemptions.wake_ups.inc();
    }

    /// Counts a request that was answered with a status in place of a review.
    pub(crate) fn rejected(&self, code: u16) {
        self.rejected_requests.get_or_create(&[("code", code)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus_client::encoding::text::encode;
    use tenure_service::freshness::Freshness;

    use super::*;

    /// Returns all series except the buckets of histograms.
    fn series(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{"));
        series.map(str::to_owned).collect()
    }

    /// Raises each metric at least once.
    fn count_each(metrics: &Metrics) {
        metrics.reviewed("scheduling.run.ai", ReviewResult::Warned, 0.5);
        metrics.mutated(["g", "PodGroup", "Reverted"], 0.25);
        metrics.guarded("delete", "protected", 0.125);
        metrics.owner_answered(ReviewResult::Refused, 0.125);
        metrics.converted("v2", true, 7, 0.5);
        metrics.converted("v2", false, 3, 0.5);
        metrics.preemption_answered(&NodeCounts { kept: 4, instead: 3, protected: 2, unknown: 1 }, 0.5);
        metrics.preemption_answered(&NodeCounts { kept: 1, ..NodeCounts::default() }, 0.25);
        metrics.kept_by_floor("q", "nvidia.com/gpu", 2.5);
        metrics.kept_by_floor("gone", "nvidia.com/gpu", 1.0);
        metrics.forget_kept("gone", "nvidia.com/gpu");
        metrics.waiting(6);
        metrics.waiting(5);
        metrics.woken();
        metrics.woken();
        metrics.rejected(403);
    }

    #[test]
    fn each_metric_has_its_name_its_labels_and_its_value() {
        let mut registry = Registry::with_prefix("tenure_webhook");
        let metrics = Metrics::register(&mut registry);
        count_each(&metrics);
        let mut found = series(&registry);
        found.sort();
        let expected = [
            "conversion_duration_seconds_count 2",
            "conversion_duration_seconds_sum 1.0",
            r#"conversions_total{version="v2",result="Converted"} 1"#,
            r#"conversions_total{version="v2",result="Failed"} 1"#,
            r#"conversions_total{version="v3alpha1",result="Converted"} 0"#,
            r#"conversions_total{version="v3alpha1",result="Failed"} 0"#,
            r#"converted_objects_total{version="v2",result="Converted"} 7"#,
            r#"converted_objects_total{version="v2",result="Failed"} 3"#,
            r#"converted_objects_total{version="v3alpha1",result="Converted"} 0"#,
            r#"converted_objects_total{version="v3alpha1",result="Failed"} 0"#,
            r#"guard_verdicts_total{operation="delete",reason="protected"} 1"#,
            r#"kept_resource_seconds_total{family="run.ai",queue="q",resource="nvidia.com/gpu"} 2.5"#,
            r#"mutations_total{group="g",kind="PodGroup",result="Reverted"} 1"#,
            r#"owner_answers_total{verdict="Refused"} 1"#,
            "preemption_duration_seconds_count 2",
            "preemption_duration_seconds_sum 0.75",
            r#"preemption_nodes_total{result="Kept"} 5"#,
            r#"preemption_nodes_total{result="Protected"} 2"#,
            r#"preemption_nodes_total{result="Substituted"} 3"#,
            r#"preemption_nodes_total{result="Unknown"} 1"#,
            r#"rejected_requests_total{code="400"} 0"#,
            r#"rejected_requests_total{code="403"} 1"#,
            r#"rejected_requests_total{code="404"} 0"#,
            r#"rejected_requests_total{code="408"} 0"#,
            r#"rejected_requests_total{code="413"} 0"#,
            r#"rejected_requests_total{code="415"} 0"#,
            r#"rejected_requests_total{code="503"} 0"#,
            "review_duration_seconds_count 4",
            "review_duration_seconds_sum 1.0",
            r#"reviews_total{group="scheduling.run.ai",verdict="Warned"} 1"#,
            "waiting_preemptors 5",
            "wake_ups_total 2",
        ];
        assert_eq!(found, expected.map(|series| format!("tenure_webhook_{series}")));
    }

    #[test]
    fn the_page_of_metrics_has_each_of_them_and_no_other() {
        let mut registry = Registry::with_prefix("tenure_webhook");
        count_each(&Metrics::register(&mut registry));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        // a metric without a series isn't shown
        let registered = format!("{registry:?}").matches("Descriptor {").count();
        assert_eq!(text.matches("# TYPE ").count(), registered);
        let mut registry = Registry::with_prefix("tenure_webhook");
        let freshness = Freshness::default();
        let _queues = freshness.watch("queues", true);
        registry.register_collector(Box::new(freshness));
        registry.register_collector(Box::new(crate::KnownQueues::default()));
        encode(&mut text, &registry).unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let names =
            types.map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.into() });
        let page = include_str!("../../../docs/metrics.md");
        let listed = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let others = |name: &str| {
            ["_certificate_", "_config_", "_kai_"].iter().any(|of_others| name.contains(of_others))
        };
        let own = |name: &&str| name.starts_with("tenure_webhook_") && !others(name);
        let listed: BTreeSet<_> = listed.filter(own).map(str::to_owned).collect();
        assert_eq!(names.collect::<BTreeSet<_>>(), listed);
    }
}
