//! Queues that are written in one version, and read in the other.

use futures::{StreamExt, TryStreamExt};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, WatchEvent, WatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tenure_tests::{DEADLINE, World};
use tokio::{sync::OnceCell, time::timeout};

use crate::{V2, V3, common, create, own_annotations, own_fields, queue, read, seen, with, write};

/// Without a keeper, which would write statuses between the lines of a test.
pub async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world =
            World::installed_alone("versions", &["crds.tensorstack=false", "crds.serveV2=true"]).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        anyhow::Ok(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

#[tokio::test]
async fn a_queue_written_as_v2_is_read_field_by_field_as_v3alpha1_and_back() {
    let cluster = &world().await.cluster;
    let others = json!({"example.com/team": "ä \"b\"", "empty": ""});
    let annotations = with(own_annotations(), &others);
    let spec = common("1h30m", "2m0s");
    create(cluster, &queue(V2, "from-v2", &annotations, &spec)).await;
    assert_eq!(seen(cluster, V3, "from-v2").await, (with(spec.clone(), &own_fields()), others));
    assert_eq!(seen(cluster, V2, "from-v2").await, (spec, annotations));
}

#[tokio::test]
async fn a_queue_written_as_v3alpha1_is_read_field_by_field_as_v2_and_back() {
    let cluster = &world().await.cluster;
    let spec = with(common("2d", "1w"), &own_fields());
    create(cluster, &queue(V3, "from-v3", &json!({"a": "b"}), &spec)).await;
    let floors = json!({
        "a": "b", "tenure.dev/preempt-min-runtime": "2d", "tenure.dev/reclaim-min-runtime": "1w",
    });
    let expected = (common("48h0m0s", "168h0m0s"), with(own_annotations(), &floors));
    assert_eq!(seen(cluster, V2, "from-v3").await, expected);
    assert_eq!(seen(cluster, V3, "from-v3").await, (spec, json!({"a": "b"})));
}

#[tokio::test]
async fn a_status_is_the_same_in_both() {
    let cluster = &world().await.cluster;
    create(cluster, &queue(V3, "status", &json!({}), &json!({}))).await;
    let condition = json!({
        "type": "Orphan", "status": "True", "reason": "NoParent", "message": "there is none",
        "lastProbeTime": "2026-01-02T03:04:05Z", "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let amounts = json!({"cpu": "500m", "nvidia.com/gpu": 8});
    let of_kai = json!({
        "conditions": [condition], "childQueues": ["a", "b"], "allocated": amounts,
        "allocatedNonPreemptible": amounts, "requested": amounts,
    });
    let ours = json!({
        "workloads": {"running": 3, "protected": 2, "paused": 1, "requeueing": 1},
        "nextExpiry": "2026-01-02T03:04:05Z",
    });
    let patch = json!({"status": with(of_kai.clone(), &ours)}).to_string();
    let patch = ["patch", V3, "status", "--subresource=status", "--type=merge", "--patch", &patch];
    cluster.kubectl(&patch).await.unwrap().success().unwrap();

    let v2 = read(cluster, V2, "status").await;
    assert_eq!(v2["status"], of_kai);
    let text = v2["metadata"]["annotations"]["tenure.dev/status"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), ours);

    // a scheduler that has never heard of v3alpha1
    let without = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "spec": {},
        "metadata": {"name": "status", "resourceVersion": v2["metadata"]["resourceVersion"]},
        "status": {"childQueues": ["c"]},
    });
    write(cluster, &["replace", "--subresource=status"], &without).await.success().unwrap();
    let status = read(cluster, V3, "status").await["status"].take();
    assert_eq!(status, with(json!({"childQueues": ["c"]}), &ours));

    // nor does it lose them with the rest of the object
    let resource_version = read(cluster, V2, "status").await["metadata"]["resourceVersion"].take();
    let mut without = queue(V2, "status", &Value::Null, &json!({"priority": 5}));
    without["metadata"]["resourceVersion"] = resource_version;
    write(cluster, &["replace"], &without).await.success().unwrap();
    let now = read(cluster, V3, "status").await;
    assert_eq!((&now["status"], &now["spec"]), (&status, &json!({"priority": 5})));
}

#[tokio::test]
async fn a_queue_without_a_spec_is_one_in_both() {
    let cluster = &world().await.cluster;
    for (version, name) in [("v2", "bare-v2"), ("v3alpha1", "bare-v3alpha1")] {
        let api_version = format!("scheduling.run.ai/{version}");
        let bare = json!({"apiVersion": api_version, "kind": "Queue", "metadata": {"name": name}});
        create(cluster, &bare).await;
        let status = json!({"workloads": {"running": 1}});
        let patch = json!({"status": status}).to_string();
        let patch = ["patch", V3, name, "--subresource=status", "--type=merge", "--patch", &patch];
        cluster.kubectl(&patch).await.unwrap().success().unwrap();
        for resource in [V2, V3] {
            cluster
                .kubectl(&["label", resource, name, "a=b", "--overwrite"])
                .await
                .unwrap()
                .success()
                .unwrap();
        }
        assert_eq!(read(cluster, V3, name).await["status"], status);
    }
}

#[tokio::test]
async fn kubectl_prints_both() {
    let cluster = &world().await.cluster;
    let spec =
        json!({"displayName": "Printed", "priority": 9, "maxDuration": "3m", "reclaimMinRuntime": "2m"});
    create(cluster, &queue(V3, "printed", &json!({}), &spec)).await;
    let head_of_v2 = "NAME MAX-DURATION (ALL FIELDS: QUEUES.V3ALPHA1.SCHEDULING.RUN.AI) PRIORITY PARENT CHILDREN DISPLAYNAME";
    for (resource, head, row) in [
        (V2, head_of_v2, "printed 3m 9 Printed"),
        // the preferred version
        ("rq", head_of_v2, "printed 3m 9 Printed"),
        (
            V3,
            "NAME PARENT PRIORITY PREEMPT-MIN RECLAIM-MIN MAX-DURATION RUNNING PAUSED REQUEUEING AGE",
            "printed 9 2m 3m",
        ),
    ] {
        let table = cluster.kubectl(&["get", resource, "printed"]).await.unwrap().success().unwrap();
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(lines.next().unwrap(), head);
        let line = lines.next().unwrap();
        assert!(line.starts_with(row), "{resource}: {line}");
    }
    let explained = cluster.kubectl(&["explain", "queue"]).await.unwrap().success().unwrap();
    assert!(explained.contains("kubectl get queues.v3alpha1.scheduling.run.ai"), "{explained}");
}

#[tokio::test]
async fn a_long_list_comes_whole_and_in_order() {
    let cluster = &world().await.cluster;
    let name = |number: usize| format!("many-{number:03}");
    let item = |number| {
        let mut item =
            queue(V3, &name(number), &json!({}), &json!({"maxDuration": format!("{}m", number + 1)}));
        item["metadata"]["labels"] = json!({"test": "many"});
        item
    };
    let items: Vec<Value> = (0..300).map(item).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    write(cluster, &["create"], &list).await.success().unwrap();
    let list = ["get", V2, "-l", "test=many", "--chunk-size=0", "-o", "json"];
    let list: Value =
        serde_json::from_str(&cluster.kubectl(&list).await.unwrap().success().unwrap()).unwrap();
    let found: Vec<(String, String)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            assert_eq!(item["apiVersion"], "scheduling.run.ai/v2");
            let ceiling = item["metadata"]["annotations"]["tenure.dev/max-duration"].as_str().unwrap();
            (item["metadata"]["name"].as_str().unwrap().to_owned(), ceiling.to_owned())
        })
        .collect();
    let expected: Vec<_> = (0..300).map(|number| (name(number), format!("{}m", number + 1))).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_change_through_one_version_is_seen_in_the_watch_of_the_other() {
    let cluster = &world().await.cluster;
    create(cluster, &queue(V3, "watched", &json!({}), &json!({"maxDuration": "1h"}))).await;
    let client = cluster.client().unwrap();
    for (watched, changed, patch, pointer, expected) in [
        (
            "v2",
            V3,
            json!({"spec": {"maxDuration": "2h"}}),
            "/metadata/annotations/tenure.dev~1max-duration",
            "2h",
        ),
        (
            "v3alpha1",
            V2,
            json!({"metadata": {"annotations": {"tenure.dev/max-duration": "3h"}}}),
            "/spec/maxDuration",
            "3h",
        ),
    ] {
        let kind = GroupVersionKind::gvk("scheduling.run.ai", watched, "Queue");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let from = read(cluster, V3, "watched").await["metadata"]["resourceVersion"].take();
        let mine = WatchParams::default().fields("metadata.name=watched");
        let mut events = api.watch(&mine, from.as_str().unwrap()).await.unwrap().boxed();
        let patch = patch.to_string();
        let patch = ["patch", changed, "watched", "--type=merge", "--patch", &patch];
        cluster.kubectl(&patch).await.unwrap().success().unwrap();
        let event = timeout(DEADLINE, events.try_next()).await.unwrap().unwrap().unwrap();
        let WatchEvent::Modified(object) = event else { unreachable!("{event:?}") };
        let object = serde_json::to_value(object).unwrap();
        assert_eq!(object["apiVersion"], format!("scheduling.run.ai/{watched}"));
        assert_eq!(object.pointer(pointer).and_then(Value::as_str), Some(expected), "{object}");
    }
}
