//! The record of the resources that runs have used, by queue and by how the runs ended.
//!
//! The keeper keeps the record in a `ConfigMap`, and the command line reads it. Amounts are in
//! millionths of a unit for a second.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The key of the record in the `ConfigMap`. Its value is JSON.
pub const USAGE_KEY: &str = "usage.json";

/// The name that the chart gives the `ConfigMap`, unless the release has another name.
pub const USAGE_CONFIG_MAP: &str = "tenure-usage";

/// The end of a pod's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UsageEnd {
    /// All containers succeeded.
    Succeeded,
    /// A container failed, or the pod was killed by its node.
    Failed,
    /// Tenure ended the run at its ceiling.
    Cut,
    /// A scheduler preempted the pod, less than five minutes after it was bound.
    PreemptedUnder5m,
    /// A scheduler preempted the pod, 5 to 30 minutes after it was bound.
    PreemptedUnder30m,
    /// A scheduler preempted the pod, 30 minutes to an hour after it was bound.
    PreemptedUnder1h,
    /// A scheduler preempted the pod, one to six hours after it was bound.
    PreemptedUnder6h,
    /// A scheduler preempted the pod, six hours to a day after it was bound.
    PreemptedUnder1d,
    /// A scheduler preempted the pod, a day or more after it was bound.
    PreemptedLater,
    /// Tenure ended the run because its workload wasn't ready in time.
    EvictedUnready,
    /// A user or another program deleted the pod.
    Deleted,
}

impl UsageEnd {
    /// All ends, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Succeeded,
        Self::Failed,
        Self::Cut,
        Self::PreemptedUnder5m,
        Self::PreemptedUnder30m,
        Self::PreemptedUnder1h,
        Self::PreemptedUnder6h,
        Self::PreemptedUnder1d,
        Self::PreemptedLater,
        Self::EvictedUnready,
        Self::Deleted,
    ];

    /// Returns the name of the end, without the age of a preempted run.
    pub const fn name(self) -> &'static str {
        self.name_and_age().0
    }

    /// Returns the age of a preempted run, as a range. Empty for other ends.
    pub const fn age(self) -> &'static str {
        self.name_and_age().1
    }

    const fn name_and_age(self) -> (&'static str, &'static str) {
        match self {
            Self::Succeeded => ("succeeded", ""),
            Self::Failed => ("failed", ""),
            Self::Cut => ("cut", ""),
            Self::PreemptedUnder5m => ("preempted", "0-5m"),
            Self::PreemptedUnder30m => ("preempted", "5m-30m"),
            Self::PreemptedUnder1h => ("preempted", "30m-1h"),
            Self::PreemptedUnder6h => ("preempted", "1h-6h"),
            Self::PreemptedUnder1d => ("preempted", "6h-1d"),
            Self::PreemptedLater => ("preempted", "1d+"),
            Self::EvictedUnready => ("evicted_unready", ""),
            Self::Deleted => ("deleted", ""),
        }
    }
}

/// Amounts by how runs ended, in millionths of a unit for a second.
pub type UsedByEnd = BTreeMap<UsageEnd, u128>;

/// The usage of a cluster's queues. With the pods of the version that it names, the record is all
/// that another keeper needs to go on: the runs of pods that had ended by then are in it, and no
/// others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRecord {
    /// The `resourceVersion` up to which all changes of pods are counted.
    pub resource_version: String,
    /// The time of that version, by the API server's clock.
    pub at: Timestamp,
    /// The time since which runs are counted.
    pub since: Timestamp,
    /// The number of gaps: spans of time of which some runs may be missing.
    #[serde(default)]
    pub gaps: u32,
    /// The last gap. None: there was no gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_gap: Option<UsageGap>,
    /// The usage by queue.
    #[serde(default)]
    pub queues: Vec<QueueUsage>,
    /// The pods that the keeper was ending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<EndingNote>,
    /// The runs that go on and were resized, by the pod's uid.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resized: BTreeMap<String, ResizedRun>,
}

/// Pods that the keeper was ending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndingNote {
    /// The time at which the keeper began to end the pods.
    pub at: Timestamp,
    /// The end of their runs by that.
    pub end: UsageEnd,
    /// The uids of the pods.
    pub pods: Vec<String>,
}

/// The use of a resized run, by resource.
pub type ResizedRun = BTreeMap<String, ResizedUsage>;

/// The use of a resource by a run that was resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResizedUsage {
    /// The use up to `since`, in millionths of a unit for a second.
    pub used: u128,
    /// The time up to which `used` counts.
    pub since: Timestamp,
    /// The amount that the run has had since then, in millionths of a unit.
    pub amount: u64,
}

/// A time in which no keeper followed the pods for longer than the API server remembers their
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageGap {
    /// The time of the last change that was counted before it.
    pub from: Timestamp,
    /// The time from which changes are counted again.
    pub to: Timestamp,
}

/// The usage of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueUsage {
    /// The family of the queue: `run.ai` or `t9k`.
    pub family: String,
    /// The name of the queue; empty for pods whose queue doesn't exist.
    pub queue: String,
    /// The usage by resource.
    pub used: BTreeMap<String, UsedByEnd>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let amounts = UsageEnd::ALL.into_iter().zip(1_u128 << 90..).collect::<UsedByEnd>();
        let at = Timestamp::from_second(1_767_225_600).unwrap();
        let record = UsageRecord {
            resource_version: "17".into(),
            at,
            since: at,
            gaps: 1,
            last_gap: Some(UsageGap { from: at, to: at }),
            queues: vec![QueueUsage {
                family: "run.ai".into(),
                queue: "research".into(),
                used: [("nvidia.com/gpu".to_owned(), amounts)].into(),
            }],
            notes: vec![EndingNote { at, end: UsageEnd::Cut, pods: vec!["a".to_owned()] }],
            resized: [(
                "a".to_owned(),
                [("cpu".to_owned(), ResizedUsage { used: 1 << 90, since: at, amount: u64::MAX })].into(),
            )]
            .into(),
        };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<UsageRecord>(&text).unwrap(), record);
    }

    #[test]
    fn only_preempted_runs_have_an_age_and_no_two_ends_look_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        for end in UsageEnd::ALL {
            assert_eq!(end.name() == "preempted", !end.age().is_empty(), "{end:?}");
            assert!(seen.insert((end.name(), end.age())), "{end:?}");
        }
    }
}
