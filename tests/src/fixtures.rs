//! Definitions of the kinds of other projects: T9k, Knative, Kubeflow and the like.
//!
//! They are structural and prune unknown fields, as the real ones do. No controller in the test cluster acts on their
//! objects: a test creates the object, and everything that its controller would create.

use std::fs;

use anyhow::Result;
use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::GroupVersionKind,
    discovery::pinned_kind,
};
use serde_json::Value;
use tenure_testbed::eventually;

use crate::{DEADLINE, World, policies::grant};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/crds");

const QUEUE_DEFINITION: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure/files/crds/scheduling.run.ai_queues.yaml");

/// All of them, by file.
const ALL: &[&str] = &[
    "batch.tensorstack.dev",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "scheduler.tensorstack.dev",
    "scheduling.run.ai",
    "scheduling.volcano.sh",
    "scheduling.x-k8s.io",
    "serving.knative.dev",
    "sparkoperator.k8s.io",
    "tensorboard.kubeflow.org",
    "tensorstack.dev",
    "trainer.kubeflow.org",
    "unlisted",
    "workload.codeflare.dev",
];

/// The edition of T9k's Notebook, `TensorBoard` and Explorer that has `suspend` instead of `runMode`.
pub const SUSPEND_EDITION: &str = "tensorstack.dev-suspend";

/// Kueue, which most clusters don't have.
pub const KUEUE: &str = "kueue.x-k8s.io";

/// KAI-Scheduler's shards, which most clusters don't have.
pub const KAI: &str = "kai.scheduler";

/// A cluster that knows all of them, with Tenure running.
pub async fn world(name: &str) -> Result<World> {
    world_of(name, all()).await
}

/// A cluster that has these definitions, with Tenure running. The keeper may also read kinds that the chart's role
/// doesn't list: otherwise each of these costs a refused request.
pub async fn world_of(name: &str, definitions: Vec<CustomResourceDefinition>) -> Result<World> {
    let world = Box::pin(World::installed(name, &[])).await?;
    install(&world, definitions).await;
    for group in ["example.com", "apps.kruise.io", "apps.openshift.io", "argoproj.io", "batch.volcano.sh"] {
        grant(&world, &format!("read-{group}"), group, &["*"], &["get"]).await;
    }
    world.tenure.start_webhook(&world.cluster).await?;
    world.tenure.start_keeper().await?;
    Ok(world)
}

/// All definitions.
pub fn all() -> Vec<CustomResourceDefinition> {
    ALL.iter().flat_map(|file| definitions(file)).collect()
}

/// The definitions of a file of `fixtures/crds`.
pub fn definitions(file: &str) -> Vec<CustomResourceDefinition> {
    let text = fs::read_to_string(format!("{DIRECTORY}/{file}.yaml")).expect("there is such a fixture");
    serde_saphyr::from_multiple(&text).expect("the fixture is YAML of definitions")
}

/// The definition of queues of the run.ai family as KAI-Scheduler has it: one version, without conversion.
pub fn kais_queue() -> Value {
    let text = fs::read_to_string(QUEUE_DEFINITION).expect("the chart has such a definition");
    let mut definition: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let spec = definition["spec"].as_object_mut().expect("it is specified");
    spec.remove("conversion");
    let versions = spec["versions"].as_array_mut().expect("it has versions");
    versions.retain(|version| version["name"] == "v2");
    versions[0]["storage"] = true.into();
    definition["metadata"].as_object_mut().expect("it has a name").remove("annotations");
    definition
}

/// Installs definitions, or puts them in the place of others, and waits until their kinds are served.
pub async fn install(world: &World, definitions: Vec<CustomResourceDefinition>) {
    join_all(definitions.into_iter().map(|definition| install_one(world, definition))).await;
}

async fn install_one(world: &World, definition: CustomResourceDefinition) {
    let client = world.cluster.client().unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    let apply = PatchParams::apply("tenure-tests").force();
    definitions.patch(&name, &apply, &Patch::Apply(&definition)).await.unwrap();
    let spec = &definition.spec;
    let kinds = spec.versions.iter().filter(|version| version.served);
    for version in kinds.map(|version| GroupVersionKind::gvk(&spec.group, &version.name, &spec.names.kind)) {
        let served = async || {
            pinned_kind(&client, &version).await?;
            Ok(is_established(&definitions.get(&name).await?).then_some(()))
        };
        eventually(&format!("{name} to be served"), DEADLINE, served).await.unwrap();
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// An object of any kind that has a name, a namespace and a spec.
pub fn object(api_version: &str, kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    serde_json::json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_files_are_known() {
        let files = fs::read_dir(DIRECTORY).unwrap().map(|file| file.unwrap().file_name());
        let found: BTreeSet<String> = files.map(|file| file.into_string().unwrap()).collect();
        let listed = ALL.iter().chain([&SUSPEND_EDITION, &KUEUE, &KAI]).map(|file| format!("{file}.yaml"));
        assert_eq!(found, listed.collect());
    }
}
