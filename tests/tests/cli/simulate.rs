//! The past and the future of a real cluster: `simulate --from-cluster` and `forecast`.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, bare_pod, distinct, in_runai_queue, runai_queue, workload},
};

use super::{NOTHING, Said, in_namespace, run, tenure, time, users::with_role, world};

async fn simulated(world: &World, namespace: &str, policy: &[&str]) -> Value {
    let arguments = [&["simulate", "--from-cluster", "-o", "json"], policy].concat();
    object(&in_namespace(world, namespace, &arguments).await)
}

/// The answer. Other tests may have queues that draw a warning.
fn object(said: &Said) -> Value {
    assert_eq!(said.code, Some(0), "{said:?}");
    serde_json::from_str(&said.stdout).unwrap()
}

/// Waits until all runs are older than a second.
async fn await_cut(world: &World, namespace: &str, policy: &[&str], cut: u64) -> Value {
    eventually("runs to be older than their ceiling", DEADLINE, async || {
        let report = simulated(world, namespace, policy).await;
        anyhow::ensure!(report["total"]["cut"] == cut, "{report:#}");
        Ok(Some(report))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_ceiling_is_tried_on_what_runs_and_the_keeper_then_ends_as_many() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-past", "", "1d")).await;
    let labels = in_runai_queue("cli-past");
    namespace.create(&distinct(workload("Job", name, "train", &labels, &NOTHING), "train")).await;
    namespace.create(&distinct(workload("Deployment", name, "web", &labels, &NOTHING), "web")).await;
    namespace.create(&bare_pod(name, "outside", &json!({}), &NOTHING)).await;
    namespace.await_running(4).await;

    let none = simulated(world, name, &["--max-duration", "1d"]).await;
    assert_eq!(
        (&none["total"]["jobs"], &none["total"]["cut"], &none["eventsNow"]),
        (&json!(3), &json!(0), &json!(0))
    );
    assert_eq!(
        (&none["baseline"], &none["source"]["completeSince"]),
        (&json!("the queues of the cluster"), &NOTHING)
    );

    let sweep = ["simulate", "--from-cluster", "--sweep", "maxDuration=1d"];
    let said = in_namespace(world, name, &sweep).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("\nMissing: runs whose pods and Jobs were deleted: "), "{said:?}");

    // of all queues, also of those that pods don't name yet
    let all = await_cut(world, name, &["--max-duration", "1s"], 3).await;
    assert_eq!(all["eventsNow"], 2, "a pod in no queue has no ceiling: {all:#}");
    let queues: Vec<&str> =
        all["queues"].as_array().unwrap().iter().filter_map(|of| of["queue"].as_str()).collect();
    assert!(queues.contains(&"cli-past") && queues.contains(&&*format!("namespace/{name}")), "{queues:?}");

    let file = world.cluster.directory().join("cli-past.yaml");
    let short = runai_queue("cli-past", "", "1s");
    fs::write(&file, serde_json::to_string(&short).unwrap()).unwrap();
    let tried = await_cut(world, name, &["--queues", file.to_str().unwrap()], 2).await;
    assert_eq!((&tried["eventsNow"], &tried["total"]["runningCut"]), (&json!(2), &json!(2)));

    world.apply(&short).await;
    namespace.await_paused("Job", "train").await;
    namespace.await_paused("Deployment", "web").await;
    let events = namespace.await_events_of("MaxDurationExceeded", 2).await;
    assert_eq!(events.len(), 2, "as many as the simulation said: {events:?}");
}

#[tokio::test]
async fn a_user_who_may_list_one_namespace_simulates_that_one_and_is_warned_of_what_is_missing() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    namespace.create(&bare_pod(name, "mine", &json!({}), &NOTHING)).await;
    namespace.await_running(1).await;
    let user = with_role(world, name, "view").await;
    let own =
        ["--kubeconfig", user.to_str().unwrap(), "config", "set-context", "--current", "--namespace", name];
    world.cluster.kubectl(&own).await.unwrap().success().unwrap();
    let arguments = ["simulate", "--from-cluster", "--max-duration", "1d", "-o", "json"];
    let report = eventually("the user to see the pod", DEADLINE, async || {
        let said = Said::of(tenure(&world.cluster, &user, &arguments).await).await;
        anyhow::ensure!(said.code == Some(0), "{said:?}");
        Ok(Some(serde_json::from_str::<Value>(&said.stdout)?))
    })
    .await
    .unwrap();
    assert_eq!(
        (&report["total"]["jobs"], &report["source"]["name"]),
        (&json!(1), &json!(format!("namespace {name}")))
    );
    let missing = format!("all namespaces but {name}: you may not list the pods of all");
    assert!(report["missing"].to_string().contains(&missing), "{report:#}");
}

#[tokio::test]
async fn a_forecast_names_no_earlier_time_than_the_one_at_which_a_pod_ends() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-future", "", "15s")).await;
    // it may have to be built first
    run(world, &["version"]).await.good();
    let spec = json!({"terminationGracePeriodSeconds": 5});
    namespace.create(&bare_pod(name, "ends", &in_runai_queue("cli-future"), &spec)).await;
    namespace.create(&bare_pod(name, "stays", &json!({}), &spec)).await;
    namespace.await_running(2).await;
    let forecast = object(&in_namespace(world, name, &["forecast", "-o", "json"]).await);
    let free = forecast["free"].as_array().unwrap();
    assert!(!free.is_empty(), "{forecast:#}");
    let by = time(&free[0]["by"]);
    assert!(
        by > time(&forecast["now"]).saturating_add(SignedDuration::from_mins(10)).unwrap(),
        "{forecast:#}"
    );
    eventually("the pod to end", DEADLINE, async || {
        Ok((!namespace.pod_names().await.contains("ends")).then_some(()))
    })
    .await
    .unwrap();
    assert!(Timestamp::now() <= by, "{forecast:#}");
    let stays = object(&in_namespace(world, name, &["forecast", "-o", "json"]).await);
    assert_eq!(
        (&stays["free"], &stays["stays"][0]["reason"]),
        (&json!([]), &json!("the pod is in no queue"))
    );
}

#[tokio::test]
async fn room_for_a_job_is_found_by_the_nodes_of_the_cluster() {
    let world = world().await;
    let job = |cpu: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "big"},
            "spec": {"parallelism": 2, "template": {"spec": {"tolerations": [{"operator": "Exists"}], "containers": [
                {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}},
            ]}}},
        })
    };
    let file = world.cluster.directory().join("cli-job.json");
    let path = file.to_str().unwrap();
    fs::write(&file, job("1m").to_string()).unwrap();
    let small = run(world, &["forecast", "--for", path]).await;
    assert!(
        small.stdout.starts_with("There is room for job/big (pods: 2; nodes that it may run on: "),
        "{small:?}"
    );
    fs::write(&file, job("100k").to_string()).unwrap();
    let large = run(world, &["forecast", "--for", path]).await;
    assert!(large.stdout.starts_with("Ceilings alone make no room for job/big"), "{large:?}");
    let refused = run(world, &["forecast", "--for", path, "-n", "default"]).await.bad();
    assert!(refused.starts_with("error: --for needs the pods of all namespaces"), "{refused}");
}

/// A Job that wants GPUs of a resource in each of its pods: by requests, or by a claim of a template.
fn gpu_job(namespace: &str, resource: &str, gpus: u32, template: Option<&str>) -> Value {
    let requests = if template.is_some() { json!({}) } else { json!({resource: gpus}) };
    let claims: Vec<Value> = template
        .iter()
        .map(|template| json!({"name": "gpus", "resourceClaimTemplateName": template}))
        .collect();
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "big", "namespace": namespace},
        "spec": {"template": {"spec": {"resourceClaims": claims, "containers": [
            {"name": "c", "image": "none", "resources": {"requests": requests}},
        ]}}},
    })
}

#[tokio::test]
async fn devices_of_a_driver_are_room_until_pods_have_them() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    let driver = format!("{name}.example.com");
    let resource = &*format!("{driver}/gpu");
    let selector = json!({"cel": {"expression": format!("device.driver == '{driver}'")}});
    world
        .apply(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": driver},
            "spec": {"extendedResourceName": resource, "selectors": [selector]},
        }))
        .await;
    let devices = json!([{"name": "gpu-0"}, {"name": "gpu-1"}, {"name": "gpu-2"}]);
    let pool = json!({"name": "node-1", "generation": 1, "resourceSliceCount": 1});
    world
        .apply(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": driver},
            "spec": {"driver": driver, "nodeName": "node-1", "pool": pool, "devices": devices},
        }))
        .await;
    for (template, count) in [("one", 1), ("three", 3)] {
        let requests = json!([{"name": "gpus", "exactly": {"deviceClassName": driver, "count": count}}]);
        namespace
            .create(&json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": template, "namespace": name},
                "spec": {"spec": {"devices": {"requests": requests}}},
            }))
            .await;
    }
    let file = world.cluster.directory().join("cli-devices.json");
    let path = file.to_str().unwrap();
    let room = async |gpus: u32, template: Option<&str>| {
        fs::write(&file, gpu_job(name, resource, gpus, template).to_string()).unwrap();
        let said = run(world, &["forecast", "--for", path]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout.lines().next().unwrap_or_default().to_owned()
    };
    let (is_now, is_later) = (" now, if nothing else takes it.", " at the latest, in ");
    for room in [room(3, None).await, room(3, Some("three")).await] {
        assert!(room.contains(is_now), "{room}");
    }

    world.apply(&runai_queue("cli-devices", "", "1d")).await;
    let labels = in_runai_queue("cli-devices");
    let claim = json!({"name": "gpus", "resourceClaimTemplateName": "one"});
    namespace.create(&bare_pod(name, "claims", &labels, &json!({"resourceClaims": [claim]}))).await;
    let limits = json!({"limits": {resource: "1"}});
    let container = json!({"name": "main", "image": "none", "resources": limits});
    namespace.create(&bare_pod(name, "requests", &labels, &json!({"containers": [container]}))).await;
    namespace.await_running(2).await;
    for room in [room(1, None).await, room(1, Some("one")).await] {
        assert!(room.contains(is_now), "{room}");
    }
    for room in [room(2, None).await, room(3, Some("three")).await] {
        assert!(room.contains(is_later), "{room}");
    }
}
