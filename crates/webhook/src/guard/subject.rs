//! Reads the pod that a review of the guard is about: the object of a deletion, or the target of an
//! Eviction.

use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_policy::guard::{Operation, RemovalRequest, UnknownPreemptor};
use tenure_types::projection::Pod;

use crate::admission_review::{Request, UserInfo};

/// A request to delete or to evict a pod.
pub struct PodRemoval<'r> {
    pub operation: Operation,
    /// The name of the user who asks.
    pub user: &'r str,
    /// The groups of the user who asks.
    pub groups: Vec<String>,
    pub namespace: String,
    pub name: String,
    /// The pod. None for an eviction, which has only the name of its pod.
    pub pod: Option<Pod>,
}

/// The part of an Eviction that names its pod.
#[derive(Deserialize)]
struct Eviction {
    metadata: EvictionMetadata,
}

/// The part of the metadata that is read. The caller may fill all else with values that can't be
/// read.
#[derive(Deserialize)]
struct EvictionMetadata {
    namespace: Option<String>,
    name: Option<String>,
}

/// A value, or the message that says why it can't be read.
type ReadResult<T> = Result<T, String>;

/// Returns the operation on a pod. None: the review is about another object.
pub fn operation(request: &Request<'_>) -> Option<Operation> {
    let (group, kind) = (&*request.kind.group, &*request.kind.kind);
    match (&*request.operation, group, kind, &*request.sub_resource) {
        ("DELETE", "", "Pod", "") => Some(Operation::Delete),
        ("CREATE", "policy", "Eviction", "eviction") => Some(Operation::Evict),
        _ => None,
    }
}

impl<'r> PodRemoval<'r> {
    /// Reads a review of this operation. Fails if the namespace or the name is missing, if a field
    /// can't be read, or if a pod to be deleted has no uid.
    pub fn read(operation: Operation, request: &'r Request<'_>) -> ReadResult<Self> {
        let (namespace, name, pod) = match operation {
            Operation::Delete => {
                let pod: Pod = read("oldObject", request.old_object)?;
                pod.metadata.uid.as_ref().ok_or("it has no uid")?;
                (pod.metadata.namespace.clone(), pod.metadata.name.clone(), Some(pod))
            }
            Operation::Evict => {
                let EvictionMetadata { namespace, name } =
                    read::<Eviction>("object", request.object)?.metadata;
                (namespace, name, None)
            }
        };
        // the deletion of a collection names no pod, and an Eviction need not repeat the names in
        // its path
        let named = |own: Option<&str>, asked, what| match [own.unwrap_or_default(), asked] {
            ["", ""] => Err(format!("it has no {what}")),
            ["", name] | [name, _] => Ok(name.to_owned()),
        };
        let UserInfo { username, groups } = &request.user_info;
        Ok(Self {
            operation,
            user: username,
            groups: groups.map_or(Ok(Vec::new()), |groups| read("userInfo.groups", Some(groups)))?,
            namespace: named(namespace.as_deref(), &request.namespace, "namespace")?,
            name: named(name.as_deref(), &request.name, "name")?,
            pod,
        })
    }

    /// Returns the request as [`tenure_policy::guard`] judges it.
    pub fn asked(&self, unknown_preemptor: UnknownPreemptor) -> RemovalRequest<'_> {
        let Self { operation, user, groups, namespace, name, pod: _ } = self;
        RemovalRequest { operation: *operation, user, groups, namespace, name, unknown_preemptor }
    }
}

/// Reads a part of the review. The error names the part.
fn read<T: for<'de> Deserialize<'de>>(what: &str, raw: Option<&RawValue>) -> ReadResult<T> {
    let raw = raw.ok_or_else(|| format!("the review has no {what}"))?;
    serde_json::from_str(raw.get()).map_err(|error| format!("{what}: {error}"))
}
