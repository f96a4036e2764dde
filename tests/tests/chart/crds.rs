//! The definition of queues of the run.ai family, and its owner.

use serde_json::{Value, json};

use crate::{NAMESPACE, arguments, find, kinds, render};

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
async fn the_webhook_of_the_release_converts() {
    for url in ["", "https://10.0.0.7:9443", "https://10.0.0.7:9443/validate"] {
        let objects = render("test", &json!({"webhook": {"url": url}})).await;
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
    let objects = render("test", &json!({"webhook": {"certificate": {"mode": "certManager"}}})).await;
    let from = json!(format!("{NAMESPACE}/{WEBHOOK}"));
    assert_eq!(annotation(&objects, "cert-manager.io/inject-ca-from"), Some(&from));
    assert_eq!(converter(&objects).get("caBundle"), None);
    let own = render("test", &json!({})).await;
    assert_eq!(annotation(&own, "cert-manager.io/inject-ca-from"), None);
}

#[tokio::test]
async fn the_ca_of_an_existing_secret_is_in_the_definition_too() {
    let secret = json!({"name": "mine", "caBundle": "-----BEGIN CERTIFICATE-----"});
    let certificate = json!({"mode": "existingSecret", "existingSecret": secret});
    let objects = render("test", &json!({"webhook": {"certificate": certificate}})).await;
    let ca = converter(&objects).get("caBundle");
    assert!(ca.is_some());
    assert_eq!(ca, reviewer(&objects).get("caBundle"));
}

#[tokio::test]
async fn who_owns_the_definition_says_which_version_is_looked_at() {
    for (ours, version) in [(true, "v3alpha1"), (false, "v2")] {
        let values = json!({"crds": {"runai": ours, "tensorstack": false}});
        let objects = render("test", &values).await;
        assert_eq!(kinds(&objects).get("CustomResourceDefinition"), Some(&(1 + usize::from(ours))));
        let configuration = find(&objects, "ValidatingWebhookConfiguration", WEBHOOK);
        let versions = configuration.pointer("/webhooks/0/rules/0/apiVersions");
        assert_eq!(versions, Some(&json!([version])));
        let mutating = find(&objects, "MutatingWebhookConfiguration", WEBHOOK).to_string();
        assert_eq!(mutating.contains("runai-queues-v2.tenure.dev"), ours);
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
        let objects = render("test", &json!({"crds": {"install": false}, "webhook": webhook})).await;
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
    let elsewhere = json!({"crds": {"install": false}, "webhook": {"url": "https://10.0.0.7:9443"}});
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
        (json!({"crds": {"install": false}}), 0, "v3alpha1", true),
        (json!({"crds": {"runai": false}}), 1, "v2", false),
        (json!({"crds": {"runai": false}, "queueVersion": "v3alpha1"}), 1, "v3alpha1", true),
        (json!({"crds": {"install": false}, "queueVersion": "v2"}), 0, "v2", true),
        (json!({"crds": {"install": false, "runai": false}}), 0, "v2", false),
        // those of an older chart that are reused
        (json!({"crds": {"install": null}, "queueVersion": null}), 2, "v3alpha1", false),
        (json!({"crds": {"install": null, "runai": false}, "queueVersion": null}), 1, "v2", false),
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
