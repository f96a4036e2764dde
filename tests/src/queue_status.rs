//! The keeper's part of a queue's status.

use serde_json::{Value, json};
use tenure_testbed::eventually;

use crate::{DEADLINE, World, queues::read};

/// Queues of the run.ai family, as kubectl names them.
pub const V3: &str = "queues.v3alpha1.scheduling.run.ai";

/// Returns a queue of the run.ai family with some spec.
pub fn with(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

/// Returns the status of a queue. Null: it has none.
pub async fn status(world: &World, name: &str) -> Value {
    read(&world.cluster, V3, name).await["status"].take()
}

/// Waits until the status of a queue is as expected; returns it.
pub async fn await_status(world: &World, name: &str, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let found = async || Ok(Some(status(world, name).await).filter(&is_right));
    eventually(&format!("the status of {name} to have {what}"), DEADLINE, found).await.unwrap()
}

/// Waits until this many workloads of a queue are running, protected and paused; returns its status.
pub async fn await_counts(world: &World, name: &str, [running, protected, paused]: [u32; 3]) -> Value {
    let counts = json!({"running": running, "protected": protected, "paused": paused, "requeueing": 0});
    let is_so = |status: &Value| {
        let mut workloads = status["workloads"].clone();
        let runs = workloads.as_object_mut().and_then(|fields| fields.remove("runs"));
        let last =
            runs.as_ref().and_then(|runs| runs.as_array()?.last().map(|last| last["workloads"].clone()));
        workloads == counts && last.unwrap_or_else(|| json!(0)) == counts["running"]
    };
    await_status(world, name, &counts.to_string(), is_so).await
}
