//! Reads and writes objects of any kind, by reference.
//!
//! All controllers share the [`ObjectClient`] of their `Handles`. Users write references, so no
//! request is made for a reference that no real object could have.

mod kinds;
mod owner_lookup;

use std::time::Duration;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, DynamicResourceScope, request},
    discovery::{ApiCapabilities, ApiGroup, Scope},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_policy::{
    kueue::{Lookup, WorkloadParts},
    naming::could_exist,
    pause::{KEEPER_MANAGER, commands_path},
};
use tenure_service::{
    call::{ApiError, call, persist},
    pages::ListPages,
};
use tenure_types::{
    extension::{Extension, slim},
    keys,
    projection::{Pod, WholeObject},
    tolerant::{Tolerant, UnreadableObject},
};
use tokio::time::Instant;
use tracing::warn;

use kinds::{KindMap, instead_of};

/// The most Workloads of one job that are read. A job has one, but any user may create others.
const MOST_WORKLOADS: usize = 500;

/// The Workloads of a page: whole objects, each of which may take 8 MiB of memory.
const WORKLOADS_AT_ONCE: u32 = 16;

/// The time between two checks for Kueue in a cluster without it.
const KUEUE_DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// The name under which writes are recorded in `managedFields`.
pub const FIELD_MANAGER: &str = KEEPER_MANAGER;

/// The reason why a write isn't known to be done.
#[derive(Debug)]
pub struct UncertainWrite {
    /// The failure of the write, or of the read that checks whether the write took effect.
    pub source: ApiError,
    /// False if the API server doesn't answer at all.
    pub answers: bool,
}

impl From<UncertainWrite> for ApiError {
    fn from(UncertainWrite { source, .. }: UncertainWrite) -> Self {
        source
    }
}

/// The Workloads of Kueue that a lookup has found.
#[derive(Debug, Default)]
pub struct FoundWorkloads {
    /// The Workloads that the caller has chosen.
    pub chosen: Vec<WholeObject>,
    /// References to Workloads that can't be read whole, 16 at most.
    pub unreadable: Vec<OwnerReference>,
}

/// A type of objects whose kind is known at run time.
trait ObjectOfAnyKind: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope> {}

impl<K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>> ObjectOfAnyKind for K {}

/// Reads objects of any kind, and writes them. The resource of a kind is looked up once and
/// remembered, until one of its objects isn't found.
pub struct ObjectClient {
    client: Client,
    /// The resources of kinds by `apiVersion`, and by group for versions that aren't served.
    kinds: Mutex<KindMap<kinds::ScopedResource>>,
    /// The kinds that may not be read, in any version, and since when that is known.
    forbidden: Mutex<KindMap<Instant>>,
    /// The time at which the cluster was last found to have no Workloads of Kueue.
    without_kueue_since: Mutex<Option<Instant>>,
}

impl ObjectClient {
    /// Creates a client that remembers no kinds.
    pub fn new(client: Client) -> Self {
        let (kinds, forbidden, without_kueue_since) = Default::default();
        Self { client, kinds, forbidden, without_kueue_since }
    }

    /// Reads a pod by its name.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Pod, ApiError> {
        call(Api::namespaced(self.client.clone(), namespace).get(name)).await
    }

    /// Asks the API server by a dry run whether it would delete an object. The parameter is in the
    /// URI, and not in the body as kube has it: so the API server's audit log distinguishes the dry
    /// run from a deletion.
    pub async fn would_delete(&self, namespace: &str, object: &OwnerReference) -> Result<(), ApiError> {
        self.on(namespace, object, async |api: Api<WholeObject>| {
            let request = Request::delete(format!("{}/{}?dryRun=All", api.resource_url(), object.name));
            self.send(request.body(Vec::new()).map_err(request::Error::BuildRequest)).await
        })
        .await
    }

    /// Deletes an object, but no other one of its name. With `version`, deletes only that version.
    /// Fails with [`ApiError::Stale`] if the object isn't the one that is meant.
    ///
    /// The answer, which may be the object, isn't decoded: kube's own method fails on an object
    /// that is nested too deep, although the object is deleted then.
    pub async fn delete(
        &self,
        namespace: &str,
        object: &OwnerReference,
        version: Option<String>,
        how: DeleteParams,
    ) -> Result<(), ApiError> {
        let preconditions = Some(Preconditions { uid: Some(object.uid.clone()), resource_version: version });
        let how = DeleteParams { preconditions, ..how };
        self.on(namespace, object, async |api: Api<WholeObject>| {
            self.send(request::Request::new(api.resource_url()).delete(&object.name, &how)).await
        })
        .await
    }

    /// Returns the Workloads of Kueue that a lookup finds. Empty: there are none, or the cluster has
    /// no Kueue.
    ///
    /// A list is read in pages, 500 Workloads in all. After each page, only those stay in memory
    /// whose uids `chosen` returns: any user may create many large ones. A Workload in a list that
    /// can't be read is left out, with a warning.
    pub async fn workloads(
        &self,
        namespace: &str,
        lookup: Lookup<'_>,
        chosen: impl Fn(&[WholeObject]) -> Vec<Option<String>>,
    ) -> Result<FoundWorkloads, ApiError> {
        if self.without_kueue_since.lock().is_some_and(|since| since.elapsed() < KUEUE_DISCOVERY_INTERVAL) {
            return Ok(FoundWorkloads::default());
        }
        let of = lookup.workload();
        let found = match lookup {
            Lookup::Named(_) => {
                let found = self.get(namespace, &of).await;
                found.map(|found| FoundWorkloads { chosen: vec![found], unreadable: Vec::new() })
            }
            Lookup::Labelled(uid) => {
                let labels = format!("{}={uid}", keys::KUEUE_JOB_UID_LABEL);
                let params = ListParams::default().labels(&labels);
                // the name of the Workload isn't known, and only its kind counts
                let kind = OwnerReference { name: uid.into(), ..of };
                self.on(namespace, &kind, async |api| {
                    list_workloads(api, params.clone(), &kind, &chosen).await
                })
                .await
            }
        };
        let found = if_found(found)?;
        if found.is_none() && matches!(lookup, Lookup::Labelled(_)) {
            *self.without_kueue_since.lock() = Some(Instant::now());
        }
        Ok(found.unwrap_or_default())
    }

    /// Reads the parts of a Workload that say whether Kueue runs the job with this uid, even if the
    /// Workload is too large to be read whole.
    pub async fn workload_parts(
        &self,
        namespace: &str,
        workload: &OwnerReference,
        uid: &str,
    ) -> Result<Value, ApiError> {
        self.on(namespace, workload, async |api: Api<WholeObject>| {
            let request = request::Request::new(api.resource_url());
            let request = request.get(&workload.name, &GetParams::default());
            let request = request.map_err(kube::Error::BuildRequest);
            let parts = call(async { self.client.request::<WorkloadParts>(request?).await }).await;
            parts.map(|parts| json!(parts.of_owner(uid)))
        })
        .await
    }

    /// Returns the granted extensions of a namespace, page by page. Skips extensions that can't be
    /// decoded. Empty: there are none, or the cluster doesn't have the kind.
    pub async fn granted_extensions(&self, namespace: &str) -> Result<Vec<Extension>, ApiError> {
        let api: Api<Tolerant<Extension>> = Api::namespaced(self.client.clone(), namespace);
        let mut granted = Vec::new();
        let mut pages = ListPages::new(api, ListParams::default(), None);
        while let Some(page) = if_found(call(pages.next()).await)?.flatten() {
            let readable = page.into_iter().filter_map(|guard| guard.0.ok());
            granted.extend(readable.filter(|extension| extension.granted().is_some()).map(slim));
        }
        Ok(granted)
    }

    /// Merges fields into the status of an extension, and returns the changed object. Fails with
    /// [`ApiError::Stale`] if the extension has changed since it was read.
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
        let how = PatchParams::apply(FIELD_MANAGER);
        let name = name.as_deref().unwrap_or_default();
        let written =
            async { api.patch_status(name, &how, &patch).await?.read().map_err(kube::Error::SerdeError) };
        call(written).await
    }

    /// Reads an object by kind and name. Its uid may be another than that of the reference.
    pub async fn get(&self, namespace: &str, owner: &OwnerReference) -> Result<WholeObject, ApiError> {
        self.on(namespace, owner, async |api: Api<WholeObject>| call(api.get(&owner.name)).await).await
    }

    /// Reads an object. None: it is gone or being deleted, or another one has its name.
    pub async fn live(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<WholeObject>, ApiError> {
        let is_live = |WholeObject { metadata, .. }: &WholeObject| {
            metadata.uid.as_deref() == Some(&owner.uid) && metadata.deletion_timestamp.is_none()
        };
        Ok(if_found(self.get(namespace, owner).await)?.filter(is_live))
    }

    /// Creates a Command of Volcano. An existing Command of the same name counts as success: it
    /// does the same, and exists until it is carried out. Fails with [`ApiError::Stale`] if another
    /// request changes the count of a quota at the same moment.
    pub async fn command(&self, namespace: &str, command: &Value) -> Result<(), ApiError> {
        let how = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
        let request = request::Request::new(commands_path(namespace));
        match self.send(request.create(&how, command.to_string().into_bytes())).await {
            Err(ApiError::AlreadyExists(_)) => Ok(()),
            sent => sent,
        }
    }

    /// Sends a request, and drops the answer.
    async fn send(&self, request: Result<Request<Vec<u8>>, request::Error>) -> Result<(), ApiError> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        call(self.client.request_text(request)).await.map(drop)
    }

    /// Applies a merge patch in the name of the keeper, and returns the changed object. A field
    /// that the served schema lacks is an [`ApiError::UnknownField`], and nothing is changed: by
    /// default the API server would drop the field and accept the patch.
    pub async fn merge(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
    ) -> Result<WholeObject, ApiError> {
        self.merge_as(FIELD_MANAGER, namespace, owner, patch).await
    }

    /// Applies a merge patch in the name of a field manager, as [`merge`](Self::merge) does.
    pub async fn merge_as(
        &self,
        manager: &str,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
    ) -> Result<WholeObject, ApiError> {
        let how = PatchParams::apply(manager).validation_strict();
        self.on(namespace, owner, async |api: Api<WholeObject>| {
            call(api.patch(&owner.name, &how, &Patch::Merge(patch))).await
        })
        .await
    }

    /// Applies a merge patch as [`write_as`](Self::write_as) does, in the name of the keeper.
    pub async fn write(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
        is_done: impl Fn(&WholeObject) -> bool,
    ) -> Result<WholeObject, UncertainWrite> {
        self.write_as(FIELD_MANAGER, namespace, owner, patch, is_done).await
    }

    /// Applies a merge patch in the name of a field manager. If the API server doesn't say whether
    /// it applied the patch, reads the object, and `is_done` decides.
    pub async fn write_as(
        &self,
        manager: &str,
        namespace: &str,
        owner: &OwnerReference,
        patch: &Value,
        is_done: impl Fn(&WholeObject) -> bool,
    ) -> Result<WholeObject, UncertainWrite> {
        let failed = |source| UncertainWrite { source, answers: true };
        match self.merge_as(manager, namespace, owner, patch).await {
            Err(error) if error.is_open() => {
                let found = persist(async || self.get(namespace, owner).await).await;
                let found = found.map_err(|source| UncertainWrite { answers: !source.is_open(), source })?;
                let is_same = found.metadata.uid.as_deref() == Some(&owner.uid);
                if is_same && is_done(&found) { Ok(found) } else { Err(failed(error)) }
            }
            result => result.map_err(failed),
        }
    }

    /// Calls `work` with the API of an owner's kind. If an object of a remembered kind isn't found,
    /// looks the kind up again, because its definition may have changed, and calls `work` a second
    /// time if the resource is another one.
    async fn on<K: ObjectOfAnyKind, T>(
        &self,
        namespace: &str,
        owner: &OwnerReference,
        work: impl AsyncFn(Api<K>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        if !could_exist(owner) {
            return Err(ApiError::NotFound);
        }
        if (owner.api_version.as_str(), owner.kind.as_str()) == ("v1", "Pod") {
            let pods = (ApiResource::erase::<Pod>(&()), Scope::Namespaced);
            return work(self.api(namespace, &pods)).await;
        }
        let remembered = self.kinds.lock().get(&owner.api_version, &owner.kind).cloned();
        let (known, is_remembered) = match remembered {
            Some(known) => (known, true),
            None => self.find(owner).await?,
        };
        match work(self.api(namespace, &known)).await {
            Err(ApiError::NotFound) if is_remembered => {}
            result => return result,
        }
        for of in [&owner.api_version, &instead_of(owner)] {
            self.kinds.lock().remove(of, &owner.kind);
        }
        let (found, _) = self.find(owner).await?;
        if found.0 == known.0 {
            return Err(ApiError::NotFound);
        }
        work(self.api(namespace, &found)).await
    }

    /// Returns the API of a resource, for one namespace if its objects are in namespaces.
    fn api<K: ObjectOfAnyKind>(&self, namespace: &str, (resource, scope): &(ApiResource, Scope)) -> Api<K> {
        let client = self.client.clone();
        match scope {
            Scope::Cluster => Api::all_with(client, resource),
            Scope::Namespaced => Api::namespaced_with(client, namespace, resource),
        }
    }
}

/// Lists Workloads of a `kind` page by page, 500 in all. Keeps those whose uids `chosen` returns,
/// which is called after each page. Warns once about those that can't be read.
async fn list_workloads(
    api: Api<Tolerant<WholeObject>>,
    params: ListParams,
    kind: &OwnerReference,
    chosen: &impl Fn(&[WholeObject]) -> Vec<Option<String>>,
) -> Result<FoundWorkloads, ApiError> {
    let (mut kept, mut left) = (Vec::<WholeObject>::new(), MOST_WORKLOADS);
    let (mut unreadable, mut first) = (Vec::new(), None);
    let mut pages = ListPages::new(api, ListParams { limit: Some(WORKLOADS_AT_ONCE), ..params }, None);
    while left > 0
        && let Some(page) = call(pages.next()).await?
    {
        let count = page.len().min(left);
        left = left.saturating_sub(count);
        for Tolerant(read) in page.into_iter().take(count) {
            match read {
                Ok(workload) => kept.push(workload),
                Err(UnreadableObject { error, metadata }) => {
                    let (name, uid) = (metadata.name.unwrap_or_default(), metadata.uid.unwrap_or_default());
                    unreadable.push(OwnerReference { name, uid, ..kind.clone() });
                    first.get_or_insert((metadata.namespace, error));
                }
            }
        }
        let uids = chosen(&kept);
        kept.retain(|workload| uids.contains(&workload.metadata.uid));
    }
    if let Some((namespace, error)) = first {
        let (name, count) = (unreadable.first().map(|of| &of.name), unreadable.len());
        warn!(
            namespace,
            name, count, error, "Workloads of Kueue can't be read: leaving them out of the list"
        );
    }
    Ok(FoundWorkloads { chosen: kept, unreadable })
}

/// Returns None in place of [`ApiError::NotFound`]: there is no such object or kind.
pub fn if_found<T>(result: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match result {
        Err(ApiError::NotFound) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns a reference to an object, in the form of a reference to an owner.
pub fn refer(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    let [api_version, kind, name, uid] = [api_version, kind, name, uid].map(str::to_owned);
    OwnerReference { api_version, kind, name, uid, ..OwnerReference::default() }
}

/// Returns the resource of a kind in the most stable version of its group that is served. None: the
/// group doesn't serve the kind.
pub fn of_kind(group: &ApiGroup, kind: &str) -> Option<(ApiResource, ApiCapabilities)> {
    group.resources_by_stability().into_iter().find(|(resource, _)| resource.kind == kind)
}

#[cfg(test)]
mod tests;
