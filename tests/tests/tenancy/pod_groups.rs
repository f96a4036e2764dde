//! No tenant may write the queue and start of a `PodGroup`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    asker::{Asker, MASTERS},
    tenant::Tenant,
};

use crate::{KINDS, QUEUE_LABELS, await_ended, bound, down, group, in_both, pod, up};

/// A label or an annotation by which a pod joins a group of a kind.
fn member(kind: &str, name: &str) -> [Value; 2] {
    if kind.starts_with("scheduling.run.ai") {
        [json!({}), json!({"pod-group-name": name})]
    } else {
        [json!({"scheduler.tensorstack.dev/group-name": name}), json!({})]
    }
}

fn resource(kind: &str) -> String {
    format!("podgroups.{}", kind.split_once('/').unwrap().0)
}

#[tokio::test]
async fn tenant_who_moves_a_pod_group_to_another_queue_gains_nothing() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let mut pods = Vec::new();
        for (number, kind) in KINDS.into_iter().enumerate() {
            let moves = tenant.create(&group(tenant, kind, "moves", &json!({"queue": "short"}))).await;
            let [labels, annotations] = member(kind, "moves");
            let pod = bound(tenant, &format!("pod-{number}"), &labels, &annotations).await;
            for queue in [json!("long"), json!("missing"), json!(""), json!(null)] {
                // set back, or refused while the webhook is down
                let _ = tenant.try_patch(&moves, &json!({"spec": {"queue": queue}})).await;
                assert_eq!(tenant.field(&moves, "spec.queue").await, "short", "{kind}: {queue}");
            }
            pods.push(pod);
        }
        for pod in &pods {
            await_ended(tenant, pod).await;
        }
    })
    .await;
}

/// Its pods are in queue `default`, or in that of their label.
#[tokio::test]
async fn pod_group_without_a_queue_gets_none_later() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        for kind in KINDS {
            let without = tenant.create(&group(tenant, kind, "without", &json!({}))).await;
            let _ = tenant.try_patch(&without, &json!({"spec": {"queue": "long"}})).await;
            assert_eq!(tenant.field(&without, "spec.queue").await, Value::Null, "{kind}");
        }
    })
    .await;
}

async fn moved(tenant: &Tenant<'_>, kind: &str) -> tenure_testbed::Output {
    tenant.create(&group(tenant, kind, "told", &json!({"queue": "short"}))).await;
    let patch = json!({"spec": {"queue": "long", "minMember": 3}}).to_string();
    tenant.kubectl(&["patch", &resource(kind), "told", "--type=merge", "-p", &patch], "").await
}

#[tokio::test]
async fn webhook_sets_the_queue_back_and_lets_the_rest_of_the_write_pass() {
    let tenant = &Tenant::new(up().await).await;
    for kind in KINDS {
        let output = moved(tenant, kind).await;
        let expected = "Warning: tenure: spec.queue: \"long\" was set back to \"short\": only trusted writers may change it (see tenancy.trustedWriters in Tenure's configuration)\n";
        assert_eq!(output.stderr, expected);
        output.success().unwrap();
        let get = ["get", &*resource(kind), "told", "-o=jsonpath={.spec.queue} {.spec.minMember}"];
        assert_eq!(tenant.kubectl(&get, "").await.success().unwrap(), "short 3", "{kind}");
    }
}

#[tokio::test]
async fn policy_refuses_another_queue_while_the_webhook_is_down() {
    let tenant = &Tenant::new(down().await).await;
    for kind in KINDS {
        let output = moved(tenant, kind).await;
        let user = tenant.user();
        let expected = format!(
            "spec.queue: Invalid value: \"long\": must stay \"short\" after the PodGroup was created: create it again instead, or have user \"{user}\" added to tenancy.trustedWriters of Tenure's chart\n"
        );
        assert!(output.stderr.ends_with(&expected), "{}", output.stderr);
        assert!(!output.status.success());
    }
}

#[tokio::test]
async fn trusted_writer_moves_a_pod_group() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        for kind in KINDS {
            let moves = tenant.create(&group(tenant, kind, "moves", &json!({"queue": "short"}))).await;
            for queue in ["long", "other"] {
                tenant.as_admin().patch(&moves, &json!({"spec": {"queue": queue}})).await;
                assert_eq!(tenant.field(&moves, "spec.queue").await, queue, "{kind}");
            }
        }
    })
    .await;
}

/// A status that says that the group of this kind has started.
fn started(kind: &str) -> Value {
    let past = "2026-01-02T03:04:05Z";
    if kind.starts_with("scheduling.run.ai") {
        json!({"resourcesStatus": {"allocated": {"cpu": "1"}}})
    } else {
        json!({"conditions": [{
            "type": "GroupScheduled", "status": "True", "lastTransitionTime": past, "reason": "a", "message": "a",
        }]})
    }
}

async fn assert_no_stamp(world: &World, name: &str) {
    let tenant = &Tenant::new(world).await;
    for kind in KINDS {
        let mut forged = group(tenant, kind, name, &json!({"queue": "short"}));
        forged["spec"]["minMember"] = json!(9);
        forged["status"] = started(kind);
        for _ in 0..3 {
            let created = tenant.create(&forged).await;
            assert!(!created.annotations().contains_key("kai.scheduler/last-start-timestamp"), "{created:?}");
            tenant.delete(&created).await;
        }
    }
}

#[tokio::test]
async fn forged_status_of_a_pod_group_that_is_created_makes_no_stamp() {
    in_both(async |world| assert_no_stamp(world, "forged").await).await;
}

/// The pods run on in the queue that the first group named, from their own start.
#[tokio::test]
async fn pod_group_that_is_deleted_and_made_again_gains_nothing() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let mut pods = Vec::new();
        for (number, kind) in KINDS.into_iter().enumerate() {
            let first = tenant.create(&group(tenant, kind, "again", &json!({"queue": "short"}))).await;
            let [labels, annotations] = member(kind, "again");
            pods.push(bound(tenant, &format!("pod-{number}"), &labels, &annotations).await);
            tenant.delete(&first).await;
            let mut another = group(tenant, kind, "again", &json!({"queue": "long"}));
            another["spec"]["minMember"] = json!(7);
            another["status"] = json!({"phase": "Running"});
            let gone = async || Ok(tenant.try_create(&another).await.ok());
            eventually("another group of that name", DEADLINE, gone).await.unwrap();
        }
        for pod in &pods {
            await_ended(tenant, pod).await;
        }
    })
    .await;
}

/// A keeper that starts later knows the queue by that label alone.
#[tokio::test]
async fn the_queue_that_a_pod_group_named_is_noted_on_its_bound_pods_for_good() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        for (number, (kind, family)) in
            KINDS.into_iter().zip(["scheduling.run.ai", "scheduler.tensorstack.dev"]).enumerate()
        {
            let named = tenant.create(&group(tenant, kind, "named", &json!({"queue": "long"}))).await;
            let [labels, annotations] = member(kind, "named");
            let pod = bound(tenant, &format!("pod-{number}"), &labels, &annotations).await;
            await_evidence(tenant, &pod, &json!({"queues": {family: "long"}})).await;
            tenant.delete(&named).await;
            tenant.create(&group(tenant, kind, "named", &json!({"queue": "missing"}))).await;
            let removed = json!({"metadata": {"annotations": {"tenure.dev/evidence": null}}});
            assert_eq!(tenant.try_patch(&pod, &removed).await.unwrap_err().code, 403, "{kind}");
        }
    })
    .await;
}

/// Kubernetes counts bytes, and a character may have four.
#[tokio::test]
async fn annotations_of_a_pod_leave_room_for_its_evidence() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let words = "metadata.annotations: Too long: may not be more than 245760 bytes, keys and values together, or more than 10000 annotations: the rest of the 262144 bytes that Kubernetes allows is for annotations of Tenure's: shorten or remove annotations";
        let most = 245_760 - "pod-group-namenamedexample.com/full".len();
        let full = |filling: String| json!({"pod-group-name": "named", "example.com/full": filling});
        let mut many = json!({});
        for number in 0..=10_000 {
            many[format!("a{number}")] = json!("");
        }
        for annotations in [full("x".repeat(most + 1)), full("\u{1f600}".repeat(most / 4 + 1)), many] {
            let refused = tenant.try_create(&pod(tenant, "full", &json!({}), &annotations)).await.unwrap_err();
            assert!(refused.message.ends_with(words), "{}", refused.message);
        }
        tenant.create(&group(tenant, KINDS[0], "named", &json!({"queue": "long"}))).await;
        let full = bound(tenant, "full", &json!({}), &full("x".repeat(most))).await;
        let more = json!({"metadata": {"annotations": {"a": ""}}});
        let refused = tenant.try_patch(&full, &more).await.unwrap_err();
        assert!(refused.message.ends_with(words), "{}", refused.message);
        let admin = Asker::new(world, "person", &[MASTERS]).await.sees(tenant.name());
        let refused = admin.try_patch_subresource(&full, "status", &more).await.unwrap_err();
        assert!(refused.message.contains(words), "{}", refused.message);
        tenant.patch(&full, &json!({"metadata": {"labels": {"app": "b"}}})).await;
        await_evidence(tenant, &full, &json!({"queues": {"scheduling.run.ai": "long"}})).await;
    })
    .await;
}

#[tokio::test]
async fn pod_that_no_evidence_fits_into_ends_after_all_tries() {
    let tenant = &Tenant::new(up().await).await;
    let [labels, annotations] = member(KINDS[0], "later");
    let mut full = pod(tenant, "full", &labels, &annotations);
    full["spec"]["containers"][0]["env"] = json!([{"name": "FULL", "value": "x".repeat(1_400_000)}]);
    let full = tenant.create(&full).await;
    let runs = async || Ok((tenant.field(&full, "status.phase").await == "Running").then_some(()));
    eventually("the pod to run", DEADLINE, runs).await.unwrap();
    fill(tenant, &full).await;
    // from now on the pod lacks evidence
    tenant.create(&group(tenant, KINDS[0], "later", &json!({"queue": "long"}))).await;
    await_ended(tenant, &full).await;
    let expected = "Pod/full: Deleted because the pod is too large for annotation tenure.dev/evidence, which bounds its run. Create it again with a smaller spec, or with fewer labels and annotations";
    assert_eq!(tenant.await_events_of("EvidenceRefused", 1).await, [expected]);
}

/// Annotates a pod until the API server stores no more. Leaves the few bytes that a deletion takes.
async fn fill(tenant: &Tenant<'_>, pod: &DynamicObject) {
    let full = |length: usize| json!({"metadata": {"annotations": {"example.com/full": "x".repeat(length)}}});
    let (mut fits, mut too_long) = (0, 200_000);
    while fits + 1 < too_long {
        let length = usize::midpoint(fits, too_long);
        match tenant.try_patch(pod, &full(length)).await {
            Ok(_) => fits = length,
            Err(refused) => {
                assert_eq!(refused.message, "etcdserver: request is too large");
                too_long = length;
            }
        }
    }
    tenant.patch(pod, &full(fits - 60)).await;
}

/// Else no annotation had room for evidence of the queue.
#[tokio::test]
async fn pod_group_names_no_queue_that_is_longer_than_a_name() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let named =
            |kind: &str, length: usize| group(tenant, kind, "named", &json!({"queue": "x".repeat(length)}));
        for kind in KINDS {
            let refused = tenant.try_create(&named(kind, 254)).await.unwrap_err();
            let words =
                "spec.queue: Too long: may not be more than 253 characters: no queue has a longer name";
            assert!(refused.message.ends_with(words), "{kind}: {}", refused.message);
            tenant.create(&named(kind, 253)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_own_ceiling_that_was_removed_still_ends_a_bound_pod() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let labels = json!({"kai.scheduler/queue": "long"});
        let pod = bound(tenant, "pod", &labels, &json!({"tenure.dev/max-duration": "1h"})).await;
        let shorter = |own: Value| json!({"metadata": {"annotations": {"tenure.dev/max-duration": own}}});
        tenant.patch(&pod, &shorter(json!("15s"))).await;
        // the keeper has seen it once the end is told, and says so by itself when it goes
        let removed = async || {
            tenant.patch(&pod, &shorter(json!("15s"))).await;
            tenant.patch(&pod, &shorter(Value::Null)).await;
            Ok(evidence(tenant, &pod).await.map(drop))
        };
        eventually("the evidence", DEADLINE, removed).await.unwrap();
        assert_eq!(evidence(tenant, &pod).await, Some(json!({"maxDuration": "15s"})));
        await_ended(tenant, &pod).await;
    })
    .await;
}

async fn evidence(tenant: &Tenant<'_>, pod: &DynamicObject) -> Option<Value> {
    let text = tenant.find(pod).await.annotations().get("tenure.dev/evidence").cloned();
    text.map(|text| serde_json::from_str(&text).unwrap())
}

async fn await_evidence(tenant: &Tenant<'_>, pod: &DynamicObject, expected: &Value) {
    let noted = async || Ok(evidence(tenant, pod).await.filter(|noted| noted == expected).map(drop));
    eventually("the evidence", DEADLINE, noted).await.unwrap();
}

/// The pods' own labels name the queue that they run in.
#[tokio::test]
async fn pod_group_that_is_made_for_running_pods_does_not_lengthen_their_run() {
    in_both(async |world| {
        let tenant = &Tenant::new(world).await;
        let mut pods = Vec::new();
        for (number, (kind, label)) in KINDS.into_iter().zip(QUEUE_LABELS).enumerate() {
            let [mut labels, annotations] = member(kind, "late");
            labels[label] = json!("short");
            let pod = bound(tenant, &format!("pod-{number}"), &labels, &annotations).await;
            // the API server writes times in seconds
            let later = async || {
                let probe = tenant.create(&group(tenant, kind, "probe", &json!({}))).await;
                tenant.delete(&probe).await;
                let at = probe.metadata.creation_timestamp;
                Ok((at > Some(scheduled_at(tenant, &pod).await)).then_some(()))
            };
            eventually("the next second", DEADLINE, later).await.unwrap();
            tenant.create(&group(tenant, kind, "late", &json!({"queue": "long"}))).await;
            pods.push(pod);
        }
        for pod in &pods {
            await_ended(tenant, pod).await;
        }
    })
    .await;
}

async fn scheduled_at(tenant: &Tenant<'_>, pod: &DynamicObject) -> Time {
    let conditions = tenant.field(pod, "status.conditions").await;
    let conditions = conditions.as_array().unwrap();
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
    serde_json::from_value(scheduled["lastTransitionTime"].clone()).unwrap()
}
