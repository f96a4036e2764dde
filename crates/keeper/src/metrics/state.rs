//! Metrics that are computed from the index, the ledger of usage and the queues when they are read.
//!
//! The registry calls the [`MetricsSources`] for each page of metrics. Every replica shows its own index,
//! but only the leader shows workloads and usage.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use tenure_policy::{expiry::Family, queue_status::WorkloadCounts};
use tenure_service::{clock::ServerClock, leadership::Leadership};

use super::{Metrics, SOON};
use crate::{cluster::ClusterState, events::EventQueue, extensions::OpenExtensions, ledger::UsageBook};

/// The sources of the computed metrics.
#[derive(Debug)]
pub struct MetricsSources {
    pub cluster: ClusterState,
    pub clock: ServerClock,
    pub lead: Leadership,
    pub metrics: Metrics,
    pub usage: UsageBook,
    pub events: EventQueue,
    pub extensions: OpenExtensions,
}

impl Collector for MetricsSources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.clock.now();
        self.metrics.queues.retain(|queue| self.cluster.with(|index| index.has_queue(queue)));
        let soon = now.checked_add(SOON).unwrap_or(Timestamp::MAX);
        let (counts, next) = self.cluster.with(|index| (index.counts(now, soon), index.next_expiry()));
        let leads = self.lead.holds();
        let of_leader = |number: usize| if leads { number } else { 0 };
        let waiting_events = of_leader(self.events.work.waiting());
        let in_flight = self.metrics.in_flight.load(Relaxed).saturating_add(waiting_events);
        let mut gauge = |name, help, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("pods_under_ceiling", "Pods that will expire if they run on", count(counts.under_ceiling))?;
        let help = "Pods that expire within an hour if they run on, or have expired and wait for their turn";
        gauge("pods_expiring_soon", help, count(counts.soon_overdue))?;
        let help =
            "Pods that are to end, notices that are not yet written, and events that wait to be written";
        let pending = counts.overdue.saturating_add(counts.unready).saturating_add(in_flight);
        gauge("pending_writes", help, count(pending))?;
        let help = "Extensions that wait for a decision, as the leader sees them";
        gauge("pending_extensions", help, count(of_leader(self.extensions.pending())))?;
        gauge("waiting_to_return", "Paused workloads that come back by themselves", count(counts.returning))?;
        let help = "Owners that stay paused until a person resumes them";
        gauge("paused_owners", help, count(counts.staying_paused))?;
        let help = "Pods past their ceiling that still terminate although their grace period is over: their node doesn't answer, or finalizers hold them";
        gauge("terminating_past_end", help, count(counts.past_end))?;
        let missing = |family| self.cluster.with(|index| index.queues(family).missing_configured());
        let help = "Queues that the configuration names and that don't exist: such values have no effect";
        gauge("configured_queues_missing", help, count(Family::ALL.into_iter().map(missing).sum()))?;
        gauge("leader", "Whether this keeper leads: 1 or 0", f64::from(u8::from(leads)))?;
        let help = "When the next pod expires, or the first waiting pod expired, in seconds since the epoch; absent if no pod expires";
        next.map_or(Ok(()), |next| {
            gauge("next_expiry_timestamp_seconds", help, next.as_duration().as_secs_f64())
        })?;
        self.encode_workloads(&mut encoder)?;
        self.encode_usage(&mut encoder)
    }
}

impl MetricsSources {
    /// Shows the workloads of each queue of the run.ai family by state. Shows none while another
    /// keeper leads.
    fn encode_workloads(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let workloads = self.metrics.workloads.lock().clone();
        if workloads.is_empty() {
            return Ok(());
        }
        let help = "Workloads of queues of scheduling.run.ai by queue and state; protected workloads also count as running";
        let mut gauges = encoder.encode_descriptor("workloads", help, None, MetricType::Gauge)?;
        for (queue, WorkloadCounts { running, protected, paused, requeueing }) in &workloads {
            for (state, count) in [
                ("running", running),
                ("protected", protected),
                ("paused", paused),
                ("requeueing", requeueing),
            ] {
                let labels = [("family", "run.ai"), ("queue", queue), ("state", state)];
                ConstGauge::new(i64::from(*count)).encode(gauges.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Shows the ledger of the keeper that leads: the counters go on where another keeper has left
    /// off. Leaves out queues that don't exist.
    fn encode_usage(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let shown = self.usage.with(|ledger| (ledger.totals().clone(), ledger.gaps()));
        let Some((totals, gaps)) = shown else { return Ok(()) };
        let help =
            "Gaps in which runs may be missing from the usage counters, because no keeper ran for minutes";
        let counter = ConstCounter::new(u64::from(gaps));
        counter.encode(encoder.encode_descriptor("usage_gaps", help, None, counter.metric_type())?)?;
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

#[allow(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}

#[allow(clippy::cast_precision_loss, reason = "sixteen digits are enough")]
fn seconds(millionths: u128) -> f64 {
    millionths as f64 / 1e6
}
