//! Maps queues of Kueue to queues of Tenure, as the configuration lists them.
//!
//! The index and the review of new objects ask [`KueueQueues::queue_of`] for the queue of each pod.

use tenure_types::{keys, projection::Pod};

use crate::expiry::Family;

/// A queue of Kueue, as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KueueQueue {
    /// A `LocalQueue`, of one namespace or of all namespaces.
    Local {
        /// The namespace. None: a `LocalQueue` of this name in any namespace.
        namespace: Option<String>,
        /// The name of the `LocalQueue`.
        name: String,
    },
    /// A `ClusterQueue` of this name.
    Cluster(String),
}

/// Rows of a queue of Kueue and the queue of the run.ai family that it stands for. A row counts
/// only for pods without a queue label of Tenure's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KueueQueues(pub Vec<(KueueQueue, String)>);

impl KueueQueues {
    /// Returns the queue of a family that a pod is in by its own labels: the queue of the family's
    /// label or, in the run.ai family and without any queue label of Tenure's, the queue of the
    /// first row that matches. None: the pod is in no queue.
    ///
    /// The queue of its `PodGroup` and the default queue are resolved by the callers.
    pub fn queue_of<'q>(&'q self, family: Family, pod: &'q Pod) -> Option<&'q str> {
        let label = |key: &str| pod.label(key).filter(|name| !name.is_empty());
        let own = label(family.row().queue_label);
        let is_named = keys::QUEUE_LABELS.into_iter().any(|key| label(key).is_some());
        if family != Family::Runai || self.0.is_empty() || is_named {
            return own;
        }
        let local = label(keys::KUEUE_LOCAL_QUEUE_LABEL).or_else(|| label(keys::KUEUE_QUEUE_LABEL));
        let cluster = label(keys::KUEUE_CLUSTER_QUEUE_LABEL);
        let place = pod.metadata.namespace.as_deref();
        let is_in = |queue: &KueueQueue| match queue {
            KueueQueue::Local { namespace, name } => {
                local == Some(name) && (namespace.is_none() || namespace.as_deref() == place)
            }
            KueueQueue::Cluster(name) => cluster == Some(name),
        };
        self.0.iter().find(|(queue, _)| is_in(queue)).map(|(_, queue)| queue.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn queues() -> KueueQueues {
        let local = |namespace: Option<&str>, name: &str| KueueQueue::Local {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        let rows = [
            (local(Some("ns"), "main"), "of-ns"),
            (local(None, "main"), "of-main"),
            (KueueQueue::Cluster("gpu".into()), "of-gpu"),
        ];
        KueueQueues(rows.into_iter().map(|(queue, of)| (queue, of.to_owned())).collect())
    }

    fn queue_in(namespace: &str, labels: &Value) -> Option<String> {
        let pod = json!({"metadata": {"namespace": namespace, "labels": labels}});
        queues().queue_of(Family::Runai, &serde_json::from_value(pod).unwrap()).map(str::to_owned)
    }

    const LOCAL: &str = "kueue.x-k8s.io/local-queue-name";
    const WANTED: &str = "kueue.x-k8s.io/queue-name";
    const CLUSTER: &str = "kueue.x-k8s.io/cluster-queue-name";

    #[test]
    fn a_queue_of_kueues_stands_for_the_queue_of_its_first_row() {
        for (namespace, labels, expected) in [
            ("ns", json!({LOCAL: "main"}), Some("of-ns")),
            ("other", json!({LOCAL: "main"}), Some("of-main")),
            ("ns", json!({WANTED: "main"}), Some("of-ns")),
            ("ns", json!({LOCAL: "x", WANTED: "main"}), None),
            ("ns", json!({CLUSTER: "gpu"}), Some("of-gpu")),
            ("ns", json!({CLUSTER: "gpu", LOCAL: "main"}), Some("of-ns")),
            ("ns", json!({CLUSTER: "main"}), None),
            ("ns", json!({}), None),
        ] {
            assert_eq!(queue_in(namespace, &labels).as_deref(), expected, "{namespace} {labels}");
        }
    }

    #[test]
    fn a_queue_label_of_tenures_counts_before_those_of_kueues() {
        let own = json!({"kai.scheduler/queue": "own", LOCAL: "main"});
        assert_eq!(queue_in("ns", &own).as_deref(), Some("own"));
        let empty = json!({"kai.scheduler/queue": "", LOCAL: "main"});
        assert_eq!(queue_in("ns", &empty).as_deref(), Some("of-ns"));
        let of_t9k = json!({"scheduler.tensorstack.dev/queue": "own", LOCAL: "main"});
        assert_eq!(queue_in("ns", &of_t9k), None);
    }
}
