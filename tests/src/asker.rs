//! Users that delete and evict pods, as the tests of the guard do. Impersonated by an
//! administrator, so that any user and any group can ask.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, Error, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, Status},
};

use crate::{World, workloads::Namespace};

/// The user of kube-scheduler.
pub const SCHEDULER: &str = "system:kube-scheduler";

/// A group with all rights, so that only the guard can refuse its requests.
pub const MASTERS: &str = "system:masters";

/// A user that sends each request once: other clients would wait and repeat the request until it is
/// allowed. A refusal is returned as the API server's `Status`.
pub struct Asker {
    client: Client,
}

impl Asker {
    /// Returns a user in these groups.
    pub async fn new(world: &World, user: &str, groups: &[&str]) -> Self {
        let kubeconfig = Kubeconfig::read_from(world.cluster.kubeconfig()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        config.auth_info.impersonate = Some(user.into());
        config.auth_info.impersonate_groups = Some(groups.iter().map(|&group| group.into()).collect());
        Self { client: Client::try_from(config).unwrap() }
    }

    /// Returns an administrator.
    pub async fn admin(world: &World) -> Self {
        Self::new(world, "admin", &[MASTERS]).await
    }

    /// Returns kube-scheduler, with its own rights.
    pub async fn scheduler(world: &World) -> Self {
        Self::new(world, SCHEDULER, &[]).await
    }

    /// Looks into a namespace with this user's rights.
    pub fn sees(&self, namespace: &str) -> Namespace {
        Namespace::seen_by(self.client.clone(), namespace)
    }

    /// Asks for the eviction of a pod by plain HTTP. Returns the status and the header
    /// `Retry-After`.
    pub async fn evict_plainly(&self, pod: &DynamicObject) -> (u16, Option<String>) {
        let (namespace, name) = (pod.namespace().unwrap(), pod.name_any());
        let eviction = serde_json::json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let request = http::Request::post(path).header("content-type", "application/json");
        let response =
            self.client.send(request.body(eviction.to_string().into_bytes().into()).unwrap()).await;
        let response = response.unwrap();
        let after = response.headers().get("retry-after").and_then(|of| of.to_str().ok());
        (response.status().as_u16(), after.map(str::to_owned))
    }

    /// Deletes a pod.
    pub async fn delete(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        self.delete_as(pod, &DeleteParams::default()).await
    }

    /// Asks for a pod's deletion as a dry run.
    pub async fn would_delete(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        self.delete_as(pod, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await
    }

    /// Deletes a pod with these parameters.
    pub async fn delete_as(&self, pod: &DynamicObject, how: &DeleteParams) -> Result<(), Box<Status>> {
        status(self.pods(pod).delete(&pod.name_any(), how).await)
    }

    /// Deletes all pods with a label in the namespace of `pod`, in one request.
    pub async fn delete_all(&self, pod: &DynamicObject, label: &str) -> Result<(), Box<Status>> {
        let labelled = ListParams::default().labels(label);
        status(self.pods(pod).delete_collection(&DeleteParams::default(), &labelled).await)
    }

    /// Evicts a pod.
    pub async fn evict(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        status(self.pods(pod).evict(&pod.name_any(), &EvictParams::default()).await)
    }

    /// Asks for a pod's eviction as a dry run.
    pub async fn would_evict(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        let post_options = PostParams { dry_run: true, ..PostParams::default() };
        let dry = EvictParams { post_options, ..EvictParams::default() };
        status(self.pods(pod).evict(&pod.name_any(), &dry).await)
    }

    fn pods(&self, pod: &DynamicObject) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap())
    }
}

/// Returns the API server's refusal. Panics if there was no answer.
fn status<T>(result: kube::Result<T>) -> Result<(), Box<Status>> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) => Err(status),
        Err(error) => panic!("no answer of the API server: {error}"),
    }
}
