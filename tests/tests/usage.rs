//! What runs have used, as the keeper counts it, beside what an observer finds in the API server's audit log.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{path::Path, process::Output, time::Duration};

use serde_json::{Value, json};
use tenure_testbed::{eventually, program};
use tenure_tests::{
    DEADLINE, World,
    keeper::Metrics,
    usage_crowd::{GPU, PLUGIN, UsageCrowd, UsageDifference, compare, counted, observed, prepare, record},
};
use tokio::{process::Command, task::spawn_blocking};

/// A world with webhook, keeper, and this many times 128 devices.
async fn world(name: &str, slices: usize) -> World {
    let resources =
        [GPU, PLUGIN].iter().zip(0..).map(|(of, number)| format!("usage.resources[{number}]={of}"));
    let resources: Vec<String> = resources.collect();
    let mut values = vec!["usage.enabled=true", "webhook.failurePolicy=Ignore"];
    values.extend(resources.iter().map(String::as_str));
    let world = Box::pin(World::installed(name, &values)).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    prepare(&world, slices).await;
    world
}

/// Plays a crowd, and returns how much the keeper's record differs from what the observer has found.
async fn difference(world: &World, crowd: UsageCrowd) -> UsageDifference {
    let namespace = world.namespace().await;
    // runs that end before the keeper counts aren't meant
    let client = world.cluster.client().unwrap();
    let begun = async || record(&client).await;
    eventually("the keeper to count", DEADLINE, begun).await.unwrap();
    crowd.play(world, &namespace).await.unwrap();
    let record = record(&client).await.unwrap().unwrap();
    assert_eq!(record.gaps, 0);
    // half of the runs have their GPUs by claims, and as much of the plugin's resource
    assert_eq!(counted(&record, GPU), counted(&record, PLUGIN), "claims count as a device plugin");
    let (counted, observed) = (counted(&record, GPU), observed(world, &namespace).unwrap());
    for (key, seconds) in &observed {
        println!(
            "{key:?}: observed {seconds:.1}, counted {:.1}",
            counted.get(key).copied().unwrap_or_default()
        );
    }
    compare(&counted, &observed)
}

#[tokio::test]
async fn each_run_counts_with_its_end_and_claims_as_requests_though_the_keeper_is_killed() {
    // 105 pods have claims, of five devices each on average
    let world = world("usage", 8).await;
    let crowd = UsageCrowd { pods: 210, each_second: 15, runs: (Duration::from_secs(10), 20), kills: 3 };
    let UsageDifference { observed, of_total, of_any } = difference(&world, crowd).await;
    println!("{observed:.0} GPU-seconds: {:.3} % in all, {:.3} % at most", of_total * 100.0, of_any * 100.0);
    // a second more or less is much with so few runs
    assert!(of_total < 0.01 && of_any < 0.05, "{of_total} {of_any}");

    let metrics = Metrics::of_world(&world).await;
    let labels = [("family", "run.ai"), ("queue", "ceiling"), ("resource", GPU), ("end", "cut")];
    let shown = metrics.sum("tenure_keeper_usage_resource_seconds_total", &labels);
    let record = record(&world.cluster.client().unwrap()).await.unwrap().unwrap();
    let of_record = counted(&record, GPU)[&("ceiling".to_owned(), "cut".to_owned())];
    assert!((shown - of_record).abs() < 0.001, "{shown} {of_record}");

    let shown =
        plugin(world.cluster.kubeconfig(), &["--queue", "ceiling", "--resource", GPU, "-o", "json"]).await;
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&shown["gaps"], shown["usage"].as_array().unwrap().len()), (&json!(0), 1));
    assert!((shown["usage"][0]["ends"]["cut"].as_f64().unwrap() - of_record).abs() < 0.001, "{shown}");
    let other = world.cluster.user_kubeconfig("other", None).unwrap();
    let refused = plugin(&other, &[]).await;
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && stderr.contains("configmaps \"tenure-usage\" is forbidden"),
        "{stderr}"
    );
}

/// The output of `kubectl tenure usage`.
async fn plugin(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let plugin = spawn_blocking(|| program("kubectl-tenure")).await.unwrap().unwrap();
    let mut command = Command::new(plugin);
    command.arg("usage").args(arguments).env("KUBECONFIG", kubeconfig);
    command.output().await.unwrap()
}

/// `make usage`, with `USAGE_PODS`, `USAGE_PODS_EACH_SECOND` and `USAGE_KILLS`.
#[tokio::test]
#[ignore = "takes some minutes"]
async fn ten_thousand_runs_count_as_the_audit_log_shows_them_and_claims_as_requests() {
    let world = world("usage-long", 64).await;
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let crowd = UsageCrowd {
        pods: number("USAGE_PODS", 10_000),
        each_second: number("USAGE_PODS_EACH_SECOND", 40),
        runs: (Duration::from_secs(30), 60),
        kills: number("USAGE_KILLS", 10),
    };
    let UsageDifference { observed, of_total, of_any } = difference(&world, crowd).await;
    println!("{observed:.0} GPU-seconds: {:.4} % in all, {:.4} % at most", of_total * 100.0, of_any * 100.0);
    assert!(of_total < 0.001, "{of_total}");
    assert!(of_any < 0.01, "{of_any}");
}
