//! The cost of `kubectl tenure matrix -f`, beside the start of the same program: `cargo bench -p tenure-cli`.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a benchmark that can't be run must end"
)]

use std::{
    env, fs,
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::NamedTempFile;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-tenure");
const DEPTH: usize = 6;

fn main() {
    // `cargo test --bench` runs this too, to see that it works
    let measured = env::args().any(|argument| argument == "--bench");
    let rounds = if measured { 20 } else { 1 };
    println!("one pair out of 10,000 queues of depth {DEPTH}, from the start of the process to its end:");
    for (form, text) in [("YAML", yaml(10_000)), ("JSON List", json(10_000))] {
        let file = file(&text);
        let arguments = ["matrix", "-f", path(&file), "-o", "json"];
        let pair = [arguments.as_slice(), &["--preemptor-queue", "q1", "--victim-queue", "q9999"]].concat();
        let (mut asked, mut started) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            // one after the other, so that both meet the same noise
            asked.push(timed(&pair).0);
            started.push(timed(&["version"]).0);
        }
        let (asked, started) = (median(asked), median(started));
        let goal = if asked < Duration::from_millis(100) { "reached" } else { "missed" };
        println!(
            "  {form}, {:.1} MB: {} ms; the start alone {} ms: x{:.1} (goal: 100 ms, {goal})",
            megabytes(text.len()),
            milliseconds(asked),
            milliseconds(started),
            asked.as_secs_f64() / started.as_secs_f64()
        );
    }
    println!("the whole matrix, streamed:");
    let sizes = if measured { [50, 500, 2_000] } else { [5, 50, 200] };
    for queues in sizes {
        let file = file(&yaml(queues));
        let (took, bytes, peak) = timed(&["matrix", "-f", path(&file), "-o", "json"]);
        println!(
            "  {queues} queues, {} pairs: {:.1} MB in {} ms, at most {:.1} MB held",
            queues * (queues - 1),
            megabytes(bytes),
            milliseconds(took),
            megabytes(peak)
        );
        // the pairs of 2,000 queues are 600 MB
        assert!(peak < 100_000_000, "the matrix must be streamed, and held {peak} bytes");
    }
}

/// Returns the run time of a command, the bytes that it printed, and its peak memory.
fn timed(arguments: &[&str]) -> (Duration, usize, usize) {
    let begin = Instant::now();
    let mut child =
        Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut bytes, mut peak, mut buffer) = (0, 0, vec![0; 1 << 20]);
    loop {
        let read = out.read(&mut buffer).unwrap();
        bytes += read;
        peak = peak.max(held(child.id()));
        if read == 0 {
            break;
        }
    }
    assert!(child.wait().unwrap().success());
    (begin.elapsed(), bytes, peak)
}

/// The most that a process has held so far; nothing once it has ended.
fn held(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// Five hundred trees, or more if needed, in which each queue but the first of a branch has a parent.
fn queue(number: usize) -> (String, Option<String>) {
    let parent = (!number.is_multiple_of(DEPTH)).then(|| format!("q{}", number - 1));
    (format!("q{number}"), parent)
}

fn yaml(queues: usize) -> String {
    let one = |number| {
        let (name, parent) = queue(number);
        let parent = parent.map_or(String::new(), |parent| format!("  parentQueue: {parent}\n"));
        format!(
            "---\napiVersion: scheduling.run.ai/v3alpha1\nkind: Queue\nmetadata:\n  name: {name}\nspec:\n{parent}  preemptMinRuntime: {number}s\n  reclaimMinRuntime: {number}m\n  maxDuration: 2w\n  resources:\n    gpu:\n      quota: 8\n"
        )
    };
    (0..queues).map(one).collect()
}

fn json(queues: usize) -> String {
    let one = |number| {
        let (name, parent) = queue(number);
        format!(
            "{{\"apiVersion\": \"scheduling.run.ai/v3alpha1\", \"kind\": \"Queue\", \"metadata\": {{\"name\": \"{name}\"}}, \"spec\": {{\"parentQueue\": \"{}\", \"preemptMinRuntime\": \"{number}s\", \"reclaimMinRuntime\": \"{number}m\", \"maxDuration\": \"2w\"}}}}",
            parent.unwrap_or_default()
        )
    };
    let items: Vec<String> = (0..queues).map(one).collect();
    format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{}]}}", items.join(",\n"))
}

fn file(text: &str) -> NamedTempFile {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}

#[allow(clippy::cast_precision_loss, reason = "to a tenth")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
