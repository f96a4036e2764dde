//! The end of a run on the workload itself, without any notice.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, audit,
    plugin::plugin_prints,
    workloads::{Namespace, bare_pod, distinct, in_queue, in_runai_queue, queue, runai_queue, workload},
};

use super::{APPROACHING, announced, await_announced, first_end, with_notice, world};

#[tokio::test]
async fn a_workload_shows_the_end_of_its_run_by_one_write_an_end_and_no_event() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let change = async |ceiling: &str| {
        namespace.apply(&queue("ends", ceiling)).await;
    };
    change("1h").await;
    let (name, labels) = (namespace.name(), in_queue("ends"));
    let deployment = namespace.create(&workload("Deployment", name, "web", &labels, &Value::Null)).await;
    let job = namespace.create(&workload("Job", name, "job", &labels, &Value::Null)).await;
    let pod = namespace.create(&bare_pod(name, "alone", &labels, &Value::Null)).await;
    let objects = [deployment, job, pod];
    let mut first = Vec::new();
    for object in &objects {
        first.push(await_announced(&namespace, object).await);
    }
    let begun = first_end(&namespace, 3600).await;
    assert!(first.iter().all(|end| end.duration_since(begun).as_secs() < 60), "{first:?}");
    change("2h").await;
    for (object, first) in objects.iter().zip(&first) {
        let moved = *first + SignedDuration::from_hours(1);
        let has_moved = async || Ok((announced(&namespace, object).await == Some(moved)).then_some(()));
        eventually("the end to move", DEADLINE, has_moved).await.unwrap();
    }
    change("").await;
    for object in &objects {
        let has_gone = async || Ok(announced(&namespace, object).await.is_none().then_some(()));
        eventually("the end to go", DEADLINE, has_gone).await.unwrap();
    }
    for resource in ["deployments", "jobs", "pods"] {
        let cluster = &world.cluster;
        let mut patches = audit::shown_ends(cluster, resource, name);
        patches.extend(audit::of_keeper(cluster, "patch", resource, name));
        assert_eq!(patches.len(), 3, "{resource}: one for each end, and one for none: {patches:?}");
    }
    assert_eq!(namespace.events_of(APPROACHING).await, [""; 0]);
}

#[tokio::test]
async fn an_end_that_a_user_forges_moves_nothing_and_is_put_right() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&runai_queue("forged-end", "", "1h")).await;
    let job = workload("Job", namespace.name(), "job", &in_runai_queue("forged-end"), &Value::Null);
    let job = namespace.create(&job).await;
    let end = await_announced(&namespace, &job).await;
    for forged in [json!("9999-01-01T00:00:00Z"), Value::Null] {
        namespace.patch(&job, &json!({"metadata": {"annotations": {"tenure.dev/expires-at": forged}}})).await;
        let listed = plugin_prints(world, namespace.name(), &["list", "-o", "json"]).await;
        let rows: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(rows[0]["expiresAt"], json!(end), "where queues can be read, they count");
        let is_right = async || Ok((announced(&namespace, &job).await == Some(end)).then_some(()));
        eventually("the end to be put right", DEADLINE, is_right).await.unwrap();
    }
}

#[tokio::test]
async fn within_the_grace_of_a_change_all_say_the_same_end() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&with_notice(runai_queue("one-end", "", "10h"), "5s")).await;
    let name = namespace.name();
    let pod = bare_pod(name, "graced", &in_runai_queue("one-end"), &Value::Null);
    let pod = namespace.create(&distinct(pod, "graced")).await;
    namespace.await_running(1).await;
    let before = await_announced(&namespace, &pod).await;
    let read = async |arguments: &[&str]| -> Value {
        serde_json::from_str(&plugin_prints(world, name, arguments).await).unwrap()
    };
    // the plugin may have to be built first
    assert_eq!(read(&["list", "-o", "json"]).await[0]["expiresAt"], json!(before));
    namespace.apply(&with_notice(runai_queue("one-end", "", "1s"), "5s")).await;
    let moved = async || Ok(announced(&namespace, &pod).await.filter(|end| *end < before));
    let end = eventually("the end to move", DEADLINE, moved).await.unwrap();
    let rows = read(&["list", "-o", "json"]).await;
    let explained = read(&["explain", "pod", &format!("{name}/graced"), "-o", "json"]).await;
    let events = namespace.await_events_of(APPROACHING, 1).await;
    assert!(Timestamp::now() < end, "{end}");
    assert_eq!((&rows[0]["expiresAt"], &rows[0]["state"]), (&json!(end), &json!("Running")));
    assert_eq!((&explained["expiresAt"], &explained["showsEnd"]), (&json!(end), &json!(true)));
    assert_eq!(explained.get("noticesAt"), None, "{explained}");
    assert!(events[0].contains(&end.strftime("at %H:%M:%S UTC").to_string()), "{events:?}");
}
