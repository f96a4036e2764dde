//! The report of a simulation: one sentence to pass on, numbers by queue, the users who lose most,
//! and a remedy.
//!
//! Made by `simulate` from a replay. The JSON is read by users' programs, and by `ui --simulation`.
//! Names from the past are made printable when the text is made.

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::{Value, json};
use tenure_policy::expiry::Family;
use tenure_types::{ExtendedDuration, duration::for_people};

use super::{
    replay::{Loser, QueueNumbers, Replayed, ReportBounds},
    schedule::ScheduleReport,
    source::SourceReport,
};
use crate::print::{amount, cell, grouped, human, plural, printable, table, yaml};

/// The result of a simulation, for people and programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SimulationReport {
    /// The result in one sentence, with the source.
    pub sentence: String,
    /// `replay`, or `schedule` if the runs were also placed again.
    pub depth: &'static str,
    /// The policy that was tried, in a few words.
    pub policy: String,
    pub baseline: String,
    pub source: SourceReport,
    pub unit: &'static str,
    /// The bound of nearly finished runs, such as `4h`.
    pub nearly_within: String,
    /// The bound of early losses, such as `10m`.
    pub lost_within: String,
    #[serde(flatten)]
    pub replayed: Replayed,
    pub suggestions: Vec<Suggestion>,
    /// The number of `MaxDurationExceeded` events that a dry run of the keeper would emit for
    /// workloads that run now. None: no cluster was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_now: Option<usize>,
    /// The estimates of a schedule, by the baseline and by the policy. None: not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedules: Option<[ScheduleReport; 2]>,
    /// Sentences about what the report doesn't know.
    pub missing: Vec<String>,
}

/// A queue whose extensions would have saved the workloads that were nearly finished.
#[derive(Debug, Serialize)]
pub struct Suggestion {
    /// The number of these workloads.
    pub saves: usize,
    /// The manifest of the queue.
    pub queue: Value,
}

impl SimulationReport {
    /// Returns the report of a replay, without schedules, which the caller adds. `ceiling` is what
    /// flags give to all queues.
    pub fn new(
        replayed: Replayed,
        counting: ReportBounds,
        [policy, baseline]: [String; 2],
        ceiling: Option<ExtendedDuration>,
        mut source: SourceReport,
    ) -> Self {
        Self {
            sentence: sentence(&replayed.total, counting, &policy, &source),
            depth: "replay",
            policy,
            baseline,
            unit: counting.unit.hours(),
            nearly_within: for_people(counting.nearly),
            lost_within: for_people(counting.lost_within),
            suggestions: replayed.queues.iter().filter_map(|of| suggestion(of, ceiling)).collect(),
            replayed,
            events_now: None,
            schedules: None,
            missing: std::mem::take(&mut source.missing),
            source,
        }
    }

    /// Returns the report for people.
    pub fn text(&self) -> String {
        let mut parts = vec![format!("{}\n\n{DEPTH}", printable(&self.sentence))];
        if self.schedules.is_some() {
            parts.push("Depth: schedule. The runs are placed again, in one pool: an estimate.\n".to_owned());
        }
        parts.extend(self.source.lines(self.unit).iter().map(|line| format!("{}\n", printable(line))));
        parts.extend(self.events_now.map(|events| {
            format!(
                "A dry run of the keeper would write {events} MaxDurationExceeded events for what runs now.\n"
            )
        }));
        parts.extend(self.missing.iter().map(|of| format!("Missing: {}\n", printable(of))));
        let mut add = |headers: &str, rows: Vec<Vec<String>>| {
            let headers = headers.replace("HOURS", &self.unit.to_uppercase());
            let headers: Vec<&str> = headers.split('|').collect();
            if !rows.is_empty() {
                parts.push(format!("\n{}", table(&headers, rows)));
            }
        };
        let Replayed { total, queues, losers } = &self.replayed;
        let all = || queues.iter().chain([total]);
        let preempted = all().filter(|row| row.preempted > 0).map(QueueNumbers::preemption_cells).collect();
        let schedules = self.schedules.iter().flatten().zip([&self.baseline, &self.policy]);
        let schedules = schedules.map(|(of, name)| of.cells(name));
        add(
            "QUEUE|JOBS|CUT|USERS CUT|NEARLY FINISHED|EXTENDABLE|FREED HOURS|SLICES|WAIT P50|WAIT P95",
            all().map(QueueNumbers::cut_cells).collect(),
        );
        add(
            "QUEUE|PREEMPTED|AVOIDED|PERHAPS AVOIDED|EARLY LOSS HOURS|WITH FLOORS HOURS|PREEMPTORS WAIT",
            preempted,
        );
        add("ESTIMATE|WAIT P50|WAIT P95|CUT|PREEMPTED|SLICES|LOST HOURS", schedules.collect());
        add("WORKLOAD|USER|QUEUE|RAN|CUT AFTER|LOSES HOURS", losers.iter().map(Loser::cells).collect());
        for Suggestion { saves, queue } in &self.suggestions {
            let yaml = yaml(queue).unwrap_or_default();
            parts.push(format!(
                "\n# would have saved {saves} nearly finished, if their users had asked\n{yaml}"
            ));
        }
        parts.concat()
    }
}

/// The line about the depth of the report.
const DEPTH: &str =
    "Depth: replay. Runs keep their start times; nothing is rescheduled. Which runs are cut is exact.\n";

/// Returns the result as one sentence.
fn sentence(total: &QueueNumbers, counting: ReportBounds, policy: &str, source: &SourceReport) -> String {
    let QueueNumbers { cut, slices, preemptions_avoided: avoided, .. } = total;
    let (mut parts, some) = (Vec::new(), grouped(*cut));
    if *cut > 0 || (*slices == 0 && *avoided == 0) {
        let (jobs, users) = (plural(total.jobs, "job"), source.users(total.users_cut));
        let (freed, hours) = (amount(total.freed), counting.unit.hours());
        parts.push(format!("{some} of {jobs} of {users} would have been cut, {freed} {hours} freed"));
    }
    if *cut > 0 {
        let (nearly, within) = (grouped(total.nearly_finished), for_people(counting.nearly));
        parts.push(format!("{nearly} of the {some} would have ended within {within} more"));
    }
    if *slices > 0 {
        parts.push(format!("time slices would have ended {} times", grouped(*slices)));
    }
    if *avoided > 0 {
        let [avoided, all] = [*avoided, total.preempted].map(grouped);
        parts.push(format!("floors would have forbidden {avoided} of {all} preemptions"));
    }
    format!("{}{policy} over {}: {}.", source.caution(), source.period(), parts.join("; "))
}

impl QueueNumbers {
    /// Returns the cells of the first table.
    fn cut_cells(&self) -> Vec<String> {
        let counts = [self.jobs, self.cut, self.users_cut, self.nearly_finished, self.extendable];
        let [p50, p95] = [self.wait_p50, self.wait_p95].map(wait);
        let rest = [amount(self.freed), grouped(self.slices), p50, p95];
        [self.queue.clone()].into_iter().chain(counts.map(grouped)).chain(rest).collect()
    }

    /// Returns the cells of the table of preemptions.
    fn preemption_cells(&self) -> Vec<String> {
        let counts = [self.preempted, self.preemptions_avoided, self.preemptions_perhaps_avoided];
        let hours = [self.lost_early, self.lost_early_with_floors].map(amount);
        let waited = format!("{}h", amount(self.preemptors_waited_hours));
        [self.queue.clone()].into_iter().chain(counts.map(grouped)).chain(hours).chain([waited]).collect()
    }
}

impl Loser {
    fn cells(&self) -> Vec<String> {
        let texts = [&self.workload, &self.user, &self.queue].map(Clone::clone);
        let lengths = [self.ran_seconds, self.cut_after_seconds].map(length);
        texts.into_iter().chain(lengths).chain([amount(self.lost)]).collect()
    }
}

impl ScheduleReport {
    /// Returns the cells of a row whose first cell is `of`.
    fn cells(&self, of: &str) -> Vec<String> {
        let counts = [self.cut, self.preempted, self.slices].map(grouped);
        let waits = [self.wait_p50, self.wait_p95].map(wait);
        [of.to_owned()].into_iter().chain(waits).chain(counts).chain([amount(self.lost)]).collect()
    }
}

/// The step to which a suggested `autoApprove` is rounded up, in seconds.
const STEP: i64 = 15 * 60;

/// Returns a queue whose extensions would have been long enough for all workloads that were nearly
/// finished. None: there are none, or the workloads are in no queue of the run.ai family.
fn suggestion(of: &QueueNumbers, ceiling: Option<ExtendedDuration>) -> Option<Suggestion> {
    if of.nearly_finished == 0 || of.queue.contains('/') || of.family == Some(Family::Tensorstack) {
        return None;
    }
    let step = of.lacking.saturating_add(STEP - 1) / STEP * STEP;
    let more = for_people(SignedDuration::from_secs(step));
    let mut spec = json!({"extensions": {"autoApprove": more, "maxTotal": more}});
    if let Some((ceiling, spec)) = ceiling.zip(spec.as_object_mut()) {
        spec.insert("maxDuration".into(), for_people(ceiling.to_signed()).into());
    }
    let (api_version, kind) = ("scheduling.run.ai/v3alpha1", "Queue");
    let queue =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": of.queue}, "spec": spec});
    Some(Suggestion { saves: of.nearly_finished, queue })
}

/// Returns a length of time, as kubectl shows ages.
fn length(seconds: i64) -> String {
    human(SignedDuration::from_secs(seconds))
}

/// Returns a wait as a cell.
fn wait(seconds: Option<i64>) -> String {
    cell(seconds.map(length))
}
