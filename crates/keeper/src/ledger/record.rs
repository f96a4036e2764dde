//! The record of usage in its `ConfigMap`.
//!
//! The [`UsageCounter`](super::UsageCounter) reads it, and each session writes it. Only the keeper
//! that leads writes, and only over the version that it has read.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tenure_service::call::{ApiError, call};
use tenure_types::usage_record::{USAGE_KEY, UsageRecord};
use thiserror::Error;

use crate::api::FIELD_MANAGER;

/// The reason why the record can't be read or written. The text is `namespace/name` of the
/// `ConfigMap`.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The `ConfigMap` doesn't exist. The keeper doesn't create it.
    #[error("there is no ConfigMap {0}: create it, or install the chart with usage.enabled=true")]
    Missing(String),
    /// The key of the record has a text that can't be parsed.
    #[error(
        "{USAGE_KEY} of ConfigMap {0} can't be read: put back a copy that can be, or remove the key to begin at zero"
    )]
    Unreadable(String, #[source] serde_json::Error),
    /// Another writer has changed the `ConfigMap` since it was read.
    #[error("ConfigMap {0} was changed by another writer: reading it again")]
    Changed(String),
    /// The call failed for another reason.
    #[error("no answer about ConfigMap {0}")]
    Api(String, #[source] ApiError),
}

/// Reads and writes the record.
pub struct RecordStore {
    maps: Api<ConfigMap>,
    namespace: String,
    name: String,
}

impl RecordStore {
    /// Creates a store for the `ConfigMap` of this namespace and name.
    pub fn new(client: Client, namespace: String, name: String) -> Self {
        Self { maps: Api::namespaced(client, &namespace), namespace, name }
    }

    /// Reads the record, and the `resourceVersion` of the `ConfigMap`. None: there is no record
    /// yet.
    pub async fn read(&self) -> Result<(Option<UsageRecord>, String), RecordError> {
        let map = call(self.maps.get(&self.name)).await.map_err(|error| self.failed(error))?;
        let text = map.data.as_ref().and_then(|data| data.get(USAGE_KEY)).filter(|text| !text.is_empty());
        let record = text.map(|text| serde_json::from_str(text)).transpose();
        let record = record.map_err(|error| RecordError::Unreadable(self.place(), error))?;
        Ok((record, map.metadata.resource_version.unwrap_or_default()))
    }

    /// Writes the record over this `resourceVersion` of the `ConfigMap`. Returns the new version,
    /// and the size of the record in bytes. Fails with [`RecordError::Changed`] if the version is
    /// another.
    pub async fn write(&self, record: &UsageRecord, over: &str) -> Result<(String, usize), RecordError> {
        let unreadable = |error| RecordError::Unreadable(self.place(), error);
        let text = serde_json::to_string(record).map_err(unreadable)?;
        let bytes = text.len();
        let patch = json!({"metadata": {"resourceVersion": over}, "data": {USAGE_KEY: text}});
        let how = PatchParams::apply(FIELD_MANAGER);
        let map = call(self.maps.patch(&self.name, &how, &Patch::Merge(patch))).await;
        let map = map.map_err(|error| self.failed(error))?;
        Ok((map.metadata.resource_version.unwrap_or_default(), bytes))
    }

    fn failed(&self, error: ApiError) -> RecordError {
        match error {
            ApiError::NotFound => RecordError::Missing(self.place()),
            ApiError::Stale(_) => RecordError::Changed(self.place()),
            error => RecordError::Api(self.place(), error),
        }
    }

    /// Returns `namespace/name`, for errors.
    fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}
