//! Reviews a second and their latency, over TLS on the loopback, beside a server that doesn't review:
//! `cargo bench -p tenure-webhook`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failed step is a failed bench"
)]

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/tls.rs"]
mod tls;

use std::time::{Duration, Instant};

use axum::{
    Router,
    body::Bytes,
    http::{Request, StatusCode, header::CONTENT_TYPE, header::HOST},
    routing::post,
};
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tenure_certs::Authority;
use tenure_service::watch::Store;
use tenure_types::projection::RunaiQueueObject;
use tenure_webhook::KnownQueues;
use tls::{Server, connect, eventually};

const CONNECTIONS: usize = 25;
/// The number of rounds: many and short, so that other work on the machine spoils a few of both kinds, and the median
/// stays.
const ROUNDS: usize = 9;
/// A fuse: no connection of a round asks more than this.
const MOST_REQUESTS: usize = 200_000;
const QUEUES: usize = 500;

/// The durations of the parts of a run.
struct Pace {
    warm_up: Duration,
    crowded: Duration,
    alone: Duration,
}

impl Pace {
    /// As `cargo test --benches` has no use for numbers, it gets a run that only shows that this works.
    fn from_env() -> Self {
        let measured = std::env::args().any(|argument| argument == "--bench");
        let [warm_up, crowded, alone] = if measured { [500, 1_400, 350] } else { [20, 20, 10] };
        Self {
            warm_up: Duration::from_millis(warm_up),
            crowded: Duration::from_millis(crowded),
            alone: Duration::from_millis(alone),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let pace = Pace::from_env();
    let authority = Authority::new("bench")?;
    let directory = tempfile::tempdir()?;
    authority.server(&["localhost".to_owned()])?.write(directory.path())?;
    let serve = |router| tls::serve(router, directory.path(), &["--drain-delay", "0s"]);

    for subject in [Subject::queue("24h", "36h"), Subject::queue("36h", "24h"), Subject::pod_group()] {
        let webhook = serve(support::webhook(queues()));
        let answer = first_answer(&webhook, &authority, &subject).await?;
        (subject.check)(&serde_json::from_slice::<Value>(&answer)?["response"])?;
        let fixed = Bytes::from(vec![b'.'; answer.len()]);
        let control = serve(control(subject.path, fixed.clone()));

        let webhook = Target { server: webhook, answer, subject: &subject, authority: &authority };
        let control = Target { server: control, answer: fixed, subject: &subject, authority: &authority };
        introduce(&webhook);
        run(&pace, &webhook, &control).await?;
        for Target { server, .. } in [webhook, control] {
            server.shutdown.cancel();
            server.ended.await??;
        }
        println!();
    }
    Ok(())
}

/// A question, and the path for it.
struct Subject {
    /// The webhook's act, for the output.
    operation: String,
    path: &'static str,
    question: Bytes,
    check: fn(&Value) -> anyhow::Result<()>,
}

impl Subject {
    /// An administrator's `kubectl apply` of a new ceiling.
    fn queue(old: &str, new: &str) -> Self {
        let mut review = support::review("scheduling.run.ai", "UPDATE", &queue(new), &queue(old));
        review["request"]["name"] = json!("team-7");
        Self {
            operation: format!(
                "reviews an UPDATE of a Queue's maxDuration from {old} to {new} and admits it; {QUEUES} queues are known, each with workloads that run"
            ),
            path: "/validate",
            question: review.to_string().into(),
            check: |response| {
                let expected = json!({"uid": support::UID, "allowed": true});
                anyhow::ensure!(*response == expected, "{response}");
                Ok(())
            },
        }
    }

    fn pod_group() -> Self {
        Self {
            operation:
                "reviews an UPDATE of a PodGroup, and puts back the start time that a tenant has changed"
                    .into(),
            path: "/mutate",
            question: forged().to_string().into(),
            check: |response| {
                let is_patched = response["patchType"] == "JSONPatch" && response["allowed"] == true;
                anyhow::ensure!(is_patched, "{response}");
                Ok(())
            },
        }
    }
}

fn introduce(webhook: &Target<'_>) {
    let Subject { operation: deed, question, .. } = webhook.subject;
    println!("webhook  {deed}: {} bytes of AdmissionReview", question.len());
    println!(
        "control  the same server and client, but a route that reads the same body and answers {} fixed bytes",
        webhook.answer.len()
    );
    println!(
        "both     over TLS on the loopback, HTTP/1.1 keep-alive, client and servers in one process on {} processors; each connection asks again as soon as it is answered",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    println!("         latency is what the client sees, from a request to the end of its answer");
    println!("Only the ratios can be compared between machines.");
}

async fn run(pace: &Pace, webhook: &Target<'_>, control: &Target<'_>) -> anyhow::Result<()> {
    for (connections, duration) in [(CONNECTIONS, pace.crowded), (1, pace.alone)] {
        for target in [webhook, control] {
            target.measure(connections, pace.warm_up).await?;
        }
        println!();
        println!("{connections:>2} connection(s)      webhook                          control");
        println!("                reviews/s   p50 ms   p99 ms     answers/s   p50 ms   p99 ms");
        let (mut reviews, mut answers) = (Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            let pair = (
                webhook.measure(connections, duration).await?,
                control.measure(connections, duration).await?,
            );
            row(&format!("round {round}"), &pair.0, &pair.1);
            reviews.push(pair.0);
            answers.push(pair.1);
        }
        row("median", &medians(&reviews), &medians(&answers));
        ratios(&reviews, &answers);
    }
    Ok(())
}

/// The results of one round.
struct Measured {
    per_second: f64,
    p50: f64,
    p99: f64,
}

type Part = fn(&Measured) -> f64;

fn row(name: &str, webhook: &Measured, control: &Measured) {
    let part =
        |Measured { per_second, p50, p99 }: &Measured| format!("{per_second:>9.0} {p50:>8.3} {p99:>8.3}");
    println!("{name:<14} {}     {}", part(webhook), part(control));
}

fn ratios(webhook: &[Measured], control: &[Measured]) {
    let parts: [(&str, Part); 3] =
        [("throughput", |round| round.per_second), ("p50", |round| round.p50), ("p99", |round| round.p99)];
    for (name, part) in parts {
        let rounds: Vec<f64> =
            webhook.iter().zip(control).map(|(webhook, control)| part(webhook) / part(control)).collect();
        println!(
            "ratio of {name:<10} webhook / control {:.2} (of the medians; rounds from {:.2} to {:.2})",
            part(&medians(webhook)) / part(&medians(control)),
            rounds.iter().copied().fold(f64::INFINITY, f64::min),
            rounds.iter().copied().fold(0.0, f64::max),
        );
    }
}

fn medians(rounds: &[Measured]) -> Measured {
    let median = |part: Part| {
        let mut values: Vec<f64> = rounds.iter().map(part).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Measured {
        per_second: median(|round| round.per_second),
        p50: median(|round| round.p50),
        p99: median(|round| round.p99),
    }
}

/// A server, with the question to ask it and the expected answer.
struct Target<'a> {
    server: Server,
    subject: &'a Subject,
    answer: Bytes,
    authority: &'a Authority,
}

impl Target<'_> {
    /// Asks over this many connections for this long. Neither connecting counts nor the first questions: the tickets of
    /// TLS are still on the way then.
    async fn measure(&self, connections: usize, duration: Duration) -> anyhow::Result<Measured> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let mut client = client(&self.server, self.authority).await?;
            ask(&mut client, self.subject).await?;
            clients.push(client);
        }
        let begin = Instant::now();
        let end = begin + duration;
        let asked = clients.into_iter().map(|client| {
            let question = (self.subject.path, self.subject.question.clone());
            let answer = self.answer.clone();
            async move { tokio::spawn(ask_until(end, client, question, answer)).await? }
        });
        let mut latencies: Vec<Duration> = try_join_all(asked).await?.concat();
        let elapsed = begin.elapsed();
        latencies.sort_unstable();
        let at = |quantile: usize| {
            let latency = latencies.get(latencies.len() * quantile / 100);
            latency.map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        Ok(Measured {
            per_second: f64::from(u32::try_from(latencies.len())?) / elapsed.as_secs_f64(),
            p50: at(50),
            p99: at(99),
        })
    }
}

async fn ask_until(
    end: Instant,
    mut client: SendRequest<Full<Bytes>>,
    (path, question): (&str, Bytes),
    answer: Bytes,
) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    while latencies.len() < MOST_REQUESTS {
        let begin = Instant::now();
        if begin >= end {
            break;
        }
        let heard = ask_at(path, &mut client, question.clone()).await?;
        latencies.push(begin.elapsed());
        anyhow::ensure!(heard == answer, "unexpected answer {heard:?}");
    }
    Ok(latencies)
}

async fn ask(client: &mut SendRequest<Full<Bytes>>, subject: &Subject) -> anyhow::Result<Bytes> {
    ask_at(subject.path, client, subject.question.clone()).await
}

async fn ask_at(path: &str, client: &mut SendRequest<Full<Bytes>>, question: Bytes) -> anyhow::Result<Bytes> {
    let request = Request::post(format!("{path}?timeout=10s"))
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(question))?;
    client.ready().await?;
    let response = client.send_request(request).await?;
    anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
    Ok(response.into_body().collect().await?.to_bytes())
}

async fn client(server: &Server, authority: &Authority) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let protocols = ["http/1.1"];
    let stream = connect(server.address, authority.certificate_pem(), &protocols).await?;
    let (client, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn first_answer(server: &Server, authority: &Authority, subject: &Subject) -> anyhow::Result<Bytes> {
    server.readiness.ready().await;
    let mut client = eventually("connected", async || client(server, authority).await.ok()).await;
    ask(&mut client, subject).await
}

fn control(path: &str, answer: Bytes) -> Router {
    let read = async move |body: Bytes| {
        std::hint::black_box(body);
        ([(CONTENT_TYPE, "application/json")], answer.clone())
    };
    Router::new().route(path, post(read))
}

/// A tree of three levels, of which the queue under review is a leaf.
fn queues() -> KnownQueues {
    let mut queues = KnownQueues::default();
    // none of them has run for long
    let runs: Vec<Value> = (1..=5)
        .map(
            |running| json!({"startedBefore": format!("209{running}-01-01T00:00:00Z"), "workloads": running}),
        )
        .collect();
    let running = json!({"running": 5, "runs": runs});
    let mut apply = |name: String, spec: Value| {
        let queue = json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec,
            "status": {"workloads": running}});
        queues.apply(serde_json::from_value::<RunaiQueueObject>(queue).unwrap());
    };
    apply("root".into(), json!({"maxDuration": "7d"}));
    for department in 0..9 {
        apply(format!("department-{department}"), json!({"parentQueue": "root", "maxDuration": "5d"}));
    }
    for team in 0..QUEUES - 10 {
        apply(
            format!("team-{team}"),
            json!({"parentQueue": format!("department-{}", team % 9), "maxDuration": "2d"}),
        );
    }
    queues
}

fn queue(ceiling: &str) -> Value {
    let spec = json!({
        "displayName": "Team Seven",
        "parentQueue": "department-7",
        "priority": 100,
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "30m",
        "maxDuration": ceiling,
        "maxDurationAction": "Pause",
        "resources": {
            "cpu": {"quota": 64_000, "overQuotaWeight": 1, "limit": -1},
            "gpu": {"quota": 16.5, "overQuotaWeight": 2, "limit": 64},
            "memory": {"quota": 512_000, "overQuotaWeight": 1, "limit": -1},
        },
    });
    let last_applied = json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"annotations": {}, "name": "team-7"}, "spec": spec});
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1",
        "kind": "Queue",
        "metadata": {
            "name": "team-7",
            "uid": "0f2c1f3e-8f64-4c3e-9d3b-6a8a2c1b7d55",
            "resourceVersion": "184467",
            "generation": 7,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app.kubernetes.io/managed-by": "platform", "team": "seven"},
            "annotations": {"platform.example.com/contact": "team-seven@example.com", "platform.example.com/purpose": "Training of the models that rank what is found", "kubectl.kubernetes.io/last-applied-configuration": last_applied.to_string()},
            "managedFields": [
                {
                    "manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "scheduling.run.ai/v3alpha1",
                    "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
                    "fieldsV1": {
                        "f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}, "f:labels": {".": {}, "f:team": {}}},
                        "f:spec": fields(&spec),
                    },
                },
                {
                    "manager": "quota-controller", "operation": "Apply", "apiVersion": "scheduling.run.ai/v3alpha1",
                    "time": "2026-01-02T03:04:06Z", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:resources": fields(&spec["resources"]), "f:priority": {}}},
                },
                {
                    "manager": "scheduler", "operation": "Update", "apiVersion": "scheduling.run.ai/v3alpha1",
                    "time": "2026-01-02T03:04:06Z", "fieldsType": "FieldsV1", "subresource": "status",
                    "fieldsV1": {"f:status": {"f:allocated": {}, "f:conditions": {}, "f:requested": {}}},
                },
            ],
        },
        "spec": spec,
        "status": {
            "allocated": {"cpu": "48", "memory": "300G", "nvidia.com/gpu": "12"},
            "requested": {"cpu": "96", "memory": "600G", "nvidia.com/gpu": "24"},
            "childQueues": ["team-7-interactive", "team-7-training", "team-7-batch"],
            "conditions": [{"type": "OverQuota", "status": "False", "reason": "WithinQuota", "lastTransitionTime": "2026-01-02T03:04:06Z"}],
        },
    })
}

/// A tenant's update of a group that runs.
fn forged() -> Value {
    let (new, old) = (pod_group("2099-01-01T00:00:00Z"), pod_group("2026-01-02T03:04:05Z"));
    let mut review = support::review("scheduling.run.ai", "UPDATE", &new, &old);
    review["request"]["kind"] =
        json!({"group": "scheduling.run.ai", "version": "v2alpha2", "kind": "PodGroup"});
    review
}

fn pod_group(stamp: &str) -> Value {
    let spec = json!({
        "minMember": 16, "queue": "team-7", "priorityClassName": "train", "markUnschedulable": true,
        "schedulingBackoff": 1, "subGroups": [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 15}],
    });
    let resources = json!({"cpu": "128", "memory": "1024G", "nvidia.com/gpu": "128"});
    let annotations = json!({
        "kai.scheduler/last-start-timestamp": stamp,
        "kai.scheduler/job-id": "0f2c1f3e-8f64-4c3e-9d3b-6a8a2c1b7d55",
        "kai.scheduler/top-owner-metadata": "name: training\nuid: 0f2c1f3e-8f64-4c3e-9d3b-6a8a2c1b7d55\ngroup: batch\nversion: v1\nkind: Job\n",
    });
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": "pg-training-0f2c1f3e-8f64-4c3e-9d3b-6a8a2c1b7d55",
            "namespace": "team-7",
            "uid": "5d5b7c1b-2c6a-4d3b-9c3e-8f640f2c1f3e",
            "resourceVersion": "184467",
            "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"kai.scheduler/queue": "team-7", "team": "seven"},
            "annotations": annotations,
            "managedFields": [
                {
                    "manager": "podgrouper", "operation": "Update", "apiVersion": "scheduling.run.ai/v2alpha2",
                    "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:annotations": fields(&annotations), "f:labels": {".": {}, "f:team": {}}}, "f:spec": fields(&spec)},
                },
                {
                    "manager": "podgroupcontroller", "operation": "Update", "apiVersion": "scheduling.run.ai/v2alpha2",
                    "time": "2026-01-02T03:04:06Z", "fieldsType": "FieldsV1", "subresource": "status",
                    "fieldsV1": {"f:status": {"f:resourcesStatus": {"f:allocated": fields(&resources), "f:requested": fields(&resources)}}},
                },
            ],
        },
        "spec": spec,
        "status": {"resourcesStatus": {"allocated": resources, "requested": resources}},
    })
}

/// The managed fields that server-side apply writes.
fn fields(value: &Value) -> Value {
    let Some(object) = value.as_object() else {
        return json!({});
    };
    object.iter().map(|(name, value)| (format!("f:{name}"), fields(value))).collect()
}
