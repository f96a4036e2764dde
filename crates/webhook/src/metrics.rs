use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

/// What the webhook counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<ReviewLabels, Counter>,
    rejected_requests: Family<RejectedLabels, Counter>,
    seconds: Histogram,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReviewLabels {
    group: &'static str,
    verdict: Verdict,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RejectedLabels {
    code: u16,
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
            rejected_requests: Family::default(),
            seconds: Histogram::new([0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0]),
        };
        registry.register("reviews", "Admission reviews by API group and verdict", metrics.reviews.clone());
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
        metrics
    }

    pub(crate) fn reviewed(&self, group: &'static str, verdict: Verdict, seconds: f64) {
        self.reviews.get_or_create(&ReviewLabels { group, verdict }).inc();
        self.seconds.observe(seconds);
    }

    pub(crate) fn rejected(&self, code: u16) {
        self.rejected_requests.get_or_create(&RejectedLabels { code }).inc();
    }
}
