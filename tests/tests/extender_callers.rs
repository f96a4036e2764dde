//! The callers that the extender answers, and the effects of forged questions: none.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

#[path = "extender_callers/flood.rs"]
mod flood;
#[path = "extender_callers/ports.rs"]
mod ports;

use http::StatusCode;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    callers::Caller,
    keeper::Metrics,
    scheduling::{self, Arena, Wish},
};
use tokio::sync::OnceCell;

async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(|| scheduling::world("extender-callers", &Value::Null)).await.unwrap()
}

fn wish<'a>(name: &'a str, queue: &'a str, priority: i32, more: &Value) -> Wish<'a> {
    Wish { name, queue, priority, cpu: 1, class: "", more: more.clone() }
}

/// A pod that no scheduler looks after.
async fn pending(arena: &Arena<'_>, name: &str, queue: &str, priority: i32) -> Value {
    let unseen = json!({"spec": {"schedulerName": "missing"}});
    let pod = arena.pod(&wish(name, queue, priority, &unseen)).await;
    serde_json::to_value(pod).unwrap()
}

fn victims(node: &str, uid: &str) -> Value {
    json!({node: {"Pods": [{"UID": uid}], "NumPDBViolations": 0}})
}

#[tokio::test]
async fn a_scheduler_without_a_certificate_of_the_authority_is_refused_with_the_reason() {
    let world = world().await;
    let question = json!({"Pod": {"metadata": {"uid": "u"}}, "NodeNameToMetaVictims": {}}).to_string();
    let ask = async |caller: &Caller, path| caller.post(path, question.clone()).await.unwrap();

    let (status, text) = ask(&Caller::new(world, None), "/scheduler/preempt").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.contains("has shown no certificate") && text.contains("tlsConfig"), "{text}");

    // of the same name, by another authority
    let other = world.cluster.directory().join("other-client");
    std::fs::create_dir_all(&other).unwrap();
    let authority = tenure_certs::Authority::new("schedulers").unwrap();
    authority.client("kube-scheduler", None).unwrap().write(&other).unwrap();
    let other = Caller::new(world, Some(&other));
    let (status, text) = ask(&other, "/scheduler/preempt").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(text.contains("certificate is not accepted"), "{text}");
    assert_eq!(ask(&other, "/scheduler/other").await.0, StatusCode::FORBIDDEN);

    let (status, text) = ask(&Caller::scheduler(world), "/scheduler/preempt").await;
    assert_eq!((status, &*text), (StatusCode::OK, r#"{"NodeNameToMetaVictims":{}}"#));
}

#[tokio::test]
async fn what_a_question_claims_of_a_pod_becomes_no_write_no_wait_and_no_permit() {
    let world = world().await;
    let arena = Arena::new(world, 1).await;
    let (node, scheduler) = (arena.node(), Caller::scheduler(world));
    let queue = arena.queue("team", json!({"preemptMinRuntime": "10s"})).await;
    let victim = arena.placed(&wish("victim", &queue, 100, &Value::Null)).await;
    let uid = victim.uid().unwrap();
    let [waiting, own, low] = [
        pending(&arena, "waiting", &queue, 200).await,
        pending(&arena, "own", &queue, 200).await,
        pending(&arena, "low", &queue, 50).await,
    ];
    let known = async || {
        let answer = scheduler.ask(&low, &json!({})).await;
        Ok(answer.is_object().then_some(()))
    };
    eventually("the webhook to answer", DEADLINE, known).await.unwrap();

    let mut invented = own.clone();
    invented["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let mut another = own.clone();
    another["metadata"]["uid"] = json!(uid);
    let mut important = low.clone();
    important["spec"]["priority"] = json!(2_000_000_000);
    important["metadata"]["name"] = json!("own");
    for (pod, nodes) in [
        // a pod that doesn't exist, by the name of another
        (&invented, victims(node, &uid)),
        // a pod that runs
        (&another, victims(node, &uid)),
        // nodes and victims that don't exist
        (&own, victims("<forged>", &uid)),
        (&own, victims("forged", "missing")),
        // less important than it says
        (&important, victims(node, &uid)),
    ] {
        assert_eq!(scheduler.ask(pod, &nodes).await, json!({}), "{nodes} for {}", pod["metadata"]);
    }
    // waits, because a known victim is protected
    assert_eq!(scheduler.ask(&waiting, &victims(node, &uid)).await, json!({}));
    arena.assert_untouched(&victim).await;
    // later than any other that would be woken
    let woken = async || {
        let patched = audit::patched_statuses(&world.cluster, arena.namespace.name());
        Ok(patched.contains(&"waiting".to_owned()).then_some(patched))
    };
    eventually("the wake-up of the one that waits", DEADLINE, woken).await.unwrap();
    let [webhook, _] = world.tenure.admin_urls();
    let counted = async || {
        let metrics = Metrics::of(webhook).await;
        let waiting = metrics.gauge("tenure_webhook_waiting_preemptors");
        let woken = metrics.count("tenure_webhook_wake_ups_total", &[]);
        Ok((waiting == Some(0.0) && woken > 0).then_some(woken))
    };
    assert_eq!(eventually("the wake-up to be counted", DEADLINE, counted).await.unwrap(), 1);
    let attempts = audit::attempts_of_webhook(&world.cluster);
    assert!(attempts.iter().all(|attempt| attempt == "patch pods/waiting"), "{attempts:?}");
    // the floor is over: what the index knows of the pod is enough
    assert_eq!(scheduler.ask(&own, &victims(node, &uid)).await, victims(node, &uid));
}
