//! Objects of any kind, by reference.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, ValidationDirective},
    core::{ApiResource, GroupVersionKind, Status},
    discovery::{self, ApiCapabilities, ApiGroup, Scope, pinned_kind},
    error::DiscoveryError,
};
use parking_lot::Mutex;
use serde_json::Value;
use tenure_policy::climb::Answer;
use tenure_service::leadership::Leadership;
use tenure_types::projection::{self, Pod};
use thiserror::Error;
use tokio::time::Instant;
use tracing::warn;

/// For one call. kube's client has no limit of its own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A refusal that lasts for so long is meant.
const MEANT_AFTER: Duration = Duration::from_secs(4);

/// For [`persist`].
const PATIENCE: Duration = Duration::from_mins(1);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Name under which writes are recorded in `managedFields`.
const FIELD_MANAGER: &str = "tenure-keeper";

/// Why a call to the API server failed, by what can be done about it.
#[derive(Debug, Error)]
pub enum ApiError {
    /// There is no such object, or no longer; or no such kind.
    #[error("not found")]
    NotFound,
    /// We may not.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// It was changed, or replaced by a namesake, since it was read.
    #[error("changed since it was read: {0}")]
    Stale(String),
    /// These fields are others' to apply, unless they are taken by force.
    #[error("owned by others: {}", .0.join(", "))]
    Owned(Vec<String>),
    /// The served schema has no such field.
    #[error("unknown field: {0}")]
    UnknownField(String),
    /// The API server, or an admission webhook or policy, refuses it.
    #[error("refused: {0}")]
    Refused(String),
    /// Another keeper leads, as far as this one knows.
    #[error("not the leader")]
    NotLeading,
    /// Anything else: worth another try.
    #[error("no good answer")]
    Other(#[source] Box<kube::Error>),
    /// No answer in time.
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(*status),
            kube::Error::Discovery(DiscoveryError::MissingKind(_) | DiscoveryError::MissingApiGroup(_)) => {
                Self::NotFound
            }
            error => Self::Other(Box::new(error)),
        }
    }
}

impl ApiError {
    fn of_status(status: Status) -> Self {
        let has = |text| status.message.contains(text);
        match status.code {
            404 => Self::NotFound,
            // a namespace that goes takes nothing new
            403 if has("being terminated") => Self::NotFound,
            403 => Self::Forbidden(status.message),
            400 | 422 if has("unknown field") => Self::UnknownField(status.message),
            // so an apply is answered
            500 if has("field not declared in schema") => Self::UnknownField(status.message),
            // another uid in a patch is 409 or, where it is taken for an attempt to change it, 422
            409 => owned(&status).map_or_else(|| Self::Stale(status.message), Self::Owned),
            422 if has("metadata.uid") => Self::Stale(status.message),
            400 | 405..=407 | 410..=428 => Self::Refused(status.message),
            _ => Self::Other(Box::new(kube::Error::Api(Box::new(status)))),
        }
    }

    /// Whether somebody said no, in which case nothing was done.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Refused(_))
    }

    /// Whether the API server has not decided anything, as far as we know.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Other(_) | Self::Timeout => true,
            Self::NotFound
            | Self::Forbidden(_)
            | Self::Stale(_)
            | Self::Owned(_)
            | Self::UnknownField(_)
            | Self::Refused(_)
            | Self::NotLeading => false,
        }
    }
}

/// The fields for whose sake an apply was refused; none if it was for something else.
fn owned(status: &Status) -> Option<Vec<String>> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let owned =
        causes.filter(|cause| cause.reason == "FieldManagerConflict").map(|cause| cause.field.clone());
    Some(owned.collect()).filter(|owned: &Vec<String>| !owned.is_empty())
}

/// Tries until the API server has decided, for a minute at most: for what must not be left half done. A server that
/// has just started forbids everything for a moment, so that counts as no decision here.
pub async fn persist<T>(attempt: impl AsyncFn() -> Result<T, ApiError>) -> Result<T, ApiError> {
    let patience = Instant::now() + PATIENCE;
    let mut wait = FIRST_WAIT;
    loop {
        match attempt().await {
            Err(error)
                if (error.is_open() || matches!(error, ApiError::Forbidden(_)))
                    && Instant::now() < patience =>
            {
                tokio::time::sleep(wait).await;
            }
            result => return result,
        }
        wait = (wait * 2).min(LAST_WAIT);
    }
}

/// The result of a call, unless it takes too long.
pub async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    tokio::time::timeout(TIMEOUT, call).await.map_err(|_| ApiError::Timeout)?.map_err(ApiError::from)
}

/// The kind of an owner reference: `apiVersion` and kind.
type Kind = (String, String);

fn kind_of(owner: &OwnerReference) -> Kind {
    (owner.api_version.clone(), owner.kind.clone())
}

/// Reads objects of any kind, and writes them while this keeper leads. Which resource a kind has is asked once and
/// remembered, until one of its objects isn't found.
pub struct Objects {
    client: Client,
    lead: Leadership,
    kinds: Mutex<HashMap<Kind, (ApiResource, Scope)>>,
    /// The kinds that may not be read, and since when that is known.
    forbidden: Mutex<HashMap<Kind, Instant>>,
}

impl Objects {
    pub fn new(client: Client, lead: Leadership) -> Self {
        Self { client, lead, kinds: Mutex::default(), forbidden: Mutex::default() }
    }

    /// A pod as it is now.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Pod, ApiError> {
        call(Api::namespaced(self.client.clone(), namespace).get(name)).await
    }

    /// Deletes a pod, but no namesake of it.
    pub async fn delete_pod(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.into()), resource_version: None };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        self.lead_or_fail()?;
        call(api.delete(name, &how)).await.map(drop)
    }

    /// What there is to say of an owner of something in `namespace`. An error decides nothing: ask again.
    pub async fn look_up(&self, namespace: &str, owner: &OwnerReference) -> Result<Answer, ApiError> {
        let found = self.on(namespace, owner, async |api| call(api.get_metadata(&owner.name)).await).await;
        if !matches!(found, Err(ApiError::Forbidden(_))) {
            self.forbidden.lock().remove(&kind_of(owner));
        }
        match found {
            Ok(found) => Ok(Answer::Found {
                controller: projection::controller(&found.metadata).cloned(),
                deleting: found.metadata.deletion_timestamp.is_some(),
                uid: found.metadata.uid.unwrap_or_default(),
            }),
            Err(ApiError::NotFound) => Ok(Answer::Absent),
            Err(ApiError::Forbidden(why)) if self.is_meant(owner, &why) => Ok(Answer::Forbidden),
            Err(error) => Err(error),
        }
    }

    /// Whether a refusal to have a kind read is meant. An API server that has just started forbids everything for a
    /// moment.
    fn is_meant(&self, owner: &OwnerReference, why: &str) -> bool {
        let mut forbidden = self.forbidden.lock();
        let since = *forbidden.entry(kind_of(owner)).or_insert_with(|| {
            let (api_version, kind) = (&owner.api_version, &owner.kind);
            warn!(%api_version, %kind, error = why, "Not allowed to read owners of this kind: grant get to the keeper");
            Instant::now()
        });
        since.elapsed() >= MEANT_AFTER
    }

    /// The whole object.
    pub async fn get(&self, namespace: &str, owner: &OwnerReference) -> Result<DynamicObject, ApiError> {
        self.on(namespace, owner, async |api| call(api.get(&owner.name)).await).await
    }

    /// Applies a merge patch, and returns what became of the object. A field that the served schema doesn't have is
    /// an error, and then nothing is changed: without being asked, the API server would drop the field and say yes.
    pub async fn merge(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
    ) -> Result<DynamicObject, ApiError> {
        let how = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        self.on(namespace, owner, async |api| {
            self.lead_or_fail()?;
            call(api.patch(&owner.name, &how, &Patch::Merge(patch))).await
        })
        .await
    }

    fn lead_or_fail(&self) -> Result<(), ApiError> {
        if self.lead.holds() { Ok(()) } else { Err(ApiError::NotLeading) }
    }

    /// Does something with the API of an owner's kind. Where nothing is found, the kind is looked for anew: its
    /// definition may have changed since.
    async fn on<T>(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        work: impl AsyncFn(Api<DynamicObject>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if !could_exist(owner) {
            return Err(ApiError::NotFound);
        }
        let known = self.kinds.lock().get(&kind_of(owner)).cloned();
        if let Some(known) = known {
            match work(self.api(namespace, &known)).await {
                Err(ApiError::NotFound) => {}
                result => return result,
            }
            let found = self.find(owner).await?;
            if found.0 == known.0 {
                return Err(ApiError::NotFound);
            }
            return work(self.api(namespace, &found)).await;
        }
        let found = self.find(owner).await?;
        work(self.api(namespace, &found)).await
    }

    fn api(&self, namespace: &str, (resource, scope): &(ApiResource, Scope)) -> Api<DynamicObject> {
        let client = self.client.clone();
        match scope {
            Scope::Cluster => Api::all_with(client, resource),
            Scope::Namespaced => Api::namespaced_with(client, namespace, resource),
        }
    }

    /// The resource of a kind: of the version that the reference has or, since references are never rewritten, of
    /// the one that the API server has now.
    async fn find(&self, owner: &OwnerReference) -> Result<(ApiResource, Scope), ApiError> {
        self.kinds.lock().remove(&kind_of(owner));
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        let (resource, capabilities) = match call(pinned_kind(&self.client, &kind)).await {
            Err(ApiError::NotFound) => {
                let served = call(discovery::group(&self.client, group)).await?;
                of_kind(&served, &owner.kind).ok_or(ApiError::NotFound)?
            }
            found => found?,
        };
        let found = (resource, capabilities.scope);
        self.kinds.lock().insert(kind_of(owner), found.clone());
        Ok(found)
    }
}

/// The resource of a kind in whatever version of its group is served; the most stable counts.
pub fn of_kind(group: &ApiGroup, kind: &str) -> Option<(ApiResource, ApiCapabilities)> {
    group.resources_by_stability().into_iter().find(|(resource, _)| resource.kind == kind)
}

/// Whether an owner reference could be that of a real object. It may say whatever a user likes, and what it says
/// becomes a part of a path.
fn could_exist(owner: &OwnerReference) -> bool {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let is_name = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(plain)
    };
    // what may stand in a path as it is: some kinds have names with more than letters, digits, '-' and '.'
    let is_segment = |c: char| c.is_ascii_alphanumeric() || "-._~:@!$&'()*+,;=".contains(c);
    (group.is_empty() || is_name(group))
        && is_name(version)
        && !matches!(owner.name.as_str(), "" | "." | "..")
        && owner.name.chars().all(is_segment)
}

#[cfg(test)]
mod tests {
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
}
