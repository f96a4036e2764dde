//! Whether a process can do its work, and what it waits for if not.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::sync::watch;

/// What is still awaited. Unready as long as that is anything, and again once it [drains](Self::drain).
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    awaited: Arc<watch::Sender<BTreeSet<String>>>,
    draining: Arc<AtomicBool>,
}

/// One thing that is awaited.
#[derive(Clone, Debug)]
pub struct Awaited {
    what: String,
    readiness: Readiness,
}

impl Readiness {
    /// Unready until [`Awaited::done`].
    pub fn awaiting(&self, what: impl Into<String>) -> Awaited {
        let what = what.into();
        self.awaited.send_modify(|awaited| {
            awaited.insert(what.clone());
        });
        Awaited { what, readiness: self.clone() }
    }

    /// Returns once nothing is awaited.
    pub async fn ready(&self) {
        // an error would mean that the sender is gone, but here it is
        let _ = self.awaited.subscribe().wait_for(BTreeSet::is_empty).await;
    }

    /// Unready from now on: the process will end.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Whether the process will end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Why the process is unready; none if it is ready.
    pub fn reason(&self) -> Option<String> {
        if self.is_draining() {
            return Some("shutting down".into());
        }
        self.awaited().map(|awaited| format!("waiting for {awaited}"))
    }

    /// What is still awaited; none if it is all there.
    pub fn awaited(&self) -> Option<String> {
        let awaited = self.awaited.borrow();
        (!awaited.is_empty()).then(|| awaited.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

impl Awaited {
    /// What it is.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// It is there.
    pub fn done(&self) {
        self.readiness.awaited.send_if_modified(|awaited| awaited.remove(&self.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_is_when_nothing_is_awaited() {
        let readiness = Readiness::default();
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
        let readiness = Readiness::default();
        readiness.drain();
        assert_eq!(readiness.reason().as_deref(), Some("shutting down"));
    }
}
