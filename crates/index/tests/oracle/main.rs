//! Random histories of a small cluster drive the index and a naive model beside it, and every answer of the two is
//! compared after each event. `ORACLE_STEPS` and `ORACLE_SEED` say how many events and which.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod compare;
mod history;
mod known;
mod naive;
mod object;
mod shrink;
mod wire;
mod world;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, available_parallelism},
    time::Instant,
};

use history::{Random, history};
use shrink::{first_difference, report};

const STEPS: u64 = 100_000;
/// So many events a history: then the cluster is empty again.
const LENGTH: usize = 250;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect(variable))
}

#[test]
fn every_answer_is_that_of_the_naive_model() {
    let (seed, steps) = (number("ORACLE_SEED", 1), number("ORACLE_STEPS", STEPS));
    let histories = steps.div_ceil(LENGTH as u64);
    let threads = available_parallelism().map_or(1, usize::from).min(4);
    let (began, found) = (Instant::now(), AtomicBool::new(false));
    let reports: Vec<String> = thread::scope(|scope| {
        let share = |first: usize| {
            let found = &found;
            move || {
                for number in (first as u64..histories).step_by(threads) {
                    if found.load(Ordering::Relaxed) {
                        return None;
                    }
                    let seed = Random(seed.wrapping_add(number)).next();
                    let events = history(seed, LENGTH);
                    if first_difference(&events).is_some() {
                        found.store(true, Ordering::Relaxed);
                        return Some(report(seed, &events));
                    }
                }
                None
            }
        };
        let shares: Vec<_> = (0..threads).map(|first| scope.spawn(share(first))).collect();
        shares.into_iter().filter_map(|share| share.join().unwrap()).collect()
    });
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    let seconds = began.elapsed().as_secs_f64();
    let steps = histories * LENGTH as u64;
    println!("seed {seed}: {steps} steps without a difference, {:.0} a second", steps as f64 / seconds);
}
