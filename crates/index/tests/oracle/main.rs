//! Random histories of a small cluster drive the index and a naive model beside it, and every answer of the two is
//! compared after each event. `ORACLE_STEPS` and `ORACLE_SEED` say how many events and which.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod compare;
mod event;
mod history;
mod kept;
mod naive;
mod names;
mod object;
mod shrink;
mod wire;
mod world;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, available_parallelism},
    time::Instant,
};

use compare::Seen;
use history::{Random, history};
use shrink::{report, run};

const STEPS: u64 = 150_000;
/// The number of events from which on a run must have come across the rare cases, too.
const MANY_STEPS: u64 = 300_000;
/// The number of events in a history. After them the cluster is empty again.
const LENGTH: usize = 250;
/// The cases that each run must have come across.
const MUST_BE_SEEN: [&str; 38] = [
    "driven",
    "showed its binding later",
    "outlived its group",
    "extended",
    "denied",
    "denied in an earlier run",
    "granted at once",
    "held by a denial",
    "graced",
    "lost",
    "tries forgotten",
    "lacked evidence",
    "listed again",
    "amid a list",
    "fixed in doubt",
    "terminated for too long",
    "terminated without evidence",
    "expired",
    "expired again",
    "never placed",
    "never ready",
    "lost readiness",
    "announced",
    "ends to show",
    "ends shown",
    "acted with others",
    "formed too late",
    "started in parts",
    "stamped",
    "returned",
    "returned with others",
    "returned early",
    "protected",
    "asked by a pod that waits",
    "asked of two nodes",
    "kept",
    "replaced",
    "dropped",
];

/// The cases that `make oracle` must have come across.
const RARE: [&str; 2] = ["announced again", "withdrawn"];

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect(variable))
}

/// Runs a part of the histories; returns a difference, if there is any.
fn share(histories: impl Iterator<Item = u64>, found: &AtomicBool) -> (Seen, Option<String>) {
    let mut seen = Seen::default();
    for number in histories.take_while(|_| !found.load(Ordering::Relaxed)) {
        let of_it = Random(number).next();
        let events = history(of_it, LENGTH);
        if run(&events, &mut seen).is_some() {
            found.store(true, Ordering::Relaxed);
            return (seen, Some(report(of_it, &events)));
        }
    }
    (seen, None)
}

#[test]
fn every_answer_is_that_of_the_naive_model() {
    let (seed, steps) = (number("ORACLE_SEED", 2), number("ORACLE_STEPS", STEPS));
    let histories = steps.div_ceil(LENGTH as u64);
    // seeds that follow each other have no histories in common
    let start = Random(seed).next();
    let threads = available_parallelism().map_or(1, usize::from);
    let (began, found) = (Instant::now(), AtomicBool::new(false));
    let shares: Vec<_> = thread::scope(|scope| {
        let spawn = |first: usize| {
            let found = &found;
            let numbers =
                (first as u64..histories).step_by(threads).map(move |number| start.wrapping_add(number));
            scope.spawn(move || share(numbers, found))
        };
        let shares: Vec<_> = (0..threads).map(spawn).collect();
        shares.into_iter().map(|share| share.join().unwrap()).collect()
    });
    let mut all = Seen::default();
    for (seen, _) in &shares {
        all.add(seen);
    }
    let differences: Vec<String> = shares.into_iter().filter_map(|(_, difference)| difference).collect();
    assert!(differences.is_empty(), "seed {seed}: {}", differences.join("\n"));
    let (seconds, steps) = (began.elapsed().as_secs_f64(), histories * LENGTH as u64);
    println!(
        "seed {seed}: {steps} steps without a difference, {:.0} a second: {all:?}",
        steps as f64 / seconds
    );
    let rare = RARE.into_iter().filter(|_| steps >= MANY_STEPS);
    let expected = MUST_BE_SEEN.into_iter().chain(rare);
    let missed: Vec<_> = expected.filter(|what| !all.0.contains_key(what)).collect();
    assert!(missed.is_empty() || steps < STEPS, "never came across {missed:?}");
}
