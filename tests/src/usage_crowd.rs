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
use k8s_openapi::api::{
    core::v1::{Binding, ConfigMap, Node, Pod},
    resource::v1::ResourceClaimTemplate,
};
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

/// The GPUs of the pods: requested from a device plugin, or claimed.
pub const GPU: &str = "nvidia.com/gpu";

/// A resource of a device plugin, of which each pod has as many units as it has GPUs.
pub const PLUGIN: &str = "example.com/gpu";

/// The label by which pods with claims choose the node.
const NODE_LABEL: &str = "kubernetes.io/hostname";

/// The driver of the devices, and the name of their class.
const DRIVER: &str = "gpu.example.com";

/// The devices of each `ResourceSlice` of the node: the API server allows 128.
const DEVICES_OF_SLICE: usize = 128;

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

/// Creates the queues and the node of crowds, and `slices` times 128 devices that some pods claim.
pub async fn prepare(world: &World, slices: usize) {
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
    let labels = json!({NODE_LABEL: NODE});
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}))
        .await;
    devices(world, slices).await.unwrap();
}

/// Creates devices of the node and their class, which counts as GPUs.
async fn devices(world: &World, slices: usize) -> Result<()> {
    let room = json!({"pods": "10000", PLUGIN: "100000"});
    let room = json!({"status": {"allocatable": room, "capacity": room}});
    let nodes: Api<Node> = Api::all(world.cluster.client()?);
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(room)).await?;
    let selector = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
    world
        .apply(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER},
            "spec": {"extendedResourceName": GPU, "selectors": [selector]},
        }))
        .await;
    let slice = |slice: usize| {
        let devices: Vec<Value> =
            (0..DEVICES_OF_SLICE).map(|device| json!({"name": format!("gpu-{slice}-{device}")})).collect();
        let pool = json!({"name": NODE, "generation": 1, "resourceSliceCount": slices});
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": format!("{NODE}-{slice}")},
            "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": devices},
        })
    };
    let slices: Vec<Value> = (0..slices).map(slice).collect();
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": slices})).await;
    Ok(())
}

impl UsageCrowd {
    /// Plays the crowd in a namespace while the keeper is killed, and waits until the keeper's
    /// record has all pods.
    pub async fn play(self, world: &World, namespace: &str) -> Result<()> {
        let client = world.cluster.client()?;
        let calls = Semaphore::new(CALLS);
        let stage = Stage { client: client.clone(), namespace, calls: &calls };
        stage.create_templates().await?;
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
        // GPUs of a device plugin, or of a driver of Dynamic Resource Allocation
        if number.is_multiple_of(2) {
            self.create(&name, queue, way == "unready").await?;
            self.bind(&name).await?;
        } else {
            self.create_with_claim(&name, queue, way == "unready").await?;
            self.await_binding(&name).await?;
        }
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

    /// Creates a pod that requests the GPUs of its name.
    async fn create(&self, name: &str, queue: &str, unready: bool) -> Result<()> {
        let requests = json!({GPU: gpus(name)?, PLUGIN: gpus(name)?});
        let container = json!({"resources": {"requests": requests, "limits": requests}});
        self.create_pod(name, queue, unready, json!({"schedulerName": "crowd"}), container).await
    }

    /// Creates a pod that claims the GPUs of its name. kube-scheduler places the pod.
    async fn create_with_claim(&self, name: &str, queue: &str, unready: bool) -> Result<()> {
        let spec = json!({
            "nodeSelector": {NODE_LABEL: NODE}, "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template(gpus(name)?)}],
        });
        let requests = json!({PLUGIN: gpus(name)?});
        let claims = json!([{"name": "gpus"}]);
        let container = json!({"resources": {"claims": claims, "requests": requests, "limits": requests}});
        self.create_pod(name, queue, unready, spec, container).await
    }

    async fn create_pod(
        &self,
        name: &str,
        queue: &str,
        unready: bool,
        mut spec: Value,
        mut container: Value,
    ) -> Result<()> {
        let mut labels = json!({"kai.scheduler/queue": queue});
        if unready {
            labels[UNREADY] = json!("");
        }
        container["name"] = json!("main");
        container["image"] = json!("example.com/image");
        spec["containers"] = json!([container]);
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["restartPolicy"] = json!("Never");
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?;
        let _permit = self.calls.acquire().await?;
        self.pods().create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    /// Creates the templates of claims of one GPU to eight.
    async fn create_templates(&self) -> Result<()> {
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(self.client.clone(), self.namespace);
        for count in 1..=8 {
            let exactly = json!({"deviceClassName": DRIVER, "count": count});
            let requests = json!([{"name": "gpus", "exactly": exactly}]);
            let template = serde_json::from_value(json!({
                "metadata": {"name": template(&count.to_string())},
                "spec": {"spec": {"devices": {"requests": requests}}},
            }))?;
            templates.create(&PostParams::default(), &template).await?;
        }
        Ok(())
    }

    /// Waits until kube-scheduler has bound a pod.
    async fn await_binding(&self, name: &str) -> Result<()> {
        let is_bound = async || {
            let _permit = self.calls.acquire().await?;
            let spec = self.pods().get(name).await?.spec.unwrap_or_default();
            Ok(spec.node_name)
        };
        eventually(&format!("{name} to be bound"), DEADLINE, is_bound).await?;
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

/// Returns the number of GPUs in the name of a pod.
fn gpus(name: &str) -> Result<&str> {
    Ok(name.rsplit_once("-g").context("its name has its GPUs")?.1)
}

/// Returns the name of the template of a claim of some GPUs.
fn template(gpus: &str) -> String {
    format!("gpus-{gpus}")
}

/// Returns a time in whole seconds, as Kubernetes writes it.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
