//! Metrics that are registered where they are made.

use prometheus_client::{
    metrics::histogram::Histogram,
    registry::{Metric, Registry, Unit},
};

/// Registers a metric, and returns it.
pub fn registered<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a histogram of seconds with these bounds, and returns it.
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
