//! The resources of kinds that owner references name. The `ObjectClient` looks them up here.
//!
//! Any user may write any text in a reference, so the memory has a bound. A reference whose version
//! isn't served, as after an upgrade, shares one entry with all such references to its kind.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    core::{ApiResource, GroupVersionKind},
    discovery::{self, Scope, pinned_kind},
};
use tenure_policy::naming::group_of;
use tenure_service::call::{ApiError, call};

use super::{ObjectClient, of_kind};

/// The most kinds of a map. Clusters have some hundreds.
const MOST_KINDS: usize = 1_000;

/// A resource, and whether its objects are in namespaces.
pub(super) type ScopedResource = (ApiResource, Scope);

/// Values by group or `apiVersion`, and kind. All are forgotten once they are too many.
#[derive(Debug)]
pub(super) struct KindMap<T>(HashMap<(String, String), T>);

impl<T> Default for KindMap<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> KindMap<T> {
    pub(super) fn get(&self, of: &str, kind: &str) -> Option<&T> {
        self.0.get(&(of.to_owned(), kind.to_owned()))
    }

    pub(super) fn remove(&mut self, of: &str, kind: &str) {
        self.0.remove(&(of.to_owned(), kind.to_owned()));
    }

    /// Adds or replaces a value. A map with `MOST_KINDS` values is emptied first.
    pub(super) fn insert(&mut self, of: &str, kind: &str, value: T) {
        if self.0.len() >= MOST_KINDS {
            self.0.clear();
        }
        self.0.insert((of.to_owned(), kind.to_owned()), value);
    }
}

/// Returns the key of the resource for versions of a kind that aren't served. No `apiVersion` has
/// this form.
pub(super) fn instead_of(owner: &OwnerReference) -> String {
    format!("{}/", group_of(&owner.api_version))
}

impl ObjectClient {
    /// Looks up the resource of a kind, in the version of the reference. If the API server doesn't
    /// serve that version, takes the most stable one of the group, since references are never
    /// rewritten. The flag is true for a resource that was remembered. Fails with
    /// [`ApiError::NotFound`] if the group lacks the kind.
    pub(super) async fn find(&self, owner: &OwnerReference) -> Result<(ScopedResource, bool), ApiError> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        let instead = instead_of(owner);
        let (of, (resource, capabilities)) = match call(pinned_kind(&self.client, &kind)).await {
            Err(ApiError::NotFound) => {
                let known = self.kinds.lock().get(&instead, &owner.kind).cloned();
                if let Some(known) = known {
                    return Ok((known, true));
                }
                let served = call(discovery::group(&self.client, group)).await?;
                (&instead, of_kind(&served, &owner.kind).ok_or(ApiError::NotFound)?)
            }
            found => (&owner.api_version, found?),
        };
        let found = (resource, capabilities.scope);
        self.kinds.lock().insert(of, &owner.kind, found.clone());
        Ok((found, false))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::ready, sync::Arc};

    use kube::Client;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::testing::client;

    /// An API server that serves Deployments in apps/v1, and notes each path that is asked for.
    fn server(asked: &Arc<Mutex<Vec<String>>>) -> Client {
        let asked = Arc::clone(asked);
        client(move |head, _| {
            let path = head.uri.path();
            asked.lock().push(path.to_owned());
            let version = json!({"groupVersion": "apps/v1", "version": "v1"});
            let group = json!({"name": "apps", "versions": [version], "preferredVersion": version});
            let deployments = json!({
                "name": "deployments", "singularName": "", "kind": "Deployment", "namespaced": true, "verbs": ["get"],
            });
            ready(match path {
                "/apis" => (200, json!({"kind": "APIGroupList", "groups": [group]})),
                "/apis/apps/v1" => (
                    200,
                    json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [deployments]}),
                ),
                "/apis/apps/v1/namespaces/ns/deployments/web" => {
                    (200, json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}))
                }
                "/apis/apps/v1/namespaces/ns/deployments/secret" => {
                    (403, json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}))
                }
                _ => (404, json!({"status": "Failure", "code": 404, "reason": "NotFound", "message": "no"})),
            })
        })
    }

    fn deployment(version: &str, name: &str) -> OwnerReference {
        OwnerReference {
            api_version: format!("apps/{version}"),
            kind: "Deployment".into(),
            name: name.into(),
            ..OwnerReference::default()
        }
    }

    #[tokio::test]
    async fn versions_that_are_not_served_take_no_room_of_their_own_and_no_discovery_of_their_group() {
        let asked = Arc::default();
        let objects = ObjectClient::new(server(&asked));
        for number in 0..50 {
            let owner = deployment(&format!("v{number}alpha1"), "web");
            assert!(objects.get("ns", &owner).await.is_ok(), "{number}");
            let owner = deployment(&format!("v{number}beta1"), "secret");
            let labels = std::collections::BTreeMap::new();
            assert!(matches!(
                objects.find_owner("ns", &owner, &labels, None).await,
                Err(ApiError::Forbidden(_))
            ));
        }
        let kinds = objects.kinds.lock();
        assert_eq!((kinds.0.len(), objects.forbidden.lock().0.len()), (1, 1));
        assert!(kinds.get("apps/", "Deployment").is_some());
        assert_eq!(asked.lock().iter().filter(|path| *path == "/apis").count(), 1);
    }

    #[tokio::test]
    async fn an_object_that_is_gone_has_its_kind_looked_up_again() {
        let asked = Arc::default();
        let objects = ObjectClient::new(server(&asked));
        for version in ["v1", "v1beta1"] {
            assert!(objects.get("ns", &deployment(version, "web")).await.is_ok());
            asked.lock().clear();
            let gone = objects.get("ns", &deployment(version, "gone")).await;
            assert!(matches!(gone, Err(ApiError::NotFound)));
            let found = asked.lock().iter().filter(|path| *path == "/apis/apps/v1").count();
            assert_eq!(found, 1, "{version}");
        }
    }

    #[test]
    fn kinds_without_end_are_not_remembered() {
        let mut map = KindMap::default();
        for number in 0..10 * MOST_KINDS {
            map.insert("group", &number.to_string(), number);
            assert!(map.0.len() <= MOST_KINDS && map.get("group", &number.to_string()) == Some(&number));
        }
    }
}
