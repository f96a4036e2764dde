//! The owner table on a real API server: the field that is set on each kind, and the kinds that are left alone.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod table;

use std::collections::BTreeSet;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_policy::{
    naming::group_of,
    owner_table::{EndedWhen, KINDS, PausableKinds},
    pause::OwnerObject,
};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    fixtures::{self, KUEUE, PausableKind, SUSPEND_EDITION, definitions, install, object},
    keeper::await_result,
    workloads::{Namespace, pause_event, queue},
};
use tokio::sync::OnceCell;

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    // all tries to pause an owner take a minute
    let start = || {
        let all = fixtures::all().into_iter().chain(definitions(KUEUE)).collect();
        fixtures::world_of("owners", all, &[], &["--retry-after=1s"])
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

const T9K_JOBS: &str = "batch.tensorstack.dev/v1beta1";
const T9K: &str = "tensorstack.dev/v1beta1";
const KUBEFLOW: &str = "kubeflow.org/v1";

/// Objects of these kinds, each with an expired pod.
async fn owners_of_expired_pods(
    namespace: &Namespace,
    queue_name: &str,
    kinds: &[(&str, &str)],
    spec: &Value,
) -> Vec<DynamicObject> {
    namespace.apply(&queue(queue_name, "1s")).await;
    let mut owners = Vec::new();
    for (api_version, kind) in kinds {
        let name = kind.to_lowercase();
        let owner = namespace.create(&object(api_version, kind, namespace.name(), &name, spec)).await;
        namespace.pod_of(&owner, &name, queue_name).await;
        owners.push(owner);
    }
    owners
}

/// Groups of Kubernetes itself, whose kinds have no definition.
const NATIVE: [&str; 2] = ["apps", "batch"];

/// The kinds that can be paused, as their definitions say.
fn pausable() -> Vec<PausableKind> {
    PausableKind::among(&fixtures::all().into_iter().chain(definitions(KUEUE)).collect::<Vec<_>>())
}

#[test]
fn every_row_of_the_table_is_what_the_definitions_of_its_kinds_say() {
    let (defined, mut found) = (pausable(), BTreeSet::new());
    for row in KINDS.iter().filter(|row| !NATIVE.contains(&row.group)) {
        for kind in row.kinds {
            // of two spellings of a kind a cluster serves one
            let is_meant = |of: &&PausableKind| {
                group_of(&of.api_version) == row.group && of.kind.eq_ignore_ascii_case(kind)
            };
            let Some(of) = defined.iter().find(is_meant) else {
                panic!("no definition in fixtures/crds says how a {kind} of {} is paused", row.group);
            };
            let PausableKind { api_version, kind: name, plural, field, value, ended } = of;
            found.insert((api_version, name));
            assert_eq!(*plural, PausableKinds::resource(kind));
            assert!(row.versions.iter().any(|of| *api_version == format!("{}/{of}", row.group)), "{kind}");
            let (path, pauses) = row.pauses[0];
            assert_eq!((path, pauses.json()), (field.as_str(), value.clone()), "{kind}");
            assert_eq!(row.ended == EndedWhen::Never, ended.is_empty(), "{kind}");
            for status in ended {
                let object = json!({"apiVersion": api_version, "kind": kind, "status": status});
                assert!(OwnerObject(&object).is_finished(), "{object}");
            }
        }
    }
    let all: BTreeSet<_> = defined.iter().map(|of| (&of.api_version, &of.kind)).collect();
    assert_eq!(found, all, "the table lacks a kind that can be paused");
}

#[tokio::test]
async fn what_stands_beside_the_pausing_field_is_preserved() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&queue("beside", "1s")).await;
    let resume = json!([{"type": "worker", "skipInitContainer": true, "command": ["/usr/bin/sshd"]}]);
    let mode = |enabled: bool| json!({"debug": {"enabled": true}, "pause": {"enabled": enabled, "resumeSpecs": resume}});
    let spec = json!({"runMode": mode(false), "scheduler": {"t9kScheduler": {"queue": "beside"}}});
    let job = namespace.create(&object(T9K_JOBS, "GenericJob", namespace.name(), "test", &spec)).await;
    namespace.pod_of(&job, "test", "beside").await;
    let record = namespace.await_pause_of(&job, "spec.runMode.pause.enabled", &json!(true)).await;
    assert_eq!(record["previousValue"], json!(false));
    assert_eq!(namespace.field(&job, "spec.runMode").await, mode(true));
    assert_eq!(namespace.field(&job, "spec.scheduler").await, spec["scheduler"]);
}

/// Pods of these kinds are deleted, and their owners not touched.
async fn assert_left_alone(kinds: &[(&str, &str)]) {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let queue_name = format!("owners-{}", namespace.name());
    let owners = owners_of_expired_pods(&namespace, &queue_name, kinds, &json!({})).await;
    namespace.await_pods(&[]).await;
    let deletion = |owner: &DynamicObject| format!("delete pods/{}", owner.name_any());
    let deletions: Vec<_> = owners.iter().map(deletion).collect();
    audit::assert_changes(&world.cluster, namespace.name(), &deletions).await;
}

#[tokio::test]
async fn namesakes_in_other_groups_are_not_paused() {
    assert_left_alone(&[
        ("tensorboard.kubeflow.org/v1alpha1", "Tensorboard"),
        ("apps.kruise.io/v1beta1", "StatefulSet"),
    ])
    .await;
}

#[tokio::test]
async fn kinds_that_are_not_in_the_table_are_not_paused() {
    assert_left_alone(&[
        (T9K_JOBS, "BeamJob"),
        (T9K_JOBS, "WorkflowRun"),
        (T9K_JOBS, "CronWorkflowRun"),
        (T9K, "Explorer"),
        (T9K, "AutoTuneExperiment"),
        (T9K, "VirtualServer"),
        ("serving.knative.dev/v1", "Service"),
        ("argoproj.io/v1alpha1", "Rollout"),
        ("example.com/v1", "Widget"),
    ])
    .await;
}

#[tokio::test]
async fn what_is_paused_already_is_neither_patched_nor_recorded() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("paused-already", "1s")).await;
    let table = [
        (T9K_JOBS, "GenericJob", json!({"runMode": {"pause": {"enabled": true}}})),
        (T9K, "MLService", json!({"runMode": "paused"})),
        (T9K, "Notebook", json!({"runMode": "paused"})),
        (T9K, "SimpleMLService", json!({"replicas": 0})),
        ("ray.io/v1", "RayCluster", json!({"suspend": true})),
        (KUBEFLOW, "PyTorchJob", json!({"runPolicy": {"suspend": true}})),
    ];
    for (api_version, kind, spec) in &table {
        let name = kind.to_lowercase();
        let owner = namespace.create(&object(api_version, kind, namespace.name(), &name, spec)).await;
        namespace.pod_of(&owner, &name, "paused-already").await;
    }
    await_result(world, "paused-already", "Nothing", 6).await;
    audit::assert_changes(&world.cluster, namespace.name(), &[""; 0]).await;
    assert_eq!(namespace.events().await, [""; 0]);
}

/// A cluster whose definitions are changed; its `MLService` and its `RayService` have no field that pauses. Nothing schedules
/// its pods: their ceiling counts from their creation.
async fn editions() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let mut all: Vec<_> = ["ray.io", "tensorstack.dev"].into_iter().flat_map(definitions).collect();
        for (kind, field) in [("MLService", "runMode"), ("RayService", "suspend")] {
            let service = all.iter_mut().find(|definition| definition.spec.names.kind == kind);
            let version = &mut service.unwrap().spec.versions[0];
            let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
            spec.properties.as_mut().unwrap().remove(field).unwrap();
        }
        let world = Box::pin(World::installed_alone("editions", &[])).await?;
        install(&world, all).await;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// Waits until the API server takes a Notebook with this spec.
async fn await_edition(namespace: &Namespace, spec: &Value) {
    let probe = object(T9K, "Notebook", namespace.name(), "probe", spec);
    let taken = async || Ok(namespace.try_dry_run(&probe).await.ok());
    eventually("the edition to be served", DEADLINE, taken).await.unwrap();
}

#[tokio::test]
async fn an_edition_of_a_kind_with_another_field_is_paused_by_that() {
    let world = editions().await;
    let namespace = Namespace::new(world).await;
    let kinds = [(T9K, "Notebook"), (T9K, "TensorBoard")];
    for owner in owners_of_expired_pods(&namespace, "edition-of-modes", &kinds, &json!({})).await {
        namespace.await_pause_of(&owner, "spec.runMode", &json!("paused")).await;
    }

    // as when T9k is upgraded: the keeper has run all the time
    install(world, definitions(SUSPEND_EDITION)).await;
    let namespace = Namespace::new(world).await;
    await_edition(&namespace, &json!({"suspend": true})).await;
    let suspended = owners_of_expired_pods(&namespace, "edition-of-switches", &kinds, &json!({})).await;
    let mut events = Vec::new();
    for owner in &suspended {
        let record = namespace.await_pause_of(owner, "spec.suspend", &json!(true)).await;
        assert_eq!(record["previousValue"], json!(false));
        events.push(pause_event(owner, "spec.suspend", "true"));
    }
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 2).await, events);
}

#[tokio::test]
async fn below_a_ray_service_of_a_version_that_can_not_be_suspended_the_cluster_is_paused() {
    let world = editions().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("older-kuberay", "1s")).await;
    let chain = namespace.chain(&[("ray.io/v1", "RayService"), ("ray.io/v1", "RayCluster")]).await;
    namespace.pod_of(&chain[1], "head", "older-kuberay").await;
    namespace.await_pause_of(&chain[1], "spec.suspend", &json!(true)).await;
    await_result(world, "older-kuberay", "Nothing", 1).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch rayclusters/raycluster"]).await;
}

#[tokio::test]
async fn a_kind_whose_schema_has_none_of_its_fields_is_a_failure_and_nothing_below_is_touched_at_first() {
    let world = editions().await;
    let namespace = Namespace::new(world).await;
    let kinds = [(T9K, "MLService")];
    let owners = owners_of_expired_pods(&namespace, "no-field", &kinds, &json!({})).await;
    await_result(world, "no-field", "Failed", 1).await;
    audit::assert_changes(&world.cluster, namespace.name(), &[""; 0]).await;
    assert_eq!(namespace.events().await, [""; 0]);
    assert_eq!(namespace.field(&owners[0], "metadata.annotations").await, Value::Null);
    namespace.await_pods(&["mlservice"]).await;
}
