//! The rights of a tenant to write, as the API server reviews them.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, api::PostParams};
use serde_json::json;
use tenure_tests::tenant::Tenant;

use crate::down;

#[tokio::test]
async fn tenant_writes_workloads_and_pod_groups_and_nothing_that_is_evidence() {
    let world = down().await;
    let tenant = &Tenant::new(world).await;
    let reviews: &Api<SubjectAccessReview> = &Api::all(world.cluster.client().unwrap());
    let may = async |verb: &str, group: &str, resource: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "namespace": tenant.name(), "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        });
        let review =
            json!({"metadata": {}, "spec": {"user": tenant.user(), "resourceAttributes": attributes}});
        let review = serde_json::from_value(review).unwrap();
        reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
    };
    for (group, resource) in [
        ("", "pods"),
        ("", "pods/eviction"),
        ("apps", "deployments"),
        ("apps", "deployments/scale"),
        ("batch", "jobs"),
        ("policy", "poddisruptionbudgets"),
        ("scheduling.run.ai", "podgroups"),
        ("scheduling.run.ai", "podgroups/status"),
        ("scheduling.volcano.sh", "podgroups/status"),
        ("ray.io", "rayjobs"),
    ] {
        assert!(may("create", group, resource).await, "{resource}.{group}");
    }
    for (group, resource) in [
        ("", "pods/status"),
        ("", "pods/binding"),
        ("", "bindings"),
        ("", "nodes"),
        ("", "namespaces"),
        ("scheduling.run.ai", "queues"),
        ("scheduler.tensorstack.dev", "queues"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ] {
        for verb in ["create", "update", "patch", "delete"] {
            assert!(!may(verb, group, resource).await, "{verb} {resource}.{group}");
        }
    }
}
