//! Namespaces whose pods must name a queue.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    tenant::Tenant,
    workloads::{Namespace, workload},
};

use crate::{
    access::await_refusal,
    bound::{bind, waiting},
    in_both, pod,
};

/// A tenant of a namespace that the selector of these clusters selects.
async fn required(world: &World) -> Tenant<'_> {
    let tenant = Tenant::new(world).await;
    select(world, &tenant).await;
    tenant
}

/// Gives a tenant's namespace the label that the selector selects, and waits until pods without a queue are refused.
async fn select(world: &World, tenant: &Tenant<'_>) {
    world.label_namespace(tenant.name(), "queue", "required").await;
    let without = pod(tenant, "probe", &json!({}), &json!({}));
    await_refusal(tenant, &without, "must name a queue").await;
}

/// Ways to name a queue: labels and annotations.
fn ways() -> [(Value, Value); 4] {
    [
        (json!({"kai.scheduler/queue": "long"}), json!({})),
        (json!({"scheduler.tensorstack.dev/queue": "long"}), json!({})),
        (json!({"scheduler.tensorstack.dev/group-name": "a"}), json!({})),
        (json!({}), json!({"pod-group-name": "a"})),
    ]
}

#[tokio::test]
async fn pod_without_a_queue_is_not_created() {
    in_both(async |world| {
        let tenant = &required(world).await;
        for (labels, annotations) in [
            (json!({}), json!({})),
            (json!({"kai.scheduler/queue": ""}), json!({"pod-group-name": ""})),
            // groups that have no queue of Tenure's
            (json!({"scheduling.x-k8s.io/pod-group": "a"}), json!({"scheduling.k8s.io/group-name": "a"})),
        ] {
            let refused = tenant.try_create(&pod(tenant, "without", &labels, &annotations)).await.unwrap_err();
            let expected = format!(
                "metadata.labels[kai.scheduler/queue]: Required value: pods of namespace \"{}\" must name a queue: by this label or label scheduler.tensorstack.dev/queue, or by a PodGroup with annotation pod-group-name or label scheduler.tensorstack.dev/group-name",
                tenant.name()
            );
            assert!(refused.message.ends_with(&expected), "{}", refused.message);
        }
        let controller = tenant.create(&workload("ReplicaSet", tenant.name(), "without", &json!({}), &json!({}))).await;
        let refused = async || {
            let conditions = tenant.field(&controller, "status.conditions").await;
            Ok(conditions.to_string().contains("must name a queue").then_some(()))
        };
        eventually("the controller to be refused its pods", DEADLINE, refused).await.unwrap();
        for (number, (labels, annotations)) in ways().into_iter().enumerate() {
            tenant.create(&pod(tenant, &format!("with-{number}"), &labels, &annotations)).await;
        }
    })
    .await;
}

/// Removes all labels and annotations that name a queue.
fn nothing() -> Value {
    let labels = json!({"kai.scheduler/queue": null, "scheduler.tensorstack.dev/queue": null, "scheduler.tensorstack.dev/group-name": null});
    json!({"metadata": {"labels": labels, "annotations": {"pod-group-name": null}}})
}

async fn gated(tenant: &Namespace, mut pod: Value) -> DynamicObject {
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    tenant.create(&pod).await
}

#[tokio::test]
async fn pod_that_is_not_bound_may_change_its_queue_and_not_lose_it() {
    in_both(async |world| {
        let tenant = &required(world).await;
        for (number, (labels, annotations)) in ways().into_iter().enumerate() {
            let pod = gated(tenant, pod(tenant, &format!("waits-{number}"), &labels, &annotations)).await;
            let refused = tenant.try_patch(&pod, &nothing()).await.unwrap_err();
            assert!(refused.message.contains("must name a queue"), "{}", refused.message);
            tenant.patch(&pod, &json!({"metadata": {"labels": {"kai.scheduler/queue": "other"}}})).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_binding_takes_no_pod_out_of_its_queue() {
    in_both(async |world| {
        let tenant = &required(world).await;
        let waits = waiting(tenant, &json!({"kai.scheduler/queue": "long"})).await;
        for (path, metadata) in [
            ("pods/waits/binding", json!({"labels": {"kai.scheduler/queue": ""}})),
            (
                "bindings",
                json!({"labels": {"scheduler.tensorstack.dev/queue": ""}, "annotations": {"pod-group-name": ""}}),
            ),
        ] {
            let refused = bind(world, tenant, path, &metadata).await;
            assert!(refused.stderr.contains("must name a queue"), "{metadata}: {refused:?}");
        }
        assert_eq!(tenant.field(&waits, "spec.nodeName").await, Value::Null);
        let of_scheduler = json!({"annotations": {"pod-group-name": "a", "example.com/note": ""}});
        bind(world, tenant, "pods/waits/binding", &of_scheduler).await.success().unwrap();
    })
    .await;
}

#[tokio::test]
async fn pods_from_before_a_namespace_was_selected_and_of_other_namespaces_are_left_alone() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let before = gated(tenant, pod(tenant, "before", &json!({}), &json!({}))).await;
        tenant.create(&pod(tenant, "elsewhere", &json!({}), &json!({}))).await;
        select(world, tenant).await;
        let note = json!({"metadata": {"labels": {"note": "a"}}, "spec": {"schedulingGates": []}});
        tenant.patch(&before, &note).await;
        let bound = async || Ok(tenant.field(&before, "spec.nodeName").await.is_string().then_some(()));
        eventually("it to be bound", DEADLINE, bound).await.unwrap();
    })
    .await;
}
