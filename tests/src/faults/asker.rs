//! Requests to a webhook, again and again, each with a connection of its own. They cover
//! validation, conversion, the guard and the scheduler extender.

use std::{pin::pin, time::Duration};

use anyhow::{Result, ensure};
use futures::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, interval, timeout},
};

use super::{Diary, servers::Server};
use crate::{World, callers::Caller};

/// The longest time for an answer. The API server waits ten seconds unless a configuration says
/// otherwise.
const IN_TIME: Duration = Duration::from_secs(10);

/// The time from one round of requests to the next.
const BETWEEN: Duration = Duration::from_millis(300);

/// The uid of all reviews, which the answers repeat.
const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// A request, and the check of its answer.
struct Question {
    path: &'static str,
    body: Value,
    is_right: fn(&Value) -> bool,
}

/// The results of all requests so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// The number of rounds.
    pub asked: u64,
    /// The requests without a right answer.
    pub failed: Vec<Failed>,
    /// The longest time of a round.
    pub slowest: Duration,
}

/// A request that had no right answer in time.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// The time at which its round began.
    pub asked: Timestamp,
    /// The time at which its round was over.
    pub answered: Timestamp,
    pub error: String,
}

/// Asks a webhook on a port of loopback.
pub(super) struct Asker<'w> {
    world: &'w World,
    url: String,
    questions: Vec<Question>,
    /// The number of rounds that are over.
    rounds: watch::Sender<u64>,
}

impl<'w> Asker<'w> {
    pub fn new(world: &'w World, port: u16) -> Self {
        let questions = vec![
            Question { path: "/validate", body: review("1d"), is_right: |answer| is_allowed(answer, true) },
            Question {
                path: "/validate",
                body: review("soon"),
                is_right: |answer| is_allowed(answer, false),
            },
            Question { path: "/convert", body: conversion(), is_right: is_converted },
            Question {
                path: "/guard",
                body: deletion(),
                is_right: |answer| answer["response"]["uid"] == UID,
            },
            Question {
                path: "/scheduler/preempt",
                body: json!({"Pod": {"metadata": {"uid": "u"}}, "NodeNameToMetaVictims": {}}),
                is_right: |answer| answer["NodeNameToMetaVictims"].is_object(),
            },
        ];
        Self { world, url: format!("https://127.0.0.1:{port}"), questions, rounds: watch::Sender::default() }
    }

    /// Sends all requests, each twice: the two answers must be the same. Returns the errors, and
    /// the time of the round.
    pub async fn ask(&self) -> (Vec<String>, Duration) {
        let began = Instant::now();
        let errors = join_all(self.questions.iter().map(|question| async {
            let both = timeout(IN_TIME, async {
                let first = self.ask_once(question).await?;
                let second = self.ask_once(question).await?;
                ensure!(first == second, "the same question was answered by {first} and by {second}");
                Ok(())
            });
            let answered = both.await.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in {IN_TIME:?}")));
            answered.err().map(|error| format!("{}: {error:#}", question.path))
        }));
        (errors.await.into_iter().flatten().collect(), began.elapsed())
    }

    /// Sends a request, and returns the answer if it is right.
    async fn ask_once(&self, question: &Question) -> Result<Value> {
        let caller = Caller::at(self.world, &self.url, None);
        let (status, text) = caller.post(question.path, question.body.to_string()).await?;
        ensure!(status == StatusCode::OK, "{status}: {text}");
        let answer: Value = serde_json::from_str(&text)?;
        ensure!((question.is_right)(&answer), "{answer}");
        Ok(answer)
    }

    /// Waits until `number` rounds were begun after this call and are over.
    pub async fn more_rounds(&self, number: u64) {
        let mut rounds = self.rounds.subscribe();
        // the present round has begun before
        let enough = *rounds.borrow() + 1 + number;
        // an error would mean that this asker is gone
        let _ = rounds.wait_for(|rounds| *rounds >= enough).await;
    }

    /// Asks again and again, until `end` is done. While a blow has ended the process, no round
    /// begins.
    pub async fn ask_until<T>(
        &self,
        server: &Server,
        diary: &Diary,
        end: impl Future<Output = T>,
    ) -> (T, Answers) {
        let mut answers = Answers::default();
        let mut rounds = interval(BETWEEN);
        let mut end = pin!(end);
        loop {
            tokio::select! {
                result = &mut end => return (result, answers),
                _ = rounds.tick() => {}
            }
            if !server.is_started().await {
                continue;
            }
            let at = Timestamp::now();
            let (errors, took) = tokio::select! {
                result = &mut end => return (result, answers),
                asked = self.ask() => asked,
            };
            let answered = Timestamp::now();
            answers.asked += 1;
            answers.slowest = answers.slowest.max(took);
            for error in errors {
                diary.note(format!("no right answer: {error}"));
                answers.failed.push(Failed { asked: at, answered, error });
            }
            self.rounds.send_modify(|rounds| *rounds += 1);
        }
    }
}

fn is_allowed(answer: &Value, expected: bool) -> bool {
    answer["response"]["uid"] == UID && answer["response"]["allowed"] == expected
}

fn is_converted(answer: &Value) -> bool {
    let response = &answer["response"];
    response["uid"] == UID
        && response["result"]["status"] == "Success"
        && response["convertedObjects"][0]["apiVersion"] == "scheduling.run.ai/v2"
}

/// Returns a queue with this ceiling.
fn queue(max_duration: &str) -> Value {
    json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "asked"},
        "spec": {"maxDuration": max_duration},
    })
}

/// Returns the review of a queue's creation.
fn review(max_duration: &str) -> Value {
    let kind = json!({"group": "scheduling.run.ai", "version": "v3alpha1", "kind": "Queue"});
    let resource = json!({"group": "scheduling.run.ai", "version": "v3alpha1", "resource": "queues"});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "operation": "CREATE", "dryRun": true, "kind": kind, "resource": resource,
            "name": "asked", "userInfo": {"username": "admin"}, "object": queue(max_duration), "oldObject": null,
        },
    })
}

/// Returns the review of a pod's deletion by kube-scheduler.
fn deletion() -> Value {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "asked", "namespace": "default", "uid": UID},
        "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
    });
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "operation": "DELETE", "dryRun": true, "namespace": "default", "name": "asked",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "userInfo": {"username": "system:kube-scheduler"}, "object": null, "oldObject": pod,
        },
    })
}

/// Returns the conversion of a queue to v2.
fn conversion() -> Value {
    json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": UID, "desiredAPIVersion": "scheduling.run.ai/v2", "objects": [queue("1d")]},
    })
}
