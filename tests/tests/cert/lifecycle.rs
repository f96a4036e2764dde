//! Install, upgrade, rollback, uninstall, install: queues of both versions can be read at each step.

use std::{fs, process::Command};

use http::Request;
use serde_json::{Value, json};
use tenure_testbed::{Process, RELEASE_NAMESPACE, eventually, program};
use tenure_tests::DEADLINE;
use tokio::task::spawn_blocking;

use crate::world::{CHART, CRD, SECRET, V2, V3, World, stop};

const UNINSTALL: &str = "tenure-uninstall";

impl World {
    /// Reads all queues in a version, or one by `/NAME`. By a request: kubectl takes longer to start, and there are seven steps.
    async fn read(&self, version: &str, name: &str) -> kube::Result<Value> {
        let path = format!("/apis/scheduling.run.ai/{version}/queues{name}");
        self.cluster.client().unwrap().request(Request::get(path).body(Vec::new()).unwrap()).await
    }

    /// Asserts that both queues are read in both versions, by name and in lists.
    async fn assert_readable(&self, step: &str) {
        for version in ["v3alpha1", "v2"] {
            let listed = eventually("queues of both versions", DEADLINE, async || {
                Ok(self.read(version, "").await?["items"].as_array().map(Vec::len))
            });
            let listed = listed.await.unwrap_or_else(|error| panic!("{step}: {error:#}"));
            assert_eq!(listed, 2, "{step}: {version}");
            for (name, priority) in [("/from-v3", 3), ("/from-v2", 2)] {
                let queue = self.read(version, name).await.unwrap();
                assert_eq!(queue["spec"]["priority"], priority, "{step}: {version}");
            }
        }
        let queue = self.read("v3alpha1", "/from-v3").await.unwrap();
        assert_eq!(queue["spec"]["maxDuration"], "1h", "{step}");
    }

    /// The hook as Helm renders it for a webhook in the cluster, with `kubectl apply` of its account and rights.
    async fn hook(&self) -> Vec<Value> {
        let template = ["template", "tenure", CHART, "--namespace", RELEASE_NAMESPACE];
        let only = ["--show-only", "templates/webhook/uninstall.yaml"];
        let others = ["--dry-run=server", "--set", "allowOtherReleases=true,crds.serveV2=true"];
        let rendered = self.cluster.helm(&[&template[..], &only, &others].concat()).await.unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered.success().unwrap()).unwrap();
        for object in objects.iter().filter(|object| object["kind"] != "Job") {
            let apply = ["apply", "--namespace", RELEASE_NAMESPACE, "-f", "-"];
            self.cluster.kubectl_with_input(&apply, &object.to_string()).await.unwrap().success().unwrap();
        }
        objects
    }

    /// Runs what the hook runs, with no more than its rights, for a webhook at the address of these.
    async fn prepare_uninstall(&self) {
        let objects = self.hook().await;
        let job = objects.iter().find(|object| object["kind"] == "Job").unwrap();
        assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-delete");
        let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
        let arguments: Vec<String> = serde_json::from_value(arguments.clone()).unwrap();
        let account = self.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, UNINSTALL).await.unwrap();
        let mut command = Command::new(spawn_blocking(|| program("tenure-webhook")).await.unwrap().unwrap());
        command
            .args(arguments.iter().filter(|argument| !argument.starts_with("--webhook-hosts=")))
            .arg("--webhook-hosts=127.0.0.1")
            .arg(format!("--kubeconfig={}", account.display()));
        let log = self.cluster.directory().join("uninstall.log");
        let mut process = Process::spawn("uninstall", command, &log).unwrap();
        let status = process.wait(DEADLINE).await.unwrap();
        assert!(status.success(), "{}", process.failure("did not end well"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_of_both_versions_are_readable_at_each_step_of_a_release() {
    let world = World::start("cert-lifecycle", 1, &[]).await;
    world.helm("install", &["--create-namespace"]).await;
    let webhook = world.ready_webhook(0, &[]).await;
    world.create_queue(V3, "from-v3", &json!({"priority": 3, "maxDuration": "1h"})).await;
    world.create_queue(V2, "from-v2", &json!({"priority": 2})).await;
    world.assert_readable("install").await;
    let kept = (world.bundles().await, world.files(&["tls.crt", "ca.key"]).await);
    world.helm("upgrade", &["--set", "log.level=debug"]).await;
    world.assert_readable("upgrade").await;
    world.helm_alone(&["rollback", "tenure"]).await;
    world.assert_readable("rollback").await;
    assert_eq!((world.bundles().await, world.files(&["tls.crt", "ca.key"]).await), kept);

    // the hook runs while the webhook does
    world.prepare_uninstall().await;
    world.assert_readable("before the uninstall").await;
    world.helm_alone(&["uninstall", "tenure"]).await;
    stop(webhook).await;
    world.assert_readable("uninstall").await;
    let configurations = "validatingwebhookconfiguration,mutatingwebhookconfiguration";
    assert_eq!(world.kubectl(&["get", configurations, "-o", "name"]).await, "");
    let definition = world.get(&["crd", CRD]).await;
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    // what v2 can't show is still there
    world.kubectl(&["label", V3, "from-v3", "a=b"]).await;

    // no field has another owner that would be in Helm's way
    world.helm("install", &[]).await;
    let _webhook = world.ready_webhook(0, &[]).await;
    world.assert_readable("install again").await;
    let annotations = &world.get(&[V2, "from-v3"]).await["metadata"]["annotations"];
    assert_eq!(annotations["tenure.dev/max-duration"], "1h", "it is converted again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_take_from_a_webhook_comes_back() {
    let world = World::start("cert-kept", 1, &[]).await;
    world.helm("install", &["--create-namespace"]).await;
    authorities_that_are_taken_out_again_and_a_config_map_that_is_gone_are_in_the_log(&world).await;
    a_lease_that_was_deleted_is_made_again_and_the_authorities_are_kept_as_before(&world).await;
    a_webhook_that_finds_the_key_of_no_certificate_makes_the_pair_again(&world).await;
    a_webhook_that_finds_the_key_of_no_authority_serves_on_and_the_next_one_signs_once_it_is_trusted(&world)
        .await;
}

async fn authorities_that_are_taken_out_again_and_a_config_map_that_is_gone_are_in_the_log(world: &World) {
    let webhook = world.ready_webhook(0, &["--tls-reload-interval=200ms"]).await;
    let map = ["configmap", "tenure-webhook-ca", "-n", RELEASE_NAMESPACE];
    world.kubectl(&[&["delete"], &map[..]].concat()).await;
    let remove = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]).to_string();
    let take_out = ["patch", "mutatingwebhookconfiguration/tenure-webhook", "--type=json", "-p", &remove];
    for expected in [
        "object=\"MutatingWebhookConfiguration tenure-webhook\"",
        "ConfigMap tenure-system/tenure-webhook-ca: not found: helm upgrade recreates it",
    ] {
        eventually(expected, DEADLINE, async || {
            // there may be none to take out
            let _ = world.cluster.kubectl(&take_out).await?;
            Ok(fs::read_to_string(webhook.log())?.contains(expected).then_some(()))
        })
        .await
        .unwrap();
    }
    world.helm("upgrade", &[]).await;
    world.assert_kept().await;
    stop(webhook).await;
}

async fn a_lease_that_was_deleted_is_made_again_and_the_authorities_are_kept_as_before(world: &World) {
    let webhook = world.ready_webhook(0, &["--tls-reload-interval=200ms"]).await;
    let lease = ["lease", "tenure-webhook", "-n", RELEASE_NAMESPACE];
    let held = async || {
        let lease = [&["get"], &lease[..], &["-o", "jsonpath={.spec.holderIdentity}"]].concat();
        let holder = world.cluster.kubectl(&lease).await?.success().unwrap_or_default();
        Ok((!holder.is_empty()).then_some(()))
    };
    eventually("the Lease to be held", DEADLINE, held).await.unwrap();
    world.kubectl(&[&["delete"], &lease[..]].concat()).await;
    eventually("the Lease to be held again", DEADLINE, held).await.unwrap();
    world.assert_kept().await;
    stop(webhook).await;
}

/// Puts another key into the Secret while no webhook runs.
async fn break_key(world: &World, key: &str, other: &str) {
    let patch = json!({"stringData": {key: other}}).to_string();
    world.kubectl(&["patch", "secret", SECRET, "-n", RELEASE_NAMESPACE, "-p", &patch]).await;
}

async fn a_webhook_that_finds_the_key_of_no_certificate_makes_the_pair_again(world: &World) {
    stop(world.ready_webhook(0, &[]).await).await;
    let before = world.files(&["tls.key", "ca.crt"]).await;
    break_key(world, "tls.key", "no key").await;
    let webhook = world.ready_webhook(0, &[]).await;
    // the API server calls it over TLS
    world.create_queue(V3, "tls-key", &json!({"maxDuration": "1h"})).await;
    let after = world.files(&["tls.key", "ca.crt"]).await;
    assert_ne!(after[0], before[0]);
    assert_eq!(after[1], before[1], "only an authority without its key is replaced");
    stop(webhook).await;
}

async fn a_webhook_that_finds_the_key_of_no_authority_serves_on_and_the_next_one_signs_once_it_is_trusted(
    world: &World,
) {
    stop(world.ready_webhook(0, &[]).await).await;
    let before = world.files(&["tls.crt", "ca.crt"]).await;
    break_key(world, "ca.key", &world.files(&["tls.key"]).await[0]).await;
    // the certificate is that of before: the next authority must have been trusted for longer than the test takes
    let webhook = world.ready_webhook(0, &[]).await;
    world.create_queue(V3, "before", &json!({"maxDuration": "1h"})).await;
    eventually("the next authority to be in the Secret", DEADLINE, async || {
        Ok((world.files(&["next-ca.crt"]).await[0].contains("BEGIN")).then_some(()))
    })
    .await
    .unwrap();
    let now = world.files(&["tls.crt", "ca.crt", "previous-ca.crt"]).await;
    assert_eq!((&now[0], &*now[1], &now[2]), (&before[0], "", &before[1]));
    stop(webhook).await;

    let _webhook =
        world.ready_webhook(0, &["--self-managed-settling=1s", "--tls-reload-interval=200ms"]).await;
    eventually("the next authority to sign", DEADLINE, async || {
        Ok((world.files(&["tls.crt"]).await[0] != before[0]).then_some(()))
    })
    .await
    .unwrap();
    world.create_queue(V3, "after", &json!({"maxDuration": "1h"})).await;
    assert_eq!(
        world.files(&["previous-ca.crt"]).await[0],
        before[1],
        "replicas may serve what it has signed"
    );
}

/// On a release whose definitions kubectl applied, while no webhook runs.
pub async fn a_definition_of_kubectl_is_converted_again_when_a_webhook_starts_after_an_uninstall(
    world: &World,
) {
    let none =
        json!([{"op": "replace", "path": "/spec/conversion", "value": {"strategy": "None"}}]).to_string();
    let take = ["patch", "crd", CRD, "--type=json", "-p", &none];
    world.kubectl(&take).await;
    let flag = world.conversion_flag().await;
    let _webhook = world.ready_webhook(0, &[&flag]).await;
    world.create_queue(V3, "again", &json!({"maxDuration": "1h"})).await;
    eventually("queues to be converted", DEADLINE, async || {
        let queue = world.cluster.kubectl(&["get", V2, "again", "-o", "yaml"]).await?.success();
        Ok(queue.ok().filter(|queue| queue.contains("tenure.dev/max-duration")))
    })
    .await
    .unwrap();
}
