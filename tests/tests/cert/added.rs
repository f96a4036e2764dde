//! Objects that a release gets while it runs.

use std::collections::BTreeSet;

use serde_json::json;
use tenure_testbed::{RELEASE_NAMESPACE, eventually};
use tenure_tests::DEADLINE;

use crate::{
    rendered::FLAGS,
    world::{World, stop},
};

const GUARD: [&str; 2] = ["validatingwebhookconfiguration", "tenure-webhook-guard"];
const FAST: &str = "--tls-reload-interval=200ms";

impl World {
    /// The different bundles of the guard's configuration.
    async fn of_guard(&self) -> BTreeSet<Option<String>> {
        let configuration = self.get(&GUARD).await;
        let webhooks = configuration["webhooks"].as_array().unwrap();
        webhooks
            .iter()
            .map(|webhook| webhook["clientConfig"]["caBundle"].as_str().map(str::to_owned))
            .collect()
    }

    async fn assert_guard_is_trusted(&self) {
        let expected: BTreeSet<_> = self.bundles().await.into_iter().collect();
        eventually("the guard's configuration to have the authorities", DEADLINE, async || {
            Ok((self.of_guard().await == expected).then_some(()))
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_turned_on_while_a_replica_leads_that_does_not_know_it_holds_up_no_rollout() {
    let world = World::start("cert-added", 2, &[]).await;
    world.helm("install", &["--create-namespace"]).await;
    let mut old = world.spawn(0, &[FLAGS, &[FAST]].concat()).await;
    world.ready(0, &mut old).await;
    let holder = async || {
        let lease = world.get(&["lease", "tenure-webhook", "-n", RELEASE_NAMESPACE]).await;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    };
    let leads = holder().await;
    assert!(leads.is_some());

    world.helm("upgrade", &["--set", "guard.enabled=true"]).await;
    assert_eq!(world.of_guard().await, [None].into());
    let _new = world.ready_webhook(1, &[FAST]).await;
    assert_eq!(holder().await, leads, "the old one leads, and doesn't know the guard's configuration");
    world.assert_guard_is_trusted().await;

    stop(old).await;
    let remove = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]).to_string();
    world.kubectl(&[&["patch"], &GUARD[..], &["--type=json", "-p", &remove]].concat()).await;
    world.assert_guard_is_trusted().await;
}
