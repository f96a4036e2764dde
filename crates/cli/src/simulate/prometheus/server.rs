//! The [query API](https://prometheus.io/docs/prometheus/latest/querying/api/) of Prometheus.
//!
//! Called by `prometheus`. Secrets come from files, not from the command line.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, Error, Result, anyhow, bail};
use http::{Request, StatusCode, Uri, header::CONTENT_TYPE};
use jiff::SignedDuration;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::{super::past::Seconds, PrometheusArgs};
use crate::cluster::root_cause;

/// A Prometheus, or a server with the same API.
pub struct PrometheusServer {
    client: Client,
    url: String,
    /// Selects the series of one cluster, such as `cluster="a"`. Empty: all series.
    selector: String,
}

/// A series with its last value, or with all its values in a range. A value is a time and a number
/// as text.
#[derive(Debug, Deserialize)]
pub struct Series<V = (f64, String)> {
    pub metric: BTreeMap<String, String>,
    #[serde(alias = "values")]
    pub value: V,
}

impl Series {
    /// Returns the last value. None: it isn't a number.
    pub fn number(&self) -> Option<f64> {
        self.value.1.parse().ok()
    }
}

/// Returns a time of Prometheus, which has fractions, cut to whole seconds. None: out of range.
pub fn whole(time: f64) -> Option<Seconds> {
    SignedDuration::try_from_secs_f64(time).ok().map(|time| time.as_secs())
}

/// The answer of a query: data or an error.
#[derive(Deserialize)]
struct Answer<V> {
    data: Option<Data<V>>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Data<V> {
    result: Vec<Series<V>>,
}

/// The longest wait for an answer. It exceeds the longest query that Prometheus allows by default,
/// two minutes.
const TIMEOUT: Duration = Duration::from_secs(150);

/// Parts of the error of a query that needs more samples or more time than the server allows.
const TOO_MUCH: [&str; 3] = ["too many", "timed out", "limit"];

impl PrometheusServer {
    /// Prepares a client by the flags. The error is about files of the flags: no request is sent.
    pub async fn connect(url: &Uri, args: &PrometheusArgs) -> Result<Self> {
        let token = secret(args.prometheus_token.as_deref(), "--prometheus-token")?;
        let password = secret(args.prometheus_password.as_deref(), "--prometheus-password")?;
        // kube's client has all that Prometheus needs: authorities, tokens, passwords, proxies
        let file: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{"name": "it", "cluster": {"server": url.to_string(), "certificate-authority": args.prometheus_ca}}],
            "users": [{"name": "it", "user": {
                "token": token,
                "username": args.prometheus_user, "password": password,
            }}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let mut config = config.context("cannot use --prometheus-ca")?;
        config.read_timeout = Some(TIMEOUT);
        // the environment's proxy is for https
        config.proxy_url = config.proxy_url.filter(|_| url.scheme_str() == Some("https"));
        let url = url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).map_err(|error| no_answer(error, &url))?;
        let selector = args.prometheus_selector.clone().unwrap_or_default();
        Ok(Self { client, url, selector })
    }

    /// Returns a selector of the series of a metric that have these labels.
    pub fn select(&self, metric: &str, labels: &str) -> String {
        let both = [labels, &self.selector].into_iter().filter(|part| !part.is_empty());
        format!("{metric}{{{}}}", both.collect::<Vec<_>>().join(","))
    }

    /// Returns the values of an expression at a time.
    pub async fn at(&self, expression: &str, time: Seconds) -> Result<Vec<Series>> {
        self.ask("query", &[("query", expression), ("time", &time.to_string())]).await
    }

    /// Returns the times in a range at which an expression has a value, step by step.
    pub async fn times(&self, of: &str, [since, until]: [Seconds; 2], step: Seconds) -> Result<Vec<Seconds>> {
        let [start, end, step] = [since, until, step].map(|seconds| seconds.to_string());
        let fields = [("query", of), ("start", &start), ("end", &end), ("step", &step)];
        let series: Vec<Series<Vec<(f64, String)>>> = self.ask("query_range", &fields).await?;
        let points = series.iter().flat_map(|series| &series.value);
        Ok(points.filter_map(|(time, _)| whole(*time)).collect())
    }

    /// Sends a query as a form, so that long expressions fit, and reads the answer.
    async fn ask<V: DeserializeOwned>(&self, call: &str, fields: &[(&str, &str)]) -> Result<Vec<Series<V>>> {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = Request::post(format!("/api/v1/{call}"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(form.into_bytes()))?;
        let response = self.client.send(request).await.map_err(|error| no_answer(error, &self.url))?;
        let status = response.status();
        let body = response.into_body().collect_bytes().await.map_err(|error| no_answer(error, &self.url))?;
        let url = &self.url;
        match serde_json::from_slice::<Answer<V>>(&body) {
            _ if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                bail!("Prometheus at {url} answers {status}: check --prometheus-token or --prometheus-user")
            }
            Ok(Answer { error: Some(error), .. }) => bail!("Prometheus at {url} answers: {error}"),
            Ok(Answer { data: Some(Data { result }), .. }) if status.is_success() => Ok(result),
            _ => bail!(
                "the server at {url} is not Prometheus: it answers {status} to /api/v1/{call}: give the URL in front of /api/v1"
            ),
        }
    }
}

/// Reads a secret from the file of a flag, without whitespace at its end. None: the flag isn't
/// given.
fn secret(path: Option<&str>, flag: &str) -> Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}, of {flag}"))?;
    Ok(Some(text.trim_end().to_owned()))
}

/// True if a query failed because it asks for too much at once.
pub fn is_too_much(error: &Error) -> bool {
    let text = error.to_string();
    TOO_MUCH.iter().any(|part| text.contains(part))
}

/// Returns an error about a server that doesn't answer, and what to check.
fn no_answer(error: kube::Error, url: &str) -> Error {
    let (cause, is_trust) = root_cause(error);
    let remedy = if is_trust { "check --prometheus-ca" } else { "check that it runs, and the URL" };
    anyhow!("cannot ask Prometheus at {url}: {cause}: {remedy}")
}
