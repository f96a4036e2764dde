//! What runs have used: the record's ConfigMap, and who may read and write it.

use serde_json::{Value, json};

use crate::{
    accepted, find, kinds, render,
    values::{assert_refused, config},
};

const NAME: &str = "test-tenure-usage";

fn usage(values: &Value) -> Value {
    json!({"usage": values})
}

fn flags(objects: &[Value]) -> String {
    let keeper = find(objects, "Deployment", "test-tenure-keeper");
    keeper.pointer("/spec/template/spec/containers/0/args").unwrap().to_string()
}

#[tokio::test]
async fn nothing_is_counted_by_default_or_in_a_dry_run() {
    for values in [json!({}), usage(&json!({"enabled": false}))] {
        let objects = render("test", &values).await;
        assert_eq!(kinds(&objects).get("Role"), kinds(&render("test", &json!({})).await).get("Role"));
        assert!(!flags(&objects).contains("usage-config-map"));
        assert_eq!(config(&values).await.get("usage"), None);
    }
    let dry = json!({"usage": {"enabled": true}, "keeper": {"dryRun": true}});
    assert!(!render("test", &dry).await.iter().any(|object| object["metadata"]["name"] == NAME));
}

#[tokio::test]
async fn keeper_may_change_its_record_alone_and_readers_may_read_it() {
    let reader = json!({"kind": "Group", "name": "admins", "apiGroup": "rbac.authorization.k8s.io"});
    let values = usage(&json!({"enabled": true, "resources": ["cpu"], "readers": [reader]}));
    let objects = accepted(&values).await;
    let map = find(&objects, "ConfigMap", NAME);
    assert_eq!(map["metadata"]["annotations"], json!({"helm.sh/resource-policy": "keep"}));
    assert_eq!(map.get("data"), None, "Helm must not touch what the keeper writes");
    let rule = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": verbs}]);
    let rules = find(&objects, "Role", "test-tenure-keeper")["rules"].as_array().unwrap();
    assert!(rules.contains(&rule(&["get", "patch"])[0]), "{rules:?}");
    let devices = json!([
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses"], "verbs": ["get", "list"]},
    ]);
    let rules = find(&objects, "ClusterRole", "test-tenure-keeper")["rules"].as_array().unwrap();
    assert!(devices.as_array().unwrap().iter().all(|rule| rules.contains(rule)), "{rules:?}");
    let readers = "test-tenure-usage-reader";
    assert_eq!(find(&objects, "Role", readers)["rules"], rule(&["get"]));
    assert_eq!(find(&objects, "RoleBinding", readers)["subjects"], json!([reader]));
    assert!(flags(&objects).contains("--usage-config-map=test-tenure-usage"), "{}", flags(&objects));
    assert_eq!(config(&values).await["usage"], json!({"resources": ["cpu"]}));
}

#[tokio::test]
async fn value_of_the_usage_that_cannot_be_meant_is_refused_by_its_name() {
    let many: Vec<String> = (0..17).map(|number| format!("example.com/{number}")).collect();
    assert_refused(&[
        (usage(&json!({"enable": true})), "'/usage': additional properties 'enable' not allowed"),
        (usage(&json!({"resources": ["a b"]})), "'/usage/resources/0'"),
        (usage(&json!({"resources": many})), "'/usage/resources'"),
        (usage(&json!({"readers": [{"kind": "Team", "name": "a"}]})), "'/usage/readers/0/kind'"),
    ])
    .await;
}
