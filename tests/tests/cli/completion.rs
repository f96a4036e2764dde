//! Completion of queues, workloads and namespaces, as kubectl asks for it.

use std::{env, fs, os::unix::fs::symlink, path::PathBuf};

use serde_json::json;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, runai_queue},
};

use super::{Said, deployment, paused, plugin, world};

/// Where kubectl finds the plugin under both names.
fn directory(world: &World) -> PathBuf {
    world.cluster.directory().join("plugin")
}

/// Returns what kubectl prints for a shell that completes the last of these words, after `kubectl tenure`.
async fn completed(world: &World, words: &[&str]) -> String {
    let old = env::var_os("PATH").unwrap_or_default();
    let places = [directory(world)].into_iter().chain(env::split_paths(&old));
    let mut command = world.cluster.command("kubectl", &[&["__complete", "tenure"], words].concat());
    command.env("PATH", env::join_paths(places).unwrap());
    let said = Said::of(command).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    said.stdout
}

/// Waits for this completion: where processors are short, an answer may come too late for a shell.
async fn await_completed(world: &World, words: &[&str], expected: &str) {
    let as_expected = async || match completed(world, words).await {
        answer if answer == expected => Ok(Some(())),
        answer => anyhow::bail!("{answer:?}"),
    };
    eventually(&format!("{words:?} to be {expected:?}"), DEADLINE, as_expected).await.unwrap();
}

#[tokio::test]
async fn kubectl_completes_queues_workloads_and_namespaces() {
    let world = world().await;
    let plugin = plugin().await;
    fs::create_dir(directory(world)).unwrap();
    for name in ["kubectl-tenure", "kubectl_complete-tenure"] {
        symlink(&plugin, directory(world).join(name)).unwrap();
    }
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    world.apply(&runai_queue("cli-complete", "", "1d")).await;
    for deployed in ["one", "two"] {
        let object = deployment(&namespace, deployed);
        paused(&namespace, &object, "spec.replicas", &json!(0), &json!(1)).await;
    }
    await_completed(world, &["queue", "cli-compl"], "cli-complete\n:4\n").await;
    await_completed(world, &["resume", "--queue", "cli-compl"], "cli-complete\n:4\n").await;
    await_completed(world, &["list", "-n", name], &format!("{name}\n:4\n")).await;
    let paused = "deployment/one\tPaused, queue by-hand\ndeployment/two\tPaused, queue by-hand\n:4\n";
    await_completed(world, &["resume", "-n", name, ""], paused).await;
    await_completed(world, &["-n", name, "resume", "deploy", "t"], "two\tPaused, queue by-hand\n:4\n").await;
    assert_eq!(completed(world, &["activate", "-n", name, ""]).await, ":4\n");
    assert_eq!(completed(world, &["validate", "-f", ""]).await, ":0\n");
    assert_eq!(completed(world, &["queue", "--server", "https://127.0.0.1:1", ""]).await, ":4\n");
}
