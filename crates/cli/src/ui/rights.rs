//! What the user may do to a workload, and the events about it.
//!
//! Called by the server when a page shows one workload. The API server is asked each time, so that
//! the page shows no button for which the user lacks the right.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{Api, Client, api::ListParams};
use serde::Serialize;
use serde_json::Value;
use tenure_policy::kueue;
use tenure_types::{extension, projection::Event};

use crate::{access::you_may, cluster::ResourceKinds, print::printable};

/// The largest number of events of a workload that are shown.
const EVENTS: usize = 20;

/// An event about a workload. Its texts are printable.
#[derive(Debug, Serialize)]
pub struct WorkloadEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    reason: String,
    message: String,
}

/// Returns the verb of the command that changes the workload of a row. None: no command is for its state.
pub fn verb_of(row: &Value) -> Option<&'static str> {
    match row.get("state")?.as_str()? {
        "Paused" => Some("resume"),
        "Requeueing" => Some("requeue"),
        "Inactive" => Some("activate"),
        "Running" if row.get("expiresAt").is_some() => Some("extend"),
        _ => None,
    }
}

/// True if the user has the right that a command needs for the workload of a row.
pub async fn may(client: &Client, verb: &str, row: &Value) -> Result<bool> {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
    let right = ResourceAttributes {
        namespace: Some(text("namespace").into()),
        ..if verb == "extend" {
            ResourceAttributes {
                verb: Some("create".into()),
                group: Some(extension::GROUP.into()),
                resource: Some("extensions".into()),
                ..ResourceAttributes::default()
            }
        } else {
            // the present kinds: a kind may have been installed since the start
            let kinds = ResourceKinds::discover(client).await?;
            let of_kueue = row.get("kueueWorkload").and_then(Value::as_str);
            let (kind, name) = match of_kueue {
                Some(name) => (kinds.find(kueue::GROUP, kueue::WORKLOAD), name),
                None => (kinds.version(text("apiVersion"), text("kind")), text("name")),
            };
            let Some(kind) = kind else { return Ok(false) };
            ResourceAttributes {
                verb: Some("patch".into()),
                group: Some(kind.resource.group.clone()),
                resource: Some(kind.resource.plural.clone()),
                name: Some(name.into()),
                ..ResourceAttributes::default()
            }
        }
    };
    you_may(client, right).await
}

/// Returns the last events about the workload of a row, the latest first. Empty if the user may
/// not list them.
pub async fn events(client: &Client, row: &Value) -> Vec<WorkloadEvent> {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
    let selector = format!("involvedObject.kind={},involvedObject.name={}", text("kind"), text("name"));
    let api: Api<Event> = Api::namespaced(client.clone(), text("namespace"));
    let listed = api.list(&ListParams::default().fields(&selector)).await;
    let listed = listed.map(|list| list.items).unwrap_or_default();
    let mut events: Vec<WorkloadEvent> = listed.into_iter().map(WorkloadEvent::read).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    events.truncate(EVENTS);
    events
}

impl WorkloadEvent {
    fn read(event: Event) -> Self {
        let [reason, message] = [event.reason, event.message].map(Option::unwrap_or_default);
        let created = event.metadata.creation_timestamp.map(|at| at.0);
        Self { at: event.event_time.or(created), reason: printable(&reason), message: printable(&message) }
    }
}
