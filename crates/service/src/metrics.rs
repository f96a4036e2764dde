//! Metrics that are registered where they are made. The metrics of the keeper and of the webhook
//! are built with these functions, below a prefix of their own.

use prometheus_client::{
    metrics::histogram::Histogram,
    registry::{Metric, Registry, Unit},
};

/// Registers a metric, and returns it. The name has no prefix and no suffix of its unit or type.
pub fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a histogram of seconds, and returns it. `bounds` are the upper bounds of its buckets,
/// ascending.
pub fn seconds<const N: usize>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    bounds: [f64; N],
) -> Histogram {
    let histogram = Histogram::new(bounds);
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}
