//! Spans of programs with the feature `opentelemetry`, beside those of a real API server. `make spans` names the collector.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::any_value::Value::StringValue,
    trace::v1::Span,
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, eventually};
use tenure_tests::{
    DEADLINE, World,
    workloads::{Namespace, in_queue, queue, workload},
};
use tonic::{Request, Response, Status, transport::Server};

/// The spans that were sent, with the names of their programs.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut sent = self.0.lock().unwrap();
        for of_program in request.into_inner().resource_spans {
            let attributes = of_program.resource.map(|resource| resource.attributes).unwrap_or_default();
            let name = attributes.into_iter().find(|attribute| attribute.key == "service.name");
            let Some(StringValue(name)) = name.and_then(|name| name.value?.value) else { continue };
            let spans = of_program.scope_spans.into_iter().flat_map(|scope| scope.spans);
            sent.extend(spans.map(|span| (name.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Waits for a span of a program that is a part of a span of another.
    async fn part(&self, (program, name): (&str, &str), of: (&str, &str)) -> (Span, Span) {
        let both = async || {
            let sent = self.0.lock().unwrap();
            let of = sent.iter().filter(|(program, span)| program == of.0 && span.name.starts_with(of.1));
            let parents: Vec<&Span> = of.map(|(_, span)| span).collect();
            let both =
                sent.iter().filter(|(of, span)| of == program && span.name == name).find_map(|(_, span)| {
                    let is_parent = |parent: &&&Span| {
                        parent.trace_id == span.trace_id && parent.span_id == span.parent_span_id
                    };
                    Some((span.clone(), (*parents.iter().find(is_parent)?).clone()))
                });
            Ok(both)
        };
        eventually(&format!("{name} of {program}, a part of {of:?}"), DEADLINE, both).await.unwrap()
    }
}

#[tokio::test]
async fn an_answer_is_a_part_of_the_api_servers_call_and_an_event_of_its_pause() {
    let endpoint = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").expect("run it by `make spans`");
    let address = endpoint.strip_prefix("http://").unwrap();
    let collector = Collector::default();
    let server = Server::builder().add_service(TraceServiceServer::new(collector.clone()));
    tokio::spawn(server.serve(address.parse().unwrap()));
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tracing.yaml");
    let kind = json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "TracingConfiguration", "endpoint": address,
        "samplingRatePerMillion": 1_000_000,
    });
    fs::write(&config, kind.to_string()).unwrap();
    let flags = [("tracing-config-file", config.to_str().unwrap())];
    let cluster = Cluster::start_with_flags("spans", &flags).await.unwrap();
    let world = Box::pin(World::installed_on(cluster, &[], &[])).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    let name = world.namespace().await;
    world.apply(&queue("traced", "2s")).await;
    world.apply(&workload("Deployment", &name, "test", &in_queue("traced"), &Value::Null)).await;
    Namespace::of(&world, &name).await_paused("Deployment", "test").await;

    let (answer, call) = collector.part(("tenure-webhook", "POST /validate"), ("apiserver", "")).await;
    assert!(answer.start_time_unix_nano < answer.end_time_unix_nano, "{answer:?} {call:?}");
    let (event, pause) = collector.part(("tenure-keeper", "event"), ("tenure-keeper", "pause")).await;
    assert!(pause.start_time_unix_nano <= pause.end_time_unix_nano, "{pause:?}");
    assert!(event.end_time_unix_nano >= pause.end_time_unix_nano, "{event:?} {pause:?}");
    let queue = pause.attributes.iter().find(|attribute| attribute.key == "queue").unwrap();
    assert!(format!("{queue:?}").contains("traced"), "{queue:?}");
}
