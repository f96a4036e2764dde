//! Who asks for what, and what becomes of it.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, Error, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{DynamicObject, Status},
};
use serde_json::Value;
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, World};

pub const SCHEDULER: &str = "system:kube-scheduler";

/// A group that may do anything, so that what is refused is refused by the guard.
pub const MASTERS: &str = "system:masters";

/// Somebody who asks once: other clients would wait, and ask again, until it is allowed.
pub struct Asker {
    client: Client,
}

impl Asker {
    /// A user in these groups.
    pub async fn new(world: &World, user: &str, groups: &[&str]) -> Self {
        let kubeconfig = Kubeconfig::read_from(world.cluster.kubeconfig()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        config.auth_info.impersonate = Some(user.into());
        config.auth_info.impersonate_groups = Some(groups.iter().map(|&group| group.into()).collect());
        Self { client: Client::try_from(config).unwrap() }
    }

    /// An administrator.
    pub async fn admin(world: &World) -> Self {
        Self::new(world, "admin", &[MASTERS]).await
    }

    /// kube-scheduler, with its own rights.
    pub async fn scheduler(world: &World) -> Self {
        Self::new(world, SCHEDULER, &[]).await
    }

    /// Deletes a pod.
    pub async fn delete(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        self.delete_as(pod, &DeleteParams::default()).await
    }

    /// Is told what would become of a pod's deletion.
    pub async fn would_delete(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        self.delete_as(pod, &DeleteParams { dry_run: true, ..DeleteParams::default() }).await
    }

    /// Deletes a pod in some way.
    pub async fn delete_as(&self, pod: &DynamicObject, how: &DeleteParams) -> Result<(), Box<Status>> {
        status(self.pods(pod).delete(&pod.name_any(), how).await)
    }

    /// Deletes all pods with a label in the namespace of one of them, in one request.
    pub async fn delete_all(&self, pod: &DynamicObject, label: &str) -> Result<(), Box<Status>> {
        let labelled = ListParams::default().labels(label);
        status(self.pods(pod).delete_collection(&DeleteParams::default(), &labelled).await)
    }

    /// Evicts a pod.
    pub async fn evict(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        status(self.pods(pod).evict(&pod.name_any(), &EvictParams::default()).await)
    }

    /// Is told what would become of a pod's eviction.
    pub async fn would_evict(&self, pod: &DynamicObject) -> Result<(), Box<Status>> {
        let post_options = PostParams { dry_run: true, ..PostParams::default() };
        let dry = EvictParams { post_options, ..EvictParams::default() };
        status(self.pods(pod).evict(&pod.name_any(), &dry).await)
    }

    fn pods(&self, pod: &DynamicObject) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace().unwrap())
    }
}

fn status<T>(result: kube::Result<T>) -> Result<(), Box<Status>> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) => Err(status),
        Err(error) => panic!("no answer of the API server: {error}"),
    }
}

/// Which of the guard's webhooks is meant.
#[derive(Clone, Copy)]
pub enum Webhook {
    Pods,
    Evictions,
}

/// Its verdicts on a pod so far: the audit annotations of each, without its own name in front.
pub fn verdicts(world: &World, webhook: Webhook, pod: &DynamicObject) -> Vec<Value> {
    let prefix = match webhook {
        Webhook::Pods => "pods.guard.tenure.dev/",
        Webhook::Evictions => "evictions.guard.tenure.dev/",
    };
    let log = fs::read_to_string(world.cluster.audit_log()).unwrap();
    // the last line may be half written
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_pod = |entry: &Value| {
        entry["stage"] == "ResponseComplete"
            && entry["objectRef"]["resource"] == "pods"
            && entry["objectRef"]["name"] == pod.name_any()
            && entry["objectRef"]["namespace"].as_str() == pod.namespace().as_deref()
    };
    let annotations = |entry: Value| {
        let all = entry["annotations"].as_object().cloned().unwrap_or_default();
        let ours = all.into_iter().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.into(), value)));
        Some(Value::Object(ours.collect())).filter(|ours| ours.get("verdict").is_some())
    };
    entries.filter(of_pod).filter_map(annotations).collect()
}

/// Waits for a verdict that has all of these annotations. An entry of the log may come a little later than the answer.
pub async fn await_verdict(world: &World, webhook: Webhook, pod: &DynamicObject, expected: &Value) -> Value {
    let has_all = |verdict: &Value| {
        expected.as_object().unwrap().iter().all(|(key, value)| verdict.get(key) == Some(value))
    };
    let found = async || {
        let verdicts = verdicts(world, webhook, pod);
        anyhow::ensure!(verdicts.iter().any(has_all), "there are only {verdicts:?}");
        Ok(verdicts.into_iter().find(has_all))
    };
    eventually(&format!("a verdict with {expected}"), DEADLINE, found).await.unwrap()
}
