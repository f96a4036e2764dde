//! The loop of a controller.

use std::pin::pin;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::{Lease, Work, WorkQueue};
use crate::gate::FreshnessGate;

/// The loop that works off a queue, the same for all controllers.
pub struct Run<'r, W: Work> {
    /// The queue.
    pub queue: &'r WorkQueue<W>,
    /// No call begins while this is closed. None: always open.
    pub gate: Option<&'r FreshnessGate>,
    /// Ends the loop: no call begins afterwards, and calls in flight are finished.
    pub end: &'r CancellationToken,
    /// True to finish what waits, too.
    pub drains: bool,
}

impl<W: Work> Run<'_, W> {
    /// Works until the end. `look` adds what is due to the queue, at the beginning and each time that `more` returns. `act` does
    /// the work of one lease; it is no `AsyncFn`, for with that no run could be spawned.
    pub async fn work<A: Future<Output = ()>>(
        self,
        mut look: impl FnMut(),
        mut more: impl AsyncFnMut(),
        act: impl Fn(Lease<W>) -> A,
    ) {
        let Self { queue, gate, end, drains } = self;
        let mut looks = pin!(async {
            loop {
                look();
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
                () = &mut looks, if is_open => {}
                () = opened(gate), if is_open && !is_fresh => {}
                () = end.cancelled(), if is_open => {}
            }
        }
    }
}

async fn opened(gate: Option<&FreshnessGate>) {
    if let Some(gate) = gate {
        gate.opened().await;
    }
}
