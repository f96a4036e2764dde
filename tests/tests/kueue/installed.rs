//! Kueue that isn't there, that comes later, and that goes again.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::DeleteParams,
    core::{DynamicObject, GroupVersionKind},
    discovery::pinned_kind,
};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures,
    workloads::{Namespace, distinct, in_runai_queue, workload},
};

use super::{Kueue, job, queue, tenure, without_kueue, workload_of};

/// A Job that Kueue doesn't manage, with its ceiling.
async fn plain_job(namespace: &Namespace, name: &str) -> DynamicObject {
    let labels = in_runai_queue(namespace.name());
    let job = distinct(workload("Job", namespace.name(), name, &labels, &Value::Null), name);
    namespace.create(&job).await
}

/// Deletes Kueue's definitions, where there are any, and waits until its kinds are gone.
pub async fn uninstall(world: &World) {
    let client = world.cluster.client().unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in fixtures::definitions(fixtures::KUEUE) {
        let name = definition.name_any();
        if definitions.get_opt(&name).await.unwrap().is_some() {
            definitions.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        let gone = async || Ok(definitions.get_opt(&name).await?.is_none().then_some(()));
        eventually(&format!("{name} to be gone"), DEADLINE, gone).await.unwrap();
    }
    for version in ["v1beta1", "v1beta2"] {
        let kind = GroupVersionKind::gvk("kueue.x-k8s.io", version, "Workload");
        let gone = async || Ok(pinned_kind(&client, &kind).await.is_err().then_some(()));
        eventually("Kueue's kinds to be gone", DEADLINE, gone).await.unwrap();
    }
}

#[tokio::test]
async fn a_ceiling_is_kept_without_kueue_and_when_it_comes_and_when_it_is_gone() {
    let world = &*without_kueue().await;
    world.tenure.start_keeper().await.unwrap();
    let namespace = Namespace::new(world).await;
    queue(&namespace, namespace.name(), &json!({"maxDuration": "2s"})).await;
    let before = plain_job(&namespace, "before").await;
    namespace.await_pause_of(&before, "spec.suspend", &json!(true)).await;

    fixtures::install(world, fixtures::definitions(fixtures::KUEUE)).await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    let managed = job(&namespace, "managed", &in_runai_queue(namespace.name())).await;
    let of_managed = workload_of(&namespace, "managed", "v1beta2").await;
    // as long as the keeper doesn't know of Kueue yet, the Job itself is paused, and Kueue sets it going again
    namespace.await_pause_of(&of_managed, "spec.active", &json!(false)).await;
    namespace.await_pods(&[]).await;
    assert_eq!(namespace.field(&managed, "spec.suspend").await, json!(true));
    queue(&namespace, namespace.name(), &json!({"maxDuration": "1h"})).await;
    tenure(world, &namespace, &["resume", "job/managed"]).await;
    // if the Job itself was paused as well, it is resumed before Kueue comes to start it: Kueue suspends it once more, until
    // it has admitted its Workload again
    let is_started = async || {
        let conditions = namespace.field(&of_managed, "status.conditions").await;
        let is_admitted = |of: &Value| of["type"] == "Admitted" && of["status"] == "True";
        conditions.as_array().is_some_and(|all| all.iter().any(is_admitted))
            && namespace.field(&managed, "spec.suspend").await == json!(false)
            && namespace.field(&managed, "status.active").await == json!(1)
    };
    eventually("the Job to run again", DEADLINE, async || Ok(is_started().await.then_some(())))
        .await
        .unwrap();
    assert_ne!(namespace.field(&of_managed, "spec.active").await, json!(false));
    for resumed in [&managed, &of_managed] {
        let annotations = namespace.field(resumed, "metadata.annotations").await;
        assert_eq!(annotations.get("tenure.dev/paused"), None, "{annotations}");
    }
    drop(kueue);

    uninstall(world).await;
    queue(&namespace, namespace.name(), &json!({"maxDuration": "2s"})).await;
    // the keeper looks every 30 seconds which kinds are served, and tries again after 35 and 75 seconds
    let paused = async || Ok((namespace.field(&managed, "spec.suspend").await == json!(true)).then_some(()));
    eventually("the Job itself to be paused", DEADLINE * 2, paused).await.unwrap();
    namespace.await_pause_of(&managed, "spec.suspend", &json!(true)).await;
    let after = plain_job(&namespace, "after").await;
    namespace.await_pause_of(&after, "spec.suspend", &json!(true)).await;
}
