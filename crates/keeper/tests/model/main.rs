//! A model of what two keepers, an API server, a network and a user may do to each other, searched state by state. The
//! leases are judged by the real `LeaseView`, and the owner's patches are the real ones.
//!
//! What a search covers: crashes and restarts, writes that arrive late, in another order or never, lost answers, reads
//! that are old when they arrive, clocks that drift apart, a user who resumes, pauses and recreates the owner or deletes
//! the Lease. `make model` searches further than `cargo test`.
//!
//! What it assumes, so that no search can find a fault in it:
//!
//! - A keeper checks its lead and sends a write in one step. In a process time may pass between them.
//! - Keepers know the API server's time exactly. Their own clocks, which drift apart, are for the Lease alone.
//! - Every read shows what the API server had when it was made. There are no watches, and so none that is behind.
//! - There is one ceiling, which stays, and one owner at a time. No events are written.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a failed helper is a failed test")]

mod lease;
mod owner;
mod protocol;
mod state;
mod steps;

use std::time::Instant;

use protocol::{EXAMPLES, NO_RULE, ONE_LEADER, Protocol};
use state::Faults;
use stateright::{Checker, HasDiscoveries, Model};

const SOME: Faults = Faults { crashes: 1, losses: 1, acts: 1 };

/// The order of a search: all short histories first, or each history to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Short,
    Long,
}

/// The result of a search.
struct Found {
    /// The number of different states.
    states: usize,
    examples: Vec<&'static str>,
    violations: Vec<String>,
}

/// Searches until `steps` states are found, or all states if there are fewer.
fn search(protocol: Protocol, order: Order, steps: usize) -> Found {
    let checker = protocol.checker().target_state_count(steps).finish_when(HasDiscoveries::AnyFailures);
    match order {
        Order::Short => result(&checker.spawn_bfs().join()),
        Order::Long => result(&checker.spawn_dfs().join()),
    }
}

fn result(checker: &impl Checker<Protocol>) -> Found {
    println!(
        "{} states, {} steps between them, up to {} deep",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    let (examples, found): (Vec<_>, Vec<_>) =
        checker.discoveries().into_iter().partition(|(name, _)| EXAMPLES.contains(name));
    let found = found.into_iter().map(|(name, path)| {
        let last = format!("{:?}", path.last_state());
        format!("{name}: {:?}\n{last}", path.into_actions())
    });
    let examples = examples.into_iter().map(|(name, _)| name).collect();
    Found { states: checker.unique_state_count(), examples, violations: found.collect() }
}

fn assert_holds(protocol: Protocol, order: Order, steps: usize) -> Found {
    let found = search(protocol, order, steps);
    assert!(found.violations.is_empty(), "{}", found.violations.join("\n"));
    found
}

fn assert_found(protocol: Protocol, property: &str) {
    let Found { states, violations, .. } = search(protocol, Order::Short, 8_000_000);
    let is_found = violations.iter().any(|found| found.starts_with(property));
    assert!(is_found, "not found in {states} states: {violations:?}");
}

#[test]
fn no_rule_is_broken_within_a_short_search() {
    for order in [Order::Short, Order::Long] {
        assert_holds(Protocol::within(7, SOME), order, 40_000);
    }
}

#[test]
fn all_that_is_overdue_is_handled_after_faults_within_a_short_search() {
    let faults = Faults { crashes: 1, losses: 1, acts: 1 };
    let healed = Protocol { healed_at: 1, drift: 0, ..Protocol::within(14, faults) };
    let found = assert_holds(healed, Order::Long, 100_000);
    assert!(EXAMPLES.iter().all(|name| found.examples.contains(name)), "only {:?}", found.examples);
}

/// An owner that a user has created again has no record either.
#[test]
fn a_new_owner_is_no_example_of_a_return() {
    let faults = Faults { crashes: 0, losses: 0, acts: 3 };
    let never_returns = Protocol { drift: 0, ..Protocol::within(1, faults) };
    let Found { examples, .. } = search(never_returns, Order::Short, 100_000);
    assert!(!examples.contains(&EXAMPLES[1]), "{examples:?}");
}

#[test]
fn a_patch_without_preconditions_is_found() {
    let faults = Faults { crashes: 0, losses: 1, acts: 1 };
    assert_found(Protocol { has_preconditions: false, drift: 0, ..Protocol::within(6, faults) }, NO_RULE);
}

#[test]
fn a_lease_that_is_judged_by_the_wall_clock_is_found() {
    let faults = Faults { crashes: 0, losses: 0, acts: 0 };
    assert_found(Protocol { judges_by_observation: false, ..Protocol::within(6, faults) }, ONE_LEADER);
}

#[test]
fn a_term_that_counts_from_the_answer_is_found() {
    let faults = Faults { crashes: 0, losses: 0, acts: 0 };
    assert_found(Protocol { counts_from_sending: false, ..Protocol::within(9, faults) }, ONE_LEADER);
}

#[test]
fn a_pod_that_is_read_only_before_its_owner_is_found() {
    let faults = Faults { crashes: 0, losses: 0, acts: 2 };
    assert_found(Protocol { reads_pod_last: false, drift: 0, ..Protocol::within(6, faults) }, NO_RULE);
}

#[test]
fn a_write_without_a_check_of_the_lead_is_found() {
    let faults = Faults { crashes: 0, losses: 0, acts: 0 };
    assert_found(Protocol { checks_lead: false, drift: 0, ..Protocol::within(9, faults) }, NO_RULE);
}

/// A keeper that has seen no lease can't know of a leader that has just lost it.
#[test]
fn a_user_who_deletes_the_lease_can_make_two_leaders() {
    let faults = Faults { crashes: 0, losses: 0, acts: 1 };
    assert_found(Protocol { may_delete_lease: true, drift: 0, ..Protocol::within(2, faults) }, ONE_LEADER);
}

/// `make model`: at least `MODEL_STATES` states, of several searches together.
#[test]
#[ignore = "takes minutes: make model"]
fn no_rule_is_broken_within_a_long_search() {
    let states = std::env::var("MODEL_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000_000);
    let start = Instant::now();
    let many = Faults { crashes: 2, losses: 2, acts: 3 };
    let healed = Protocol { healed_at: 4, drift: 0, ..Protocol::within(18, SOME) };
    // about every third step leads to a new state
    let count = assert_holds(Protocol::within(6, SOME), Order::Short, 2 * states).states
        + assert_holds(Protocol::within(14, many), Order::Long, states).states
        + assert_holds(healed, Order::Long, states).states;
    let elapsed = start.elapsed().as_secs();
    println!("{count} states without a violation in {elapsed} s, {} a second", count as u64 / elapsed.max(1));
    assert!(count >= states, "{count} states");
}
