//! The keeper's writes to a queue, while others write it in the other version.

use std::fs;

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, bare_pod, in_runai_queue},
};

use crate::{V2, V3, create, queue, read};

#[tokio::test]
async fn status_stays_right_after_a_write_through_v2() {
    let world = Box::pin(World::installed_alone("versions-kept", &["crds.serveV2=true"])).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    let cluster = &world.cluster;
    let namespace = Namespace::new(&world).await;
    create(cluster, &queue(V3, "va", &json!({}), &json!({"maxDuration": "1h"}))).await;
    let pod = bare_pod(namespace.name(), "pod", &in_runai_queue("va"), &Value::Null);
    let pod = namespace.create(&pod).await;
    // as a scheduler notes
    let at = &pod.metadata.creation_timestamp;
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at});
    namespace.patch_status(&pod, &json!({"conditions": [scheduled]})).await;
    let expiry =
        async || Ok(read(cluster, V3, "va").await["status"]["nextExpiry"].as_str().map(str::to_owned));
    let before = eventually("a next expiry", DEADLINE, expiry).await.unwrap();
    cluster.kubectl(&["annotate", V2, "va", "note=hello"]).await.unwrap().success().unwrap();
    assert_eq!(expiry().await.unwrap().as_deref(), Some(&*before));
    namespace.delete(&pod).await;
    let is_gone = async || {
        let status = read(cluster, V3, "va").await["status"].clone();
        anyhow::ensure!(status["nextExpiry"].is_null() && status["workloads"]["running"] == 0, "{status}");
        Ok(Some(()))
    };
    eventually("the next expiry to go", DEADLINE, is_gone).await.unwrap();
    let log = fs::read_to_string(world.tenure.keeper(0).log()).unwrap();
    assert!(!log.contains("lacks fields"), "{log}");
}
