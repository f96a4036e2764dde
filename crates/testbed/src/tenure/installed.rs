//! Objects of an installation: those that the chart brings, and those that its programs use.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use http::{Request, header::CONTENT_TYPE};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use serde_json::json;
use tenure_certs::Authority;

use super::{CONVERSION_PATCH, RELEASE_NAMESPACE, SCHEDULER_CA, SECRET};
use crate::Cluster;

/// Returns a kubeconfig of the chart's service account of a component.
pub(super) async fn account(cluster: &Cluster, component: &str) -> Result<PathBuf> {
    cluster.service_account_kubeconfig(RELEASE_NAMESPACE, &format!("tenure-{component}")).await
}

/// Writes the files of the chart's `ConfigMap` into the cluster's directory. Returns the path of
/// the configuration.
pub(super) async fn fetch_config(cluster: &Cluster) -> Result<PathBuf> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client()?, RELEASE_NAMESPACE);
    let map = maps.get("tenure-config").await?;
    let mut data = map.data.unwrap_or_default();
    let file = cluster.directory().join("tenure.yaml");
    fs::write(&file, data.remove("tenure.yaml").context("the ConfigMap has no tenure.yaml")?)?;
    for name in [SCHEDULER_CA, CONVERSION_PATCH] {
        if let Some(text) = data.remove(name) {
            fs::write(cluster.directory().join(name), text)?;
        }
    }
    Ok(file)
}

/// Writes the Secret of the webhook's certificate, as an administrator does who brings one.
/// Returns helm's flags for it. A directory without a certificate gets a new one.
pub(super) async fn bring_certificate(cluster: &Cluster, directory: &Path) -> Result<Vec<String>> {
    let ca = directory.join("ca.crt");
    if !ca.exists() {
        let authority = Authority::new("webhook")?;
        fs::create_dir_all(directory)?;
        fs::write(&ca, authority.certificate_pem())?;
        authority.server(&["127.0.0.1".to_owned()])?.write(directory)?;
    }
    let read = |name: &str| fs::read(directory.join(name)).map(ByteString);
    let labels = json!({"app.kubernetes.io/part-of": "tenure", "app.kubernetes.io/component": "webhook"});
    let data = json!({"ca.crt": read("ca.crt")?, "tls.crt": read("tls.crt")?, "tls.key": read("tls.key")?});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE_NAMESPACE}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data,
        "metadata": {"name": SECRET, "labels": labels},
    });
    let (client, apply) = (cluster.client()?, PatchParams::apply("administrator").force());
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(RELEASE_NAMESPACE, &apply, &Patch::Apply(namespace)).await?;
    let secrets = Api::<Secret>::namespaced(client, RELEASE_NAMESPACE);
    secrets.patch(SECRET, &apply, &Patch::Apply(secret)).await?;
    let value = |key: &str, value: &str| format!("webhook.certificate.{key}={value}");
    let ca = value("existingSecret.caBundle", &ca.display().to_string());
    let by = [value("mode", "existingSecret"), value("existingSecret.name", SECRET)].join(",");
    Ok(vec!["--set".into(), by, "--set-file".into(), ca])
}

/// Returns the request to create, in a dry run, a queue for which only the webhook returns a
/// warning.
pub(super) fn probe(version: &str) -> Result<Request<Body>> {
    let queue = json!({
        "apiVersion": format!("scheduling.run.ai/{version}"), "kind": "Queue",
        "metadata": {"name": "probe"}, "spec": {"parentQueue": "no-such-queue"},
    });
    let path = format!("/apis/scheduling.run.ai/{version}/queues?dryRun=All&fieldValidation=Strict");
    let request = Request::post(path).header(CONTENT_TYPE, "application/json");
    Ok(request.body(queue.to_string().into_bytes().into())?)
}
