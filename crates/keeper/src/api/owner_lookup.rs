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
    naming::group_of,
    owner_table::OwnerTable,
    pause::OwnerObject,
};
use tenure_service::call::ApiError;
use tenure_types::projection;
use tokio::time::Instant;
use tracing::warn;

use super::ObjectClient;

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
            self.forbidden.lock().remove(group_of(&owner.api_version), &owner.kind);
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
        let (group, api_version, kind) = (group_of(&owner.api_version), &owner.api_version, &owner.kind);
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

/// The time after which a refusal counts.
const MEANT_AFTER: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;

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
