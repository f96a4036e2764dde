//! Certificates and authorities that follow one another while the API server calls.

use std::{collections::BTreeSet, env, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use tenure_testbed::{Process, RELEASE_NAMESPACE};
use tokio::{select, time::interval};

use crate::{
    handshakes::{Handshakes, Results},
    load::{Load, Outcome},
    world::{SECRET, V2, V3, World, stop},
};

const REPLICAS: usize = 2;

/// The lives of certificates in a test, and its end.
struct Plan {
    flags: [&'static str; 4],
    /// The number of certificates after the first one. The Secret must have had them, and they must
    /// have been served.
    leaves: usize,
    /// The number of authorities after the first one. The Secret must have had them.
    authorities: usize,
    rate: u32,
    /// The time after which the next replica is restarted.
    restarts: Option<Duration>,
    deadline: Duration,
}

/// What was seen.
struct Seen {
    outcome: Outcome,
    handshakes: Results,
    leaves: usize,
    authorities: usize,
    restarts: usize,
}

/// Rotates under load until the plan is fulfilled. The first replicas are ready.
async fn rotate(world: &World, plan: &Plan, mut replicas: Vec<Process>) -> Seen {
    let load = Load::start(&world.cluster, plan.rate).await;
    let (mut leaves, mut authorities) = (BTreeSet::new(), BTreeSet::new());
    let mut restarts = 0;
    let restart = plan.restarts.unwrap_or(Duration::from_hours(24));
    let mut next_restart = tokio::time::interval_at(tokio::time::Instant::now() + restart, restart);
    let mut ticks = interval(Duration::from_millis(250));
    let handshakes = Handshakes::start(world);
    let secrets = Api::<Secret>::namespaced(world.cluster.client().unwrap(), RELEASE_NAMESPACE);
    let all = async {
        while leaves.len() <= plan.leaves
            || authorities.len() <= plan.authorities
            || handshakes.served() <= plan.leaves
        {
            select! {
                _ = ticks.tick() => {
                    // the load can make a read fail: the next tick reads again, and only the writes count
                    let Ok(secret) = secrets.get(SECRET).await else { continue };
                    let mut files = secret.data.unwrap_or_default();
                    leaves.extend(files.remove("tls.crt"));
                    authorities.extend(files.remove("ca.crt"));
                }
                _ = next_restart.tick() => {
                    let index = restarts % REPLICAS;
                    // only one at a time, as in a rollout; the other one answers
                    let old = replicas.remove(index);
                    stop(old).await;
                    replicas.insert(index, world.ready_webhook(index, &plan.flags).await);
                    restarts += 1;
                }
            }
        }
    };
    let in_time = tokio::time::timeout(plan.deadline, all).await;
    let outcome = load.end().await;
    let handshakes = handshakes.end().await;
    let counts = (leaves.len(), handshakes.served.len(), authorities.len());
    assert!(in_time.is_ok(), "only {counts:?} after {:?}; failed: {:?}", plan.deadline, handshakes.failed);
    for replica in replicas {
        stop(replica).await;
    }
    Seen { outcome, handshakes, leaves: leaves.len() - 1, authorities: authorities.len() - 1, restarts }
}

async fn started(world: &World, flags: &[&str]) -> Vec<Process> {
    let mut replicas = Vec::new();
    for index in 0..REPLICAS {
        replicas.push(world.webhook(index, flags).await);
    }
    for (index, replica) in replicas.iter_mut().enumerate() {
        world.ready(index, replica).await;
    }
    replicas
}

fn assert_none_failed(seen: &Seen) {
    let Outcome { writes, failures } = &seen.outcome;
    let some: Vec<_> = failures.iter().take(5).collect();
    assert!(failures.is_empty(), "{} of {writes} failed: {some:#?}", failures.len());
    assert!(seen.handshakes.refused.is_empty(), "not trusted: {:#?}", seen.handshakes.refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_fails_while_certificates_and_authorities_change_and_replicas_restart() {
    let world = World::start("cert-rotations", REPLICAS, &[]).await;
    world.helm("install", &["--create-namespace"]).await;
    let flags = [
        "--self-managed-validity=20s",
        "--self-managed-ca-validity=24s",
        "--self-managed-settling=3s",
        "--tls-reload-interval=500ms",
    ];
    let plan = Plan {
        flags,
        leaves: 1,
        authorities: 1,
        rate: 15,
        restarts: Some(Duration::from_secs(9)),
        deadline: Duration::from_mins(3),
    };
    let replicas = started(&world, &plan.flags).await;
    world.assert_kept().await;
    // since it is ready it is trusted: the first write must not fail
    world.create_queue(V3, "first", &json!({"maxDuration": "1h"})).await;
    world.kubectl(&["get", V2, "first"]).await;
    let seen = rotate(&world, &plan, replicas).await;
    assert_none_failed(&seen);
    assert!(seen.restarts > 0);
}

/// `make rotations`: ROTATIONS certificates, and a fifth as many authorities.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "half an hour"]
async fn no_write_of_500_a_second_fails_in_a_hundred_rotations() {
    let leaves = env::var("ROTATIONS").map_or(100, |number| number.parse().unwrap());
    let rate = env::var("RATE").map_or(500, |number| number.parse().unwrap());
    for restarts in [None, Some(Duration::from_secs(20))] {
        let world = World::start("cert-many-rotations", REPLICAS, &[]).await;
        world.helm("install", &["--create-namespace"]).await;
        let flags = [
            "--self-managed-validity=10s",
            "--self-managed-ca-validity=40s",
            "--self-managed-settling=3s",
            "--tls-reload-interval=500ms",
        ];
        let authorities = leaves / 5;
        let deadline = Duration::from_secs(20 * u64::try_from(leaves).unwrap());
        let plan = Plan { flags, leaves, authorities, rate, restarts, deadline };
        let replicas = started(&world, &plan.flags).await;
        let begin = tokio::time::Instant::now();
        let seen = rotate(&world, &plan, replicas).await;
        println!(
            "{} certificates, {} served, {} authorities and {} restarts in {:.0?}: {} writes, {} failed",
            seen.leaves + 1,
            seen.handshakes.served.len(),
            seen.authorities,
            seen.restarts,
            begin.elapsed(),
            seen.outcome.writes,
            seen.outcome.failures.len(),
        );
        assert_none_failed(&seen);
        assert!(seen.handshakes.failed.is_empty(), "{:#?}", seen.handshakes.failed);
    }
}
