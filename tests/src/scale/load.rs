//! Reviews at a steady rate, and how long the webhook takes for them. Used to measure the webhook
//! while the cluster is busy.

use std::{
    fs,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use http::{Request, header::CONTENT_TYPE};
use kube::{Client, Config, core::DynamicObject};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::World;

/// The name of the thread that asks, by which `processors` knows it.
pub const THREAD: &str = "reviews";

/// The time at which a review was sent, and the time until its answer.
type Sample = (Instant, Duration);

/// Asks the webhook at a steady rate until it is dropped, whether earlier reviews were answered or
/// not.
pub struct Load {
    samples: Arc<Mutex<Vec<Sample>>>,
    failures: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts to review an update of a queue, `per_second` times a second. The load has a thread of
    /// its own, so that other work of this process isn't measured.
    pub fn start(world: &World, queue: &DynamicObject, per_second: u32) -> Result<Self> {
        let (samples, failures, stop) = (Arc::default(), Arc::default(), Arc::default());
        let asker = Asker {
            config: config(world)?,
            review: review(queue)?,
            between: Duration::from_secs(1) / per_second,
            samples: Arc::clone(&samples),
            failures: Arc::clone(&failures),
            stop: Arc::clone(&stop),
        };
        let thread = thread::Builder::new().name(THREAD.into()).spawn(move || asker.run())?;
        Ok(Self { samples, failures, stop, thread: Some(thread) })
    }

    /// Returns the latencies of the reviews that were sent in a span of time.
    pub fn between(&self, from: Instant, to: Instant) -> Latencies {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = samples.iter().filter(|(sent, _)| (from..to).contains(sent));
        Latencies::of(sent.map(|(_, latency)| *latency).collect())
    }

    /// Ends the load. Blocks until all answers are there. Fails unless all reviews were allowed.
    pub fn end(mut self) -> Result<()> {
        self.stop.store(true, Relaxed);
        let ended = self.thread.take().context("it was started")?.join();
        ended.unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked")))?;
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = self.samples.lock().unwrap_or_else(PoisonError::into_inner).len();
        ensure!(
            failures.is_empty(),
            "{} reviews failed and {answered} were answered; the first failures: {:#?}",
            failures.len(),
            failures.iter().take(5).collect::<Vec<_>>()
        );
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Latencies, the shortest first.
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Sorts latencies.
    pub fn of(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self(latencies)
    }

    /// Returns the number of latencies.
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the latency, in milliseconds, that this percentage of latencies is below. NaN
    /// without latencies.
    pub fn percentile(&self, percent: usize) -> f64 {
        let latency = self.0.get(self.0.len() * percent / 100);
        latency.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
    }
}

/// The thread that asks.
struct Asker {
    config: Config,
    review: Vec<u8>,
    between: Duration,
    samples: Arc<Mutex<Vec<Sample>>>,
    failures: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Asker {
    fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.ask_on())
    }

    /// Asks until it is stopped, and waits for the answers.
    async fn ask_on(self) -> Result<()> {
        let client = Client::try_from(self.config)?;
        // connecting doesn't count
        ask(&client, &self.review).await?;
        let mut answers = tokio::task::JoinSet::new();
        let mut each = interval(self.between);
        each.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.stop.load(Relaxed) {
            each.tick().await;
            let (client, review) = (client.clone(), self.review.clone());
            let (samples, failures) = (Arc::clone(&self.samples), Arc::clone(&self.failures));
            answers.spawn(async move {
                let sent = Instant::now();
                let asked = ask(&client, &review).await;
                let latency = sent.elapsed();
                match asked {
                    Ok(()) => samples.lock().unwrap_or_else(PoisonError::into_inner).push((sent, latency)),
                    Err(error) => {
                        let failure = format!("after {latency:?}: {error:#}");
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                    }
                }
            });
            while let Some(answered) = answers.try_join_next() {
                answered?;
            }
        }
        answers.join_all().await;
        Ok(())
    }
}

/// Sends a review, which must be allowed.
async fn ask(client: &Client, review: &[u8]) -> Result<()> {
    let request = Request::post("/validate?timeout=10s").header(CONTENT_TYPE, "application/json");
    let answer = client.request_text(request.body(review.to_vec())?).await?;
    ensure!(answer.contains(r#""allowed":true"#), "the webhook answered {answer}");
    Ok(())
}

/// Returns the configuration of a client of the webhook.
fn config(world: &World) -> Result<Config> {
    let authority = fs::read(world.cluster.directory().join("webhook/ca.crt"))?;
    let mut config = Config::new(world.tenure.webhook_url().parse()?);
    config.root_cert = Some(vec![CertificateDer::from_pem_slice(&authority)?.to_vec()]);
    config.default_retry = false;
    Ok(config)
}

/// Returns the review that the API server would send for a `kubectl apply` of another ceiling.
fn review(queue: &DynamicObject) -> Result<Vec<u8>> {
    let old = serde_json::to_value(queue)?;
    let mut new = old.clone();
    new["spec"]["maxDuration"] = json!("36h");
    let kind = json!({"group": "scheduler.tensorstack.dev", "version": "v1beta1", "kind": "Queue"});
    let resource = json!({"group": "scheduler.tensorstack.dev", "version": "v1beta1", "resource": "queues"});
    let review: Value = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "UPDATE", "dryRun": false,
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "namespace": queue.metadata.namespace, "name": queue.metadata.name,
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": new, "oldObject": old,
            "options": {"kind": "PatchOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl"},
        },
    });
    Ok(review.to_string().into_bytes())
}
