//! The webhook's certificate, and the CA that the API server trusts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
};
use kube::Api;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, install_crypto_provider};

use crate::{NAMESPACE, NOWHERE, find, helm, kubectl, parse, render, shared};

/// The text at `pointer` in each webhook of a configuration.
fn of_each_webhook<'a>(configuration: &'a Value, pointer: &str) -> Vec<Option<&'a str>> {
    let webhooks = configuration.get("webhooks").unwrap().as_array().unwrap();
    webhooks.iter().map(|webhook| webhook.pointer(pointer).and_then(Value::as_str)).collect()
}

const CA_BUNDLE: &str = "/clientConfig/caBundle";

/// Those that validate: one for each family of queues, and one for priority classes.
const VALIDATING: usize = 4;

/// The number with the webhook that mutates, for clusters in which another project installs the queues' CRD.
const WEBHOOKS: usize = VALIDATING + 1;

/// The certificate that a release runs on, as the API server has it.
struct Live {
    secret: BTreeMap<String, ByteString>,
    bundles: Vec<ByteString>,
    bundle_writers: BTreeSet<String>,
}

impl Live {
    async fn of(cluster: &Cluster, release: &str) -> Self {
        let name = format!("{release}-tenure-webhook");
        let client = cluster.client().unwrap();
        let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
        let secret = secrets.get_opt(&format!("{name}-tls")).await.unwrap();
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
            secret: secret.and_then(|secret| secret.data).unwrap_or_default(),
            bundles: validating.chain(mutating).filter_map(|client| client.ca_bundle).collect(),
            bundle_writers,
        }
    }

    /// All webhooks trust the CA in the Secret, and Helm alone says so.
    fn assert_fits(&self) {
        let ca = self.secret.get("ca.crt").expect("the Secret has a ca.crt");
        assert_eq!(self.bundles, vec![ca.clone(); WEBHOOKS]);
        assert_eq!(self.bundle_writers, writers(&["helm"]));
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

#[tokio::test]
async fn generated_certificate_outlives_an_upgrade() {
    let cluster = shared().await;
    let values = json!({"crds": {"runai": false, "tensorstack": false}});
    let install = helm(cluster, "install", "steady", &values, &[]).await;
    install.success().unwrap();
    let before = Live::of(cluster, "steady").await;
    before.assert_fits();
    let more = json!({"log": {"level": "debug"}});
    let upgrade = helm(cluster, "upgrade", "steady", &more, &["--reuse-values"]).await;
    upgrade.success().unwrap();
    let after = Live::of(cluster, "steady").await;
    after.assert_fits();
    assert_eq!(after.secret, before.secret);
}

#[tokio::test]
async fn generated_certificate_is_renewed_when_its_secret_is_gone() {
    let cluster = shared().await;
    let values = json!({"crds": {"runai": false, "tensorstack": false}});
    let install = helm(cluster, "install", "renewed", &values, &[]).await;
    install.success().unwrap();
    let before = Live::of(cluster, "renewed").await;

    let moved = json!({"webhook": {"url": NOWHERE}});
    let upgrade = async || helm(cluster, "upgrade", "renewed", &moved, &["--reuse-values"]).await;
    let refused = upgrade().await;
    assert!(!refused.status.success());
    let (_, remedy) = refused
        .stderr
        .split_once("run the command again: kubectl ")
        .unwrap_or_else(|| panic!("{}", refused.stderr));
    let remedy: Vec<_> = remedy.split_whitespace().collect();
    kubectl(cluster, &remedy, "").await;

    upgrade().await.success().unwrap();
    let after = Live::of(cluster, "renewed").await;
    after.assert_fits();
    assert_ne!(after.secret, before.secret);
}

#[tokio::test]
async fn generated_certificate_is_for_the_host_that_the_api_server_calls() {
    let in_cluster = format!("test-tenure-webhook.{NAMESPACE}.svc");
    for (url, host) in [
        ("", &*in_cluster),
        ("https://127.0.0.1:9443", "127.0.0.1"),
        ("https://[2001:db8::7]:9443", "2001:db8::7"),
        ("https://webhook.example.com/validate", "webhook.example.com"),
    ] {
        let objects = render("test", &json!({"webhook": {"url": url}})).await;
        let secret = find(&objects, "Secret", "test-tenure-webhook-tls").clone();
        let secret: Secret = serde_json::from_value(secret).unwrap();
        assert!(is_served_as(&secret, host), "{url}");
        assert!(!is_served_as(&secret, "127.0.0.2"), "{url}");
    }
}

/// True if a TLS client that trusts the Secret's CA accepts its certificate for `host`.
fn is_served_as(secret: &Secret, host: &str) -> bool {
    install_crypto_provider();
    let certificate = |key: &str| {
        let pem = &secret.data.as_ref().unwrap().get(key).unwrap().0;
        CertificateDer::from_pem_slice(pem).unwrap()
    };
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca.crt")).unwrap();
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().unwrap();
    let name = ServerName::try_from(host).unwrap();
    verifier.verify_server_cert(&certificate("tls.crt"), &[], &name, &[], UnixTime::now()).is_ok()
}

#[tokio::test]
async fn cert_manager_alone_writes_the_ca_bundle_that_it_injects() {
    let cluster = shared().await;
    let values = json!({
        "crds": {"runai": false, "tensorstack": false},
        "webhook": {"certificate": {"mode": "certManager"}},
    });
    let install = helm(cluster, "install", "managed", &values, &[]).await;
    install.success().unwrap();
    assert!(Live::of(cluster, "managed").await.bundles.is_empty());

    // as its cainjector does; any CA will do
    let certificate = cluster.authority().certificate_pem();
    let bundle = ByteString(certificate.as_bytes().to_vec());
    let add = |webhook: usize| json!({"op": "add", "path": format!("/webhooks/{webhook}{CA_BUNDLE}"), "value": bundle});
    for (kind, webhooks) in [("validating", VALIDATING), ("mutating", WEBHOOKS - VALIDATING)] {
        let patch = json!((0..webhooks).map(add).collect::<Vec<_>>()).to_string();
        let name = format!("{kind}webhookconfiguration/managed-tenure-webhook");
        let inject = ["patch", &name, "--type=json", "--field-manager=cainjector", "-p", &patch];
        kubectl(cluster, &inject, "").await;
    }
    let more = json!({"log": {"level": "debug"}});
    let upgrade = helm(cluster, "upgrade", "managed", &more, &["--reuse-values"]).await;
    upgrade.success().unwrap();
    let live = Live::of(cluster, "managed").await;
    assert_eq!(live.bundles, vec![bundle; WEBHOOKS]);
    assert_eq!(live.bundle_writers, writers(&["cainjector"]));

    let generated = json!({"webhook": {"certificate": {"mode": "generated"}}});
    let take_over = ["--reuse-values", "--force-conflicts"];
    let upgrade = helm(cluster, "upgrade", "managed", &generated, &take_over[..1]).await;
    assert!(upgrade.stderr.contains("conflicts with \"cainjector\""), "{}", upgrade.stderr);
    let upgrade = helm(cluster, "upgrade", "managed", &generated, &take_over).await;
    upgrade.success().unwrap();
    Live::of(cluster, "managed").await.assert_fits();
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
        let values =
            json!({"webhook": {"certificate": {"mode": "existingSecret", "existingSecret": secret}}});
        let output = helm(cluster, "template", "test", &values, &["--dry-run=server"]).await;
        let objects = parse(&output.success()?);
        let of = |kind| of_each_webhook(find(&objects, kind, "test-tenure-webhook"), CA_BUNDLE);
        let bundles = [of("ValidatingWebhookConfiguration"), of("MutatingWebhookConfiguration")].concat();
        // where the queues' CRD is the chart's, there is one for clients of their older version
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
