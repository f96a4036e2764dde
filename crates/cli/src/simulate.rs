//! `kubectl tenure simulate`: what other queues would have done to the past.
//!
//! The past is read from a cluster, a Prometheus or a trace, or made up, into one form: `past`.
//! `replay` judges it by a baseline and by a policy; `schedule` places it again. The floors and
//! ceilings are those of `tenure_policy`.

mod cluster;
mod generate;
mod past;
mod picture;
mod pods;
mod policy;
mod progress;
mod prometheus;
mod replay;
mod report;
mod runs_csv;
mod schedule;
mod source;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write, stdin, stdout},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use http::Uri;
use jiff::{Timestamp, tz::TimeZone};
use tenure_policy::config::Config;
use tenure_types::ExtendedDuration;

use crate::{
    cluster::{ConnectArgs, url},
    floors::{duration, of_file},
    input,
    print::{OutputArgs, OutputFormat, print, table, warn},
    snapshot::Snapshot,
};
use cluster::ClusterPast;
use generate::Mix;
use past::Past;
use picture::picture;
use policy::{Overrides, SimulatedPolicy};
use progress::ProgressReader;
use prometheus::PrometheusArgs;
use replay::{ReportBounds, applied, replay};
use report::{ComparedPolicies, SimulationReport, SweepRow};
use schedule::schedule;
use source::{Skipped, SourceReport};
use trace::{Columns, TraceOptions};

/// Show what other ceilings and floors would have done to the runs of the past
///
/// The past is that of a cluster, as far as its objects still exist or Prometheus has their metrics, or a trace, or made up.
/// Runs keep their start times: which runs are cut, and which preemptions a floor forbids, is exact. Nothing is rescheduled,
/// so no other run uses the freed room. A run that a ceiling ended in the past ends there in each replay.
///
/// NEARLY FINISHED counts cut runs that would have ended soon. EXTENDABLE counts cut runs whose queue grants the rest of
/// their time without approval, if their users ask. AVOIDED counts preemptions that a floor forbids to every preemptor.
/// PERHAPS AVOIDED counts preemptions that a floor forbids to preemptors of some queues: the past doesn't name the
/// preemptor.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure simulate --generate                          # made-up jobs: see what it shows
  kubectl tenure simulate --from-cluster --max-duration 2d    # what is still there of the past
  kubectl tenure simulate --from-cluster --queues new.yaml    # other queues than those of the cluster
  kubectl tenure simulate --from-cluster --prometheus http://localhost:9090 --max-duration 2d    # the last 30 days
  sacct -aX --parsable2 -S now-30days -o JobID,User,Partition,Submit,Start,End,State,Priority,AllocTRES > jobs.txt
  kubectl tenure simulate --trace jobs.txt --sweep maxDuration=12h,24h,2d,7d
  kubectl tenure simulate --trace jobs.csv --columns start=Begin,end=Finish,gpus=GPUs --max-duration 2d")]
pub struct SimulateArgs {
    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    prometheus: PrometheusArgs,

    /// The columns of a CSV file, or other columns of sacct: FIELD=COLUMN, of id, submit, start, end, gpus, cpus, queue,
    /// user, priority and state
    #[arg(long, value_name = "FIELD=COLUMN,...", requires = "trace")]
    columns: Option<Columns>,

    /// The zone of times in a trace that name none, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = zone, default_value = "UTC", requires = "trace")]
    zone: TimeZone,

    /// The number of made-up jobs
    #[arg(long, value_name = "N", default_value_t = 3_000, requires = "generate")]
    jobs: u32,

    /// The seed of the made-up jobs
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    seed: u64,

    /// Try these queues: YAML or JSON; of a directory all .yaml, .yml and .json files; - is standard input. Can be repeated
    #[arg(long, value_name = "FILE|DIR|-", help_heading = "Policy")]
    queues: Vec<String>,

    /// Compare with these queues, in place of those of the cluster, or of none. Can be repeated
    #[arg(long, value_name = "FILE|DIR|-", help_heading = "Policy")]
    baseline: Vec<String>,

    /// Give all queues this maxDuration of their own
    #[arg(long, value_name = "DURATION", value_parser = ceiling, help_heading = "Policy")]
    max_duration: Option<ExtendedDuration>,

    /// Give all queues this preemptMinRuntime of their own
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Policy")]
    preempt_min_runtime: Option<ExtendedDuration>,

    /// Give all queues this reclaimMinRuntime of their own
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Policy")]
    reclaim_min_runtime: Option<ExtendedDuration>,

    /// Try several values of maxDuration, and show one line for each
    #[arg(long, value_name = "maxDuration=DURATION,...", value_parser = sweep, conflicts_with = "max_duration", help_heading = "Policy")]
    sweep: Option<Sweep>,

    /// The configuration file of the servers, whose default floors count; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    config: Option<String>,

    /// The namespace in which queues of T9k count, as the keeper has it
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system")]
    t9k_system_namespace: String,

    /// The namespace in which Tenure is installed, for the share of the past that the cluster still has
    #[arg(long, value_name = "NAMESPACE", default_value = "tenure-system", requires = "from_cluster")]
    tenure_namespace: String,

    /// A run that would have ended within this time after its cut was nearly finished
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "4h")]
    nearly_within: ExtendedDuration,

    /// The time that a run loses counts as lost early if the run is preempted sooner than this
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    lost_within: ExtendedDuration,

    /// Also place all runs again, in one pool with priorities, preemption and returns: an estimate
    #[arg(long, conflicts_with = "sweep")]
    schedule: bool,

    /// The GPUs of that pool, or the units that the report has [default: the most that ran at once]
    #[arg(long, value_name = "N", requires = "schedule")]
    capacity: Option<u32>,

    /// The form of the answer
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: SimulateFormat,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
struct SourceArgs {
    /// Take made-up jobs, of this mix
    #[arg(long, value_name = "MIX", value_enum, num_args = 0..=1, default_missing_value = "research", conflicts_with_all = ["trace", "prometheus", "from_cluster"])]
    generate: Option<Mix>,

    /// Take the runs of this file: the output of sacct --parsable2, Standard Workload Format, or CSV; - is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["prometheus", "from_cluster"])]
    trace: Option<String>,

    /// Take the pods in this Prometheus, from the metrics of kube-state-metrics. With --from-cluster: by the cluster's
    /// queues
    #[arg(long, value_name = "URL", value_parser = prometheus_url)]
    prometheus: Option<Uri>,

    /// Take the Jobs, JobSets and pods of the cluster, running or ended: of all namespaces, or with -n of one
    #[arg(long)]
    from_cluster: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum SimulateFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// The same as YAML
    Yaml,
    /// The runs as they would have been, as a trace. With --sweep: its table
    Csv,
    /// A picture: what each queue has used, and would have used
    Svg,
}

/// The ceilings of a sweep.
#[derive(Clone, Debug)]
struct Sweep(Vec<ExtendedDuration>);

/// Reads `maxDuration=DURATION,...`.
fn sweep(text: &str) -> Result<Sweep, String> {
    let values = text.strip_prefix("maxDuration=");
    let values = values.ok_or("must begin with maxDuration=, such as maxDuration=12h,24h,2d,7d")?;
    values.split(',').map(ceiling).collect::<Result<_, _>>().map(Sweep)
}

/// Reads a ceiling, which must not be zero.
fn ceiling(text: &str) -> Result<ExtendedDuration, String> {
    let value = duration(text)?;
    if value == ExtendedDuration::ZERO {
        Err("must be greater than zero, such as 2d".into())
    } else {
        Ok(value)
    }
}

/// Reads the URL of a Prometheus.
fn prometheus_url(text: &str) -> Result<Uri, String> {
    url(text).map_err(|_| "must be a URL such as http://prometheus.monitoring:9090".into())
}

/// Reads the name of a time zone.
fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| "must be the name of a time zone, such as Europe/Berlin or UTC".into())
}

/// The ceiling that is tried on made-up jobs if no policy is given.
const FIRST_TRY: &str = "2d";

/// The past, with the queues that it had.
struct SimulationInput {
    past: Past,
    source: SourceReport,
    /// The queues of the cluster, and what runs now. None: no cluster was read.
    cluster: Option<ClusterPast>,
    /// Sentences about what the source lacks.
    missing: Vec<String>,
}

impl SimulateArgs {
    /// Reads the past, judges it, and prints the report in the form that is asked for. An error:
    /// there is nothing to try, or the source can't be read.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let config = of_file(self.config.as_deref())?;
        let is_asked = !self.overrides().is_none() || !self.queues.is_empty() || self.sweep.is_some();
        ensure!(
            is_asked,
            "nothing to try: give --max-duration 2d, --sweep maxDuration=12h,24h,2d,7d or --queues new.yaml"
        );
        ensure!(
            self.sweep.is_none() || self.output != SimulateFormat::Svg,
            "--output: Invalid value: \"svg\": a sweep has no picture: give table, json, yaml or csv"
        );
        let mut known = self.known(connect, &config).await?;
        let of_cluster = known.cluster.as_mut().map(|cluster| std::mem::take(&mut cluster.queues));
        let baseline = match (self.baseline.as_slice(), of_cluster) {
            ([], Some(queues)) => queues,
            ([], None) => SimulatedPolicy::default_of(&config),
            (files, _) => self.policy(files, &config)?,
        };
        let counting = ReportBounds {
            unit: known.past.unit(),
            since: known.past.known_since,
            nearly: self.nearly_within.to_signed(),
            lost_within: self.lost_within.to_signed(),
        };
        if let Some(Sweep(ceilings)) = &self.sweep {
            let floors = Overrides { ceiling: None, ..self.overrides() };
            let with = self.tried_on(&baseline, floors, &known.past, &config)?;
            return self.sweep(ceilings, &known, [&baseline, &with], counting);
        }
        let overrides = self.overrides();
        let policy = self.tried_on(&baseline, overrides, &known.past, &config)?;
        if self.output == SimulateFormat::Csv {
            return print_runs(&applied(&known.past, &policy));
        }
        let unknown = policy.unknown(&known.past);
        if unknown > 0 {
            known.missing.push(format!(
                "{unknown} queues that runs name aren't among the queues that were tried: no ceiling applies there"
            ));
        }
        let replayed = replay(&known.past, &baseline, &policy, counting);
        let tried = self.tried(overrides);
        let mut report = SimulationReport::new(&known.past, &replayed, counting, tried, known.source);
        report.missing = known.missing;
        if self.output == SimulateFormat::Svg {
            let [before, after] = [&baseline, &policy].map(|policy| applied(&known.past, policy));
            return print(&picture(&report.sentence, &before, &after, counting.unit));
        }
        if self.schedule {
            let of = |policy| schedule(&known.past, policy, counting.unit, self.capacity.map(f64::from));
            (report.depth, report.schedules) = ("schedule", Some([of(&baseline), of(&policy)]));
        }
        report.events_now = known.cluster.map(|cluster| cluster.events_now(&policy));
        self.shape().show(&report, || report.text())
    }

    /// Returns the form of answers that aren't CSV or SVG.
    fn shape(&self) -> OutputArgs {
        let output = match self.output {
            SimulateFormat::Table | SimulateFormat::Csv | SimulateFormat::Svg => OutputFormat::Table,
            SimulateFormat::Json => OutputFormat::Json,
            SimulateFormat::Yaml => OutputFormat::Yaml,
        };
        OutputArgs { output }
    }

    /// Reads the past from the source that flags name.
    async fn known(&self, connect: ConnectArgs, config: &Config) -> Result<SimulationInput> {
        let missing = Vec::new();
        let namespaces @ [t9k, _] = [&*self.t9k_system_namespace, &*self.tenure_namespace];
        match &self.source {
            SourceArgs { generate: Some(mix), .. } => {
                let past = mix.past(self.jobs, self.seed);
                let name = format!("mix {}, seed {}", mix.name(), self.seed);
                let mut source = SourceReport::new("made-up jobs,", name, &past);
                source.is_real = false;
                Ok(SimulationInput { past, source, cluster: None, missing })
            }
            SourceArgs { trace: Some(path), .. } => {
                let (past, source) = self.trace(path)?;
                Ok(SimulationInput { past, source, cluster: None, missing })
            }
            SourceArgs { prometheus: Some(url), from_cluster, .. } => {
                let namespace = connect.named_namespace().map(str::to_owned);
                let cluster = if *from_cluster {
                    Some(cluster::read(connect, namespaces, config).await?)
                } else {
                    None
                };
                let (past, source, mut missing) =
                    self.prometheus.read(url, namespace.as_deref(), t9k, config).await?;
                let cluster = cluster.map(|(cluster, _, _, of_cluster)| {
                    // Prometheus has the runs whose objects the cluster no longer has
                    let others = of_cluster.into_iter().filter(|of| of != cluster::DELETED);
                    missing.extend(others.map(|of| format!("of the cluster, {of}")));
                    cluster
                });
                Ok(SimulationInput { past, source, cluster, missing })
            }
            SourceArgs { .. } => {
                let (cluster, past, source, missing) = cluster::read(connect, namespaces, config).await?;
                Ok(SimulationInput { past, source, cluster: Some(cluster), missing })
            }
        }
    }

    /// Reads a trace, and warns of the first lines that can't be read.
    fn trace(&self, path: &str) -> Result<(Past, SourceReport)> {
        let options = TraceOptions {
            columns: self.columns.clone().unwrap_or_default(),
            zone: self.zone.clone(),
            now: Timestamp::now(),
        };
        let name = input::shown(path);
        let mut source: Box<dyn BufRead> = if path == "-" {
            Box::new(stdin().lock())
        } else {
            let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            Box::new(BufReader::with_capacity(1 << 18, ProgressReader::new(file, size)))
        };
        let trace = trace::read(name, &mut source, &options)?;
        drop(source);
        for line in trace.broken.shown() {
            warn(&format!("{name}: {line}: it is skipped"));
        }
        let mut report = SourceReport::new(trace.format.name(), name.to_owned(), &trace.past);
        report.complete_since = report.since;
        let steps = (trace.steps > 0).then_some(("the line is of a step, a part of a job", trace.steps));
        let skipped = trace.broken.by_reason.into_iter().chain(steps);
        report.skipped = skipped.map(|(reason, number)| Skipped { number, reason: reason.into() }).collect();
        Ok((trace.past, report))
    }

    /// Reads queues from files.
    fn policy(&self, files: &[String], config: &Config) -> Result<SimulatedPolicy> {
        let documents = input::read(files)?;
        let snapshot =
            Snapshot::of_documents(&documents, config, Some(&self.t9k_system_namespace), Timestamp::now());
        snapshot.warn();
        Ok(SimulatedPolicy::of(&snapshot, config))
    }

    /// Returns the queues to try: those of files, or else the baseline, with the values that flags
    /// give to all queues.
    fn tried_on(
        &self,
        baseline: &SimulatedPolicy,
        overrides: Overrides,
        past: &Past,
        config: &Config,
    ) -> Result<SimulatedPolicy> {
        match self.queues.as_slice() {
            [] => Ok(baseline.with(overrides, past)),
            files => Ok(self.policy(files, config)?.with(overrides, past)),
        }
    }

    /// Returns the values that flags give to all queues. Without any policy, made-up jobs get a
    /// first one.
    fn overrides(&self) -> Overrides {
        let given = Overrides {
            ceiling: self.max_duration,
            preempt: self.preempt_min_runtime,
            reclaim: self.reclaim_min_runtime,
        };
        // a newcomer sees a result before the first flag
        let is_first_try = given.is_none() && self.queues.is_empty() && self.source.generate.is_some();
        if is_first_try { Overrides { ceiling: FIRST_TRY.parse().ok(), ..given } } else { given }
    }

    /// Returns the names of policy and baseline for the report.
    fn tried(&self, overrides: Overrides) -> ComparedPolicies {
        let shown = |of: Option<ExtendedDuration>| of.map(|of| of.to_string());
        let Overrides { ceiling, preempt, reclaim } = overrides;
        let floors = [("preemptMinRuntime", preempt), ("reclaimMinRuntime", reclaim)];
        let floors = floors.into_iter().filter_map(|(name, of)| Some(format!("{name} {}", shown(of)?)));
        let files = self.queues.iter().map(|path| input::shown(path).to_owned());
        let parts: Vec<String> = files.chain(shown(ceiling)).chain(floors).collect();
        let policy = if parts.is_empty() { "no other policy".to_owned() } else { parts.join(", ") };
        let baseline = match self.baseline.as_slice() {
            [] if self.source.from_cluster => "the queues of the cluster".to_owned(),
            [] => "no queues".to_owned(),
            files => files.join(", "),
        };
        ComparedPolicies { policy, baseline, ceiling: ceiling.map(ExtendedDuration::to_signed) }
    }

    /// Replays the past by each ceiling, and prints a row for each.
    fn sweep(
        &self,
        ceilings: &[ExtendedDuration],
        SimulationInput { past, source, .. }: &SimulationInput,
        [baseline, with]: [&SimulatedPolicy; 2],
        counting: ReportBounds,
    ) -> Result<()> {
        let rows = ceilings.iter().map(|ceiling| {
            let policy = with.with(Overrides { ceiling: Some(*ceiling), ..Overrides::default() }, past);
            SweepRow::new(ceiling.to_string(), &replay(past, baseline, &policy, counting).total)
        });
        let rows: Vec<SweepRow> = rows.collect();
        let hours = counting.unit.hours();
        let freed = format!("FREED {}", hours.to_uppercase());
        let headers = ["MAX DURATION", "JOBS CUT", "USERS CUT", &freed, "NEARLY FINISHED"];
        if self.output == SimulateFormat::Csv {
            let line = |row: &SweepRow| {
                let SweepRow { max_duration, jobs, users, freed, nearly_finished } = row;
                format!("{max_duration},{jobs},{users},{freed},{nearly_finished}\n")
            };
            let lines: String = rows.iter().map(line).collect();
            return print(&format!("maxDuration,jobs,users,freed,nearlyFinished\n{lines}"));
        }
        self.shape().show(&rows, || {
            let table = table(&headers, rows.iter().map(SweepRow::cells));
            let number = report::grouped(u64::try_from(past.workloads().count()).unwrap_or(u64::MAX));
            let lines = source.lines(counting.unit).join("\n");
            format!(
                "{}maxDuration over {}, {number} jobs:\n\n{table}\n{lines}\n",
                source.caution(),
                source.period()
            )
        })
    }
}

/// Prints the runs as CSV, which `--trace` reads again.
fn print_runs(past: &Past) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    writeln!(out, "{}", runs_csv::HEADERS)?;
    for run in &past.runs {
        out.write_all(runs_csv::line(past, run).as_bytes())?;
    }
    Ok(out.flush()?)
}
