//! What admins of real platforms ask of a chart, and the mistakes that they make.

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::{render, shared, values::assert_refused};

const BOTH: [&str; 2] = ["webhook", "keeper"];

/// A field of an object. Null: the field or the object isn't there.
#[derive(Clone)]
struct Field {
    kind: &'static str,
    name: String,
    path: String,
    expected: Value,
}

/// The pod template of both programs has these fields below `spec.template`.
fn on_pods(fields: &[(impl AsRef<str>, Value)]) -> Vec<Field> {
    let of = |component: &str| {
        let name = format!("test-tenure-{component}");
        let row = |(field, value): &(_, Value)| {
            on("Deployment", &name, &format!("/spec/template{}", AsRef::as_ref(field)), value.clone())
        };
        fields.iter().map(row).collect::<Vec<_>>()
    };
    BOTH.into_iter().flat_map(of).collect()
}

fn on(kind: &'static str, name: &str, path: &str, expected: Value) -> Field {
    Field { kind, name: name.to_owned(), path: path.to_owned(), expected }
}

/// The same values of both programs.
fn of_both(values: &Value) -> Value {
    json!({"webhook": values, "keeper": values})
}

/// A wish, its values, and the fields that have to be there.
type Wish = (&'static str, Value, Vec<Field>);

fn images() -> Vec<Wish> {
    let image = |name: &str| format!("registry.example.com:5000/gpu/tenure-{name}:1.2.3");
    let images = BOTH.map(|name| {
        let path = "/spec/template/spec/containers/0/image";
        on("Deployment", &format!("test-tenure-{name}"), path, json!(image(name)))
    });
    let secrets = json!([{"name": "pull"}]);
    vec![
        (
            "a private registry",
            json!({"image": {"registry": "registry.example.com:5000/gpu", "tag": "1.2.3"}}),
            images.into(),
        ),
        (
            "a pull secret",
            json!({"image": {"pullSecrets": secrets}}),
            on_pods(&[("/spec/imagePullSecrets", secrets)]),
        ),
        (
            "images that are always pulled",
            json!({"image": {"pullPolicy": "Always"}}),
            on_pods(&[("/spec/containers/0/imagePullPolicy", json!("Always"))]),
        ),
    ]
}

fn places() -> Vec<Wish> {
    let (node, class) = (json!({"role": "infra"}), json!("system-cluster-critical"));
    let toleration = json!([{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}]);
    let term = json!({"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]});
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = json!({"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}});
    let spread = json!([{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}});
    vec![
        ("certain nodes", of_both(&json!({"nodeSelector": node})), on_pods(&[("/spec/nodeSelector", node)])),
        (
            "tainted nodes",
            of_both(&json!({"tolerations": toleration})),
            on_pods(&[("/spec/tolerations", toleration)]),
        ),
        ("no GPU nodes", of_both(&json!({"affinity": affinity})), on_pods(&[("/spec/affinity", affinity)])),
        (
            "racks",
            of_both(&json!({"topologySpreadConstraints": spread})),
            on_pods(&[("/spec/topologySpreadConstraints/0/topologyKey", json!("rack"))]),
        ),
        (
            "a priority class",
            of_both(&json!({"priorityClassName": class})),
            on_pods(&[("/spec/priorityClassName", class)]),
        ),
        (
            "other resources",
            of_both(&json!({"resources": resources})),
            on_pods(&[
                ("/spec/containers/0/resources/requests/cpu", json!("1")),
                ("/spec/containers/0/resources/limits/memory", json!("2Gi")),
            ]),
        ),
    ]
}

fn security() -> Vec<Wish> {
    let unset = json!({"runAsUser": null, "runAsGroup": null, "fsGroup": null});
    let (pod, container) = ("/spec/securityContext", "/spec/containers/0/securityContext");
    let of = |context: &str, field: &str| format!("{context}/{field}");
    let restricted = [
        (of(pod, "runAsNonRoot"), json!(true)),
        (of(pod, "seccompProfile/type"), json!("RuntimeDefault")),
        (of(container, "allowPrivilegeEscalation"), json!(false)),
        (of(container, "capabilities/drop"), json!(["ALL"])),
        (of(container, "readOnlyRootFilesystem"), json!(true)),
    ];
    let users = ["runAsUser", "runAsGroup", "fsGroup"].map(|field| (of(pod, field), Value::Null));
    vec![
        ("OpenShift", json!({"podSecurityContext": unset}), on_pods(&[&restricted[..2], &users].concat())),
        ("Pod Security restricted", json!({}), on_pods(&restricted)),
        (
            "an account of a cloud",
            of_both(&json!({"serviceAccount": {"annotations": {"iam": "role"}}})),
            BOTH.map(|name| {
                on(
                    "ServiceAccount",
                    &format!("test-tenure-{name}"),
                    "/metadata/annotations/iam",
                    json!("role"),
                )
            })
            .into(),
        ),
        (
            "a network policy",
            json!({"webhook": {"networkPolicy": {"enabled": true, "from": [{"ipBlock": {"cidr": "10.0.0.0/28"}}]}},
                "keeper": {"networkPolicy": {"enabled": true}}}),
            vec![
                on(
                    "NetworkPolicy",
                    "test-tenure-webhook",
                    "/spec/ingress/0/from/0/ipBlock/cidr",
                    json!("10.0.0.0/28"),
                ),
                on("NetworkPolicy", "test-tenure-keeper", "/spec/policyTypes", json!(["Ingress"])),
            ],
        ),
    ]
}

fn certificates() -> Vec<Wish> {
    let hook = "ValidatingWebhookConfiguration";
    let pem = crate::PEM;
    vec![
        (
            "cert-manager",
            json!({"webhook": {"certificate": {"mode": "certManager",
                "certManager": {"issuerRef": {"name": "corporate", "kind": "ClusterIssuer"}}}}}),
            vec![
                on("Certificate", "test-tenure-webhook", "/spec/issuerRef/name", json!("corporate")),
                on(
                    hook,
                    "test-tenure-webhook",
                    "/metadata/annotations/cert-manager.io~1inject-ca-from",
                    json!("tenure-system/test-tenure-webhook"),
                ),
            ],
        ),
        (
            "a certificate that exists",
            json!({"webhook": {"certificate": {"mode": "existingSecret",
                "existingSecret": {"name": "own-tls", "caBundle": pem}}}}),
            vec![on(
                "Deployment",
                "test-tenure-webhook",
                "/spec/template/spec/volumes/0/secret/secretName",
                json!("own-tls"),
            )],
        ),
        (
            "a webhook outside of the cluster",
            json!({"webhook": {"url": crate::NOWHERE, "certificate": {"mode": "existingSecret",
                "existingSecret": {"name": "own-tls", "caBundle": pem}}}}),
            vec![
                on("Deployment", "test-tenure-webhook", "", Value::Null),
                on("Service", "test-tenure-webhook", "", Value::Null),
                on(
                    hook,
                    "test-tenure-webhook",
                    "/webhooks/0/clientConfig/url",
                    json!(format!("{}/validate", crate::NOWHERE)),
                ),
            ],
        ),
    ]
}

fn sizes() -> Vec<Wish> {
    let (webhook, keeper) = ("test-tenure-webhook", "test-tenure-keeper");
    let replicas = |name: &str, replicas: u8| on("Deployment", name, "/spec/replicas", json!(replicas));
    let budget = |name: &str, most: Value| on("PodDisruptionBudget", name, "/spec/maxUnavailable", most);
    vec![
        (
            "one replica",
            of_both(&json!({"replicas": 1})),
            vec![
                replicas(webhook, 1),
                replicas(keeper, 1),
                budget(webhook, Value::Null),
                budget(keeper, Value::Null),
            ],
        ),
        (
            "three replicas",
            of_both(&json!({"replicas": 3})),
            vec![
                replicas(webhook, 3),
                replicas(keeper, 3),
                budget(webhook, json!(1)),
                budget(keeper, json!(1)),
            ],
        ),
        (
            "a keeper elsewhere",
            json!({"keeper": {"replicas": 0}}),
            vec![replicas(keeper, 0), budget(keeper, Value::Null)],
        ),
        (
            "a dry run",
            json!({"keeper": {"dryRun": true}}),
            vec![replicas(keeper, 1), on("Role", keeper, "", Value::Null)],
        ),
    ]
}

fn surroundings() -> Vec<Wish> {
    let proxies = json!([
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "NO_PROXY", "value": "10.0.0.0/8,.svc"},
    ]);
    let args = "/spec/template/spec/containers/0/args";
    let has = |name: &str, value: &str| {
        on("Deployment", &format!("test-tenure-{name}"), args, json!({"has": value}))
    };
    let env = |name: &str, place: u8| {
        let path = format!("/spec/template/spec/containers/0/env/{place}/value");
        on("Deployment", &format!("test-tenure-{name}"), &path, json!("http://proxy:3128"))
    };
    vec![
        (
            "proxies",
            of_both(&json!({"extraEnv": proxies})),
            // the keeper's own variable comes first
            vec![env("webhook", 0), env("keeper", 1)],
        ),
        (
            "further labels and annotations",
            json!({"commonLabels": {"team": "gpu"}, "webhook": {"podAnnotations": {"a": "b"}},
                "keeper": {"podAnnotations": {"a": "b"}}}),
            on_pods(&[("/metadata/labels/team", json!("gpu")), ("/metadata/annotations/a", json!("b"))]),
        ),
        (
            "logs in JSON",
            json!({"log": {"format": "json", "level": "warn"}}),
            BOTH.iter()
                .flat_map(|name| [has(name, "--log-format=json"), has(name, "--log-level=warn")])
                .collect(),
        ),
        (
            "a service monitor",
            json!({"monitoring": {"monitor": {"enabled": true, "kind": "ServiceMonitor", "labels": {"release": "prometheus"}}}}),
            vec![on("ServiceMonitor", "test-tenure", "/metadata/labels/release", json!("prometheus"))],
        ),
        (
            "further flags",
            of_both(&json!({"extraArgs": ["--kubeconfig=/etc/own"]})),
            BOTH.map(|name| has(name, "--kubeconfig=/etc/own")).into(),
        ),
        (
            "another namespace",
            json!({"namespaceOverride": "platform"}),
            BOTH.map(|name| {
                on("Deployment", &format!("test-tenure-{name}"), "/metadata/namespace", json!("platform"))
            })
            .into(),
        ),
    ]
}

#[tokio::test]
async fn a_wish_of_an_admin_is_a_field_of_the_right_objects() {
    shared().await;
    let wishes = [images(), places(), security(), certificates(), sizes(), surroundings()].concat();
    assert!(wishes.len() >= 20, "{}", wishes.len());
    let complaints = stream::iter(wishes).map(async |(wish, values, fields)| {
        let objects = render("test", &values).await;
        let complaint = |Field { kind, name, path, expected }| {
            let is_there =
                |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name.as_str();
            let found = objects.iter().find(is_there).and_then(|object| object.pointer(&path));
            let found = found.cloned().unwrap_or_default();
            let is_right = match expected.get("has") {
                Some(item) => found.as_array().is_some_and(|list| list.contains(item)),
                None => found == expected,
            };
            (!is_right).then(|| format!("{wish}: {kind} {name} {path}: {found} is not {expected}"))
        };
        fields.into_iter().filter_map(complaint).collect::<Vec<_>>()
    });
    let complaints = complaints.buffered(4).concat().await;
    assert_eq!(complaints, Vec::<String>::new());
}

#[tokio::test]
async fn a_bad_value_is_refused_with_the_field_the_value_and_the_remedy() {
    let webhook = |values: Value| json!({"webhook": values});
    let keeper = |values: Value| json!({"keeper": values});
    let certificate = |values: Value| json!({"webhook": {"certificate": values}});
    assert_refused(&[
        (
            json!({"image": {"registry": "https://registry.example.com"}}),
            "image.registry: Invalid value: \"https://registry.example.com\": must be a registry without a scheme, such as registry.example.com/gpu",
        ),
        (json!({"image": {"tag": "a b"}}), "image.tag: Invalid value: \"a b\": must be the tag of an image, such as 0.1.0"),
        (
            webhook(json!({"tolerations": [{"key": "gpu", "foo": "a"}]})),
            "webhook.tolerations[0].foo: Invalid value: \"foo\": must be a field of a toleration: key, operator, value, effect or tolerationSeconds",
        ),
        (
            webhook(json!({"affinity": {"foo": {}}})),
            "webhook.affinity.foo: Invalid value: \"foo\": must be nodeAffinity, podAffinity or podAntiAffinity",
        ),
        (
            keeper(json!({"affinity": {"nodeAffinity": {"required": {}}}})),
            "keeper.affinity.nodeAffinity.required: Invalid value: \"required\": must be requiredDuringSchedulingIgnoredDuringExecution or preferred",
        ),
        (
            keeper(json!({"resources": {"limit": {"memory": "1Gi"}}})),
            "keeper.resources.limit: Invalid value: \"limit\": must be requests, limits or claims",
        ),
        (
            keeper(json!({"extraEnv": [{"name": "NO_PROXY", "valeu": "a"}]})),
            "keeper.extraEnv[0].valeu: Invalid value: \"valeu\": must be a field of a variable: name, value or valueFrom",
        ),
        (
            keeper(json!({"retryAfter": "10 s"})),
            "keeper.retryAfter: Invalid value: \"10 s\": must be a duration such as 5s, 90m or 2d",
        ),
        (
            keeper(json!({"maxTerminationGrace": "ten minutes"})),
            "keeper.maxTerminationGrace: Invalid value: \"ten minutes\": must be a duration such as",
        ),
        (
            keeper(json!({"graceOnChange": "1 m"})),
            "keeper.graceOnChange: Invalid value: \"1 m\": must be a duration such as 10m, 1h30m or 2d, 0, or empty",
        ),
        (
            keeper(json!({"expiryNotice": "1h;10m"})),
            "keeper.expiryNotice: Invalid value: \"1h;10m\": must be up to eight durations with commas between them",
        ),
        (
            json!({"floors": {"defaultPreemptMinRuntime": "10 minutes"}}),
            "floors.defaultPreemptMinRuntime: Invalid value: \"10 minutes\": must be a duration such as 10m",
        ),
        (
            webhook(json!({"url": "http://10.0.0.7"})),
            "webhook.url: Invalid value: \"http://10.0.0.7\": must be https://, a host and perhaps a port",
        ),
        (
            webhook(json!({"extraArgs": ["log-level=debug"]})),
            "webhook.extraArgs[0]: Invalid value: \"log-level=debug\": must begin with --",
        ),
        (
            keeper(json!({"extraArgs": ["--log-level=debug"]})),
            "keeper.extraArgs must not have --log-level: set log.level instead",
        ),
        (
            certificate(json!({"mode": "existingSecret"})),
            "webhook.certificate.existingSecret.name must be set when webhook.certificate.mode is existingSecret",
        ),
        (
            webhook(json!({"clientCA": "MIIB"})),
            "webhook.clientCA: Invalid value: \"MIIB\": must be a certificate in PEM",
        ),
        (
            webhook(json!({"networkPolicy": {"enabled": true}})),
            "webhook.networkPolicy.from must not be empty: the API server could not reach the webhook",
        ),
        (
            keeper(json!({"leaderElection": {"leaseDuration": "5s"}})),
            "keeper.leaderElection.leaseDuration must be longer than renewDeadline: 5s isn't longer than 10s",
        ),
        (
            webhook(json!({"image": {"digest": "sha256:0"}})),
            "webhook.image.digest: Invalid value: \"sha256:0\": must be a digest: sha256: and 64 hexadecimal digits",
        ),
        (
            keeper(json!({"exemptNamespaces": ["Prod"]})),
            "keeper.exemptNamespaces[0]: Invalid value: \"Prod\": must be a name of lower case letters",
        ),
        (
            json!({"commonLabels": {"team": "a b"}}),
            "commonLabels.team: Invalid value: \"a b\": must be a label's value",
        ),
        (
            json!({"schedulerExtender": {"enabled": true}}),
            "schedulerExtender.clientCA must be set: the authority of the client certificate",
        ),
    ])
    .await;
}
