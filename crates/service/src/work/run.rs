//! The loop of a controller, the same for all controllers of the keeper. All acts run on the task
//! of the loop, and wait for answers together.

use std::pin::pin;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{Lease, Work, WorkQueue};
use crate::gate::FreshnessGate;

/// The loop that works off a queue.
pub struct WorkLoop<'r, W: Work> {
    /// The queue.
    pub queue: &'r WorkQueue<W>,
    /// The gate that holds back new calls while the keeper's watches may be stale. Calls in flight
    /// go on. None: always open.
    pub gate: Option<&'r FreshnessGate>,
    /// The end of the loop. Once cancelled, no call begins, unless the loop drains; calls in flight
    /// are finished.
    pub end: &'r CancellationToken,
    /// True to finish the work that waits as well before the loop ends.
    pub drains: bool,
}

impl<W: Work> WorkLoop<'_, W> {
    /// Works until the end. `fill` adds due work to the queue, at the beginning and each time that
    /// `more` returns. `act` does the work of one lease, and ends the lease. `act` is no `AsyncFn`,
    /// because with that no run could be spawned.
    ///
    /// Returns once `end` is cancelled and no call is in flight. Dropping the future drops the
    /// calls in flight, whose work is then due again.
    pub async fn work<A: Future<Output = ()>>(
        self,
        mut fill: impl FnMut(),
        mut more: impl AsyncFnMut(),
        act: impl Fn(Lease<W>) -> A,
    ) {
        let Self { queue, gate, end, drains } = self;
        let mut filling = pin!(async {
            loop {
                fill();
                more().await;
            }
        });
        let mut acts = FuturesUnordered::new();
        loop {
            let is_open = !end.is_cancelled();
            let is_fresh = gate.is_none_or(FreshnessGate::is_open);
            let may_begin = is_fresh && (is_open || drains);
            while may_begin && let Some(lease) = queue.take() {
                acts.push(act(lease));
            }
            if !is_open && acts.is_empty() && (!drains || queue.waiting() == 0) {
                return;
            }
            tokio::select! {
                Some(()) = acts.next() => {}
                () = queue.changed(), if may_begin => {}
                () = &mut filling, if is_open => {}
                () = opened(gate), if is_open && !is_fresh => {}
                () = end.cancelled(), if is_open => {}
            }
        }
    }
}

/// Returns once the gate is open.
async fn opened(gate: Option<&FreshnessGate>) {
    if let Some(gate) = gate {
        gate.opened().await;
    }
}
