//! Which pod a question is for: of what it says of the pod, its uid alone counts. All else is as the index knows it.

use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_index::PendingPod;
use tenure_types::{
    keys,
    projection::{Pod, PodSpec, PodStatus},
};

use super::question::Malformed;

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

/// The uid of the pod that a question is for. One that can't be read is that of no pod: a scheduler that got no answer
/// may go on without one, and then nothing protects anybody.
pub fn uid(pod: &RawValue) -> Result<String, Malformed> {
    let text = pod.get();
    match serde_json::from_str::<Claim>(text) {
        Ok(claim) if text.starts_with('{') => {
            Ok(claim.metadata.and_then(|metadata| metadata.uid).unwrap_or_default())
        }
        Err(_) if text.starts_with('{') => Ok(String::new()),
        _ => Err(Malformed::Pod),
    }
}

/// A pod that waits, in the form in which the index is asked for it.
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
