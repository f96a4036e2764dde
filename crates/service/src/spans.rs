//! Spans for a collector of OpenTelemetry: of the answers of the webhook, and of ends of runs from
//! due to event.
//!
//! Only programs that are built with the feature `opentelemetry` have them; in the others all of
//! this is empty. `run` of keeper and webhook calls [`start`]. The SDK reads the variables
//! `OTEL_…` of the environment: endpoint, sampler, and limits.

use axum::Router;
use jiff::Timestamp;

#[cfg(feature = "opentelemetry")]
mod exported;

/// The variables of the environment that name a collector.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Sends spans until it is dropped, which waits until the last ones are sent.
#[derive(Debug, Default)]
#[must_use]
pub struct Spans {
    #[cfg(feature = "opentelemetry")]
    _provider: Option<exported::Provider>,
}

/// A span that has ended, of which others can be a part. Empty in programs without spans.
#[derive(Clone, Debug, Default)]
pub struct Span {
    #[cfg(feature = "opentelemetry")]
    context: opentelemetry::Context,
}

/// Sends the spans of a program from now on, if the environment names a collector. Fails if its
/// address can't be used.
#[cfg_attr(
    not(feature = "opentelemetry"),
    allow(clippy::unnecessary_wraps, unused_variables, reason = "it fails where spans are sent")
)]
pub fn start(program: &'static str) -> anyhow::Result<Spans> {
    let Some(endpoint) = ENDPOINTS.into_iter().find(|name| std::env::var_os(name).is_some()) else {
        return Ok(Spans::default());
    };
    #[cfg(not(feature = "opentelemetry"))]
    {
        tracing::warn!("{endpoint} is set, but this program is built without the feature opentelemetry");
        Ok(Spans::default())
    }
    #[cfg(feature = "opentelemetry")]
    {
        use anyhow::Context;
        let provider = exported::start(program).with_context(|| format!("{endpoint} can't be used"))?;
        Ok(Spans { _provider: Some(provider) })
    }
}

/// Has each answer of a server counted as a span, a part of the caller's own if the request says so.
pub fn of_answers(router: Router) -> Router {
    #[cfg(feature = "opentelemetry")]
    let router = router.layer(axum::middleware::from_fn(exported::answer));
    router
}

#[cfg_attr(not(feature = "opentelemetry"), allow(unused_variables, reason = "nothing is sent"))]
impl Span {
    /// Sends a span of its own, which took from one time to another. `attributes` are names and
    /// values.
    pub fn whole(
        name: &'static str,
        times: (Timestamp, Timestamp),
        attributes: &[(&'static str, &str)],
    ) -> Self {
        Self {
            #[cfg(feature = "opentelemetry")]
            context: exported::ended(&opentelemetry::Context::new(), name, times, attributes),
        }
    }

    /// Sends a part of this span. Of a default span, the part is one of its own.
    pub fn part(
        &self,
        name: &'static str,
        times: (Timestamp, Timestamp),
        attributes: &[(&'static str, &str)],
    ) {
        #[cfg(feature = "opentelemetry")]
        exported::ended(&self.context, name, times, attributes);
    }
}
