//! The spans of programs with the feature `opentelemetry`: by the SDK, over gRPC.

use std::time::SystemTime;

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};
use http::HeaderMap;
use jiff::Timestamp;
use opentelemetry::{
    Context, KeyValue, global,
    propagation::{Extractor, TextMapPropagator},
    trace::{Span, SpanKind, TraceContextExt, Tracer},
};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};

/// The name of the library in each span.
const LIBRARY: &str = "tenure";

/// The SDK at work.
#[derive(Debug)]
pub struct Provider(SdkTracerProvider);

impl Drop for Provider {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "The last spans weren't sent");
        }
    }
}

pub fn start(program: &'static str) -> anyhow::Result<Provider> {
    let exporter = SpanExporter::builder().with_tonic().build()?;
    let attributes = [KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    let resource = Resource::builder().with_service_name(program).with_attributes(attributes).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    global::set_tracer_provider(provider.clone());
    Ok(Provider(provider))
}

/// The headers of a request, which may name the caller's span.
struct Headers<'h>(&'h HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

/// Answers a request within a span. Other paths than those of the server have none.
pub async fn answer(request: Request, next: Next) -> Response {
    let Some(path) = request.extensions().get::<MatchedPath>().cloned() else {
        return next.run(request).await;
    };
    let parent = TraceContextPropagator::new().extract(&Headers(request.headers()));
    let tracer = global::tracer(LIBRARY);
    let name = format!("{} {}", request.method(), path.as_str());
    let attributes = [
        KeyValue::new("http.request.method", request.method().as_str().to_owned()),
        KeyValue::new("http.route", path.as_str().to_owned()),
    ];
    let builder = tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
    let mut span = builder.start_with_context(&tracer, &parent);
    let response = next.run(request).await;
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(response.status().as_u16())));
    span.end();
    response
}

/// Returns the context of a span that has ended.
pub fn ended(
    parent: &Context,
    name: &'static str,
    (from, now): (Timestamp, Timestamp),
    attributes: &[(&'static str, &str)],
) -> Context {
    let tracer = global::tracer(LIBRARY);
    let attributes = attributes.iter().map(|(name, value)| KeyValue::new(*name, (*value).to_owned()));
    let builder =
        tracer.span_builder(name).with_start_time(SystemTime::from(from)).with_attributes(attributes);
    let mut span = builder.start_with_context(&tracer, parent);
    span.end_with_timestamp(SystemTime::from(now));
    Context::new().with_remote_span_context(span.span_context().clone())
}
