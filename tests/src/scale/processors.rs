//! The assignment of this process and its children to processors.
//!
//! In a cluster the webhook, the API server and etcd don't compete for two processors. Here they
//! do, and the measurement would blame the keeper for a slow webhook.

use std::{fs, io, process};

use anyhow::{Context, Result};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use super::load;

/// The name of the webhook's process.
const WEBHOOK: &str = "tenure-webhook";

/// The processors, and their division between the webhook and the other processes.
pub struct Processors {
    all: CpuSet,
    /// The processors of the webhook and its clients.
    webhook: CpuSet,
    /// The processors of all others.
    others: CpuSet,
}

impl Processors {
    /// Returns the processors of this process. None: there is only one.
    pub fn several() -> Result<Option<Self>> {
        let all = sched_getaffinity(None)?;
        let mut numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
        let Some(last) = numbers.next_back().filter(|_| numbers.next().is_some()) else { return Ok(None) };
        let (mut webhook, mut others) = (CpuSet::new(), all);
        webhook.set(last);
        others.unset(last);
        Ok(Some(Self { all, webhook, others }))
    }

    /// Reserves the last processor for the webhook and its clients. Holds for the threads and
    /// children that run now, and for those that they start.
    pub fn divide(&self) -> Result<()> {
        pin(|name| if [WEBHOOK, load::THREAD].contains(&name) { &self.webhook } else { &self.others })
    }

    /// Lets every process run on all processors.
    pub fn share(&self) -> Result<()> {
        pin(|_| &self.all)
    }
}

/// Assigns each child by its name, and each thread of this process by its own name.
fn pin<'a>(place: impl Fn(&str) -> &'a CpuSet) -> Result<()> {
    // a thread that begins meanwhile runs where the thread that began it did, so the second pass
    // moves it
    for _ in 0..2 {
        for child in children()? {
            let name = name(&format!("/proc/{child}"))?;
            for thread in numbers(&format!("/proc/{child}/task"))? {
                set(thread, place(&name))?;
            }
        }
        for thread in numbers("/proc/self/task")? {
            let name = name(&format!("/proc/self/task/{thread}")).unwrap_or_default();
            set(thread, place(&name))?;
        }
    }
    Ok(())
}

/// Assigns a thread. A thread that has ended is left out.
fn set(thread: i32, place: &CpuSet) -> io::Result<()> {
    match sched_setaffinity(Pid::from_raw(thread), place) {
        // the thread has ended
        Err(rustix::io::Errno::SRCH) => Ok(()),
        result => Ok(result?),
    }
}

/// Returns the ids of this process's children.
fn children() -> Result<Vec<i32>> {
    let parent = format!("PPid:\t{}\n", process::id());
    let is_ours = |process: &i32| {
        // other processes come and go
        fs::read_to_string(format!("/proc/{process}/status")).is_ok_and(|status| status.contains(&parent))
    };
    Ok(numbers("/proc")?.into_iter().filter(is_ours).collect())
}

/// Returns the name of a process or a thread, by its directory in `/proc`.
fn name(process: &str) -> Result<String> {
    let name = fs::read_to_string(format!("{process}/comm")).context("it has ended")?;
    Ok(name.trim_end().to_owned())
}

/// Returns the entries of a directory that are numbers.
fn numbers(directory: &str) -> Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(numbers)
}
