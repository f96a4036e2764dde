//! The past by Prometheus: what kube-state-metrics has said of pods, day by day.

mod pods;
mod server;

use anyhow::{Context, Result};
use clap::Args;
use http::Uri;
use jiff::Timestamp;
use tenure_policy::config::Config;
use tenure_types::{ExtendedDuration, keys::QUEUE_LABELS};

use super::{
    past::{Past, Seconds, Unit, moment},
    pods::PastReader,
    progress::Bar,
    replay::hours,
    report::day,
    source::{SourceReport, share},
};
use crate::{floors::duration, list::view::View, snapshot::Snapshot};
use pods::KnownPods;
use server::{Range, Series, Server, is_too_much, whole};

/// The flags for a Prometheus.
#[derive(Clone, Debug, Args)]
pub struct PrometheusArgs {
    /// How far back to ask
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30d", requires = "prometheus", help_heading = "Prometheus")]
    last: ExtendedDuration,

    /// A file with the bearer token for Prometheus
    #[arg(
        long,
        value_name = "FILE",
        requires = "prometheus",
        conflicts_with = "prometheus_user",
        help_heading = "Prometheus"
    )]
    prometheus_token: Option<String>,

    /// The user for Prometheus, with --prometheus-password
    #[arg(long, value_name = "NAME", requires = "prometheus_password", help_heading = "Prometheus")]
    prometheus_user: Option<String>,

    /// A file with the password of --prometheus-user
    #[arg(long, value_name = "FILE", requires = "prometheus_user", help_heading = "Prometheus")]
    prometheus_password: Option<String>,

    /// A file with the certificates, as PEM, of the authorities that Prometheus' certificate is checked against
    #[arg(long, value_name = "FILE", requires = "prometheus", help_heading = "Prometheus")]
    prometheus_ca: Option<String>,
}

/// The time that is asked for at once.
const WINDOW: Seconds = 24 * 60 * 60;

/// Prometheus says no more of a series that has had no sample for so long.
const LOOKBACK: Seconds = 5 * 60;

/// The most points that Prometheus gives of a series, with room to spare.
const MOST_POINTS: Seconds = 10_000;

const NO_PREEMPTIONS: &str =
    "which runs were preempted, and the priorities of pods: kube-state-metrics doesn't say it";

impl PrometheusArgs {
    /// Reads the past of all namespaces, or of one.
    pub async fn read(
        &self,
        url: &Uri,
        namespace: Option<&str>,
        t9k: &str,
        config: &Config,
    ) -> Result<(Past, SourceReport, Vec<String>)> {
        let server = Server::connect(url, self).await?;
        let now = Timestamp::now().as_second();
        let last = self.last.to_signed().as_secs();
        let covered = covered(&server, now, last).await?;
        let Covered { first, complete } = covered.with_context(|| {
            let since = day(now.saturating_sub(last));
            format!("Prometheus at {url} has no kube_node_info since {since}: check that it scrapes kube-state-metrics")
        })?;
        let (mut known, mut used, mut read, mut window) = (KnownPods::default(), 0.0, first, WINDOW);
        let mut bar = Bar::new(now.abs_diff(first));
        while read < now {
            let range = Range { since: read, until: read.saturating_add(window).min(now) };
            let counted = Range { since: range.since.max(complete).min(range.until), ..range };
            match async {
                known.read(&server, range).await?;
                used_in(&server, counted).await
            }
            .await
            {
                Ok(more) => used += more,
                Err(error) if is_too_much(&error) && window > LOOKBACK => {
                    window /= 2;
                    continue;
                }
                Err(error) => return Err(error),
            }
            bar.advance(range.until.abs_diff(range.since));
            read = range.until;
        }
        let mut view = View::new(Snapshot::new(config, Some(t9k), moment(now)));
        let (mut reader, has_queues) = (PastReader::default(), known.has_queues());
        known.into_past(namespace, now.saturating_sub(LOOKBACK), &mut reader, &mut view);
        let (past, mut source) = reader.finish("Prometheus,", url.to_string(), &mut view, moment(now));
        let mut missing = vec![NO_PREEMPTIONS.to_owned()];
        if !has_queues && !past.runs.is_empty() {
            missing.push(format!(
                "the queues of pods, for which namespaces stand: run kube-state-metrics with --metric-labels-allowlist=pods=[{}]",
                QUEUE_LABELS.join(",")
            ));
        }
        source.complete_since = Some(moment(complete));
        let seen = past
            .runs
            .iter()
            .map(|run| hours(run.end.saturating_sub(run.start.max(complete)).max(0)) * Unit::Gpu.amount(run));
        source.share_seen = share(seen.sum(), used).filter(|_| namespace.is_none());
        Ok((past, source, missing))
    }
}

/// The times of which something is known.
struct Covered {
    first: Seconds,
    /// The time after the last gap.
    complete: Seconds,
}

/// Asks since when kube-state-metrics was scraped, by what it says of nodes.
async fn covered(server: &Server, now: Seconds, last: Seconds) -> Result<Option<Covered>> {
    let step = last.div_euclid(MOST_POINTS).max(LOOKBACK);
    // the last point is now
    let since = now.saturating_sub(last.div_euclid(step).max(1).saturating_mul(step));
    let series = server.over("count(kube_node_info)", Range { since, until: now }, step).await?;
    let points = series.iter().flat_map(|series| &series.value);
    let times: Vec<Seconds> = points.filter_map(|(time, _)| whole(*time)).collect();
    let after_gap = times.windows(2).rev().find_map(|pair| {
        let [one, next] = pair else { return None };
        (next.saturating_sub(*one) > step).then_some(*next)
    });
    // the first sample may be as much older
    Ok(times.first().map(|first| Covered {
        first: first.saturating_sub(step).max(since),
        complete: after_gap.unwrap_or(*first),
    }))
}

/// Asks for the GPU-hours of all pods that ran in a range.
async fn used_in(server: &Server, Range { since, until }: Range) -> Result<f64> {
    let width = until.saturating_sub(since);
    if width < LOOKBACK {
        return Ok(0.0);
    }
    let requests =
        r#"max by (uid, container) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"})"#;
    let running = r#"max by (uid) (kube_pod_status_phase{phase="Running"} == 1)"#;
    let sum = format!("sum({requests} * on (uid) group_left () {running})");
    let series = server.at(&format!("sum_over_time(({sum})[{width}s:{LOOKBACK}s])"), until).await?;
    let sum: f64 = series.iter().filter_map(Series::number).sum();
    Ok(sum * hours(LOOKBACK))
}
