//! The webhook's account writes what its certificate needs, and nothing else, even with all rights.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use k8s_openapi::ByteString;
use serde_json::json;
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::DEADLINE;

use crate::world::{CRD, SECRET, World};

const CONFIGURATION: &str = "validatingwebhookconfiguration/tenure-webhook";

#[tokio::test]
async fn with_all_rights_the_webhooks_account_changes_no_field_but_bundles_and_its_certificate() {
    let world = World::start("cert-account", 1, &[]).await;
    world.helm("install", &["--create-namespace"]).await;
    let binding = ["create", "clusterrolebinding", "webhook-is-admin", "--clusterrole=cluster-admin"];
    let account = format!("--serviceaccount={RELEASE_NAMESPACE}:tenure-webhook");
    world.kubectl(&[&binding[..], &[&account]].concat()).await;
    let kubeconfig =
        world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-webhook").await.unwrap();
    let run = async |arguments: &[&str], stdin: &str| {
        let arguments = [arguments, &["--namespace", RELEASE_NAMESPACE]].concat();
        world.cluster.kubectl_as(&kubeconfig, &arguments, stdin).await.unwrap()
    };
    let patch = async |object: &str, patch: &serde_json::Value| {
        run(&["patch", object, "--type=json", "--patch", &patch.to_string()], "").await
    };

    let only_webhooks = "nothing but webhooks";
    let tries = AtomicU32::new(0);
    eventually("the policy to be enforced", DEADLINE, async || {
        // another one each time: a write that passes must change something
        let url = format!("https://127.0.0.1:1/{}", tries.fetch_add(1, Relaxed));
        let replace = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}]);
        let refused = patch(CONFIGURATION, &replace).await;
        Ok(refused.stderr.contains(only_webhooks).then_some(()))
    })
    .await
    .unwrap();
    let first = world.get(&[CONFIGURATION]).await["webhooks"][0].clone();
    let mut more = first.clone();
    more["name"] = json!("more.example.com");
    for operation in [
        json!({"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}),
        json!({"op": "replace", "path": "/webhooks/0/rules/0/resources", "value": ["*"]}),
        json!({"op": "add", "path": "/webhooks/-", "value": more}),
        json!({"op": "remove", "path": "/webhooks/0"}),
        json!({"op": "add", "path": "/metadata/labels/a", "value": "b"}),
    ] {
        let refused = patch(CONFIGURATION, &json!([operation])).await;
        assert!(refused.stderr.contains(only_webhooks), "{operation}: {}", refused.stderr);
    }
    let add = |path: &str, value: &str| json!([{"op": "add", "path": path, "value": value}]);
    let label = add("/metadata/labels/a", "b");
    let conversion = "nothing but spec.conversion.webhook.clientConfig.caBundle";
    let elsewhere = add("/spec/conversion/webhook/clientConfig/url", "https://127.0.0.1:1/a");
    for (object, operations, words) in [
        (&*format!("crd/{CRD}"), &label, conversion),
        (&format!("crd/{CRD}"), &elsewhere, conversion),
        (&format!("secret/{SECRET}"), &label, "nothing but data"),
        ("configmap/tenure-webhook-ca", &label, "nothing but data"),
        ("configmap/tenure-config", &label, "doesn't do that"),
        ("namespace/tenure-system", &label, "doesn't do that"),
    ] {
        let refused = patch(object, operations).await;
        assert!(refused.stderr.contains(words), "{object}: {}", refused.stderr);
    }
    let mutating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "own"},
        "webhooks": [{
            "name": "own.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/a"},
        }],
    });
    let refused = run(&["create", "-f", "-"], &mutating.to_string()).await;
    assert!(refused.stderr.contains("Tenure doesn't do that"), "{}", refused.stderr);
    let refused = run(&["delete", CONFIGURATION], "").await;
    assert!(refused.stderr.contains("may not DELETE"), "{}", refused.stderr);

    let bundle = json!(ByteString(world.cluster.authority().certificate_pem().as_bytes().to_vec()));
    for (object, path) in [
        (CONFIGURATION, "/webhooks/0/clientConfig/caBundle"),
        ("mutatingwebhookconfiguration/tenure-webhook", "/webhooks/0/clientConfig/caBundle"),
        (&format!("crd/{CRD}"), "/spec/conversion/webhook/clientConfig/caBundle"),
    ] {
        patch(object, &add(path, bundle.as_str().unwrap())).await.success().unwrap();
    }
    patch(&format!("secret/{SECRET}"), &json!([{"op": "add", "path": "/data", "value": {"a": "YQ=="}}]))
        .await
        .success()
        .unwrap();
}
