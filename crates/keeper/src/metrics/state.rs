//! Gauges that are computed from the index when they are asked for.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use jiff::Timestamp;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};
use tenure_index::Counts;
use tenure_policy::queue_status::Workloads;
use tenure_service::{clock::ServerClock, leadership::Leadership};

use super::{Metrics, SOON};
use crate::cluster::ClusterState;

/// Gauges that are computed when they are scraped.
#[derive(Debug)]
pub struct State {
    cluster: ClusterState,
    clock: ServerClock,
    lead: Leadership,
    metrics: Metrics,
}

impl State {
    /// Makes it part of a registry.
    pub fn register(
        registry: &mut Registry,
        cluster: ClusterState,
        clock: ServerClock,
        lead: Leadership,
        metrics: &Metrics,
    ) {
        registry.register_collector(Box::new(Self { cluster, clock, lead, metrics: metrics.clone() }));
    }
}

impl Collector for State {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.clock.now();
        self.metrics.retain_queues(|queue| self.cluster.with(|index| index.has_queue(queue)));
        let soon = now.checked_add(SOON).unwrap_or(Timestamp::MAX);
        let (counts, next) = self.cluster.with(|index| (index.counts(now, soon), index.next_expiry()));
        let Counts {
            under_ceiling,
            overdue,
            soon_overdue,
            unready,
            returning,
            staying_paused,
            past_end,
            pods: _,
        } = counts;
        let Metrics { in_flight, waiting_events, .. } = &self.metrics;
        let in_flight = in_flight.load(Relaxed).saturating_add(waiting_events.load(Relaxed));
        let mut gauge = |name, help, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("pods_under_ceiling", "Pods that will expire if they run on", count(under_ceiling))?;
        let help = "Pods that expire within an hour if they run on, or have expired and wait for their turn";
        gauge("pods_expiring_soon", help, count(soon_overdue))?;
        let help =
            "Pods that are to end, notices that are not yet written, and events that wait to be written";
        gauge("pending_writes", help, count(overdue.saturating_add(unready).saturating_add(in_flight)))?;
        gauge("waiting_to_return", "Paused workloads that come back by themselves", count(returning))?;
        gauge("paused_owners", "Owners that stay paused until a person resumes them", count(staying_paused))?;
        let help = "Pods past their ceiling that still terminate although their grace period is over: their node doesn't answer, or finalizers hold them";
        gauge("terminating_past_end", help, count(past_end))?;
        gauge("leader", "Whether this keeper leads: 1 or 0", f64::from(u8::from(self.lead.holds())))?;
        let help =
            "When the next pod expires, or has expired, in seconds since the epoch; absent if none will";
        next.map_or(Ok(()), |next| {
            gauge("next_expiry_timestamp_seconds", help, next.as_duration().as_secs_f64())
        })?;
        self.encode_workloads(&mut encoder)
    }
}

impl State {
    fn encode_workloads(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let workloads = self.metrics.workloads.lock().clone();
        if workloads.is_empty() {
            return Ok(());
        }
        let help = "Workloads of queues of scheduling.run.ai by queue and state; protected workloads also count as running";
        let mut gauges = encoder.encode_descriptor("workloads", help, None, MetricType::Gauge)?;
        for (queue, Workloads { running, protected, paused, requeueing }) in &workloads {
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
}

#[allow(clippy::cast_precision_loss, reason = "there are never so many")]
fn count(number: usize) -> f64 {
    number as f64
}
