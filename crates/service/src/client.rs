//! The client of the API server, for the keeper and the webhook.
//!
//! Every request of such a client is counted, shows the [`ServerClock`] a Date header, and has its
//! answer bounded in time. Pages of lists are bounded in bytes. Writes of
//! [`client_of_leader`](ClientArgs::client_of_leader) need the lead until the connection takes
//! them. Nothing is retried here.

use std::{
    path::{Path, PathBuf},
    sync::LazyLock,
    task::{self, Poll},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use futures::{FutureExt, future::BoxFuture};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Limited;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig},
};
use prometheus_client::metrics::{counter::Counter, family::Family};
use tower::{BoxError, Layer, Service, layer::layer_fn};

use crate::{call::Throttled, clock::ServerClock, leadership::Leadership, pages::most_bytes, watch};

/// The timeout for each part of an answer: on a connection that died unnoticed, kube would wait
/// without end. A watch without news ends earlier by itself.
const READ_TIMEOUT: Duration = Duration::from_secs(watch::TIMEOUT_SECONDS as u64 + 10);

/// The number of requests by method and code. One for the whole process, as its other metrics are.
type RequestCounts = Family<[(&'static str, String); 2], Counter>;

/// The requests of all clients of this process.
static REQUESTS: LazyLock<RequestCounts> = LazyLock::new(RequestCounts::default);

/// Returns the metric that counts the requests of all clients.
pub(crate) fn requests() -> RequestCounts {
    REQUESTS.clone()
}

/// Counts a request. None: the request got no answer.
fn count(method: &Method, code: Option<StatusCode>) {
    let code = code.map_or_else(|| "<error>".into(), |code| code.as_str().to_owned());
    REQUESTS.get_or_create(&[("method", method.to_string()), ("code", code)]).inc();
}

/// The API server to connect to, and the credentials.
#[derive(Clone, Debug, Args)]
pub struct ClientArgs {
    /// A kubeconfig file; if empty, the pod's service account. Without it: $KUBECONFIG, ~/.kube/config, or the pod's
    /// service account
    // clap's own parser of paths refuses an empty one
    #[arg(
        long,
        visible_alias = "kube-path",
        value_name = "FILE",
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    kubeconfig: Option<PathBuf>,
}

impl ClientArgs {
    /// Creates a client that doesn't retry: kube's policy can make a write land minutes late. The
    /// clock learns from its answers.
    ///
    /// # Errors
    /// If the kubeconfig or the service account is missing or can't be read.
    pub async fn client(self, clock: &ServerClock) -> anyhow::Result<Client> {
        self.client_of_leader(clock, Leadership::always()).await
    }

    /// Creates a client like [`client`](Self::client) that writes only while this process leads. A
    /// write without the lead fails with
    /// [`ApiError::NotLeading`](crate::call::ApiError::NotLeading).
    pub async fn client_of_leader(self, clock: &ServerClock, lead: Leadership) -> anyhow::Result<Client> {
        let Self { kubeconfig } = self;
        let mut config = config(kubeconfig.as_deref()).await?;
        config.default_retry = false;
        config.read_timeout = Some(READ_TIMEOUT);
        // otherwise the time that a connection was idle would count
        config.reset_reader_on_write = true;
        Ok(ClientBuilder::try_from(config)?.with_layer(&api_layer(lead, clock.clone())).build())
    }
}

/// Returns a layer with which only the leader writes, the clock learns from answers, a 429 keeps
/// its `Retry-After`, and pages that are too large fail.
pub(crate) fn api_layer<S>(
    lead: Leadership,
    clock: ServerClock,
) -> impl Layer<S, Service = ApiService<S>> + Clone {
    layer_fn(move |service| ApiService { lead: lead.clone(), clock: clock.clone(), service })
}

/// A client with an [`api_layer`]. Requests other than GET and HEAD are writes.
#[derive(Clone, Debug)]
pub(crate) struct ApiService<S> {
    lead: Leadership,
    clock: ServerClock,
    service: S,
}

impl<S, B> Service<Request<Body>> for ApiService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<Limited<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Limited<B>>, BoxError>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (lead, clock) = (self.lead.clone(), self.clock.clone());
        let method = request.method().clone();
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let (most, sent) = (most_bytes(&request), Instant::now());
        let answer = self.service.call(request);
        async move {
            let answer = if is_read { answer.await } else { lead.write(answer).await };
            count(&method, answer.as_ref().ok().map(Response::status));
            let response = answer?;
            clock.hear(sent, response.headers());
            if let Some(throttled) = Throttled::of(&response) {
                return Err(throttled.into());
            }
            Ok(response.map(|body| Limited::new(body, most)))
        }
        .boxed()
    }
}

/// Returns the configuration of a client. None: the kubeconfig or the service account is found by
/// kube's rules. An empty path means the service account of the pod.
async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    match kubeconfig {
        None => Config::infer()
            .await
            .context("no kubeconfig and no service account: set --kubeconfig or KUBECONFIG"),
        Some(path) if path.as_os_str().is_empty() => {
            Config::incluster().context("--kubeconfig is empty, which asks for the service account of a pod")
        }
        Some(path) => {
            let context = || format!("--kubeconfig {}", path.display());
            let file = Kubeconfig::read_from(path).with_context(context)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.with_context(context)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        client: ClientArgs,
    }

    fn kubeconfig(arguments: &[&str]) -> Option<PathBuf> {
        Program::try_parse_from([&["program"], arguments].concat()).unwrap().client.kubeconfig
    }

    #[test]
    fn the_path_has_also_the_name_of_the_text_and_may_be_empty() {
        assert_eq!(kubeconfig(&[]), None);
        assert_eq!(kubeconfig(&["--kubeconfig", "a"]), Some("a".into()));
        assert_eq!(kubeconfig(&["--kube-path=a"]), Some("a".into()));
        assert_eq!(kubeconfig(&["--kube-path", ""]), Some("".into()));
        assert_eq!(kubeconfig(&["--kube-path="]), Some("".into()));
    }

    #[tokio::test]
    async fn an_empty_path_asks_for_the_service_account_alone() {
        let error = config(Some(Path::new(""))).await.unwrap_err();
        assert!(error.to_string().contains("service account of a pod"), "{error:#}");
        let error = config(Some(Path::new("/not-there"))).await.unwrap_err();
        assert!(error.to_string().contains("--kubeconfig /not-there"), "{error:#}");
    }
}
