//! The past by Prometheus: the metrics of kube-state-metrics about pods, day by day.
//!
//! Called by `simulate --prometheus`. A query that is too large for the server is asked again for
//! half the time. Gaps in the scrapes are found, and reported.

mod pods;
mod server;

use anyhow::{Context, Result, ensure};
use clap::Args;
use http::Uri;
use jiff::Timestamp;
use tenure_policy::config::Config;
use tenure_types::{ExtendedDuration, keys::QUEUE_LABELS};

use super::{
    past::{Past, Seconds, Unit, hours, moment},
    pods::PastReader,
    progress::progress_bar,
    source::share,
};
use crate::{
    floors::duration,
    list::view::ListView,
    print::minute,
    snapshot::{ClaimedDevices, Snapshot},
};
use pods::KnownPods;
use server::{PrometheusServer, Series, is_too_much};

/// The flags for a Prometheus.
#[derive(Clone, Debug, Args)]
pub struct PrometheusArgs {
    /// How far back to ask
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30d", requires = "prometheus")]
    last: ExtendedDuration,

    /// A file with the bearer token for Prometheus
    #[arg(long, value_name = "FILE", requires = "prometheus", conflicts_with = "prometheus_user")]
    prometheus_token: Option<String>,

    /// The user for Prometheus, with --prometheus-password
    #[arg(long, value_name = "NAME", requires_all = ["prometheus", "prometheus_password"])]
    prometheus_user: Option<String>,

    /// A file with the password of --prometheus-user
    #[arg(long, value_name = "FILE", requires = "prometheus_user")]
    prometheus_password: Option<String>,

    /// A file with the certificates, as PEM, of the authorities that Prometheus' certificate is checked against
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_ca: Option<String>,

    /// Select the series of one cluster, where Prometheus has those of several: such as cluster="a"
    #[arg(long, value_name = "LABEL=\"VALUE\",...", requires = "prometheus")]
    prometheus_selector: Option<String>,
}

/// The range of one query, in seconds.
const WIDEST: Seconds = 24 * 60 * 60;

/// The time after the last sample at which Prometheus drops a series from its answers, in seconds.
const LOOKBACK: Seconds = 5 * 60;

/// The most points of a series that Prometheus returns, with room to spare.
const MOST_POINTS: Seconds = 10_000;

/// What kube-state-metrics never has, as a sentence of the report.
const NO_PREEMPTIONS: &str =
    "which runs were preempted, and the priorities of pods: kube-state-metrics doesn't say it";

/// The remedy for a Prometheus that refuses even small queries.
const LESS: &str = "ask for less with --last, or raise --query.max-samples and --query.timeout of Prometheus";

impl PrometheusArgs {
    /// Reads the past of all namespaces, or of one.
    pub async fn read(&self, url: &Uri, namespace: Option<&str>, t9k: &str, config: &Config) -> Result<Past> {
        ensure!(
            url.authority().is_none_or(|authority| !authority.as_str().contains('@')),
            "--prometheus: a password in the URL may be seen by others: give --prometheus-user and --prometheus-password"
        );
        let server = PrometheusServer::connect(url, self).await?;
        let (now, last) = (Timestamp::now().as_second(), self.last.to_signed().as_secs());
        let covered = covered(&server, now, last).await?;
        let [first, complete, until] = covered.with_context(|| {
            let since = minute(moment(now.saturating_sub(last)));
            format!("Prometheus at {url} has no kube_pod_created since {since}: check that it scrapes kube-state-metrics")
        })?;
        let (mut known, mut used, mut read, mut width) = (KnownPods::default(), 0.0, first, WIDEST);
        let bar = progress_bar(until.abs_diff(first));
        while read < until {
            let to = read.saturating_add(width).min(until);
            let more = async {
                known.read(&server, [read, to]).await?;
                used_in(&server, [read.max(complete).min(to), to]).await
            };
            match more.await {
                Ok(more) => used += more,
                Err(error) if is_too_much(&error) && width > LOOKBACK => {
                    width /= 2;
                    continue;
                }
                Err(error) => return Err(if is_too_much(&error) { error.context(LESS) } else { error }),
            }
            bar.inc(to.abs_diff(read));
            read = to;
        }
        ensure!(
            known.has_runs(),
            "Prometheus at {url} has no pod with a uid and a kube_pod_status_scheduled_time: kube-state-metrics must be 2.0 or later, and keep this metric"
        );
        let view = ListView::new(Snapshot::new(config, Some(t9k), moment(until)));
        let mut reader = PastReader::new(view, &[], ClaimedDevices::default());
        let has_queues = known.has_queues();
        known.into_past(namespace, [first, until], &mut reader);
        let name = namespace.map_or_else(|| url.to_string(), |of| format!("{url} namespace {of}"));
        let (mut past, _) = reader.finish("Prometheus,", name, moment(until));
        past.known_since = first;
        let source = &mut past.source;
        source.missing =
            vec![NO_PREEMPTIONS.to_owned(), format!("runs that had ended before {}", minute(moment(first)))];
        if now.saturating_sub(until) > LOOKBACK {
            let after = minute(moment(until));
            let later = format!("all after {after}: Prometheus has no later sample of kube-state-metrics");
            source.missing.push(later);
        }
        if !has_queues && !past.runs.is_empty() {
            source.missing.push(format!(
                "the queues of pods, for which namespaces stand: run kube-state-metrics with --metric-labels-allowlist=pods=[{}]",
                QUEUE_LABELS.join(",")
            ));
        }
        (source.since, source.complete_since) = (Some(moment(first)), Some(moment(complete)));
        let seen = past.runs.iter().map(|run| run.used(Unit::Gpu, complete, run.end));
        past.source.share_seen = share(seen.sum(), used).filter(|_| namespace.is_none());
        Ok(past)
    }
}

/// Asks when kube-state-metrics was scraped first, first after the last gap, and last. In seconds
/// since 1970. None: there is no sample.
async fn covered(server: &PrometheusServer, now: Seconds, last: Seconds) -> Result<Option<[Seconds; 3]>> {
    let step = last.div_euclid(MOST_POINTS).max(LOOKBACK);
    // the last point is the present
    let since = now.saturating_sub(last.div_euclid(step).max(1).saturating_mul(step));
    let pods = server.select("kube_pod_created", "");
    let times = server.times(&format!("count({pods})"), [since, now], step).await?;
    let Some((first, until)) = times.first().zip(times.last()) else { return Ok(None) };
    let after_gap = times.windows(2).rev().find_map(|pair| {
        let [one, next] = pair else { return None };
        (next.saturating_sub(*one) > step).then_some(*next)
    });
    // the first sample may be older by up to a step
    Ok(Some([first.saturating_sub(step).max(since), after_gap.unwrap_or(*first), *until]))
}

/// Asks for the GPU-hours of all pods that ran in a range. 0 for a range shorter than `LOOKBACK`.
async fn used_in(server: &PrometheusServer, [since, until]: [Seconds; 2]) -> Result<f64> {
    let seconds = until.saturating_sub(since);
    if seconds < LOOKBACK {
        return Ok(0.0);
    }
    let requests = server.select("kube_pod_container_resource_requests", r#"resource="nvidia_com_gpu""#);
    let running = server.select("kube_pod_status_phase", r#"phase="Running""#);
    let sum = format!(
        "sum(max by (uid, container, exported_container) ({requests}) * on (uid) group_left () max by (uid) ({running} == 1))"
    );
    let whole = format!("sum_over_time(({sum})[{seconds}s:{LOOKBACK}s])");
    let sum: f64 = server.at(&whole, until).await?.iter().filter_map(Series::number).sum();
    Ok(sum * hours(LOOKBACK))
}
