//! Workloads that a tenant writes gain the tenant nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    audit,
    workloads::{Namespace, distinct, in_runai_queue, workload},
};

use super::{
    job, queue, queues,
    standin::{admitted, workload_of},
    tenure, world,
};

/// For all tries, of which the first is repeated after a second.
const TRIES: Duration = Duration::from_mins(2);

/// A Job in a queue with a ceiling of five seconds that runs, and that Kueue doesn't manage.
async fn running_job(namespace: &Namespace) -> kube::core::DynamicObject {
    queue(namespace, namespace.name(), &json!({"maxDuration": "5s"})).await;
    let labels = in_runai_queue(namespace.name());
    let job = distinct(workload("Job", namespace.name(), "train", &labels, &Value::Null), "train");
    namespace.create(&job).await
}

#[tokio::test]
async fn a_workload_that_the_job_does_not_own_or_that_keeps_nothing_going_is_no_reason_to_spare_the_job() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let job = running_job(&namespace).await;
    let of = |name: &str, more: Value| {
        let mut workload = workload_of("v1beta2", &job, name);
        for (key, value) in more.as_object().unwrap() {
            workload[key] = value.clone();
        }
        workload
    };
    let mut labelled = of("labelled", json!({}));
    labelled["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    labelled["metadata"]["finalizers"] = json!(["example.com/stay"]);
    let labelled = namespace.create(&labelled).await;
    namespace.patch_status(&labelled, &admitted(true)).await;
    let inactive = namespace.create(&of("inactive", json!({"spec": {"active": false}}))).await;
    namespace.patch_status(&inactive, &admitted(true)).await;
    // as a tenant can make one, who doesn't write the status
    namespace.create(&of("never-admitted", json!({}))).await;
    let mut paused = of("looks-paused", json!({"spec": {"active": false}}));
    let record = json!({
        "reason": "MaxDurationExceeded", "at": jiff::Timestamp::now(), "queue": namespace.name(),
        "field": "spec.active", "value": false, "previousValue": true,
    });
    paused["metadata"]["annotations"] = json!({"tenure.dev/paused": record.to_string()});
    namespace.create(&paused).await;
    let finished = namespace.create(&of("finished", json!({}))).await;
    let conditions = json!([{"type": "Finished", "status": "True"}, {"type": "Admitted", "status": "True"}]);
    namespace.patch_status(&finished, &json!({"conditions": conditions})).await;
    namespace.await_pause_of(&job, "spec.suspend", &json!(true)).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch jobs/train"]).await;
}

/// As Kueue runs an elastic job: a second Workload waits for quota with a larger size.
#[tokio::test]
async fn all_workloads_of_an_elastic_job_are_deactivated_and_resumed_together() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let job = running_job(&namespace).await;
    let first = namespace.create(&workload_of("v1beta2", &job, "first")).await;
    namespace.patch_status(&first, &admitted(true)).await;
    let second = namespace.create(&workload_of("v1beta2", &job, "second")).await;
    for slice in [&first, &second] {
        namespace.await_pause_of(slice, "spec.active", &json!(false)).await;
    }
    assert_eq!(namespace.await_events_of("MaxDurationExceeded", 1).await.len(), 1);
    let changes = ["patch workloads/first", "patch workloads/second"];
    audit::assert_changes(&world.cluster, namespace.name(), &changes).await;
    queue(&namespace, namespace.name(), &json!({"maxDuration": "1h"})).await;
    // so do people
    for (command, is_active) in [("resume", true), ("deactivate", false), ("activate", true)] {
        tenure(world, &namespace, &[command, "job/train"]).await;
        for slice in [&first, &second] {
            assert_eq!(namespace.field(slice, "spec.active").await, json!(is_active), "{command}");
        }
    }
}

#[tokio::test]
async fn a_person_stops_a_job_itself_that_runs_without_an_admitted_workload() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let job = distinct(workload("Job", namespace.name(), "train", &json!({}), &Value::Null), "train");
    let job = namespace.create(&job).await;
    // as a tenant can make one, who doesn't write the status
    let forged = namespace.create(&workload_of("v1beta2", &job, "never-admitted")).await;
    let said = tenure(world, &namespace, &["deactivate", "job/train"]).await;
    assert_eq!(said, "job.batch/train deactivated (spec.suspend: true)\n");
    assert_ne!(namespace.field(&forged, "spec.active").await, json!(false));
}

#[tokio::test]
async fn a_record_that_a_tenant_forges_on_a_job_keeps_no_person_from_stopping_its_workload() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let mut job = distinct(workload("Job", namespace.name(), "train", &json!({}), &Value::Null), "train");
    let record = json!({
        "reason": "MaxDurationExceeded", "at": jiff::Timestamp::now(), "queue": namespace.name(),
        "field": "spec.suspend", "value": true, "previousValue": false,
    });
    job["metadata"]["annotations"] = json!({"tenure.dev/paused": record.to_string()});
    let job = namespace.create(&job).await;
    let real = namespace.create(&workload_of("v1beta2", &job, "real")).await;
    namespace.patch_status(&real, &admitted(true)).await;
    tenure(world, &namespace, &["deactivate", "job/train"]).await;
    assert_eq!(namespace.field(&real, "spec.active").await, json!(false));
}

#[tokio::test]
async fn a_person_deactivates_the_workload_of_a_job_that_waits_for_quota() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let job = job(&namespace, "train", &json!({})).await;
    let waits = namespace.create(&workload_of("v1beta2", &job, "waits")).await;
    let said = tenure(world, &namespace, &["deactivate", "job/train"]).await;
    let expected = "workload.kueue.x-k8s.io/waits, by which Kueue runs job.batch/train, deactivated";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(namespace.field(&waits, "spec.active").await, json!(false));
}

#[tokio::test]
async fn all_workloads_of_an_elastic_job_come_back_before_their_time_when_a_person_asks_for_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let job = running_job(&namespace).await;
    let slices = json!({"maxDuration": "5s", "maxDurationAction": "Requeue", "requeueDelay": "1h"});
    queue(&namespace, namespace.name(), &slices).await;
    let first = namespace.create(&workload_of("v1beta2", &job, "first")).await;
    namespace.patch_status(&first, &admitted(true)).await;
    let second = namespace.create(&workload_of("v1beta2", &job, "second")).await;
    for slice in [&first, &second] {
        namespace.await_pause_of(slice, "spec.active", &json!(false)).await;
    }
    queue(&namespace, namespace.name(), &json!({"maxDuration": "1h"})).await;
    tenure(world, &namespace, &["requeue", "job/train"]).await;
    for slice in [&first, &second] {
        assert_eq!(namespace.field(slice, "spec.active").await, json!(true));
    }
}

#[tokio::test]
async fn a_workload_that_is_paused_in_vain_makes_way_for_the_job_after_all_tries() {
    let world = queues::world().await;
    let namespace = Namespace::new(world).await;
    let job = running_job(&namespace).await;
    // no controller acts on Workloads here
    let forged = namespace.create(&workload_of("v1beta2", &job, "forged")).await;
    namespace.patch_status(&forged, &admitted(true)).await;
    namespace.await_pause_of(&forged, "spec.active", &json!(false)).await;
    let paused = async || Ok(namespace.pause_of(&job, "spec.suspend", &json!(true)).await);
    eventually("the Job itself to be paused", TRIES, paused).await.unwrap();
    namespace.await_pods(&[]).await;
    let expected = ["patch workloads/forged", "patch jobs/train"];
    assert_eq!(audit::changes_of_keeper(&world.cluster, namespace.name()), expected);
}

#[tokio::test]
async fn a_deployment_is_scaled_down_even_if_it_has_a_workload() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    queue(&namespace, namespace.name(), &json!({"maxDuration": "5s"})).await;
    let labels = in_runai_queue(namespace.name());
    let deployment = workload("Deployment", namespace.name(), "web", &labels, &Value::Null);
    let deployment = namespace.create(&deployment).await;
    let web = namespace.create(&workload_of("v1beta2", &deployment, "web")).await;
    namespace.patch_status(&web, &admitted(true)).await;
    namespace.await_pause_of(&deployment, "spec.replicas", &json!(0)).await;
    audit::assert_changes(&world.cluster, namespace.name(), &["patch deployments/web"]).await;
}
