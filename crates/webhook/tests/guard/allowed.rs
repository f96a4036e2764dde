//! Deletions and evictions that always pass, even of protected pods. Each row is a pod that would be kept otherwise.

use serde_json::{Value, json};
use tenure_service::watch::Store;
use tenure_types::projection::Namespace;

use crate::world::{SCHEDULER, World, deletion, eviction, merge, pod};

/// The reasons with which a deletion by a scheduler and an eviction pass, of such a pod.
async fn reasons_of(more: &Value) -> (String, String) {
    let pod = pod("a", more);
    let world = World::new(std::slice::from_ref(&pod));
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let evicted = world.allowed(&eviction("admin", namespace, "a")).await;
    (world.allowed(&deletion(SCHEDULER, &pod)).await, evicted)
}

fn both(reason: &str) -> (String, String) {
    (reason.to_owned(), reason.to_owned())
}

#[tokio::test]
async fn a_pod_that_nothing_spares_is_kept() {
    let pod = pod("a", &json!({}));
    let world = World::new(std::slice::from_ref(&pod));
    assert_eq!(world.denied(&deletion(SCHEDULER, &pod)).await, "protected");
    assert_eq!(world.denied(&eviction("admin", "ns", "a")).await, "protected");
}

#[tokio::test]
async fn a_pod_that_is_terminating() {
    let going =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:59Z", "deletionGracePeriodSeconds": 0}});
    assert_eq!(reasons_of(&going).await, both("terminating"));
}

#[tokio::test]
async fn a_pod_that_has_ended() {
    for phase in ["Succeeded", "Failed"] {
        // the index keeps no record of them
        let expected = ("finished".to_owned(), "unknown".to_owned());
        assert_eq!(reasons_of(&json!({"status": {"phase": phase}})).await, expected, "{phase}");
    }
}

#[tokio::test]
async fn a_mirror_of_a_static_pod() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    assert_eq!(reasons_of(&mirror).await, both("mirror"));
}

#[tokio::test]
async fn a_pod_of_a_daemon_set() {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    assert_eq!(reasons_of(&json!({"metadata": {"ownerReferences": owner}})).await, both("daemon-set"));
}

#[tokio::test]
async fn a_pod_with_the_annotation_for_emergencies() {
    let annotated = |value: &str| json!({"metadata": {"annotations": {"tenure.dev/unguarded": value}}});
    assert_eq!(reasons_of(&annotated("true")).await, both("unguarded"));
    let no = pod("a", &annotated("no"));
    let world = World::new(std::slice::from_ref(&no));
    assert_eq!(world.denied(&deletion(SCHEDULER, &no)).await, "protected");
}

#[tokio::test]
async fn a_pod_of_kube_system() {
    let system = json!({"metadata": {"namespace": "kube-system"}});
    assert_eq!(reasons_of(&system).await, both("exempt-namespace"));
}

#[tokio::test]
async fn a_pod_of_an_unknown_queue_or_of_none() {
    for queue in [json!("gone"), json!(""), Value::Null] {
        let labels = json!({"metadata": {"labels": {"kai.scheduler/queue": queue}}});
        assert_eq!(reasons_of(&labels).await, both("unprotected"), "{queue}");
    }
}

#[tokio::test]
async fn a_pod_that_was_not_scheduled_yet() {
    let pending = json!({"spec": {"nodeName": null}, "status": {"phase": "Pending", "conditions": null}});
    assert_eq!(reasons_of(&pending).await, both("not-scheduled"));
}

#[tokio::test]
async fn a_pod_of_which_nothing_is_known() {
    let world = World::new(&[]);
    assert_eq!(world.allowed(&deletion(SCHEDULER, &pod("a", &json!({})))).await, "unknown");
    assert_eq!(world.allowed(&eviction("admin", "ns", "a")).await, "unknown");
}

#[tokio::test]
async fn a_pod_of_a_namespace_that_is_being_terminated() {
    let pod = pod("a", &json!({}));
    let world = World::new(std::slice::from_ref(&pod));
    let namespace = json!({"metadata": {"name": "ns", "deletionTimestamp": "2026-01-01T00:59:59Z"}});
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    world.placement.change(|index| index.apply(namespace));
    assert_eq!(world.allowed(&deletion(SCHEDULER, &pod)).await, "namespace-terminating");
    assert_eq!(world.allowed(&eviction("admin", "ns", "a")).await, "namespace-terminating");
}

/// The reasons with which a deletion and an eviction by a user pass, who is configured as a scheduler.
async fn passes(user: &str, groups: &[&str]) -> (String, String) {
    let pod = pod("a", &json!({}));
    let world = World::new(std::slice::from_ref(&pod));
    world.configure(&format!("{{schedulers: ['{user}']}}"));
    let (mut deletion, mut eviction) = (deletion(user, &pod), eviction(user, "ns", "a"));
    for review in [&mut deletion, &mut eviction] {
        merge(&mut review["request"], &json!({"userInfo": {"groups": groups}}));
    }
    (world.allowed(&deletion).await, world.allowed(&eviction).await)
}

#[tokio::test]
async fn a_kubelet() {
    assert_eq!(passes("system:node:n", &["system:nodes"]).await, both("kubelet"));
    assert_eq!(passes("system:node:n", &[]).await, both("kubelet"));
    assert_eq!(passes("kubelet-of-n", &["system:authenticated", "system:nodes"]).await, both("kubelet"));
}

#[tokio::test]
async fn a_controller_of_kubernetes() {
    for name in [
        "namespace-controller",
        "generic-garbage-collector",
        "pod-garbage-collector",
        "node-controller",
        "taint-eviction-controller",
        "daemon-set-controller",
        "job-controller",
        "cronjob-controller",
        "ttl-after-finished-controller",
        "replicaset-controller",
        "replication-controller",
        "statefulset-controller",
        "deployment-controller",
    ] {
        let account = format!("system:serviceaccount:kube-system:{name}");
        assert_eq!(passes(&account, &[]).await, both("controller"), "{name}");
    }
    assert_eq!(passes("system:kube-controller-manager", &[]).await, both("controller"));
}

#[tokio::test]
async fn deletions_by_users_that_are_no_schedulers() {
    let pod = pod("a", &json!({}));
    let world = World::new(std::slice::from_ref(&pod));
    // the keeper is one of them
    for user in ["admin", "system:serviceaccount:tenure-system:tenure-keeper", "system:kube-scheduler2", ""] {
        assert_eq!(world.allowed(&deletion(user, &pod)).await, "other-user", "{user}");
    }
}

#[tokio::test]
async fn whom_an_admin_exempts_as_soon_as_they_are_exempt() {
    let pod = pod("a", &json!({}));
    let world = World::new(std::slice::from_ref(&pod));
    let mut review = eviction("boss", "ns", "a");
    merge(&mut review["request"], &json!({"userInfo": {"groups": ["bosses"]}}));
    assert_eq!(world.denied(&review).await, "protected");
    for (guarded, expected) in [
        ("{exemptUsers: [boss]}", "exempt-user"),
        ("{exemptGroups: [bosses]}", "exempt-group"),
        ("{exemptNamespaces: [ns]}", "exempt-namespace"),
    ] {
        world.configure(guarded);
        assert_eq!(world.allowed(&review).await, expected);
    }
    world.configure("{}");
    assert_eq!(world.denied(&review).await, "protected");
}

#[tokio::test]
async fn who_is_no_scheduler_any_more_and_who_is_one_now_is_not() {
    let pod = pod("a", &json!({}));
    let world = World::new(std::slice::from_ref(&pod));
    world.configure("{schedulers: ['system:serviceaccount:volcano-system:volcano-scheduler']}");
    assert_eq!(world.allowed(&deletion(SCHEDULER, &pod)).await, "other-user");
    let volcano = "system:serviceaccount:volcano-system:volcano-scheduler";
    assert_eq!(world.denied(&deletion(volcano, &pod)).await, "protected");
}
