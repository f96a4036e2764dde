//! The workload that an extension names.
//!
//! The `ExtensionController` reads it before a decision: users write the name and the uid.

use serde_json::Value;
use tenure_policy::pause::OwnerObject;
use tenure_service::call::ApiError;
use tenure_types::{extension::Extension, projection::WholeObject};

use super::{ExtensionController, owner};

/// The workload of an extension, as the API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// The workload may have a run.
    Live,
    /// The workload is paused, has ended or is being deleted.
    Stopped,
    /// There is no such object, or another one of the same name.
    Missing,
    /// The keeper may not read the workload.
    Unreadable,
}

impl ExtensionController {
    /// Reads the workload that an extension names. An object of the whole cluster counts as
    /// missing.
    pub(super) async fn target(&self, extension: &Extension) -> Result<TargetState, ApiError> {
        let owner = owner(&extension.spec.target);
        let namespace = extension.metadata.namespace.as_deref().unwrap_or_default();
        let found = match self.handles.objects.get(namespace, &owner).await {
            Err(ApiError::NotFound) => return Ok(TargetState::Missing),
            // an API server that has just started forbids everything for a moment
            Err(ApiError::Forbidden(_) | ApiError::Refused(_)) => return Ok(TargetState::Unreadable),
            found => found?,
        };
        if found.metadata.uid.as_deref() != Some(&owner.uid) || found.metadata.namespace.is_none() {
            return Ok(TargetState::Missing);
        }
        let is_going = found.metadata.deletion_timestamp.is_some() || has_ended(&found);
        let table = &self.handles.config.get().table;
        let is_paused = table.rules(&owner).any(|rule| OwnerObject(&found.value).is_paused(rule));
        let is_stopped = is_going || is_paused || OwnerObject(&found.value).is_finished();
        Ok(if is_stopped { TargetState::Stopped } else { TargetState::Live })
    }
}

/// True for a pod that has succeeded or failed. False for objects of other kinds.
fn has_ended(object: &WholeObject) -> bool {
    let text = |path: &str| object.value.pointer(path).and_then(Value::as_str);
    let phase = text("/status/phase");
    let is_pod = text("/apiVersion") == Some("v1") && text("/kind") == Some("Pod");
    is_pod && matches!(phase, Some("Succeeded" | "Failed"))
}
