//! The effects of the values for Kueue.

use serde_json::{Value, json};

use crate::{
    find, render,
    rights::{granted_to, rights},
    values::{assert_refused, config},
};

#[tokio::test]
async fn without_kueue_the_keeper_has_no_right_to_workloads() {
    let off = json!({"kueue": {"enabled": false}});
    let granted = granted_to("keeper", &render("test", &off).await);
    let taken = rights()
        .difference(&granted)
        .filter(|right| right.starts_with("keeper"))
        .cloned()
        .collect::<Vec<_>>();
    let expected =
        ["get", "list", "patch", "watch"].map(|verb| format!("keeper {verb} workloads.kueue.x-k8s.io"));
    assert_eq!(taken, expected);
    assert_eq!(config(&off).await["kueue"]["enabled"], false);
}

#[tokio::test]
async fn queues_of_kueues_restart_the_programs_and_satisfy_a_namespace_that_requires_a_queue() {
    let rows = json!([
        {"localQueue": "team-a/main", "queue": "research"},
        {"clusterQueue": "gpu", "queue": "shared"},
    ]);
    let values = json!({"kueue": {"queues": rows}, "tenancy": {"requireQueue": {"matchLabels": {"a": "b"}}}});
    assert_eq!(config(&values).await["kueue"], json!({"enabled": true, "queues": rows}));
    let objects = render("test", &values).await;
    for name in ["test-tenure-keeper", "test-tenure-webhook"] {
        let annotations = find(&objects, "Deployment", name).pointer("/spec/template/metadata/annotations");
        assert!(annotations.unwrap()["checksum/kueue-queues"].is_string(), "{name}");
    }
    let policy = find(&objects, "ValidatingAdmissionPolicy", "test-tenure-require-queue");
    let variables = policy.pointer("/spec/variables").and_then(Value::as_array).unwrap();
    for name in ["names", "named"] {
        let of_name = variables.iter().find(|variable| variable["name"] == name).unwrap();
        let expression = of_name["expression"].as_str().unwrap();
        assert!(
            expression.contains(r#"["team-a/main"].exists("#) && expression.contains(r#"in ["gpu"]"#),
            "{expression}"
        );
    }
}

#[tokio::test]
async fn value_for_kueue_that_cannot_be_meant_is_refused_by_its_name() {
    let queues = |row: Value| json!({"kueue": {"queues": [row]}});
    let table = [
        (
            queues(json!({"localQueue": "a", "clusterQueue": "a", "queue": "q"})),
            "'/kueue/queues/0': 'oneOf' failed",
        ),
        (queues(json!({"localQueue": "a"})), "'/kueue/queues/0': missing property 'queue'"),
        (queues(json!({"localQueue": "A", "queue": "q"})), "'/kueue/queues/0/localQueue'"),
        (json!({"kueue": {"enabled": "yes"}}), "'/kueue/enabled': got string, want boolean"),
    ];
    assert_refused(&table).await;
}
