//! The metrics of the process itself, by the names that Prometheus' client libraries give them.
//! Registered by [`registry`](crate::admin::registry) for each server. Other systems than Linux
//! have no `/proc`, and show none of them.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

/// The clock ticks of a second in `/proc`, on all processors that Linux runs on today.
const TICKS: f64 = 100.0;

/// Reads `/proc` at each scrape. Values that can't be read are left out.
#[derive(Debug)]
pub struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let of_process = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let ticks = |field| stat_field(&of_process, field).map(|ticks| ticks / TICKS);
        if let Some((user, system)) = ticks(UTIME).zip(ticks(STIME)) {
            let metric = ConstCounter::new(user + system);
            let help = "Processor time that the process has used";
            let of =
                encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), metric.metric_type())?;
            metric.encode(of)?;
        }
        let start = ticks(STARTTIME).zip(boot_time()).map(|(after, boot)| boot + after);
        for (name, help, unit, value) in [
            ("process_start_time", "Unix time at which the process started", Some(Unit::Seconds), start),
            ("process_resident_memory", "Resident memory", Some(Unit::Bytes), resident_memory()),
            ("process_open_fds", "Open file descriptors", None, open_files()),
            ("process_max_fds", "The most open file descriptors", None, most_files()),
        ] {
            let Some(value) = value else { continue };
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
        }
        Ok(())
    }
}

/// The time in user mode, in ticks: a field of `/proc/self/stat`, counted from the field after the
/// name.
const UTIME: usize = 11;
/// The time in kernel mode, in ticks.
const STIME: usize = 12;
/// The start of the process, in ticks since the machine started.
const STARTTIME: usize = 19;

/// Returns a field of `/proc/self/stat`. The name of the program, in parentheses, may have spaces.
fn stat_field(stat: &str, field: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(field)?.parse().ok()
}

/// Returns the Unix time at which the machine started, in seconds.
fn boot_time() -> Option<f64> {
    number_after(&fs::read_to_string("/proc/stat").ok()?, "btime ")
}

/// Returns the resident memory, in bytes.
fn resident_memory() -> Option<f64> {
    Some(number_after(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")? * 1024.0)
}

/// Returns the number of open file descriptors.
fn open_files() -> Option<f64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // the directory itself is open while it is read
    u32::try_from(open.saturating_sub(1)).ok().map(f64::from)
}

/// Returns the soft limit of open file descriptors. None: there is no limit, or no `/proc`.
fn most_files() -> Option<f64> {
    number_after(&fs::read_to_string("/proc/self/limits").ok()?, "Max open files")
}

/// Returns the number after the name that begins a line.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let stat = format!("7 (a) b (c)) S {}", (1..30).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(stat_field(&stat, UTIME), Some(11.0));
        assert_eq!(stat_field("", UTIME), None);
        assert_eq!(number_after("btime 12\nVmRSS:\t   34 kB\n", "VmRSS:"), Some(34.0));
    }
}
