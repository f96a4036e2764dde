//! The two versions of queues of the run.ai family, on real API servers.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod alone;
mod applied;
mod both;
mod clients;
mod down;
mod kai;
mod kept;
mod switch;

use kube::{
    core::{GroupVersionKind, TypeMeta},
    discovery::pinned_kind,
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output, eventually};
use tenure_tests::{
    DEADLINE,
    queues::{self, Verdict, read, table},
};
use tenure_types::runai::SPEC_ANNOTATIONS;

/// The last part is in kubectl's own words, with which it finds the resource.
const V3: &str = "queues.v3alpha1.scheduling.run.ai";
const V2: &str = "queues.v2.scheduling.run.ai";

/// A queue of one of the versions, by the name of the resource.
fn queue(resource: &str, name: &str, annotations: &Value, spec: &Value) -> Value {
    let version = if resource == V3 { "v3alpha1" } else { "v2" };
    json!({
        "apiVersion": format!("scheduling.run.ai/{version}"), "kind": "Queue",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    })
}

/// `kubectl <arguments> -f -` of an object.
async fn write(cluster: &Cluster, arguments: &[&str], object: &Value) -> Output {
    let arguments = [arguments, &["-f", "-"]].concat();
    cluster.kubectl_with_input(&arguments, &object.to_string()).await.unwrap()
}

/// Creates a queue that must be accepted, once its version is served; returns the warnings about it.
async fn create(cluster: &Cluster, object: &Value) -> Vec<String> {
    let client = cluster.client().unwrap();
    let types: TypeMeta = serde_json::from_value(object.clone()).unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let served = async || Ok(Some(pinned_kind(&client, &kind).await?));
    eventually("queues to be served", DEADLINE, served).await.unwrap();
    let (warnings, created) = queues::write(&client, object).await;
    created.unwrap();
    warnings
}

/// Spec and annotations of a queue in one of the versions.
async fn seen(cluster: &Cluster, resource: &str, name: &str) -> (Value, Value) {
    let mut queue = read(cluster, resource, name).await;
    (queue["spec"].take(), queue["metadata"]["annotations"].take())
}

/// A specification that has all fields that both versions have.
fn common(preempt: &str, reclaim: &str) -> Value {
    let resource = json!({"quota": 1.5, "overQuotaWeight": 2, "limit": -1});
    json!({
        "displayName": "Ünïcode \"quoted\"", "parentQueue": "no-such-queue", "priority": 7,
        "preemptMinRuntime": preempt, "reclaimMinRuntime": reclaim,
        "resources": {"cpu": resource, "gpu": resource, "memory": resource},
    })
}

/// Adds fields to an object.
fn with(mut object: Value, more: &Value) -> Value {
    let fields = more.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(fields);
    object
}

/// The fields that only v3alpha1 has, each with the longest value that the table of queues accepts. A queue has `expiryNotice`
/// or the list of it, never both.
fn own_fields() -> Value {
    let cases = table();
    let accepted = cases.iter().filter(|case| {
        case.api_version.starts_with("scheduling.run.ai") && matches!(case.verdict, Verdict::Accepted)
    });
    let specs: Vec<&Value> = accepted.map(|case| &case.spec).collect();
    let values = |field| specs.iter().filter_map(move |spec| spec.get(field));
    let value = |field| values(field).max_by_key(|value| value.to_string().len()).cloned();
    let field =
        |(name, _)| (name, value(name).expect("tests/src/queues.rs has an accepted case of each field"));
    let rows = SPEC_ANNOTATIONS.into_iter().filter(|(name, _)| *name != "expiryNotices");
    let mut fields: Value = rows.map(field).collect();
    // no shorter than the floors of `common`
    fields["maxDuration"] = json!("30d");
    fields
}

/// The same as annotations.
fn own_annotations() -> Value {
    let fields = own_fields();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    SPEC_ANNOTATIONS.into_iter().filter_map(|(field, key)| Some((key, text(fields.get(field)?)))).collect()
}
