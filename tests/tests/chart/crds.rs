//! The definition of queues of the run.ai family, and its owner.

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tenure_testbed::Cluster;
use tenure_tests::pages::{commands, run};

use crate::{CHART, NAMESPACE, arguments, find, helm, kinds, kubectl, render, start_api_server, template};

const CRD: &str = "queues.scheduling.run.ai";
const WEBHOOK: &str = "test-tenure-webhook";

/// The client configuration by which the API server calls the converter.
fn converter(objects: &[Value]) -> &Value {
    let definition = find(objects, "CustomResourceDefinition", CRD);
    assert_eq!(definition.pointer("/spec/conversion/strategy"), Some(&json!("Webhook")));
    definition.pointer("/spec/conversion/webhook/clientConfig").unwrap()
}

/// The client configuration by which it calls the reviewer.
fn reviewer(objects: &[Value]) -> &Value {
    let configuration = find(objects, "ValidatingWebhookConfiguration", WEBHOOK);
    configuration.pointer("/webhooks/0/clientConfig").unwrap()
}

fn annotation<'a>(objects: &'a [Value], key: &str) -> Option<&'a Value> {
    find(objects, "CustomResourceDefinition", CRD).pointer("/metadata/annotations").unwrap().get(key)
}

#[tokio::test]
async fn the_webhook_of_the_release_converts_where_v2_is_served() {
    for url in ["", "https://10.0.0.7:9443", "https://10.0.0.7:9443/validate"] {
        let objects = render("test", &json!({"crds": {"serveV2": true}, "webhook": {"url": url}})).await;
        let converter = converter(&objects);
        let expected = if url.is_empty() {
            json!({"name": WEBHOOK, "namespace": NAMESPACE, "port": 443, "path": "/convert"})
        } else {
            json!("https://10.0.0.7:9443/convert")
        };
        let key = if url.is_empty() { "service" } else { "url" };
        assert_eq!(converter.get(key), Some(&expected));
        assert_eq!(converter.as_object().unwrap().len(), 1, "{converter}");
        assert_eq!(annotation(&objects, "helm.sh/resource-policy"), Some(&json!("keep")));
    }
}

#[tokio::test]
async fn cert_manager_injects_its_ca_into_the_definition_too() {
    let values = json!({"crds": {"serveV2": true}, "webhook": {"certificate": {"mode": "certManager"}}});
    let objects = render("test", &values).await;
    let from = json!(format!("{NAMESPACE}/{WEBHOOK}"));
    assert_eq!(annotation(&objects, "cert-manager.io/inject-ca-from"), Some(&from));
    assert_eq!(converter(&objects).get("caBundle"), None);
    for values in [json!({"crds": {"serveV2": true}}), json!({"webhook": values["webhook"]})] {
        let others = render("test", &values).await;
        assert_eq!(annotation(&others, "cert-manager.io/inject-ca-from"), None);
    }
}

#[tokio::test]
async fn the_ca_of_an_existing_secret_is_in_the_definition_too() {
    let secret = json!({"name": "mine", "caBundle": "-----BEGIN CERTIFICATE-----"});
    let certificate = json!({"mode": "existingSecret", "existingSecret": secret});
    let values = json!({"crds": {"serveV2": true}, "webhook": {"certificate": certificate}});
    let objects = render("test", &values).await;
    let ca = converter(&objects).get("caBundle");
    assert!(ca.is_some());
    assert_eq!(ca, reviewer(&objects).get("caBundle"));
}

#[tokio::test]
async fn who_owns_the_definition_says_which_version_is_read() {
    for (ours, version) in [(true, "v3alpha1"), (false, "v2")] {
        let values = json!({"crds": {"runai": ours, "tensorstack": false}});
        let objects = render("test", &values).await;
        assert_eq!(kinds(&objects).get("CustomResourceDefinition"), Some(&(1 + usize::from(ours))));
        let configuration = find(&objects, "ValidatingWebhookConfiguration", WEBHOOK);
        let versions = configuration.pointer("/webhooks/0/rules/0/apiVersions");
        assert_eq!(versions, Some(&json!([version])));
        for component in ["webhook", "keeper"] {
            let deployment = find(&objects, "Deployment", &format!("test-tenure-{component}"));
            let flag = format!("--runai-queue-version={version}");
            assert!(arguments(deployment).contains(&flag), "{component}");
        }
    }
}

/// The patch that is left to the webhook where Helm doesn't install the definition.
fn patch(objects: &[Value]) -> Option<Value> {
    let config = find(objects, "ConfigMap", "test-tenure-config").pointer("/data/conversion.json");
    config.map(|text| serde_json::from_str(text.as_str().unwrap()).unwrap())
}

/// True if the webhook is told to keep the definition, and has the right to.
fn keeps_the_definition(objects: &[Value]) -> bool {
    let deployment = find(objects, "Deployment", WEBHOOK);
    let flagged = arguments(deployment).contains(&"--conversion-patch-file=/config/conversion.json".into());
    let rules = find(objects, "ClusterRole", WEBHOOK).get("rules").unwrap().as_array().unwrap();
    let right = json!({
        "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
        "resourceNames": [CRD], "verbs": ["get", "patch"],
    });
    // in any case it writes the CA into one that it converts
    let converts = arguments(deployment).contains(&format!("--converted-definitions={CRD}"));
    let may = rules.contains(&right);
    assert_eq!((flagged || converts, flagged), (may, patch(objects).is_some()));
    assert!(may || !rules.iter().any(|rule| rule.to_string().contains("apiextensions")), "{rules:?}");
    flagged
}

#[tokio::test]
async fn a_definition_that_helm_does_not_install_is_patched_by_the_webhook() {
    let service = json!({"name": WEBHOOK, "namespace": NAMESPACE, "port": 443, "path": "/convert"});
    for (webhook, expected, injected) in [
        (json!({}), json!({"service": service, "url": null}), Value::Null),
        (
            json!({"certificate": {"mode": "certManager"}}),
            json!({"service": service, "url": null}),
            json!(format!("{NAMESPACE}/{WEBHOOK}")),
        ),
    ] {
        let crds = json!({"install": false, "serveV2": true});
        let objects = render("test", &json!({"crds": crds, "webhook": webhook})).await;
        assert_eq!(kinds(&objects).get("CustomResourceDefinition"), None);
        assert!(keeps_the_definition(&objects));
        let mut patch = patch(&objects).unwrap();
        let client_config = patch.pointer_mut("/spec/conversion/webhook/clientConfig").unwrap();
        let ca = client_config.as_object_mut().unwrap().remove("caBundle");
        assert_eq!(ca.as_ref(), reviewer(&objects).get("caBundle"));
        assert_eq!(*client_config, expected);
        // an annotation that another mode has left would have a second writer of the CA
        let annotations = json!({"cert-manager.io/inject-ca-from": injected});
        assert_eq!(patch.pointer("/metadata/annotations"), Some(&annotations));
        let mutating = find(&objects, "MutatingWebhookConfiguration", WEBHOOK).to_string();
        assert!(mutating.contains("runai-queues-v2.tenure.dev"));
    }
    let crds = json!({"install": false, "serveV2": true});
    let elsewhere = json!({"crds": crds, "webhook": {"url": "https://10.0.0.7:9443"}});
    let patch = patch(&render("test", &elsewhere).await).unwrap();
    let client_config = patch.pointer("/spec/conversion/webhook/clientConfig").unwrap();
    assert_eq!(client_config.get("url"), Some(&json!("https://10.0.0.7:9443/convert")));
    assert_eq!(client_config.get("service"), Some(&Value::Null));
}

#[tokio::test]
async fn who_installs_the_definitions_and_which_version_is_read_are_two_things() {
    for (values, definitions, version, patched) in [
        (json!({}), 2, "v3alpha1", false),
        (json!({"crds": {"tensorstack": true}}), 3, "v3alpha1", false),
        (json!({"crds": {"extensions": false}}), 1, "v3alpha1", false),
        (json!({"crds": {"serveV2": true}}), 2, "v3alpha1", false),
        (json!({"crds": {"install": false}}), 0, "v3alpha1", false),
        (json!({"crds": {"install": false, "serveV2": true}}), 0, "v3alpha1", true),
        (json!({"crds": {"runai": false}}), 1, "v2", false),
        (json!({"crds": {"runai": false}, "queueVersion": "v3alpha1"}), 1, "v3alpha1", false),
        (json!({"crds": {"install": false}, "queueVersion": "v2"}), 0, "v2", true),
        (json!({"crds": {"install": false, "runai": false}}), 0, "v2", false),
    ] {
        let objects = render("test", &values).await;
        assert_eq!(
            kinds(&objects).get("CustomResourceDefinition").copied().unwrap_or(0),
            definitions,
            "{values}"
        );
        assert_eq!(keeps_the_definition(&objects), patched, "{values}");
        for component in ["webhook", "keeper"] {
            let deployment = find(&objects, "Deployment", &format!("test-tenure-{component}"));
            let flag = format!("--runai-queue-version={version}");
            assert!(arguments(deployment).contains(&flag), "{values}: {component}");
        }
    }
}

/// Everything that is there for v2 alone.
const OF_V2: [&str; 5] = [
    "/convert",
    "--converted-definitions",
    "runai-queues-v2.tenure.dev",
    "apiextensions.k8s.io\"",
    "conversion.json",
];

#[tokio::test]
async fn v3alpha1_alone_is_served_unless_v2_is_asked_for_or_read() {
    for (values, serves) in [
        (json!({}), false),
        (json!({"crds": {"serveV2": false}}), false),
        (json!({"webhook": {"certificate": {"mode": "certManager"}}}), false),
        (json!({"webhook": {"url": "https://10.0.0.7"}}), false),
        (json!({"crds": {"serveV2": true}}), true),
        (json!({"queueVersion": "v2"}), true),
    ] {
        let objects = render("test", &values).await;
        let definition = find(&objects, "CustomResourceDefinition", CRD);
        let versions = definition["spec"]["versions"].as_array().unwrap().iter();
        let served: Vec<_> = versions.filter(|version| version["served"] == true).collect();
        assert_eq!(served.len(), 1 + usize::from(serves), "{values}");
        assert_eq!(served[0]["name"], "v3alpha1", "{values}");
        let strategy = if serves { "Webhook" } else { "None" };
        assert_eq!(definition["spec"]["conversion"]["strategy"], strategy, "{values}");
        if !serves {
            assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}), "{values}");
            let all = json!(objects).to_string();
            for of_v2 in OF_V2 {
                assert!(!all.contains(of_v2), "{values}: {of_v2}");
            }
        }
    }
}

#[tokio::test]
async fn a_wish_for_v2_that_can_not_be_granted_is_refused_with_what_to_set() {
    let kai = format!("{CHART}/values-kai.yaml");
    for (values, flags, expected) in [
        (json!({"crds": {"serveV2": true, "runai": false}}), &[][..], "Leave crds.serveV2 out"),
        (
            json!({"crds": {"serveV2": true}}),
            &["--values", &kai],
            "crds.serveV2 must not be true where crds.runai is false",
        ),
        (json!({"crds": {"serveV2": false}, "queueVersion": "v2"}), &[], "set queueVersion to auto"),
        (json!({"crds": {"serveV2": "yes"}}), &[], "/crds/serveV2"),
    ] {
        let refused = template("test", &values, flags).await;
        assert!(
            !refused.status.success() && refused.stderr.contains(expected),
            "{values}: {}",
            refused.stderr
        );
    }
}

/// The versions that are served, the conversion between them, and whether an uninstall takes it out.
async fn served(cluster: &Cluster) -> String {
    let path = "--output=jsonpath={.spec.versions[?(@.served==true)].name} {.spec.conversion.strategy}";
    let versions = kubectl(cluster, &["get", "crd", CRD, path], "").await;
    let hooks = cluster.helm(&["get", "hooks", "tenure", "--namespace", NAMESPACE]).await.unwrap();
    let hook = if hooks.success().unwrap().contains("name: tenure-uninstall") { " hook" } else { "" };
    format!("{versions}{hook}")
}

#[tokio::test]
async fn v2_is_served_and_not_served_by_upgrades_and_rollbacks() {
    const ALONE: &str = "v3alpha1 None";
    const BOTH: &str = "v3alpha1 v2 Webhook hook";
    let cluster = &start_api_server("chart-served").await.unwrap();
    let release = async |verb: &str, serves: Value| {
        helm(cluster, verb, "tenure", &json!({"crds": {"serveV2": serves}}), &[]).await
    };
    release("install", json!("auto")).await.success().unwrap();
    assert_eq!(served(cluster).await, ALONE);
    release("upgrade", json!(true)).await.success().unwrap();
    // as it is after each install of an earlier chart
    assert_eq!(served(cluster).await, BOTH);
    // as the webhook writes it, which can't be up here
    let pem = json!(ByteString(cluster.authority().certificate_pem().into()));
    let ca = json!([{"op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle", "value": pem}]);
    let patch = ["patch", "crd", CRD, "--field-manager=tenure-webhook", "--type=json", "-p", &ca.to_string()];
    kubectl(cluster, &patch, "").await;
    release("upgrade", json!("auto")).await.success().unwrap();
    assert_eq!(served(cluster).await, BOTH);
    let rollback = ["rollback", "tenure", "1", "--namespace", NAMESPACE];
    for refused in [release("upgrade", json!(false)).await, cluster.helm(&rollback).await.unwrap()] {
        assert!(refused.stderr.contains("when strategy is not set to Webhook"), "{}", refused.stderr);
        assert!(served(cluster).await.starts_with("v3alpha1 v2 Webhook"));
    }
    run(cluster, &commands("queue-versions.md", "Stop serving v2").concat()).await;
    assert_eq!(served(cluster).await, ALONE);
    // no field has another owner that would be in Helm's way
    for (serves, expected) in [(json!("auto"), ALONE), (json!(true), BOTH), (json!("auto"), BOTH)] {
        let values = json!({"crds": {"serveV2": serves}});
        let upgrade = helm(cluster, "upgrade", "tenure", &values, &["--server-side=true"]).await;
        upgrade.success().unwrap();
        assert_eq!(served(cluster).await, expected, "{values}");
    }
    kubectl(cluster, &patch, "").await;
    cluster.helm(&[&rollback[..], &["--server-side=false"]].concat()).await.unwrap().success().unwrap();
    assert_eq!(served(cluster).await, ALONE);

    // a queue that is stored in v2 would lose what only a conversion brings
    let stored = r#"{"status": {"storedVersions": ["v2", "v3alpha1"]}}"#;
    kubectl(cluster, &["patch", "crd", CRD, "--subresource=status", "--type=merge", "-p", stored], "").await;
    let refused = release("upgrade", json!(false)).await;
    assert!(refused.stderr.contains("status.storedVersions of CRD"), "{}", refused.stderr);
    release("upgrade", json!("auto")).await.success().unwrap();
    assert_eq!(served(cluster).await, BOTH);
}
