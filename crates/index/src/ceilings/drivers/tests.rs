//! The pods that another pod controls are a part of its run, also when that pod is gone.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_types::{evidence::Evidence, projection, runai::v3alpha1::QueueSpec};

use crate::{
    Uid,
    ceilings::{CeilingIndex, CeilingOptions, tests::at},
};

fn pod(name: &str, second: i64, (kind, controller): (&str, &str)) -> Value {
    let api_version = if kind == "Pod" { "v1" } else { "sparkoperator.k8s.io/v1beta2" };
    let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(second)});
    let owner = json!({
        "apiVersion": api_version, "kind": kind, "name": controller, "uid": controller, "controller": true,
    });
    let metadata = json!({
        "name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(second),
        "labels": {"kai.scheduler/queue": "q"}, "ownerReferences": [owner],
    });
    json!({"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}})
}

fn read(pod: &Value) -> projection::Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

const APPLICATION: (&str, &str) = ("SparkApplication", "app");
const DRIVER: (&str, &str) = ("Pod", "driver");

fn world() -> CeilingIndex {
    let mut index = CeilingIndex::new(CeilingOptions::default());
    let spec = json!({"maxDuration": "100s"});
    index.apply_queue("q", &serde_json::from_value::<QueueSpec>(spec).unwrap());
    index
}

fn end(index: &mut CeilingIndex, pod: &Value) -> Option<Timestamp> {
    Some(index.standing(&read(pod))?.expires?.0)
}

#[test]
fn an_executor_ends_with_its_driver_also_when_that_is_gone() {
    let (driver, executor) = (pod("driver", 0, APPLICATION), pod("executor", 50, DRIVER));
    for pods in [[&driver, &executor], [&executor, &driver]] {
        let mut index = world();
        for pod in pods {
            index.apply_pod(&read(pod));
        }
        assert_eq!(end(&mut index, &executor), Some(at(100)));
        assert_eq!(index.missing_evidence().len(), 0, "the driver shows it");
        index.delete_pod(Uid::of("driver"));
        assert_eq!((end(&mut index, &executor), index.next_expiry()), (Some(at(100)), Some(at(100))));
        let missing: Vec<Evidence> =
            index.missing_evidence().into_iter().map(|of| of.facts.evidence).collect();
        assert_eq!(missing, [Evidence { since: Some(at(0)), ..Evidence::default() }]);
    }
}

#[test]
fn an_executor_that_terminates_for_long_lacks_evidence_of_its_drivers_start() {
    let (driver, executor) = (pod("driver", 0, APPLICATION), pod("executor", 50, DRIVER));
    let mut going = executor.clone();
    going["metadata"]["deletionTimestamp"] = json!(at(100_060));
    going["metadata"]["deletionGracePeriodSeconds"] = json!(100_000);
    // perhaps no keeper saw it run
    for pods in [&[&driver, &executor, &going][..], &[&driver, &going], &[&going, &driver]] {
        let mut index = world();
        for pod in pods {
            index.apply_pod(&read(pod));
        }
        let unnoted = index.unnoted_terminations(SignedDuration::from_hours(1));
        let unnoted: Vec<Evidence> = unnoted.into_iter().map(|of| of.facts.evidence).collect();
        assert_eq!(unnoted, [Evidence { since: Some(at(0)), ..Evidence::default() }]);
    }
}

#[test]
fn a_pod_lacks_evidence_of_its_own_earlier_start_where_the_pod_that_controls_it_does_not_show_it() {
    for (namespace, second) in [("ns", 50), ("other", 0)] {
        let mut index = world();
        let mut driver = pod("driver", second, APPLICATION);
        driver["metadata"]["namespace"] = json!(namespace);
        // it is created with its node, and shows its binding later
        let mut executor = pod("executor", 0, DRIVER);
        executor["spec"]["nodeName"] = json!("n");
        executor["status"]["conditions"][0]["lastTransitionTime"] = json!(at(60));
        let mut unshown = executor.clone();
        unshown["status"] = json!({});
        for pod in [&driver, &unshown, &executor] {
            index.apply_pod(&read(pod));
        }
        assert_eq!(end(&mut index, &executor), Some(at(100)));
        let missing = index.missing_evidence().into_iter();
        let missing: Vec<Evidence> = missing.map(|of| of.facts.evidence).collect();
        let queues = [("scheduling.run.ai".into(), "q".into())].into();
        assert_eq!(missing, [Evidence { queues, since: Some(at(0)), ..Evidence::default() }], "{namespace}");
    }
}

#[test]
fn a_driver_lends_the_earliest_start_that_it_has_shown() {
    // it is created with its node, and shows its binding later
    let mut driver = pod("driver", 0, APPLICATION);
    driver["spec"]["nodeName"] = json!("n");
    driver["status"]["conditions"][0]["lastTransitionTime"] = json!(at(60));
    let mut unshown = driver.clone();
    unshown["status"] = json!({});
    let executor = pod("executor", 70, DRIVER);
    for pods in [[&unshown, &driver, &executor], [&unshown, &executor, &driver]] {
        let mut index = world();
        for pod in pods {
            index.apply_pod(&read(pod));
        }
        assert_eq!(end(&mut index, &executor), Some(at(100)));
        let missing = index.missing_evidence().into_iter().find(|of| &*of.name == "executor");
        let evidence = missing.expect("the driver doesn't show it to the next keeper").facts.evidence;
        assert_eq!(evidence, Evidence { since: Some(at(0)), ..Evidence::default() });
    }
}

#[test]
fn a_keeper_that_starts_later_goes_by_the_evidence_on_the_executor() {
    let mut executor = pod("executor", 50, DRIVER);
    executor["metadata"]["annotations"] = json!({"tenure.dev/evidence": json!({"since": at(0)}).to_string()});
    let mut index = world();
    index.apply_pod(&read(&executor));
    assert_eq!(end(&mut index, &executor), Some(at(100)));
    assert_eq!(index.missing_evidence().len(), 0);
}

#[test]
fn a_pod_that_names_a_younger_pod_or_one_of_another_namespace_keeps_its_own_end() {
    let mut index = world();
    let executor = pod("executor", 50, DRIVER);
    let mut elsewhere = pod("elsewhere", 50, DRIVER);
    elsewhere["metadata"]["namespace"] = json!("other");
    for pod in [&pod("driver", 60, APPLICATION), &executor, &elsewhere] {
        index.apply_pod(&read(pod));
    }
    assert_eq!(end(&mut index, &executor), Some(at(150)));
    index.apply_pod(&read(&pod("driver", 10, APPLICATION)));
    assert_eq!(end(&mut index, &executor), Some(at(110)));
    assert_eq!(end(&mut index, &elsewhere), Some(at(150)));
}

#[test]
fn the_driver_of_executors_that_are_gone_is_forgotten() {
    let mut index = world();
    for pod in [pod("driver", 0, APPLICATION), pod("executor", 50, DRIVER)] {
        index.apply_pod(&read(&pod));
    }
    index.delete_pod(Uid::of("driver"));
    assert!(index.objects.owners.drives(Uid::of("driver")), "the executor is below its owner");
    index.delete_pod(Uid::of("executor"));
    assert!(!index.objects.owners.drives(Uid::of("driver")));
}

#[test]
fn a_pod_that_leaves_has_none_of_its_siblings_computed_again() {
    for controller in [("Job", "job"), DRIVER] {
        let mut index = world();
        index.apply_pod(&read(&pod("driver", 0, APPLICATION)));
        for name in ["first", "second", "third"] {
            let mut noted = pod(name, 50, controller);
            noted["metadata"]["annotations"] =
                json!({"tenure.dev/evidence": json!({"since": at(0)}).to_string()});
            index.apply_pod(&read(&noted));
        }
        assert!(index.next_expiry().is_some(), "all are computed");
        index.delete_pod(Uid::of("first"));
        let moved = &index.objects.moved.pods;
        assert!(!moved.contains(&Uid::of("second")) && !moved.contains(&Uid::of("third")), "{controller:?}");
    }
}
