//! Names of objects: in references, in sentences, and in commands. Events, messages, logs and the
//! plugin use them, so that an object has the same name everywhere.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use tenure_types::{paused::PausedRecord, podgroup::LONGEST_NAME, projection::Pod};

/// The most bytes of a version or a kind that Kubernetes allows.
const LONGEST_LABEL: usize = 63;

/// Returns the reference by which events name an object. A cluster-scoped object has no namespace.
pub fn reference(owner: &OwnerReference, namespace: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        name: Some(owner.name.clone()),
        namespace: namespace.map(str::to_owned),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Returns a reference to a pod, in the form of a reference to an owner.
pub fn of_pod(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// Returns a text that names an owner: `Deployment test (apps/v1)`.
pub fn describe(owner: &OwnerReference) -> String {
    format!("{} {} ({})", owner.kind, owner.name, owner.api_version)
}

/// The names by which users know a paused object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PausedObject {
    /// The object that gets the event: the paused object itself, or the object that a paused Kueue
    /// Workload belongs to.
    pub object: ObjectReference,
    /// The name of the Kueue Workload that is paused for the object. None: the object is paused
    /// itself.
    pub workload: Option<String>,
}

impl PausedObject {
    /// Returns the path of the field that a pause has set:
    /// `spec.active of its Workload job-train-1a2b3`.
    pub(crate) fn field(&self, record: &PausedRecord) -> String {
        let of = self.workload.as_ref().map(|name| format!(" of its Workload {name}"));
        format!("{}{}", record.field, of.unwrap_or_default())
    }
}

/// Returns the group of an `apiVersion`; empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns a command of the kubectl plugin for an object:
/// `kubectl tenure activate job.batch/train -n team`. A cluster-scoped object has no `-n`.
pub fn command(verb: &str, object: &ObjectReference) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (api_version, name) = (text(&object.api_version), text(&object.name));
    let group = api_version.split_once('/').map_or_else(String::new, |(group, _)| format!(".{group}"));
    let namespace = object.namespace.as_ref().map_or_else(String::new, |name| format!(" -n {name}"));
    format!("kubectl tenure {verb} {}{group}/{name}{namespace}", text(&object.kind).to_lowercase())
}

/// True if an owner reference could be that of a real object. Users can write any text in a
/// reference, of any length, and that text becomes a part of paths, events, records and commands. A
/// group is at most as long as a name.
pub fn could_exist(owner: &OwnerReference) -> bool {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    if group.len().max(owner.name.len()).max(owner.uid.len()) > LONGEST_NAME
        || version.len().max(owner.kind.len()) > LONGEST_LABEL
    {
        return false;
    }
    let is_name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(plain)
    };
    (group.is_empty() || is_name(group))
        && is_name(version)
        && is_name(&owner.kind)
        && is_segment(&owner.name)
}

/// True if a name can be a segment of a path as it is written: it has no slash, no percent sign,
/// and isn't `.` or `..`. Some names have more than letters, digits, `-` and `.`.
pub fn is_segment(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:@!$&'()*+,;=".contains(c);
    !matches!(name, "" | "." | "..") && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_exist_is_never_looked_for() {
        let of_kind = |api_version: &str, kind: &str, name: &str| OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            ..OwnerReference::default()
        };
        let owner = |api_version: &str, name: &str| of_kind(api_version, "Thing", name);
        for (api_version, name) in
            [("apps/v1", "a.b-c"), ("v1", "a"), ("example.com/v1alpha1", "system:a_B@c")]
        {
            assert!(could_exist(&owner(api_version, name)), "{api_version} {name}");
        }
        for api_version in
            ["", "?", "apps?/v1", "apps#/v1", "a b/v1", "%zz/v1", "../v1", "apps/..", "a/b/c", "apps/"]
        {
            assert!(!could_exist(&owner(api_version, "a")), "{api_version}");
        }
        for name in ["", "a b", "a/b", "..", "a?b", "a%2fb", "a#b", "é"] {
            assert!(!could_exist(&owner("v1", name)), "{name}");
        }
        for kind in ["", "a b", "a/b", "a;b", "$(a)", "-a"] {
            assert!(!could_exist(&of_kind("v1", kind, "a")), "{kind}");
        }
    }

    #[test]
    fn what_is_longer_than_kubernetes_allows_is_never_looked_for() {
        let owner = |group: usize, version: usize, kind: usize, name: usize| OwnerReference {
            api_version: format!("{}/{}", "g".repeat(group), "v".repeat(version)),
            kind: "K".repeat(kind),
            name: "n".repeat(name),
            ..OwnerReference::default()
        };
        assert!(could_exist(&owner(253, 63, 63, 253)));
        for (group, version, kind, name) in
            [(254, 1, 1, 1), (1, 64, 1, 1), (1, 1, 64, 1), (1, 1, 1, 254), (66_000, 1, 1, 1)]
        {
            assert!(!could_exist(&owner(group, version, kind, name)), "{group} {version} {kind} {name}");
        }
    }
}
