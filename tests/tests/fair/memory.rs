//! The memory of a keeper that starts on a cluster with large pods.

use std::{fs, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;
use tenure_tests::{
    World,
    keeper::Keeper,
    scale::{self, each},
    workloads::bare_pod,
};
use tokio::time::Instant;

/// The size of a pod. The largest that etcd takes has 1.5 MiB.
const POD_BYTES: usize = 700_000;

/// The most memory in addition to what a keeper on an empty cluster takes, in KiB.
const MORE_MEMORY: u64 = 150 * 1024;

/// Creates pods with so much text each.
async fn create_pods(world: &World, count: usize, bytes: usize) {
    let pods: Api<Pod> = Api::namespaced(world.cluster.client().unwrap(), "large");
    let text = "x".repeat(bytes);
    let create = async |number| {
        let container = json!({"name": "main", "image": "none", "env": [{"name": "TEXT", "value": text}]});
        let spec = json!({"schedulerName": "absent", "containers": [container]});
        let pod = bare_pod("large", &format!("pod-{bytes}-{number:05}"), &json!({}), &spec);
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    };
    each(count, "pods created", create).await.unwrap();
}

/// Returns the most memory that a keeper has used until it was ready, in KiB, and the time until then.
async fn start(world: &World) -> (u64, Duration) {
    let begun = Instant::now();
    let keeper = Keeper::start(world, &[]).await;
    let took = begun.elapsed();
    let status = fs::read_to_string(format!("/proc/{}/status", keeper.pid())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most = most.trim().strip_suffix("kB").unwrap().trim().parse().unwrap();
    keeper.stop().await;
    (most, took)
}

/// Starts a keeper without pods, and another with `count` large pods.
async fn assert_memory_is_bounded(name: &str, count: usize) -> World {
    let world = scale::world(name, &[]).await.unwrap();
    scale::namespace(&world, "large").await;
    let (idle, _) = start(&world).await;
    create_pods(&world, count, POD_BYTES).await;
    let (most, took) = start(&world).await;
    println!(
        "{count} pods of {POD_BYTES} bytes: {most} KiB at most, {idle} KiB without; ready after {took:?}"
    );
    assert!(most <= idle + MORE_MEMORY, "{most} KiB, and {idle} KiB without pods");
    world
}

/// A page of 500 objects would take more.
#[tokio::test]
async fn a_keeper_starts_with_little_memory_however_large_the_pods_are() {
    Box::pin(assert_memory_is_bounded("fair-memory", 120)).await;
}

#[tokio::test]
#[ignore = "minutes, and a gigabyte of pods: cargo test --test fair -- --ignored --nocapture"]
async fn five_hundred_large_pods_and_twenty_thousand_small_ones() {
    let world = Box::pin(assert_memory_is_bounded("fair-memory-full", 500)).await;
    drop(world);
    let world = scale::world("fair-small", &[]).await.unwrap();
    scale::namespace(&world, "large").await;
    create_pods(&world, 20_000, 500).await;
    let (most, took) = start(&world).await;
    println!("20,000 small pods: {most} KiB at most; ready after {took:?}");
}
