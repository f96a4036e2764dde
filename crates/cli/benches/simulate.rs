//! The time and memory of `kubectl tenure simulate` on large traces: `cargo bench -p tenure-cli --bench simulate`.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark that can't be run must end"
)]

use std::{
    env, fs,
    io::{BufWriter, Read, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::NamedTempFile;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-tenure");

/// The goals for the larger trace.
const GOAL: Duration = Duration::from_secs(10);
const SCHEDULE_GOAL: Duration = Duration::from_mins(1);
const GOAL_BYTES: usize = 1 << 30;
const GOAL_FACTOR: f64 = 13.0;

fn main() {
    // `cargo test --bench` runs this too, to see that it works
    let measured = env::args().any(|argument| argument == "--bench");
    let sizes = if measured { [100_000, 1_000_000] } else { [1_000, 10_000] };
    println!("replay of a trace of sacct, from the start of the process to its end:");
    let took: Vec<Duration> =
        sizes.into_iter().map(|jobs| shown(jobs, &["--max-duration", "2d"], GOAL)).collect();
    let factor = took[1].as_secs_f64() / took[0].as_secs_f64();
    println!(
        "  ten times as many jobs take {factor:.1} times as long (goal: {GOAL_FACTOR}, {})",
        goal(factor <= GOAL_FACTOR)
    );
    println!("a sweep of four ceilings:");
    shown(sizes[1], &["--sweep", "maxDuration=12h,24h,2d,7d"], GOAL);
    println!("placed again, by the baseline and by the policy:");
    shown(sizes[1], &["--max-duration", "2d", "--preempt-min-runtime", "10m", "--schedule"], SCHEDULE_GOAL);
}

fn shown(jobs: usize, policy: &[&str], time: Duration) -> Duration {
    let file = trace(jobs);
    let (took, peak) =
        timed(&[&["simulate", "--trace", file.path().to_str().unwrap(), "-o", "json"], policy].concat());
    println!(
        "  {jobs} jobs: {:.2} s, at most {} MB held (goal: {} s and {} MB, {})",
        took.as_secs_f64(),
        peak >> 20,
        time.as_secs(),
        GOAL_BYTES >> 20,
        goal(took <= time && peak <= GOAL_BYTES)
    );
    took
}

fn goal(is_reached: bool) -> &'static str {
    if is_reached { "reached" } else { "missed" }
}

/// Returns the run time of a command, and its peak memory.
fn timed(arguments: &[&str]) -> (Duration, usize) {
    let begin = Instant::now();
    let mut child =
        Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let process = child.id();
    // what it prints is small: it is printed at the end
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || out.read_to_end(&mut Vec::new()).unwrap());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(held(process));
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = begin.elapsed();
    assert!(reader.join().unwrap() > 0 && child.wait().unwrap().success());
    (took, peak)
}

/// The most that a process has held so far; nothing once it has ended.
fn held(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// The output of sacct for some jobs of three hundred users in twenty partitions.
fn trace(jobs: usize) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    let mut out = BufWriter::new(file.reopen().unwrap());
    writeln!(out, "JobID|User|Partition|Submit|Start|End|State|Priority|AllocTRES|NCPUS").unwrap();
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    let begin = 1_735_689_600;
    for job in 0..jobs {
        let submit = begin + below(25_000_000);
        let start = submit + below(10_000);
        let end = start + (1 << below(19)) + below(4_000);
        let state = if below(20) == 0 { "PREEMPTED" } else { "COMPLETED" };
        let [submit, start, end] = [submit, start, end].map(local);
        let (user, partition, gpus, cpus) = (below(300), below(20), 1 << below(4), 8);
        writeln!(
            out,
            "{job}|user{user}|part{partition}|{submit}|{start}|{end}|{state}|{}|billing={cpus},cpu={cpus},gres/gpu={gpus},mem=64G,node=1|{cpus}",
            below(100_000)
        )
        .unwrap();
    }
    out.flush().unwrap();
    file
}

/// A time as sacct prints it, without a calendar: any day of a month of 28 days is one.
fn local(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 - 20_089, seconds % 86_400);
    let (year, month, day) = (2024 + days / 336, days / 28 % 12 + 1, days % 28 + 1);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60)
}
