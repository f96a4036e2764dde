//! The assignment of this process and its children to processors.
//!
//! In a cluster the webhook, the API server and etcd don't compete for two processors. Here they do, and the
//! measurement would blame the keeper for a slow webhook.

use std::{fs, io, process};

use anyhow::{Context, Result};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use super::load;

const WEBHOOK: &str = "tenure-webhook";

/// The processors, and how they are divided when they are not shared.
pub struct Processors {
    all: CpuSet,
    /// The processors of the webhook and its clients.
    webhook: CpuSet,
    others: CpuSet,
}

impl Processors {
    /// None if there is only one.
    pub fn several() -> Result<Option<Self>> {
        let all = sched_getaffinity(None)?;
        let mut numbers = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
        let Some(last) = numbers.next_back().filter(|_| numbers.next().is_some()) else { return Ok(None) };
        let (mut webhook, mut others) = (CpuSet::new(), all);
        webhook.set(last);
        others.unset(last);
        Ok(Some(Self { all, webhook, others }))
    }

    /// Reserves the last processor for the webhook and its clients.
    pub fn divide(&self) -> Result<()> {
        pin(|name| if [WEBHOOK, load::THREAD].contains(&name) { &self.webhook } else { &self.others })
    }

    /// Lets every process run on all processors.
    pub fn share(&self) -> Result<()> {
        pin(|_| &self.all)
    }
}

/// Has each process of ours run where its name says; threads of this very process by their own names.
fn pin<'a>(place: impl Fn(&str) -> &'a CpuSet) -> Result<()> {
    // a thread that begins meanwhile is where the one is that began it
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

fn set(thread: i32, place: &CpuSet) -> io::Result<()> {
    match sched_setaffinity(Pid::from_raw(thread), place) {
        // it has ended
        Err(rustix::io::Errno::SRCH) => Ok(()),
        result => Ok(result?),
    }
}

fn children() -> Result<Vec<i32>> {
    let parent = format!("PPid:\t{}\n", process::id());
    let is_ours = |process: &i32| {
        // others come and go
        fs::read_to_string(format!("/proc/{process}/status")).is_ok_and(|status| status.contains(&parent))
    };
    Ok(numbers("/proc")?.into_iter().filter(is_ours).collect())
}

fn name(process: &str) -> Result<String> {
    let name = fs::read_to_string(format!("{process}/comm")).context("it has ended")?;
    Ok(name.trim_end().to_owned())
}

/// The entries of a directory that are numbers.
fn numbers(directory: &str) -> Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(numbers)
}
