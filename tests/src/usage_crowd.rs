//! A crowd of pods that end in all ways, and the GPU-seconds that an observer computes from the
//! audit log alone, for comparison with the keeper's record.

mod observer;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Binding, ConfigMap, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, UNREADY, eventually};
use tenure_types::usage_record::{USAGE_CONFIG_MAP, USAGE_KEY, UsageRecord};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, sleep_until},
};

pub use observer::{GpuSeconds, UsageDifference, compare, counted, observed};

use crate::{DEADLINE, World};

/// The node of all pods.
const NODE: &str = "crowd";

/// The queue of the last pod of all.
const LAST: &str = "last";

/// The resource of the pods.
const GPU: &str = "nvidia.com/gpu";

/// The calls at a time.
const CALLS: usize = 16;

/// The time in seconds by which a pod of queue `unready` must be ready.
const READY_WITHIN: u64 = 12;
/// The ceiling in seconds of queue `ceiling`.
const CEILING: u64 = 15;

/// The ways in which pods end, each the beginning of the names of its pods.
const WAYS: [&str; 7] = ["succeeded", "failed", "deleted", "slowly", "preempted", "cut", "unready"];

/// A crowd of pods.
#[derive(Clone, Copy, Debug)]
pub struct UsageCrowd {
    /// The number of pods.
    pub pods: u64,
    /// The number of pods that are created each second.
    pub each_second: u64,
    /// The shortest run of a pod that isn't ended by Tenure, and the seconds that others run longer
    /// at most.
    pub runs: (Duration, u64),
    /// The number of times that the keeper is killed while the crowd plays.
    pub kills: u64,
}

/// Creates the queues and the node of crowds.
pub async fn prepare(world: &World) {
    let family = json!("scheduling.run.ai/v3alpha1");
    let rules = json!({"enable": true, "timeout": format!("{READY_WITHIN}s"), "countFrom": "Scheduled"});
    for (name, spec) in [
        ("free", json!({})),
        ("ceiling", json!({"maxDuration": format!("{CEILING}s")})),
        ("unready", json!({"waitForPodsReady": rules})),
        (LAST, json!({})),
    ] {
        let queue = json!({"apiVersion": family, "kind": "Queue", "metadata": {"name": name}, "spec": spec});
        world.apply(&queue).await;
    }
    world.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})).await;
}

impl UsageCrowd {
    /// Plays the crowd in a namespace while the keeper is killed, and waits until the keeper's
    /// record has all pods.
    pub async fn play(self, world: &World, namespace: &str) -> Result<()> {
        let client = world.cluster.client()?;
        let calls = Semaphore::new(CALLS);
        let stage = Stage { client: client.clone(), namespace, calls: &calls };
        let ended = AtomicU64::new(0);
        let began = Instant::now();
        let pods = (0..self.pods).map(async |number| {
            let wait = Duration::from_millis(number.saturating_mul(1_000) / self.each_second.max(1));
            sleep_until(began + wait).await;
            let result = stage.play(self, number).await.with_context(|| format!("pod {number}"));
            ended.fetch_add(1, Relaxed);
            result
        });
        let kills = async {
            for kill in 1..=self.kills {
                let share = self.pods.saturating_mul(kill) / self.kills.saturating_add(1);
                while ended.load(Relaxed) < share {
                    sleep(Duration::from_millis(50)).await;
                }
                world.tenure.kill_keeper().await?;
                world.tenure.start_keeper().await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        tokio::try_join!(async { try_join_all(pods).await.map(drop) }, kills)?;
        // changes are counted in their order: once the last pod is counted, all others are
        stage.create("last-g1", LAST, false).await?;
        stage.bind("last-g1").await?;
        stage.delete("last-g1", 0).await?;
        let all =
            async || Ok(record(&client).await?.filter(|of| of.queues.iter().any(|of| of.queue == LAST)));
        eventually("the keeper to have counted all pods", DEADLINE, all).await?;
        Ok(())
    }
}

/// Returns the keeper's record. None: there is no record yet.
pub async fn record(client: &Client) -> Result<Option<UsageRecord>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), RELEASE_NAMESPACE);
    let data = maps.get(USAGE_CONFIG_MAP).await?.data.unwrap_or_default();
    Ok(data.get(USAGE_KEY).map(|text| serde_json::from_str(text)).transpose()?)
}

/// The calls that make the story of a pod.
struct Stage<'s> {
    client: Client,
    namespace: &'s str,
    calls: &'s Semaphore,
}

impl Stage<'_> {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Plays the story of a pod, from its creation to its end. Its name has its way, its number and
    /// its GPUs.
    async fn play(&self, crowd: UsageCrowd, number: u64) -> Result<()> {
        let way = WAYS[usize::try_from(number % 7)?];
        let queue = match way {
            "cut" => "ceiling",
            "unready" => "unready",
            _ => "free",
        };
        let name = format!("{way}-{number}-g{}", 1 + number % 8);
        self.create(&name, queue, way == "unready").await?;
        self.bind(&name).await?;
        if matches!(way, "cut" | "unready") {
            return self.await_end(&name).await;
        }
        let (shortest, more) = crowd.runs;
        // in milliseconds, so that the runs are of all lengths
        let more = number.wrapping_mul(7_919) % more.saturating_mul(1_000).max(1);
        sleep(shortest + Duration::from_millis(more)).await;
        match way {
            "succeeded" => self.finish(&name, "Succeeded", 0).await?,
            "failed" => self.finish(&name, "Failed", 1).await?,
            "slowly" => {
                self.delete(&name, 30).await?;
            }
            "preempted" => {
                self.mark_preempted(&name).await?;
                self.delete(&name, 0).await?;
            }
            _ => self.delete(&name, 0).await?,
        }
        // some finished pods are cleaned up
        if matches!(way, "succeeded" | "failed") && number.is_multiple_of(2) {
            self.delete(&name, 0).await?;
        }
        Ok(())
    }

    /// Creates a pod with the GPUs of its name.
    async fn create(&self, name: &str, queue: &str, unready: bool) -> Result<()> {
        let (_, gpus) = name.rsplit_once("-g").context("its name has its GPUs")?;
        let requests = json!({GPU: gpus});
        let mut labels = json!({"kai.scheduler/queue": queue});
        if unready {
            labels[UNREADY] = json!("");
        }
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "schedulerName": "crowd", "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
                "containers": [{
                    "name": "main", "image": "example.com/image",
                    "resources": {"requests": requests, "limits": requests},
                }],
            },
        }))?;
        let _permit = self.calls.acquire().await?;
        self.pods().create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    /// Binds a pod to the node, as a scheduler does.
    async fn bind(&self, name: &str) -> Result<()> {
        let binding: Binding = serde_json::from_value(json!({
            "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }))?;
        let _permit = self.calls.acquire().await?;
        let (pods, how) = (self.pods(), PostParams::default());
        pods.create_subresource::<Binding, Value>("binding", name, &how, &binding).await?;
        Ok(())
    }

    /// Reports the end of a pod, as kubelet does.
    async fn finish(&self, name: &str, phase: &str, code: i32) -> Result<()> {
        let _permit = self.calls.acquire().await?;
        let terminated = json!({"exitCode": code, "finishedAt": seconds(Timestamp::now())});
        let main = json!({
            "name": "main", "image": "example.com/image", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated},
        });
        self.patch_status(name, &json!({"phase": phase, "containerStatuses": [main]})).await
    }

    /// Marks a pod as a victim, as kube-scheduler does.
    async fn mark_preempted(&self, name: &str) -> Result<()> {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "lastTransitionTime": seconds(Timestamp::now()),
        });
        let _permit = self.calls.acquire().await?;
        self.patch_status(name, &json!({"conditions": [condition]})).await
    }

    async fn patch_status(&self, name: &str, status: &Value) -> Result<()> {
        let patch = Patch::Strategic(json!({"status": status}));
        self.pods().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes a pod with a grace period in seconds.
    async fn delete(&self, name: &str, grace: u32) -> Result<()> {
        let _permit = self.calls.acquire().await?;
        self.pods().delete(name, &DeleteParams::default().grace_period(grace)).await?;
        Ok(())
    }

    /// Waits until Tenure has ended a pod.
    async fn await_end(&self, name: &str) -> Result<()> {
        sleep(Duration::from_secs(READY_WITHIN.min(CEILING))).await;
        let late = Instant::now() + DEADLINE * 3;
        loop {
            let found = {
                let _permit = self.calls.acquire().await?;
                self.pods().get_opt(name).await?
            };
            if found.is_none() {
                return Ok(());
            }
            ensure!(Instant::now() < late, "{name} runs on");
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Returns a time in whole seconds, as Kubernetes writes it.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
