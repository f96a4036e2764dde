//! Pods as the command line names them, and parts of answers.

use jiff::Timestamp;

use crate::{
    print::{moment, printable, until},
    snapshot::NamespacedName,
};

/// A pod of the command line, `NAMESPACE/POD` or a name alone: then its namespace is empty.
pub fn pod_name(text: &str) -> Result<NamespacedName, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    if name.is_empty() || name.contains('/') || text.starts_with('/') {
        return Err("must be NAMESPACE/POD".into());
    }
    Ok((namespace.into(), name.into()))
}

/// Returns a key with this namespace, if it names none.
pub fn key((named, name): NamespacedName, namespace: &str) -> NamespacedName {
    (if named.is_empty() { namespace.to_owned() } else { named }, name)
}

/// `NAMESPACE/POD`
pub fn shown(key: &NamespacedName) -> String {
    format!("{}/{}", key.0, key.1)
}

/// A heading and the sentences below it.
pub fn paragraph(heading: &str, sentences: &[String]) -> String {
    let sentences = sentences.iter().map(|sentence| format!("  - {}\n", printable(sentence)));
    std::iter::once(format!("{}\n", printable(heading))).chain(sentences).collect()
}

/// To the second, and how long it is until then.
pub fn from_now(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} from now)", moment(at), until(at, now))
}
