//! The evidence about the run of a bound pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::keys;

/// The value of annotation [`keys::EVIDENCE_ANNOTATION`], as JSON: what the other objects of the cluster don't say any more
/// about the run of a bound pod.
///
/// A reader takes queues, ceilings and times for claims that can only end a run earlier, and [`was_ready`](Self::was_ready) for no
/// more than a container that was ready for a moment. So a user gains nothing by writing one. The API server lets no user
/// change that of a bound pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The queues that the pod's `PodGroup`s named, by API group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, String>,
    /// The least ceiling that the workload has noted itself since the pod was bound, as people write durations. None: it has
    /// noted none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// The scheduling of the pod that controls this one, or did: both belong to one run. None: no earlier pod is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// True if the pod was ready, where its conditions don't show that any more: its node was restarted.
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
