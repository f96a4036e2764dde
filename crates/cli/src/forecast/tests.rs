//! The forecast is a bound: room is there no later.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

use super::{bound::room_by, demand::demands};
use crate::{
    input::Document,
    snapshot::occupants::{Amounts, Occupant},
};

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn gpus(number: i64) -> Amounts {
    Amounts::from([("nvidia.com/gpu".to_owned(), number)])
}

#[derive(Clone, Debug)]
struct Pod {
    node: usize,
    gpus: i64,
    /// The latest end of the run. None: no ceiling applies.
    bound: Option<i64>,
    /// Its real end, which isn't known.
    end: i64,
}

/// Up to four nodes of 8, their pods, and up to three pods that want room.
fn clusters() -> impl Strategy<Value = (usize, Vec<Pod>, Vec<i64>)> {
    let pod = (0..4_usize, 0..5_i64, option::weighted(0.8, 0..1_000_i64), 0..2_000_i64);
    let pods = vec(pod.prop_map(|(node, gpus, bound, end)| Pod { node, gpus, bound, end }), 0..12);
    (1..5_usize, pods, vec(1..9_i64, 1..4))
}

/// True if there is any way to place all pods.
fn fits(free: &mut [i64], demands: &[i64]) -> bool {
    let Some((first, rest)) = demands.split_first() else { return true };
    (0..free.len()).any(|node| {
        if free[node] < *first {
            return false;
        }
        free[node] -= first;
        let fits = fits(free, rest);
        free[node] += first;
        fits
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn room_is_there_no_later_than_the_forecast_says((nodes, pods, demands) in clusters()) {
        let held: Vec<Occupant> = pods.iter().map(|pod| Occupant {
            node: format!("n{}", pod.node), requests: gpus(pod.gpus), until: pod.bound.map(at), ..Occupant::default()
        }).collect();
        let rooms: BTreeMap<String, Amounts> = (0..nodes).map(|node| (format!("n{node}"), gpus(8))).collect();
        let wanted: Vec<Amounts> = demands.iter().copied().map(gpus).collect();
        let forecast = room_by(&rooms, &held, wanted.iter().collect(), at(0));
        // in the model, each pod ends by itself or at its ceiling, and nothing else is placed
        let end = |pod: &Pod| pod.bound.map_or(pod.end, |bound| bound.min(pod.end));
        let mut times: Vec<i64> = pods.iter().map(end).chain([0]).collect();
        times.sort_unstable();
        let happens = times.into_iter().find(|time| {
            let free = |node| 8 - pods.iter().filter(|pod| pod.node == node && end(pod) > *time).map(|pod| pod.gpus).sum::<i64>();
            fits(&mut (0..nodes).map(free).collect::<Vec<i64>>(), &demands)
        });
        if let Some(forecast) = forecast {
            prop_assert!(happens.is_some_and(|happens| at(happens) <= forecast), "{happens:?} {forecast}");
        }
    }
}

#[test]
fn room_now_is_now_and_without_an_end_there_is_no_time() {
    let nodes = BTreeMap::from([("n".to_owned(), gpus(8))]);
    let room = |until: Option<i64>, demand: i64| {
        let held =
            Occupant { node: "n".into(), requests: gpus(6), until: until.map(at), ..Occupant::default() };
        room_by(&nodes, &[held], vec![&gpus(demand)], at(0))
    };
    assert_eq!(room(None, 2), Some(at(0)));
    assert_eq!(room(Some(60), 3), Some(at(60)));
    assert_eq!(room(None, 3), None);
    assert_eq!(room(Some(60), 9), None);
    assert_eq!(room(Some(-60), 3), Some(at(0)), "an end that is over is due");
}

#[test]
fn pods_that_fit_now_fit_although_the_first_fit_fails_once_there_is_more_room() {
    let amounts = |cpu: i64, gpu: i64| -> Amounts {
        [("cpu".to_owned(), cpu), ("nvidia.com/gpu".to_owned(), gpu)].into_iter().collect()
    };
    let nodes = BTreeMap::from([("a".to_owned(), amounts(4_000, 1)), ("b".to_owned(), amounts(4_000, 0))]);
    let until = Some(at(60));
    let held = Occupant { node: "a".into(), requests: amounts(2_000, 0), until, ..Occupant::default() };
    let demands = [amounts(4_000, 0), amounts(2_000, 1)];
    assert_eq!(room_by(&nodes, &[held], demands.iter().collect(), at(0)), Some(at(0)));
}

fn document(api_version: &str, kind: &str, spec: &Value) -> Document {
    let value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    Document { source: "x.yaml:1".into(), api_version: api_version.into(), kind: kind.into(), value }
}

fn template(node: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": 2, "cpu": "500m"}}}]});
    spec.as_object_mut().unwrap().extend(node.as_object().unwrap().clone());
    json!({"metadata": {"labels": {"a": "b"}}, "spec": spec})
}

#[test]
fn a_workload_has_as_many_pods_as_it_runs_at_once() {
    let template = template(&json!({}));
    let number = |api_version: &str, kind: &str, spec: Value| {
        let pods = demands(&document(api_version, kind, &spec)).map_err(|error| error.to_string())?;
        assert!(
            pods.iter()
                .all(|(demand, _)| demand.requests["nvidia.com/gpu"] == 2 && demand.requests["cpu"] == 500)
        );
        Ok::<usize, String>(pods.iter().map(|(_, pods)| pods).sum())
    };
    assert_eq!(number("v1", "Pod", template["spec"].clone()), Ok(1));
    assert_eq!(number("batch/v1", "Job", json!({"template": template})), Ok(1));
    assert_eq!(
        number("batch/v1", "Job", json!({"template": template, "parallelism": 4, "completions": 3})),
        Ok(3)
    );
    assert_eq!(number("apps/v1", "Deployment", json!({"template": template, "replicas": 5})), Ok(5));
    let sets = json!({"replicatedJobs": [
        {"replicas": 2, "template": {"spec": {"template": template, "parallelism": 3}}},
        {"template": {"spec": {"template": template}}},
    ]});
    assert_eq!(number("jobset.x-k8s.io/v1alpha2", "JobSet", sets), Ok(7));
    let refused = number("ray.io/v1", "RayJob", json!({})).unwrap_err();
    assert!(
        refused.contains("the pods of a RayJob of group \"ray.io\" aren't known: give a Pod, Job"),
        "{refused}"
    );
    let refused = number("apps/v1", "Deployment", json!({"template": template, "replicas": 0})).unwrap_err();
    assert!(refused.contains("has 0 pods: must be 1 to"), "{refused}");
}

#[test]
fn only_nodes_count_on_which_the_pods_surely_may_run() {
    let node = |labels: Value, spec: Value| {
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}, "spec": spec})).unwrap()
    };
    let may = |pod: Value, labels: Value, spec: Value| {
        let demands = demands(&document("batch/v1", "Job", &json!({"template": template(&pod)}))).unwrap();
        demands[0].0.may_run_on(&node(labels, spec))
    };
    let (empty, a100) = (json!({}), json!({"gpu": "a100"}));
    let taint = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
    assert!(may(empty.clone(), empty.clone(), empty.clone()));
    assert!(!may(empty.clone(), empty.clone(), json!({"unschedulable": true})));
    assert!(!may(empty.clone(), empty.clone(), taint.clone()));
    for good in [
        json!({"key": "gpu", "operator": "Exists"}),
        json!({"operator": "Exists"}),
        json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"}),
    ] {
        assert!(may(json!({"tolerations": [good]}), empty.clone(), taint.clone()), "{good}");
    }
    for bad in [
        json!({"key": "gpu"}),
        json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "cpu", "operator": "Exists"}),
    ] {
        assert!(!may(json!({"tolerations": [bad]}), empty.clone(), taint.clone()), "{bad}");
    }
    assert!(may(json!({"nodeSelector": {"gpu": "a100"}}), a100.clone(), empty.clone()));
    assert!(!may(json!({"nodeSelector": {"gpu": "h100"}}), a100.clone(), empty.clone()));
    let affinity = |operator: &str| {
        let of = json!({"key": "gpu", "operator": operator, "values": ["a100"]});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [of]}]}}}})
    };
    assert!(may(affinity("In"), a100.clone(), empty.clone()));
    assert!(!may(affinity("NotIn"), a100.clone(), empty.clone()));
    assert!(!may(affinity("Gt"), a100, empty), "it isn't known");
}
