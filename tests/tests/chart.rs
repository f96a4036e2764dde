//! The Helm chart, by the real helm on real API servers.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    net::TcpListener,
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::Secret,
        rbac::v1::{ClusterRole, PolicyRule},
    },
};
use kube::Api;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output, Process, eventually, install_crypto_provider, program};
use tokio::{sync::OnceCell, task::spawn_blocking};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");

/// The namespace of every release here. It enforces the pod security standard `restricted`.
const NAMESPACE: &str = "tenure-system";

const DEADLINE: Duration = Duration::from_mins(1);

/// Nobody listens there.
const NOWHERE: &str = "https://127.0.0.1:1";

async fn start(name: &str) -> Result<Cluster> {
    let cluster = Cluster::start(name).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
    }});
    kubectl(&cluster, &["apply", "-f", "-"], &namespace.to_string()).await;
    Ok(cluster)
}

/// A cluster that knows the kinds of cert-manager. Each test has a release name of its own, and one release the CRDs.
async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    let start = async || {
        let cluster = start("chart").await?;
        kubectl(&cluster, &["apply", "-f", "-"], &cert_manager_kinds().to_string()).await;
        let established = ["wait", "--for=condition=Established", "crd", "--all"];
        kubectl(&cluster, &established, "").await;
        Ok::<_, anyhow::Error>(cluster)
    };
    SHARED.get_or_try_init(start).await.unwrap()
}

/// The release `tenure` on the shared cluster, with default values, and what helm said. Its pods are ready.
async fn installed() -> (&'static Cluster, &'static str) {
    static NOTES: OnceCell<String> = OnceCell::const_new();
    let cluster = shared().await;
    let install = async || {
        let output = helm(cluster, "install", "tenure", &json!({}), &["--wait"]).await;
        output.success()
    };
    (cluster, NOTES.get_or_try_init(install).await.unwrap())
}

/// The fields of cert-manager that the chart may set, as in its `cert-manager.io/v1`.
fn cert_manager_kinds() -> Value {
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

/// kubectl that must succeed, with `stdin`.
async fn kubectl(cluster: &Cluster, arguments: &[&str], stdin: &str) -> String {
    let output = cluster.kubectl_with_input(arguments, stdin).await;
    output.unwrap().success().unwrap()
}

/// `helm <verb> <release>` of the chart.
async fn helm(cluster: &Cluster, verb: &str, release: &str, values: &Value, flags: &[&str]) -> Output {
    let values = values.to_string();
    let arguments = [verb, release, CHART, "--namespace", NAMESPACE, "--set-json", &values];
    cluster.helm(&[&arguments, flags].concat()).await.unwrap()
}

/// What the chart renders where it can't look into a cluster.
async fn render(release: &str, values: &Value) -> Vec<Value> {
    let output = helm(shared().await, "template", release, values, &[]).await;
    parse(&output.success().unwrap())
}

fn parse(documents: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(documents).unwrap()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found =
        objects.iter().find(|object| object.get("kind") == Some(&json!(kind)) && name_of(object) == name);
    found.unwrap_or_else(|| panic!("no {kind} {name} in {objects:#?}"))
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").unwrap().as_str().unwrap()
}

/// What `pointer` finds in each webhook of a configuration, as text.
fn of_each_webhook<'a>(configuration: &'a Value, pointer: &str) -> Vec<Option<&'a str>> {
    let webhooks = configuration.get("webhooks").unwrap().as_array().unwrap();
    webhooks.iter().map(|webhook| webhook.pointer(pointer).and_then(Value::as_str)).collect()
}

const CA_BUNDLE: &str = "/clientConfig/caBundle";

/// The certificate that a release runs on, as the API server has it.
struct Live {
    secret: BTreeMap<String, ByteString>,
    bundles: Vec<ByteString>,
    bundle_writers: Vec<String>,
}

impl Live {
    async fn of(cluster: &Cluster, release: &str) -> Self {
        let name = format!("{release}-tenure-webhook");
        let client = cluster.client().unwrap();
        let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
        let secret = secrets.get_opt(&format!("{name}-tls")).await.unwrap();
        let configurations = Api::<ValidatingWebhookConfiguration>::all(client);
        let configuration = configurations.get(&name).await.unwrap();
        let writers = configuration.metadata.managed_fields.iter().flatten();
        let bundle_writers = writers
            .filter(|entry| json!(entry).to_string().contains("f:caBundle"))
            .map(|entry| entry.manager.clone().unwrap())
            .collect();
        let webhooks = configuration.webhooks.into_iter().flatten();
        Self {
            secret: secret.and_then(|secret| secret.data).unwrap_or_default(),
            bundles: webhooks.filter_map(|webhook| webhook.client_config.ca_bundle).collect(),
            bundle_writers,
        }
    }

    /// Both webhooks trust the CA in the Secret, and Helm alone says so.
    fn assert_fits(&self) {
        let ca = self.secret.get("ca.crt").expect("the Secret has a ca.crt");
        assert_eq!(self.bundles, [ca.clone(), ca.clone()]);
        assert_eq!(self.bundle_writers, ["helm"]);
    }
}

#[tokio::test]
async fn chart_lints_strictly() {
    let lint = shared().await.helm(&["lint", "--strict", CHART]).await;
    lint.unwrap().success().unwrap();
}

/// What the values differ in that change which objects there are.
struct Shape {
    mode: &'static str,
    in_cluster: bool,
    keepers: u8,
    webhooks: u8,
    crds: bool,
}

impl Shape {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mode in ["generated", "certManager", "existingSecret"] {
            // a bit for each of the others
            all.extend((0..16_u8).map(|bits| Self {
                mode,
                in_cluster: bits & 1 > 0,
                keepers: (bits >> 1) & 1,
                webhooks: 1 + ((bits >> 2) & 1),
                crds: bits & 8 > 0,
            }));
        }
        all
    }

    fn release(&self) -> String {
        let (mode, in_cluster, crds) = (self.mode.to_lowercase(), self.in_cluster, self.crds);
        let (keepers, webhooks) = (self.keepers, self.webhooks);
        format!("{mode}-in-{in_cluster}-{keepers}-{webhooks}-crds-{crds}")
    }

    fn values(&self) -> Value {
        json!({
            "webhook": {
                "url": if self.in_cluster { "" } else { "https://webhook.example.com:9443" },
                "replicas": self.webhooks,
                "certificate": {
                    "mode": self.mode,
                    "existingSecret": {"name": "mine", "caBundle": "-----BEGIN CERTIFICATE-----"},
                },
            },
            "keeper": {"replicas": self.keepers},
            "crds": {"runai": self.crds, "tensorstack": self.crds},
        })
    }

    fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let always = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"].map(|kind| (kind, 2));
        let rest = [
            ("ValidatingWebhookConfiguration", 1),
            ("Deployment", 1 + usize::from(self.in_cluster)),
            ("Service", usize::from(self.in_cluster)),
            ("PodDisruptionBudget", usize::from(self.in_cluster && self.webhooks > 1)),
            ("Secret", usize::from(self.mode == "generated")),
            ("Issuer", if self.mode == "certManager" { 2 } else { 0 }),
            ("Certificate", if self.mode == "certManager" { 2 } else { 0 }),
            ("CustomResourceDefinition", if self.crds { 2 } else { 0 }),
        ];
        always.into_iter().chain(rest).filter(|(_, count)| *count > 0).collect()
    }
}

fn kinds(objects: &[Value]) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    for object in objects {
        *kinds.entry(object.get("kind").unwrap().as_str().unwrap()).or_default() += 1;
    }
    kinds
}

#[tokio::test]
async fn every_shape_renders_what_it_needs_and_the_api_server_accepts_it() {
    let cluster = shared().await;
    let rendered = stream::iter(Shape::all()).map(async |shape| {
        let output = helm(cluster, "template", &shape.release(), &shape.values(), &[]).await;
        let documents = output.success()?;
        assert_eq!(kinds(&parse(&documents)), shape.kinds(), "{}", shape.release());
        Ok::<_, anyhow::Error>(documents)
    });
    let rendered: Vec<_> = rendered.buffer_unordered(4).try_collect().await.unwrap();
    let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict"];
    let output = cluster
        .kubectl_with_input(&[&apply[..], &["-f", "-"]].concat(), &rendered.join("\n---\n"))
        .await
        .unwrap();
    assert_eq!(output.stderr, "");
    let lines = output.success().unwrap().lines().count();
    let expected: usize = Shape::all().iter().map(|shape| shape.kinds().values().sum::<usize>()).sum();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn value_that_cannot_be_meant_is_refused_by_its_name() {
    let url = |url: &str| json!({"webhook": {"url": url}});
    let certificate = |values: Value| json!({"webhook": {"certificate": values}});
    let table = [
        (json!({"replicas": 2}), "'replicas' not allowed"),
        (json!({"webhook": {"replica": 2}}), "'/webhook': additional properties 'replica' not allowed"),
        (
            certificate(json!({"certManager": {"issuerRef": {"nam": "x"}}})),
            "'/webhook/certificate/certManager/issuerRef': additional properties 'nam' not allowed",
        ),
        (certificate(json!({"mode": "certmanager"})), "'/webhook/certificate/mode': value must be one of"),
        (json!({"webhook": {"failurePolicy": "ignore"}}), "'/webhook/failurePolicy': value must be one of"),
        (json!({"log": {"level": "verbose"}}), "'/log/level': value must be one of"),
        (json!({"keeper": {"replicas": 2}}), "'/keeper/replicas': maximum: got 2"),
        (json!({"webhook": {"replicas": 0}}), "'/webhook/replicas': minimum: got 0"),
        (json!({"webhook": {"timeoutSeconds": 31}}), "'/webhook/timeoutSeconds': maximum"),
        (json!({"keeper": {"burst": "100"}}), "'/keeper/burst': got string, want integer"),
        (json!({"keeper": {"extraArgs": ["log-level=debug"]}}), "'/keeper/extraArgs/0'"),
        (json!({"t9k": {"systemNamespace": "T9K"}}), "'/t9k/systemNamespace'"),
        (url("http://10.0.0.7:9443"), "'/webhook/url'"),
        (url("10.0.0.7:9443"), "'/webhook/url'"),
        (url("https://10.0.0.7:65536"), "'/webhook/url'"),
        (url("https://10.0.0.7:0"), "'/webhook/url'"),
        (url("https://10.0.0.7.8"), "'/webhook/url'"),
        (url("https://::1"), "'/webhook/url'"),
        (url("https://[webhook]"), "'/webhook/url'"),
        (url("https://webhook..example.com"), "'/webhook/url'"),
        (url("https://webhook.example.com/mutate"), "'/webhook/url'"),
        (url("https://user@webhook.example.com"), "'/webhook/url'"),
    ];
    let cluster = shared().await;
    let complaints = stream::iter(table).map(async |(values, words)| {
        let output = helm(cluster, "template", "test", &values, &[]).await;
        let refused = !output.status.success() && output.stderr.contains(words);
        (!refused).then(|| format!("{values} should fail with {words:?}, but: {}", output.stderr))
    });
    let complaints: Vec<_> = complaints.buffered(4).filter_map(async |it| it).collect().await;
    assert_eq!(complaints, Vec::<String>::new());
}

#[test]
fn every_value_is_in_the_schema_and_has_a_default() {
    let read = |file: &str| fs::read_to_string(format!("{CHART}/{file}")).unwrap();
    let mut schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    // Helm's own
    schema["properties"].as_object_mut().unwrap().remove("global");
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    assert_eq!(differences(&values, &schema, "values"), Vec::<String>::new());
}

/// Which fields of the object at `path` are in the values or in the schema alone.
fn differences(values: &Value, schema: &Value, path: &str) -> Vec<String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let defaults = values.as_object().unwrap();
    let names: BTreeSet<_> = defaults.keys().chain(properties.keys()).collect();
    let of = |name: &String| match (defaults.get(name), properties.get(name)) {
        (Some(default), Some(property)) => differences(default, property, &format!("{path}.{name}")),
        _ => vec![format!("{path}.{name}")],
    };
    names.into_iter().flat_map(of).collect()
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

/// Whether a TLS client that trusts the Secret's CA takes its certificate for that of `host`.
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
    let add = |webhook: u8| json!({"op": "add", "path": format!("/webhooks/{webhook}{CA_BUNDLE}"), "value": bundle});
    let patch = json!([add(0), add(1)]).to_string();
    let name = "validatingwebhookconfiguration/managed-tenure-webhook";
    let inject = ["patch", name, "--type=json", "--field-manager=cainjector", "-p", &patch];
    kubectl(cluster, &inject, "").await;
    let more = json!({"log": {"level": "debug"}});
    let upgrade = helm(cluster, "upgrade", "managed", &more, &["--reuse-values"]).await;
    upgrade.success().unwrap();
    let live = Live::of(cluster, "managed").await;
    assert_eq!(live.bundles, [bundle.clone(), bundle]);
    assert_eq!(live.bundle_writers, ["cainjector"]);

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
        let configuration = find(&objects, "ValidatingWebhookConfiguration", "test-tenure-webhook");
        let bundles = of_each_webhook(configuration, CA_BUNDLE);
        assert_eq!(bundles.first(), bundles.last());
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

#[tokio::test]
async fn queues_outlive_an_uninstall() {
    let cluster = start("chart-uninstall").await.unwrap();
    // else the queues below would wait for a webhook
    let values = json!({"webhook": {"url": NOWHERE, "failurePolicy": "Ignore"}});
    let install =
        async |release: &str, flags: &[&str]| helm(&cluster, "install", release, &values, flags).await;
    install("tenure", &[]).await.success().unwrap();
    for group in ["scheduling.run.ai/v3alpha1", "scheduler.tensorstack.dev/v1beta1"] {
        let queue = json!({"apiVersion": group, "kind": "Queue", "metadata": {"name": "kept"}, "spec": {}});
        kubectl(&cluster, &["apply", "-f", "-"], &queue.to_string()).await;
    }
    let queues = async || {
        let kinds = "queues.scheduling.run.ai,queues.scheduler.tensorstack.dev";
        kubectl(&cluster, &["get", kinds, "--output=jsonpath={.items[*].metadata.uid}"], "").await
    };
    let before = queues().await;
    assert_eq!(before.split(' ').count(), 2);

    let uninstall = ["uninstall", "tenure", "--namespace", NAMESPACE, "--wait"];
    cluster.helm(&uninstall).await.unwrap().success().unwrap();
    let rest =
        "deployment,secret,serviceaccount,clusterrole,clusterrolebinding,validatingwebhookconfiguration";
    let list = ["get", rest, "-A", "--output=name", "-l", "app.kubernetes.io/part-of=tenure"];
    assert_eq!(kubectl(&cluster, &list, "").await, "");
    assert_eq!(queues().await, before);

    install("tenure", &[]).await.success().unwrap();
    assert_eq!(queues().await, before);
    cluster.helm(&uninstall).await.unwrap().success().unwrap();
    let refused = install("another", &[]).await;
    assert!(refused.stderr.contains("queues.scheduling.run.ai"), "{}", refused.stderr);
    install("another", &["--take-ownership"]).await.success().unwrap();
    assert_eq!(queues().await, before);
}

#[tokio::test]
async fn pods_run_where_pod_security_is_restricted() {
    // whose pods were admitted
    let (cluster, _) = installed().await;
    let run = ["run", "plain", "--image=example.com/plain", "--namespace", NAMESPACE];
    let plain = cluster.kubectl(&run).await.unwrap();
    assert!(plain.stderr.contains("violates PodSecurity"), "{}", plain.stderr);
}

/// All that Tenure may do: component, API group, resources, verbs.
const RIGHTS: [(&str, &str, &[&str], &[&str]); 7] = [
    ("webhook", "scheduling.run.ai", &["queues"], &["list", "watch"]),
    ("keeper", "scheduling.run.ai", &["queues"], &["list", "watch"]),
    ("keeper", "scheduler.tensorstack.dev", &["queues"], &["list", "watch"]),
    ("keeper", "", &["pods"], &["get", "list", "watch", "delete"]),
    ("keeper", "apps", &["deployments", "statefulsets", "replicasets"], &["get", "patch"]),
    ("keeper", "batch", &["jobs"], &["get", "patch"]),
    ("keeper", "events.k8s.io", &["events"], &["create"]),
];

#[tokio::test]
async fn roles_grant_what_is_needed_and_no_more() {
    let expected = RIGHTS
        .into_iter()
        .flat_map(|(component, group, resources, verbs)| triples(component, &[group], resources, verbs));
    let objects = render("test", &json!({})).await;
    let roles = ["webhook", "keeper"].map(|component| {
        let role = find(&objects, "ClusterRole", &format!("test-tenure-{component}")).clone();
        let role: ClusterRole = serde_json::from_value(role).unwrap();
        let rules = role.rules.unwrap();
        rules.into_iter().flat_map(move |rule| granted(component, &rule))
    });
    let granted: BTreeSet<_> = roles.into_iter().flatten().collect();
    assert_eq!(granted, expected.collect());
}

fn granted(component: &str, rule: &PolicyRule) -> Vec<String> {
    assert_eq!((&rule.non_resource_urls, &rule.resource_names), (&None, &None));
    let (groups, resources) = (rule.api_groups.as_deref(), rule.resources.as_deref());
    triples(component, groups.unwrap(), resources.unwrap(), &rule.verbs)
}

/// Each right by itself: `keeper get pods.`
fn triples<T: AsRef<str>>(component: &str, groups: &[T], resources: &[T], verbs: &[T]) -> Vec<String> {
    let mut triples = Vec::new();
    for group in groups {
        for resource in resources {
            for verb in verbs {
                let (group, resource, verb) = (group.as_ref(), resource.as_ref(), verb.as_ref());
                triples.push(format!("{component} {verb} {resource}.{group}"));
            }
        }
    }
    triples
}

#[tokio::test]
async fn service_accounts_have_the_rights_of_their_roles_alone() {
    let (cluster, _) = installed().await;
    let table = [
        ("webhook", "list", "queues.scheduling.run.ai", "yes"),
        ("webhook", "update", "queues.scheduling.run.ai", "no"),
        ("webhook", "list", "queues.scheduler.tensorstack.dev", "no"),
        ("webhook", "list", "pods", "no"),
        ("webhook", "get", "secrets", "no"),
        ("keeper", "patch", "deployments.apps", "yes"),
        ("keeper", "delete", "pods", "yes"),
        ("keeper", "create", "events.events.k8s.io", "yes"),
        ("keeper", "create", "pods", "no"),
        ("keeper", "patch", "pods", "no"),
        ("keeper", "delete", "deployments.apps", "no"),
        ("keeper", "update", "deployments.apps", "no"),
        ("keeper", "patch", "daemonsets.apps", "no"),
        ("keeper", "update", "queues.scheduling.run.ai", "no"),
        ("keeper", "patch", "queues.scheduler.tensorstack.dev", "no"),
        ("keeper", "get", "secrets", "no"),
        ("keeper", "create", "events", "no"),
        ("keeper", "patch", "clusterroles.rbac.authorization.k8s.io", "no"),
    ];
    for (component, verb, resource, expected) in table {
        let account = format!("--as=system:serviceaccount:{NAMESPACE}:tenure-{component}");
        let ask = ["auth", "can-i", verb, resource, "--all-namespaces", &account];
        // the authorizer sees a new role a little later
        eventually(&format!("{expected} to {component} {verb} {resource}"), DEADLINE, async || {
            Ok((cluster.kubectl(&ask).await?.stdout.trim() == expected).then_some(()))
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn programs_know_the_flags_that_the_chart_passes() {
    for (level, format) in
        [("error", "logfmt"), ("warn", "json"), ("info", "logfmt"), ("debug", "json"), ("trace", "logfmt")]
    {
        let log = json!({"level": level, "format": format});
        let objects = render("test", &json!({"log": log})).await;
        for component in ["webhook", "keeper"] {
            let complaint = complaint(component, &objects).await;
            // comes after the flags are understood
            assert!(complaint.starts_with("Error: --kubeconfig "), "{complaint}");
        }
    }
    let extra = json!({"extraArgs": ["--unheard-of"]});
    let objects = render("test", &json!({"webhook": extra, "keeper": extra})).await;
    for component in ["webhook", "keeper"] {
        let complaint = complaint(component, &objects).await;
        assert!(complaint.contains("unexpected argument '--unheard-of'"), "{complaint}");
    }
}

/// What a program says when it is run as its Deployment does, but with a kubeconfig that isn't there.
async fn complaint(component: &str, objects: &[Value]) -> String {
    let deployment = find(objects, "Deployment", &format!("test-tenure-{component}"));
    let arguments = deployment.pointer("/spec/template/spec/containers/0/args").unwrap();
    let arguments: Vec<String> = serde_json::from_value(arguments.clone()).unwrap();
    let name = format!("tenure-{component}");
    let output = spawn_blocking(move || {
        let mut command = Command::new(program(&name).unwrap());
        command.args(arguments).arg("--kubeconfig=/not-there").output()
    });
    String::from_utf8(output.await.unwrap().unwrap().stderr).unwrap()
}

#[tokio::test]
async fn notes_tell_how_to_see_that_it_runs() {
    let (cluster, notes) = installed().await;
    let checks: Vec<_> = commands(notes, "1. ", "2. ").lines().map(str::to_owned).collect();
    assert_eq!(checks.len(), 2, "{notes}");
    for check in checks {
        let arguments: Vec<_> = check.split_whitespace().skip(1).collect();
        let said = kubectl(cluster, &arguments, "").await;
        assert!(said.contains("successfully rolled out"), "{check}: {said}");
    }
}

#[tokio::test]
async fn commands_of_the_notes_bring_up_a_webhook_outside_of_the_cluster() {
    let cluster = start("chart-notes").await.unwrap();
    kubectl(&cluster, &["create", "namespace", "t9k-system"], "").await;
    let (port, admin_port) = (free_port(), free_port());
    let values = json!({
        "webhook": {"url": format!("https://127.0.0.1:{port}")},
        "keeper": {"replicas": 0},
    });
    let install = helm(&cluster, "install", "tenure", &values, &[]).await;
    let notes = install.success().unwrap();
    assert!(notes.contains("nothing is paused until a keeper runs elsewhere"), "{notes}");

    // the last of them is the webhook; another program may have the admin port that it takes by default
    let serve =
        commands(&notes, "Fetch its certificate", "2. ").replace(" KUBECONFIG=", " exec env KUBECONFIG=");
    let serve = format!("{} --admin-listen 127.0.0.1:{admin_port}", serve.trim_end());
    let log = cluster.directory().join("by-hand.log");
    let webhook = Process::spawn("webhook", shell(&cluster, &serve).await, &log).unwrap();
    let admin = format!("--server=http://127.0.0.1:{admin_port}");
    // so it has the certificate, and its token is good for what it watches
    eventually("the webhook to be ready", DEADLINE, async || {
        let ready = cluster.kubectl(&[&admin, "get", "--raw=/ready"]).await?;
        ready.success().map(Some).map_err(|error| webhook.failure(&error.to_string()))
    })
    .await
    .unwrap();
    let make_queues = shell(&cluster, &commands(&notes, "2. ", "3. ")).await.output().unwrap();
    assert!(make_queues.status.success(), "{make_queues:?}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The commands between two places of the notes, as they are pasted.
fn commands(notes: &str, from: &str, to: &str) -> String {
    let part = notes.split_once(from).and_then(|(_, rest)| rest.split_once(to));
    let (part, _) = part.unwrap_or_else(|| panic!("no {from:?} before {to:?} in {notes}"));
    part.split_inclusive('\n').filter(|line| line.starts_with("     ")).collect()
}

/// A shell with our programs and kubectl at hand.
async fn shell(cluster: &Cluster, script: &str) -> Command {
    let webhook = spawn_blocking(|| program("tenure-webhook")).await.unwrap().unwrap();
    let mut path = vec![webhook.parent().unwrap().to_owned(), cluster.binaries().directory().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", script])
        .current_dir(cluster.directory())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PATH", env::join_paths(path).unwrap());
    shell
}
