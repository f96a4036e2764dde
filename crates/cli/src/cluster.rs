//! Reads objects from an API server.
//!
//! All commands read through a [`ClusterReader`]. Lists come page by page, in pages of 500 objects.

mod connect;
mod kinds;
mod server;
mod target;

use std::{collections::HashMap, fmt::Debug};

use anyhow::{Error, Result};
use futures::{
    Stream, StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{NamespaceResourceScope, ObjectList},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_policy::{
    kueue::{self, Lookup},
    naming::is_segment,
    pause::OwnerObject,
};
use tenure_types::{
    keys,
    projection::{Owner, Pod, WholeObject},
    tolerant::{Tolerant, UnreadableObject},
};

use crate::{
    input::Document,
    print::{printable, warn, with_causes},
};
pub use connect::{
    ConnectArgs, DEFAULT_NAMESPACE, T9K_SYSTEM_NAMESPACE, T9kArgs, TOKEN_VARIABLE, read_kubeconfig, url,
};
pub use kinds::{BUILT_IN, ResourceKind, ResourceKinds, qualified};
pub use server::{Clock, FROM_SERVER, explain, explain_given_by, is_forbidden, root_cause, unreachable};
pub use target::{KindAndName, targets};

/// The number of requests under way at once.
pub const AT_ONCE: usize = 8;

/// The label selector of the chart's objects.
pub const OURS: &str = "app.kubernetes.io/part-of=tenure";

/// The field selector of pods that haven't ended: a command has nothing to say about the others,
/// and old clusters are full of them.
pub const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Owners by name, each with true if it has ended.
pub type OwnersByName = HashMap<String, (ObjectMeta, bool)>;

/// A cluster as the user of the plugin reaches it: the client, the kinds that it serves, and its
/// clock.
pub struct ClusterReader {
    pub client: Client,
    /// The namespace of `-n`, or of the kubeconfig's context.
    pub namespace: String,
    pub kinds: ResourceKinds,
    pub clock: Clock,
}

impl ClusterReader {
    /// Asks the API server for its kinds and its time. The error is that of the discovery: without
    /// an answer about the time, the local clock counts.
    pub async fn discover(client: Client, namespace: String) -> kube::Result<Self> {
        let kinds = ResourceKinds::discover(&client).await?;
        let clock = Clock::of(&client).await;
        Ok(Self { client, namespace, kinds, clock })
    }

    /// Returns the objects of a kind in a namespace, or in all namespaces, page by page. An object
    /// that can't be read is an error, with the words of a warning.
    pub fn documents(&self, kind: &ResourceKind, namespace: Option<&str>) -> Pages<Result<Document, String>> {
        let pages = objects(kind.api(&self.client, namespace), None);
        let of = kind.clone();
        pages.map_ok(move |page| page.into_iter().map(|object| document(&of, object)).collect()).boxed()
    }

    /// Returns the metadata of the objects alone, page by page.
    pub fn metadata(&self, kind: &ResourceKind, namespace: Option<&str>) -> Pages<ObjectMeta> {
        let pages = objects(kind.api(&self.client, namespace), None);
        pages.map_ok(|page| page.into_iter().map(|object: Owner| object.metadata).collect()).boxed()
    }

    /// Returns the API of a type in a namespace, or in all namespaces.
    pub fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// Passes the objects of a type in a namespace, or in all namespaces, to `take`, page by page.
    /// `fields` is a field selector.
    pub async fn each<K>(
        &self,
        namespace: Option<&str>,
        fields: Option<&'static str>,
        mut take: impl FnMut(K),
    ) -> kube::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let mut pages = objects(self.api(namespace), fields);
        while let Some(page) = pages.try_next().await? {
            page.into_iter().for_each(&mut take);
        }
        Ok(())
    }

    /// Returns the namespace whose pods count: the one that is named; otherwise None for all
    /// namespaces, or that of the context if the user may not list the pods of all. Warns in the
    /// last case.
    pub async fn namespace_of_pods(&self, named: Option<String>) -> Result<Option<String>> {
        if named.is_some() {
            return Ok(named);
        }
        match self.api::<Pod>(None).list(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(None),
            Err(error) if is_forbidden(&error) => {
                let own = &self.namespace;
                warn(&format!(
                    "you may not list the pods of all namespaces: only those of {own} count; -n names another namespace"
                ));
                Ok(Some(own.clone()))
            }
            Err(error) => Err(explain(error)),
        }
    }

    /// Reads an owner that an object in a namespace refers to. None: there is no such object or
    /// kind, or the name can't stand in a path.
    pub async fn find_owner(
        &self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> kube::Result<Option<WholeObject>> {
        let kind = self.kinds.version(&owner.api_version, &owner.kind).filter(|_| is_segment(&owner.name));
        let Some(kind) = kind else { return Ok(None) };
        kind.api(&self.client, Some(namespace)).get_opt(&owner.name).await
    }

    /// Lists the objects that [`find_owner`](Self::find_owner) finds for objects in a namespace.
    pub async fn list_owners(&self, namespace: &str, api_version: &str, kind: &str) -> Result<OwnersByName> {
        let Some(kind) = self.kinds.version(api_version, kind) else { return Ok(OwnersByName::new()) };
        let mut pages = objects::<WholeObject>(kind.api(&self.client, Some(namespace)), None);
        let mut owners = OwnersByName::new();
        while let Some(page) = pages.try_next().await.map_err(|error| cannot_list(kind, error))? {
            owners.extend(page.into_iter().filter_map(|WholeObject { metadata, mut value }| {
                // the items of some lists don't say their kind
                let kind = [("apiVersion", &kind.resource.api_version), ("kind", &kind.resource.kind)];
                let kind = kind.map(|(key, text)| (key.to_owned(), Value::from(text.as_str())));
                value.as_object_mut()?.extend(kind);
                Some((metadata.name.clone()?, (metadata, OwnerObject(&value).is_finished())))
            }));
        }
        Ok(owners)
    }

    /// Returns Kueue's Workloads that a lookup asks for. Leaves out those that can't be read, with a
    /// warning. Empty where there is no Kueue, and, with a warning, where the user may not read them.
    pub async fn workloads(&self, namespace: &str, lookup: Lookup<'_>) -> Result<Vec<Value>> {
        let Some(kind) = self.kinds.find(kueue::GROUP, kueue::WORKLOAD) else { return Ok(Vec::new()) };
        let api = kind.api::<Tolerant<WholeObject>>(&self.client, Some(namespace));
        let found = match lookup {
            Lookup::Named(name) if !is_segment(name) => return Ok(Vec::new()),
            Lookup::Named(name) => api.get_opt(name).await.map(Vec::from_iter),
            Lookup::Labelled(uid) => {
                let labels = format!("{}={uid}", keys::KUEUE_JOB_UID_LABEL);
                api.list(&ListParams::default().labels(&labels)).await.map(|list| list.items)
            }
        };
        match found {
            Ok(found) => {
                let read = readable(&kind.singular(), found);
                Ok(read.into_iter().map(|object| object.value).collect())
            }
            Err(error) if is_forbidden(&error) => {
                warn(&format!("what Kueue runs isn't known: {}", with_causes(&cannot_list(kind, error))));
                Ok(Vec::new())
            }
            Err(error) => Err(cannot_list(kind, error)),
        }
    }
}

/// Returns an error that names the kind that can't be listed.
pub fn cannot_list(kind: &ResourceKind, error: kube::Error) -> Error {
    explain(error).context(format!("can't list {}", kind.plural()))
}

/// Returns an object of a kind, which items of a list don't name. Its source is `KIND/NAME`. An
/// error: the object can't be read; with the words of a warning.
fn document(kind: &ResourceKind, Tolerant(object): Tolerant<WholeObject>) -> Result<Document, String> {
    let WholeObject { metadata, value } = object.map_err(|of| left_out(&kind.singular(), &of))?;
    Ok(Document {
        source: format!("{}/{}", kind.singular(), metadata.name.unwrap_or_default()),
        api_version: kind.resource.api_version.clone(),
        kind: kind.resource.kind.clone(),
        value,
    })
}

/// The most warnings about objects of a list that can't be read: any tenant may make thousands.
pub const MOST_LEFT_OUT: usize = 10;

/// Returns the objects of a list that can be read. The others are left out with a warning.
pub fn readable<K>(kind: &str, objects: impl IntoIterator<Item = Tolerant<K>>) -> Vec<K> {
    let mut failed = 0_usize;
    let mut read = Vec::new();
    for Tolerant(object) in objects {
        match object {
            Ok(object) => read.push(object),
            Err(of) if failed < MOST_LEFT_OUT => {
                failed = failed.saturating_add(1);
                warn(&left_out(kind, &of));
            }
            Err(_) => failed = failed.saturating_add(1),
        }
    }
    if failed > MOST_LEFT_OUT {
        warn(&format!("{failed} objects of kind {kind} can't be read in all, and are left out"));
    }
    read
}

/// Returns the words of a warning about an object that can't be read.
fn left_out(kind: &str, UnreadableObject { error, metadata }: &UnreadableObject) -> String {
    let name = printable(metadata.name.as_deref().unwrap_or_default());
    let namespace = metadata.namespace.as_deref().map(printable);
    let place = namespace.map_or_else(String::new, |of| format!(" in namespace {of}"));
    format!("{kind} {name}{place} can't be read, and is left out: {error}")
}

/// The number of objects that `kubectl get` asks for at a time.
const PAGE: u32 = 500;

/// The objects of a list, page by page, until the first error.
pub type Pages<K> = BoxStream<'static, kube::Result<Vec<K>>>;

/// Lists objects, page by page. `fields` is a field selector.
pub fn objects<K>(api: Api<K>, fields: Option<&'static str>) -> Pages<K>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let list = move |params| {
        let api = api.clone();
        async move { api.list(&params).await }
    };
    pages(fields, list).boxed()
}

/// Returns the objects of a list, page by page. `list` asks for one page. A list whose token
/// expires goes on from the same place, but not from the same version.
pub fn pages<K: Clone, F: Future<Output = kube::Result<ObjectList<K>>>>(
    fields: Option<&'static str>,
    list: impl Fn(ListParams) -> F,
) -> impl Stream<Item = kube::Result<Vec<K>>> {
    let first = ListParams { field_selector: fields.map(str::to_owned), ..ListParams::default().limit(PAGE) };
    stream::try_unfold((Some(first), list), async |(next, list)| {
        let Some(mut params) = next else { return Ok(None) };
        let page = match list(params.clone()).await {
            Err(error) if params.continue_token.is_some() => {
                // the token has expired; the answer has another one for the same place
                params.continue_token = Some(newer_token(error)?);
                list(params.clone()).await?
            }
            page => page?,
        };
        let token = page.metadata.continue_.filter(|token| !token.is_empty());
        let next = token.map(|token| ListParams { continue_token: Some(token), ..params });
        Ok(Some((page.items, (next, list))))
    })
}

/// Returns the token with which a list goes on after 410 Gone. Any other error is returned as it
/// is.
fn newer_token(error: kube::Error) -> kube::Result<String> {
    match &error {
        kube::Error::Api(status) if status.code == 410 => {
            let token = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone());
            token.filter(|token| !token.is_empty()).ok_or(error)
        }
        _ => Err(error),
    }
}

#[cfg(test)]
pub mod tests {
    use futures::TryStreamExt;
    use kube::core::{Status, TypeMeta};
    use serde_json::{Value, json};

    use super::*;

    fn page(items: &[u8], token: &str) -> ObjectList<u8> {
        let metadata: Value = json!({"continue": token});
        ObjectList {
            types: TypeMeta::default(),
            metadata: serde_json::from_value(metadata).unwrap(),
            items: items.to_vec(),
        }
    }

    async fn all(list: impl AsyncFn(&str) -> kube::Result<ObjectList<u8>>) -> Option<Vec<u8>> {
        let list = &list;
        let pages = pages(None, |params| async move {
            assert_eq!(params.limit, Some(PAGE));
            list(params.continue_token.as_deref().unwrap_or("")).await
        });
        pages.try_concat().await.ok()
    }

    #[tokio::test]
    async fn all_pages_are_read() {
        let list = async |token: &str| match token {
            "" => Ok(page(&[1, 2], "a")),
            _ => Ok(page(&[3], "")),
        };
        assert_eq!(all(list).await, Some(vec![1, 2, 3]));
    }

    fn gone(token: Option<&str>) -> kube::Error {
        let status = json!({"code": 410, "metadata": {"continue": token}});
        kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed())
    }

    pub fn pod_groups() -> ResourceKind {
        let group = json!({
            "metadata": {"name": "scheduling.run.ai"},
            "versions": [{"version": "v2alpha2", "resources": [{
                "resource": "podgroups", "singularResource": "podgroup", "scope": "Namespaced", "verbs": ["list"],
                "responseKind": {"group": "", "version": "", "kind": "PodGroup"},
            }]}],
        });
        let kinds = ResourceKinds::read([serde_json::from_value(group).unwrap()].into_iter());
        kinds.find("scheduling.run.ai", "PodGroup").unwrap().clone()
    }

    /// A list of three objects, of which the second takes too much memory.
    pub fn with_one_too_large() -> Vec<Result<Document, String>> {
        let item = |name: &str, status: &str| {
            let metadata = json!({"name": name, "namespace": "team"});
            format!(r#"{{"metadata":{metadata},"spec":{{"queue":"q"}},"status":{status}}}"#)
        };
        let large = format!("[{}]", vec![r#"{"key":"a"}"#; 100_000].join(","));
        let items = [item("a", "{}"), item("odd", &large), item("c", "{}")].join(",");
        let list = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{items}]}}"#);
        let list: ObjectList<Tolerant<WholeObject>> = serde_json::from_str(&list).unwrap();
        list.items.into_iter().map(|object| document(&pod_groups(), object)).collect()
    }

    #[test]
    fn of_three_objects_in_a_list_one_that_is_too_large_is_left_out_with_a_warning() {
        let listed = with_one_too_large();
        let [Ok(first), Err(second), Ok(third)] = &listed[..] else { panic!("{}", listed.len()) };
        assert_eq!(
            [&first.source, &third.source],
            ["podgroup.scheduling.run.ai/a", "podgroup.scheduling.run.ai/c"]
        );
        let expected = "podgroup.scheduling.run.ai odd in namespace team can't be read, and is left out: the object takes";
        assert!(second.starts_with(expected), "{second}");
    }

    #[test]
    fn an_object_that_cannot_be_read_is_left_out_of_all_lists_alike() {
        let read = |text: &str| {
            let workload = serde_json::from_str::<Tolerant<WholeObject>>(text).unwrap();
            !readable("workload.kueue.x-k8s.io", [workload]).is_empty()
        };
        assert!(read(r#"{"metadata":{"name":"a"}}"#));
        assert!(!read(&format!(
            r#"{{"metadata":{{"name":"a"}},"spec":{}{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        )));
    }

    #[tokio::test]
    async fn a_list_that_takes_too_long_goes_on() {
        let list = async |token: &str| match token {
            "" => Ok(page(&[1], "old")),
            "old" => Err(gone(Some("new"))),
            _ => Ok(page(&[2], "")),
        };
        assert_eq!(all(list).await, Some(vec![1, 2]));
        assert_eq!(all(async |_| Err(gone(Some("new")))).await, None);
        let list = async |token: &str| if token.is_empty() { Ok(page(&[1], "old")) } else { Err(gone(None)) };
        assert_eq!(all(list).await, None);
    }
}
