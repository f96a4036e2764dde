//! The guard's verdicts in the API server's audit log.

use std::fs;

use kube::{ResourceExt, core::DynamicObject};
use serde_json::Value;
use tenure_testbed::eventually;
use tenure_tests::{DEADLINE, World};

/// The webhooks of the guard.
#[derive(Clone, Copy)]
pub enum Webhook {
    Pods,
    Evictions,
}

/// Its verdicts on a pod so far: the audit annotations of each, without its own name in front.
pub fn verdicts(world: &World, webhook: Webhook, pod: &DynamicObject) -> Vec<Value> {
    let prefix = match webhook {
        Webhook::Pods => "pods.guard.tenure.dev/",
        Webhook::Evictions => "evictions.guard.tenure.dev/",
    };
    let log = fs::read_to_string(world.cluster.audit_log()).unwrap();
    // the last line may be half written
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_pod = |entry: &Value| {
        entry["stage"] == "ResponseComplete"
            && entry["objectRef"]["resource"] == "pods"
            && entry["objectRef"]["name"] == pod.name_any()
            && entry["objectRef"]["namespace"].as_str() == pod.namespace().as_deref()
    };
    let annotations = |entry: Value| {
        let all = entry["annotations"].as_object().cloned().unwrap_or_default();
        let ours = all.into_iter().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.into(), value)));
        Some(Value::Object(ours.collect())).filter(|ours| ours.get("verdict").is_some())
    };
    entries.filter(of_pod).filter_map(annotations).collect()
}

/// Waits for a verdict that has all of these annotations. An entry of the log may come a little later than the answer.
pub async fn await_verdict(world: &World, webhook: Webhook, pod: &DynamicObject, expected: &Value) -> Value {
    let has_all = |verdict: &Value| {
        expected.as_object().unwrap().iter().all(|(key, value)| verdict.get(key) == Some(value))
    };
    let found = async || {
        let verdicts = verdicts(world, webhook, pod);
        anyhow::ensure!(verdicts.iter().any(has_all), "there are only {verdicts:?}");
        Ok(verdicts.into_iter().find(has_all))
    };
    eventually(&format!("a verdict with {expected}"), DEADLINE, found).await.unwrap()
}
