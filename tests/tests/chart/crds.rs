//! The definition of queues of the run.ai family, and who owns it.

use serde_json::{Value, json};

use crate::{NAMESPACE, arguments, find, kinds, render};

const CRD: &str = "queues.scheduling.run.ai";
const WEBHOOK: &str = "test-tenure-webhook";

/// How the API server calls who converts.
fn converter(objects: &[Value]) -> &Value {
    let definition = find(objects, "CustomResourceDefinition", CRD);
    assert_eq!(definition.pointer("/spec/conversion/strategy"), Some(&json!("Webhook")));
    definition.pointer("/spec/conversion/webhook/clientConfig").unwrap()
}

/// How it calls who reviews.
fn reviewer(objects: &[Value]) -> &Value {
    let configuration = find(objects, "ValidatingWebhookConfiguration", WEBHOOK);
    configuration.pointer("/webhooks/0/clientConfig").unwrap()
}

fn annotation<'a>(objects: &'a [Value], key: &str) -> Option<&'a Value> {
    find(objects, "CustomResourceDefinition", CRD).pointer("/metadata/annotations").unwrap().get(key)
}

#[tokio::test]
async fn the_webhook_of_the_release_converts_and_the_generated_ca_fits() {
    for url in ["", "https://10.0.0.7:9443", "https://10.0.0.7:9443/validate"] {
        let objects = render("test", &json!({"webhook": {"url": url}})).await;
        let secret = find(&objects, "Secret", "test-tenure-webhook-tls");
        let ca = secret.pointer("/data/ca.crt").unwrap();
        let (converter, reviewer) = (converter(&objects), reviewer(&objects));
        assert_eq!((converter.get("caBundle"), reviewer.get("caBundle")), (Some(ca), Some(ca)));
        let expected = if url.is_empty() {
            json!({"name": WEBHOOK, "namespace": NAMESPACE, "port": 443, "path": "/convert"})
        } else {
            json!("https://10.0.0.7:9443/convert")
        };
        let key = if url.is_empty() { "service" } else { "url" };
        assert_eq!(converter.get(key), Some(&expected));
        assert_eq!(converter.as_object().unwrap().len(), 2, "{converter}");
        assert_eq!(annotation(&objects, "helm.sh/resource-policy"), Some(&json!("keep")));
    }
}

#[tokio::test]
async fn cert_manager_injects_its_ca_into_the_definition_too() {
    let objects = render("test", &json!({"webhook": {"certificate": {"mode": "certManager"}}})).await;
    let from = json!(format!("{NAMESPACE}/{WEBHOOK}"));
    assert_eq!(annotation(&objects, "cert-manager.io/inject-ca-from"), Some(&from));
    assert_eq!(converter(&objects).get("caBundle"), None);
    let generated = render("test", &json!({})).await;
    assert_eq!(annotation(&generated, "cert-manager.io/inject-ca-from"), None);
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
        assert_eq!(kinds(&objects).get("CustomResourceDefinition"), ours.then_some(&1));
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
