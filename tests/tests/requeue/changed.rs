//! Workloads that get ready at the moment at which they are to make room.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::json;
use tenure_testbed::{UNREADY, eventually};
use tenure_tests::{
    DEADLINE, World,
    faults::Diary,
    keeper::Keeper,
    proxy::{ApiProxy, FaultAction, Match, Rule},
    workloads::Namespace,
};
use tokio::{sync::Notify, time::timeout};

use super::{
    empty_world,
    metrics::{TIME_TO_READY, WAITING},
    scene::{PAUSED, annotation, job, place, waiting_long},
};

/// The number of jobs, each of which the keeper has seen. It pauses one a second.
const JOBS: u32 = 16;

/// The patches by which the keeper pauses jobs.
const PAUSES: Match = Match { verbs: &["patch"], resources: &["jobs"] };

async fn get_ready(world: &World, namespace: &Namespace) {
    let pods: Api<Pod> = Api::namespaced(world.cluster.client().unwrap(), namespace.name());
    let ready = Patch::Merge(json!({"metadata": {"labels": {UNREADY: null}}}));
    for name in namespace.pod_names().await {
        // those of the first go meanwhile
        let _ = pods.patch(&name, &PatchParams::default(), &ready).await;
    }
}

async fn is_paused(namespace: &Namespace, job: &DynamicObject) -> bool {
    annotation(namespace, job, PAUSED).await.is_some()
}

#[tokio::test]
async fn an_owner_that_has_just_changed_is_not_paused_before_its_pods_are_judged_again() {
    let world = empty_world().await;
    let namespace = place(&world, &waiting_long()).await;
    let mut jobs = Vec::new();
    for number in 0..JOBS {
        jobs.push(job(&namespace, &format!("train-{number}")).await);
    }
    let all = async || Ok((namespace.pod_names().await.len() == 2 * jobs.len()).then_some(()));
    eventually("the pods of all", DEADLINE, all).await.unwrap();
    let proxy = ApiProxy::start("keeper", &world.cluster, None, &Diary::default()).await.unwrap();
    let first = Arc::new(Notify::new());
    let halt = FaultAction::HaltBefore(Arc::clone(&first));
    let halted = proxy.add(Rule::new(PAUSES, halt).times(1));
    let slow = ["--threadiness=16", "--writes-per-second=1", "--burst=1"];
    let keeper = Keeper::start_by(&proxy, &world, &slow).await;
    timeout(DEADLINE, first.notified()).await.unwrap();
    // one of them changes between the keeper's read and its write
    for job in &jobs {
        namespace.patch(job, &json!({"metadata": {"labels": {"changed": "true"}}})).await;
    }
    proxy.lift(&halted);
    let put_off = async || Ok(keeper.log().contains("its owner has just changed").then_some(()));
    eventually("the first to be put off", DEADLINE, put_off).await.unwrap();
    get_ready(&world, &namespace).await;
    let all_stable = async || {
        let mut runs = 0;
        for job in &jobs {
            let is_ready = namespace.field(job, "status.ready").await == json!(2);
            match (is_paused(&namespace, job).await, is_ready) {
                (true, _) => {}
                (false, true) => runs += 1,
                (false, false) => return Ok(None),
            }
        }
        Ok(Some(runs))
    };
    let runs = eventually("all to be paused or ready", DEADLINE, all_stable).await.unwrap();
    assert!(runs > 0, "all are paused");
    let counted = async || {
        let metrics = keeper.metrics().await;
        let waiting = metrics.gauge(WAITING).is_some_and(|all| all >= f64::from(JOBS - runs));
        let got_ready = metrics.count(&format!("{TIME_TO_READY}_count"), &[]);
        Ok((waiting && got_ready >= u64::from(2 * runs)).then_some(got_ready))
    };
    let got_ready = eventually("all of them to be counted", DEADLINE, counted).await.unwrap();
    assert!(got_ready <= u64::from(2 * JOBS), "each pod once: {got_ready}");
    keeper.stop().await;
}
