//! Attempts of tenants to bypass Tenure, all of them stopped: by a user with exactly a tenant's rights, on a real API
//! server.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod access;
mod accounts;
mod bound;
mod limits;
mod operators;
mod owners;
mod plugin;
mod pod_groups;
mod references;
mod required;
mod rights;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use anyhow::Result;
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, TYPE_CHECKER, eventually};
use tenure_tests::{
    DEADLINE, World, fixtures,
    tenant::Tenant,
    workloads::{bare_pod, distinct, queue, runai_queue},
};
use tokio::{join, sync::OnceCell};

/// The ceiling of queue `short` of both families. Queue `long` has one that no test reaches.
const SHORT: &str = "20s";

/// The kinds of `PodGroup` that name a queue.
const KINDS: [&str; 2] = ["scheduling.run.ai/v2alpha2", "scheduler.tensorstack.dev/v1beta1"];

/// The label by which a pod names a queue of the family of each of these kinds.
const QUEUE_LABELS: [&str; 2] = ["kai.scheduler/queue", "scheduler.tensorstack.dev/queue"];

/// Webhook and keeper run.
async fn up() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world = Box::pin(started("tenancy")).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// The keeper runs, and the webhook is down.
async fn down() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(async || Box::pin(started("tenancy-down")).await).await.unwrap()
}

async fn started(name: &str) -> Result<World> {
    // queues are made while no webhook answers
    let values = [
        "webhook.failurePolicy=Ignore",
        "tenancy.requireQueue.matchLabels.queue=required",
        // an object of the whole cluster, which is never paused
        "keeper.owners[0].group=example.com",
        "keeper.owners[0].kind=Fleet",
        "keeper.owners[0].resource=fleets",
        "keeper.owners[0].path=spec.suspend",
        "keeper.owners[0].value=true",
    ];
    // nine tries take a minute
    let flags = ["--retry-after=1s", "--max-termination-grace=1m"];
    let cluster = Cluster::start_with_flags(name, &[("controllers", TYPE_CHECKER)]).await?;
    let world = Box::pin(World::installed_on(cluster, &values, &flags)).await?;
    for definitions in ["scheduling.run.ai", "scheduler.tensorstack.dev", "batch.tensorstack.dev", "unlisted"]
    {
        fixtures::install(&world, fixtures::definitions(definitions)).await;
    }
    for (name, ceiling) in [("short", SHORT), ("long", "1d")] {
        world.apply(&queue(name, ceiling)).await;
        world.apply(&runai_queue(name, "", ceiling)).await;
    }
    world.tenure.start_keeper().await?;
    await_policies(&world).await?;
    Ok(world)
}

/// The API server enforces a policy a little after it was created.
async fn await_policies(world: &World) -> Result<()> {
    let tenant = &Tenant::new(world).await;
    let group = tenant.create(&group(tenant, KINDS[0], "probe", &json!({"queue": "short"}))).await;
    let pod = bound(tenant, "probe", &json!({}), &json!({})).await;
    let tries = AtomicU32::new(0);
    eventually("the policies to be enforced", DEADLINE, async || {
        // another one each time: a write that passes must change something
        let queue = format!("try-{}", tries.fetch_add(1, Relaxed));
        let label = json!({"metadata": {"labels": {"kai.scheduler/queue": queue}}});
        let refused = tenant.try_patch(&pod, &label).await.is_err();
        let is_kept = tenant.try_patch(&group, &json!({"spec": {"queue": queue}})).await.is_err();
        Ok((refused && is_kept).then_some(()))
    })
    .await
}

/// With the webhook, and while it is down.
async fn in_both(test: impl AsyncFn(&'static World)) {
    let (up, down) = join!(up(), down());
    join!(test(up), test(down));
}

fn pod(tenant: &Tenant<'_>, name: &str, labels: &Value, annotations: &Value) -> Value {
    let mut pod = distinct(bare_pod(tenant.name(), name, labels, &Value::Null), name);
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

/// A pod of the tenant that is bound to a node.
async fn bound(tenant: &Tenant<'_>, name: &str, labels: &Value, annotations: &Value) -> DynamicObject {
    let pod = tenant.create(&pod(tenant, name, labels, annotations)).await;
    let on_node = async || Ok(tenant.field(&pod, "spec.nodeName").await.is_string().then_some(()));
    eventually("the pod to be bound", DEADLINE, on_node).await.unwrap();
    pod
}

fn group(tenant: &Tenant<'_>, kind: &str, name: &str, spec: &Value) -> Value {
    let mut group = fixtures::object(kind, "PodGroup", tenant.name(), name, spec);
    group["spec"]["minMember"] = json!(1);
    group
}

/// Waits until a pod has ended: the ceiling is short.
async fn await_ended(tenant: &Tenant<'_>, pod: &DynamicObject) {
    let ended = async || {
        let now = tenant.get(pod).await;
        Ok(now.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(()))
    };
    // the ceiling and a minute
    eventually(&format!("{} to end", pod.name_any()), DEADLINE + DEADLINE / 3, ended).await.unwrap();
}

/// Asserts that a pod has been left alone.
async fn assert_untouched(tenant: &Tenant<'_>, pod: &DynamicObject) {
    let now = tenant.get(pod).await.expect("it is still there");
    assert!(now.metadata.deletion_timestamp.is_none(), "{} is terminating", pod.name_any());
}
