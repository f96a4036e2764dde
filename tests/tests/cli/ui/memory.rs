//! The memory of the page and of its server, while the cluster changes: `make page-memory`.

use std::{collections::VecDeque, env, fs, time::Duration};

use chromiumoxide::cdp::{
    browser_protocol::performance::{EnableParams, GetMetricsParams},
    js_protocol::heap_profiler::CollectGarbageParams,
};
use kube::core::DynamicObject;
use serde_json::json;
use tenure_tests::{
    World,
    served::Ui,
    workloads::{Namespace, bare_pod, in_queue, queue},
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::browser::Chromium;

/// The variable with the seconds of a run, and its default.
const SECONDS: (&str, u64) = ("PAGE_SECONDS", 3600);

/// The number of parts of a run. All parts have the same length.
const PARTS: u32 = 12;

/// The pods that are there at a time. The oldest one goes when another comes.
const PODS: usize = 300;

/// What the last third of a run may take more than the second one.
const MORE: f64 = 1.2;

/// In bytes.
struct Taken {
    server: f64,
    page: f64,
}

#[tokio::test]
#[ignore = "takes an hour: make page-memory"]
async fn page_and_server_take_no_more_memory_after_an_hour_of_changes() {
    let seconds = env::var(SECONDS.0).map_or(SECONDS.1, |text| text.parse().expect(SECONDS.0));
    let world = World::running("ui-memory").await.unwrap();
    let namespace = Namespace::new(&world).await;
    namespace.create(&queue("ui-memory", "90s")).await;
    let ui = Ui::start(Some(world.cluster.kubeconfig()), &[]).await;
    let mut browser = Chromium::open("memory").await.expect("a browser");
    browser.sign_in(&ui).await;
    browser.page.execute(EnableParams::default()).await.unwrap();
    let begun = Instant::now();
    let (mut taken, mut churn) = (Vec::new(), Churn::default());
    for part in 1..=PARTS {
        let until = begun + Duration::from_secs(seconds) * part / PARTS;
        tokio::select! {
            () = churn.go_on(&namespace) => {}
            () = sleep_until(until) => {}
        }
        let of_part = Taken { server: resident(ui.pid()), page: heap(&browser).await };
        let [server, page] = [of_part.server, of_part.page].map(|bytes| bytes / 1e6);
        let (seconds, pods) = (begun.elapsed().as_secs(), churn.number);
        println!("after {seconds:4} s and {pods} pods: server {server:.1} MB, page {page:.1} MB");
        taken.push(of_part);
    }
    browser.sees("live").await;
    for (what, of) in [("server", (|taken| taken.server) as fn(&Taken) -> f64), ("page", |taken| taken.page)]
    {
        let third = taken.len() / 3;
        let most = |from: usize| taken[from..from + third].iter().map(of).fold(0.0, f64::max);
        let (second, last) = (most(third), most(2 * third));
        assert!(last <= MORE * second, "{what}: {last} bytes after {second}");
    }
    browser.close().await;
}

/// Pods that come and go.
#[derive(Default)]
struct Churn {
    number: usize,
    pods: VecDeque<DynamicObject>,
}

impl Churn {
    /// Creates pods, ten a second, in a queue and in others that don't exist, and deletes the oldest.
    async fn go_on(&mut self, namespace: &Namespace) {
        let mut ticks = interval(Duration::from_millis(100));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let number = self.number;
            let queue =
                if number.is_multiple_of(10) { format!("ui-gone-{number}") } else { "ui-memory".into() };
            let pod = bare_pod(namespace.name(), &format!("run-{number}"), &in_queue(&queue), &json!({}));
            self.number += 1;
            self.pods.push_back(namespace.create(&pod).await);
            if self.pods.len() > PODS
                && let Some(oldest) = self.pods.pop_front()
                // its ceiling may have deleted it
                && namespace.get(&oldest).await.is_some()
            {
                namespace.delete(&oldest).await;
            }
        }
    }
}

/// The resident memory of a process.
fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// What the scripts of the page hold, without garbage.
async fn heap(browser: &Chromium) -> f64 {
    browser.page.execute(CollectGarbageParams::default()).await.unwrap();
    let metrics = browser.page.execute(GetMetricsParams::default()).await.unwrap();
    metrics.result.metrics.iter().find(|metric| metric.name == "JSHeapUsedSize").unwrap().value
}
