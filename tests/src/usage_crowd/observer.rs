//! The GPU-seconds of a crowd, once from the audit log alone and once from the keeper's record.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jiff::Timestamp;
use tenure_types::usage_record::UsageRecord;

use super::LAST;
use crate::{World, audit};

/// GPU-seconds by queue and end.
pub type GpuSeconds = BTreeMap<(String, String), f64>;

/// A difference between two counts of GPU-seconds.
#[derive(Debug)]
pub struct UsageDifference {
    /// The sum that the observer found.
    pub observed: f64,
    /// The difference of the sums, as a part of the observed sum.
    pub of_total: f64,
    /// The greatest difference of a queue and an end, as a part of the observed value.
    pub of_any: f64,
}

/// The requests that bound a pod and ended it.
#[derive(Debug, Default)]
struct Trace {
    /// The time of its binding.
    bound: Option<Timestamp>,
    /// The time at which its node reported its end.
    finished: Option<Timestamp>,
    /// The time of its last deletion.
    deleted: Option<Timestamp>,
    /// True if the keeper has deleted it.
    by_keeper: bool,
}

impl Trace {
    /// Takes in a write of the pod.
    fn take(&mut self, write: &audit::PodWrite) {
        let by_node = write.user.contains("kwok");
        match (write.verb.as_str(), write.subresource.as_str()) {
            ("create", "binding") => self.bound = Some(write.at),
            ("patch", "status") if !by_node => self.finished = Some(write.at),
            ("delete", "") => {
                // a node deletes a pod once more, when its grace period is over
                self.deleted = self.deleted.max(Some(write.at));
                self.by_keeper |= write.user.ends_with(":tenure-keeper");
            }
            _ => {}
        }
    }

    /// Returns the end, the queue, and the seconds from the binding to the end: Kubernetes cuts
    /// both to the second. None: the pod wasn't bound, or has no end.
    fn run(&self, way: &str) -> Option<(&'static str, &'static str, i64)> {
        let (end, queue, at) = match way {
            "succeeded" => ("succeeded", "free", self.finished),
            "failed" => ("failed", "free", self.finished),
            "preempted" => ("preempted", "free", self.deleted),
            "cut" if self.by_keeper => ("cut", "ceiling", self.deleted),
            "unready" if self.by_keeper => ("evicted_unready", "unready", self.deleted),
            _ => ("deleted", "free", self.deleted),
        };
        Some((end, queue, at?.as_second() - self.bound?.as_second()))
    }
}

/// Computes the GPU-seconds of the pods of a namespace, from the times of the requests that bound
/// and ended them.
pub fn observed(world: &World, namespace: &str) -> Result<GpuSeconds> {
    let mut traces: BTreeMap<String, Trace> = BTreeMap::new();
    for write in audit::writes_of_pods(&world.cluster, namespace) {
        traces.entry(write.name.clone()).or_default().take(&write);
    }
    let mut used = GpuSeconds::new();
    for (name, trace) in traces {
        let (way, _) = name.split_once('-').context("its name has its way")?;
        let (_, gpus) = name.rsplit_once("-g").context("its name has its GPUs")?;
        if way == LAST {
            continue;
        }
        let (end, queue, seconds) = trace.run(way).with_context(|| format!("{name}: {trace:?}"))?;
        let used = used.entry((queue.to_owned(), end.to_owned())).or_default();
        *used += f64::from(i32::try_from(seconds)?) * gpus.parse::<f64>()?;
    }
    Ok(used)
}

/// Returns the seconds of a resource in the keeper's record, such as GPU-seconds.
#[allow(clippy::cast_precision_loss, reason = "they are small")]
pub fn counted(record: &UsageRecord, resource: &str) -> GpuSeconds {
    let mut used = GpuSeconds::new();
    for of in record.queues.iter().filter(|of| of.queue != LAST) {
        for (end, amount) in of.used.get(resource).into_iter().flatten() {
            let key = (of.queue.clone(), end.name().to_owned());
            *used.entry(key).or_default() += *amount as f64 / 1e6;
        }
    }
    used
}

/// Compares the keeper's count with the observer's.
pub fn compare(counted: &GpuSeconds, observed: &GpuSeconds) -> UsageDifference {
    let [sum, found] = [counted, observed].map(|of| of.values().sum::<f64>());
    let keys = counted.keys().chain(observed.keys());
    let part = |key: &(String, String)| {
        let [counted, observed] = [counted, observed].map(|of| of.get(key).copied().unwrap_or_default());
        (counted - observed).abs() / observed.max(1.0)
    };
    let of_any = keys.map(part).fold(0.0, f64::max);
    UsageDifference { observed: found, of_total: (sum - found).abs() / found.max(1.0), of_any }
}
