//! The queue of a workload, as far as the workload itself names one.

use serde_json::Value;
use tenure_policy::expiry::Family;
use tenure_types::keys::{RUNAI_QUEUE_LABEL, TENSORSTACK_QUEUE_LABEL};

/// That of the labels of its pods, wherever in it they are templated, else that of its own.
pub fn of(object: &Value) -> Option<(Family, &str)> {
    let below = match object {
        Value::Object(fields) => fields.values().find_map(of),
        Value::Array(items) => items.iter().find_map(of),
        _ => None,
    };
    below.or_else(|| {
        let labels = object.get("metadata")?.get("labels")?;
        let named = |key: &str| labels.get(key)?.as_str().filter(|queue| !queue.is_empty());
        let runai = named(RUNAI_QUEUE_LABEL).map(|queue| (Family::Runai, queue));
        runai.or_else(|| named(TENSORSTACK_QUEUE_LABEL).map(|queue| (Family::Tensorstack, queue)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_labels_of_pods_count_before_those_of_their_owner() {
        let labels = |key: &str, queue: &str| json!({"labels": {key: queue}});
        let runai = |queue| labels(RUNAI_QUEUE_LABEL, queue);
        let tensorstack = |queue| labels(TENSORSTACK_QUEUE_LABEL, queue);
        let of_replicas = json!({"metadata": runai("own"), "spec": {"replicaSpecs": [{"template": {"metadata": tensorstack("pods")}}]}});
        assert_eq!(of(&of_replicas), Some((Family::Tensorstack, "pods")));
        assert_eq!(of(&json!({"metadata": runai("own"), "spec": {}})), Some((Family::Runai, "own")));
        for none in [json!({}), json!({"metadata": runai("")}), json!([1, null])] {
            assert_eq!(of(&none), None, "{none}");
        }
    }
}
