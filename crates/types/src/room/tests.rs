use serde_json::json;

use super::*;

fn room(spec: &Value) -> Room {
    let pod: PodWithRoom = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    pod.split().1
}

fn container(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}}})
}

fn cpu(spec: &Value) -> i64 {
    room(spec).requests.get("cpu").copied().unwrap_or_default()
}

#[test]
fn containers_are_added_up_and_the_overhead_comes_on_top() {
    let two = [container("1"), container("500m")];
    assert_eq!(cpu(&json!({"containers": two})), 1_500);
    assert_eq!(cpu(&json!({"containers": two, "overhead": {"cpu": "1"}})), 2_500);
    assert_eq!(room(&json!({"containers": null})), Room { plain: true, ..Room::default() });
}

#[test]
fn the_largest_init_container_counts_if_it_is_more_than_all_containers() {
    let with = |init: &[Value]| cpu(&json!({"containers": [container("2")], "initContainers": init}));
    assert_eq!(with(&[container("1"), container("1")]), 2_000);
    assert_eq!(with(&[container("3"), container("1")]), 3_000);
}

#[test]
fn an_init_container_that_goes_on_counts_with_all_that_come_after_it() {
    let mut sidecar = container("1");
    sidecar["restartPolicy"] = json!("Always");
    let with = |init: &[&Value]| cpu(&json!({"containers": [container("2")], "initContainers": init}));
    assert_eq!(with(&[&sidecar]), 3_000);
    assert_eq!(with(&[&sidecar, &container("4")]), 5_000);
    assert_eq!(with(&[&container("4"), &sidecar]), 4_000);
}

#[test]
fn what_a_pod_requests_itself_replaces_what_its_containers_do() {
    let own = json!({"requests": {"cpu": "1", "nvidia.com/gpu": "7"}});
    let spec = json!({"containers": [{"resources": {"requests": {"cpu": "3", "nvidia.com/gpu": 2}}}], "resources": own});
    let requests = room(&spec).requests;
    assert_eq!((requests["cpu"], requests["nvidia.com/gpu"]), (1_000, 2));
}

#[test]
fn memory_is_in_bytes_and_what_is_no_quantity_is_nothing() {
    let requests = json!({"memory": "1Gi", "example.com/a": "many", "example.com/b": {}});
    let room = room(&json!({"containers": [{"resources": {"requests": requests}}]}));
    assert_eq!(room.requests, BTreeMap::from([("memory".to_owned(), 1 << 30)]));
}

#[test]
fn a_pod_that_needs_more_than_room_is_not_plain() {
    assert!(
        room(&json!({
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}],
            "affinity": {"nodeAffinity": {}}, "containers": [{"ports": [{"containerPort": 80}]}],
        }))
        .plain
    );
    for spec in [
        json!({"containers": [{"ports": [{"hostPort": 80}]}]}),
        json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]}),
        json!({"volumes": [{"name": "a", "ephemeral": {}}]}),
        json!({"affinity": {"podAntiAffinity": {}}}),
        json!({"affinity": {"podAffinity": {}}}),
        json!({"topologySpreadConstraints": [{}]}),
        json!({"resourceClaims": [{}]}),
    ] {
        assert!(!room(&spec).plain, "{spec}");
    }
}

/// The processors of a pod with these requests, of which its containers have this status.
fn resized(spec: &str, allocated: &str, actual: &str, reason: Option<&str>) -> i64 {
    let mut container = container(spec);
    container["name"] = json!("main");
    let status = json!({
        "name": "main", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}},
    });
    let pending =
        reason.map(|reason| json!({"type": "PodResizePending", "status": "True", "reason": reason}));
    let conditions: Vec<Value> = pending.into_iter().collect();
    let pod: PodWithRoom = serde_json::from_value(json!({
        "metadata": {"name": "a"}, "spec": {"containers": [container]},
        "status": {"containerStatuses": [status], "conditions": conditions},
    }))
    .unwrap();
    pod.split().1.requests["cpu"]
}

#[test]
fn while_a_pod_is_resized_the_most_of_what_it_asks_for_and_what_it_holds_counts() {
    assert_eq!(resized("1", "4", "4", None), 4_000, "on its way down");
    assert_eq!(resized("1", "1", "4", None), 4_000, "allocated, but not actuated");
    assert_eq!(resized("1", "4", "1", None), 4_000, "allocated and about to be actuated");
    assert_eq!(resized("4", "1", "1", Some("Deferred")), 4_000, "it will come");
}

#[test]
fn a_resize_that_its_node_can_never_give_does_not_count() {
    assert_eq!(resized("8", "1", "2", Some("Infeasible")), 2_000);
    let with_status = |status: Value| {
        let spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "8"}}}]});
        let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"});
        let pod = json!({"spec": spec, "status": {"conditions": [pending], "containerStatuses": status}});
        serde_json::from_value::<PodWithRoom>(pod).unwrap().split().1.requests["cpu"]
    };
    assert_eq!(with_status(json!(null)), 8_000, "nothing else is known");
    assert_eq!(with_status(json!([{"name": "main"}])), 8_000);
}

#[test]
fn a_sidecar_is_resized_as_any_container() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
    let spec = json!({"containers": [container("2")], "initContainers": [sidecar]});
    let status = json!({"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "3"}}]});
    let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
    assert_eq!(pod.split().1.requests["cpu"], 5_000);
}

#[test]
fn what_a_pod_holds_itself_counts_without_its_overhead() {
    let own = json!({"requests": {"cpu": "1"}});
    let spec = json!({"containers": [container("1")], "resources": own, "overhead": {"cpu": "500m"}});
    let status = json!({"resources": {"requests": {"cpu": "4500m"}}, "allocatedResources": {"cpu": "1500m"}});
    let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
    assert_eq!(pod.split().1.requests["cpu"], 4_500);
}

#[test]
fn resources_that_no_node_has_leave_no_trace() {
    let with = |requests: Value| room(&json!({"containers": [{"resources": {"requests": requests}}]}));
    let many: BTreeMap<String, u32> = (0..300).map(|number| (format!("example.com/{number}"), 1)).collect();
    assert_eq!(with(json!(many)), Room::default());
    assert_eq!(with(json!({"a".repeat(318): 1})), Room::default());
    assert!(with(json!({"a".repeat(317): 1})).plain);
}
