//! The waitForPodsReady that applies in a queue.

use anyhow::{Context, Result, anyhow, ensure};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tenure_policy::{config::Config, requeue::Backoff};
use tenure_types::{
    keys,
    runai::{QueueVersion, v3alpha1::WaitForPodsReady},
};

use crate::{
    input::Document,
    snapshot::{Snapshot, queues},
    tell::warn,
};

/// The block of the nearest queue on the way to the root that has one, with the name of that queue. It counts as a whole:
/// what it leaves out is as by default, and not as an ancestor has it.
pub fn find(documents: &[Document], leaf: &str) -> Result<(Backoff, Option<String>)> {
    let snapshot = Snapshot::of_documents(documents, &Config::default(), Timestamp::now());
    let tree = snapshot.tree();
    let id =
        tree.find(leaf).ok_or_else(|| anyhow!("there is no queue {leaf:?} of group scheduling.run.ai"))?;
    snapshot.warnings().for_each(|warning| warn(&warning));
    let path = tree.path(id).unwrap_or_else(|_| vec![id]);
    let (documents, _) = queues::counting(documents);
    let nearest = path.into_iter().find_map(|id| {
        let (version, block) = block(documents.get(tree.name(id))?)?;
        Some((tree.name(id), version, block))
    });
    let Some((queue, version, block)) = nearest else {
        return Ok((Backoff::default(), None));
    };
    let what = || format!("queue {queue:?}: {} can't be read", version.path("waitForPodsReady"));
    // serde would read a list as well, field by field
    ensure!(block.is_object(), "{}: must be an object", what());
    let wait = WaitForPodsReady::deserialize(&block).with_context(what)?;
    Ok((Backoff::from(&wait), Some(queue.into())))
}

/// What a queue has itself, and the version that it is in.
fn block(document: &Document) -> Option<(QueueVersion, Value)> {
    let version = document.version().parse().unwrap_or_default();
    let value = match version {
        QueueVersion::V3alpha1 => document.value.pointer("/spec/waitForPodsReady")?.clone(),
        QueueVersion::V2 => {
            let text = queues::annotations(document).remove(keys::QUEUE_WAIT_FOR_PODS_READY_ANNOTATION)?;
            // what isn't JSON is no object, and told as that
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
    };
    Some((version, value)).filter(|(_, value)| !value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(name: &str, spec: Value) -> Document {
        let mut value = json!({"metadata": {"name": name}});
        value["spec"] = spec;
        Document {
            source: "q.yaml:1".into(),
            api_version: "scheduling.run.ai/v3alpha1".into(),
            kind: "Queue".into(),
            value,
        }
    }

    fn limit(count: i32) -> Value {
        json!({"requeuingStrategy": {"backoffLimitCount": count}})
    }

    #[test]
    fn the_nearest_block_counts_as_a_whole() {
        let queues = [
            queue(
                "root",
                json!({"waitForPodsReady": {"timeout": "9m", "requeuingStrategy": {"backoffLimitCount": 9}}}),
            ),
            queue("team", json!({"parentQueue": "root", "waitForPodsReady": limit(3)})),
            queue("leaf", json!({"parentQueue": "team", "waitForPodsReady": null})),
            queue("alone", json!({})),
        ];
        let expected = Backoff { limit: Some(3), ..Backoff::default() };
        assert_eq!(find(&queues, "leaf").unwrap(), (expected, Some("team".into())));
        assert_eq!(find(&queues, "alone").unwrap(), (Backoff::default(), None));
        assert_eq!(find(&queues, "root").unwrap().0.limit, Some(9));
    }

    #[test]
    fn the_block_of_a_queue_of_v2_is_an_annotation() {
        let annotated = |text: &str| {
            let mut queue = queue("a", json!({}));
            queue.api_version = "scheduling.run.ai/v2".into();
            queue.value["metadata"]["annotations"] = json!({"tenure.dev/wait-for-pods-ready": text});
            [queue]
        };
        let expected = Backoff { limit: Some(3), ..Backoff::default() };
        let found = find(&annotated(&limit(3).to_string()), "a").unwrap();
        assert_eq!(found, (expected, Some("a".into())));
        let error = find(&annotated("{"), "a").unwrap_err().to_string();
        let expected = "queue \"a\": metadata.annotations[tenure.dev/wait-for-pods-ready] can't be read: must be an object";
        assert_eq!(error, expected);
    }

    #[test]
    fn what_can_not_be_found_or_read_is_told() {
        let queues = [
            queue("a", json!({"parentQueue": "b"})),
            queue("b", json!({"parentQueue": "a"})),
            queue("c", json!({"waitForPodsReady": []})),
            queue("d", json!({"waitForPodsReady": {"timeout": 5}})),
        ];
        assert_eq!(find(&queues, "a").unwrap(), (Backoff::default(), None), "in a cycle");
        assert!(find(&queues, "c").unwrap_err().to_string().ends_with("must be an object"));
        assert!(find(&queues, "gone").unwrap_err().to_string().contains("no queue \"gone\""));
        assert!(
            find(&queues, "d").unwrap_err().to_string().starts_with("queue \"d\": spec.waitForPodsReady")
        );
    }

    #[test]
    fn values_that_do_not_count_are_warned_of() {
        let wait = json!({"timeout": "0s", "requeuingStrategy": {"backoffFactor": "0"}});
        let documents = [queue("q", json!({"waitForPodsReady": wait}))];
        let snapshot = Snapshot::of_documents(&documents, &Config::default(), Timestamp::UNIX_EPOCH);
        let warnings: Vec<String> = snapshot.warnings().collect();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("queue \"q\": spec.waitForPodsReady.timeout: Invalid value: \"0s\""));
        assert!(warnings[0].ends_with(": counts as unset"));
    }
}
