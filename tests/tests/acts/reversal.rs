//! Pauses that other clients undo: enforced all the same, counted, and reported when they go on.

use std::time::Duration;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    keeper::Metrics,
    plugin::plugin_prints,
    workloads::{Namespace, in_queue, in_runai_queue, queue, reference, runai_queue, workload},
};

use crate::world;

/// A Deployment that is paused for the first time.
async fn paused(queue_name: &str) -> (&'static World, Namespace, DynamicObject, Value) {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue(queue_name, "1s")).await;
    let deployment = workload("Deployment", namespace.name(), "test", &in_queue(queue_name), &Value::Null);
    let deployment = namespace.create(&deployment).await;
    let record = namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    (world, namespace, deployment, record)
}

/// Waits for a pause with another record than `before`.
async fn await_another_pause(namespace: &Namespace, deployment: &DynamicObject, before: &Value) -> Value {
    let another = async || {
        let record = namespace.pause_of(deployment, "spec.replicas", &json!(0)).await;
        Ok(record.filter(|record| record != before))
    };
    eventually("another pause", DEADLINE, another).await.unwrap()
}

#[tokio::test]
async fn a_pause_that_is_set_back_is_made_again_counted_and_from_the_second_time_on_recorded_once() {
    let (world, namespace, deployment, mut record) = paused("reversed").await;
    for reversals in 1..=3 {
        namespace.await_pods(&[]).await;
        namespace.patch(&deployment, &json!({"spec": {"replicas": 1}})).await;
        record = await_another_pause(&namespace, &deployment, &record).await;
        assert_eq!(record["reversals"], json!(reversals));
        if reversals == 1 {
            assert_eq!(namespace.events_of("PauseReversed").await, [""; 0]);
        }
    }
    let events = namespace.await_events_of("PauseReversed", 1).await;
    assert!(events[0].starts_with("Deployment/test: spec.replicas was set back 2 times"), "{events:?}");
    namespace.await_events(4).await;
    assert_eq!(namespace.events_of("PauseReversed").await.len(), 1);
    let patches = audit::of_keeper(&world.cluster, "patch", "deployments", namespace.name()).len();
    assert!((4..=7).contains(&patches), "four pauses, and their records are taken away: {patches}");
    let metrics = Metrics::of_world(world).await;
    let here = ("queue", "reversed");
    let deployments = [here, ("kind", "Deployment")];
    assert_eq!(metrics.count("tenure_keeper_reversed_pauses_total", &deployments), 3);
    let paused = [here, ("result", "Paused")];
    assert_eq!(metrics.count("tenure_keeper_expirations_total", &paused), 4);
}

#[tokio::test]
async fn a_resumption_that_takes_the_record_away_is_no_reversal() {
    let (_, namespace, deployment, record) = paused("resumed").await;
    namespace.await_pods(&[]).await;
    // as `kubectl tenure resume` does
    let resume = json!({"metadata": {"annotations": {"tenure.dev/paused": null}}, "spec": {"replicas": 2}});
    namespace.patch(&deployment, &resume).await;
    let again = await_another_pause(&namespace, &deployment, &record).await;
    assert_eq!(again.get("reversals"), None);
    assert_eq!(again["previousValue"], json!(2));
}

#[tokio::test]
async fn what_a_pause_has_noted_in_words_and_as_a_record_goes_once_a_person_has_set_it_going_again() {
    let (world, namespace, deployment, record) = paused("said").await;
    let command = format!("kubectl tenure resume deployment.apps/test -n {}", namespace.name());
    let describe = ["describe", "deployment", "test", "-n", namespace.name()];
    let described = world.cluster.kubectl(&describe).await.unwrap().success().unwrap();
    let said = described.lines().find(|line| line.contains("Paused at 20"));
    let said = said.unwrap_or_else(|| panic!("{described}"));
    assert!(said.ends_with(&format!(" by Queue said's ceiling of 1s. To resume: {command}")), "{said}");
    namespace.await_pods(&[]).await;
    namespace.apply(&queue("said", "")).await;
    namespace.patch(&deployment, &json!({"spec": {"replicas": 1}})).await;
    let undone = async || {
        let all = namespace.get(&deployment).await.unwrap().annotations().clone();
        let is_gone = |key: &str| !all.contains_key(key);
        let are_gone = is_gone("tenure.dev/paused") && is_gone("tenure.dev/message");
        Ok(all.get("tenure.dev/undone-pause").filter(|_| are_gone).cloned())
    };
    let undone = eventually("record and words to go", DEADLINE, undone).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&undone).unwrap()["at"], record["at"]);
    assert_eq!(namespace.field(&deployment, "spec.replicas").await, json!(1));
    let job = ["resume", "deployment/test"];
    let resumed = plugin_prints(world, namespace.name(), &job).await;
    assert!(resumed.contains("its undone pauses count from 0"), "{resumed}");
    let left = namespace.get(&deployment).await.unwrap();
    assert!(!left.annotations().contains_key("tenure.dev/undone-pause"));
}

#[tokio::test]
async fn a_workload_whose_pause_was_set_back_has_a_full_ceiling_again() {
    let (_, namespace, deployment, record) = paused("full-again").await;
    namespace.await_pods(&[]).await;
    namespace.apply(&queue("full-again", "3s")).await;
    namespace.patch(&deployment, &json!({"spec": {"replicas": 1}})).await;
    namespace.await_running(1).await;
    let pods = namespace.created().await;
    let again = await_another_pause(&namespace, &deployment, &record).await;
    let at: jiff::Timestamp = again["at"].as_str().unwrap().parse().unwrap();
    let age = at.duration_since(pods[0]);
    assert!(age > jiff::SignedDuration::from_secs(3), "paused at the age of {age:#}");
}

/// A workload of one pod in a queue of this name, and its namespace.
async fn of_one_pod(kind: &str, labels: &Value) -> (Namespace, DynamicObject) {
    let namespace = Namespace::new(world().await).await;
    let mut object = workload(kind, namespace.name(), "test", labels, &Value::Null);
    object["spec"]["replicas"] = json!(1);
    let owner = namespace.create(&object).await;
    (namespace, owner)
}

/// A stand-in for a controller that Tenure doesn't know: it resumes an owner each time, as soon as the pods of a pause
/// are gone. Its name is tenure-tests.
async fn undo_each_pause(namespace: &Namespace, owner: &DynamicObject) {
    let of = reference(owner);
    let going = json!({
        "apiVersion": of.api_version, "kind": of.kind, "spec": {"replicas": 1},
        "metadata": {"name": of.name, "namespace": namespace.name()},
    });
    loop {
        if namespace.field(owner, "spec.replicas").await == json!(0) && namespace.pods().await.is_empty() {
            namespace.apply(&going).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn record_of(namespace: &Namespace, owner: &DynamicObject) -> Value {
    let now = namespace.get(owner).await.unwrap();
    // while it runs, the record is kept apart
    let keys = ["tenure.dev/paused", "tenure.dev/undone-pause"];
    let text = keys.into_iter().find_map(|key| now.annotations().get(key));
    serde_json::from_str(text.unwrap()).unwrap()
}

/// Asserts that an owner is paused three times, and that from then on its pods are deleted.
async fn pods_go_after_the_third_reversal(namespace: &Namespace, owner: &DynamicObject, resource: &str) {
    let cluster = &world().await.cluster;
    let not_paused_again = async || {
        let events = namespace.events_of("PauseReversed").await;
        Ok(events.into_iter().find(|event| event.contains("was set back 3 times")))
    };
    let event = eventually("the third reversal to be told", 2 * DEADLINE, not_paused_again).await.unwrap();
    let by = "each time for a full run, last by field manager \"tenure-tests\" (Apply at 20";
    assert!(event.starts_with(&format!("{}/test: spec.replicas", reference(owner).kind)), "{event}");
    assert!(event.contains(by) && event.contains("(onReversal: DeletePods)"), "{event}");
    let deleted = async || {
        let deleted = audit::of_keeper(cluster, "delete", "pods", namespace.name());
        Ok((deleted.len() >= 2).then_some(deleted))
    };
    eventually("its next pod to be deleted, too", DEADLINE, deleted).await.unwrap();
    let patches = audit::of_keeper(cluster, "patch", resource, namespace.name()).len();
    assert!((3..=6).contains(&patches), "three pauses, and their records are taken away: {patches}");
    assert_eq!(namespace.field(owner, "spec.replicas").await, json!(1));
    let record = record_of(namespace, owner).await;
    assert_eq!((&record["reversals"], &record["fullReversals"]), (&json!(2), &json!(2)));
    let deletions = namespace.events_of("MaxDurationExceeded").await;
    let of_pods = deletions.iter().filter(|event| event.starts_with("Pod/")).count();
    assert!(of_pods >= 1, "{deletions:?}");
}

#[tokio::test]
async fn where_the_queue_says_so_pods_are_deleted_after_the_third_reversal_and_the_event_names_the_manager() {
    let mut queue = runai_queue("undone", "", "1s");
    queue["spec"]["onReversal"] = json!("DeletePods");
    world().await.apply(&queue).await;
    let (namespace, owner) = &of_one_pod("Deployment", &in_runai_queue("undone")).await;
    tokio::select! {
        () = pods_go_after_the_third_reversal(namespace, owner, "deployments") => {}
        () = undo_each_pause(namespace, owner) => {}
    }
}

#[tokio::test]
async fn where_the_row_of_its_kind_says_so_pods_are_deleted_after_the_third_reversal() {
    world().await.apply(&queue("undone-by-row", "1s")).await;
    let (namespace, owner) = &of_one_pod("StatefulSet", &in_queue("undone-by-row")).await;
    tokio::select! {
        () = pods_go_after_the_third_reversal(namespace, owner, "statefulsets") => {}
        () = undo_each_pause(namespace, owner) => {}
    }
}

#[tokio::test]
async fn by_default_an_owner_is_paused_after_each_reversal_and_the_event_names_the_manager() {
    let world = world().await;
    world.apply(&runai_queue("undone-by-default", "", "1s")).await;
    let (namespace, owner) = &of_one_pod("Deployment", &in_runai_queue("undone-by-default")).await;
    let paused_again = async || {
        let paused = audit::of_keeper(&world.cluster, "patch", "deployments", namespace.name());
        Ok((paused.len() >= 5).then_some(()))
    };
    tokio::select! {
        paused = eventually("the fifth pause", 2 * DEADLINE, paused_again) => paused.unwrap(),
        () = undo_each_pause(namespace, owner) => {}
    }
    let record = record_of(namespace, owner).await;
    assert_eq!(record["fullReversals"], record["reversals"]);
    assert_eq!(record["reversedBy"]["manager"], "tenure-tests");
    let events = namespace.await_events_of("PauseReversed", 1).await;
    assert!(events[0].contains("last by field manager \"tenure-tests\" (Apply at 20"), "{events:?}");
    assert_eq!(audit::of_keeper(&world.cluster, "delete", "pods", namespace.name()), [""; 0]);
}

#[tokio::test]
async fn where_the_row_of_jobs_says_so_the_job_of_a_cron_job_is_deleted_at_its_ceiling_and_the_next_one_starts()
 {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue("nightly", "1s")).await;
    let job = workload("Job", namespace.name(), "job", &in_queue("nightly"), &Value::Null);
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": namespace.name()},
        "spec": {"schedule": "0 * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job["spec"]}},
    });
    let cron = namespace.create(&cron).await;
    for count in 1..=2 {
        // its controller starts the Job of this hour if it seems to have missed it, and no other one is active
        let missed = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(2);
        namespace.patch_status(&cron, &json!({"lastScheduleTime": format!("{missed:.0}")})).await;
        let ended = async || {
            let events = namespace.events_of("RunEnded").await;
            Ok((events.iter().filter(|event| event.starts_with("Job/nightly-")).count() == count)
                .then_some(events))
        };
        let deleted = eventually("a Job to be deleted", DEADLINE, ended).await.unwrap();
        let of_job = deleted.iter().find(|event| event.starts_with("Job/nightly-")).unwrap();
        let reached =
            ": Its run in Queue nightly has reached the ceiling of 1s, set by that queue. Job nightly-";
        assert!(of_job.contains(reached) && of_job.contains("was deleted with its pods"), "{of_job}");
        namespace.await_pods(&[]).await;
    }
    let of_keeper = |verb| audit::of_keeper(&world.cluster, verb, "jobs", namespace.name());
    assert_eq!((of_keeper("delete").len(), of_keeper("patch").len()), (2, 0));
    assert_eq!(namespace.events_of("HeldUpByPausedJob").await, [""; 0]);
    let deleted = [("queue", "nightly"), ("kind", "Job"), ("result", "Deleted")];
    assert_eq!(Metrics::of_world(world).await.count("tenure_keeper_expirations_total", &deleted), 2);
}
