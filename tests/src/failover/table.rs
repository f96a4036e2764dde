//! Rounds as text: a line while they are played, and a table at the end.

use std::time::Duration;

use super::{Late, LeaderFailure, Round};
use crate::scale::seconds;

/// Returns a round as one line, with a further line per complaint.
pub(super) fn in_brief(round: &Round) -> String {
    let Round { pending, takeover, first_pause, late, complaints, .. } = round;
    let mut brief = vec![format!(
        "{pending} pending, another leads after {}, first pause after {}",
        seconds(*takeover),
        seconds(*first_pause),
    )];
    let Late { failed, through } = late;
    if failed + through > 0 {
        brief.push(format!("late writes: {failed} failed, {through} came through"));
    }
    brief.extend(complaints.iter().map(|complaint| format!("WRONG: {complaint}")));
    brief.join("\n  ")
}

/// Prints a table with a line for each kind of failure.
pub fn print(rounds: &[Round]) {
    println!(
        "{:<26}{:>6}   {:<36}{:>13}   {:<16}",
        "the leader is", "rounds", "another leads after, s", "first pause", "late writes"
    );
    println!(
        "{:<26}{:>6}   {:>6}{:>9}{:>9}{:>12}{:>13}   {:>6}{:>10}",
        "", "", "min", "median", "max", "goal", "median, s", "failed", "through"
    );
    for (failure, name) in [
        (LeaderFailure::Kill, "killed (SIGKILL)"),
        (LeaderFailure::Stop, "stopped 30 s (SIGSTOP)"),
        (LeaderFailure::Cut, "cut off until then"),
        (LeaderFailure::End, "ended (SIGTERM): control"),
    ] {
        let of_failure: Vec<&Round> = rounds.iter().filter(|round| round.failure == failure).collect();
        if !of_failure.is_empty() {
            println!("{name:<26}{}", row(failure, &of_failure));
        }
    }
}

/// Returns the columns of a kind of failure.
fn row(failure: LeaderFailure, rounds: &[&Round]) -> String {
    let [least, median, most] = spread(rounds, |round| round.takeover);
    let [_, first_pause, _] = spread(rounds, |round| round.first_pause);
    let (count, limit) = (rounds.len(), failure.limit().as_secs());
    let failed: usize = rounds.iter().map(|round| round.late.failed).sum();
    let through: usize = rounds.iter().map(|round| round.late.through).sum();
    let goal = format!("<= {limit}");
    format!(
        "{count:>6}   {least:>6.1}{median:>9.1}{most:>9.1}{goal:>12}{first_pause:>13.1}   {failed:>6}{through:>10}"
    )
}

/// Returns the least, the median and the most, in seconds. NaN without rounds.
fn spread(rounds: &[&Round], of: fn(&Round) -> Duration) -> [f64; 3] {
    let mut times: Vec<f64> = rounds.iter().map(|round| of(round).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let last = times.len().saturating_sub(1);
    [0, times.len() / 2, last].map(|place| times.get(place).copied().unwrap_or(f64::NAN))
}
