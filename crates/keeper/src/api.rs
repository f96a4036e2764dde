//! Objects of any kind, by reference.

mod kinds;
mod owners;

use std::time::Duration;

use http::Request;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, ValidationDirective},
    core::{ApiResource, request},
    discovery::{ApiCapabilities, ApiGroup, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_policy::kueue::Lookup;
use tenure_service::{
    call::{ApiError, call, persist},
    pages::PageSize,
};
use tenure_types::{
    extension::{Extension, slim},
    keys,
    projection::{Owner, Pod, WholeObject},
    tolerant::Tolerant,
};
use tokio::time::Instant;

use kinds::{KindMap, KnownKinds};
use owners::could_exist;

/// The most Workloads of one job that are listed: there is one, but any user may create others.
const MOST_WORKLOADS: u32 = 500;

/// The longest time for which Kueue goes unseen when it is installed later.
const KUEUE_IS_LOOKED_FOR_AFTER: Duration = Duration::from_secs(10);

/// Name under which writes are recorded in `managedFields`.
const FIELD_MANAGER: &str = "tenure-keeper";

/// Why a write isn't known to be done.
#[derive(Debug)]
pub struct WriteError {
    pub source: ApiError,
    /// False if the API server doesn't answer at all.
    pub answers: bool,
}

impl From<WriteError> for ApiError {
    fn from(WriteError { source, .. }: WriteError) -> Self {
        source
    }
}

/// Reads objects of any kind, and writes them. Which resource a kind has is asked once and
/// remembered, until one of its objects isn't found.
pub struct ObjectClient {
    client: Client,
    kinds: Mutex<KnownKinds>,
    /// The kinds that may not be read, in any version, and since when that is known.
    forbidden: Mutex<KindMap<Instant>>,
    /// The time at which the cluster was last found to have no Workloads of Kueue.
    without_kueue_since: Mutex<Option<Instant>>,
}

impl ObjectClient {
    pub fn new(client: Client) -> Self {
        let (kinds, forbidden, without_kueue_since) = Default::default();
        Self { client, kinds, forbidden, without_kueue_since }
    }

    /// A pod as it is now.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Pod, ApiError> {
        call(Api::namespaced(self.client.clone(), namespace).get(name)).await
    }

    /// The metadata of a pod as they are now.
    pub async fn pod_metadata(&self, namespace: &str, name: &str) -> Result<ObjectMeta, ApiError> {
        let pods = ApiResource::erase::<Pod>(&());
        let api: Api<Owner> = Api::namespaced_with(self.client.clone(), namespace, &pods);
        call(api.get(name)).await.map(|found| found.metadata)
    }

    /// Deletes a pod, but no namesake of it.
    pub async fn delete_pod(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.into()), resource_version: None };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.delete(&Pod::url_path(&(), Some(namespace)), name, &how).await
    }

    /// Asks the API server by a dry run if it would delete a pod.
    pub async fn would_delete_pod(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        self.would_delete(&Pod::url_path(&(), Some(namespace)), name).await
    }

    /// Asks the API server by a dry run if it would delete an owner.
    pub async fn would_delete_owner(&self, namespace: &str, owner: &OwnerReference) -> Result<(), ApiError> {
        self.on(namespace, owner, async |api| self.would_delete(api.resource_url(), &owner.name).await).await
    }

    /// Asks in the URI, and not in the body as kube does: so the API server's audit log tells it from a deletion.
    async fn would_delete(&self, resource: &str, name: &str) -> Result<(), ApiError> {
        let request = Request::delete(format!("{resource}/{name}?dryRun=All")).body(Vec::new());
        let request = request.map_err(request::Error::BuildRequest).map_err(kube::Error::BuildRequest);
        call(async { self.client.request_text(request?).await }).await.map(drop)
    }

    /// Deletes an object. The answer, which may be the object, isn't read: kube's own method fails on one that is nested too
    /// deep, though the object is deleted then.
    async fn delete(&self, resource: &str, name: &str, how: &DeleteParams) -> Result<(), ApiError> {
        let request = request::Request::new(resource).delete(name, how).map_err(kube::Error::BuildRequest);
        call(async { self.client.request_text(request?).await }).await.map(drop)
    }

    /// Deletes an owner as it was read, and by that all that it owns.
    pub async fn delete_owner(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        resource_version: Option<String>,
    ) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(owner.uid.clone()), resource_version };
        let how = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        self.on(namespace, owner, async |api| self.delete(api.resource_url(), &owner.name, &how).await).await
    }

    /// Deletes a pod that terminates again, with a shorter grace period, but no namesake of it.
    pub async fn end_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        grace: SignedDuration,
    ) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.into()), resource_version: None };
        let how = DeleteParams {
            preconditions: Some(preconditions),
            grace_period_seconds: Some(grace.as_secs().try_into().unwrap_or(u32::MAX)),
            ..DeleteParams::default()
        };
        self.delete(&Pod::url_path(&(), Some(namespace)), name, &how).await
    }

    /// Kueue's Workloads that are looked for; none where there is no Kueue.
    pub async fn workloads(&self, namespace: &str, lookup: Lookup<'_>) -> Result<Vec<WholeObject>, ApiError> {
        if self.without_kueue_since.lock().is_some_and(|since| since.elapsed() < KUEUE_IS_LOOKED_FOR_AFTER) {
            return Ok(Vec::new());
        }
        let of = lookup.workload();
        let found = match lookup {
            Lookup::Named(_) => self.get(namespace, &of).await.map(|found| vec![found]),
            Lookup::Labelled(uid) => {
                let labels = format!("{}={uid}", keys::KUEUE_JOB_UID_LABEL);
                let params = ListParams::default().labels(&labels).limit(MOST_WORKLOADS);
                // of a Workload whose name isn't known, only its kind counts
                let kind = OwnerReference { name: uid.into(), ..of };
                let list = self.on(namespace, &kind, async |api| call(api.list(&params)).await).await;
                list.map(|list| list.items)
            }
        };
        match found {
            Err(ApiError::NotFound) => {
                if matches!(lookup, Lookup::Labelled(_)) {
                    *self.without_kueue_since.lock() = Some(Instant::now());
                }
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// The granted extensions of a namespace; none where the cluster doesn't have the kind.
    pub async fn granted_extensions(&self, namespace: &str) -> Result<Vec<Extension>, ApiError> {
        let api: Api<Tolerant<Extension>> = Api::namespaced(self.client.clone(), namespace);
        let (mut granted, mut page, mut pages) = (Vec::new(), ListParams::default(), PageSize::default());
        loop {
            page.limit = Some(pages.objects());
            let (mut is_too_large, list) = (false, api.list(&page));
            let list = async { list.await.inspect_err(|error| is_too_large = pages.shrink_after(error)) };
            let list = match call(list).await {
                Err(_) if is_too_large => continue,
                Err(ApiError::NotFound) => return Ok(granted),
                list => list?,
            };
            let readable = list.items.into_iter().filter_map(|guard| guard.0.ok());
            granted.extend(readable.filter(|extension| extension.granted().is_some()).map(slim));
            page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            if page.continue_token.is_none() {
                return Ok(granted);
            }
        }
    }

    /// Changes the status of an extension, as it was read.
    pub async fn extension_status(
        &self,
        extension: &Extension,
        status: &Value,
    ) -> Result<Extension, ApiError> {
        let ObjectMeta { namespace, name, uid, resource_version, .. } = &extension.metadata;
        let api: Api<Tolerant<Extension>> =
            Api::namespaced(self.client.clone(), namespace.as_deref().unwrap_or_default());
        let metadata = json!({"uid": uid, "resourceVersion": resource_version});
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        let how = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        let name = name.as_deref().unwrap_or_default();
        let written =
            async { api.patch_status(name, &how, &patch).await?.read().map_err(kube::Error::SerdeError) };
        call(written).await
    }

    /// The whole object.
    pub async fn get(&self, namespace: &str, owner: &OwnerReference) -> Result<WholeObject, ApiError> {
        self.on(namespace, owner, async |api| call(api.get(&owner.name)).await).await
    }

    /// Applies a merge patch, and returns the changed object. A field that the served schema doesn't have is an error,
    /// and then nothing is changed: by default the API server would drop the field and accept the patch.
    pub async fn merge(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
    ) -> Result<WholeObject, ApiError> {
        let how = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        self.on(namespace, owner, async |api| call(api.patch(&owner.name, &how, &Patch::Merge(patch))).await)
            .await
    }

    /// Applies a merge patch. If the API server doesn't say whether it did, `is_done` tells from the object, as it is then.
    pub async fn write(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
        is_done: impl Fn(&WholeObject) -> bool,
    ) -> Result<WholeObject, WriteError> {
        let failed = |source| WriteError { source, answers: true };
        match self.merge(namespace, owner, patch).await {
            Err(error) if error.is_open() => {
                let found = persist(async || self.get(namespace, owner).await).await;
                let found = found.map_err(|source| WriteError { answers: !source.is_open(), source })?;
                let is_same = found.metadata.uid.as_deref() == Some(&owner.uid);
                if is_same && is_done(&found) { Ok(found) } else { Err(failed(error)) }
            }
            result => result.map_err(failed),
        }
    }

    /// Does something with the API of an owner's kind. If a remembered kind isn't found, it is looked up again: its
    /// definition may have changed since.
    async fn on<T>(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        work: impl AsyncFn(Api<WholeObject>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if !could_exist(owner) {
            return Err(ApiError::NotFound);
        }
        let remembered = self.kinds.lock().get(owner);
        let (known, is_remembered) = match remembered {
            Some(known) => (known, true),
            None => self.find(owner).await?,
        };
        match work(self.api(namespace, &known)).await {
            Err(ApiError::NotFound) if is_remembered => {}
            result => return result,
        }
        self.kinds.lock().forget(owner);
        let (found, _) = self.find(owner).await?;
        if found.0 == known.0 {
            return Err(ApiError::NotFound);
        }
        work(self.api(namespace, &found)).await
    }

    fn api(&self, namespace: &str, (resource, scope): &(ApiResource, Scope)) -> Api<WholeObject> {
        let client = self.client.clone();
        match scope {
            Scope::Cluster => Api::all_with(client, resource),
            Scope::Namespaced => Api::namespaced_with(client, namespace, resource),
        }
    }
}

/// Returns the resource of a kind in the most stable version of its group that is served.
pub fn of_kind(group: &ApiGroup, kind: &str) -> Option<(ApiResource, ApiCapabilities)> {
    group.resources_by_stability().into_iter().find(|(resource, _)| resource.kind == kind)
}
