//! The readiness of a process, and the conditions that it waits for. `run` of each server makes one
//! [`ProcessReadiness`], each watch and measurement adds a condition, and `/readyz` of the [admin
//! port](crate::admin) shows the reason of an unready process.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::freshness::{Freshness, WatchFreshness};

/// The conditions that a process waits for. A process is also unready while a required watch is too
/// stale, and once it [drains](Self::drain). Clones share the conditions.
#[derive(Clone, Debug, Default)]
pub struct ProcessReadiness {
    /// The conditions that aren't met, by their name.
    awaited: Arc<watch::Sender<BTreeSet<String>>>,
    /// True once the process is about to end.
    draining: Arc<AtomicBool>,
    /// The freshness of the watches of the process.
    pub freshness: Freshness,
    /// The longest time without an answer to a required watch. None: a process with stale watches
    /// is ready all the same.
    max_staleness: Option<Duration>,
}

/// A condition that a process waits for. Conditions of the same name are one.
#[derive(Clone, Debug)]
pub struct AwaitedCondition {
    /// The name of the condition: for watches the kind, as people read it.
    pub(crate) what: String,
    readiness: ProcessReadiness,
}

impl ProcessReadiness {
    /// Creates the readiness of a process that is unready while a required watch has had no answer
    /// for longer than this.
    pub fn with_max_staleness(max_staleness: Duration) -> Self {
        Self { max_staleness: Some(max_staleness), ..Self::default() }
    }

    /// Returns a handle for conditions that don't delay readiness. Its watches count in the
    /// freshness of the process.
    #[must_use]
    pub fn without_waiting(&self) -> Self {
        Self { awaited: Arc::default(), ..self.clone() }
    }

    /// Adds a condition: the process is unready until [`AwaitedCondition::done`].
    pub fn awaiting(&self, what: impl Into<String>) -> AwaitedCondition {
        let what = what.into();
        self.awaited.send_modify(|awaited| {
            awaited.insert(what.clone());
        });
        AwaitedCondition { what, readiness: self.clone() }
    }

    /// Returns once no condition is left. Neither staleness nor draining matters here.
    pub async fn ready(&self) {
        // an error would mean that the sender is gone, but here it is
        let _ = self.awaited.subscribe().wait_for(BTreeSet::is_empty).await;
    }

    /// Makes the process unready from now on: it is about to end.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// True if the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Returns the reason why the process is unready, for people. None: it is ready.
    pub fn reason(&self) -> Option<String> {
        if self.is_draining() {
            return Some("shutting down".into());
        }
        let waiting = self.awaited().map(|awaited| format!("waiting for {awaited}"));
        waiting.or_else(|| {
            let (kind, age) = self.freshness.stalest(self.max_staleness?)?;
            Some(format!("no answer to the watch of {kind} for {} s", age.as_secs()))
        })
    }

    /// Returns the conditions that are left, separated by commas. None: no condition is left.
    pub fn awaited(&self) -> Option<String> {
        let awaited = self.awaited.borrow();
        (!awaited.is_empty()).then(|| awaited.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

impl AwaitedCondition {
    /// Adds a watch of the condition's name to the freshness of the process.
    pub fn watch(&self, is_required: bool) -> WatchFreshness {
        self.readiness.freshness.watch(&self.what, is_required)
    }

    /// Marks the condition as met.
    pub fn done(&self) {
        self.set(true);
    }

    /// Marks the condition as met, or as no longer met.
    pub fn set(&self, met: bool) {
        self.readiness.awaited.send_if_modified(|awaited| {
            if met { awaited.remove(&self.what) } else { awaited.insert(self.what.clone()) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_is_when_nothing_is_awaited() {
        let readiness = ProcessReadiness::default();
        assert_eq!(readiness.reason(), None);
        let (pods, queues) = (readiness.awaiting("pods"), readiness.awaiting("queues"));
        assert_eq!(readiness.reason().as_deref(), Some("waiting for pods, queues"));
        pods.done();
        queues.done();
        readiness.ready().await;
        assert_eq!(readiness.reason(), None);
        pods.set(false);
        assert_eq!(readiness.reason().as_deref(), Some("waiting for pods"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_with_a_stale_watch_is_unready_if_it_says_so() {
        let bounded = ProcessReadiness::with_max_staleness(Duration::from_secs(90));
        let unbounded = ProcessReadiness::default();
        let watch = |readiness: &ProcessReadiness| {
            let queues = readiness.without_waiting().awaiting("queues");
            [queues.watch(true), readiness.awaiting("owners").watch(false)]
        };
        let watches = [&bounded, &unbounded].map(watch);
        bounded.awaiting("owners").done();
        unbounded.awaiting("owners").done();
        assert_eq!(bounded.reason(), None);
        tokio::time::advance(Duration::from_secs(95)).await;
        assert_eq!(bounded.reason().as_deref(), Some("no answer to the watch of queues for 95 s"));
        assert_eq!(unbounded.reason(), None);
        for [queues, _] in &watches {
            queues.heard();
        }
        assert_eq!(bounded.reason(), None, "the other watch isn't required");
    }

    #[test]
    fn who_drains_is_unready() {
        let readiness = ProcessReadiness::default();
        readiness.drain();
        assert_eq!(readiness.reason().as_deref(), Some("shutting down"));
    }
}
