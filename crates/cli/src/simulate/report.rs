//! The report of a simulation: one sentence to pass on, numbers by queue, the users who lose most,
//! and a remedy.
//!
//! Made by `simulate` from a replay. The JSON is read by users' programs, and by `ui --simulation`.
//! Names from the past are made printable when the text is made.

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::{Value, json};
use tenure_types::duration::for_people;

use super::{
    past::{Past, Unit, moment},
    replay::{Loser, Numbers, ReplayTally, Replayed, ReportBounds, percentile},
    schedule::ScheduleReport,
    source::SourceReport,
};
use crate::print::{cell, human, printable, table, yaml};

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
    pub unit: Unit,
    /// The bound of nearly finished runs, such as `4h`.
    pub nearly_within: String,
    /// The bound of early losses, such as `10m`.
    pub lost_within: String,
    pub total: QueueNumbers,
    /// The queues that have workloads, those that free most first.
    pub queues: Vec<QueueNumbers>,
    pub losers: Vec<LoserReport>,
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

/// The numbers of a queue. Waits before the start are in seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueNumbers {
    pub queue: String,
    /// The number of users who lose a workload.
    pub users_cut: usize,
    #[serde(flatten)]
    pub numbers: Numbers,
    pub wait_p50: Option<i64>,
    pub wait_p95: Option<i64>,
}

/// A workload that loses much.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoserReport {
    pub workload: String,
    pub user: String,
    pub queue: String,
    pub ran_seconds: i64,
    pub cut_after_seconds: i64,
    /// The unit-hours that it loses.
    pub lost: f64,
}

/// A queue whose extensions would have saved the workloads that were nearly finished.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Suggestion {
    /// The number of these workloads.
    pub saves: u64,
    /// The manifest of the queue.
    pub queue: Value,
}

/// A row of a sweep. `freed` is in unit-hours.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SweepRow {
    pub max_duration: String,
    pub jobs: u64,
    pub users: usize,
    pub freed: f64,
    pub nearly_finished: u64,
}

/// The names of the tried policy and of the baseline.
#[derive(Clone, Debug)]
pub struct ComparedPolicies {
    pub policy: String,
    pub baseline: String,
    /// The ceiling that flags give to all queues. None: no such flag.
    pub ceiling: Option<SignedDuration>,
}

impl SimulationReport {
    /// Returns the report of a replay, without schedules. The caller adds these, and what is
    /// missing.
    pub fn new(
        past: &Past,
        replayed: &Replayed,
        counting: ReportBounds,
        tried: ComparedPolicies,
        source: SourceReport,
    ) -> Self {
        let queues = past.queues.iter().zip(&replayed.queues).filter(|(_, tally)| tally.numbers.jobs > 0);
        let mut queues: Vec<_> = queues.collect();
        queues.sort_by(|(one, of_one), (other, of_other)| {
            of_other.numbers.freed.total_cmp(&of_one.numbers.freed).then_with(|| one.name.cmp(&other.name))
        });
        let suggestions =
            queues.iter().filter_map(|(queue, tally)| suggestion(&queue.name, tally, tried.ceiling));
        let suggestions = suggestions.collect();
        let total = QueueNumbers::new("(all)", &replayed.total);
        Self {
            sentence: sentence(&total, counting, &tried, &source),
            depth: "replay",
            policy: tried.policy,
            baseline: tried.baseline,
            unit: counting.unit,
            nearly_within: for_people(counting.nearly),
            lost_within: for_people(counting.lost_within),
            total,
            queues: queues.iter().map(|(queue, tally)| QueueNumbers::new(&queue.name, tally)).collect(),
            losers: replayed.losers.iter().filter_map(|loser| LoserReport::new(past, loser)).collect(),
            suggestions,
            events_now: None,
            schedules: None,
            missing: Vec::new(),
            source,
        }
    }

    /// Returns the report for people.
    pub fn text(&self) -> String {
        let hours = self.unit.hours();
        let mut parts = vec![format!("{}\n\n{DEPTH}", printable(&self.sentence))];
        if self.schedules.is_some() {
            parts.push("Depth: schedule. The runs are placed again, in one pool: an estimate.\n".to_owned());
        }
        for line in self.source.lines(self.unit) {
            parts.push(format!("{}\n", printable(&line)));
        }
        if let Some(events) = self.events_now {
            parts.push(format!(
                "A dry run of the keeper would write {events} MaxDurationExceeded events for what runs now.\n"
            ));
        }
        for missing in &self.missing {
            parts.push(format!("Missing: {}\n", printable(missing)));
        }
        let freed = format!("FREED {}", hours.to_uppercase());
        let headers = [
            "QUEUE",
            "JOBS",
            "CUT",
            "USERS CUT",
            "NEARLY FINISHED",
            "EXTENDABLE",
            &freed,
            "SLICES",
            "WAIT P50",
            "WAIT P95",
        ];
        let all = || self.queues.iter().chain([&self.total]);
        parts.push(format!("\n{}", table(&headers, all().map(QueueNumbers::cut_cells))));
        if self.total.numbers.preempted > 0 {
            let [lost, left] =
                ["EARLY LOSS", "WITH FLOORS"].map(|header| format!("{header} {}", hours.to_uppercase()));
            let headers =
                ["QUEUE", "PREEMPTED", "AVOIDED", "PERHAPS AVOIDED", &lost, &left, "PREEMPTORS WAIT"];
            let rows = all().filter(|row| row.numbers.preempted > 0).map(QueueNumbers::preemption_cells);
            parts.push(format!("\n{}", table(&headers, rows)));
        }
        if let Some([before, after]) = &self.schedules {
            let lost = format!("LOST {}", hours.to_uppercase());
            let headers = ["ESTIMATE", "WAIT P50", "WAIT P95", "CUT", "PREEMPTED", "SLICES", &lost];
            let rows = [before.cells(&self.baseline), after.cells(&self.policy)];
            parts.push(format!("\n{}", table(&headers, rows)));
        }
        if !self.losers.is_empty() {
            let lost = format!("LOSES {}", hours.to_uppercase());
            let headers = ["WORKLOAD", "USER", "QUEUE", "RAN", "CUT AFTER", &lost];
            parts.push(format!("\n{}", table(&headers, self.losers.iter().map(LoserReport::cells))));
        }
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
fn sentence(
    total: &QueueNumbers,
    counting: ReportBounds,
    tried: &ComparedPolicies,
    source: &SourceReport,
) -> String {
    let Numbers { jobs, cut, nearly_finished, freed, slices, preempted, preemptions_avoided, .. } =
        &total.numbers;
    let mut parts = Vec::new();
    if *cut > 0 || (*slices == 0 && *preemptions_avoided == 0) {
        parts.push(format!(
            "{} of {} {} of {} would have been cut, {} {} freed",
            grouped(*cut),
            grouped(*jobs),
            plural(*jobs, "job"),
            source.users(total.users_cut),
            amount(*freed),
            counting.unit.hours()
        ));
    }
    if *cut > 0 {
        parts.push(format!(
            "{} of the {} would have ended within {} more",
            grouped(*nearly_finished),
            grouped(*cut),
            for_people(counting.nearly)
        ));
    }
    if *slices > 0 {
        parts.push(format!("time slices would have ended {} times", grouped(*slices)));
    }
    if *preemptions_avoided > 0 {
        parts.push(format!(
            "floors would have forbidden {} of {} preemptions",
            grouped(*preemptions_avoided),
            grouped(*preempted)
        ));
    }
    format!("{}{} over {}: {}.", source.caution(), tried.policy, source.period(), parts.join("; "))
}

/// Returns a word with an "s" unless the number is 1.
fn plural(number: u64, word: &str) -> String {
    if number == 1 { word.to_owned() } else { format!("{word}s") }
}

impl QueueNumbers {
    /// Returns the numbers of a queue with percentiles of waits.
    fn new(name: &str, tally: &ReplayTally) -> Self {
        let [wait_p50, wait_p95] = [50, 95].map(|percent| percentile(&tally.waits, percent).map(i64::from));
        let (users_cut, numbers) = (tally.users.len(), tally.numbers);
        Self { queue: name.to_owned(), users_cut, numbers, wait_p50, wait_p95 }
    }

    /// Returns the cells of the first table.
    fn cut_cells(&self) -> Vec<String> {
        let Self { queue, users_cut, numbers: of, wait_p50, wait_p95 } = self;
        let counts = [of.jobs, of.cut, number(*users_cut), of.nearly_finished, of.extendable].map(grouped);
        let wait = |seconds: &Option<i64>| cell(seconds.map(length));
        let rest = [amount(of.freed), grouped(of.slices), wait(wait_p50), wait(wait_p95)];
        [queue.clone()].into_iter().chain(counts).chain(rest).collect()
    }

    /// Returns the cells of the table of preemptions.
    fn preemption_cells(&self) -> Vec<String> {
        let of = &self.numbers;
        let counts = [of.preempted, of.preemptions_avoided, of.preemptions_perhaps_avoided].map(grouped);
        let hours = [of.lost_early, of.lost_early_with_floors].map(amount);
        let waited = format!("{}h", amount(of.preemptors_waited_hours));
        [self.queue.clone()].into_iter().chain(counts).chain(hours).chain([waited]).collect()
    }
}

impl LoserReport {
    /// Returns a loser with the names of its workload, user and queue. None: no such run.
    fn new(past: &Past, loser: &Loser) -> Option<Self> {
        let first = past.runs.get(loser.run)?;
        let runs = past.runs.get(loser.run..)?;
        let others = runs.iter().skip(1).take_while(|run| run.is_joined);
        let last = others.map(|run| run.end).fold(first.end, i64::max);
        Some(Self {
            workload: first.id.to_string(),
            user: past.user_name(first).to_owned(),
            queue: past.queue_name(first).to_owned(),
            ran_seconds: last.saturating_sub(first.start),
            cut_after_seconds: loser.cut.saturating_sub(first.start),
            lost: loser.lost,
        })
    }

    fn cells(&self) -> Vec<String> {
        let texts = [&self.workload, &self.user, &self.queue].map(Clone::clone);
        let lengths = [self.ran_seconds, self.cut_after_seconds].map(length);
        texts.into_iter().chain(lengths).chain([amount(self.lost)]).collect()
    }
}

impl SweepRow {
    /// Returns the row for a ceiling.
    pub fn new(max_duration: String, total: &ReplayTally) -> Self {
        let Numbers { cut: jobs, freed, nearly_finished, .. } = total.numbers;
        Self { max_duration, jobs, users: total.users.len(), freed, nearly_finished }
    }

    /// Returns the cells of the sweep's table.
    pub fn cells(&self) -> Vec<String> {
        let Self { max_duration, jobs, users, freed, nearly_finished } = self;
        let [jobs, users, nearly] = [*jobs, number(*users), *nearly_finished].map(grouped);
        vec![max_duration.clone(), jobs, users, amount(*freed), nearly]
    }
}

/// The step to which a suggested `autoApprove` is rounded up, in seconds.
const STEP: i64 = 15 * 60;

/// Returns a queue whose extensions would have been long enough for all workloads that were nearly
/// finished. None: there are none, or the workloads are in no queue.
fn suggestion(queue: &str, tally: &ReplayTally, ceiling: Option<SignedDuration>) -> Option<Suggestion> {
    if tally.numbers.nearly_finished == 0 || queue.contains('/') {
        return None;
    }
    let step = tally.lacking.saturating_add(STEP - 1) / STEP * STEP;
    let more = for_people(SignedDuration::from_secs(step));
    let mut spec = json!({"extensions": {"autoApprove": more, "maxTotal": more}});
    if let Some((ceiling, spec)) = ceiling.zip(spec.as_object_mut()) {
        spec.insert("maxDuration".into(), for_people(ceiling).into());
    }
    let (api_version, kind) = ("scheduling.run.ai/v3alpha1", "Queue");
    let queue = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": queue}, "spec": spec});
    Some(Suggestion { saves: tally.numbers.nearly_finished, queue })
}

/// Returns a length of time, as kubectl shows ages.
pub fn length(seconds: i64) -> String {
    human(SignedDuration::from_secs(seconds))
}

/// Returns a count as a number of a report.
pub fn number(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Returns a number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digits.len().saturating_sub(place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns an amount with three digits or more.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is rounded and not negative")]
pub fn amount(hours: f64) -> String {
    match hours {
        ..0.005 => "0".into(),
        ..10.0 => format!("{hours:.2}"),
        ..100.0 => format!("{hours:.1}"),
        _ => grouped(hours.round() as u64),
    }
}

/// Returns a time in UTC, to the minute.
pub fn day(at: i64) -> String {
    moment(at).strftime("%Y-%m-%d %H:%M UTC").to_string()
}
