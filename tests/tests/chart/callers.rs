//! The callers that the webhook answers.

use serde_json::{Value, json};

use crate::{PEM, accepted, arguments, find, render, values::assert_refused};

fn extender(mut values: Value) -> Value {
    values.as_object_mut().unwrap().insert("enabled".to_owned(), json!(true));
    json!({"schedulerExtender": values})
}

#[tokio::test]
async fn extender_without_clients_to_answer_is_refused_with_what_to_do() {
    let one = "must not both be set: leave one of them out";
    assert_refused(&[
        (extender(json!({})), "schedulerExtender.clientCA must be set"),
        (extender(json!({"clientCA": null, "allowAnonymous": null})), "docs/kube-scheduler.md"),
        (extender(json!({"clientCA": PEM, "clientCASecret": "mine"})), one),
        (
            extender(json!({"clientCA": PEM, "allowAnonymous": true})),
            "schedulerExtender.allowAnonymous must not be set beside",
        ),
        (extender(json!({"clientCA": "ca.crt"})), "'/schedulerExtender/clientCA'"),
        (extender(json!({"clientCASecret": "Mine"})), "'/schedulerExtender/clientCASecret'"),
        (extender(json!({"allowAnonymous": "yes"})), "'/schedulerExtender/allowAnonymous'"),
        (json!({"webhook": {"clientCA": PEM, "clientCASecret": "mine"}}), one),
    ])
    .await;
}

#[tokio::test]
async fn extender_on_the_network_of_nodes_answers_no_anonymous_caller() {
    let on_nodes = |of_extender: Value, url: &str| {
        let mut values = extender(of_extender);
        values["webhook"] = json!({"hostNetwork": true, "url": url});
        values
    };
    let anonymous = json!({"allowAnonymous": true});
    let words = "schedulerExtender.allowAnonymous must not be set with webhook.hostNetwork";
    assert_refused(&[(on_nodes(anonymous.clone(), ""), words)]).await;
    for accepted in [
        on_nodes(json!({"clientCA": PEM}), ""),
        on_nodes(json!({"clientCASecret": "mine"}), ""),
        // the webhook runs elsewhere
        on_nodes(anonymous.clone(), "https://10.0.0.7"),
        extender(anonymous),
        json!({"schedulerExtender": {"allowAnonymous": true}, "webhook": {"hostNetwork": true}}),
    ] {
        render("test", &accepted).await;
    }
}

#[tokio::test]
async fn authorities_are_mounted_where_the_flags_have_them() {
    let values = json!({
        "schedulerExtender": {"enabled": true, "clientCA": PEM}, "webhook": {"clientCASecret": "mine"},
    });
    let objects = accepted(&values).await;
    let config = find(&objects, "ConfigMap", "test-tenure-config");
    assert_eq!(config["data"]["scheduler-client-ca.crt"], PEM);
    let deployment = find(&objects, "Deployment", "test-tenure-webhook");
    let expected = [
        "--scheduler-client-ca-file=/config/scheduler-client-ca.crt",
        "--api-client-ca-file=/client-ca/api/ca.crt",
    ];
    let arguments = arguments(deployment);
    for argument in expected {
        assert!(arguments.contains(&argument.to_owned()), "{arguments:?}");
    }
    let spec = &deployment["spec"]["template"]["spec"];
    let volumes = spec["volumes"].as_array().unwrap();
    let secret = json!({"secretName": "mine", "items": [{"key": "ca.crt", "path": "ca.crt"}]});
    assert!(volumes.contains(&json!({"name": "api-client-ca", "secret": secret})), "{volumes:#?}");
    let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = json!({"name": "api-client-ca", "mountPath": "/client-ca/api", "readOnly": true});
    assert!(mounts.contains(&mount), "{mounts:#?}");
}

#[tokio::test]
async fn network_policy_admits_the_control_plane_and_metrics_and_must_not_admit_all() {
    let peers = json!([{"ipBlock": {"cidr": "10.0.0.0/28"}}]);
    let monitoring =
        json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]);
    let policy = |from: &Value, metrics: &Value| json!({"webhook": {"networkPolicy": {"enabled": true, "from": from, "metricsFrom": metrics}}});
    let objects = accepted(&policy(&peers, &monitoring)).await;
    let admitted = &find(&objects, "NetworkPolicy", "test-tenure-webhook")["spec"];
    let ingress = json!([
        {"ports": [{"port": "webhook"}], "from": peers}, {"ports": [{"port": "admin"}], "from": monitoring},
    ]);
    assert_eq!(admitted["ingress"], ingress);
    let pods = &find(&objects, "Deployment", "test-tenure-webhook")["spec"]["selector"];
    assert_eq!(&admitted["podSelector"], pods);

    let objects = render("test", &policy(&peers, &json!([]))).await;
    let admitted = &find(&objects, "NetworkPolicy", "test-tenure-webhook")["spec"];
    assert_eq!(admitted["ingress"], json!([{"ports": [{"port": "webhook"}], "from": peers}]));
    let closed = policy(&json!([]), &monitoring);
    assert_refused(&[(closed, "webhook.networkPolicy.from must not be empty")]).await;
    for (metrics, ingress) in [
        (json!([]), Value::Null),
        (monitoring.clone(), json!([{"ports": [{"port": "admin"}], "from": monitoring}])),
    ] {
        let on = json!({"keeper": {"networkPolicy": {"enabled": true, "metricsFrom": metrics}}});
        let objects = accepted(&on).await;
        let policy = &find(&objects, "NetworkPolicy", "test-tenure-keeper")["spec"];
        assert_eq!((&policy["ingress"], &policy["policyTypes"]), (&ingress, &json!(["Ingress"])));
        let pods = &find(&objects, "Deployment", "test-tenure-keeper")["spec"]["selector"];
        assert_eq!(&policy["podSelector"], pods);
    }
    let objects = render("test", &json!({})).await;
    assert!(!objects.iter().any(|object| object["kind"] == "NetworkPolicy"));
}
