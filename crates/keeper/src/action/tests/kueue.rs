//! Owners that Kueue runs.

use super::*;

/// A Workload by which Kueue runs the Deployment, with more fields.
fn workload(name: &str, more: &Value) -> Value {
    let above = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": true}]);
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": above},
        "spec": {"active": true}, "status": {"conditions": [{"type": "Admitted", "status": "True"}]},
    });
    json_patch::merge(&mut workload, more);
    workload
}

/// Adds Kueue, and the list of its Workloads.
fn add_kueue(server: &Server, workloads: &[Value]) {
    let list = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadList", "metadata": {}, "items": workloads,
    });
    let kinds = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "kueue.x-k8s.io/v1beta2",
        "resources": [{
            "name": "workloads", "singularName": "", "kind": "Workload", "namespaced": true, "verbs": ["get"],
        }],
    });
    server.0.lock().objects.extend([("ns/workloads", list), ("kueue.x-k8s.io/v1beta2", kinds)]);
}

#[tokio::test(start_paused = true)]
async fn what_kueue_runs_is_deleted_itself_where_its_row_says_so_and_evicted_by_its_workload() {
    let (server, pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    add_kueue(&server, &[workload("of-web", &json!({}))]);
    server.0.lock().objects.insert("workloads/of-web", workload("of-web", &json!({})));
    pauser.handles.config.set(deletes());
    assert_eq!(act_on(&pauser, &server, &group).await, saw("deleted Deployment", &[DELETED_OWNER]));
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    let evicted = saw("paused Workload", &["PATCH workloads/of-web"]);
    assert_eq!(act_on(&pauser, &server, &group).await, evicted);
}

#[tokio::test(start_paused = true)]
async fn what_kueue_runs_is_paused_by_its_workloads_however_large_others_with_its_label_are() {
    let (server, pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    let large = json!({"metadata": {"ownerReferences": null, "annotations": {"text": "x".repeat(12_000)}}});
    let mut workloads: Vec<_> = (0..12).map(|number| workload(&format!("large-{number}"), &large)).collect();
    for (object, name, more) in [
        ("workloads/of-web", "of-web", json!({})),
        ("workloads/slice", "slice", json!({"status": {"conditions": []}})),
    ] {
        workloads.push(workload(name, &more));
        server.0.lock().objects.insert(object, workload(name, &more));
    }
    add_kueue(&server, &workloads);
    pauser.handles.config.set(deletes());
    show_pod(&pauser, &server);
    let group = DueBatch { task: Task::Evict, ..group };
    let expected = saw("paused Workload", &["PATCH workloads/of-web", "PATCH workloads/slice"]);
    assert_eq!(act_on(&pauser, &server, &group).await, expected);
}

/// A Deployment that is to be evicted, which Kueue may run by these Workloads.
fn evicted_beside(workloads: &[(&'static str, Value)]) -> (Server, Pauser, DueBatch) {
    let (server, pauser, group) =
        undone(0, LATER, json!({"maxDuration": "1h", "waitForPodsReady": {"timeout": "1s"}}));
    let list: Vec<Value> = workloads.iter().map(|(_, workload)| workload.clone()).collect();
    add_kueue(&server, &list);
    server.0.lock().objects.extend(workloads.iter().cloned());
    pauser.handles.config.set(deletes());
    show_pod(&pauser, &server);
    (server, pauser, DueBatch { task: Task::Evict, ..group })
}

/// A field that is nested too deep to be read.
fn deep() -> Value {
    json!({"deep": (0..200).fold(json!([]), |inner, _| json!([inner]))})
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_cannot_be_read_hides_no_other_of_its_job() {
    let odd = json!({"metadata": {"ownerReferences": null}, "spec": deep()});
    let (server, pauser, group) = evicted_beside(&[
        ("workloads/of-web", workload("of-web", &json!({}))),
        ("workloads/odd", workload("odd", &odd)),
        ("workloads/slice", workload("slice", &json!({"status": {"conditions": []}}))),
    ]);
    let expected = saw("paused Workload", &["PATCH workloads/of-web", "PATCH workloads/slice"]);
    assert_eq!(act_on(&pauser, &server, &group).await, expected);
}

#[tokio::test(start_paused = true)]
async fn another_workload_of_a_job_is_deactivated_as_it_is_when_its_turn_comes() {
    let (server, pauser, group) = evicted_beside(&[
        ("workloads/of-web", workload("of-web", &json!({}))),
        ("workloads/slice", workload("slice", &json!({"status": {"conditions": []}}))),
    ]);
    // Kueue has written its status since it was listed
    server.merge("workloads/slice", &json!({"metadata": {"resourceVersion": "2"}}));
    let expected = saw("paused Workload", &["PATCH workloads/of-web", "PATCH workloads/slice"]);
    assert_eq!(act_on(&pauser, &server, &group).await, expected);
}

#[tokio::test(start_paused = true)]
async fn the_other_workloads_of_a_job_that_a_user_has_resumed_since_its_pause_stay_active() {
    let (server, pauser, group) = evicted_beside(&[
        ("workloads/of-web", workload("of-web", &json!({}))),
        ("workloads/slice", workload("slice", &json!({"status": {"conditions": []}}))),
    ]);
    server.0.lock().listing = Duration::from_secs(1);
    let resumed = async {
        while server.0.lock().objects["workloads/of-web"]["spec"]["active"] == true {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.merge("workloads/of-web", &json!({"spec": {"active": true}}));
    };
    let (acted, ()) = tokio::join!(act_on(&pauser, &server, &group), resumed);
    assert_eq!(acted, saw("paused Workload", &["PATCH workloads/of-web"]));
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_workload_cannot_be_read_is_not_paused_and_its_pod_is_deleted_after_all_tries() {
    let (server, pauser, mut group) =
        evicted_beside(&[("workloads/of-web", workload("of-web", &json!({"spec": deep()})))]);
    let failed = saw("failed: failed to pause Workload of-web (kueue.x-k8s.io/v1beta2)", &[]);
    for attempts in [0, TRIES - 1] {
        group.first.attempts = attempts;
        assert_eq!(act_on(&pauser, &server, &group).await, failed, "{attempts}");
    }
    group.first.attempts = TRIES;
    assert_eq!(act_on(&pauser, &server, &group).await, saw("deleted", &[DELETED]));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_cannot_be_read_and_that_kueue_has_not_admitted_keeps_no_job_from_its_pause() {
    let made_by_a_user = json!({"spec": deep(), "status": null});
    let (server, pauser, group) =
        evicted_beside(&[("workloads/of-web", workload("of-web", &made_by_a_user))]);
    assert_eq!(act_on(&pauser, &server, &group).await, saw("paused Deployment", &["PATCH deployments/web"]));
}
