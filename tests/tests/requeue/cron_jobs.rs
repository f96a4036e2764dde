//! `CronJob`s that start further Jobs while some are paused.

use std::collections::BTreeSet;

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, audit,
    workloads::{Namespace, controller, distinct, in_runai_queue, owned, workload},
};

use super::{brisk_world, scene::place, world};

/// A `CronJob` in whose place the test starts Jobs.
async fn cron_job(namespace: &Namespace, name: &str, policy: &str) -> DynamicObject {
    let job = workload("Job", namespace.name(), name, &in_runai_queue(namespace.name()), &Value::Null);
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name, "namespace": namespace.name()},
        "spec": {
            "schedule": "0 0 1 1 *", "suspend": true, "concurrencyPolicy": policy, "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"spec": job["spec"]},
        },
    });
    namespace.create(&cron_job).await
}

async fn job(namespace: &Namespace, cron_job: &DynamicObject, name: &str, change: &Value) -> DynamicObject {
    let labels = in_runai_queue(namespace.name());
    let mut job = distinct(workload("Job", namespace.name(), name, &labels, &Value::Null), name);
    job["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    namespace.create(&owned(job, &[controller(cron_job)])).await
}

/// Three Jobs of a `CronJob` that were paused, one after the other.
async fn paused(namespace: &Namespace, cron_job: &DynamicObject) -> Vec<DynamicObject> {
    let mut paused = Vec::new();
    for name in ["report-1", "report-2", "report-3"] {
        let job = job(namespace, cron_job, name, &json!({})).await;
        namespace.await_pause_of(&job, "spec.suspend", &json!(true)).await;
        paused.push(job);
    }
    paused
}

/// A namespace with a `CronJob` of which three Jobs were paused, and one that a person had suspended before.
async fn piled_up(world: &World) -> (Namespace, Vec<DynamicObject>) {
    let namespace = place(world, &json!({"maxDuration": "1s"})).await;
    let report = cron_job(&namespace, "report", "Allow").await;
    let by_hand = job(&namespace, &report, "by-hand", &json!({"suspend": true})).await;
    let mut jobs = paused(&namespace, &report).await;
    jobs.push(by_hand);
    (namespace, jobs)
}

/// The names of the Jobs that are left.
async fn left(namespace: &Namespace, jobs: &[DynamicObject]) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for job in jobs {
        left.extend(namespace.get(job).await.and_then(|job| job.metadata.name));
    }
    left
}

#[tokio::test]
async fn a_cron_job_that_starts_others_has_an_event_with_the_number_of_its_paused_jobs_and_all_of_them_stay()
{
    let (namespace, jobs) = piled_up(world().await).await;
    let events = namespace.await_events_of("PausedJobKept", 3).await;
    for (number, event) in events.iter().enumerate() {
        let number = number + 1;
        let expected = format!(
            "CronJob/report: Job report-{number} is paused and hasn't ended, so no history limit and no ttlSecondsAfterFinished removes it. Paused Jobs of this CronJob: {number}; none of them is deleted by itself. To finish that Job, kubectl tenure resume job.batch/report-{number} -n {0}; to drop it, kubectl delete job report-{number} -n {0}",
            namespace.name()
        );
        assert_eq!(*event, expected);
    }
    assert_eq!(left(&namespace, &jobs).await.len(), 4);

    let replaced = cron_job(&namespace, "replaced", "Replace").await;
    let job = job(&namespace, &replaced, "replaced-1", &json!({})).await;
    namespace.await_pause_of(&job, "spec.suspend", &json!(true)).await;
    namespace.await_events_of("MaxDurationExceeded", 4).await;
    assert_eq!(namespace.events_of("PausedJobKept").await.len(), 3);
    assert_eq!(namespace.events_of("HeldUpByPausedJob").await, [""; 0]);
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_paused_jobs_of_a_cron_job_are_deleted_and_no_others() {
    let world = brisk_world().await;
    let (namespace, jobs) = piled_up(world).await;
    let [report_1, by_hand] = ["report-1", "by-hand"].map(str::to_owned);
    let expected = BTreeSet::from(["report-2".into(), "report-3".into(), by_hand]);
    let gone = async || Ok((left(&namespace, &jobs).await == expected).then_some(()));
    eventually("the oldest to be deleted", DEADLINE, gone).await.unwrap();
    let deleted = "CronJob/report: Deleted Job report-1, the oldest of its paused Jobs: by pausedHistoryLimit, 2 of them are kept";
    assert_eq!(namespace.await_events_of("PausedJobDeleted", 1).await, [deleted]);
    let kept = namespace.await_events_of("PausedJobKept", 3).await;
    assert!(
        kept[2].contains("Paused Jobs of this CronJob: 3; by pausedHistoryLimit, 2 of them are kept"),
        "{kept:?}"
    );
    assert_eq!(audit::of_keeper(&world.cluster, "delete", "jobs", namespace.name()), [report_1]);
}
