//! The evidence about the run of a bound pod, which the keeper writes to the pod, so that the next
//! keeper still knows when the run ends.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::keys;

/// The value of annotation [`keys::EVIDENCE_ANNOTATION`], as JSON: facts about the run of a bound
/// pod that the other objects of the cluster no longer show.
///
/// Readers take queues, ceilings and times as claims that can only end a run earlier, and
/// [`was_ready`](Self::was_ready) as no more than a container that was ready for a moment. So a
/// user gains nothing by writing evidence. The API server lets no user change the evidence of a
/// bound pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The queues that the pod's `PodGroup`s named, by API group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, String>,
    /// The queues of the run.ai family that allow least extensions, where another queue that the run
    /// has had ends it earlier. Empty: the queue that ends the run allows least.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub extensions: BTreeSet<String>,
    /// The least ceiling that the workload has noted itself since the pod was bound, as people
    /// write durations. None: the workload has noted no ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// An earlier start of the run: that of the pod that controls this pod, or did, since both belong
    /// to one run; or one that the pod itself has shown. None: no earlier start is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The start of the pod's `PodGroup`, where the pod joined later. None: the group and its pods show
    /// the start, or the pod was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_start: Option<Timestamp>,
    /// True if the pod was ready before its node was restarted: its conditions don't show that any
    /// more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_ready: bool,
}

impl Evidence {
    /// Reads the evidence of a pod. The default: the pod has none that can be read.
    pub fn of(pod: &ObjectMeta) -> Self {
        let text = pod.annotations.as_ref().and_then(|all| all.get(keys::EVIDENCE_ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}
