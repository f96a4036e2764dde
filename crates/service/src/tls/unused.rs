//! Connections that no request has come on yet. A server that shuts down waits for their first
//! requests: otherwise it would close them unanswered, and a client that has just connected would
//! lose its request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

/// The connections without a request, from their acceptance on. Clones share their number.
#[derive(Clone, Debug)]
pub struct UnusedConnections(watch::Sender<usize>);

impl Default for UnusedConnections {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl UnusedConnections {
    /// Adds a connection.
    pub fn add(&self) -> UnusedConnection {
        self.0.send_modify(|number| *number = number.saturating_add(1));
        UnusedConnection(Arc::new(Entry { of: self.0.clone(), is_used: AtomicBool::new(false) }))
    }

    /// Waits until each connection has had a request or is closed, but not for longer than this.
    pub async fn wait(&self, longest: Duration) {
        // clients may connect and send nothing
        let _ = timeout(longest, self.0.subscribe().wait_for(|number| *number == 0)).await;
    }
}

/// A connection that was added. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct UnusedConnection(Arc<Entry>);

impl UnusedConnection {
    /// Notes that a request has come.
    pub fn used(&self) {
        self.0.leave();
    }
}

#[derive(Debug)]
struct Entry {
    of: watch::Sender<usize>,
    is_used: AtomicBool,
}

impl Entry {
    fn leave(&self) {
        if !self.is_used.swap(true, Relaxed) {
            self.of.send_modify(|number| *number = number.saturating_sub(1));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn each_connection_is_awaited_until_its_first_request_or_its_end_but_not_for_ever() {
        let all = UnusedConnections::default();
        let waits = async || {
            let since = Instant::now();
            all.wait(LONGEST).await;
            since.elapsed()
        };
        assert_eq!(waits().await, Duration::ZERO);
        let (one, other) = (all.add(), all.add());
        assert_eq!(waits().await, LONGEST);
        one.clone().used();
        one.used();
        assert_eq!(waits().await, LONGEST, "the other");
        drop(other);
        assert_eq!(waits().await, Duration::ZERO);
    }
}
