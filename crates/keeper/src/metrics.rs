use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

/// What the keeper counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    pods_under_ceiling: Gauge,
    expirations: Family<ExpirationLabels, Counter<u64, AtomicU64>>,
    lateness: Histogram,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ExpirationLabels {
    queue: String,
    kind: String,
    result: Result,
}

/// How the handling of an expired pod ended.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub enum Result {
    /// Its owner was paused.
    Paused,
    /// The pod was deleted.
    Deleted,
    /// Nothing was to be done, or nothing more.
    Nothing,
    /// It failed, and will be tried again.
    Failed,
}

impl Metrics {
    /// Makes the keeper's metrics part of a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            pods_under_ceiling: Gauge::default(),
            expirations: Family::default(),
            lateness: Histogram::new([0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0]),
        };
        registry.register(
            "pods_under_ceiling",
            "Pods that will expire if they run on",
            metrics.pods_under_ceiling.clone(),
        );
        registry.register(
            "expirations",
            "What was done about expired pods, by queue, kind of what was paused or deleted, and result; a pod that runs on counts at each try",
            metrics.expirations.clone(),
        );
        registry.register_with_unit(
            "lateness",
            "Time from the deadline of a pod until it was paused or deleted",
            Unit::Seconds,
            metrics.lateness.clone(),
        );
        metrics
    }

    pub fn under_ceiling(&self, pods: usize) {
        self.pods_under_ceiling.set(i64::try_from(pods).unwrap_or(i64::MAX));
    }

    pub fn expired(&self, queue: &str, kind: &str, result: Result) {
        let labels = ExpirationLabels { queue: queue.into(), kind: kind.into(), result };
        self.expirations.get_or_create(&labels).inc();
    }

    pub fn late(&self, seconds: f64) {
        self.lateness.observe(seconds);
    }
}
