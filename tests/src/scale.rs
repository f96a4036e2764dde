//! Helpers of the benchmarks of large clusters.
//!
//! These run on etcd and an API server alone, so that the work of other components isn't measured.
//! [`is_measured`] decides whether a benchmark runs in full.

pub mod crowd;
pub mod etcd;
pub mod load;
pub mod processors;

use std::{
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::stream::{StreamExt, TryStreamExt, iter};
use serde_json::json;
use tenure_testbed::{Cluster, Tenure};

use crate::World;

/// The requests that are under way at the same time. More of them make an API server on few
/// processors no faster.
const CONCURRENCY: usize = 32;

/// True for `cargo bench`, which asks for the numbers. `cargo test` asks only for a short run that
/// shows that all works.
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Chooses between the value for a measured run and the value for a short one.
pub fn full_or_short<T>(full: T, short: T) -> T {
    if is_measured() { full } else { short }
}

/// Returns a world with the webhook running and the T9k system namespace. No keeper runs, and no
/// controller of Kubernetes.
pub async fn world(name: &str, keeper_flags: &[&str]) -> Result<World> {
    let cluster = Cluster::start_api_server_alone(name).await?;
    let tenure = Tenure::install_with(&cluster, &[], keeper_flags).await?;
    let world = World { cluster, tenure };
    namespace(&world, "t9k-system").await;
    world.tenure.start_webhook(&world.cluster).await?;
    Ok(world)
}

/// Creates a namespace, and in it the service account that pods need.
pub async fn namespace(world: &World, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name},
    });
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [namespace, account]})).await;
}

/// Runs a task `count` times, many at a time, and prints now and then how far it is. Returns the
/// results in order. Ends at the first error.
pub async fn each<T>(count: usize, what: &str, task: impl AsyncFn(usize) -> Result<T>) -> Result<Vec<T>> {
    let progress = Progress::new(what, count);
    let task = async |number| {
        let done = task(number).await;
        progress.one_more();
        done
    };
    let done = iter(0..count).map(task).buffered(CONCURRENCY).try_collect().await?;
    progress.end();
    Ok(done)
}

/// Prints how far a long task is, at most every ten seconds.
pub struct Progress {
    what: String,
    count: usize,
    done: AtomicUsize,
    begun: Instant,
    /// The time of the last print, in tens of seconds since the beginning.
    tens_of_seconds: AtomicUsize,
}

impl Progress {
    /// Begins with none of `count` done.
    pub fn new(what: &str, count: usize) -> Self {
        let (done, tens_of_seconds) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { what: what.into(), count, done, begun: Instant::now(), tens_of_seconds }
    }

    /// Counts one more as done.
    pub fn one_more(&self) {
        self.reached(self.done.fetch_add(1, Relaxed) + 1);
    }

    /// Prints the number that is done, at most every ten seconds.
    pub fn reached(&self, done: usize) {
        let tens = usize::try_from(self.begun.elapsed().as_secs() / 10).unwrap_or(usize::MAX);
        if self.tens_of_seconds.fetch_max(tens, Relaxed) < tens {
            println!("  … {done} of {} {}", self.count, self.what);
        }
    }

    /// Prints the total time.
    pub fn end(&self) {
        println!("  {} {} in {}", self.count, self.what, seconds(self.begun.elapsed()));
    }
}

/// Returns a time in seconds, for people.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Prints one line of a report: the measurement, its value, and its goal.
pub fn line(what: &str, value: impl Display, goal: impl Display) {
    println!("{what:<50} {value:<26} {goal}");
}

/// Returns a number that looks random, and is the same for the same arguments.
pub fn random(seed: u64, number: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, number).hash(&mut hasher);
    hasher.finish()
}
