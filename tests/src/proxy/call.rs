//! Requests to the API server by verb and object, read from the method and the URI.

use http::{Method, Uri};

/// Kinds without a namespace. Lists of all other kinds can be restricted to one namespace.
const CLUSTER_SCOPED: [&str; 6] =
    ["apiservices", "customresourcedefinitions", "namespaces", "nodes", "priorityclasses", "storageclasses"];

/// The kind without a namespace whose objects belong to a scope by a label: group and plural.
const LABELLED: (&str, &str) = ("scheduling.run.ai", "queues");

/// The verb of a request that asks if a change would be made: `?dryRun=All`. The keeper asks before
/// it deletes.
pub const DRY_RUN: &str = "dry-run";

/// A request, as an authorizer sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`. [`DRY_RUN`] for
    /// each of the last four as a dry run.
    pub verb: &'static str,
    /// The API group. Empty: the core group.
    pub group: String,
    /// The plural name of the kind. Empty: the request is about no kind, as in discovery.
    pub resource: String,
    /// The subresource. Empty: the object itself.
    pub subresource: String,
    /// The namespace. Empty: all namespaces, or a cluster-scoped object.
    pub namespace: String,
    /// The name. Empty: a collection.
    pub name: String,
}

impl Call {
    /// Reads a request.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |place: usize| rest.get(place).copied().unwrap_or_default().to_owned();
        let (resource, name, subresource) = (part(0), part(1), part(2));
        let has = |option| uri.query().is_some_and(|query| query.split('&').any(|pair| pair == option));
        let is_watch = has("watch=true");
        let verb = match *method {
            _ if has("dryRun=All") => DRY_RUN,
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if is_watch => "watch",
            _ if name.is_empty() && !resource.is_empty() => "list",
            _ => "get",
        };
        Self { verb, group: group.into(), resource, subresource, namespace: namespace.into(), name }
    }

    /// True if the request changes something once the API server gets it. Dry runs don't.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete"].contains(&self.verb)
    }

    /// Returns the URI of the same request about the objects of one namespace, or for
    /// cluster-scoped queues of those with this label. A request that isn't about a collection of
    /// all namespaces is left as it is.
    pub(super) fn restrict(&self, uri: &Uri, label: &str, namespace: &str) -> Uri {
        let is_of_all = ["list", "watch"].contains(&self.verb)
            && self.namespace.is_empty()
            && !self.resource.is_empty()
            && !CLUSTER_SCOPED.contains(&self.resource.as_str());
        if !is_of_all {
            return uri.clone();
        }
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let restricted = if (self.group.as_str(), self.resource.as_str()) == LABELLED {
            format!("{path}?{query}&labelSelector={label}%3D{namespace}")
        } else {
            let end = path.len() - self.resource.len();
            format!("{}namespaces/{namespace}/{}?{query}", &path[..end], self.resource)
        };
        restricted.parse().expect("it stays a URI")
    }
}

/// Writes the verb, the resource, the name and the subresource, such as `patch pods/test/status`.
/// The namespace is left out.
impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, resource, subresource, name, .. } = self;
        write!(f, "{verb} {resource}")?;
        for part in [name, subresource].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "/{part}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &Method, uri: &str) -> Call {
        Call::of(method, &uri.parse().unwrap())
    }

    #[test]
    fn a_request_is_read_by_verb_and_object() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/pods?limit=500", "list pods"),
            (Method::GET, "/api/v1/pods?watch=true&resourceVersion=1", "watch pods"),
            (Method::GET, "/apis/apps/v1/namespaces/a/deployments/x", "get deployments/x"),
            (Method::PATCH, "/apis/apps/v1/namespaces/a/deployments/x?fieldManager=m", "patch deployments/x"),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/a/events", "create events"),
            (Method::DELETE, "/api/v1/namespaces/a/pods/x", "delete pods/x"),
            (Method::DELETE, "/api/v1/namespaces/a/pods/x?dryRun=All", "dry-run pods/x"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "update leases/l"),
            (Method::PATCH, "/apis/scheduling.run.ai/v3alpha1/queues/q/status", "patch queues/q/status"),
            (Method::GET, "/api/v1/namespaces/a", "get namespaces/a"),
            (Method::GET, "/apis", "get "),
            (Method::GET, "/version", "get "),
        ] {
            assert_eq!(call(&method, uri).to_string(), expected, "{uri}");
        }
        let call = call(&Method::GET, "/apis/apps/v1/namespaces/a/deployments/x");
        assert_eq!((call.group.as_str(), call.namespace.as_str()), ("apps", "a"));
    }

    #[test]
    fn a_dry_run_is_no_write() {
        assert!(call(&Method::DELETE, "/api/v1/namespaces/a/pods/x").is_write());
        assert!(!call(&Method::DELETE, "/api/v1/namespaces/a/pods/x?dryRun=All").is_write());
    }

    #[test]
    fn a_list_of_all_namespaces_is_restricted_to_one_and_queues_to_a_label() {
        for (uri, expected) in [
            ("/api/v1/pods?limit=5", "/api/v1/namespaces/ns/pods?limit=5"),
            ("/apis/batch/v1/jobs?watch=true", "/apis/batch/v1/namespaces/ns/jobs?watch=true"),
            (
                "/apis/scheduling.run.ai/v3alpha1/queues?limit=5",
                "/apis/scheduling.run.ai/v3alpha1/queues?limit=5&labelSelector=plan%3Dns",
            ),
            ("/apis/apps/v1/namespaces/a/deployments", "/apis/apps/v1/namespaces/a/deployments"),
            ("/apis/apps/v1", "/apis/apps/v1"),
            (
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=5",
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=5",
            ),
        ] {
            let uri: Uri = uri.parse().unwrap();
            assert_eq!(Call::of(&Method::GET, &uri).restrict(&uri, "plan", "ns").to_string(), expected);
        }
    }
}
