//! The pods that another pod controls go with the pause of the owner above it, though that pod is gone.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_policy::expiry::Family;
use tenure_types::{projection, runai::v3alpha1::QueueSpec};

use crate::{
    Uid,
    ceilings::{CeilingIndex, Settings},
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// A Spark application, paused at a time if there is one.
fn application(index: &mut CeilingIndex, paused: Option<i64>) {
    let record = |second| {
        json!({
            "reason": "MaxDurationExceeded", "at": at(second), "queue": "q", "field": "spec.suspend", "value": true,
            "previousValue": false, "uid": "app",
        })
    };
    let annotations = paused.map(|second| json!({"tenure.dev/paused": record(second).to_string()}));
    let metadata = json!({"name": "etl", "namespace": "ns", "uid": "app", "annotations": annotations});
    index.apply_owner(7, &serde_json::from_value(metadata).unwrap());
}

fn pod(name: &str, second: i64, (kind, controller): (&str, &str)) -> projection::Pod {
    let api_version = if kind == "Pod" { "v1" } else { "sparkoperator.k8s.io/v1beta2" };
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(second)});
    let owner = json!({
        "apiVersion": api_version, "kind": kind, "name": controller, "uid": controller, "controller": true,
    });
    let metadata = json!({
        "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(second),
        "labels": {"kai.scheduler/queue": "q"}, "ownerReferences": [owner],
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}}))
        .unwrap()
}

const APPLICATION: (&str, &str) = ("SparkApplication", "app");
const DRIVER: (&str, &str) = ("Pod", "driver");

/// The end of a pod.
fn end(index: &mut CeilingIndex, pod: &projection::Pod) -> Option<Timestamp> {
    Some(index.standing(pod)?.expires?.0)
}

fn world(spec: &Value) -> CeilingIndex {
    let mut index = CeilingIndex::new(Settings::default());
    index.apply_queue("q", &serde_json::from_value::<QueueSpec>(spec.clone()).unwrap());
    application(&mut index, None);
    index
}

#[test]
fn an_executor_goes_soon_after_the_pause_of_its_application_also_when_its_driver_is_gone() {
    let (driver, executor) = (pod("driver", 0, APPLICATION), pod("executor", 50, DRIVER));
    for pods in [[&driver, &executor], [&executor, &driver]] {
        for spec in [json!({"maxDuration": "100s"}), json!({})] {
            let mut index = world(&spec);
            for pod in pods {
                index.apply_pod(pod);
            }
            let own = end(&mut index, &executor);
            application(&mut index, Some(100));
            assert_eq!(end(&mut index, &executor), Some(at(130)), "{spec}");
            assert_eq!(index.next_expiry(), Some(at(if own.is_some() { 100 } else { 130 })), "{spec}");
            index.delete_pod(Uid::of("driver"));
            assert_eq!((end(&mut index, &executor), index.next_expiry()), (Some(at(130)), Some(at(130))));
            application(&mut index, None);
            assert_eq!((end(&mut index, &executor), index.next_expiry()), (own, own), "it was resumed");
        }
    }
}

#[test]
fn a_record_on_an_owner_never_moves_the_end_of_an_executor_later() {
    let mut index = world(&json!({"maxDuration": "100s"}));
    let executor = pod("executor", 50, DRIVER);
    index.apply_pod(&pod("driver", 0, APPLICATION));
    index.apply_pod(&executor);
    for (paused, expected) in [(60, 90), (119, 149), (121, 150), (1_000, 150)] {
        application(&mut index, Some(paused));
        assert_eq!(end(&mut index, &executor), Some(at(expected)), "{paused}");
    }
    application(&mut index, Some(60));
    let goes_with = |index: &mut CeilingIndex, second| {
        index.run_state(&executor, (Family::Runai, "q"), None, None, at(second)).goes_with
    };
    assert_eq!(goes_with(&mut index, 100).as_deref(), Some("etl"));
    assert_eq!(
        goes_with(&mut index, 151),
        None,
        "its own ceiling is over, whether or not its owner is paused"
    );
}

#[test]
fn an_executor_of_a_later_run_doesnt_go_with_an_earlier_pause() {
    let mut index = world(&json!({"maxDuration": "100s"}));
    let (driver, executor) = (pod("driver", 101, APPLICATION), pod("executor", 102, DRIVER));
    index.apply_pod(&driver);
    index.apply_pod(&executor);
    application(&mut index, Some(100));
    assert_eq!(end(&mut index, &executor), Some(at(202)));
}

#[test]
fn the_driver_of_executors_that_are_gone_is_forgotten() {
    let mut index = world(&json!({"maxDuration": "100s"}));
    for pod in [pod("driver", 0, APPLICATION), pod("executor", 50, DRIVER)] {
        index.apply_pod(&pod);
    }
    index.delete_pod(Uid::of("driver"));
    assert_eq!(index.objects.owners.driven_below(Uid::of("app")).count(), 1);
    index.delete_pod(Uid::of("executor"));
    assert!(index.objects.owners.is_without_drivers());
}
