//! The readiness of a process, and the conditions that it waits for.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::sync::watch;

/// The conditions that a process waits for. It is unready while there are any, and again once it [drains](Self::drain).
#[derive(Clone, Debug, Default)]
pub struct ProcessReadiness {
    awaited: Arc<watch::Sender<BTreeSet<String>>>,
    draining: Arc<AtomicBool>,
}

/// A condition that a process waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    what: String,
    readiness: ProcessReadiness,
}

impl ProcessReadiness {
    /// Adds a condition: the process is unready until [`Awaited::done`].
    pub fn awaiting(&self, what: impl Into<String>) -> Awaited {
        let what = what.into();
        self.awaited.send_modify(|awaited| {
            awaited.insert(what.clone());
        });
        Awaited { what, readiness: self.clone() }
    }

    /// Returns once no condition is left.
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

    /// Returns the reason why the process is unready; none if it is ready.
    pub fn reason(&self) -> Option<String> {
        if self.is_draining() {
            return Some("shutting down".into());
        }
        self.awaited().map(|awaited| format!("waiting for {awaited}"))
    }

    /// Returns the conditions that are left, separated by commas; none if there are none.
    pub fn awaited(&self) -> Option<String> {
        let awaited = self.awaited.borrow();
        (!awaited.is_empty()).then(|| awaited.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

impl Awaited {
    /// Returns the name of the condition.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Marks the condition as met.
    pub fn done(&self) {
        self.readiness.awaited.send_if_modified(|awaited| awaited.remove(&self.what));
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
    }

    #[test]
    fn who_drains_is_unready() {
        let readiness = ProcessReadiness::default();
        readiness.drain();
        assert_eq!(readiness.reason().as_deref(), Some("shutting down"));
    }
}
