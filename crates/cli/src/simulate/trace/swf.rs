//! Standard Workload Format: eighteen numbers a line, and comments.
//! <https://www.cs.huji.ac.il/labs/parallel/workload/swf.html>
//!
//! Called by `trace`. The format knows no GPUs and no preemption: runs have CPUs alone, and have
//! ended.

use super::{ReadLine, TraceOptions};
use crate::simulate::past::{Past, PastRun, Seconds};

/// The number of numbers in a line.
const NUMBERS: usize = 18;

/// The status of a job that was cancelled.
const CANCELLED: i64 = 5;

/// True for a line that such a trace may begin with.
pub fn is_one(line: &str) -> bool {
    line.starts_with(';')
        || (line.split_whitespace().count() == NUMBERS
            && line.split_whitespace().all(|word| word.parse::<f64>().is_ok()))
}

/// Reads a line, and adds its run to the past. A job that was cancelled before it ran has never
/// started. Times are relative to `begin`, which a comment sets, in seconds since 1970.
pub fn take(begin: &mut Seconds, text: &str, options: &TraceOptions, past: &mut Past) -> ReadLine {
    if let Some(comment) = text.trim_start().strip_prefix(';') {
        let from = comment.trim().strip_prefix("UnixStartTime:").map(str::trim);
        let from = from.and_then(|from| from.parse::<Seconds>().ok()).filter(|from| *from >= 0);
        *begin = from.unwrap_or(*begin);
        return Ok(());
    }
    let mut numbers = [0_i64; NUMBERS];
    let mut words = text.split_whitespace();
    for number in &mut numbers {
        let word = words.next().ok_or(("the line has fewer than 18 numbers", String::new()))?;
        // some traces have averages with decimals
        let whole = word.split_once('.').map_or(word, |(whole, _)| whole);
        *number = whole.parse().map_err(|_| ("a number can't be read", word.to_owned()))?;
    }
    if let Some(more) = words.next() {
        return Err(("the line has more than 18 numbers", more.to_owned()));
    }
    let [job, submit, wait, ran, processors, _, _, asked, _, _, status, user, _, _, queue, partition, ..] =
        numbers;
    // a partial execution, which stands beside the line of its whole job
    if matches!(status, 2..=4) {
        past.steps += 1;
        return Ok(());
    }
    if submit < 0 {
        return Err(("the time of submission is negative", submit.to_string()));
    }
    if ran < 0 && (status == CANCELLED || wait < 0) {
        past.source.never_started += 1;
        return Ok(());
    }
    if wait < 0 || ran < 0 {
        return Err(("a wait or a run is negative", format!("{wait} and {ran}")));
    }
    let sum = |from: Seconds, more: i64| {
        from.checked_add(more).ok_or_else(|| ("a time is out of range", more.to_string()))
    };
    let submit = sum(*begin, submit)?;
    let start = sum(submit, wait)?;
    let [submit, start, end] = options.times([submit, start, sum(start, ran)?])?;
    let processors = if processors < 0 { asked.max(0) } else { processors };
    let queue = if queue >= 0 { format!("queue-{queue}") } else { format!("partition-{partition}") };
    let (queue, user) = (past.queue(&queue, None), past.user(&format!("user-{user}")));
    #[allow(clippy::cast_precision_loss, reason = "seven digits are enough for a number of processors")]
    let cpus = processors as f32;
    let id = job.to_string().into();
    past.runs.push(PastRun { id, submit, start, end, cpus, queue, user, ..PastRun::default() });
    Ok(())
}
