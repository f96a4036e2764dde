//! The pod that a review is about.

use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_policy::guard::{Asked, Operation, UnknownPreemptor};
use tenure_types::projection::Pod;

use crate::review::{Request, UserInfo};

/// A pod that is to go.
pub struct PodRemoval<'r> {
    pub operation: Operation,
    pub user: &'r str,
    pub groups: Vec<String>,
    pub namespace: String,
    pub name: String,
    /// The pod itself, for a deletion. An eviction has only its name.
    pub pod: Option<Pod>,
}

/// The part of an Eviction that names its pod.
#[derive(Deserialize)]
struct Eviction {
    metadata: EvictionMetadata,
}

/// The caller may fill all else of the metadata with what can't be read.
#[derive(Deserialize)]
struct EvictionMetadata {
    namespace: Option<String>,
    name: Option<String>,
}

type Reading<T> = Result<T, String>;

/// The operation on a pod; none if the review is about another object.
pub fn operation(request: &Request<'_>) -> Option<Operation> {
    let (group, kind) = (&*request.kind.group, &*request.kind.kind);
    match (&*request.operation, group, kind, &*request.sub_resource) {
        ("DELETE", "", "Pod", "") => Some(Operation::Delete),
        ("CREATE", "policy", "Eviction", "eviction") => Some(Operation::Evict),
        _ => None,
    }
}

impl<'r> PodRemoval<'r> {
    /// Reads a review of such an operation.
    pub fn read(operation: Operation, request: &'r Request<'_>) -> Reading<Self> {
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
        // the deletion of a collection names no pod, and an Eviction need not repeat the names in its path
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

    pub fn asked(&self, unknown_preemptor: UnknownPreemptor) -> Asked<'_> {
        let Self { operation, user, groups, namespace, name, pod: _ } = self;
        Asked { operation: *operation, user, groups, namespace, name, unknown_preemptor }
    }
}

fn read<T: for<'de> Deserialize<'de>>(what: &str, raw: Option<&RawValue>) -> Reading<T> {
    let raw = raw.ok_or_else(|| format!("the review has no {what}"))?;
    serde_json::from_str(raw.get()).map_err(|error| format!("{what}: {error}"))
}
