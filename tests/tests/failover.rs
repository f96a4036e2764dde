//! Loss of the leader while pauses are pending: another leads within 20 seconds, nothing is lost or done twice.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    env,
    time::{SystemTime, UNIX_EPOCH},
};

use tenure_tests::failover::{LeaderFailure, Round, play, print};
use tokio::try_join;

const SEED: &str = "TENURE_SEED";

/// Strikes of each kind on a cluster of their own, at the same time: most of it is waiting.
async fn rounds(count: usize, seed: u64) -> Vec<Round> {
    let killed = [vec![LeaderFailure::Kill; count], vec![LeaderFailure::End; count]].concat();
    let (stopped, cut) = (vec![LeaderFailure::Stop; count], vec![LeaderFailure::Cut; count]);
    let rounds = try_join!(
        Box::pin(play("killed", &killed, seed)),
        Box::pin(play("stopped", &stopped, seed)),
        Box::pin(play("cut", &cut, seed))
    );
    let (killed, stopped, cut) = rounds.unwrap();
    killed.into_iter().chain(stopped).chain(cut).collect()
}

#[track_caller]
fn assert_all_well(rounds: &[Round]) {
    let wrong: Vec<&Round> = rounds.iter().filter(|round| !round.complaints.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn however_the_leader_goes_another_leads_in_time_and_each_owner_is_paused_and_recorded_once() {
    assert_all_well(&rounds(1, 0).await);
}

/// `TENURE_SEED` repeats the moments of another run.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a quarter of an hour: `make failover`"]
async fn so_it_is_twenty_times_each() {
    let seed = env::var(SEED).map_or_else(|_| seconds_now(), |seed| seed.parse().unwrap());
    println!("two keepers, 20 strikes of each kind at the one that leads; {SEED}={seed}");
    let rounds = rounds(20, seed).await;
    print(&rounds);
    assert_all_well(&rounds);
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
