//! Definitions of the kinds of other projects: T9k, Knative, Kubeflow and the like, from
//! `fixtures/crds`.
//!
//! They are structural and prune unknown fields, as the real ones do. No controller in the test
//! cluster acts on their objects: a test creates the object, and everything that its controller
//! would create.

use std::{fs, path::PathBuf};

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
use tenure_testbed::{Cluster, RELEASE_NAMESPACE, eventually};
use tokio::sync::OnceCell;

use crate::{DEADLINE, World, policies::grant};

/// The directory of the definitions.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/crds");

/// The chart of this workspace.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");

/// The chart's definition of queues of the run.ai family.
const QUEUE_DEFINITION: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure/files/crds/scheduling.run.ai_queues.yaml");

/// The edition of T9k's Notebook, `TensorBoard` and Explorer that has `suspend` instead of
/// `runMode`.
pub const SUSPEND_EDITION: &str = "tensorstack.dev-suspend";

/// Kueue, which most clusters don't have.
pub const KUEUE: &str = "kueue.x-k8s.io";

/// KAI-Scheduler's shards, which most clusters don't have.
pub const KAI: &str = "kai.scheduler";

/// The annotation of a definition that says how objects of the kind are paused: a path and the
/// value, as YAML.
const PAUSE: &str = "tests.tenure.dev/pause";

/// The annotation of a definition with the statuses of objects that have ended, as a list in YAML.
const ENDED: &str = "tests.tenure.dev/ended";

/// A kind that can be paused, as its definition says.
#[derive(Clone, Debug)]
pub struct PausableKind {
    /// The group and version, such as `ray.io/v1`.
    pub api_version: String,
    /// The kind, such as `RayJob`.
    pub kind: String,
    /// The plural, such as `rayjobs`.
    pub plural: String,
    /// The field that pauses.
    pub field: String,
    /// The value that pauses.
    pub value: Value,
    /// The statuses of objects that have ended.
    pub ended: Vec<Value>,
}

impl PausableKind {
    /// Reads a definition. None: it says nothing about pauses.
    fn of(definition: &CustomResourceDefinition) -> Option<Self> {
        let read = |key| {
            let text = definition.metadata.annotations.as_ref()?.get(key)?;
            Some(serde_saphyr::from_str::<Value>(text).expect("the annotation is YAML"))
        };
        let spec = &definition.spec;
        let version = spec.versions.iter().find(|version| version.storage).expect("one is stored");
        let pause = read(PAUSE)?;
        let (field, value) =
            pause.as_object().and_then(|of| of.iter().next()).expect("a field and its value");
        Some(Self {
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
            field: field.clone(),
            value: value.clone(),
            ended: read(ENDED).map_or_else(Vec::new, |of| serde_json::from_value(of).expect("a list")),
        })
    }

    /// Returns the kinds of these definitions that can be paused.
    pub fn among(definitions: &[CustomResourceDefinition]) -> Vec<Self> {
        definitions.iter().filter_map(Self::of).collect()
    }
}

/// Returns a cluster with the definitions of [`all`], and with Tenure running.
pub async fn world(name: &str) -> Result<World> {
    world_of(name, all(), &[], &[]).await
}

/// Returns a cluster that has these definitions, with Tenure running, with more values of the chart
/// and more flags of the keepers. The keeper may also read kinds that the chart's role doesn't list:
/// otherwise each of these costs a refused request.
pub async fn world_of(
    name: &str,
    definitions: Vec<CustomResourceDefinition>,
    values: &[&str],
    keeper_flags: &[&str],
) -> Result<World> {
    let world = Box::pin(World::installed_with(name, values, keeper_flags)).await?;
    install(&world, definitions).await;
    for group in ["example.com", "apps.kruise.io", "apps.openshift.io", "argoproj.io", "batch.volcano.sh"] {
        grant(&world, &format!("read-{group}"), group, &["*"], &["get"]).await;
    }
    world.tenure.start_webhook(&world.cluster).await?;
    world.tenure.start_keeper().await?;
    Ok(world)
}

/// Returns all definitions of `fixtures/crds`, without those that most clusters don't have, and
/// without other editions of the same kinds.
pub fn all() -> Vec<CustomResourceDefinition> {
    let files = fs::read_dir(DIRECTORY).expect("there are fixtures").flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".yaml")?.to_owned()));
    let mut names: Vec<_> =
        names.filter(|name| ![SUSPEND_EDITION, KUEUE, KAI].contains(&name.as_str())).collect();
    names.sort();
    names.iter().flat_map(|file| definitions(file)).collect()
}

/// Returns the definitions of a file of `fixtures/crds`, named without `.yaml`.
pub fn definitions(file: &str) -> Vec<CustomResourceDefinition> {
    let text = fs::read_to_string(format!("{DIRECTORY}/{file}.yaml")).expect("there is such a fixture");
    serde_saphyr::from_multiple(&text).expect("the fixture is YAML of definitions")
}

/// Writes the chart's definitions into a file, and returns its path. Queues of the run.ai family
/// are served as v2, too, and converted at the Service of a release. Rendered once: no cluster is
/// asked.
pub async fn definitions_with_v2(cluster: &Cluster) -> PathBuf {
    static RENDERED: OnceCell<String> = OnceCell::const_new();
    let only = ["--show-only", "templates/crds.yaml", "--set", "crds.serveV2=true,crds.tensorstack=true"];
    let template = ["template", "tenure", CHART, "--namespace", RELEASE_NAMESPACE];
    let template = [&template[..], &only].concat();
    let render = async || cluster.helm(&template).await?.success();
    let rendered = RENDERED.get_or_try_init(render).await.unwrap();
    let file = cluster.directory().join("definitions.yaml");
    fs::write(&file, rendered).unwrap();
    file
}

/// Returns the definition of queues of the run.ai family as KAI-Scheduler has it: one version,
/// without conversion.
pub fn kais_queue() -> Value {
    let text = fs::read_to_string(QUEUE_DEFINITION).expect("the chart has such a definition");
    let mut definition: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let spec = definition["spec"].as_object_mut().expect("it is specified");
    spec.remove("conversion");
    let versions = spec["versions"].as_array_mut().expect("it has versions");
    versions.retain(|version| version["name"] == "v2");
    versions[0]["storage"] = true.into();
    versions[0]["served"] = true.into();
    definition["metadata"].as_object_mut().expect("it has a name").remove("annotations");
    definition
}

/// Installs or replaces definitions, and waits until their kinds are served.
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

/// True if the API server has accepted the names of a definition.
fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Returns an object of any kind that has a name, a namespace and a spec.
pub fn object(api_version: &str, kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    serde_json::json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}
