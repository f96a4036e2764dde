//! The webhook's certificate, and the CA that the API server trusts.

use std::collections::BTreeSet;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
};
use kube::Api;
use serde_json::{Value, json};
use tenure_testbed::Cluster;

use crate::{NAMESPACE, arguments, find, helm, kubectl, parse, render, shared, template};

/// The text at `pointer` in each webhook of a configuration.
fn of_each_webhook<'a>(configuration: &'a Value, pointer: &str) -> Vec<Option<&'a str>> {
    let webhooks = configuration.get("webhooks").unwrap().as_array().unwrap();
    webhooks.iter().map(|webhook| webhook.pointer(pointer).and_then(Value::as_str)).collect()
}

const CA_BUNDLE: &str = "/clientConfig/caBundle";

/// Those that validate: one for each family of queues, and one for priority classes.
const VALIDATING: usize = 4;

/// The number with the webhooks that mutate, for clusters in which another project installs the queues' CRD.
const WEBHOOKS: usize = VALIDATING + 2;

/// The CAs that the API server trusts, and who wrote them.
struct Live {
    bundles: Vec<ByteString>,
    bundle_writers: BTreeSet<String>,
}

impl Live {
    async fn of(cluster: &Cluster, release: &str) -> Self {
        let name = format!("{release}-tenure-webhook");
        let client = cluster.client().unwrap();
        let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        let validating = validating.get(&name).await.unwrap();
        let mutating = Api::<MutatingWebhookConfiguration>::all(client).get(&name).await.unwrap();
        let writers = validating.metadata.managed_fields.iter().chain(&mutating.metadata.managed_fields);
        let bundle_writers = writers
            .flatten()
            .filter(|entry| json!(entry).to_string().contains("f:caBundle"))
            .map(|entry| entry.manager.clone().unwrap())
            .collect();
        let validating = validating.webhooks.into_iter().flatten().map(|webhook| webhook.client_config);
        let mutating = mutating.webhooks.into_iter().flatten().map(|webhook| webhook.client_config);
        Self {
            bundles: validating.chain(mutating).filter_map(|client| client.ca_bundle).collect(),
            bundle_writers,
        }
    }
}

fn writers(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The fields of cert-manager that the chart may set, as in its `cert-manager.io/v1`.
pub fn cert_manager_kinds() -> Value {
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let private_key = json!({"type": "object", "properties": {
        "algorithm": {"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]},
        "size": {"type": "integer"},
        "rotationPolicy": {"type": "string", "enum": ["Never", "Always"]},
    }});
    let issuer_ref = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "kind": {"type": "string"}, "group": {"type": "string"},
    }});
    let certificate = json!({"type": "object", "required": ["secretName", "issuerRef"], "properties": {
        "secretName": {"type": "string"},
        "commonName": {"type": "string", "maxLength": 64},
        "isCA": {"type": "boolean"},
        "dnsNames": strings,
        "ipAddresses": strings,
        "duration": {"type": "string"},
        "renewBefore": {"type": "string"},
        "privateKey": private_key,
        "usages": {"type": "array", "items": {"type": "string", "enum": ["digital signature", "server auth"]}},
        "issuerRef": issuer_ref,
    }});
    let ca = json!({"type": "object", "required": ["secretName"], "properties": {
        "secretName": {"type": "string"},
    }});
    let issuer = json!({"type": "object", "properties": {"selfSigned": {"type": "object"}, "ca": ca}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        cert_manager_kind("Certificate", &certificate), cert_manager_kind("Issuer", &issuer),
    ]})
}

fn cert_manager_kind(kind: &str, spec: &Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cert-manager.io")},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

/// The writer is as cert-manager's cainjector, or as the webhook.
#[tokio::test]
async fn the_writer_of_the_ca_bundle_alone_writes_it_in_each_mode() {
    let cluster = shared().await;
    let certificate = cluster.authority().certificate_pem();
    let bundle = ByteString(certificate.as_bytes().to_vec());
    for (mode, release, writer) in
        [("certManager", "managed", "cainjector"), ("selfManaged", "steady", "tenure-webhook")]
    {
        let values = json!({
            "crds": {"runai": false, "tensorstack": false, "extensions": false},
            "webhook": {"certificate": {"mode": mode}},
        });
        helm(cluster, "install", release, &values, &[]).await.success().unwrap();
        assert!(Live::of(cluster, release).await.bundles.is_empty());

        let add = |webhook: usize| json!({"op": "add", "path": format!("/webhooks/{webhook}{CA_BUNDLE}"), "value": bundle});
        for (kind, webhooks) in [("validating", VALIDATING), ("mutating", WEBHOOKS - VALIDATING)] {
            let patch = json!((0..webhooks).map(add).collect::<Vec<_>>()).to_string();
            let name = format!("{kind}webhookconfiguration/{release}-tenure-webhook");
            let manager = format!("--field-manager={writer}");
            kubectl(cluster, &["patch", &name, "--type=json", &manager, "-p", &patch], "").await;
        }
        let more = json!({"log": {"level": "debug"}});
        let upgrade = async || helm(cluster, "upgrade", release, &more, &["--reuse-values"]).await;
        upgrade().await.success().unwrap();
        let live = Live::of(cluster, release).await;
        assert_eq!(live.bundles, vec![bundle.clone(); WEBHOOKS]);
        assert_eq!(live.bundle_writers, writers(&[writer]));

        // another one, or there would be nothing to differ about
        let other = [certificate, certificate].concat();
        let existing = json!({"name": "mine", "caBundle": other});
        let own = json!({"webhook": {"certificate": {"mode": "existingSecret", "existingSecret": existing}}});
        let take_over = ["--reuse-values", "--force-conflicts"];
        let upgrade = helm(cluster, "upgrade", release, &own, &take_over[..1]).await;
        assert!(upgrade.stderr.contains(&format!("conflicts with \"{writer}\"")), "{}", upgrade.stderr);
        helm(cluster, "upgrade", release, &own, &take_over).await.success().unwrap();
        let live = Live::of(cluster, release).await;
        assert_eq!(live.bundles, vec![ByteString(other.into_bytes()); WEBHOOKS]);
        assert_eq!(live.bundle_writers, writers(&["helm"]));
    }
}

#[tokio::test]
async fn what_the_webhook_fills_by_itself_is_rendered_without_content() {
    let objects = render("test", &json!({})).await;
    for (kind, name) in [
        ("Secret", "test-tenure-webhook-certificates"),
        ("ConfigMap", "test-tenure-webhook-ca"),
        ("Lease", "test-tenure-webhook"),
    ] {
        let object = find(&objects, kind, name);
        for content in ["data", "stringData", "spec"] {
            assert_eq!(object.get(content), None, "{kind}");
        }
    }
    let is_policy = |object: &Value| object["kind"] == "ValidatingAdmissionPolicy";
    assert!(!objects.iter().any(|object| !is_policy(object) && object.to_string().contains("caBundle")));
    let role = find(&objects, "Role", "test-tenure-webhook");
    let named = |group: &str, resource: &str, name: &str, verbs: [&str; 2]| json!({"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs});
    let rules = json!([
        named("", "secrets", "test-tenure-webhook-certificates", ["get", "patch"]),
        named("", "configmaps", "test-tenure-webhook-ca", ["get", "patch"]),
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        named("coordination.k8s.io", "leases", "test-tenure-webhook", ["get", "update"]),
    ]);
    assert_eq!(role["rules"], rules);
}

#[tokio::test]
async fn the_webhook_gets_the_name_that_it_is_called_by_and_its_objects() {
    let objects = render("test", &json!({"crds": {"serveV2": true}})).await;
    let deployment = find(&objects, "Deployment", "test-tenure-webhook");
    let arguments = arguments(deployment);
    for flag in [
        "--self-managed-secret=test-tenure-webhook-certificates",
        "--self-managed-validity=2160h",
        "--webhook-hosts=test-tenure-webhook.tenure-system.svc",
        "--validating-configurations=test-tenure-webhook,test-tenure-webhook-guard,test-tenure-webhook-owners",
        "--mutating-configurations=test-tenure-webhook",
        "--converted-definitions=queues.scheduling.run.ai",
    ] {
        assert!(arguments.contains(&flag.to_owned()), "{flag} should be in {arguments:?}");
    }
    assert!(!deployment.to_string().contains("/certs"), "nothing is mounted");
    for values in [json!({}), json!({"crds": {"runai": false}})] {
        let objects = render("test", &values).await;
        let arguments = crate::arguments(find(&objects, "Deployment", "test-tenure-webhook"));
        assert!(
            !arguments.iter().any(|argument| argument.contains("definitions")),
            "{values}: {arguments:?}"
        );
    }
}

#[tokio::test]
async fn a_part_that_is_turned_on_changes_no_flag_about_certificates_and_no_right_to_objects_by_name() {
    let of = async |values: Value| {
        let objects = render("test", &values).await;
        let flags = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
        let flags: Vec<_> = flags.into_iter().filter(|flag| flag.contains("-configurations=")).collect();
        let rules = find(&objects, "ClusterRole", "test-tenure-webhook")["rules"].as_array().unwrap().clone();
        let by_name: Vec<_> = rules.into_iter().filter(|rule| rule.get("resourceNames").is_some()).collect();
        (flags, by_name)
    };
    let off = of(json!({"webhook": {"owners": {"enabled": false}}})).await;
    assert_eq!(of(json!({"guard": {"enabled": true}, "webhook": {"owners": {"enabled": true}}})).await, off);
}

#[tokio::test]
async fn lifetimes_with_which_no_webhook_would_start_are_refused() {
    for (own, words) in [
        (
            json!({"validity": "8760h"}),
            "validity must be shorter than caValidity: 8760h isn't shorter than 8760h",
        ),
        (json!({"validity": "20m", "caValidity": "30m"}), "caValidity must be longer than 30m: it is 30m"),
        (json!({"validity": "2s"}), "validity must be at least 3s: it is 2s"),
    ] {
        let values = json!({"webhook": {"certificate": {"selfManaged": own}}});
        let output = template("test", &values, &[]).await;
        let words = format!("webhook.certificate.selfManaged.{words}");
        assert!(!output.status.success() && output.stderr.contains(&words), "{}", output.stderr);
    }
    let short = json!({"validity": "20m", "caValidity": "31m"});
    render("test", &json!({"webhook": {"certificate": {"selfManaged": short}}})).await;
}

#[tokio::test]
async fn existing_secret_brings_its_ca_or_the_values_do() {
    let cluster = shared().await;
    let pair = json!({"tls.crt": "", "tls.key": ""});
    let with_ca = json!({"tls.crt": "", "tls.key": "", "ca.crt": "the CA"});
    for (name, data) in [("without-ca", pair), ("with-ca", with_ca)] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": data});
        kubectl(cluster, &["apply", "-f", "-"], &secret.to_string()).await;
    }
    let bundle = async |name: &str, bundle: &str| {
        let secret = json!({"name": name, "caBundle": bundle});
        let certificate = json!({"mode": "existingSecret", "existingSecret": secret});
        let values =
            json!({"webhook": {"certificate": certificate}, "crds": {"extensions": false, "serveV2": true}});
        let output = helm(cluster, "template", "test", &values, &["--dry-run=server"]).await;
        let objects = parse(&output.success()?);
        let of = |kind| of_each_webhook(find(&objects, kind, "test-tenure-webhook"), CA_BUNDLE);
        let bundles = [of("ValidatingWebhookConfiguration"), of("MutatingWebhookConfiguration")].concat();
        // where v2 of queues is served, there is one for its clients
        assert_eq!(bundles, vec![*bundles.first().unwrap(); WEBHOOKS + 1]);
        let bundle: ByteString = serde_json::from_value(json!(bundles.first())).unwrap();
        Ok::<_, anyhow::Error>(String::from_utf8(bundle.0)?)
    };
    let pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(bundle("with-ca", "").await.unwrap(), "the CA");
    assert_eq!(bundle("with-ca", pem).await.unwrap(), pem);
    assert_eq!(bundle("without-ca", pem).await.unwrap(), pem);
    for (name, value) in [
        ("without-ca", "webhook.certificate.existingSecret.caBundle must be set"),
        ("not-there", "webhook.certificate.existingSecret.caBundle must be set"),
        ("", "webhook.certificate.existingSecret.name must be set"),
    ] {
        let error = bundle(name, "").await.unwrap_err().to_string();
        assert!(error.contains(value), "{name}: {error}");
    }
}
