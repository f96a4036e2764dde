//! Queue and group of a bound pod are fixed.

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{Output, eventually};
use tenure_tests::{
    DEADLINE, World,
    asker::{Asker, MASTERS, SCHEDULER},
    queues,
    tenant::Tenant,
    workloads::{Namespace, bare_pod, distinct},
};
use tokio::join;

use crate::{
    KINDS, access::await_refusal, assert_untouched, await_ended, bound, down, group, in_both, pod, references,
};

/// Labels and annotations by which a pod is in queue `short`, or in a group of that queue.
fn in_short() -> [(&'static str, &'static str, &'static str); 4] {
    [
        ("labels", "kai.scheduler/queue", "short"),
        ("labels", "scheduler.tensorstack.dev/queue", "short"),
        ("labels", "scheduler.tensorstack.dev/group-name", "in-short"),
        ("annotations", "pod-group-name", "in-short"),
    ]
}

const EVIDENCE: &str = "tenure.dev/evidence";

/// All keys that name a queue, a group or a subgroup.
const KEYS: [(&str, &str); 13] = [
    ("labels", "kai.scheduler/queue"),
    ("labels", "kai.scheduler/subgroup-name"),
    ("labels", "kueue.x-k8s.io/cluster-queue-name"),
    ("labels", "kueue.x-k8s.io/local-queue-name"),
    ("labels", "kueue.x-k8s.io/queue-name"),
    ("labels", "scheduler.tensorstack.dev/group-name"),
    ("labels", "scheduler.tensorstack.dev/queue"),
    ("labels", "scheduler.tensorstack.dev/role"),
    ("labels", "scheduling.x-k8s.io/pod-group"),
    ("annotations", "pod-group-name"),
    ("annotations", "scheduling.k8s.io/group-name"),
    ("annotations", EVIDENCE),
    ("annotations", "volcano.sh/task-spec"),
];

fn patch(field: &str, key: &str, value: &Value) -> Value {
    json!({"metadata": {field: {key: value}}})
}

#[tokio::test]
async fn tenant_who_moves_a_running_pod_out_of_its_queue_is_refused_and_its_ceiling_holds() {
    in_both(async |world| {
        let (tenant, neighbour) = &join!(Tenant::new(world), Tenant::new(world));
        for kind in KINDS {
            for (name, queue) in [("in-short", "short"), ("in-long", "long"), ("in-missing", "missing")] {
                tenant.create(&group(tenant, kind, name, &json!({"queue": queue}))).await;
            }
        }
        let of_neighbour =
            bound(neighbour, "neighbour", &json!({"kai.scheduler/queue": "long"}), &json!({})).await;
        let mut pods = Vec::new();
        for (number, (field, key, value)) in in_short().into_iter().enumerate() {
            let mut metadata = json!({"labels": {}, "annotations": {}});
            metadata[field][key] = json!(value);
            pods.push((
                field,
                key,
                bound(tenant, &format!("pod-{number}"), &metadata["labels"], &metadata["annotations"]).await,
            ));
        }
        for (field, key, pod) in &pods {
            let moves = ["long", "missing", ""].map(|queue| (*field, *key, json!(queue)));
            let removed = [(*field, *key, Value::Null)];
            let joins = ["in-long", "in-missing"].map(|group| {
                [
                    ("annotations", "pod-group-name", json!(group)),
                    ("labels", "scheduler.tensorstack.dev/group-name", json!(group)),
                ]
            });
            for (field, key, value) in moves.into_iter().chain(removed).chain(joins.into_iter().flatten()) {
                let refused = tenant.try_patch(pod, &patch(field, key, &value)).await.unwrap_err();
                assert_eq!(refused.code, 403, "{refused:?}");
                let message = &refused.message;
                assert!(message.contains(&format!("denied request: metadata.{field}[{key}]: ")), "{message}");
            }
        }
        for (_, _, pod) in &pods {
            await_ended(tenant, pod).await;
        }
        assert_untouched(neighbour, &of_neighbour).await;
    })
    .await;
}

#[tokio::test]
async fn no_key_of_a_bound_pod_is_added_changed_or_removed() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let (mut labels, mut annotations) = (json!({}), json!({}));
        for (field, key) in KEYS.into_iter().filter(|(_, key)| *key != EVIDENCE) {
            if field == "labels" { labels[key] = json!("a") } else { annotations[key] = json!("a") }
        }
        let with = bound(tenant, "with", &labels, &annotations).await;
        let without = bound(tenant, "without", &json!({}), &json!({})).await;
        for (field, key) in KEYS {
            let cases = [
                (&without, json!("b"), "Invalid value: \"b\": can't be added once the pod is bound to a node"),
                (&with, json!("b"), "Invalid value: \"b\": must stay \"a\" once the pod is bound to a node"),
                (&with, json!(null), "Required value: must stay \"a\" once the pod is bound to a node"),
            ];
            for (pod, value, words) in cases.into_iter().take(if key == EVIDENCE { 1 } else { 3 }) {
                let refused = tenant.try_patch(pod, &patch(field, key, &value)).await.unwrap_err();
                let user = tenant.user();
                let expected = format!(
                    "metadata.{field}[{key}]: {words}: create it again instead, or have user \"{user}\" added to tenancy.trustedWriters of Tenure's chart"
                );
                assert!(refused.message.ends_with(&expected), "{} should end with {expected}", refused.message);
            }
        }
        let all = json!({"metadata": {"labels": null, "annotations": null}});
        assert_eq!(tenant.try_patch(&with, &all).await.unwrap_err().code, 403);
        // the rest is the tenant's
        let rest = json!({"metadata": {"labels": {"app": "b"}, "annotations": {"tenure.dev/max-duration": "1h"}}});
        for pod in [&with, &without] {
            tenant.patch(pod, &rest).await;
        }
    })
    .await;
}

#[tokio::test]
async fn value_that_no_message_can_show_is_refused_all_the_same() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let pod = bound(tenant, "pod", &json!({}), &json!({"pod-group-name": "a"})).await;
        for value in ["b\nc".to_owned(), "b".repeat(200_000)] {
            let refused = tenant.try_patch(&pod, &patch("annotations", "pod-group-name", &json!(value))).await;
            let message = refused.unwrap_err().message;
            let expected = "metadata.annotations that name a queue, a group or a subgroup are fixed once the pod is bound to a node";
            assert!(message.ends_with(expected), "{message}");
        }
    })
    .await;
}

#[tokio::test]
async fn pod_that_is_not_bound_may_still_move() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let mut gated = pod(tenant, "gated", &json!({}), &json!({}));
        gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
        let gated = tenant.create(&gated).await;
        // only the keeper writes evidence
        for (field, key) in KEYS.into_iter().filter(|(_, key)| *key != EVIDENCE) {
            for value in [json!("a"), json!("b"), json!(null)] {
                tenant.patch(&gated, &patch(field, key, &value)).await;
            }
        }
    })
    .await;
}

/// Labels and annotations go by way of some subresources, and others drop them.
#[tokio::test]
async fn no_subresource_is_a_way_around() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let pod = bound(tenant, "pod", &json!({"kai.scheduler/queue": "long"}), &json!({"pod-group-name": "a"})).await;
        let metadata = json!({"labels": {"kai.scheduler/queue": "b"}, "annotations": {"pod-group-name": "b"}});
        let moved = |more: Value| {
            let mut patch = more;
            patch["metadata"] = metadata.clone();
            patch
        };
        let status = moved(json!({"status": {"message": "a"}}));
        // an administrator by group alone
        let admin = Asker::new(world, "person", &[MASTERS]).await.sees(tenant.name());
        let refused = admin.try_patch_subresource(&pod, "status", &status).await.unwrap_err();
        assert!(refused.message.contains("must stay \"long\""), "{}", refused.message);
        let container = json!([{"name": "main", "image": "example.com/image", "resources": {"limits": {}}}]);
        for (subresource, more) in [
            ("ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.com/image"}]}})),
            ("resize", json!({"spec": {"containers": container}})),
        ] {
            let _ = tenant.try_patch_subresource(&pod, subresource, &moved(more)).await;
        }
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pod", "labels": metadata["labels"], "annotations": metadata["annotations"]},
            "target": {"kind": "Node", "name": "node-1"},
        });
        let path = format!("/api/v1/namespaces/{}/pods/pod/binding", tenant.name());
        let bind = world.cluster.kubectl_with_input(&["create", "--raw", &path, "-f", "-"], &binding.to_string()).await.unwrap();
        assert!(bind.stderr.contains("is already assigned to node"), "{bind:?}");
        let now = tenant.get(&pod).await.unwrap();
        assert_eq!(now.labels()["kai.scheduler/queue"], "long");
        assert_eq!(now.annotations()["pod-group-name"], "a");
    })
    .await;
}

/// Rights don't count, only names: see tests/src/lib.rs for the one that these clusters trust.
#[tokio::test]
async fn trusted_writer_moves_what_runs_and_other_administrators_do_not() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let pod = bound(tenant, "pod", &json!({"kai.scheduler/queue": "long"}), &json!({})).await;
        let other = patch("labels", "kai.scheduler/queue", &json!("other"));
        for user in ["person", "system:node:node-1", SCHEDULER] {
            let user = Asker::new(world, user, &[MASTERS]).await.sees(tenant.name());
            let refused = user.try_patch(&pod, &other).await.unwrap_err();
            assert!(refused.message.contains("must stay \"long\""), "{}", refused.message);
        }
        let admin = Namespace::of(world, tenant.name());
        let moved = admin.patch(&pod, &other).await;
        assert_eq!(moved.labels()["kai.scheduler/queue"], "other");
    })
    .await;
}

#[tokio::test]
async fn expressions_of_the_policies_fit_what_they_look_at() {
    let world = down().await;
    // the types of all versions of a group are never checked
    for policy in ["bound-pods", "require-queue"] {
        let name = format!("tenure-{policy}");
        let policies = "validatingadmissionpolicies.v1.admissionregistration.k8s.io";
        let checked = async || {
            let status = queues::read(&world.cluster, policies, &name).await["status"].to_string();
            Ok(Some(status).filter(|status| status.contains("observedGeneration")))
        };
        let status = eventually("the types to be checked", DEADLINE, checked).await.unwrap();
        assert!(!status.contains("expressionWarnings"), "{name}: {status}");
    }
}

#[tokio::test]
async fn evidence_is_neither_created_with_a_pod_nor_added_before_the_pod_is_bound() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let evidence = json!({EVIDENCE: json!({"since": "2020-01-01T00:00:00Z"}).to_string()});
        let noted = tenant.try_create(&pod(tenant, "noted", &json!({}), &evidence)).await;
        let waits = tenant.create(&references::pod(tenant.name(), "waits")).await;
        let added = tenant.try_patch(&waits, &patch("annotations", EVIDENCE, &json!("{}"))).await;
        for refused in [noted, added] {
            let refused = refused.unwrap_err();
            let words = "metadata.annotations[tenure.dev/evidence]: Forbidden: only Tenure's keeper writes it: leave it out";
            assert!(refused.message.ends_with(words), "{}", refused.message);
        }
    })
    .await;
}

/// Creates a pod that no scheduler binds.
pub async fn waiting(tenant: &Tenant<'_>, labels: &Value) -> DynamicObject {
    let mut object = pod(tenant, "waits", labels, &json!({"pod-group-name": "a"}));
    object["spec"]["schedulerName"] = json!("none");
    tenant.create(&object).await
}

/// Binds that pod to a node with these labels and annotations, as an administrator by group alone.
pub async fn bind(world: &World, tenant: &Tenant<'_>, path: &str, metadata: &Value) -> Output {
    let mut binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "node-1"},
    });
    binding["metadata"]["name"] = json!("waits");
    let path = format!("/api/v1/namespaces/{}/{path}", tenant.name());
    let user = ["--as", "person", "--as-group", MASTERS];
    let arguments = [["create", "--raw", &path, "-f", "-"].as_slice(), &user].concat();
    world.cluster.kubectl_with_input(&arguments, &binding.to_string()).await.unwrap()
}

/// Schedulers such as Volcano's copy the annotations of the pod to the Binding.
#[tokio::test]
async fn a_binding_adds_no_evidence_and_may_have_the_annotations_of_its_pod() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let waits = waiting(tenant, &json!({})).await;
        for path in ["pods/waits/binding", "bindings"] {
            let refused = bind(world, tenant, path, &json!({"annotations": {EVIDENCE: "{}"}})).await;
            let words =
                "metadata.annotations[tenure.dev/evidence]: Forbidden: only Tenure's keeper writes it";
            assert!(refused.stderr.contains(words), "{path}: {refused:?}");
        }
        assert_eq!(tenant.field(&waits, "spec.nodeName").await, Value::Null);
        let of_scheduler = json!({"annotations": {"pod-group-name": "a"}});
        bind(world, tenant, "pods/waits/binding", &of_scheduler).await.success().unwrap();
        assert_eq!(tenant.field(&waits, "spec.nodeName").await, json!("node-1"));
    })
    .await;
}

/// Else the API server would refuse each later write of the pod, also the keeper's evidence.
#[tokio::test]
async fn a_binding_adds_no_label_or_annotation_that_a_pod_can_not_have() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let waits = waiting(tenant, &json!({})).await;
        let long = |length: usize| "x".repeat(length);
        let keys = ["a b".to_owned(), "a..b/c".to_owned(), long(64), format!("{}/a", long(254))];
        let of_keys =
            keys.iter().flat_map(|key| ["labels", "annotations"].map(|field| json!({field: {key: ""}})));
        let of_labels = [
            json!({"labels": {"Example.com/a": "b"}}),
            json!({"labels": {"a": "b c"}}),
            json!({"labels": {"a": long(64)}}),
        ];
        for metadata in of_keys.chain(of_labels) {
            let refused = bind(world, tenant, "pods/waits/binding", &metadata).await;
            let words = "a Binding has labels and annotations that a pod can have";
            assert!(refused.stderr.contains(words), "{metadata}: {refused:?}");
        }
        assert_eq!(tenant.field(&waits, "spec.nodeName").await, Value::Null);
        let valid =
            json!({"labels": {"a--b.c/d_e": "F.g", "h": ""}, "annotations": {"Example.com/a": "b: c"}});
        bind(world, tenant, "pods/waits/binding", &valid).await.success().unwrap();
        tenant.patch(&waits, &patch("annotations", "example.com/later", &json!("a"))).await;
    })
    .await;
}

#[tokio::test]
async fn a_pod_has_no_more_claims_of_devices_than_usage_counts() {
    let world = references::off().await;
    let name = &world.namespace().await;
    let user = &references::seen_by(world, name, "claims", &[("", &["pods"], references::ALL)]).await;
    let pod = |count: usize| {
        let claim = |number| json!({"name": format!("c{number}"), "resourceClaimName": format!("c{number}")});
        let mut pod = references::pod(name, &format!("of-{count}"));
        pod["spec"]["resourceClaims"] = (0..count).map(claim).collect();
        pod
    };
    await_refusal(user, &pod(33), "spec.resourceClaims: Too many").await;
    user.create(&pod(32)).await;
}

#[tokio::test]
async fn a_pod_of_a_queue_is_created_with_its_node_by_users_who_may_bind_pods() {
    let world = references::off().await;
    let name = &world.namespace().await;
    let pods: references::Rule<'_> = ("", &["pods"], references::ALL);
    let user = &references::seen_by(world, name, "unplaced", &[pods]).await;
    let on_node = |field: &str, key: &str| {
        let mut pod =
            distinct(bare_pod(name, "placed", &json!({}), &json!({"nodeName": "absent"})), "placed");
        pod["metadata"][field][key] = json!("short");
        pod
    };
    for (field, key, _) in in_short() {
        await_refusal(user, &on_node(field, key), "requires the right to create pods/binding").await;
    }
    user.try_dry_run(&on_node("labels", "example.com/queue")).await.unwrap();

    // a scheduler, and a node that creates a mirror of a static pod
    let bindings: references::Rule<'_> = ("", &["pods/binding"], &["create"]);
    for (other, rules) in [("placer", &[pods, bindings][..]), ("system:node:node-1", &[pods][..])] {
        let other = &references::seen_by(world, name, other, rules).await;
        other.try_dry_run(&on_node("labels", "kai.scheduler/queue")).await.unwrap();
    }
}
