//! Loss of the leader while pauses are pending: another leads within 20 seconds, nothing is lost or done twice.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    env,
    time::{SystemTime, UNIX_EPOCH},
};

use futures::future::try_join_all;
use tenure_tests::failover::{
    LeaderFailure::{self, Cut, End, Kill, Stop},
    Round, play, print,
};

const SEED: &str = "TENURE_SEED";

/// Strikes on clusters of their own, at the same time: most of it is waiting.
async fn rounds(clusters: &[(&str, Vec<LeaderFailure>)], seed: u64) -> Vec<Round> {
    let plays = clusters.iter().map(|(name, failures)| Box::pin(play(name, failures, seed)));
    try_join_all(plays).await.unwrap().into_iter().flatten().collect()
}

#[track_caller]
fn assert_all_well(rounds: &[Round]) {
    let wrong: Vec<&Round> = rounds.iter().filter(|round| !round.complaints.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn however_the_leader_goes_another_leads_in_time_and_each_owner_is_paused_and_recorded_once() {
    let (process, connection) = (vec![Kill, End, Stop], vec![Cut]);
    assert_all_well(&rounds(&[("processes", process), ("cut", connection)], 0).await);
}

/// `TENURE_SEED` repeats the moments of another run.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a quarter of an hour: `make failover`"]
async fn so_it_is_twenty_times_each() {
    let seed = env::var(SEED).map_or_else(|_| seconds_now(), |seed| seed.parse().unwrap());
    println!("two keepers, 20 strikes of each kind at the one that leads; {SEED}={seed}");
    let killed = [vec![Kill; 20], vec![End; 20]].concat();
    let clusters = [("killed", killed), ("stopped", vec![Stop; 20]), ("cut", vec![Cut; 20])];
    let rounds = rounds(&clusters, seed).await;
    print(&rounds);
    assert_all_well(&rounds);
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
