//! The end of a server on a signal. `run` of the keeper and of the webhook catches the signals
//! early, so that a signal during the start is noticed as well.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// SIGINT and SIGTERM. The first asks the process to end, the second ends the wait for it.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Catches the signals from now on. A signal before [`run`](Self::run) counts as the first.
    pub fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("failed to catch signals");
        Ok(Self { interrupt: catch(SignalKind::interrupt())?, terminate: catch(SignalKind::terminate())? })
    }

    /// Runs `work`. The first signal cancels the token of the work, which then ends by itself. The
    /// second signal drops the work, and returns an error.
    pub async fn run<T>(
        mut self,
        work: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let token = CancellationToken::new();
        let work = work(token.clone());
        tokio::pin!(work);
        tokio::select! {
            result = &mut work => return result,
            name = self.next() => info!(signal = name, "Shutting down"),
        }
        token.cancel();
        tokio::select! {
            result = &mut work => result,
            name = self.next() => anyhow::bail!("gave up on a clean end after a second signal, {name}"),
        }
    }

    /// Returns the name of the next signal.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
