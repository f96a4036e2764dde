//! From KAI's definition to Tenure's and back, by the commands of `docs/queue-versions.md`.

use serde_json::{Value, json};
use tenure_testbed::{Cluster, Tenure, eventually};
use tenure_tests::{
    DEADLINE, fixtures,
    pages::{self, run},
};

use crate::{
    V2, V3, common, create,
    kai::{self, KAI_APPLIES},
    own_annotations, own_fields, queue, read, seen, with, write,
};

/// The commands below a heading of the page.
pub fn commands(heading: &str) -> String {
    pages::commands("queue-versions.md", heading).concat()
}

async fn stored_versions(cluster: &Cluster) -> Value {
    read(cluster, "crd", "queues.scheduling.run.ai").await["status"]["storedVersions"].take()
}

/// Has the API server find a converter somewhere; returns where it was before.
async fn convert_at(cluster: &Cluster, url: &str) -> String {
    let pointer = "/spec/conversion/webhook/clientConfig/url";
    let before = read(cluster, "crd", "queues.scheduling.run.ai").await;
    let patch = json!([{"op": "replace", "path": pointer, "value": url}]).to_string();
    let patch = ["patch", "crd", "queues.scheduling.run.ai", "--type=json", "--patch", &patch];
    cluster.kubectl(&patch).await.unwrap().success().unwrap();
    before.pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

#[tokio::test]
async fn queues_survive_the_way_from_kais_definition_to_tenures_and_back() {
    let cluster = &kai::api_server("versions-switch").await.unwrap();
    let (spec, annotations) = (common("48h0m0s", "2m0s"), own_annotations());
    for name in ["a", "b", "c"] {
        create(cluster, &queue(V2, name, &annotations, &spec)).await;
    }
    create(
        cluster,
        &json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "bare"}}),
    )
    .await;
    let mut tenure = Box::pin(Tenure::install(cluster, &["crds.runai=false"])).await.unwrap();

    let there = commands("From KAI's CRD to Tenure's");
    let (switch, rewrite) = there.split_once("kubectl get ").unwrap();
    run(cluster, switch).await;
    assert_eq!(stored_versions(cluster).await, json!(["v2", "v3alpha1"]));
    tenure.read_queues_as("v3alpha1");
    the_webhook_gets_ready_before_anybody_converts(cluster, &tenure).await;
    let as_v3alpha1 = with(spec.clone(), &own_fields());
    eventually("old objects to be converted", DEADLINE, async || {
        let output = cluster.kubectl(&["get", V3, "a"]).await?;
        Ok(output.status.success().then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(seen(cluster, V3, "a").await.0, as_v3alpha1);

    run(cluster, &format!("kubectl get {rewrite}")).await;
    assert_eq!(stored_versions(cluster).await, json!(["v3alpha1"]));
    // all of them are, or this would need a converter
    tenure.stop_webhook().await.unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(seen(cluster, V3, name).await.0, as_v3alpha1);
    }
    let refused = write(cluster, KAI_APPLIES, &fixtures::kais_queue()).await;
    assert!(refused.stderr.contains("status.storedVersions"), "{}", refused.stderr);
    tenure.start_webhook(cluster).await.unwrap();

    run(cluster, &commands("From Tenure's CRD to KAI's")).await;
    tenure.stop_webhook().await.unwrap();
    write(cluster, KAI_APPLIES, &fixtures::kais_queue()).await.success().unwrap();
    assert_eq!(stored_versions(cluster).await, json!(["v2"]));
    for name in ["a", "b", "c"] {
        assert_eq!(seen(cluster, V2, name).await, (spec.clone(), annotations.clone()));
    }
    tenure.read_queues_as("v2");
    tenure.start_webhook(cluster).await.unwrap();
}

/// The API server calls a webhook behind a Service only when it is ready, and the webhook's own list of queues may need
/// conversion.
async fn the_webhook_gets_ready_before_anybody_converts(cluster: &Cluster, tenure: &Tenure) {
    let url = convert_at(cluster, "https://127.0.0.1:1/convert").await;
    let unconverted = async || {
        let output = cluster.kubectl(&["get", V3]).await?;
        Ok(output.stderr.contains("conversion webhook for").then_some(()))
    };
    eventually("queues that can't be read", DEADLINE, unconverted).await.unwrap();
    tenure.start_webhook(cluster).await.unwrap();
    convert_at(cluster, &url).await;
}
