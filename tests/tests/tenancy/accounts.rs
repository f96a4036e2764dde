//! The accounts of keeper and webhook write what these programs write, and nothing else, even with all rights.

use kube::core::{DynamicObject, Status};
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::{
    DEADLINE, World, fixtures,
    workloads::{Namespace, distinct, workload},
};

use crate::references::{off, pod};

/// A namespace as seen by an account of Tenure that has all rights, when its policy is enforced.
async fn with_all_rights(world: &World, account: &str, namespace: &str) -> Namespace {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": format!("{account}-may-do-all")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": RELEASE_NAMESPACE}],
    });
    world.apply(&binding).await;
    let kubeconfig = world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, account).await.unwrap();
    let seen = Namespace::seen_by(world.cluster.client_of(&kubeconfig).await.unwrap(), namespace);
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "namespace": namespace}});
    eventually("the policy to be enforced", DEADLINE, async || {
        let created = seen.try_create(&probe).await;
        if let Ok(probe) = &created {
            Namespace::of(world, namespace).delete(probe).await;
        }
        Ok(created.is_err_and(|refused| refused.message.contains("doesn't do that")).then_some(()))
    })
    .await
    .unwrap();
    seen
}

fn assert_refused(result: Result<DynamicObject, Box<Status>>, words: &str, what: &Value) {
    let refused = result.map(|_| ()).expect_err(&what.to_string());
    assert!(refused.message.contains(words), "{what}: {}", refused.message);
}

fn privileged() -> Value {
    json!([{"name": "main", "image": "example.com/evil", "securityContext": {"privileged": true}}])
}

#[tokio::test]
async fn the_keepers_account_scales_no_stateful_set_down_while_that_deletes_its_claims() {
    let world = off().await;
    let admin = &Namespace::new(world).await;
    let keeper = &with_all_rights(world, "tenure-keeper", admin.name()).await;
    let set = workload("StatefulSet", admin.name(), "db", &json!({}), &json!({"schedulerName": "none"}));
    let set = admin.create(&set).await;
    let with = |replicas: u32, when_scaled: &str| json!({"spec": {"replicas": replicas, "persistentVolumeClaimRetentionPolicy": {"whenScaled": when_scaled}}});
    admin.patch(&set, &with(2, "Delete")).await;
    for other in [json!({"spec": {"replicas": 0}}), with(1, "Delete")] {
        assert_refused(keeper.try_patch(&set, &other).await, "nothing but spec.replicas", &other);
    }
    keeper.patch(&set, &with(0, "Retain")).await;
    keeper.patch(&set, &with(2, "Delete")).await;
}

#[tokio::test]
async fn with_all_rights_the_keepers_account_pauses_and_notes_and_does_nothing_else() {
    let world = off().await;
    let admin = &Namespace::new(world).await;
    let keeper = &with_all_rights(world, "tenure-keeper", admin.name()).await;
    let note = json!({"metadata": {"annotations": {"tenure.dev/paused": "{}"}}});
    let mut paused = note.clone();
    paused["spec"] = json!({"replicas": 0});

    let deployment =
        workload("Deployment", admin.name(), "web", &json!({}), &json!({"schedulerName": "none"}));
    let deployment = admin.create(&deployment).await;
    let others = [
        json!({"spec": {"replicas": 0, "template": {"spec": {"containers": privileged()}}}}),
        json!({"spec": {"template": {"spec": {"serviceAccountName": "other"}}}}),
        json!({"spec": {"paused": true}}),
        json!({"metadata": {"annotations": {"tenure.dev.example.com/a": "b"}}}),
        json!({"metadata": {"labels": {"kai.scheduler/queue": "b"}}}),
        json!({"metadata": {"finalizers": ["example.com/held"]}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}]}}),
    ];
    let only = "nothing but spec.replicas, metadata.annotations.tenure.dev/*";
    for other in &others {
        assert_refused(keeper.try_patch(&deployment, other).await, only, other);
    }
    let scale = json!({"spec": {"replicas": 9}});
    assert_refused(
        keeper.try_patch_subresource(&deployment, "scale", &scale).await,
        "doesn't do that",
        &scale,
    );
    keeper.patch(&deployment, &paused).await;
    let without = json!({"metadata": {"annotations": {"tenure.dev/paused": null}}, "spec": {"replicas": 2}});
    keeper.patch(&deployment, &without).await;

    // it hands a field back by managedFields alone
    let mut back =
        json!({"metadata": {"managedFields": admin.field(&deployment, "metadata.managedFields").await}});
    for entry in back["metadata"]["managedFields"].as_array_mut().unwrap() {
        if let Some(spec) = entry.pointer_mut("/fieldsV1/f:spec").and_then(Value::as_object_mut) {
            spec.remove("f:replicas");
        }
    }
    keeper.patch(&deployment, &back).await;
    let managed = admin.field(&deployment, "metadata.managedFields").await;
    let of_replicas = |entry: &Value| entry.pointer("/fieldsV1/f:spec/f:replicas").is_some();
    assert!(!managed.as_array().unwrap().iter().any(of_replicas), "{managed}");
    back["spec"] = json!({"paused": true});
    assert_refused(keeper.try_patch(&deployment, &back).await, only, &back);

    let bound = admin.create(&pod(admin.name(), "alone")).await;
    for other in [
        json!({"spec": {"activeDeadlineSeconds": 5}}),
        json!({"metadata": {"labels": {"app": "b"}}}),
        json!({"spec": {"schedulingGates": []}}),
    ] {
        assert_refused(
            keeper.try_patch(&bound, &other).await,
            "nothing but metadata.annotations.tenure.dev/*",
            &other,
        );
    }
    let proxy = format!("/api/v1/namespaces/{}/pods/alone/proxy/", admin.name());
    let kubeconfig =
        world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-keeper").await.unwrap();
    let connects = world.cluster.kubectl_as(&kubeconfig, &["get", "--raw", &proxy], "").await.unwrap();
    assert!(connects.stderr.contains("may not CONNECT"), "{}", connects.stderr);
    let others = world.cluster.kubectl(&["get", "--raw", &proxy]).await.unwrap();
    assert!(!others.stderr.contains("ValidatingAdmissionPolicy"), "{}", others.stderr);
    keeper.patch(&bound, &json!({"metadata": {"annotations": {"tenure.dev/evidence": "{}"}}})).await;
    keeper.delete(&bound).await;

    let cluster = fixtures::object("ray.io/v1", "RayCluster", admin.name(), "ray", &json!({}));
    let cluster = admin.create(&cluster).await;
    keeper
        .patch(
            &cluster,
            &json!({"spec": {"suspend": true}, "metadata": {"annotations": {"tenure.dev/acts": "a"}}}),
        )
        .await;
    let version = json!({"spec": {"rayVersion": "2"}, "metadata": {"labels": {"a": "b"}}});
    assert_refused(keeper.try_patch(&cluster, &version).await, "nothing but spec.suspend", &version);
    assert_commands_and_annotations(keeper, admin).await;
    let group = fixtures::object(
        "scheduling.run.ai/v2alpha2",
        "PodGroup",
        admin.name(),
        "group",
        &json!({"minMember": 1}),
    );
    let group = admin.create(&group).await;
    let start =
        json!({"metadata": {"annotations": {"kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"}}});
    keeper.patch(&group, &start).await;
    let members = json!({"spec": {"minMember": 5}});
    assert_refused(
        keeper.try_patch(&group, &members).await,
        "nothing but metadata.annotations.kai",
        &members,
    );
}

/// Kinds that are paused by an annotation, and by a Command.
async fn assert_commands_and_annotations(keeper: &Namespace, admin: &Namespace) {
    let notebook = fixtures::object("kubeflow.org/v1", "Notebook", admin.name(), "notebook", &json!({}));
    let notebook = admin.create(&notebook).await;
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "2026-01-02T03:04:05Z"}}});
    keeper.patch(&notebook, &annotated("kubeflow-resource-stopped")).await;
    let only =
        "nothing but metadata.annotations.kubeflow-resource-stopped, metadata.annotations.tenure.dev/*";
    for other in [annotated("notebooks.kubeflow.org/last-activity"), json!({"spec": {"template": {}}})] {
        assert_refused(keeper.try_patch(&notebook, &other).await, only, &other);
    }
    let command = |name: &str, action: &str| {
        let target =
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "uid": "u"});
        json!({
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": action, "target": target,
            "metadata": {"name": name, "namespace": admin.name()},
        })
    };
    for action in ["AbortJob", "ResumeJob"] {
        let sent = keeper.create(&command(&action.to_lowercase(), action)).await;
        let other = json!({"action": "TerminateJob"});
        assert_refused(keeper.try_patch(&sent, &other).await, "doesn't do that", &other);
    }
    for action in ["TerminateJob", "CloseQueue", ""] {
        let other = command("other", action);
        assert_refused(keeper.try_create(&other).await, "doesn't do that", &other);
    }
    let job = fixtures::object("batch.volcano.sh/v1alpha1", "Job", admin.name(), "job", &json!({}));
    let job = admin.create(&job).await;
    let spec = json!({"spec": {"minAvailable": 0}});
    assert_refused(
        keeper.try_patch(&job, &spec).await,
        "nothing but metadata.annotations.tenure.dev/*",
        &spec,
    );
}

#[tokio::test]
async fn with_all_rights_the_keepers_account_touches_no_system_and_makes_no_objects() {
    let world = off().await;
    let system = &Namespace::of(world, "kube-system");
    let keeper = &with_all_rights(world, "tenure-keeper", "kube-system").await;
    let mut web = distinct(workload("Deployment", "kube-system", "web", &json!({}), &Value::Null), "web");
    web["spec"]["replicas"] = json!(0);
    let web = system.create(&web).await;
    for patch in [
        json!({"spec": {"replicas": 1}}),
        json!({"spec": {"template": {"spec": {"containers": privileged()}}}}),
        json!({"metadata": {"annotations": {"tenure.dev/paused": "{}"}}}),
    ] {
        assert_refused(keeper.try_patch(&web, &patch).await, "may not UPDATE apps/deployments", &patch);
    }
    let namespace = keeper.name();
    let lease = |name: &str, namespace: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": namespace}, "spec": {},
        })
    };
    for object in [
        pod(namespace, "own"),
        distinct(workload("DaemonSet", namespace, "own", &json!({}), &Value::Null), "own"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own", "namespace": namespace}}),
        lease("kube-scheduler", namespace),
        lease("tenure-keeper", namespace),
    ] {
        assert_refused(keeper.try_create(&object).await, "doesn't do that", &object);
    }
    let own = &with_all_rights(world, "tenure-keeper", RELEASE_NAMESPACE).await;
    let other = lease("tenure-webhook", RELEASE_NAMESPACE);
    assert_refused(own.try_create(&other).await, "doesn't do that", &other);
    own.create(&lease("tenure-keeper", RELEASE_NAMESPACE)).await;
}
