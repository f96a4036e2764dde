//! What is rendered without a look into the cluster and applied with kubectl.

use serde_json::json;
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::DEADLINE;

use crate::{
    lifecycle::a_definition_of_kubectl_is_converted_again_when_a_webhook_starts_after_an_uninstall,
    world::{V2, V3, World, stop},
};

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_work_where_kubectl_applied_the_definitions_and_helm_the_rest() {
    let world = World::start("cert-applied", 1, &["crds.install=false"]).await;
    world.apply_definitions().await;
    world.helm("install", &["--create-namespace"]).await;
    let flag = world.conversion_flag().await;
    let webhook = world.ready_webhook(0, &[&flag]).await;
    world.create_queue(V3, "from-v3", &json!({"maxDuration": "1h"})).await;
    eventually("queues to be converted", DEADLINE, async || {
        Ok(world.cluster.kubectl(&["get", V2, "from-v3"]).await?.success().ok())
    })
    .await
    .unwrap();
    world.create_queue(V2, "from-v2", &json!({"priority": 7})).await;
    assert_eq!(world.get(&[V3, "from-v2"]).await["spec"]["priority"], 7);
    let bundles = world.bundles().await;
    assert!(bundles.iter().all(|bundle| bundle.is_some() && *bundle == bundles[0]), "{bundles:?}");
    stop(webhook).await;
    a_definition_of_kubectl_is_converted_again_when_a_webhook_starts_after_an_uninstall(&world).await;
}

/// The flags about certificates of a release that had neither a guard nor answers to owners.
pub const FLAGS: &[&str] = &[
    "--self-managed-secret=tenure-webhook-certificates",
    "--self-managed-namespace=tenure-system",
    "--self-managed-lease=tenure-webhook",
    "--self-managed-config-map=tenure-webhook-ca",
    "--webhook-hosts=127.0.0.1",
    "--validating-configurations=tenure-webhook",
    "--mutating-configurations=tenure-webhook",
    "--converted-definitions=queues.scheduling.run.ai",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_second_rendering_that_is_applied_changes_nothing() {
    let world = World::start("cert-rendered", 1, &[]).await;
    world.kubectl(&["create", "namespace", RELEASE_NAMESPACE]).await;
    let render = async || world.helm("template", &[]).await;
    let rendered = render().await;
    assert_eq!(render().await, rendered, "nothing in it is random");
    let apply = async |by: &[&str]| {
        let apply = [&["apply"], by, &["-f", "-"]].concat();
        world.cluster.kubectl_with_input(&apply, &rendered).await.unwrap().success().unwrap()
    };
    for by in [&[][..], &["--server-side", "--force-conflicts"]] {
        apply(by).await;
        // Helm has no notes of what it didn't install
        let mut webhook = world.spawn(0, FLAGS).await;
        world.ready(0, &mut webhook).await;
        let before = (world.bundles().await, world.files(&["tls.crt", "tls.key", "ca.crt"]).await);
        assert!(before.0.iter().all(Option::is_some), "{:?}", before.0);
        let diff = [&["diff"], by, &["-f", "-"]].concat();
        let diff = world.cluster.kubectl_with_input(&diff, &rendered).await.unwrap();
        assert_eq!((diff.status.code(), &*diff.stdout), (Some(0), ""), "{by:?} {}", diff.stderr);
        apply(by).await;
        assert_eq!((world.bundles().await, world.files(&["tls.crt", "tls.key", "ca.crt"]).await), before);
        stop(webhook).await;
    }
}
