//! Writes of queues at a fixed rate, in both versions, through the API server and so through the webhook.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tenure_testbed::Cluster;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

/// Writes that run until they are told to stop.
pub struct Load {
    stop: CancellationToken,
    failures: Arc<Mutex<Vec<String>>>,
    writes: JoinHandle<usize>,
}

/// The number of writes, and those that have failed.
pub struct Outcome {
    pub writes: usize,
    pub failures: Vec<String>,
}

impl Load {
    /// Creates `rate` queues a second in dry runs. Every fourth is of v2, which is mutated and converted
    /// as well.
    pub async fn start(cluster: &Cluster, rate: u32) -> Self {
        let clients = clients(cluster).await;
        let (stop, failures) = (CancellationToken::new(), Arc::<Mutex<Vec<String>>>::default());
        let (stopped, failed) = (stop.clone(), Arc::clone(&failures));
        let writes = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / rate);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            let (mut writes, mut count) = (JoinSet::new(), 0);
            while !stopped.is_cancelled() {
                ticks.tick().await;
                let (client, failed, number) =
                    (clients[count % clients.len()].clone(), Arc::clone(&failed), count);
                writes.spawn(async move {
                    if let Err(error) = write(client, number).await {
                        failed.lock().unwrap().push(format!("write {number}: {error}"));
                    }
                });
                count += 1;
                while writes.try_join_next().is_some() {}
            }
            while writes.join_next().await.is_some() {}
            count
        });
        Self { stop, failures, writes }
    }

    /// Waits for the writes that are under way.
    pub async fn end(self) -> Outcome {
        self.stop.cancel();
        let writes = self.writes.await.unwrap();
        let failures = std::mem::take(&mut *self.failures.lock().unwrap());
        Outcome { writes, failures }
    }
}

/// Clients with connections of their own, which try nothing again.
async fn clients(cluster: &Cluster) -> Vec<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    (0..8).map(|_| Client::try_from(config.clone()).unwrap()).collect()
}

async fn write(client: Client, number: usize) -> kube::Result<()> {
    let version = if number.is_multiple_of(4) { "v2" } else { "v3alpha1" };
    let kind = GroupVersionKind::gvk("scheduling.run.ai", version, "Queue");
    let queues: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let queue = json!({
        "apiVersion": format!("scheduling.run.ai/{version}"), "kind": "Queue",
        "metadata": {"name": format!("load-{number}")}, "spec": {"priority": 1},
    });
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    queues.create(&dry, &serde_json::from_value(queue).unwrap()).await.map(drop)
}
