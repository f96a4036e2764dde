//! Looks up the owners that pods name, for the climb of the `Pauser`.
//!
//! A tenant writes owner references. So an owner counts only if its selector and its templates fit
//! the pod, and a refusal of the API server only if it lasts.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::{Selector, SelectorExt};
use serde_json::Value;
use tenure_policy::{
    climb::{FoundOwner, OwnerLookup, OwnerState},
    creation::{PodClaim, claims_otherwise},
    owner_table::OwnerTable,
    pause::OwnerObject,
};
use tenure_service::call::ApiError;
use tenure_types::{podgroup::LONGEST_NAME, projection};
use tokio::time::Instant;
use tracing::warn;

use super::{ObjectClient, kinds::group_of};

impl ObjectClient {
    /// Looks up an owner in `namespace`, for a pod with these labels. With a claim to be judged, an
    /// owner whose templates lack what the pod claims counts as one that doesn't select the pod. An
    /// error decides nothing: the caller asks again.
    pub async fn find_owner(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        labels: &BTreeMap<String, String>,
        judged: Option<(PodClaim<'_>, &OwnerTable)>,
    ) -> Result<OwnerLookup, ApiError> {
        let found = self.get(namespace, owner).await;
        if !matches!(found, Err(ApiError::Forbidden(_))) {
            self.forbidden.lock().remove(group_of(owner), &owner.kind);
        }
        match found {
            Ok(found) => Ok(OwnerLookup::Found(FoundOwner {
                selects: selects(&found.value, labels)
                    && !judged
                        .is_some_and(|(claim, table)| claims_otherwise(owner, &found.value, claim, table)),
                cluster_scoped: found.metadata.namespace.is_none(),
                controller: projection::controller(&found.metadata).cloned(),
                state: match OwnerObject(&found.value) {
                    _ if found.metadata.deletion_timestamp.is_some() => OwnerState::Deleting,
                    object if object.is_finished() => OwnerState::Ended,
                    _ => OwnerState::Live,
                },
                uid: found.metadata.uid.unwrap_or_default(),
                labels: found.metadata.labels.unwrap_or_default(),
            })),
            Err(ApiError::NotFound) => Ok(OwnerLookup::Absent),
            Err(ApiError::Forbidden(why)) if self.is_meant(owner, &why) => Ok(OwnerLookup::Forbidden),
            Err(error) => Err(error),
        }
    }

    /// True if a refusal to read a kind has lasted. An API server that has just started forbids
    /// everything for a moment. Logs the first refusal.
    fn is_meant(&self, owner: &OwnerReference, why: &str) -> bool {
        let mut forbidden = self.forbidden.lock();
        let (group, api_version, kind) = (group_of(owner), &owner.api_version, &owner.kind);
        if let Some(since) = forbidden.get(group, kind) {
            return since.elapsed() >= MEANT_AFTER;
        }
        warn!(%api_version, %kind, error = why, "Not allowed to read owners of this kind: grant get to the keeper");
        forbidden.insert(group, kind, Instant::now());
        false
    }
}

/// False if an owner has a selector for pods that doesn't match these labels, or can't be read.
fn selects(owner: &Value, labels: &BTreeMap<String, String>) -> bool {
    let selector = owner.pointer("/spec/selector");
    let is_for_labels = |selector: &&Value| {
        selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some()
    };
    let Some(selector) = selector.filter(is_for_labels) else { return true };
    let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    selector.and_then(|of| Selector::try_from(of).ok()).is_some_and(|selector| selector.matches(labels))
}

/// The most bytes of a version or a kind that Kubernetes allows.
const LONGEST_LABEL: usize = 63;

/// True if an owner reference could be that of a real object. Users can write any text in a
/// reference, and that text becomes a part of a path. A group is at most as long as a name.
pub(super) fn could_exist(owner: &OwnerReference) -> bool {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    if group.len().max(owner.name.len()) > LONGEST_NAME || version.len().max(owner.kind.len()) > LONGEST_LABEL
    {
        return false;
    }
    let is_name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(plain)
    };
    // characters that may stand in a path as they are: some names have more than letters, digits,
    // '-' and '.'
    let is_segment = |c: char| c.is_ascii_alphanumeric() || "-._~:@!$&'()*+,;=".contains(c);
    (group.is_empty() || is_name(group))
        && is_name(version)
        && !matches!(owner.name.as_str(), "" | "." | "..")
        && owner.name.chars().all(is_segment)
}

/// The time after which a refusal counts.
const MEANT_AFTER: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_exist_is_never_looked_for() {
        let owner = |api_version: &str, name: &str| OwnerReference {
            api_version: api_version.into(),
            name: name.into(),
            ..OwnerReference::default()
        };
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

    #[test]
    fn an_owner_with_a_selector_owns_what_it_selects() {
        let labels = BTreeMap::from([("app".to_owned(), "a".to_owned())]);
        for (spec, expected) in [
            (json!({}), true),
            (json!({"selector": {"matchLabels": {"app": "a"}}}), true),
            (json!({"selector": {"matchLabels": {"app": "b"}}}), false),
            (json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}), true),
            (
                json!({"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}}),
                false,
            ),
            (json!({"selector": {"matchLabels": 5}}), false),
            (json!({"selector": "somewhere else"}), true),
        ] {
            assert_eq!(selects(&json!({"spec": spec}), &labels), expected, "{spec}");
        }
    }
}
