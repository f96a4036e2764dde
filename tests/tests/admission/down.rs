//! Queues, priority classes and extensions while the webhook is down: what the API server refuses by itself, and what
//! waits for the webhook. That the schema in the chart is the one of the types is tested in
//! `crates/types/tests/generated.rs`.

use futures::{StreamExt, stream};
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    queues::{By, Case, Verdict, table, write},
    workloads::Namespace,
};
use tokio::sync::OnceCell;

use super::{MINIMUM, SECONDS, class, kubectl};

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(|| World::installed_alone("admission-down", &[])).await.unwrap()
}

#[tokio::test]
async fn the_schema_refuses_by_itself_and_says_why() {
    let world = world().await;
    let client = &world.cluster.client().unwrap();
    let refused_by_schema = |case: &Case| matches!(case.verdict, Verdict::Refused(By::Schema, _));
    let cases: Vec<Case> = table().into_iter().filter(refused_by_schema).collect();
    assert!(cases.len() >= 30, "{}", cases.len());
    let check = async |(number, case): (usize, Case)| {
        let answer = write(client, &case.object(&format!("bad-{number}"))).await;
        let Verdict::Refused(_, parts) = case.verdict else {
            return None;
        };
        let is_by_schema = |refusal: &String| {
            parts.iter().all(|part| refusal.contains(part)) && !refusal.contains("failed calling webhook")
        };
        (!answer.1.as_ref().is_err_and(is_by_schema)).then(|| format!("{}: {answer:?}", case.spec))
    };
    let checks = cases.into_iter().enumerate().map(check);
    let complaints: Vec<String> =
        stream::iter(checks).buffer_unordered(4).filter_map(async |c| c).collect().await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test]
async fn classes_that_say_nothing_of_preemption_never_wait_for_the_webhook() {
    let world = world().await;
    // deletions neither
    world
        .cluster
        .kubectl(&["delete", "queues.v3alpha1.scheduling.run.ai", "--all"])
        .await
        .unwrap()
        .success()
        .unwrap();
    for (verb, annotations) in
        [("create", json!({"a": "b"})), ("replace", json!({})), ("replace", Value::Null)]
    {
        let output = kubectl(world, &[verb], &class("plain", &annotations)).await;
        assert_eq!(output.stderr, "", "{verb} {annotations}");
        output.success().unwrap();
    }
    let former = "preemption-toleration.scheduling.sigs.k8s.io/toleration-seconds";
    for key in [MINIMUM, SECONDS, former] {
        let output = kubectl(world, &["replace"], &class("plain", &json!({key: "10000"}))).await;
        let expected = "failed calling webhook \"priorityclasses.tenure.dev\"";
        assert!(!output.status.success() && output.stderr.contains(expected), "{key}: {}", output.stderr);
    }
}

#[tokio::test]
async fn while_the_webhook_is_down_a_requester_is_still_the_user_who_asks() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace.name()},
    });
    let owner = namespace.create(&config).await;
    let target = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner.uid()});
    let asks = |name: &str, user: &str| {
        json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
            "metadata": {"name": name, "namespace": namespace.name()},
            "spec": {"target": target, "duration": "1h", "reason": "nearly done", "requestedBy": user},
        })
    };
    for user in ["", "ada"] {
        // a policy is in force a little after it was created
        let refused = async || {
            let refused = namespace.try_dry_run(&asks("forged", user)).await.err();
            let words = "must be \"admin\", the user who creates";
            Ok(refused.filter(|refusal| refusal.contains(words)).map(drop))
        };
        eventually("a forged requester to be refused", DEADLINE, refused).await.unwrap();
    }
    let asked = namespace.try_create(&asks("asked", "admin")).await.unwrap();
    assert_eq!(asked.name_any(), "asked");
}
