//! The Helm chart, by the real helm on real API servers.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod callers;
mod certificate;
mod crds;
mod delegation;
mod flow;
mod guard;
mod hook;
mod kai;
mod keeper;
mod kueue;
mod lifecycle;
mod monitoring;
mod notes;
mod owners;
mod pods;
mod programs;
mod receivers;
mod rights;
mod shapes;
mod t9k;
mod tenancy;
mod usage;
mod users;
mod values;
mod wishes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt, stream};
use http::{
    Request,
    header::{CONTENT_TYPE, WARNING},
};
use kube::{
    Client, Resource, ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output};
use tokio::sync::OnceCell;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");

/// The namespace of every release here. It enforces the pod security standard `restricted`.
const NAMESPACE: &str = "tenure-system";

const DEADLINE: Duration = Duration::from_mins(1);

/// An authority's certificate, as far as the chart reads one.
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

/// An address at which no server listens.
const NOWHERE: &str = "https://127.0.0.1:1";

/// etcd and kube-apiserver alone, for releases without pods.
async fn start_api_server(name: &str) -> Result<Cluster> {
    with_namespace(Cluster::start_api_server_alone(name).await?).await
}

async fn with_namespace(cluster: Cluster) -> Result<Cluster> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }});
    kubectl(&cluster, &["apply", "-f", "-"], &namespace.to_string()).await;
    Ok(cluster)
}

/// A cluster that knows the kinds of cert-manager and of the Prometheus Operator. Each test has a release name of its own, and one release the CRDs.
async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    let start = async || {
        let cluster = with_namespace(Cluster::start("chart").await?).await?;
        let operators = json!({"apiVersion": "v1", "kind": "List", "items": monitoring::operators_kinds()});
        for kinds in [certificate::cert_manager_kinds(), operators] {
            kubectl(&cluster, &["apply", "-f", "-"], &kinds.to_string()).await;
        }
        let established = ["wait", "--for=condition=Established", "crd", "--all"];
        kubectl(&cluster, &established, "").await;
        Ok::<_, anyhow::Error>(cluster)
    };
    Box::pin(SHARED.get_or_try_init(start)).await.unwrap()
}

/// The release `tenure` on the shared cluster, with default values, and what helm said. Its pods are ready.
async fn installed() -> (&'static Cluster, &'static str) {
    static NOTES: OnceCell<String> = OnceCell::const_new();
    let cluster = shared().await;
    let install = async || {
        let output = helm(cluster, "install", "tenure", &json!({}), &["--wait"]).await;
        output.success()
    };
    (cluster, NOTES.get_or_try_init(install).await.unwrap())
}

/// kubectl that must succeed, with `stdin`.
async fn kubectl(cluster: &Cluster, arguments: &[&str], stdin: &str) -> String {
    let output = cluster.kubectl_with_input(arguments, stdin).await;
    output.unwrap().success().unwrap()
}

/// `helm <verb> <release>` of the chart. There may be others on the cluster.
async fn helm(cluster: &Cluster, verb: &str, release: &str, values: &Value, flags: &[&str]) -> Output {
    let values = values.to_string();
    let arguments = [verb, release, CHART, "--namespace", NAMESPACE, "--set-json", &values];
    let others = ["--set", "allowOtherReleases=true"];
    cluster.helm(&[&arguments[..], &others, flags].concat()).await.unwrap()
}

/// Renders the chart without access to a cluster, once for the same arguments.
async fn template(release: &str, values: &Value, flags: &[&str]) -> Output {
    static RENDERED: Mutex<BTreeMap<String, Arc<OnceCell<Output>>>> = Mutex::new(BTreeMap::new());
    let key = format!("{release} {values} {flags:?}");
    let rendered = Arc::clone(RENDERED.lock().unwrap().entry(key).or_default());
    let render = async || helm(shared().await, "template", release, values, flags).await;
    Box::pin(rendered.get_or_init(render)).await.clone()
}

/// The objects that the chart renders.
async fn render(release: &str, values: &Value) -> Vec<Value> {
    parse(&template(release, values, &[]).await.success().unwrap())
}

/// Reads objects, each document once: those of two sets of values are the same for the most part.
fn parse(text: &str) -> Vec<Value> {
    static READ: Mutex<BTreeMap<String, Vec<Value>>> = Mutex::new(BTreeMap::new());
    let read = |document: &String| serde_saphyr::from_multiple(document).unwrap();
    let objects = |document| READ.lock().unwrap().entry(document).or_insert_with_key(read).clone();
    documents(text).flat_map(objects).collect()
}

/// Splits what is rendered into documents. Each keeps one line break at its end, which may belong to a text.
fn documents(text: &str) -> impl Iterator<Item = String> {
    let all = text.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
    all.map(|document| format!("{}\n", document.trim_end_matches('\n')))
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found =
        objects.iter().find(|object| object.get("kind") == Some(&json!(kind)) && name_of(object) == name);
    found.unwrap_or_else(|| panic!("no {kind} {name} in {objects:#?}"))
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").unwrap().as_str().unwrap()
}

/// Counts the objects of each kind.
fn kinds(objects: &[Value]) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    for object in objects {
        *kinds.entry(object.get("kind").unwrap().as_str().unwrap()).or_default() += 1;
    }
    kinds
}

/// The arguments of a Deployment's only container.
fn arguments(deployment: &Value) -> Vec<String> {
    let arguments = deployment.pointer("/spec/template/spec/containers/0/args").unwrap();
    serde_json::from_value(arguments.clone()).unwrap()
}

/// The objects that the chart renders, after the API server has accepted them.
async fn accepted(values: &Value) -> Vec<Value> {
    let rendered = template("test", values, &[]).await.success().unwrap();
    assert_accepted(&rendered).await;
    parse(&rendered)
}

/// Makes the API server itself check each document, but keep nothing. A document that it has accepted isn't sent again: those of
/// two sets of values are the same for the most part.
async fn assert_accepted(text: &str) {
    static ACCEPTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut new: BTreeSet<_> = documents(text).collect();
    new.retain(|document| !ACCEPTED.lock().unwrap().contains(document));
    let client = &shared().await.client().unwrap();
    let complaints = stream::iter(&new).map(|document| complaint(client, document));
    let complaints: Vec<_> = complaints.buffered(4).filter_map(async |it| it).collect().await;
    assert_eq!(complaints, Vec::<String>::new());
    ACCEPTED.lock().unwrap().extend(new);
}

/// Returns the API server's error or warning about a document, in a dry run. The field manager is Helm's, which owns the CRDs of
/// the release. A request, because kubectl would read the schemas of all kinds first.
async fn complaint(client: &Client, document: &str) -> Option<String> {
    let object: DynamicObject = serde_json::from_value(parse(document).pop()?).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let path = DynamicObject::url_path(&ApiResource::from_gvk(&kind), object.metadata.namespace.as_deref());
    let query = "dryRun=All&fieldManager=helm&fieldValidation=Strict";
    let request = Request::patch(format!("{path}/{}?{query}", object.name_any()))
        .header(CONTENT_TYPE, "application/apply-patch+yaml")
        .body(document.as_bytes().to_vec().into());
    let (head, body) = client.send(request.unwrap()).await.unwrap().into_parts();
    let answer = body.collect_bytes().await.unwrap();
    let is_accepted = head.status.is_success() && !head.headers.contains_key(WARNING);
    (!is_accepted).then(|| format!("{document}{head:?}{}", String::from_utf8_lossy(&answer)))
}
