//! The queues of the run.ai family.
//!
//! Called while a snapshot is filled, and by the commands that take queues alone: `matrix`,
//! `requeue-schedule`, `validate`. Fields are read as the keeper reads stored queues: an invalid
//! field has a fallback, which a warning names.

use std::collections::BTreeMap;

use anyhow::Result;
use futures::TryStreamExt;
use serde::{Deserialize, de::value::MapDeserializer};
use serde_json::Value;
use tenure_policy::{expiry::Family, field::FieldError, queue::RunaiQueue};
use tenure_types::{ExtendedDuration, projection, runai::QueueVersion};

use super::Snapshot;
use crate::{
    cluster::{ConnectArgs, cannot_list},
    input::{self, Document},
    print::warn,
};

/// The API group of queues that are in a tree.
const GROUP: &str = Family::Runai.row().group;

/// Returns all objects in files. Without files, the queues of the run.ai family that the cluster
/// has.
pub async fn documents(filename: &[String], connect: ConnectArgs) -> Result<Vec<Document>> {
    if !filename.is_empty() {
        return input::read(filename);
    }
    let cluster = connect.connect().await?;
    let Some(kind) = cluster.kinds.queues(Family::Runai) else {
        warn("the cluster has no queues.scheduling.run.ai");
        return Ok(Vec::new());
    };
    let listed = cluster.documents(kind, None).try_concat().await;
    let listed: Vec<_> = listed.map_err(|error| cannot_list(kind, error))?;
    Ok(listed.into_iter().filter_map(|object| object.map_err(|why| warn(&why)).ok()).collect())
}

/// Returns the error about a queue of the tree that doesn't exist.
pub fn missing(name: &str) -> String {
    format!("there is no queue {name:?} of group scheduling.run.ai: kubectl tenure matrix lists the queues")
}

/// Returns the queues of the tree by name, and warnings about queues that don't count. Of queues
/// with the same name, the last one counts.
pub fn counting(documents: &[Document]) -> (BTreeMap<&str, &Document>, Vec<String>) {
    let (mut counting, mut warnings) = (BTreeMap::new(), Vec::new());
    for document in documents.iter().filter(|document| is_queue(document)) {
        let Some(name) = document.name() else {
            warnings.push(format!("{}: a Queue without metadata.name: it doesn't count", document.source));
            continue;
        };
        if let Some(before) = counting.insert(name, document) {
            let (first, second) = (&before.source, &document.source);
            warnings.push(format!(
                "queue {name:?} is defined in {first} and again in {second}: the last one counts"
            ));
        }
    }
    (counting, warnings)
}

/// True for a queue of the tree, in a known version.
pub fn is_queue(document: &Document) -> bool {
    document.kind == "Queue"
        && document.group() == GROUP
        && Family::Runai.row().versions.contains(&document.version())
}

impl Snapshot {
    /// Adds a queue to the index. Fields that are invalid lead to warnings.
    pub(super) fn take_queue(&mut self, name: &str, document: &Document) {
        let mut spec = document.value.get("spec").filter(|spec| !spec.is_null());
        if let Some(bad) = spec.take_if(|spec| !spec.is_object()) {
            let error = FieldError::invalid("spec", bad.clone(), "must be an object");
            self.of_queues.push(format!("queue {name:?}: {error}: it counts as empty"));
        }
        let (queue, errors) = if document.version() == "v2" {
            let found: projection::RunaiQueueV2Object = project(spec);
            RunaiQueue::read_v2(&found.spec, &annotations(document))
        } else {
            let found: projection::RunaiQueueObject = project(spec);
            RunaiQueue::read(&found.spec)
        };
        let wrong =
            |error: &FieldError| format!("queue {name:?}: {error}: {}", counts_as(&queue, &error.field));
        self.of_queues.extend(errors.iter().map(wrong));
        self.index.put_queue(Family::Runai, name, queue);
    }
}

/// Returns the annotations whose values are texts. Others can't be stored.
pub fn annotations(document: &Document) -> BTreeMap<String, String> {
    let annotations = document.value.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
    annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Returns the projection of an object with this spec alone, so that faults in the metadata don't
/// matter.
fn project<'d, P: Deserialize<'d> + Default>(spec: Option<&'d Value>) -> P {
    let object = spec.map(|spec| ("spec", spec)).into_iter();
    P::deserialize(MapDeserializer::<_, serde_json::Error>::new(object)).unwrap_or_default()
}

/// Says what an invalid field of a stored queue counts as.
fn counts_as(queue: &RunaiQueue, field: &str) -> String {
    let is = |name: &str| [QueueVersion::V3alpha1, QueueVersion::V2].iter().any(|of| of.path(name) == field);
    let value = match field {
        "spec.parentQueue" => return "it counts as it is written".into(),
        "spec.preemptMinRuntime" => queue.preempt_floor,
        "spec.reclaimMinRuntime" => queue.reclaim_floor,
        _ => queue.ceiling.filter(|_| is("maxDuration")),
    };
    value.map_or_else(|| "counts as unset".into(), |value: ExtendedDuration| format!("counts as {value}"))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;
    use tenure_policy::{config::Config, tree::QueueTree};

    use super::*;

    fn snapshot(documents: &[Document]) -> (Snapshot, Vec<String>) {
        let snapshot = Snapshot::of_documents(documents, &Config::default(), None, Timestamp::UNIX_EPOCH);
        let warnings = snapshot.warnings().collect();
        (snapshot, warnings)
    }

    fn queue_of(version: &str, name: &str, spec: Value) -> Document {
        let api_version = format!("{GROUP}/{version}");
        let mut value = json!({"apiVersion": api_version, "kind": "Queue", "metadata": {"name": name}});
        value["spec"] = spec;
        Document { source: format!("q.yaml:{name}"), api_version, kind: "Queue".into(), value }
    }

    fn queue(name: &str, spec: Value) -> Document {
        queue_of("v3alpha1", name, spec)
    }

    fn path(tree: &QueueTree, leaf: &str) -> Vec<String> {
        let path = tree.path(tree.find(leaf).unwrap());
        path.into_iter().map(|id| tree.name(id).to_owned()).collect()
    }

    #[test]
    fn queues_of_both_versions_are_in_one_tree() {
        let documents = [
            queue("leaf", json!({"parentQueue": "root", "preemptMinRuntime": "1d"})),
            queue_of("v2", "root", json!({"reclaimMinRuntime": "1h", "resources": "any text"})),
            queue_of("v9", "other", json!({})),
            Document { api_version: "v1".into(), ..queue("pod", json!({})) },
        ];
        let (snapshot, warnings) = snapshot(&documents);
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(
            (path(snapshot.tree(), "leaf"), snapshot.tree().len()),
            (vec!["leaf".to_owned(), "root".to_owned()], 2)
        );
        let (_, root) = snapshot.tree().queue("root").unwrap();
        assert_eq!(root.reclaim_floor, Some("1h".parse().unwrap()));
    }

    #[test]
    fn what_does_not_count_as_it_is_written_is_reported() {
        let documents = [
            queue("a", json!({"reclaimMinRuntime": "-5s", "maxDuration": "0s", "expiryNotice": 5})),
            queue("b", json!({"parentQueue": "Not A Name", "preemptMinRuntime": "2h", "maxDuration": "1h"})),
            queue_of("v2", "c", json!({"preemptMinRuntime": "-5s", "reclaimMinRuntime": "2d"})),
            queue("d", json!("spec")),
        ];
        let (_, warnings) = snapshot(&documents);
        let expected = [
            ("queue \"a\": spec.reclaimMinRuntime: Invalid value: \"-5s\": ", ": counts as 0s"),
            ("queue \"a\": spec.maxDuration: Invalid value: \"0s\": ", ": counts as unset"),
            ("queue \"a\": spec.expiryNotice: Invalid value: \"5\": ", ": counts as unset"),
            (
                "queue \"b\": spec.parentQueue: Invalid value: \"Not A Name\": ",
                ": it counts as it is written",
            ),
            ("queue \"b\": its parent \"Not A Name\" doesn't exist", ": it counts as a top-level queue"),
            ("queue \"b\": spec.preemptMinRuntime: Invalid value: \"2h\": ", ": counts as 2h"),
            ("queue \"c\": spec.preemptMinRuntime: Invalid value: \"-5s\": ", ": counts as 0s"),
            ("queue \"c\": spec.reclaimMinRuntime: Invalid value: \"2d\": ", ": counts as unset"),
            ("queue \"d\": spec: Invalid value: \"spec\": ", ": it counts as empty"),
        ];
        assert_eq!(warnings.len(), expected.len(), "{warnings:#?}");
        let mut unmet: Vec<_> = warnings.clone();
        for (begin, end) in expected {
            unmet.retain(|warning| !(warning.starts_with(begin) && warning.ends_with(end)));
        }
        assert_eq!(unmet, Vec::<String>::new());
    }

    #[test]
    fn annotations_of_a_queue_of_v2_count_as_the_fields_that_it_lacks() {
        let mut annotated = queue_of("v2", "a", json!({}));
        annotated.value["metadata"]["annotations"] =
            json!({"tenure.dev/max-duration": "2h", "tenure.dev/expiry-notice": "soon", "other": 5});
        let (snapshot, warnings) = snapshot(&[annotated]);
        assert_eq!(snapshot.tree().queue("a").unwrap().1.ceiling, Some("2h".parse().unwrap()));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let expected =
            "queue \"a\": metadata.annotations[tenure.dev/expiry-notice]: Invalid value: \"soon\": ";
        assert!(
            warnings[0].starts_with(expected) && warnings[0].ends_with(": counts as unset"),
            "{warnings:?}"
        );
    }

    #[test]
    fn of_a_queue_that_is_there_twice_the_last_one_counts() {
        let documents = [
            queue("a", json!({"preemptMinRuntime": "nonsense"})),
            queue_of("v2", "a", json!({"preemptMinRuntime": "5m"})),
        ];
        let (snapshot, warnings) = snapshot(&documents);
        assert_eq!(
            warnings,
            ["queue \"a\" is defined in q.yaml:a and again in q.yaml:a: the last one counts"]
        );
        assert_eq!(snapshot.tree().queue("a").unwrap().1.preempt_floor, Some("5m".parse().unwrap()));
    }

    #[test]
    fn what_is_wrong_with_the_tree_is_reported_last() {
        let documents = [
            queue("a", json!({"parentQueue": "b"})),
            queue("b", json!({"parentQueue": "a"})),
            queue("c", json!({"parentQueue": "gone"})),
            Document { value: json!({"metadata": {"name": 5}}), ..queue("e", json!({})) },
        ];
        let (snapshot, warnings) = snapshot(&documents);
        assert_eq!((snapshot.tree().len(), warnings.len()), (3, 3), "{warnings:?}");
        assert_eq!(warnings[0], "q.yaml:e: a Queue without metadata.name: it doesn't count");
        assert!(warnings.iter().any(|warning| warning.contains("a -> b -> a")), "{warnings:?}");
    }
}
