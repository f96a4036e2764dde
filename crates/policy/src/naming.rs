//! Names of objects: in references, in sentences, and in commands.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use tenure_types::projection::Pod;

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

/// Returns an owner for people: `Deployment test (apps/v1)`.
pub fn describe(owner: &OwnerReference) -> String {
    format!("{} {} ({})", owner.kind, owner.name, owner.api_version)
}
