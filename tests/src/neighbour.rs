//! A namespace whose pods have nothing to do with the trouble of others: how late their runs end.
//! Tests of fairness create trouble elsewhere, and bound the lateness here.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tokio::{time::interval, try_join};

use crate::{
    World,
    workloads::{bare_pod, in_queue, queue},
};

/// The ceiling of the neighbour's queue, which is named like its namespace.
const CEILING: &str = "4s";

/// The time between two looks at the pods.
const LOOK: Duration = Duration::from_millis(100);

/// Creates `count` pods, one each second, and returns the longest time by which a run ended after
/// its deadline.
///
/// # Errors
/// If the API server refuses a request, or a pod runs on for two minutes.
pub async fn worst_lateness(world: &World, namespace: &str, count: usize) -> Result<SignedDuration> {
    world.apply(&queue(namespace, CEILING)).await;
    let ceiling: SignedDuration = CEILING.parse()?;
    let pods: Api<Pod> = Api::namespaced(world.cluster.client()?, namespace);
    let create = async {
        let mut ticks = interval(Duration::from_secs(1));
        for number in 0..count {
            ticks.tick().await;
            let spec = json!({"terminationGracePeriodSeconds": 0});
            let pod = bare_pod(namespace, &format!("pod-{number}"), &in_queue(namespace), &spec);
            pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        }
        Ok(())
    };
    let watch = async {
        let (mut running, mut ended, mut worst) =
            (Vec::<(String, Timestamp)>::new(), 0, SignedDuration::ZERO);
        let (begun, mut ticks) = (Timestamp::now(), interval(LOOK));
        while ended < count {
            ticks.tick().await;
            let found = pods.list(&ListParams::default()).await?.items.into_iter();
            let found = found.filter(|pod| pod.metadata.deletion_timestamp.is_none());
            let found = found.map(|pod| {
                let created = pod.metadata.creation_timestamp.context("a pod without a time")?.0;
                Ok((pod.metadata.name.unwrap_or_default(), created))
            });
            let (found, now) = (found.collect::<Result<Vec<_>>>()?, Timestamp::now());
            for (_, created) in running.iter().filter(|pod| !found.contains(pod)) {
                worst = worst.max(now.duration_since(*created) - ceiling);
                ended += 1;
            }
            running = found;
            let most = SignedDuration::from_secs(120 + i64::try_from(count)?);
            ensure!(now.duration_since(begun) < most, "{running:?} run on in namespace {namespace}");
        }
        Ok(worst)
    };
    Ok(try_join!(create, watch)?.1)
}
