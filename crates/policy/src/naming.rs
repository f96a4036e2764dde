//! Names of objects: in references, in sentences, and in commands. Events, messages, logs and the
//! plugin use them, so that an object has the same name everywhere.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use tenure_types::{paused::PausedRecord, projection::Pod};

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
