//! Definitions that were applied with kubectl: a supported way to install them.

use std::fs;

use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output, RELEASE_NAMESPACE, Tenure, eventually};
use tenure_tests::{
    DEADLINE, World, fixtures,
    pages::{commands, run},
    workloads::{Namespace, in_runai_queue, workload},
};

use crate::{V2, V3, common, create, own_annotations, own_fields, queue, read, seen, with, write};

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure/files/crds/");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/tenure");
const CRD: &str = "queues.scheduling.run.ai";
const NOT_BY_HELM: &str = "crds.install=false";

const PLAIN: &[&str] = &["apply"];
const SERVER_SIDE: &[&str] = &["apply", "--server-side"];

/// `kubectl <apply>` of what the chart renders with v2.
async fn try_apply(cluster: &Cluster, apply: &[&str]) -> Output {
    let file = fixtures::definitions_with_v2(cluster).await;
    let file = ["-f", file.to_str().unwrap()];
    cluster.kubectl(&[apply, &file].concat()).await.unwrap()
}

/// The same, which must be accepted.
async fn apply(cluster: &Cluster, by: &[&str]) {
    try_apply(cluster, by).await.success().unwrap();
    let established = ["wait", "--for=condition=Established", "crd", CRD, "queues.scheduler.tensorstack.dev"];
    cluster.kubectl(&established).await.unwrap().success().unwrap();
}

/// A cluster whose definitions were there before Tenure, with the webhook running.
async fn installed(name: &str, by: &[&str], values: &[&str]) -> (Cluster, Tenure) {
    let cluster = Cluster::start_api_server_alone(name).await.unwrap();
    apply(&cluster, by).await;
    let tenure = Box::pin(Tenure::install(&cluster, &[&[NOT_BY_HELM], values].concat())).await.unwrap();
    tenure.start_webhook(&cluster).await.unwrap();
    (cluster, tenure)
}

/// Asserts that a queue written in one version is read in the other, once the webhook has said where it is.
async fn assert_both_versions_are_served(cluster: &Cluster) {
    let spec = with(common("48h0m0s", "2m0s"), &own_fields());
    create(cluster, &queue(V3, "from-v3", &json!({"a": "b"}), &spec)).await;
    eventually("queues to be converted", DEADLINE, async || {
        Ok(cluster.kubectl(&["get", V2, "from-v3"]).await?.success().ok())
    })
    .await
    .unwrap();
    let annotations = with(own_annotations(), &json!({"a": "b"}));
    assert_eq!(seen(cluster, V2, "from-v3").await, (common("48h0m0s", "2m0s"), annotations));
    create(cluster, &queue(V2, "from-v2", &own_annotations(), &common("1h30m", "2m0s"))).await;
    assert_eq!(seen(cluster, V3, "from-v2").await.0, with(common("1h30m", "2m0s"), &own_fields()));
}

async fn client_config(cluster: &Cluster) -> Value {
    read(cluster, "crd", CRD).await["spec"]["conversion"]["webhook"]["clientConfig"].take()
}

#[tokio::test]
async fn both_versions_are_served_where_kubectl_applied_the_definitions_and_helm_owns_none() {
    let (cluster, tenure) = installed("versions-applied", PLAIN, &[]).await;
    assert_both_versions_are_served(&cluster).await;
    let manifest =
        cluster.helm(&["get", "manifest", "tenure", "--namespace", RELEASE_NAMESPACE]).await.unwrap();
    assert!(!manifest.success().unwrap().contains("kind: CustomResourceDefinition"));
    // nor does an upgrade or an uninstall touch them
    let upgrade = ["upgrade", "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--reuse-values"];
    cluster.helm(&upgrade).await.unwrap().success().unwrap();
    let before = read(&cluster, "crd", CRD).await;
    let url = format!("webhook.url={}", tenure.webhook_url());
    drop(tenure);
    let uninstall = ["uninstall", "tenure", "--namespace", RELEASE_NAMESPACE, "--wait"];
    cluster.helm(&uninstall).await.unwrap().success().unwrap();
    assert_eq!(read(&cluster, "crd", CRD).await["spec"], before["spec"]);

    // Helm takes them over only if it is told to
    let install = ["install", "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--set", &url];
    let refused = cluster.helm(&install).await.unwrap();
    assert!(refused.stderr.contains(CRD), "{}", refused.stderr);
    let take = [&install[..], &["--take-ownership", "--force-conflicts"]].concat();
    cluster.helm(&take).await.unwrap().success().unwrap();
    let manifest =
        cluster.helm(&["get", "manifest", "tenure", "--namespace", RELEASE_NAMESPACE]).await.unwrap();
    assert!(manifest.success().unwrap().contains("kind: CustomResourceDefinition"));
}

#[tokio::test]
async fn the_converter_stays_where_the_definitions_are_applied_again() {
    // of a file that names another Service than the chart
    let (cluster, _tenure) = installed("versions-applied-again", SERVER_SIDE, &["accountPolicy=Off"]).await;
    assert_both_versions_are_served(&cluster).await;

    // its URL and the Service of the file exclude each other
    let refused = try_apply(&cluster, SERVER_SIDE).await;
    assert!(refused.stderr.contains("exactly one of url or service is required"), "{}", refused.stderr);
    apply(&cluster, &["replace"]).await;
    let served = async || Ok(cluster.kubectl(&["get", V2, "from-v3"]).await?.success().ok());
    eventually("queues to be converted again", DEADLINE, served).await.unwrap();

    // as where the webhook is behind a Service, of the name in the file and of another
    let patch_file = cluster.directory().join("conversion.json");
    let mut patch: Value = serde_json::from_str(&fs::read_to_string(&patch_file).unwrap()).unwrap();
    let ca = patch["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].clone();
    assert!(ca.is_string(), "{patch}");
    for (name, namespace) in [("tenure-webhook", "tenure-system"), ("other-webhook", "other")] {
        let service = json!({"name": name, "namespace": namespace, "port": 443, "path": "/convert"});
        let expected = json!({"service": service, "caBundle": ca});
        patch["spec"]["conversion"]["webhook"]["clientConfig"] =
            with(expected.clone(), &json!({"url": null}));
        fs::write(&patch_file, patch.to_string()).unwrap();
        let named = async || {
            let is_expected = async || Ok((client_config(&cluster).await == expected).then_some(()));
            eventually("the webhook to be named", DEADLINE, is_expected).await.unwrap();
        };
        named().await;
        apply(&cluster, PLAIN).await;
        named().await;
        let again = try_apply(&cluster, SERVER_SIDE).await;
        if name == "tenure-webhook" {
            again.success().unwrap();
            assert_eq!(client_config(&cluster).await, expected, "nothing is left for the webhook to do");
        } else {
            assert!(again.stderr.contains("conflicts with \"tenure-webhook\""), "{}", again.stderr);
            apply(&cluster, &[SERVER_SIDE, &["--force-conflicts"]].concat()).await;
        }
        named().await;
    }
}

#[tokio::test]
async fn the_files_serve_v3alpha1_alone_and_one_command_of_the_page_serves_v2_too() {
    let cluster = Cluster::start_api_server_alone("versions-applied-files").await.unwrap();
    let files = [SERVER_SIDE, &["-f", FILES]].concat();
    cluster.kubectl(&files).await.unwrap().success().unwrap();
    let render = async |values: &str| {
        let template = ["template", "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--dry-run=server"];
        cluster.helm(&[&template[..], &["--set", values]].concat()).await.unwrap()
    };
    let alone = render(NOT_BY_HELM).await.success().unwrap();
    for of_v2 in ["/convert", "--converted-definitions", "runai-queues-v2", "apiextensions.k8s.io"] {
        assert!(!alone.contains(of_v2), "{of_v2}");
    }
    create(&cluster, &queue(V3, "kept", &json!({}), &json!({"maxDuration": "1h"}))).await;
    run(&cluster, &commands("queue-versions.md", "Applied with kubectl")[1]).await;
    let tenure = Box::pin(Tenure::install(&cluster, &[NOT_BY_HELM])).await.unwrap();
    tenure.start_webhook(&cluster).await.unwrap();
    assert_both_versions_are_served(&cluster).await;

    let refused = render(&format!("{NOT_BY_HELM},crds.serveV2=false")).await;
    assert!(refused.stderr.contains("crds.serveV2 must not be false yet"), "{}", refused.stderr);
    // where the webhook has written its CA, the files don't take v2 away by mistake
    let refused = cluster.kubectl(&[&files[..], &["--force-conflicts"]].concat()).await.unwrap();
    assert!(refused.stderr.contains("when strategy is not set to Webhook"), "{}", refused.stderr);
    let page = include_str!("../../../docs/queue-versions.md");
    let (_, stop) = page.split_once("- **To stop**, run `").unwrap();
    run(&cluster, stop.split('`').next().unwrap()).await;
    assert_eq!(seen(&cluster, V3, "kept").await.0, json!({"maxDuration": "1h"}));
    assert!(!render(NOT_BY_HELM).await.success().unwrap().contains("--converted-definitions"));
}

/// Queues are stored as v3alpha1, and the first list of them waits for its own converter.
#[tokio::test]
async fn queues_of_tenures_definition_may_be_read_as_v2() {
    let cluster = Cluster::start("versions-applied-v2").await.unwrap();
    apply(&cluster, SERVER_SIDE).await;
    create(&cluster, &queue(V3, "short", &json!({}), &json!({"maxDuration": "2s"}))).await;
    let tenure = Box::pin(Tenure::install(&cluster, &[NOT_BY_HELM, "queueVersion=v2"])).await.unwrap();
    let world = World { cluster, tenure };
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    let namespace = Namespace::new(&world).await;
    let labels = in_runai_queue("short");
    world.apply(&workload("Deployment", namespace.name(), "test", &labels, &Value::Null)).await;
    let record = namespace.await_paused("Deployment", "test").await;
    assert_eq!((&record["reason"], &record["queue"]), (&json!("MaxDurationExceeded"), &json!("short")));
    let bad = queue(V3, "bad", &json!({}), &json!({"maxDuration": "1h", "reclaimMinRuntime": "2h"}));
    let refused = write(&world.cluster, &["create"], &bad).await;
    assert!(
        refused.stderr.contains("must not be longer than the queue's own maxDuration"),
        "{}",
        refused.stderr
    );
}

/// The definition is KAI-Scheduler's, and only the cluster says so.
#[tokio::test]
async fn the_version_is_read_that_the_cluster_serves_unless_it_is_said() {
    let cluster = crate::kai::api_server("versions-auto").await.unwrap();
    let rendered = async |values: &[&str]| {
        let values = values.join(",");
        let template = ["template", "tenure", CHART, "--namespace", RELEASE_NAMESPACE, "--dry-run=server"];
        cluster.helm(&[&template[..], &["--set", &values]].concat()).await.unwrap().success().unwrap()
    };
    for (values, version) in [
        (&[NOT_BY_HELM][..], "v2"),
        (&[NOT_BY_HELM, "queueVersion=v2"], "v2"),
        (&["crds.runai=false"], "v2"),
        (&[NOT_BY_HELM, "queueVersion=v3alpha1"], "v3alpha1"),
        (&["crds.runai=false", "queueVersion=v3alpha1"], "v3alpha1"),
    ] {
        let rendered = rendered(values).await;
        let flags = rendered.matches(&format!("--runai-queue-version={version}\n")).count();
        assert_eq!(flags, 2, "{values:?}: webhook and keeper should read {version}");
        // the cluster's definition is KAI's, unless Tenure's is about to be applied
        let patches = rendered.contains("--conversion-patch-file=");
        assert_eq!(patches, version == "v3alpha1", "{values:?}");
    }
    apply(&cluster, &[SERVER_SIDE, &["--force-conflicts"]].concat()).await;
    assert!(rendered(&[NOT_BY_HELM]).await.contains("--runai-queue-version=v3alpha1\n"));
}
