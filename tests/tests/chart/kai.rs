//! The parts of KAI-Scheduler's configuration that are read, and the rights for that.

use serde_json::{Value, json};

use crate::{
    find, name_of, render,
    rights::{WATCHED, granted_to, triples},
    values::{assert_refused, config},
};

#[tokio::test]
async fn nothing_of_kais_is_read_by_default() {
    assert_eq!(config(&json!({})).await["kai"], Value::Null);
    let objects = render("test", &json!({})).await;
    assert!(objects.iter().all(|object| !name_of(object).ends_with("-kai")));
}

#[tokio::test]
async fn the_right_to_kais_file_is_for_that_one_alone() {
    let map = json!({"namespace": "kai-scheduler", "name": "scheduler-config"});
    let values = json!({"kai": {"configMap": map}});
    let expected = json!({"namespace": "kai-scheduler", "name": "scheduler-config", "key": "config.yaml"});
    assert_eq!(config(&values).await["kai"], json!({"configMap": expected}));
    let objects = render("test", &values).await;
    for kind in ["Role", "RoleBinding"] {
        let object = find(&objects, kind, "test-tenure-webhook-kai");
        assert_eq!(object["metadata"]["namespace"], "kai-scheduler");
    }
    let rules = &find(&objects, "Role", "test-tenure-webhook-kai")["rules"];
    let expected = json!([{
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["scheduler-config"],
        "verbs": ["list", "watch"],
    }]);
    assert_eq!(*rules, expected);
    let before = granted_to("webhook", &render("test", &json!({})).await);
    assert_eq!(granted_to("webhook", &objects), before, "and nowhere else");
}

#[tokio::test]
async fn shards_are_read_where_they_are_to_be_compared() {
    let values = json!({"kai": {"shards": true}});
    assert_eq!(config(&values).await["kai"], json!({"shards": true}));
    let before = granted_to("webhook", &render("test", &json!({})).await);
    let granted = granted_to("webhook", &render("test", &values).await);
    let more = granted.difference(&before).cloned().collect::<Vec<_>>();
    assert_eq!(more, triples("webhook", &["kai.scheduler"], &["schedulingshards"], WATCHED));
}

#[tokio::test]
async fn value_for_kai_that_cannot_be_meant_is_refused_by_its_name() {
    let map = |map: Value| json!({"kai": {"configMap": map}});
    let both = "kai.configMap must have both namespace and name, or neither";
    let table = [
        (map(json!({"name": "a"})), both),
        (map(json!({"namespace": "a"})), both),
        (map(json!({"namespace": "A", "name": "a"})), "'/kai/configMap/namespace'"),
        (map(json!({"namespace": "a", "name": "a", "key": "a/b"})), "'/kai/configMap/key'"),
        (json!({"kai": {"shards": "yes"}}), "'/kai/shards': got string, want boolean"),
    ];
    assert_refused(&table).await;
}
