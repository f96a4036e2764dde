//! Clients of v2 beside those of v3alpha1.

use serde_json::{Value, json};

use crate::{V2, V3, both::world, create, own_fields, queue, read, seen, write};

#[tokio::test]
async fn a_v2_client_that_knows_no_field_of_v3alpha1_loses_none() {
    let cluster = &world().await.cluster;
    create(cluster, &queue(V3, "kept", &json!({}), &own_fields())).await;
    let mut body = queue(V2, "kept", &Value::Null, &json!({"priority": 5}));
    body["metadata"]["resourceVersion"] =
        read(cluster, V2, "kept").await["metadata"]["resourceVersion"].take();
    let output = write(cluster, &["replace"], &body).await;
    let warning = "Warning: tenure: kept spec.maxDuration \"30d\", which v2 doesn't have: to remove it, use v3alpha1: kubectl edit queues.v3alpha1.scheduling.run.ai kept\n";
    assert!(output.stderr.contains(warning), "{}", output.stderr);
    let kept = output.stderr.matches("Warning: tenure: kept ").count();
    assert_eq!(kept, own_fields().as_object().unwrap().len(), "{}", output.stderr);
    output.success().unwrap();
    let mut expected = own_fields();
    expected["priority"] = json!(5);
    assert_eq!(seen(cluster, V3, "kept").await.0, expected);
}

/// The first example of the README.
pub fn example_of_the_readme() -> &'static str {
    let (_, example) = include_str!("../../../README.md").split_once("```yaml\n").unwrap();
    example.split("```").next().unwrap()
}

/// Kubernetes prefers a stable version to an alpha, so that is v2 where it is served.
#[tokio::test]
async fn the_queue_of_the_readme_is_found_by_its_kind_alone() {
    let cluster = &world().await.cluster;
    let apply = ["apply", "-f", "-"];
    let output = cluster.kubectl_with_input(&apply, example_of_the_readme()).await.unwrap();
    output.success().unwrap();
    for kind in ["queue", "queues", "rq"] {
        let get = ["get", kind, "research", "--output=jsonpath={.apiVersion} {.metadata.annotations}"];
        let found = cluster.kubectl(&get).await.unwrap().success().unwrap();
        assert!(found.starts_with("scheduling.run.ai/v2 "), "{found}");
        assert!(found.contains(r#""tenure.dev/max-duration":"2d""#), "{found}");
    }
    assert_eq!(read(cluster, V3, "research").await["spec"]["maxDuration"], "2d");
}

#[tokio::test]
async fn a_v2_client_may_change_what_it_knows() {
    let cluster = &world().await.cluster;
    create(
        cluster,
        &queue(V3, "changed", &json!({}), &json!({"maxDuration": "30d", "preemptMinRuntime": "2d"})),
    )
    .await;
    let patch = json!({
        "metadata": {"annotations": {"tenure.dev/max-duration": "20d"}}, "spec": {"preemptMinRuntime": "1h"},
    });
    let patch = patch.to_string();
    let patch = ["patch", V2, "changed", "--type=merge", "--patch", &patch];
    cluster.kubectl(&patch).await.unwrap().success().unwrap();
    // nor is the text of the old floor kept
    let expected = json!({"maxDuration": "20d", "preemptMinRuntime": "1h"});
    assert_eq!(seen(cluster, V3, "changed").await, (expected, Value::Null));
}

#[tokio::test]
async fn a_v2_client_may_write_a_notice_in_its_other_form() {
    let cluster = &world().await.cluster;
    let one = json!({"expiryNotice": "10m"});
    create(cluster, &queue(V3, "noticed", &json!({}), &one)).await;
    let (key, of_list) = ("tenure.dev/expiry-notice", "tenure.dev/expiry-notices");
    let list = r#"["1h","10m"]"#;
    for (annotations, expected) in [
        (json!({key: null, of_list: list}), json!({"expiryNotices": ["1h", "10m"]})),
        (json!({key: "10m", of_list: null}), one),
    ] {
        let patch = json!({"metadata": {"annotations": annotations}}).to_string();
        let patch = ["patch", V2, "noticed", "--type=merge", "--patch", &patch];
        let output = cluster.kubectl(&patch).await.unwrap();
        assert_eq!(output.stderr, "");
        output.success().unwrap();
        assert_eq!(seen(cluster, V3, "noticed").await, (expected, Value::Null));
    }
}

#[tokio::test]
async fn a_v2_client_can_not_remove_a_field_of_v3alpha1_and_the_answer_says_who_can() {
    let cluster = &world().await.cluster;
    create(cluster, &queue(V3, "removed", &json!({}), &json!({"maxDuration": "1h"}))).await;
    let annotate = ["annotate", V2, "removed", "tenure.dev/max-duration-"];
    let output = cluster.kubectl(&annotate).await.unwrap();
    assert!(output.stderr.contains("Warning: tenure: kept spec.maxDuration \"1h\""), "{}", output.stderr);
    assert_eq!(seen(cluster, V3, "removed").await.0, json!({"maxDuration": "1h"}));

    let patch = json!({"spec": {"maxDuration": null}}).to_string();
    let patch = ["patch", V3, "removed", "--type=merge", "--patch", &patch];
    let output = cluster.kubectl(&patch).await.unwrap();
    assert_eq!(output.stderr, "");
    output.success().unwrap();
    assert_eq!(seen(cluster, V2, "removed").await, (json!({}), Value::Null));
}

#[tokio::test]
async fn a_v2_client_can_not_write_a_status_with_the_rest_of_a_queue() {
    let cluster = &world().await.cluster;
    let annotations = json!({"tenure.dev/status": r#"{"workloads":{"running":"many"}}"#});
    create(cluster, &queue(V2, "unstated", &annotations, &json!({}))).await;
    assert_eq!(seen(cluster, V2, "unstated").await.1, Value::Null);
    let ours = json!({"workloads": {"running": 3}});
    let patch = json!({"status": ours}).to_string();
    let patch = ["patch", V3, "unstated", "--subresource=status", "--type=merge", "--patch", &patch];
    cluster.kubectl(&patch).await.unwrap().success().unwrap();
    for text in [r#"tenure.dev/status={"workloads":{"running":"many"}}"#, "tenure.dev/status-"] {
        let annotate = ["annotate", V2, "unstated", "--overwrite", text];
        cluster.kubectl(&annotate).await.unwrap().success().unwrap();
        assert_eq!(read(cluster, V3, "unstated").await["status"], ours);
    }
}

#[tokio::test]
async fn server_side_apply_works_in_both_versions_side_by_side() {
    let cluster = &world().await.cluster;
    let apply = async |manager: &str, resource: &str, spec: Value| {
        let manager = format!("--field-manager={manager}");
        let mut object = queue(resource, "applied", &Value::Null, &spec);
        object["metadata"].as_object_mut().unwrap().remove("annotations");
        let output = write(cluster, &["apply", "--server-side", &manager], &object).await;
        let said = output.stderr.clone();
        output.success().unwrap();
        said
    };
    apply("kai", V2, json!({"priority": 5, "displayName": "Applied"})).await;
    apply("tenure-admin", V3, json!({"maxDuration": "2d", "reclaimMinRuntime": "1d"})).await;
    let both = json!({
        "priority": 5, "displayName": "Applied", "maxDuration": "2d", "reclaimMinRuntime": "1d",
    });
    assert_eq!(seen(cluster, V3, "applied").await.0, both);
    // a field that one client drops is dropped for that client alone
    apply("kai", V2, json!({"priority": 6})).await;
    let both = json!({"priority": 6, "maxDuration": "2d", "reclaimMinRuntime": "1d"});
    assert_eq!(seen(cluster, V3, "applied").await.0, both);
    apply("tenure-admin", V3, json!({"maxDuration": "3d"})).await;
    assert_eq!(seen(cluster, V3, "applied").await.0, json!({"priority": 6, "maxDuration": "3d"}));
}

#[tokio::test]
async fn a_bad_v2_write_is_refused() {
    let cluster = &world().await.cluster;
    let annotated = |key: &str, text: &str| json!({format!("tenure.dev/{key}"): text});
    for (annotations, spec, expected) in [
        (Value::Null, json!({"preemptMinRuntime": "-5s"}), "spec.preemptMinRuntime: Invalid value: \"-5s\""),
        // with it in a list, no client that decodes durations as Go does could read the list
        (
            Value::Null,
            json!({"preemptMinRuntime": "1d"}),
            "spec.preemptMinRuntime: Invalid value: \"1d\": v2 has no days and weeks: must be 24h0m0s",
        ),
        (Value::Null, json!({"parentQueue": "bad"}), "a queue can't be its own parent"),
        (annotated("max-duration", "10 s"), json!({}), "spec.maxDuration: Invalid value: \"10 s\""),
        (
            annotated("max-duration-action", "Kill"),
            json!({}),
            "spec.maxDurationAction: Invalid value: \"Kill\"",
        ),
        (annotated("on-reversal", "Delete"), json!({}), "spec.onReversal: Invalid value: \"Delete\""),
        (annotated("over-ceiling", "Deny"), json!({}), "spec.overCeiling: Invalid value: \"Deny\""),
        (
            annotated("max-duration", "1h"),
            json!({"reclaimMinRuntime": "2h"}),
            "must not be longer than the queue's own maxDuration, 1h",
        ),
        (
            annotated("wait-for-pods-ready", r#"{"timeout":"0s"}"#),
            json!({}),
            "spec.waitForPodsReady.timeout: Invalid value: \"0s\"",
        ),
    ] {
        let output = write(cluster, &["create"], &queue(V2, "bad", &annotations, &spec)).await;
        assert!(!output.status.success() && output.stderr.contains(expected), "{}", output.stderr);
    }
}

#[tokio::test]
async fn an_annotation_that_can_not_be_a_field_stays_and_is_warned_of() {
    let cluster = &world().await.cluster;
    let annotations = json!({"tenure.dev/wait-for-pods-ready": "5m"});
    let said = create(cluster, &queue(V2, "leftover", &annotations, &json!({}))).await;
    let expected = "metadata.annotations[tenure.dev/wait-for-pods-ready]: has no effect in v3alpha1: set spec.waitForPodsReady, and remove the annotation: kubectl annotate queues.v3alpha1.scheduling.run.ai leftover tenure.dev/wait-for-pods-ready-";
    assert_eq!(said, [expected]);
    for resource in [V2, V3] {
        assert_eq!(seen(cluster, resource, "leftover").await, (json!({}), annotations.clone()));
    }
    let (_, remedy) = expected.split_once("kubectl ").unwrap();
    let output = cluster.kubectl(&remedy.split(' ').collect::<Vec<_>>()).await.unwrap();
    assert_eq!(output.stderr, "");
    assert_eq!(seen(cluster, V2, "leftover").await, (json!({}), Value::Null));
}
