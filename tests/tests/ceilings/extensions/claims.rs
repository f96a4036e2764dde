//! What users write into requests that they may write, and what follows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, tenant::Tenant, workloads::reference};

use super::{await_state, decision, extension, job, queue};
use crate::world;

#[tokio::test]
async fn a_requester_is_the_user_who_asks_and_the_status_is_of_approvers() {
    let world = world().await;
    let tenant = Tenant::new(world).await;
    let admin = tenant.as_admin();
    admin.apply(&queue("claimed", "1h", json!({"maxTotal": "4h"}))).await;
    let job = tenant.create(&job(&tenant, "train", "claimed")).await;
    admin.await_running(1).await;

    let mut forged = extension(&job, "forged", "1h");
    forged["spec"]["requestedBy"] = json!("ada");
    forged["status"] = json!({"state": "Granted", "granted": "1h", "by": "ada"});
    let forged = tenant.create(&forged).await;
    assert_eq!(tenant.field(&forged, "spec.requestedBy").await, tenant.user());
    let status = await_state(&admin, &forged, "Pending").await;
    assert_eq!(status.get("granted"), None, "a status can't be created");

    for by in [tenant.user(), "tenure-keeper", "admin"] {
        for state in ["Granted", "Denied"] {
            let refused = tenant
                .try_patch_subresource(&forged, "status", &decision(by, state, "1h"))
                .await
                .unwrap_err();
            assert!(refused.message.contains("may not decide about Extensions"), "{refused:?}");
        }
    }
    let by_another = admin.try_patch_subresource(&forged, "status", &decision("ada", "Granted", "1h")).await;
    assert!(by_another.unwrap_err().message.contains("must be \"admin\", the user who decides"));
    let used = admin.try_patch_subresource(&forged, "status", &decision("admin", "Used", "1h")).await;
    assert!(used.unwrap_err().message.contains("must be Granted or Denied"));

    let changed = tenant.try_patch(&forged, &json!({"spec": {"duration": "4h"}})).await.unwrap_err();
    assert!(changed.message.contains("can't be changed"), "{changed:?}");
    for duration in ["0s", "soon", "-1h"] {
        let refused = tenant.try_create(&extension(&job, "bad", duration)).await.unwrap_err();
        assert!(refused.message.contains("spec.duration"), "{refused:?}");
    }

    // the uid of another workload, under the name of this one
    let mut other = extension(&job, "other", "1h");
    other["spec"]["target"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    let other = tenant.create(&other).await;
    let status = await_state(&admin, &other, "Expired").await;
    let expected = "There is no Job train with uid 00000000-0000-0000-0000-000000000001";
    assert_eq!(status["message"], expected);
}

#[tokio::test]
async fn a_user_who_may_approve_extensions_decides() {
    let world = world().await;
    for (resource, verb) in [("extensions", "approve"), ("extensions/approval", "update")] {
        let tenant = Tenant::new(world).await;
        let admin = tenant.as_admin();
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "approver"},
            "rules": [{"apiGroups": ["tenure.dev"], "resources": [resource], "verbs": [verb]}],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "approver"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "approver"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": tenant.user()}],
        });
        for object in [role, binding] {
            let mut object = object;
            object["metadata"]["namespace"] = json!(admin.name());
            admin.create(&object).await;
        }
        let queue_name = format!("decided-{verb}");
        admin.apply(&queue(&queue_name, "1h", json!({"maxTotal": "4h"}))).await;
        let job = tenant.create(&job(&tenant, "train", &queue_name)).await;
        admin.await_running(1).await;
        let asked = tenant.create(&extension(&job, "more", "1h")).await;
        await_state(&admin, &asked, "Pending").await;
        let grant = decision(tenant.user(), "Granted", "1h");
        // the authorizer sees the binding a little later
        eventually(&format!("{verb} of {resource} to count"), DEADLINE, async || {
            Ok(tenant.try_patch_subresource(&asked, "status", &grant).await.ok().map(drop))
        })
        .await
        .unwrap();
        await_state(&admin, &asked, "Granted").await;
    }
}

/// Otherwise a user would delete the Extension, or have it deleted, and get as much time at once.
#[tokio::test]
async fn time_that_a_person_has_revoked_comes_back_by_approval_alone() {
    let world = world().await;
    let tenant = Tenant::new(world).await;
    let admin = tenant.as_admin();
    admin.apply(&queue("revoked", "1h", json!({"autoApprove": "1h", "maxTotal": "4h"}))).await;
    let job = tenant.create(&job(&tenant, "train", "revoked")).await;
    admin.await_running(1).await;
    let first = tenant.create(&extension(&job, "first", "1h")).await;
    await_state(&admin, &first, "Granted").await;
    admin.try_patch_subresource(&first, "status", &decision("admin", "Denied", "0s")).await.unwrap();

    let delete = ["delete", "extensions.tenure.dev", "first", "--wait=false"];
    let refused = tenant.kubectl(&delete, "").await;
    assert!(refused.stderr.contains("status.state: Forbidden: admin has denied"), "{refused:?}");
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let tried = ["--dry-run=server", "--namespace", tenant.name(), "--as", collector];
    let collect = async || world.cluster.kubectl(&[&delete[..], &tried].concat()).await.unwrap();
    let owned_by = async |owner: &OwnerReference| {
        tenant.patch(&first, &json!({"metadata": {"ownerReferences": [owner]}})).await;
    };
    owned_by(&reference(&job)).await;
    collect().await.success().unwrap();
    let other = json!({"name": "other", "namespace": tenant.name()});
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": other});
    let other = tenant.create(&other).await;
    owned_by(&reference(&other)).await;
    let refused = collect().await;
    assert!(refused.stderr.contains("status.state: Forbidden: admin has denied"), "{refused:?}");

    let second = tenant.create(&extension(&job, "second", "30m")).await;
    let status = await_state(&admin, &second, "Pending").await;
    assert_eq!(status["message"], "Waits for approval: a person has denied time for this run");
    admin.try_patch_subresource(&second, "status", &decision("admin", "Granted", "30m")).await.unwrap();
    await_state(&admin, &second, "Granted").await;
    admin.delete(&first).await;
    let third = tenant.create(&extension(&job, "third", "10m")).await;
    await_state(&admin, &third, "Granted").await;
}

/// Otherwise a user would delete the Extension in advance, and a denial would go with it once the
/// finalizer is removed.
#[tokio::test]
async fn an_extension_that_is_being_deleted_is_not_decided_about_and_gives_no_time() {
    let world = world().await;
    let tenant = Tenant::new(world).await;
    let admin = tenant.as_admin();
    admin.apply(&queue("withdrawn", "1h", json!({"autoApprove": "30m", "maxTotal": "4h"}))).await;
    let job = tenant.create(&job(&tenant, "train", "withdrawn")).await;
    admin.await_running(1).await;
    let mut held = Vec::new();
    for (name, duration, state) in [("less", "30m", "Granted"), ("more", "1h", "Pending")] {
        let mut asked = extension(&job, name, duration);
        asked["metadata"]["finalizers"] = json!(["example.com/held"]);
        let asked = tenant.create(&asked).await;
        await_state(&admin, &asked, state).await;
        let delete = ["delete", "extensions.tenure.dev", name, "--wait=false"];
        tenant.kubectl(&delete, "").await.success().unwrap();
        held.push(asked);
    }
    for (asked, state) in held.iter().flat_map(|asked| [(asked, "Granted"), (asked, "Denied")]) {
        let refused = admin.try_patch_subresource(asked, "status", &decision("admin", state, "10m")).await;
        let refused = refused.unwrap_err();
        assert!(refused.message.contains("the Extension is being deleted"), "{refused:?}");
    }
    // the time of the first was given back: the queue allows as much again
    let again = tenant.create(&extension(&job, "again", "30m")).await;
    await_state(&admin, &again, "Granted").await;
    for asked in &held {
        tenant.patch(asked, &json!({"metadata": {"finalizers": null}})).await;
    }
}
