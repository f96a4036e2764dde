//! Prints what happens to objects as it happens. A scene polls with [`Timeline::until`], and each
//! state and event is printed once, with the seconds since the scene began.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tenure_testbed::eventually;

/// The longest time for a step of a scene.
const DEADLINE: Duration = Duration::from_mins(1);

/// The lines that were printed so far, and the source of the next ones.
pub(super) struct Timeline {
    pods: Api<Pod>,
    events: Api<Event>,
    started: Instant,
    /// The last state of each object that was printed.
    states: BTreeMap<String, String>,
    /// The events that were printed, by name and count.
    printed_events: BTreeSet<String>,
    /// Prefixes of the names of the pods that are shown.
    names: &'static [&'static str],
    /// Reasons of the events that are shown.
    reasons: &'static [&'static str],
    /// The time at which each pod got its node, by the API server's clock, in whole seconds.
    pub(super) scheduled: BTreeMap<String, Timestamp>,
}

impl Timeline {
    /// Creates the timeline of the default namespace's pods with these prefixes, and events of
    /// these reasons.
    pub(super) fn new(
        client: &Client,
        names: &'static [&'static str],
        reasons: &'static [&'static str],
    ) -> Self {
        Self {
            pods: Api::default_namespaced(client.clone()),
            events: Api::default_namespaced(client.clone()),
            started: Instant::now(),
            states: BTreeMap::new(),
            printed_events: BTreeSet::new(),
            names,
            reasons,
            scheduled: BTreeMap::new(),
        }
    }

    /// Prints pods and events, and what `print_more` prints, until `print_more` returns true. `what`
    /// is awaited, for the error.
    pub(super) async fn until(
        &mut self,
        what: &str,
        mut print_more: impl AsyncFnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        eventually(what, DEADLINE, async || {
            self.print_pods().await?;
            self.print_events().await?;
            Ok(print_more(self).await?.then_some(()))
        })
        .await?;
        // what has come since
        self.print_events().await
    }

    /// Prints the state of an object, unless it is the one that was printed last.
    pub(super) fn print_state(&mut self, object: &str, state: &str) {
        if self.states.get(object).is_none_or(|last| last != state) {
            println!("{:>7.1} s  {object} {state}", self.started.elapsed().as_secs_f64());
            self.states.insert(object.to_owned(), state.to_owned());
        }
    }

    /// True if the state of an object that was printed last is this one.
    pub(super) fn is(&self, object: &str, state: &str) -> bool {
        self.states.get(object).is_some_and(|last| last == state)
    }

    /// Returns the number of events of a reason in the namespace.
    pub(super) async fn events_of(&self, reason: &str) -> Result<usize> {
        Ok(self.events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?.items.len())
    }

    /// Prints the states of the pods that have changed, and the pods that are gone.
    async fn print_pods(&mut self) -> Result<()> {
        let mut pods = self.pods.list(&ListParams::default()).await?.items;
        pods.retain(|pod| self.names.iter().any(|name| pod.name_any().starts_with(name)));
        let are_there: BTreeSet<String> = pods.iter().map(|pod| format!("pod {}", pod.name_any())).collect();
        for pod in &pods {
            let scheduled = condition(pod, "PodScheduled");
            if let Some((true, at)) = scheduled {
                self.scheduled.entry(pod.name_any()).or_insert(at);
            }
            self.print_state(
                &format!("pod {}", pod.name_any()),
                &state(pod, scheduled.is_some_and(|(is, _)| is)),
            );
        }
        let is_gone = |object: &&String| object.starts_with("pod ") && !are_there.contains(*object);
        let gone: Vec<String> = self.states.keys().filter(is_gone).cloned().collect();
        for object in gone {
            self.print_state(&object, "is gone");
        }
        Ok(())
    }

    /// Prints new events, and new occurrences of events that repeat.
    async fn print_events(&mut self) -> Result<()> {
        for event in self.events.list(&ListParams::default()).await?.items {
            let reason = event.reason.as_deref().unwrap_or_default();
            let key = format!("{}/{}", event.name_any(), event.series.map_or(1, |series| series.count));
            if self.reasons.contains(&reason) && self.printed_events.insert(key) {
                let about = event.regarding.unwrap_or_default();
                let (kind, name) = (about.kind.unwrap_or_default(), about.name.unwrap_or_default());
                let note = event.note.unwrap_or_default();
                println!(
                    "{:>7.1} s  event {reason} on {kind} {name}: {note}",
                    self.started.elapsed().as_secs_f64()
                );
            }
        }
        Ok(())
    }
}

/// Returns whether a condition of a pod holds, and since when. None: the pod has no condition of
/// this name.
fn condition(pod: &Pod, name: &str) -> Option<(bool, Timestamp)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == name)?;
    Some((condition.status == "True", condition.last_transition_time.as_ref()?.0))
}

/// Returns the state of a pod, for people.
fn state(pod: &Pod, is_scheduled: bool) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        "is terminating".into()
    } else if condition(pod, "Ready").is_some_and(|(is_ready, _)| is_ready) {
        format!("runs on {node}")
    } else if is_scheduled {
        format!("is on {node}, and isn't ready")
    } else {
        "waits for a node".into()
    }
}
