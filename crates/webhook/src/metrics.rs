use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

/// What the webhook counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<ReviewLabels, Counter>,
    mutations: Family<MutationLabels, Counter>,
    rejected_requests: Family<RejectedLabels, Counter>,
    seconds: Histogram,
    conversions: Family<ConversionLabels, Counter>,
    converted_objects: Family<ConversionLabels, Counter>,
    conversion_seconds: Histogram,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReviewLabels {
    group: &'static str,
    verdict: Verdict,
}

/// What a mutating review was of, and what it did.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct MutationLabels {
    pub group: &'static str,
    pub kind: &'static str,
    pub result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RejectedLabels {
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConversionLabels {
    version: &'static str,
    result: &'static str,
}

/// How a review ended.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
pub enum Verdict {
    /// Admitted without a word.
    Admitted,
    /// Admitted with warnings.
    Warned,
    /// Refused.
    Refused,
}

impl Metrics {
    /// Makes the webhook's metrics part of a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reviews: Family::default(),
            mutations: Family::default(),
            rejected_requests: Family::default(),
            seconds: Histogram::new([0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0]),
            conversions: Family::default(),
            converted_objects: Family::default(),
            conversion_seconds: Histogram::new([0.000_05, 0.000_25, 0.001, 0.005, 0.025, 0.1, 0.4, 1.0, 5.0]),
        };
        registry.register("reviews", "Admission reviews by API group and verdict", metrics.reviews.clone());
        registry.register(
            "mutations",
            "Mutating admission reviews by API group, kind and result",
            metrics.mutations.clone(),
        );
        registry.register(
            "rejected_requests",
            "Requests that were no admission review, by HTTP status",
            metrics.rejected_requests.clone(),
        );
        registry.register_with_unit(
            "review_duration",
            "Time from a request's body to its answer",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "conversions",
            "Conversion reviews by the version asked for and result",
            metrics.conversions.clone(),
        );
        registry.register(
            "converted_objects",
            "Objects in conversion reviews by the version asked for and the review's result",
            metrics.converted_objects.clone(),
        );
        registry.register_with_unit(
            "conversion_duration",
            "Time from a conversion review's body to its answer",
            Unit::Seconds,
            metrics.conversion_seconds.clone(),
        );
        metrics
    }

    pub(crate) fn reviewed(&self, group: &'static str, verdict: Verdict, seconds: f64) {
        self.reviews.get_or_create(&ReviewLabels { group, verdict }).inc();
        self.seconds.observe(seconds);
    }

    pub(crate) fn mutated(&self, labels: &MutationLabels, seconds: f64) {
        self.mutations.get_or_create(labels).inc();
        self.seconds.observe(seconds);
    }

    /// Of the objects of a review all are converted or none.
    pub(crate) fn converted(&self, version: &'static str, all: bool, objects: usize, seconds: f64) {
        let labels = ConversionLabels { version, result: if all { "converted" } else { "failed" } };
        self.conversions.get_or_create(&labels).inc();
        self.converted_objects.get_or_create(&labels).inc_by(objects as u64);
        self.conversion_seconds.observe(seconds);
    }

    pub(crate) fn rejected(&self, code: u16) {
        self.rejected_requests.get_or_create(&RejectedLabels { code }).inc();
    }
}
