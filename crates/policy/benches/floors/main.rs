//! Nanoseconds a floor takes to be found, verdicts a second, and the bytes that this takes, each beside a control in the
//! same run: `cargo bench -p tenure-policy`.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a benchmark's numbers are its own, and small; a failed step is a failed bench"
)]

mod counting;
mod forest;
mod naive;
mod pairs;
mod resolutions;
mod verdicts;

/// The sizes of a measurement.
struct Extent {
    queues: [usize; 3],
    depths: &'static [usize],
    /// Many and short: what else runs on the machine then spoils a few of both kinds, and the median stays.
    rounds: usize,
    /// Pairs of queues, more than the processor's caches have room for.
    questions: usize,
    /// The number of questions in a round.
    asked: usize,
    workloads: usize,
    /// Workloads that are pending, and as many that run.
    jobs: usize,
    cached_jobs: usize,
}

const MEASURED: Extent = Extent {
    queues: [10, 1_000, 100_000],
    depths: &[2, 4, 6, 8, 10],
    rounds: 25,
    questions: 1 << 16,
    asked: 1 << 12,
    workloads: 25_000,
    jobs: 4_000,
    cached_jobs: 1_000,
};

/// The sizes for `cargo test --benches`, which needs no numbers and only shows that the benchmark works.
const SMOKE: Extent = Extent {
    queues: [10, 50, 100],
    depths: &[2, 10],
    rounds: 1,
    questions: 64,
    asked: 16,
    workloads: 250,
    jobs: 100,
    cached_jobs: 100,
};

fn main() {
    let extent = if std::env::args().any(|argument| argument == "--bench") { MEASURED } else { SMOKE };
    resolutions::run(&extent);
    println!();
    verdicts::run(&extent);
    println!();
    pairs::run(&extent);
    println!("Only the ratios can be compared between machines.");
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
