//! The subjects of bindings that grant the right to use a queue.
//!
//! Called by `kubectl tenure queue`. Reads the roles and bindings of RBAC, and no other authorizer
//! of the cluster. A user who may not list them gets a sentence with the missing right.

use std::{collections::BTreeSet, fmt::Debug};

use anyhow::Result;
use futures::TryStreamExt;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use tenure_policy::expiry::Family;
use tenure_types::tolerant::{Tolerant, TolerantObject};

use super::{USE, mode, you_may_use};
use crate::{
    cluster::{ClusterReader, explain, is_forbidden, objects, qualified, readable},
    print::TablePart,
};

/// A subject that may use a queue, and the binding that grants the right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueGrant {
    /// The namespace in which the right holds. Null: all namespaces.
    namespace: Option<String>,
    /// Kind and name: `Group system:serviceaccounts:team`, `User alice` or
    /// `ServiceAccount team/trainer`.
    subject: String,
    /// Kind and name: `RoleBinding tenure-use-research`.
    binding: String,
}

/// Returns the subjects that may use a queue, in a namespace or in all namespaces. The inner error
/// is a sentence about the right that the user lacks to see them. `None`: queues take no right.
pub async fn grants(
    cluster: &ClusterReader,
    namespace: Option<&str>,
    queue: &str,
) -> Result<Option<Result<Vec<QueueGrant>, String>>> {
    if mode(cluster).await?.is_none() {
        return Ok(None);
    }
    let families = Family::ALL.into_iter().filter(|family| cluster.kinds.queues(*family).is_some());
    let families: Vec<Family> = families.collect();
    let missing = match read_grants(cluster, namespace, (&families, queue)).await? {
        Ok(grants) => return Ok(Some(Ok(grants))),
        Err(right) => right,
    };
    let (mut you, place) = (false, namespace.unwrap_or(&cluster.namespace));
    for family in families {
        you |= you_may_use(cluster, place, (family, queue)).await?;
    }
    let you = if you { "you may use it" } else { "you don't have the right to use it" };
    Ok(Some(Err(format!(
        "who may use queue {queue} isn't shown, because you may not {missing}: {you} in namespace {place}"
    ))))
}

/// Returns a table of grants: subject, namespace and binding.
pub fn part(grants: &[QueueGrant]) -> TablePart {
    let row = |QueueGrant { namespace, subject, binding }: &QueueGrant| {
        let namespace = namespace.clone().unwrap_or_else(|| "<all>".into());
        vec![subject.clone(), namespace, binding.clone()]
    };
    (vec!["MAY USE", "IN NAMESPACE", "BY"], grants.iter().map(row).collect())
}

/// Reads the bindings of roles that grant the right, sorted and each once. The inner error is a
/// right that the user doesn't have, as in `list roles.rbac.authorization.k8s.io`.
async fn read_grants(
    cluster: &ClusterReader,
    namespace: Option<&str>,
    right: (&[Family], &str),
) -> Result<Result<Vec<QueueGrant>, String>> {
    let all = || cluster.client.clone();
    let (roles, bindings) = (cluster.api(namespace), cluster.api(namespace));
    let read = async {
        let roles = list::<Role>(roles).await?;
        let of_cluster = list::<ClusterRole>(Api::all(all())).await?;
        let bindings = list::<RoleBinding>(bindings).await?;
        Ok((roles, of_cluster, bindings, list::<ClusterRoleBinding>(Api::all(all())).await?))
    };
    let (roles, of_cluster, bindings, bindings_of_cluster) = match read.await {
        Ok(read) => read,
        Err(ListError::Forbidden(right)) => return Ok(Err(right)),
        Err(ListError::Failed(error)) => return Err(explain(error)),
    };
    let local = roles.iter().filter(|role| allows(role.rules.as_deref(), right));
    let local = local.map(|role| (role.namespace(), role.name_any()));
    let general = of_cluster.iter().filter(|role| allows(role.rules.as_deref(), right));
    let general = general.map(|role| (None, role.name_any()));
    let granting: BTreeSet<(Option<String>, String)> = local.chain(general).collect();
    let grants = |binding: String, place: Option<String>, role: RoleRef, subjects: Option<Vec<Subject>>| {
        let of = if role.kind == "Role" { place.clone() } else { None };
        let is_granting = granting.contains(&(of, role.name));
        let subjects = subjects.into_iter().flatten().filter(move |_| is_granting);
        subjects.map(move |subject| QueueGrant {
            namespace: place.clone(),
            subject: named(&subject),
            binding: binding.clone(),
        })
    };
    let local = bindings.into_iter().flat_map(|binding| {
        let name = format!("RoleBinding {}", binding.name_any());
        grants(name, binding.namespace(), binding.role_ref, binding.subjects)
    });
    let general = bindings_of_cluster.into_iter().flat_map(|binding| {
        let name = format!("ClusterRoleBinding {}", binding.name_any());
        grants(name, None, binding.role_ref, binding.subjects)
    });
    let grants: BTreeSet<QueueGrant> = local.chain(general).collect();
    Ok(Ok(grants.into_iter().collect()))
}

/// Returns kind and name of a subject.
fn named(Subject { kind, name, namespace, api_group: _ }: &Subject) -> String {
    let place = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{kind} {place}{name}")
}

/// True if at least one rule grants the right to use a queue of one of these families.
fn allows(rules: Option<&[PolicyRule]>, (families, queue): (&[Family], &str)) -> bool {
    let has = |of: &[String], wanted: &str| of.iter().any(|one| one == wanted || one == "*");
    rules.unwrap_or_default().iter().any(|rule| {
        let PolicyRule { api_groups, resource_names, resources, verbs, non_resource_urls: _ } = rule;
        let [groups, names, resources] =
            [api_groups, resource_names, resources].map(|of| of.as_deref().unwrap_or_default());
        has(verbs, USE)
            && has(resources, "queues")
            && families.iter().any(|family| has(groups, family.row().group))
            && (names.is_empty() || names.iter().any(|name| name == queue))
    })
}

/// A failure to list objects of RBAC.
enum ListError {
    /// The right that is missing, as a phrase.
    Forbidden(String),
    /// Any other error of the API server.
    Failed(kube::Error),
}

/// Lists all objects of a kind, page by page. Leaves out those that can't be read, with a warning.
async fn list<K>(api: Api<Tolerant<K>>) -> Result<Vec<K>, ListError>
where
    K: TolerantObject + Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
{
    let listed = objects(api, None).try_concat().await.map_err(|error| {
        if is_forbidden(&error) {
            ListError::Forbidden(format!("list {}", qualified(&K::plural(&()), &K::group(&()))))
        } else {
            ListError::Failed(error)
        }
    })?;
    let kind = qualified(&K::kind(&()).to_lowercase(), &K::group(&()));
    Ok(readable(&kind, listed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn may_use(rule: serde_json::Value, queue: &str) -> bool {
        let rule = serde_json::from_value(rule).unwrap();
        allows(Some(&[rule]), (&[Family::Runai], queue))
    }

    #[test]
    fn a_rule_allows_to_use_a_queue_that_it_names_or_all_if_it_names_none() {
        let rule = |groups: &[&str], verbs: &[&str], names: &[&str]| json!({"apiGroups": groups, "resources": ["queues"], "resourceNames": names, "verbs": verbs});
        let ours = "scheduling.run.ai";
        assert!(may_use(rule(&[ours], &["use"], &["research"]), "research"));
        assert!(may_use(rule(&["*"], &["*"], &[]), "research"));
        for refused in [
            rule(&[ours], &["use"], &["other"]),
            rule(&[ours], &["get"], &[]),
            rule(&["scheduler.tensorstack.dev"], &["use"], &[]),
            json!({"apiGroups": [ours], "resources": ["podgroups"], "verbs": ["use"]}),
        ] {
            assert!(!may_use(refused.clone(), "research"), "{refused}");
        }
        assert!(!allows(None, (&Family::ALL, "research")));
    }
}
