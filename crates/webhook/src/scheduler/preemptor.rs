//! The pod that a question is for: only the uid in the question counts. All other facts come from the index.

use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_index::PendingPod;
use tenure_types::{
    keys,
    projection::{Pod, PodSpec, PodStatus},
};

use super::question::MalformedArgs;

#[derive(Deserialize)]
struct Claim {
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    uid: Option<String>,
}

/// Returns the uid of the pod that a question is for. One that can't be read counts as that of an unknown pod: without
/// an answer, a scheduler may go on without the extender, and then no pod is protected.
pub fn uid(pod: &RawValue) -> Result<String, MalformedArgs> {
    let text = pod.get();
    match serde_json::from_str::<Claim>(text) {
        Ok(claim) if text.starts_with('{') => {
            Ok(claim.metadata.and_then(|metadata| metadata.uid).unwrap_or_default())
        }
        Err(_) if text.starts_with('{') => Ok(String::new()),
        _ => Err(MalformedArgs::Pod),
    }
}

/// Returns a pod that waits in the form that a question to the index has.
pub fn as_asked(known: &PendingPod<'_>) -> Pod {
    let PendingPod { uid, namespace, name, priority, never_preempts, scheduler, queue, nominated } = known;
    let owned = |text: &str| Some(text.to_owned());
    let queue = queue.map(|queue| (keys::RUNAI_QUEUE_LABEL.to_owned(), queue.to_owned()));
    Pod {
        metadata: ObjectMeta {
            uid: owned(uid),
            namespace: owned(namespace),
            name: owned(name),
            labels: Some(queue.into_iter().collect()),
            ..ObjectMeta::default()
        },
        spec: PodSpec {
            priority: Some(*priority),
            scheduler_name: owned(scheduler),
            node_name: None,
            priority_class_name: None,
            preemption_policy: never_preempts.then(|| "Never".to_owned()),
            scheduling_group: None,
        },
        status: PodStatus { nominated_node_name: nominated.map(str::to_owned), ..PodStatus::default() },
    }
}
