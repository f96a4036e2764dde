//! The kinds that a cluster serves, and the kind that a word means.
//!
//! [`ClusterReader`](super::ClusterReader) discovers them once, by two requests. `list --watch` and
//! `ui` discover them again from time to time. The order of the API server is kept, because it
//! decides which version is preferred.

use std::collections::HashSet;

use anyhow::{Result, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, Resource,
    core::{
        ApiResource, DynamicResourceScope, GroupVersionKind,
        discovery::v2::{APIGroupDiscovery, APIResourceDiscovery},
    },
};
use tenure_policy::{expiry::Family, owner_table::OwnerTable};
use tenure_types::podgroup::PodGroupKind;

/// A kind of object in one version of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// Group, version, kind and plural, as kube takes them.
    pub resource: ApiResource,
    pub namespaced: bool,
    singular: String,
    /// Short names such as `deploy`.
    short_names: Vec<String>,
}

impl ResourceKind {
    /// Reads a kind from the discovery. None: the answer names no kind or no plural.
    fn read(group: &str, version: &str, found: APIResourceDiscovery) -> Option<Self> {
        let kind = GroupVersionKind::gvk(group, version, &found.response_kind?.kind?);
        let singular = found.singular_resource.filter(|name| !name.is_empty());
        Some(Self {
            singular: singular.unwrap_or_else(|| kind.kind.to_lowercase()),
            short_names: found.short_names,
            namespaced: found.scope.as_deref() == Some("Namespaced"),
            resource: ApiResource::from_gvk_with_plural(&kind, &found.resource?),
        })
    }

    /// True if this is the kind, the plural, the singular or a short name, in any case of letters.
    fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        [&self.resource.plural, &self.singular, &self.resource.kind.to_lowercase()].contains(&&name)
            || self.short_names.contains(&name)
    }

    /// True if this is the kind's group and name, in any version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.resource.group == group && self.resource.kind == kind
    }

    /// Returns the plural as in messages of the API server: `deployments.apps`.
    pub fn plural(&self) -> String {
        qualified(&self.resource.plural, &self.resource.group)
    }

    /// Returns the kind as in the messages of kubectl: `deployment.apps`.
    pub fn singular(&self) -> String {
        qualified(&self.singular, &self.resource.group)
    }

    /// Returns a reference to an object of this kind, as owner references are written. It has no
    /// uid.
    pub fn reference(&self, name: &str) -> OwnerReference {
        OwnerReference {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
            name: name.into(),
            ..OwnerReference::default()
        }
    }

    /// Returns the API of the kind's objects in a namespace. All objects, if no namespace is given
    /// or the kind isn't namespaced. `K` is the whole object or its metadata.
    pub fn api<K>(&self, client: &Client, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// Returns `deployments.apps`, or `pods` for the core group.
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// All kinds: groups in the API server's order, the preferred version of each first.
#[derive(Clone, Debug, Default)]
pub struct ResourceKinds(Vec<ResourceKind>);

/// The groups of built-in kinds that can be paused, and of pods: core, apps, batch.
pub const BUILT_IN: [&str; 3] = ["", "apps", "batch"];

impl ResourceKinds {
    /// Asks the API server for all kinds that it serves.
    pub async fn discover(client: &Client) -> kube::Result<Self> {
        let (core, groups) = tokio::try_join!(
            client.list_core_api_versions_aggregated(),
            client.list_api_groups_aggregated()
        )?;
        Ok(Self::read(core.items.into_iter().chain(groups.items)))
    }

    /// Reads the kinds of groups, in their order. Kinds without a name or a plural are left out.
    pub(crate) fn read(groups: impl Iterator<Item = APIGroupDiscovery>) -> Self {
        let mut kinds = Vec::new();
        for group in groups {
            let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
            for version in group.versions {
                let Some(of) = version.version else { continue };
                let found = version.resources.into_iter();
                kinds.extend(found.filter_map(|found| ResourceKind::read(&name, &of, found)));
            }
        }
        Self(kinds)
    }

    /// Returns a kind in the preferred version that has it. None: the cluster doesn't serve the
    /// kind.
    pub fn find(&self, group: &str, kind: &str) -> Option<&ResourceKind> {
        self.0.iter().find(|found| found.is(group, kind))
    }

    /// Returns a kind in exactly this version.
    pub fn version(&self, api_version: &str, kind: &str) -> Option<&ResourceKind> {
        self.0.iter().find(|found| found.resource.api_version == api_version && found.resource.kind == kind)
    }

    /// Returns the versions in which a kind is served, the preferred version first.
    pub fn versions(&self, group: &str, kind: &str) -> Vec<&str> {
        let served = self.0.iter().filter(|found| found.is(group, kind));
        served.map(|found| found.resource.version.as_str()).collect()
    }

    /// Returns the kind of a family's queues, in the best version that can be read: Tenure's own
    /// version has more fields than KAI's. None: the cluster has no queues of the family.
    pub fn queues(&self, family: Family) -> Option<&ResourceKind> {
        let served = |version| self.version(&format!("{}/{version}", family.row().group), "Queue");
        family.row().versions.iter().find_map(served)
    }

    /// Returns the kinds of queues and `PodGroup`s, each with the namespace in which its objects
    /// count. None: all namespaces.
    pub fn queues_and_groups<'a>(
        &'a self,
        t9k_system_namespace: &'a str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a ResourceKind, Option<&'a str>)> {
        let place = move |family: Family| family.row().is_namespaced.then_some(t9k_system_namespace);
        let queues = Family::ALL.into_iter().filter_map(move |of| Some((self.queues(of)?, place(of))));
        let groups = self.pod_groups().map(move |(_, kind)| (kind, namespace));
        queues.chain(groups)
    }

    /// Returns all kinds of `PodGroup`s that are served, each in the best version that can be read.
    pub fn pod_groups(&self) -> impl Iterator<Item = (PodGroupKind, &ResourceKind)> {
        let best = |of: PodGroupKind| {
            let served = |version| self.version(&format!("{}/{version}", of.group()), "PodGroup");
            Some((of, of.versions().iter().find_map(served)?))
        };
        PodGroupKind::ALL.into_iter().filter_map(best)
    }

    /// Returns the kind that a word means: kind, plural, singular or short name, then perhaps a
    /// group, or a version and a group. If several groups have the kind, those whose kind can be
    /// paused come first.
    ///
    /// An error: no kind matches, or several do.
    pub fn resolve(&self, word: &str, table: &OwnerTable) -> Result<&ResourceKind> {
        let (name, rest) = word.split_once('.').unwrap_or((word, ""));
        let rest = rest.to_lowercase();
        let is_meant = |kind: &&ResourceKind| {
            let ApiResource { group, version, .. } = &kind.resource;
            kind.is_called(name) && (rest.is_empty() || *group == rest || qualified(version, group) == rest)
        };
        // other versions of the same kind come later
        let mut met = HashSet::new();
        let mut found: Vec<&ResourceKind> = self.0.iter().filter(is_meant).collect();
        found.retain(|kind| met.insert((&kind.resource.group, &kind.resource.kind)));
        let known = found.iter().copied().filter(|kind| table.knows(&kind.reference("")));
        let mut known: Vec<&ResourceKind> = known.collect();
        // as for kubectl, a Job is that of Kubernetes and not that of Volcano
        if known.iter().any(|kind| BUILT_IN.contains(&kind.resource.group.as_str())) {
            known.retain(|kind| BUILT_IN.contains(&kind.resource.group.as_str()));
        }
        match (known.as_slice(), found.as_slice()) {
            ([one], _) | ([], [one, ..]) => Ok(one),
            ([], []) => {
                bail!(
                    "the server doesn't have a resource type {word:?}: kubectl api-resources lists the types"
                )
            }
            (several, _) => {
                let names: Vec<String> = several.iter().map(|kind| kind.plural()).collect();
                bail!("{word:?} may be any of {}: say which", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resource(plural: &str, kind: &str, short_names: &[&str]) -> Value {
        json!({
            "resource": plural, "singularResource": kind.to_lowercase(), "shortNames": short_names,
            "responseKind": {"group": "", "version": "", "kind": kind}, "scope": "Namespaced", "verbs": ["get"],
        })
    }

    fn group(name: &str, versions: &[(&str, &[Value])]) -> APIGroupDiscovery {
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, resources)| json!({"version": version, "resources": resources}))
            .collect();
        let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
        serde_json::from_value(json!({"metadata": metadata, "versions": versions})).unwrap()
    }

    fn kinds() -> ResourceKinds {
        let deployment = resource("deployments", "Deployment", &["deploy"]);
        let mpi_job = resource("mpijobs", "MPIJob", &[]);
        let groups = [
            group("", &[("v1", &[resource("pods", "Pod", &["po"])])]),
            group(
                "apps",
                &[("v1", std::slice::from_ref(&deployment)), ("v1beta2", std::slice::from_ref(&deployment))],
            ),
            group("batch.volcano.sh", &[("v1alpha1", &[resource("jobs", "Job", &["vj"])])]),
            group("batch", &[("v1", &[resource("jobs", "Job", &[])])]),
            group("kubeflow.org", &[("v1", std::slice::from_ref(&mpi_job))]),
            group("batch.tensorstack.dev", &[("v1beta1", &[mpi_job])]),
        ];
        ResourceKinds::read(groups.into_iter())
    }

    fn resolved(word: &str) -> Result<String, String> {
        let kinds = kinds();
        let kind = kinds.resolve(word, &OwnerTable::default()).map_err(|error| error.to_string())?;
        Ok(format!("{} {}", kind.resource.api_version, kind.resource.plural))
    }

    #[test]
    fn a_kind_has_many_names() {
        for word in [
            "deploy",
            "deployment",
            "deployments",
            "Deployment",
            "deployment.apps",
            "deploy.apps",
            "deployments.v1.apps",
        ] {
            assert_eq!(resolved(word), Ok("apps/v1 deployments".into()), "{word}");
        }
        assert_eq!(resolved("deployments.v1beta2.apps"), Ok("apps/v1beta2 deployments".into()));
        assert_eq!(resolved("po"), Ok("v1 pods".into()));
        assert_eq!(resolved("vj"), Ok("batch.volcano.sh/v1alpha1 jobs".into()));
    }

    #[test]
    fn what_no_kind_is_called_means_none() {
        for word in ["", "x", "deploy.batch", "deploy.v9.apps", ".apps"] {
            let expected = format!(
                "the server doesn't have a resource type {word:?}: kubectl api-resources lists the types"
            );
            assert_eq!(resolved(word), Err(expected), "{word}");
        }
    }

    #[test]
    fn of_several_groups_the_one_that_can_be_paused_counts() {
        assert_eq!(resolved("job"), Ok("batch/v1 jobs".into()));
    }

    #[test]
    fn of_two_groups_that_can_be_paused_none_is_guessed() {
        let both = "\"mpijob\" may be any of mpijobs.kubeflow.org, mpijobs.batch.tensorstack.dev: say which";
        assert_eq!(resolved("mpijob"), Err(both.into()));
        assert_eq!(resolved("mpijob.kubeflow.org"), Ok("kubeflow.org/v1 mpijobs".into()));
    }

    #[test]
    fn kinds_are_named_with_their_group() {
        let kinds = kinds();
        let named = |group, kind| kinds.find(group, kind).map(|kind| (kind.plural(), kind.singular()));
        assert_eq!(named("apps", "Deployment"), Some(("deployments.apps".into(), "deployment.apps".into())));
        assert_eq!(named("", "Pod"), Some(("pods".into(), "pod".into())));
        assert_eq!(named("apps", "Pod"), None);
    }
}
