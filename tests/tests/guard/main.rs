//! Requests that the guard holds up, and requests that it never does, on a real API server.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod always;

mod configured;
mod deletions;
mod down;
mod drains;
mod evictions;
mod exempt;
mod gangs;
mod preemption;
mod verdicts;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{
    DEADLINE, World,
    asker::Asker,
    scheduling::{self, Arena, Wish},
};
use tokio::{
    join,
    sync::{OnceCell, RwLock},
};

/// A floor that outlasts each test.
const LONG: &str = "1h";

/// A second scheduler, whose name has each character that a scheduler's name can have.
const ODD_SCHEDULER: &str = "https://issuer.example/a#O.Hara+x_1~2@b-c%20";

/// A scheduler that nominates no pods.
const KAI: &str = "system:serviceaccount:kai-scheduler:scheduler";

const EXEMPT_USER: &str = r#"the "admin" of \ last <resort>"#;
const EXEMPT_GROUP: &str = "on-call";

/// The values of the chart that all clusters share. Queues can be made while the webhook is down.
const GUARDED: [&str; 8] = [
    "guard.enabled=true",
    "guard.schedulers[0]=system:kube-scheduler",
    "guard.schedulers[1]=https://issuer.example/a#O.Hara+x_1~2@b-c%20",
    "guard.schedulers[2].name=system:serviceaccount:kai-scheduler:scheduler",
    "guard.schedulers[2].unknownPreemptor=weaker",
    r#"guard.exemptUsers[0]=the "admin" of \\ last <resort>"#,
    "guard.exemptGroups[0]=on-call",
    "webhook.failurePolicy=Ignore",
];

/// A cluster with the guard, and with the extender, which kube-scheduler asks.
async fn guarded() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let world =
            Box::pin(installed("guard", &["schedulerExtender.enabled=true", "crds.serveV2=true"])).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        scheduling::configure(&world, &json!({})).await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// A cluster with alpha APIs: kube-scheduler places gangs, and pods name responders to their evictions. The guard and the
/// extender run.
async fn with_alpha_apis() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let served = format!("{}=true,{}=true", gangs::API, evictions::API);
        let flags = [
            ("feature-gates", "GenericWorkload=true,EvictionRequestAPI=true"),
            ("runtime-config", served.as_str()),
        ];
        let cluster = Cluster::start_with_flags("guard-alpha", &flags).await?;
        let more = ["schedulerExtender.enabled=true", "guard.evictionResponder=true"];
        let values = [&GUARDED[..], &more].concat();
        let world = Box::pin(World::installed_on(cluster, &values, &[])).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        scheduling::configure(&world, &json!({})).await?;
        Ok::<_, anyhow::Error>(world)
    };
    Box::pin(WORLD.get_or_try_init(start)).await.unwrap()
}

/// A cluster whose guard is asked, but down: each request that would wait for it is refused.
async fn down() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let install = async || Box::pin(installed("guard-down", &["guard.failurePolicy=Fail"])).await;
    WORLD.get_or_try_init(install).await.unwrap()
}

/// A cluster whose kube-scheduler doesn't know Tenure, as where its configuration can't be changed. Its readers start the
/// guard, and who writes it may stop the guard.
async fn alone() -> &'static RwLock<World> {
    static WORLD: OnceCell<RwLock<World>> = OnceCell::const_new();
    let install = async || Box::pin(installed("guard-alone", &[])).await.map(RwLock::new);
    WORLD.get_or_try_init(install).await.unwrap()
}

/// A cluster of this name with the guard, which doesn't run yet.
async fn installed(name: &str, values: &[&str]) -> anyhow::Result<World> {
    World::installed(name, &[&GUARDED[..], values].concat()).await
}

/// Runs a check where the guard runs, and where it is down: a request that passes in both isn't sent to the guard.
async fn in_both(test: impl AsyncFn(&Arena<'_>)) {
    let (guarded, down) = join!(guarded(), down());
    let (guarded, down) = join!(Arena::new(guarded, 8), Arena::new(down, 8));
    join!(test(&guarded), test(&down));
}

/// A queue whose workloads are safe from all others for this long.
async fn queue_for(arena: &Arena<'_>, floor: &str) -> String {
    arena.queue("protected", json!({"preemptMinRuntime": floor, "reclaimMinRuntime": floor})).await
}

/// A pod that is on the node and that the guard holds, within a floor of one hour.
async fn held(arena: &Arena<'_>, more: Value) -> DynamicObject {
    let queue = queue_for(arena, LONG).await;
    let pod = arena.placed(&Wish { name: "held", cpu: 1, queue: &queue, more, ..Wish::default() }).await;
    await_held(arena, &pod).await;
    pod
}

/// Waits until the guard denies the eviction of a pod: it knows the pod, and that the pod is on a node.
async fn await_held(arena: &Arena<'_>, pod: &DynamicObject) {
    let admin = Asker::admin(arena.world).await;
    let held = async || Ok(admin.would_evict(pod).await.err());
    eventually("the pod to be held", DEADLINE, held).await.unwrap();
}

/// The time at which a pod was scheduled.
async fn scheduled_at(arena: &Arena<'_>, pod: &DynamicObject) -> Timestamp {
    let conditions = arena.namespace.field(pod, "status.conditions").await;
    let is_scheduled = |condition: &&Value| condition["type"] == "PodScheduled";
    let scheduled = conditions.as_array().unwrap().iter().find(is_scheduled).unwrap();
    scheduled["lastTransitionTime"].as_str().unwrap().parse().unwrap()
}
