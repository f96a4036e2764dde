//! A release whose webhooks make their certificates by themselves, and run as processes behind one address.

use std::{collections::BTreeSet, process::Command, sync::Mutex, time::Duration};

use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Process, RELEASE_NAMESPACE, eventually, free_port, program};
use tenure_tests::{DEADLINE, fixtures::definitions_with_v2};
use tokio::task::spawn_blocking;

use crate::balancer::{Backend, Balancer, is_ready};

pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");
pub const CRD: &str = "queues.scheduling.run.ai";
pub const V2: &str = "queues.v2.scheduling.run.ai";
pub const V3: &str = "queues.v3alpha1.scheduling.run.ai";
pub const SECRET: &str = "tenure-webhook-certificates";

/// The time between SIGTERM and the end of a webhook's listening.
const DRAIN: &str = "1s";

/// An API server and a release.
pub struct World {
    pub cluster: Cluster,
    /// The port of the address.
    pub port: u16,
    /// The values of the release, for `helm`.
    values: String,
    /// What Helm has printed last about the release. Its notes have the flags of webhooks.
    notes: Mutex<String>,
    backends: Vec<Backend>,
    _balancer: Balancer,
}

impl World {
    /// An API server alone, and an address for `replicas` webhooks. Nothing is installed. Queues will
    /// be converted.
    pub async fn start(name: &str, replicas: usize, values: &[&str]) -> Self {
        let cluster = Cluster::start_api_server_alone(name).await.unwrap();
        let port = free_port().unwrap();
        let url = format!("webhook.url=https://127.0.0.1:{port}");
        let values = [&[&*url, "keeper.replicas=0", "crds.serveV2=true"], values].concat().join(",");
        let backend = |_| Backend { port: free_port().unwrap(), admin: free_port().unwrap() };
        let backends: Vec<_> = (0..replicas).map(backend).collect();
        let balancer = Balancer::start(port, backends.clone());
        Self { cluster, port, values, notes: Mutex::default(), backends, _balancer: balancer }
    }

    /// Applies the definitions with kubectl.
    pub async fn apply_definitions(&self) {
        let file = definitions_with_v2(&self.cluster).await;
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]).await;
        self.kubectl(&["wait", "--for=condition=Established", "crd", CRD]).await;
    }

    /// Runs `helm <verb> tenure` of the chart.
    pub async fn helm(&self, verb: &str, flags: &[&str]) -> String {
        let release = [verb, "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--set", &self.values];
        let printed = self.cluster.helm(&[&release[..], flags].concat()).await.unwrap().success().unwrap();
        printed.clone_into(&mut self.notes.lock().unwrap());
        printed
    }

    /// Runs `helm <arguments>` in the namespace of the release.
    pub async fn helm_alone(&self, arguments: &[&str]) -> String {
        let namespace = ["--namespace", RELEASE_NAMESPACE];
        self.cluster.helm(&[arguments, &namespace].concat()).await.unwrap().success().unwrap()
    }

    /// Starts a webhook with the rights of the chart's account and the flags of the chart, and more flags.
    pub async fn webhook(&self, index: usize, flags: &[&str]) -> Process {
        let notes = self.notes.lock().unwrap().clone();
        let line = notes.lines().find(|line| line.contains("--self-managed-secret")).unwrap();
        let of_chart: Vec<_> =
            line.split_whitespace().skip_while(|word| !word.starts_with("--self")).collect();
        let of_chart: Vec<_> = of_chart.into_iter().filter(|word| *word != "\\").collect();
        self.spawn(index, &[&of_chart, flags].concat()).await
    }

    /// Starts one with these flags about certificates.
    pub async fn spawn(&self, index: usize, flags: &[&str]) -> Process {
        let Backend { port, admin } = self.backends[index];
        let account = self.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-webhook").await;
        let mut command = Command::new(spawn_blocking(|| program("tenure-webhook")).await.unwrap().unwrap());
        command
            .arg(format!("--kubeconfig={}", account.unwrap().display()))
            .arg(format!("--listen=127.0.0.1:{port}"))
            .arg(format!("--admin-listen=127.0.0.1:{admin}"))
            .arg(format!("--drain-delay={DRAIN}"))
            .args(flags);
        let log = self.cluster.directory().join(format!("webhook-{index}.log"));
        Process::spawn("tenure-webhook", command, &log).unwrap()
    }

    /// Waits until a webhook is ready.
    pub async fn ready(&self, index: usize, webhook: &mut Process) {
        let admin = self.backends[index].admin;
        let ready =
            eventually("the webhook to be ready", DEADLINE, async || Ok(is_ready(admin).await.then_some(())))
                .await;
        if let Err(error) = ready {
            panic!("{}", webhook.failure(&format!("{error:#}")));
        }
    }

    /// The flag by which a webhook names itself as the converter of queues, with the patch that the chart has for it.
    pub async fn conversion_flag(&self) -> String {
        let map = ["configmap", "tenure-config", "-n", RELEASE_NAMESPACE];
        let patch = self.get(&map).await["data"]["conversion.json"].as_str().unwrap().to_owned();
        let file = self.cluster.directory().join("conversion.json");
        std::fs::write(&file, patch).unwrap();
        format!("--conversion-patch-file={}", file.display())
    }

    /// Starts a webhook, and waits until it is ready.
    pub async fn ready_webhook(&self, index: usize, flags: &[&str]) -> Process {
        let mut webhook = self.webhook(index, flags).await;
        self.ready(index, &mut webhook).await;
        webhook
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(arguments).await.unwrap().success().unwrap()
    }

    pub async fn get(&self, arguments: &[&str]) -> Value {
        let get = [&["get"], arguments, &["-o", "json"]].concat();
        serde_json::from_str(&self.kubectl(&get).await).unwrap()
    }

    /// Creates a queue; its own version is that of the resource.
    pub async fn create_queue(&self, resource: &str, name: &str, spec: &Value) {
        let version = if resource == V3 { "v3alpha1" } else { "v2" };
        let queue = json!({
            "apiVersion": format!("scheduling.run.ai/{version}"), "kind": "Queue",
            "metadata": {"name": name}, "spec": spec,
        });
        let create = self.cluster.kubectl_with_input(&["create", "-f", "-"], &queue.to_string()).await;
        create.unwrap().success().unwrap();
    }

    /// Each `caBundle` of the release.
    pub async fn bundles(&self) -> Vec<Option<String>> {
        let bundle = |client: &Value| client["caBundle"].as_str().map(str::to_owned);
        let client = self.cluster.client().unwrap();
        let mut bundles = Vec::new();
        for path in [
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tenure-webhook",
            "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/tenure-webhook",
            &format!("apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}"),
        ] {
            let request = Request::get(format!("/apis/{path}")).body(Vec::new()).unwrap();
            let object: Value = client.request(request).await.unwrap();
            let webhooks = object["webhooks"].as_array().into_iter().flatten();
            let definition = Some(&object["spec"]["conversion"]["webhook"]);
            let definition = definition.filter(|_| object["kind"] == "CustomResourceDefinition");
            bundles.extend(webhooks.chain(definition).map(|webhook| bundle(&webhook["clientConfig"])));
        }
        bundles
    }

    /// Asserts that the authorities come back where another program takes them out, and that the scheduler's are the same.
    pub async fn assert_kept(&self) {
        let remove =
            json!([{"op": "remove", "path": "/spec/conversion/webhook/clientConfig/caBundle"}]).to_string();
        self.kubectl(&["patch", "crd", CRD, "--type=json", "-p", &remove]).await;
        let remove = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]).to_string();
        let configuration = "validatingwebhookconfiguration/tenure-webhook";
        self.kubectl(&["patch", configuration, "--type=json", "-p", &remove]).await;
        let maps = Api::<ConfigMap>::namespaced(self.cluster.client().unwrap(), RELEASE_NAMESPACE);
        eventually("the authorities to be everywhere", DEADLINE, async || {
            let bundles: BTreeSet<_> = self.bundles().await.into_iter().collect();
            let published = maps.get("tenure-webhook-ca").await?.data.and_then(|mut of| of.remove("ca.crt"));
            let same = bundles.len() == 1 && !bundles.contains(&None);
            Ok((same && published.is_some_and(|pem| pem.contains("BEGIN CERTIFICATE"))).then_some(()))
        })
        .await
        .unwrap();
    }

    /// Files of the Secret.
    pub async fn files(&self, keys: &[&str]) -> Vec<String> {
        let secrets = Api::<Secret>::namespaced(self.cluster.client().unwrap(), RELEASE_NAMESPACE);
        let data = secrets.get(SECRET).await.unwrap().data.unwrap_or_default();
        let file =
            |key: &&str| String::from_utf8(data.get(*key).map(|file| file.0.clone()).unwrap_or_default());
        keys.iter().map(|key| file(key).unwrap()).collect()
    }
}

/// Ends a webhook as a kubelet would, and waits for it.
pub async fn stop(mut webhook: Process) {
    webhook.terminate().unwrap();
    let status = webhook.wait(Duration::from_secs(40)).await.unwrap();
    assert!(status.success(), "{}", webhook.failure("did not end well"));
}
