//! The time that the webhook takes for reviews while the keeper is idle, and while it works.

use std::{
    iter::successors,
    time::{Duration, Instant},
};

use tenure_tests::scale::{
    line,
    load::{Latencies, Load},
};

pub const REVIEWS_PER_SECOND: u32 = 200;

pub type Span = (Instant, Instant);

/// The webhook's latencies under one condition.
pub struct Condition {
    all: Latencies,
    windows: Vec<Latencies>,
}

impl Condition {
    pub fn of(load: &Load, window: Duration, (from, to): Span) -> Self {
        let starts = successors(Some(from), |start| Some(*start + window));
        let windows = starts.map(|start| (start, start + window)).take_while(|(_, end)| *end <= to);
        let windows = windows.map(|(from, to)| load.between(from, to)).collect();
        Self { all: load.between(from, to), windows }
    }

    /// The median over all windows: what else runs on the machine spoils some of them.
    fn typical(&self, percent: usize) -> f64 {
        let mut values: Vec<f64> = self.windows.iter().map(|window| window.percentile(percent)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn print(&self, name: &str) {
        let [p50, p99] = [50, 99].map(|percent| self.typical(percent));
        let [all50, all99] = [50, 99].map(|percent| self.all.percentile(percent));
        println!(
            "  {name:<26} {:>8} {p50:>9.3} {p99:>9.3} {:>9} {all50:>9.3} {all99:>9.3}",
            self.all.count(),
            self.windows.len()
        );
    }
}

pub fn introduce(window: Duration) {
    println!(
        "webhook at {REVIEWS_PER_SECOND} reviews a second, over TLS, as the client sees it; {} processors in all",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    println!("{:<41}median of windows of {window:<13?} of all", "");
    println!("                              reviews    p50 ms    p99 ms   windows    p50 ms    p99 ms");
}

/// Prints both, and what the work of the keeper makes of it.
pub fn report(what: &str, idle: &Condition, storm: &Condition, goal: &str) {
    println!("{what}:");
    idle.print("keeper idle (control)");
    storm.print("keeper pauses");
    let ratio =
        |of: fn(&Condition, usize) -> f64, percent| format!("{:.2}", of(storm, percent) / of(idle, percent));
    line("  ratio of p50, median of windows", ratio(Condition::typical, 50), "");
    line("  ratio of p99, median of windows", ratio(Condition::typical, 99), goal);
    line(
        "  ratio of p99, all reviews",
        ratio(|condition, percent| condition.all.percentile(percent), 99),
        "",
    );
}
