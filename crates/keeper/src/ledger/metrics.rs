//! The counters of what runs have used. They come from the record, and go on where another keeper has left off.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Registry,
};
use tenure_policy::usage::UsageTotals;

use super::UsageBook;
use crate::cluster::ClusterState;

/// Shows the ledger of the keeper that leads.
#[derive(Debug)]
pub struct UsageMetrics {
    book: UsageBook,
    cluster: ClusterState,
}

impl UsageMetrics {
    /// Makes it part of a registry.
    pub fn register(registry: &mut Registry, book: UsageBook, cluster: ClusterState) {
        registry.register_collector(Box::new(Self { book, cluster }));
    }

    fn encode_totals(&self, totals: &UsageTotals, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        if totals.iter().next().is_none() {
            return Ok(());
        }
        let help =
            "Resources that runs had requested, times the seconds that they ran, by queue, resource and end";
        let mut counters =
            encoder.encode_descriptor("usage_resource_seconds", help, None, MetricType::Counter)?;
        for ((family, queue), used) in totals.iter() {
            if !queue.is_empty() && !self.cluster.with(|index| index.has_queue(queue)) {
                continue;
            }
            for (resource, by_end) in used {
                for (end, amount) in by_end {
                    let labels = [
                        ("family", family),
                        ("queue", queue),
                        ("resource", resource),
                        ("end", end.name()),
                        ("age", end.age()),
                    ];
                    let value = ConstCounter::new(seconds(*amount));
                    value.encode(counters.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Collector for UsageMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let shown = self.book.with(|ledger| (ledger.totals().clone(), ledger.gaps()));
        let Some((totals, gaps)) = shown else { return Ok(()) };
        let help = "Times for which some runs may be missing in the counters of their use: no keeper had run for minutes";
        let counter = ConstCounter::new(u64::from(gaps));
        counter.encode(encoder.encode_descriptor("usage_gaps", help, None, counter.metric_type())?)?;
        self.encode_totals(&totals, &mut encoder)
    }
}

#[allow(clippy::cast_precision_loss, reason = "sixteen digits are enough")]
fn seconds(millionths: u128) -> f64 {
    millionths as f64 / 1e6
}
