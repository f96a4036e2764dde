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
    io::{BufRead, BufReader, stdin},
};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum, builder::PossibleValue};
use http::Uri;
use jiff::Timestamp;
use serde::Serialize;
use tenure_policy::config::Config;
use tenure_types::ExtendedDuration;

use crate::{
    cluster::{ConnectArgs, T9kArgs, url},
    floors::{duration, of_file},
    input,
    print::{amount, grouped, json, plural, print, printable, table, warn, yaml},
    snapshot::Snapshot,
};
use cluster::ClusterPast;
use past::Past;
use picture::picture;
use policy::{Overrides, SimulatedPolicy, ceiling};
use progress::progress_bar;
use prometheus::PrometheusArgs;
use replay::{QueueNumbers, ReportBounds, applied, replay};
use report::SimulationReport;
use schedule::schedule;
use trace::{Trace, TraceOptions};

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
    trace: TraceOptions,

    /// The number of made-up jobs
    #[arg(long, value_name = "N", default_value_t = 3_000, requires = "generate")]
    jobs: u32,

    /// The seed of the made-up jobs
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate")]
    seed: u64,

    #[command(flatten)]
    t9k: T9kArgs,

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

    #[command(flatten, next_help_heading = "Prometheus")]
    prometheus: PrometheusArgs,

    /// Try these queues: YAML or JSON; of a directory all .yaml, .yml and .json files; - is standard input. Can be repeated
    #[arg(long, value_name = "FILE|DIR|-", help_heading = "Policy")]
    queues: Vec<String>,

    /// Compare with these queues, in place of those of the cluster, or of none. Can be repeated
    #[arg(long, value_name = "FILE|DIR|-", help_heading = "Policy")]
    baseline: Vec<String>,

    #[command(flatten)]
    overrides: Overrides,

    /// Try several values of maxDuration, and show one line for each
    #[arg(long, value_name = "maxDuration=DURATION,...", value_parser = sweep, conflicts_with = "ceiling", help_heading = "Policy")]
    sweep: Option<Box<[ExtendedDuration]>>,

    /// The configuration file of keeper and webhook, whose default floors count; - for standard input
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    config: Option<String>,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
struct SourceArgs {
    /// Take made-up jobs, of this mix
    #[arg(long, value_name = "MIX", value_parser = [PossibleValue::new("research").help("Teams that train models: many short tries, some runs of days, a few forgotten ones")], num_args = 0..=1, default_missing_value = "research", conflicts_with_all = ["trace", "prometheus", "from_cluster"])]
    generate: Option<String>,

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

/// A row of a sweep. `freed` is in unit-hours.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SweepRow {
    max_duration: String,
    jobs: usize,
    users: usize,
    freed: f64,
    nearly_finished: usize,
}

/// Reads `maxDuration=DURATION,...`.
fn sweep(text: &str) -> Result<Box<[ExtendedDuration]>, String> {
    let values = text.strip_prefix("maxDuration=");
    let values = values.ok_or("must begin with maxDuration=, such as maxDuration=12h,24h,2d,7d")?;
    values.split(',').map(ceiling).collect()
}

/// Reads the URL of a Prometheus.
fn prometheus_url(text: &str) -> Result<Uri, String> {
    url(text).map_err(|_| "must be a URL such as http://prometheus.monitoring:9090".into())
}

/// The ceiling that is tried on made-up jobs if no policy is given.
const FIRST_TRY: &str = "2d";

impl SimulateArgs {
    /// Reads the past, judges it, and prints the report in the form that is asked for. An error:
    /// there is nothing to try, or the source can't be read.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let (config, overrides) = (of_file(self.config.as_deref())?, self.overrides()?);
        ensure!(
            self.sweep.is_none() || self.output != SimulateFormat::Svg,
            "--output: Invalid value: \"svg\": a sweep has no picture: give table, json, yaml or csv"
        );
        ensure!(
            !self.schedule || !matches!(self.output, SimulateFormat::Csv | SimulateFormat::Svg),
            "--schedule can't be used with --output csv or svg, which have no place for its estimate: give --output table, json or yaml"
        );
        let (mut past, cluster) = self.known(connect, &config).await?;
        let baseline = match (&*self.baseline, &cluster) {
            ([], Some(cluster)) => cluster.queues.clone(),
            ([], None) => SimulatedPolicy::of(&Snapshot::new(&config, None, Timestamp::default())),
            (files, _) => self.policy(files, &config)?,
        };
        let policy = match &*self.queues {
            [] => baseline.with(overrides, &past),
            files => self.policy(files, &config)?.with(overrides, &past),
        };
        let counting = ReportBounds {
            unit: past.unit(),
            since: past.known_since,
            nearly: self.nearly_within.to_signed(),
            lost_within: self.lost_within.to_signed(),
        };
        if self.sweep.is_some() {
            return self.sweep(&past, [&baseline, &policy], counting);
        }
        if self.output == SimulateFormat::Csv {
            return runs_csv::print(&applied(&past, &policy));
        }
        let unknown = policy.unknown(&past);
        if unknown > 0 {
            past.source.missing.push(format!(
                "{unknown} queues that runs name aren't among the queues that were tried: no ceiling applies there"
            ));
        }
        let (replayed, names) = (replay(&past, [&baseline, &policy], counting), self.names(overrides));
        let mut report =
            SimulationReport::new(replayed, counting, names, overrides.ceiling, past.source.clone());
        if self.output == SimulateFormat::Svg {
            let [before, after] = [&baseline, &policy].map(|policy| applied(&past, policy));
            return print(&picture(&report.sentence, &before, &after, counting.unit));
        }
        if self.schedule {
            let of = |policy| schedule(&past, policy, counting.unit, self.capacity.map(f64::from));
            (report.depth, report.schedules) = ("schedule", Some([of(&baseline), of(&policy)]));
        }
        report.events_now = cluster.map(|cluster| cluster.events_now(&policy));
        self.show(&report, || report.text())
    }

    /// Prints an answer that isn't CSV or SVG.
    fn show(&self, answer: &impl Serialize, table: impl FnOnce() -> String) -> Result<()> {
        print(&match self.output {
            SimulateFormat::Json => json(answer)?,
            SimulateFormat::Yaml => yaml(answer)?,
            SimulateFormat::Table | SimulateFormat::Csv | SimulateFormat::Svg => table(),
        })
    }

    /// Reads the past from the source that flags name, and the cluster if they name it.
    async fn known(&self, connect: ConnectArgs, config: &Config) -> Result<(Past, Option<ClusterPast>)> {
        let t9k = &self.t9k.system_namespace;
        let namespace = connect.named_namespace().map(str::to_owned);
        let SourceArgs { trace, prometheus, from_cluster, .. } = &self.source;
        let (mut of_cluster, mut cluster) = (None, None);
        if *from_cluster {
            (of_cluster, cluster) = Some(Box::pin(cluster::read(self, connect, config)).await?).unzip();
        }
        let past = match (of_cluster, prometheus, trace) {
            (of_cluster, Some(url), _) => {
                let mut past = self.prometheus.read(url, namespace.as_deref(), t9k, config).await?;
                // Prometheus has the runs whose objects the cluster no longer has
                let missing = of_cluster.into_iter().flat_map(|of| of.source.missing);
                let missing = missing.filter(|of| of != cluster::DELETED);
                past.source.missing.extend(missing.map(|of| format!("of the cluster, {of}")));
                past
            }
            (Some(past), None, _) => past,
            (None, None, Some(path)) => self.trace(path)?,
            (None, None, None) => generate::past(self.jobs, self.seed),
        };
        Ok((past, cluster))
    }

    /// Reads a trace, and warns of the first lines that can't be read.
    fn trace(&self, path: &str) -> Result<Past> {
        let name = input::shown(path);
        let mut source: Box<dyn BufRead> = if path == "-" {
            Box::new(stdin().lock())
        } else {
            let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            Box::new(BufReader::with_capacity(1 << 18, progress_bar(size).wrap_read(file)))
        };
        let Trace { past, broken } = trace::read(name, &mut source, &self.trace)?;
        drop(source);
        broken.first.iter().for_each(|line| warn(&format!("{name}: {line}: it is skipped")));
        Ok(past)
    }

    /// Reads queues from files.
    fn policy(&self, files: &[String], config: &Config) -> Result<SimulatedPolicy> {
        let (documents, t9k) = (input::read(files)?, Some(&*self.t9k.system_namespace));
        let snapshot = Snapshot::of_documents(&documents, config, t9k, Timestamp::now());
        snapshot.warn();
        Ok(SimulatedPolicy::of(&snapshot))
    }

    /// Returns the values that flags give to all queues. Without any policy, made-up jobs get a
    /// first one. An error: there is nothing to try.
    fn overrides(&self) -> Result<Overrides> {
        let is_given =
            self.overrides != Overrides::default() || !self.queues.is_empty() || self.sweep.is_some();
        ensure!(
            is_given || self.source.generate.is_some(),
            "nothing to try: give --max-duration 2d, --sweep maxDuration=12h,24h,2d,7d or --queues new.yaml"
        );
        // a newcomer sees a result before the first flag
        let first = FIRST_TRY.parse().ok().filter(|_| !is_given);
        Ok(Overrides { ceiling: self.overrides.ceiling.or(first), ..self.overrides })
    }

    /// Returns the names of policy and baseline for the report.
    fn names(&self, Overrides { ceiling, preempt, reclaim }: Overrides) -> [String; 2] {
        let values = [("", ceiling), ("preemptMinRuntime ", preempt), ("reclaimMinRuntime ", reclaim)];
        let values = values.into_iter().filter_map(|(name, of)| Some(format!("{name}{}", of?)));
        let files = self.queues.iter().map(|path| input::shown(path).to_owned());
        let baseline = match &*self.baseline {
            [] if self.source.from_cluster => "the queues of the cluster".to_owned(),
            [] => "no queues".to_owned(),
            files => files.join(", "),
        };
        [files.chain(values).collect::<Vec<_>>().join(", "), baseline]
    }

    /// Replays the past by each ceiling, and prints a row for each.
    fn sweep(&self, past: &Past, policies: [&SimulatedPolicy; 2], counting: ReportBounds) -> Result<()> {
        let [baseline, with] = policies;
        let rows = self.sweep.as_deref().unwrap_or_default().iter().map(|ceiling| {
            let policy = with.with(Overrides { ceiling: Some(*ceiling), ..Overrides::default() }, past);
            let QueueNumbers { cut: jobs, users_cut: users, freed, nearly_finished, .. } =
                replay(past, [baseline, &policy], counting).total;
            SweepRow { max_duration: ceiling.to_string(), jobs, users, freed, nearly_finished }
        });
        let rows: Vec<SweepRow> = rows.collect();
        if self.output == SimulateFormat::Csv {
            let line = |SweepRow { max_duration, jobs, users, freed, nearly_finished }: &SweepRow| {
                format!("{max_duration},{jobs},{users},{freed},{nearly_finished}\n")
            };
            let lines: String = rows.iter().map(line).collect();
            return print(&format!("maxDuration,jobs,users,freed,nearlyFinished\n{lines}"));
        }
        self.show(&rows, || {
            let freed = format!("FREED {}", counting.unit.hours().to_uppercase());
            let headers = ["MAX DURATION", "JOBS CUT", "USERS CUT", &freed, "NEARLY FINISHED"];
            let cells = |row: &SweepRow| {
                let [jobs, users, nearly] = [row.jobs, row.users, row.nearly_finished].map(grouped);
                vec![row.max_duration.clone(), jobs, users, amount(row.freed), nearly]
            };
            let table = table(&headers, rows.iter().map(cells));
            let source = &past.source;
            let (caution, period) = (source.caution(), source.period());
            let jobs = plural(past.workloads().count(), "job");
            let missing = source.missing.iter().map(|of| format!("Missing: {of}"));
            let lines = source.lines(counting.unit.hours()).into_iter().chain(missing);
            let lines = lines.map(|line| printable(&line)).collect::<Vec<_>>().join("\n");
            format!("{caution}maxDuration over {period}, {jobs}:\n\n{table}\n{lines}\n")
        })
    }
}
