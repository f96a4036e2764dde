//! The preemptor of a request: only its uid is taken from the request. All other facts come from
//! the index.

use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_index::PendingPod;
use tenure_types::{
    keys,
    projection::{Pod, PodSpec, PodStatus},
};

/// The part of the preemptor that is read.
#[derive(Deserialize)]
struct PreemptorObject {
    metadata: Option<PreemptorMetadata>,
}

#[derive(Deserialize)]
struct PreemptorMetadata {
    uid: Option<String>,
}

/// Returns the uid of the preemptor. A uid that can't be read is empty, which no pod of the index
/// has: without an answer, a scheduler may go on without the extender, and then no pod is
/// protected. Fails for a value that isn't an object.
pub fn uid(pod: &RawValue) -> Result<String, &'static str> {
    if !pod.get().starts_with('{') {
        return Err("the Pod of the ExtenderPreemptionArgs can't be read: it must be an object");
    }
    let metadata = serde_json::from_str::<PreemptorObject>(pod.get()).ok().and_then(|claim| claim.metadata);
    Ok(metadata.and_then(|metadata| metadata.uid).unwrap_or_default())
}

/// Returns a waiting pod in the form of a request to the index.
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
            termination_grace_period_seconds: None,
            scheduling_group: None,
        },
        status: PodStatus { nominated_node_name: nominated.map(str::to_owned), ..PodStatus::default() },
    }
}
