//! What the keeper does where others stand against it: pauses that they undo, acts that it may not do, and the status of
//! queues that it shares with them.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod queue_status;
mod refusals;
mod reversal;

use anyhow::Result;
use tenure_tests::{World, fixtures, policies::revoke};
use tokio::sync::OnceCell;

/// Pods of `StatefulSet`s are deleted, even if their queues say otherwise. Jobs are deleted at their ceiling.
const ROWS: [&str; 12] = [
    "keeper.owners[0].group=apps",
    "keeper.owners[0].kind=StatefulSet",
    "keeper.owners[0].resource=statefulsets",
    "keeper.owners[0].path=spec.replicas",
    "keeper.owners[0].value=0",
    "keeper.owners[0].onReversal=DeletePods",
    "keeper.owners[1].group=batch",
    "keeper.owners[1].kind=Job",
    "keeper.owners[1].resource=jobs",
    "keeper.owners[1].path=spec.suspend",
    "keeper.owners[1].value=true",
    "keeper.owners[1].onExpiry=Delete",
];

/// The definitions of the kinds that the tests use.
const DEFINITIONS: [&str; 6] = [
    "kubeflow.org",
    "ray.io",
    "scheduling.run.ai",
    "trainer.kubeflow.org",
    "unlisted",
    "workload.codeflare.dev",
];

/// A keeper without the rights to read one kind of the table and one that is a link, and to change another of the table.
/// All tests share it; each has a namespace and queues of its own.
async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(start).await.unwrap()
}

async fn start() -> Result<World> {
    let definitions = DEFINITIONS.into_iter().flat_map(fixtures::definitions).collect();
    let world = fixtures::world_of("acts", definitions, &ROWS, &[]).await?;
    revoke(&world, "kubeflow.org", "jaxjobs", &["get"]).await;
    revoke(&world, "serving.kserve.io", "inferenceservices", &["get"]).await;
    revoke(&world, "ray.io", "rayclusters", &["patch"]).await;
    Ok(world)
}
