//! The test that helm runs.

use serde_json::{Value, json};

use crate::{NAMESPACE, assert_accepted, find, kinds, kubectl, parse, render, shared, template};

#[tokio::test]
async fn a_test_creates_a_queue_and_an_extension_in_a_dry_run_with_rights_of_its_own() {
    let values = json!({"test": {"enabled": true, "image": "example.com/kubectl:1"}});
    let (cluster, show) = (shared().await, ["--show-only", "templates/tests/queue.yaml"]);
    let rendered = template("hooked", &values, &show).await.success().unwrap();
    // in a dry run it isn't there for the pod
    kubectl(cluster, &["create", "serviceaccount", "hooked-tenure-test", "-n", NAMESPACE], "").await;
    assert_accepted(&rendered).await;
    let objects = parse(&rendered);
    let one =
        ["ClusterRole", "ClusterRoleBinding", "ConfigMap", "Pod", "ServiceAccount"].map(|kind| (kind, 1));
    assert_eq!(kinds(&objects), one.into());
    for object in &objects {
        let hook = object.pointer("/metadata/annotations/helm.sh~1hook").and_then(Value::as_str);
        assert_eq!(hook, Some("test"), "{object}");
    }
    let pod = find(&objects, "Pod", "hooked-tenure-test");
    let container = pod.pointer("/spec/containers/0").unwrap();
    assert_eq!(container["image"], "example.com/kubectl:1");
    assert!(container["args"].as_array().unwrap().contains(&json!("--dry-run=server")), "{container}");
    let rules = find(&objects, "ClusterRole", "hooked-tenure-test")["rules"].clone();
    let create =
        |group, resource| json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
    assert_eq!(rules, json!([create("scheduling.run.ai", "queues"), create("tenure.dev", "extensions")]));
    let map = find(&objects, "ConfigMap", "hooked-tenure-test");
    let asked = parse(map.pointer("/data/queue.yaml").unwrap().as_str().unwrap());
    let kind = |object: &Value| json!([object["apiVersion"], object["kind"]]);
    let kinds: Vec<_> = asked.iter().map(kind).collect();
    assert_eq!(
        kinds,
        [json!(["scheduling.run.ai/v3alpha1", "Queue"]), json!(["tenure.dev/v1alpha1", "Extension"])]
    );
}

#[tokio::test]
async fn with_delegation_the_test_creates_its_queue_below_a_missing_one_that_alone_its_account_may_update() {
    let values = json!({"test": {"enabled": true}, "delegation": {"enabled": true}});
    let objects = render("hooked", &values).await;
    let rules = &find(&objects, "ClusterRole", "hooked-tenure-test")["rules"];
    let parent = "hooked-tenure-test-parent";
    let update = json!({
        "apiGroups": ["scheduling.run.ai"], "resources": ["queues"], "resourceNames": [parent], "verbs": ["update"],
    });
    assert_eq!((rules.as_array().map(Vec::len), rules.get(1)), (Some(3), Some(&update)));
    let map = find(&objects, "ConfigMap", "hooked-tenure-test");
    let asked = parse(map.pointer("/data/queue.yaml").unwrap().as_str().unwrap());
    assert_eq!(asked.first().unwrap()["spec"], json!({"parentQueue": parent}));
}

#[tokio::test]
async fn without_it_there_is_no_hook() {
    let objects = render("test", &json!({})).await;
    let hook =
        |object: &&Value| object.pointer("/metadata/annotations/helm.sh~1hook") == Some(&json!("test"));
    assert_eq!(objects.iter().filter(hook).count(), 0);
}
