//! Clusters in which KAI-Scheduler owns the definition: v2 alone, with annotations.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Tenure, eventually, program};
use tenure_tests::{
    DEADLINE, World, fixtures,
    pages::Walk,
    workloads::{Namespace, bare_pod, in_runai_queue, workload},
};
use tokio::{process::Command, sync::OnceCell, task::spawn_blocking};

use crate::{V2, create, own_annotations, queue, read, write};

/// The arguments with which KAI's upgrader applies the definition, again and again.
pub const KAI_APPLIES: &[&str] =
    &["apply", "--server-side", "--force-conflicts", "--field-manager=kai-crd-upgrader"];

/// etcd and kube-apiserver alone, with KAI's definition.
pub async fn api_server(name: &str) -> anyhow::Result<Cluster> {
    with_definition(Cluster::start_api_server_alone(name).await?).await
}

/// KAI's definition comes first, as it does in life.
async fn with_definition(cluster: Cluster) -> anyhow::Result<Cluster> {
    write(&cluster, KAI_APPLIES, &fixtures::kais_queue()).await.success()?;
    let established = ["wait", "--for=condition=Established", "crd", "queues.scheduling.run.ai"];
    cluster.kubectl(&established).await?.success()?;
    Ok(cluster)
}

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let cluster = with_definition(Cluster::start("versions-kai").await?).await?;
        let tenure = Box::pin(Tenure::install(&cluster, &["crds.runai=false"])).await?;
        let world = World { cluster, tenure };
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        anyhow::Ok(world)
    };
    WORLD.get_or_try_init(|| Box::pin(start())).await.unwrap()
}

#[tokio::test]
async fn the_keeper_pauses_by_a_ceiling_that_is_an_annotation() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let ceiling = json!({"tenure.dev/max-duration": "2s"});
    create(&world.cluster, &queue(V2, "kai-root", &ceiling, &json!({}))).await;
    create(&world.cluster, &queue(V2, "kai-leaf", &Value::Null, &json!({"parentQueue": "kai-root"}))).await;
    let labels = in_runai_queue("kai-leaf");
    world.apply(&workload("Deployment", namespace.name(), "test", &labels, &Value::Null)).await;
    let record = namespace.await_paused("Deployment", "test").await;
    assert_eq!((&record["reason"], &record["queue"]), (&json!("MaxDurationExceeded"), &json!("kai-leaf")));
}

#[tokio::test]
async fn list_and_explain_read_annotations() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let ceiling = json!({"tenure.dev/max-duration": "12h"});
    create(&world.cluster, &queue(V2, "kai-told", &ceiling, &json!({"preemptMinRuntime": "1h"}))).await;
    let labels = in_runai_queue("kai-told");
    world.apply(&workload("Deployment", namespace.name(), "test", &labels, &Value::Null)).await;
    namespace.await_running(2).await;
    let rows: Value =
        serde_json::from_str(&tenure(world, &["list", "-n", namespace.name(), "-o", "json"]).await).unwrap();
    assert_eq!(rows[0]["queue"], "kai-told", "{rows}");
    assert!(
        rows[0]["ceilingFrom"].to_string().contains("kai-told") && rows[0]["expiresAt"].is_string(),
        "{rows}"
    );
    let pod = namespace.pod_names().await.pop_first().unwrap();
    let answer = tenure(world, &["explain", "pod", &pod, "-n", namespace.name()]).await;
    assert!(answer.contains("12h"), "{answer}");
}

/// Runs `kubectl tenure`, which must succeed; returns its output.
async fn tenure(world: &World, arguments: &[&str]) -> String {
    let program = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(world.cluster.kubeconfig()).args(arguments);
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The queue of the text on the `MinRuntime` plugin.
#[tokio::test]
async fn a_queue_of_v2_has_its_floors() {
    let world = world().await;
    let floors = json!({"preemptMinRuntime": "20s", "reclaimMinRuntime": "30s"});
    create(&world.cluster, &queue(V2, "production", &json!({}), &floors)).await;
    create(&world.cluster, &queue(V2, "other", &json!({}), &json!({}))).await;
    for (preemptor, floor) in [("production", "20s"), ("other", "30s")] {
        let matrix = ["matrix", "--preemptor-queue", preemptor, "--victim-queue", "production"];
        let answer = tenure(world, &matrix).await;
        assert!(answer.contains(&format!("{floor}  ")), "{preemptor}: {answer}");
    }
}

#[tokio::test]
async fn a_queue_gets_a_ceiling_as_on_the_page() {
    let mut walk = Walk::new(world().await, "kai.md");
    walk.follow("Give a queue a ceiling").await;
    walk.end();
}

#[tokio::test]
async fn the_webhook_reviews_annotations_and_names_them() {
    let cluster = &world().await.cluster;
    create(cluster, &queue(V2, "kai-short", &json!({"tenure.dev/max-duration": "1h"}), &json!({}))).await;
    let annotated = |key: &str, text: &str| json!({format!("tenure.dev/{key}"): text});
    for (annotations, spec, expected) in [
        (Value::Null, json!({"preemptMinRuntime": "-5s"}), "spec.preemptMinRuntime: Invalid value: \"-5s\""),
        (Value::Null, json!({"preemptMinRuntime": "2d"}), "spec.preemptMinRuntime: Invalid value: \"2d\""),
        (Value::Null, json!({"parentQueue": "bad"}), "a queue can't be its own parent"),
        (
            annotated("max-duration", "0s"),
            json!({}),
            "metadata.annotations[tenure.dev/max-duration]: Invalid value: \"0s\": must be greater than zero",
        ),
        (
            annotated("max-duration", "1h"),
            json!({"reclaimMinRuntime": "2h"}),
            "must not be longer than the queue's own maxDuration, 1h",
        ),
        (
            annotated("wait-for-pods-ready", "5m"),
            json!({}),
            "metadata.annotations[tenure.dev/wait-for-pods-ready]: Invalid value: \"5m\": must be JSON",
        ),
    ] {
        let output = write(cluster, &["create"], &queue(V2, "bad", &annotations, &spec)).await;
        assert!(!output.status.success() && output.stderr.contains(expected), "{}", output.stderr);
    }
    let longer =
        queue(V2, "kai-longer", &annotated("max-duration", "2h"), &json!({"parentQueue": "kai-short"}));
    eventually("the parent to be known", DEADLINE, async || {
        let output = write(cluster, &["create", "--dry-run=server"], &longer).await;
        let warning = "Warning: metadata.annotations[tenure.dev/max-duration]: 2h is longer than 1h";
        Ok(output.stderr.contains(warning).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_field_that_a_client_leaves_out_is_not_kept() {
    let cluster = &world().await.cluster;
    create(cluster, &queue(V2, "kai-plain", &own_annotations(), &json!({}))).await;
    let annotate = ["annotate", V2, "kai-plain", "tenure.dev/max-duration-"];
    let output = cluster.kubectl(&annotate).await.unwrap();
    assert!(!output.stderr.contains("kept"), "{}", output.stderr);
    let annotations = crate::seen(cluster, V2, "kai-plain").await.1;
    assert_eq!(annotations.get("tenure.dev/max-duration"), None);
}

#[tokio::test]
async fn the_status_of_a_queue_is_an_annotation_and_no_queue_comes_back_by_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let queue = |name: &str, parent: &str| {
        json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "spec": {"parentQueue": parent},
            "metadata": {"name": name, "annotations": {"example.com/mine": "stays", "tenure.dev/max-duration": "1d"}},
        })
    };
    let (parent, _) =
        (namespace.create(&queue("kai", "")).await, namespace.create(&queue("kai-child", "kai")).await);
    namespace.create(&bare_pod(namespace.name(), "test", &in_runai_queue("kai"), &Value::Null)).await;
    let annotation = async |name: &str| {
        let found = read(&world.cluster, V2, name).await;
        let text = found["metadata"]["annotations"]["tenure.dev/status"].as_str();
        text.map(|text| serde_json::from_str::<Value>(text).unwrap())
    };
    let running = async || Ok(annotation("kai").await.filter(|status| status["workloads"]["running"] == 1));
    let status = eventually("the annotation", DEADLINE, running).await.unwrap();
    assert!(status["nextExpiry"].is_string() && status.get("childQueues").is_none(), "{status}");
    let found = read(&world.cluster, V2, "kai").await;
    assert_eq!(found["metadata"]["annotations"]["example.com/mine"], "stays");
    assert_eq!(found.get("status"), None, "KAI's own");

    // as a keeper would that has not yet seen that the queue is gone
    let annotations = json!({"tenure.dev/status": "{}"});
    let body = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {"name": "kai", "uid": parent.metadata.uid, "annotations": annotations},
    });
    // a queue whose parent is gone shows in what other tests print
    world.cluster.kubectl(&["delete", V2, "kai-child", "kai"]).await.unwrap().success().unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("scheduling.run.ai", "v2", "Queue"));
    let queues: Api<DynamicObject> = Api::all_with(world.cluster.client().unwrap(), &kind);
    let late = PatchParams::apply("tenure-keeper-status").force();
    let error = queues.patch("kai", &late, &Patch::Apply(&body)).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
    assert!(queues.get_opt("kai").await.unwrap().is_none());
}
