//! The events of a watch on their way to a client: held back, swallowed, or cut. An action may begin
//! and end while the stream lasts.

use std::{collections::HashMap, mem::take};

use futures::{Stream, StreamExt, stream::unfold};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::{
    select,
    sync::{mpsc, watch},
};

use super::{Call, FaultAction, Gate, api::Severed};

/// The body of an answer.
pub(super) type Answer = UnsyncBoxBody<Bytes, Severed>;

/// A part of the body, or the cut of the connection.
type Piece = Result<Frame<Bytes>, Severed>;

/// The pieces that may be on the way to a client that doesn't read.
const IN_FLIGHT: usize = 64;

/// The source of actions on a stream, and of news of changed rules.
pub(super) struct StreamFaults<F> {
    /// Returns the present action on the stream of a call. None: events pass.
    pub present: F,
    /// Changes whenever the rules change.
    pub changes: watch::Receiver<u64>,
    /// Lets events pass while the network lets them.
    pub gate: Gate,
}

/// Carries the events of a watch in the background, and returns the body that the client reads. The
/// end of the body is the end of the watch.
pub(super) fn carry<S, E, F>(call: Call, events: S, faults: StreamFaults<F>) -> Answer
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    E: Send + 'static,
    F: Fn(&Call) -> Option<FaultAction> + Send + Sync + 'static,
{
    let (sink, pieces) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let client_left = sink.clone();
        let mut pump = Pump { lines: Lines::default(), events, sink };
        select! {
            () = pump.run(&call, faults) => {}
            () = client_left.closed() => {}
        }
    });
    let body = unfold(pieces, async |mut pieces| pieces.recv().await.map(|piece| (piece, pieces)));
    StreamBody::new(body).boxed_unsync()
}

/// Carries events from the API server to the body of an answer.
struct Pump<S> {
    lines: Lines,
    events: S,
    sink: mpsc::Sender<Piece>,
}

impl<S, E> Pump<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// Carries events until the watch ends. Events that were held back pass when the action ends.
    async fn run<F: Fn(&Call) -> Option<FaultAction>>(&mut self, call: &Call, faults: StreamFaults<F>) {
        let StreamFaults { present, mut changes, mut gate } = faults;
        let (mut swallows, mut has_ended) = (false, false);
        loop {
            changes.mark_unchanged();
            match present(call) {
                None => {
                    gate.open().await;
                    if swallows {
                        self.lines.swallow();
                    }
                    let all = self.lines.take_all();
                    if !all.is_empty() && self.send(all).await.is_err() || has_ended {
                        return;
                    }
                    swallows = false;
                }
                Some(FaultAction::HalfOpen) => return std::future::pending().await,
                Some(FaultAction::Gone) => {
                    let _ = self.send(gone()).await;
                    return;
                }
                Some(FaultAction::CutWatchInEvent) if self.lines.is_empty() => {}
                Some(FaultAction::CutWatchInEvent) => {
                    let mut all = self.lines.take_all();
                    all.truncate(all.len() / 2);
                    let _ = self.send(all).await;
                    return self.sever().await;
                }
                Some(FaultAction::CutWatch) => return self.sever().await,
                Some(action) => swallows |= matches!(action, FaultAction::Swallow),
            }
            select! {
                piece = self.events.next(), if !has_ended => match piece {
                    Some(Ok(bytes)) => self.lines.push(&bytes),
                    _ => has_ended = true,
                },
                _ = changes.changed() => {}
            }
        }
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), mpsc::error::SendError<Piece>> {
        self.sink.send(Ok(Frame::data(bytes.into()))).await
    }

    /// Cuts the connection of the client.
    async fn sever(&mut self) {
        // an error means that the client has left before
        let _ = self.sink.send(Err(Severed)).await;
    }
}

/// Returns the event by which an API server ends a watch whose version it no longer has.
fn gone() -> Vec<u8> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into_bytes()
}

/// Events that haven't been sent, one per line, and the beginning of the next.
#[derive(Default)]
struct Lines {
    whole: Vec<Vec<u8>>,
    rest: Vec<u8>,
}

impl Lines {
    /// Adds bytes of the stream.
    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.whole.push(take(&mut self.rest));
            }
        }
    }

    const fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Takes the whole events.
    fn take_all(&mut self) -> Vec<u8> {
        take(&mut self.whole).concat()
    }

    /// Leaves the last state of each object, as if it had had no other: an API server that lists
    /// again shows no more. Objects that came and went are left out.
    fn swallow(&mut self) {
        let mut firsts: HashMap<String, bool> = HashMap::new();
        let mut last: Vec<(String, Value)> = Vec::new();
        for line in take(&mut self.whole) {
            let event: Value = serde_json::from_slice(&line).expect("an event is JSON");
            let uid = event.pointer("/object/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            let uid = uid.to_owned();
            firsts.entry(uid.clone()).or_insert_with(|| event["type"] == "ADDED");
            last.retain(|(of, _)| *of != uid);
            last.push((uid, event));
        }
        for (uid, mut event) in last {
            let came = firsts.get(&uid).copied().unwrap_or_default();
            match (came, event["type"] == "DELETED") {
                (true, true) => continue,
                (true, false) => event["type"] = json!("ADDED"),
                (false, _) => {}
            }
            self.whole.push(line_of(&event["type"], &event["object"]).into_bytes());
        }
    }
}

/// Returns an event as the API server writes it: the type comes first, so that a client needn't keep the
/// object until it knows the type.
fn line_of(kind: &Value, object: &Value) -> String {
    format!("{{\"type\":{kind},\"object\":{object}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, uid: &str, version: u32) -> String {
        let object = json!({"metadata": {"uid": uid, "resourceVersion": version.to_string()}});
        line_of(&json!(kind), &object)
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let (one, two) = (event("ADDED", "a", 1), event("ADDED", "b", 2));
        let all = format!("{one}{two}");
        let mut lines = Lines::default();
        for byte in all.as_bytes() {
            lines.push(&[*byte]);
        }
        lines.push(b"{\"type\"");
        assert_eq!(lines.whole.len(), 2);
        assert_eq!(lines.take_all(), all.as_bytes());
    }

    #[test]
    fn of_what_is_swallowed_the_last_state_is_left_and_nothing_of_what_has_come_and_gone() {
        let mut lines = Lines::default();
        for (kind, uid, version) in [
            ("ADDED", "gone", 1),
            ("ADDED", "new", 2),
            ("MODIFIED", "old", 3),
            ("MODIFIED", "new", 4),
            ("DELETED", "gone", 5),
            ("DELETED", "old", 6),
        ] {
            lines.push(event(kind, uid, version).as_bytes());
        }
        lines.swallow();
        let expected = event("ADDED", "new", 4) + &event("DELETED", "old", 6);
        assert_eq!(String::from_utf8(lines.take_all()).unwrap(), expected);
    }
}
