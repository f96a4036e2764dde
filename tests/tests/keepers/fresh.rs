//! Acts wait for watches that may be out of date.

use jiff::Timestamp;
use serde_json::Value;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    keeper::Metrics,
    proxy::Proxy,
    workloads::{Namespace, distinct, in_queue, queue, workload},
};

use crate::{await_gauge, world};

const NOTHING: Value = Value::Null;

#[tokio::test]
async fn after_a_partition_nothing_is_paused_by_a_ceiling_that_was_lengthened_meanwhile() {
    let world = &*world().await;
    let proxy = Proxy::start(world.cluster.url()).await;
    let namespace = Namespace::new(world).await;
    let deployment = |name: &str, of: &str| {
        distinct(workload("Deployment", namespace.name(), name, &in_queue(of), &NOTHING), name)
    };
    world.apply(&queue("lengthened", "15s")).await;
    world.apply(&queue("short", "1s")).await;
    world.tenure.keeper(0).start_at(proxy.url()).await.unwrap();
    await_gauge(world, "tenure_keeper_leader", 1.0).await;
    world.apply(&deployment("spared", "lengthened")).await;
    await_gauge(world, "tenure_keeper_pods_under_ceiling", 2.0).await;
    let created = namespace.created().await.into_iter().max().unwrap();

    proxy.cut();
    world.apply(&queue("lengthened", "1d")).await;
    let is_over = async || Ok((Timestamp::now().duration_since(created).as_secs() > 16).then_some(()));
    eventually("the former ceiling to be reached", DEADLINE, is_over).await.unwrap();
    // the old connections stay dead: the Lease is back before a watch
    proxy.strand();
    proxy.heal();

    world.apply(&deployment("overdue", "short")).await;
    namespace.await_paused("Deployment", "overdue").await;
    assert!(namespace.pause("Deployment", "spared").await.is_none());
    let metrics = Metrics::of_world(world).await;
    for kind in ["pods", "queues.scheduling.run.ai", "queues.scheduler.tensorstack.dev"] {
        let staleness = metrics.gauge(&format!("tenure_keeper_watch_staleness_seconds{{kind=\"{kind}\"}}"));
        assert!(staleness.is_some_and(|seconds| seconds < 60.0), "{kind}: {staleness:?}");
    }
}
