//! Metadata without the parts that no decision needs, above all without `managedFields`.
//!
//! All projections read their metadata so. Fields with `skip` are never allocated.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Owner;

/// The metadata of an object, read in part.
#[derive(Deserialize)]
#[serde(remote = "ObjectMeta", rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(skip)]
    finalizers: Option<Vec<String>>,
    #[serde(skip)]
    generate_name: Option<String>,
    #[serde(skip)]
    managed_fields: Option<Vec<ManagedFieldsEntry>>,
    #[serde(skip)]
    self_link: Option<String>,
}

/// Reads metadata without the skipped fields.
pub(crate) fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    SlimMeta::deserialize(deserializer)
}

/// Returns the metadata of an object, without the parts that no decision needs. Empty if the
/// metadata can't be read.
pub fn metadata(object: &Value) -> ObjectMeta {
    Owner::deserialize(object).map(|object| object.metadata).unwrap_or_default()
}

/// Returns the owner reference with `controller: true`, of which the API server allows one at most.
/// None: no owner controls the object.
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}
