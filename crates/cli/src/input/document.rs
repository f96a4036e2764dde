//! One object of a file or of a list, and where it is from.
//!
//! Made by `input` and by the lists of `cluster`. Only `apiVersion` and `kind` are checked here:
//! the code that decodes an object checks the rest.

use anyhow::{Result, bail, ensure};
use serde_json::Value;
use tenure_policy::naming::group_of;

/// Short names that kubectl takes, for files, where no server can be asked for them.
const SHORT_NAMES: [(&str, &str); 4] =
    [("deploy", "deployment"), ("po", "pod"), ("rs", "replicaset"), ("sts", "statefulset")];

/// An object, with its kind and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Where the object begins: `queues.yaml:12` or `<stdin>:12`; for an item of a List
    /// `queues.yaml:12 item 3`; for an object of a cluster `KIND/NAME`.
    pub source: String,
    /// Group and version: `scheduling.run.ai/v3alpha1`, `v1`.
    pub api_version: String,
    /// The kind: `Queue`.
    pub kind: String,
    /// The whole object.
    pub value: Value,
}

impl Document {
    /// Returns the API group. Empty for the core group.
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }

    /// Returns the version without its group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }

    /// Returns `metadata.name`. None: the name isn't a text, or is empty.
    pub fn name(&self) -> Option<&str> {
        self.metadata("name")
    }

    /// Returns `metadata.namespace`. None: the namespace isn't a text, or is empty.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata("namespace")
    }

    /// True if a word means the object's kind: kind, plural or a short name, then perhaps a group,
    /// or a version and a group. Case doesn't matter.
    pub fn is_called(&self, word: &str) -> bool {
        let (word, of) = word.split_once('.').unwrap_or((word, ""));
        let (word, kind) = (word.to_lowercase(), self.kind.to_lowercase());
        let is_short = SHORT_NAMES.iter().any(|(short, long)| *short == word && *long == kind);
        let versioned = || format!("{}.{}", self.version(), self.group());
        (word == kind || word.strip_suffix('s') == Some(&kind) || is_short)
            && (of.is_empty() || of == self.group() || of == versioned())
    }

    /// Returns a text of the metadata.
    fn metadata(&self, key: &str) -> Option<&str> {
        self.value.get("metadata")?.get(key)?.as_str().filter(|text| !text.is_empty())
    }
}

/// Adds an object; or, in place of a List, its items and those of the Lists in it. An error:
/// something isn't an object, or lacks `apiVersion` or `kind`.
pub fn flatten(source: String, mut value: Value, documents: &mut Vec<Document>) -> Result<()> {
    ensure!(value.is_object(), "{source}: an object was expected, with apiVersion, kind and metadata");
    let text = |key: &str| match value.get(key) {
        None | Some(Value::Null) => bail!("{source}: {key} is missing"),
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(other) => bail!("{source}: {key} must be a string that isn't empty, not {other}"),
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    // without items, only the name of the kind resembles that of a List
    let of = kind.strip_suffix("List").filter(|of| of.is_empty() || value.get("items").is_some());
    let Some(of) = of else {
        documents.push(Document { source, api_version, kind, value });
        return Ok(());
    };
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => bail!("{source}: items must be a list"),
    };
    for (number, mut item) in (1usize..).zip(items) {
        // items of a typed list may leave out what the list has said
        if let Some(object) = item.as_object_mut().filter(|_| !of.is_empty()) {
            object.entry("kind").or_insert_with(|| of.into());
            object.entry("apiVersion").or_insert_with(|| api_version.as_str().into());
        }
        flatten(format!("{source} item {number}"), item, documents)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flat(value: Value) -> Result<Vec<(String, String, String)>, String> {
        let mut documents = Vec::new();
        flatten("f:1".into(), value, &mut documents).map_err(|error| error.to_string())?;
        Ok(documents
            .into_iter()
            .map(|document| (document.source, document.api_version, document.kind))
            .collect())
    }

    fn triple(source: &str, api_version: &str, kind: &str) -> (String, String, String) {
        (source.into(), api_version.into(), kind.into())
    }

    #[test]
    fn lists_are_their_items() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        let inner = json!({"apiVersion": "v1", "kind": "List", "items": [pod]});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [pod, inner]});
        assert_eq!(
            flat(list),
            Ok(vec![triple("f:1 item 1", "v1", "Pod"), triple("f:1 item 2 item 1", "v1", "Pod")])
        );
    }

    #[test]
    fn items_of_a_typed_list_inherit_what_they_are() {
        let list = json!({"apiVersion": "g/v1", "kind": "QueueList", "items": [{}, {"apiVersion": "v1", "kind": "Pod"}]});
        assert_eq!(
            flat(list),
            Ok(vec![triple("f:1 item 1", "g/v1", "Queue"), triple("f:1 item 2", "v1", "Pod")])
        );
    }

    #[test]
    fn a_list_may_be_empty() {
        assert_eq!(flat(json!({"apiVersion": "v1", "kind": "List"})), Ok(vec![]));
        assert_eq!(flat(json!({"apiVersion": "v1", "kind": "PodList", "items": null})), Ok(vec![]));
    }

    #[test]
    fn a_kind_that_only_sounds_like_a_list_is_an_object() {
        let object = json!({"apiVersion": "g/v1", "kind": "AllowList", "spec": {}});
        assert_eq!(flat(object), Ok(vec![triple("f:1", "g/v1", "AllowList")]));
    }

    #[test]
    fn what_is_no_object_is_reported() {
        for (value, expected) in [
            (json!([]), "f:1: an object was expected, with apiVersion, kind and metadata"),
            (json!({"kind": "A"}), "f:1: apiVersion is missing"),
            (json!({"apiVersion": "v1"}), "f:1: kind is missing"),
            (
                json!({"apiVersion": 1, "kind": "A"}),
                "f:1: apiVersion must be a string that isn't empty, not 1",
            ),
            (json!({"apiVersion": "v1", "kind": "List", "items": [{}]}), "f:1 item 1: apiVersion is missing"),
            (json!({"apiVersion": "v1", "kind": "List", "items": {}}), "f:1: items must be a list"),
        ] {
            assert_eq!(flat(value).unwrap_err(), expected);
        }
    }
}
