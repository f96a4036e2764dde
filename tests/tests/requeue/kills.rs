//! Kills of the keeper at any moment of many such lives; another takes over.

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tenure_policy::pause;
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, World, audit, keeper::Keeper, scale::random, workloads::Namespace};
use tokio::{task::JoinSet, time::sleep};

use super::{
    empty_world,
    scene::{job, place},
};

const JOBS: usize = 6;

/// The wait of each. A run is at least as long: the timeout is a second more, and conditions say whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// About one life from an eviction to the next.
const LATEST_KILL: u64 = 2500;

/// The state that an object shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    is_paused: bool,
    count: u32,
    requeue_at: Option<Timestamp>,
    paused_at: Option<Timestamp>,
}

impl State {
    fn of(job: &Job) -> Self {
        let state = pause::requeue_state_on(&job.metadata);
        let is_paused = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
        let paused_at = pause::record_on(&job.metadata).map(|record| record.at);
        Self { is_paused, count: state.count, requeue_at: state.requeue_at, paused_at }
    }

    /// Describes a step to the next state that must not happen. None: the step is allowed.
    fn complaint(&self, next: &Self) -> Option<String> {
        let is_well = match (self.is_paused, next.is_paused) {
            (false, true) => {
                let wait = next.requeue_at.zip(next.paused_at).map(|(back, at)| back.duration_since(at));
                next.count == self.count + 1 && wait.is_some_and(|wait| wait >= SECOND)
            }
            (true, false) => {
                next.count == self.count && next.requeue_at.is_none() && next.paused_at.is_none()
            }
            _ => false,
        };
        (!is_well).then(|| format!("{self:?} was followed by {next:?}"))
    }
}

/// All states that Jobs of a namespace have been in, by name.
type Lives = Arc<Mutex<BTreeMap<String, Vec<State>>>>;

/// Follows the Jobs of a namespace until the follower is dropped.
fn follow(world: &World, namespace: &Namespace) -> (Lives, JoinSet<()>) {
    let (lives, mut follower) = (Lives::default(), JoinSet::new());
    let jobs: Api<Job> = Api::namespaced(world.cluster.client().unwrap(), namespace.name());
    let seen = Arc::clone(&lives);
    follower.spawn(async move {
        let take = async |job: Job| {
            let (name, state) = (job.name_any(), State::of(&job));
            let mut lives = seen.lock().unwrap();
            let life = lives.entry(name).or_default();
            if life.last() != Some(&state) {
                life.push(state);
            }
            Ok(())
        };
        watcher(jobs, watcher::Config::default()).applied_objects().try_for_each(take).await.unwrap();
    });
    (lives, follower)
}

/// The number of evictions of each.
fn counts(lives: &Lives) -> Vec<u32> {
    lives.lock().unwrap().values().filter_map(|life| Some(life.last()?.count)).collect()
}

/// Describes the faults of a life, given the times at which its patches were answered. The answer to a killed keeper
/// may be missing.
fn complaints(life: &[State], patches: &[Timestamp]) -> Vec<String> {
    let mut complaints: Vec<_> =
        life.iter().zip(&life[1..]).filter_map(|(from, to)| from.complaint(to)).collect();
    let pauses: Vec<(Timestamp, Timestamp)> =
        life.iter().filter_map(|state| state.paused_at.zip(state.requeue_at)).collect();
    let ends = pauses.iter().skip(1).map(|(at, _)| *at).chain([Timestamp::MAX]);
    for ((at, returns), end) in pauses.iter().zip(ends) {
        let within: Vec<_> =
            patches.iter().filter(|answered| *at <= **answered && **answered < end).collect();
        match within[..] {
            [] | [_] => {}
            [_, resumed] if resumed >= returns && end >= resumed.saturating_add(SECOND).unwrap() => {}
            _ => complaints.push(format!("paused at {at} until {returns} and again at {end}: {within:?}")),
        }
    }
    complaints
}

async fn kill_keepers(kills: u64, seed: u64) {
    let world = empty_world().await;
    let strategy = json!({"backoffBaseSeconds": 1, "backoffFactor": "1"});
    let spec = json!({"waitForPodsReady": {"timeout": "2s", "requeuingStrategy": strategy}});
    let namespace = place(&world, &spec).await;
    let (lives, _follower) = follow(&world, &namespace);
    for number in 0..JOBS {
        job(&namespace, &format!("train-{number}")).await;
    }
    for number in 0..kills {
        let keeper = Keeper::start(&world, &[]).await;
        sleep(Duration::from_millis(random(seed, number) % LATEST_KILL)).await;
        // by SIGKILL
        drop(keeper);
    }
    let struck = counts(&lives);
    let keeper = Keeper::start(&world, &[]).await;
    let go_on = async || {
        let now = counts(&lives);
        Ok((now.len() == JOBS && now.iter().zip(&struck).all(|(now, then)| *now > then + 1)).then_some(()))
    };
    eventually("all to go on", DEADLINE, go_on).await.unwrap();
    keeper.stop().await;

    let patches = audit::answers_to_keeper(&world.cluster, "patch", "jobs", namespace.name());
    let lives = lives.lock().unwrap().clone();
    for (name, life) in &lives {
        let of_it: Vec<_> = patches.iter().filter(|(of, _)| of == name).map(|(_, at)| *at).collect();
        assert_eq!(complaints(life, &of_it), [""; 0], "seed {seed}: {name}: {life:#?}\n{of_it:#?}");
    }
    let evictions: u32 = lives.values().map(|life| life.last().unwrap().count).sum();
    let recorded = namespace.events_of("EvictedDueToPodsReadyTimeout").await.len();
    println!("{kills} strikes, {evictions} evictions, {recorded} events of them");
    assert!(recorded <= evictions as usize, "{recorded} events of {evictions} evictions");
}

#[tokio::test]
async fn whenever_the_keeper_is_killed_none_is_counted_twice_or_left_out_and_none_comes_back_early() {
    kill_keepers(8, 1).await;
}

/// `TENURE_SEED` repeats the moments of another run.
#[tokio::test]
#[ignore = "takes two minutes: `make failover`"]
async fn so_it_is_fifty_times() {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = env::var("TENURE_SEED").map_or_else(|_| now(), |seed| seed.parse().unwrap());
    println!("TENURE_SEED={seed}");
    kill_keepers(50, seed).await;
}
